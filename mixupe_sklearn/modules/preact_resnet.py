"""PreActResNet and WideResNet: norm and ReLU come before each convolution of a block."""

from collections.abc import Sequence
from functools import partial

from torch import Tensor, nn

from mixupe_sklearn.modules._layers import (
    ImageCheck,
    ResidualNet,
    blocks_of,
    check_counts,
    conv,
)

# Blocks of each group.
BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}
EXPANSION = 4  # a bottleneck is a quarter of the width around it


class PreActBlock(nn.Module):
    """A residual block that begins with norm and ReLU, before the branch and the projection.

    A bottleneck has 1 x 1, 3 x 3 and 1 x 1 convolutions, another block two of 3 x 3. Dropout comes
    before the last convolution.
    """

    def __init__(
        self, d_in: int, d_out: int, stride: int, bottleneck: bool = False, dropout: float = 0.0
    ):
        super().__init__()
        self.before = nn.Sequential(nn.BatchNorm2d(d_in), nn.ReLU())
        is_same = d_in == d_out and stride == 1
        self.shortcut = None if is_same else conv(d_in, d_out, 1, stride)
        steps = [(d_in, d_out, 3, stride), (d_out, d_out, 3, 1)]
        if bottleneck:
            d = d_out // EXPANSION
            steps = [(d_in, d, 1, 1), (d, d, 3, stride), (d, d_out, 1, 1)]
        layers: list[nn.Module] = [conv(*steps[0])]
        for step in steps[1:]:
            layers += [nn.BatchNorm2d(step[0]), nn.ReLU(), conv(*step)]
        if dropout:
            layers.insert(-1, nn.Dropout(dropout))
        self.branch = nn.Sequential(*layers)

    def forward(self, X: Tensor) -> Tensor:
        """Return the sum of shortcut and branch."""
        ready = self.before(X)
        return (X if self.shortcut is None else self.shortcut(ready)) + self.branch(ready)


class PreActResNet(ResidualNet):
    """Pre-activation residual network with a stem for small images, as in the CIFAR experiments.

    Parameters
    ----------
    n_outputs : int
        Width of the output (logits).
    n_channels : int, default=3
        Number of channels of an image.
    image_size : pair of int, default=(32, 32)
        Height and width of an image. Larger images work, too.
    depth : {18, 34, 50, 101}, default=18
        Number of layers of the published network. From 50 on, its blocks are bottlenecks.
    width : int, default=64
        Width of the stem and of the first group. Each further group is twice as wide. Bottleneck
        groups are four times as wide.
    blocks : sequence of int or None, default=None
        Number of blocks of each group. None means those of ``depth``. Each group but the first
        halves the image.
    stem_stride : int, default=1
        Stride of the first convolution. Use 2 for images of 64 x 64, such as Tiny-ImageNet.
    final_norm : bool, default=False
        Whether norm and ReLU come before the head, as in He et al. The networks of the Mixup,
        Manifold Mixup and MixupE experiments do not have them.

    Attributes
    ----------
    stages : torch.nn.ModuleList
        The stem, each group of blocks, and the head.

    Notes
    -----
    Shapes: ``(n_samples, n_channels, height, width)`` in, ``(n_samples, n_outputs)`` out.

    References
    ----------
    He et al., "Identity Mappings in Deep Residual Networks", ECCV 2016.

    Examples
    --------
    A small network, for a CPU:

    >>> import torch
    >>> from mixupe_sklearn.modules import PreActResNet
    >>> module = PreActResNet(10, width=16, blocks=(1, 1, 1, 1))
    >>> module(torch.zeros(5, 3, 32, 32)).shape, len(module.stages)
    (torch.Size([5, 10]), 6)
    """

    def __init__(
        self,
        n_outputs: int,
        *,
        n_channels: int = 3,
        image_size: tuple[int, int] = (32, 32),
        depth: int = 18,
        width: int = 64,
        blocks: Sequence[int] | None = None,
        stem_stride: int = 1,
        final_norm: bool = False,
    ):
        check_counts(
            n_outputs=n_outputs, n_channels=n_channels, width=width, stem_stride=stem_stride
        )
        blocks = blocks_of("PreActResNet", depth, BLOCKS, blocks)
        least = stem_stride * 2 ** (len(blocks) - 1)
        reason = f"each of its {len(blocks)} groups but the first halves the image"
        check = ImageCheck("PreActResNet", n_channels, image_size, least, reason, exact=False)
        stem = nn.Sequential(check, conv(n_channels, width, 3, stem_stride))
        make_block = partial(PreActBlock, bottleneck=depth >= 50)
        d_out = width * (EXPANSION if depth >= 50 else 1)
        super().__init__(stem, make_block, blocks, width, d_out, n_outputs, final_norm)


class WideResNet(ResidualNet):
    """Wide residual network: three groups of pre-activation blocks. The default is WRN-28-10.

    Parameters
    ----------
    n_outputs : int
        Width of the output (logits).
    n_channels : int, default=3
        Number of channels of an image.
    image_size : pair of int, default=(32, 32)
        Height and width of an image. Larger images work, too.
    depth : int, default=28
        Number of layers: 4, plus 6 times the number of blocks of a group.
    widening : int, default=10
        Ratio of the widths of the first group and the stem. Each further group is twice as wide.
    width : int, default=16
        Width of the stem.
    dropout : float, default=0.0
        Fraction of the units dropped in training, between the convolutions of a block.

    Attributes
    ----------
    stages : torch.nn.ModuleList
        The stem, each group of blocks, and the head.

    Notes
    -----
    Shapes: ``(n_samples, n_channels, height, width)`` in, ``(n_samples, n_outputs)`` out.

    References
    ----------
    Zagoruyko and Komodakis, "Wide Residual Networks", BMVC 2016.

    Examples
    --------
    A small network, for a CPU:

    >>> import torch
    >>> from mixupe_sklearn.modules import WideResNet
    >>> WideResNet(10, depth=10, widening=2)(torch.zeros(5, 3, 32, 32)).shape
    torch.Size([5, 10])
    """

    def __init__(
        self,
        n_outputs: int,
        *,
        n_channels: int = 3,
        image_size: tuple[int, int] = (32, 32),
        depth: int = 28,
        widening: int = 10,
        width: int = 16,
        dropout: float = 0.0,
    ):
        check_counts(n_outputs=n_outputs, n_channels=n_channels, depth=depth)
        check_counts(widening=widening, width=width)
        n_blocks, rest = divmod(depth - 4, 6)
        if rest or n_blocks < 1:
            raise ValueError(
                f"Got depth={depth!r}, but WideResNet expected 4 plus a multiple of 6, such as 10, "
                f"16, 22, 28 or 40."
            )
        reason = "two of its groups halve the image"
        check = ImageCheck("WideResNet", n_channels, image_size, 4, reason, exact=False)
        stem = nn.Sequential(check, conv(n_channels, width, 3))
        make_block, blocks = partial(PreActBlock, dropout=dropout), [n_blocks] * 3
        d_out = width * widening
        super().__init__(stem, make_block, blocks, width, d_out, n_outputs, final_norm=True)
