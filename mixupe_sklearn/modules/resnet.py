"""ResNet-50 and deeper variants, for large images."""

from collections.abc import Sequence

from torch import Tensor, nn

from mixupe_sklearn.modules._layers import (
    ImageCheck,
    ResidualNet,
    blocks_of,
    check_counts,
    conv,
)

# Blocks of each group.
BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
EXPANSION = 4  # a bottleneck is a quarter of the width around it


class Bottleneck(nn.Module):
    """A residual block of 1 x 1, 3 x 3 and 1 x 1 convolutions, each with a norm."""

    def __init__(self, d_in: int, d_out: int, stride: int):
        super().__init__()
        d_middle = d_out // EXPANSION
        is_same = d_in == d_out and stride == 1
        self.shortcut = None if is_same else _convolved(d_in, d_out, 1, stride)
        self.branch = nn.Sequential(
            _convolved(d_in, d_middle, 1),
            nn.ReLU(),
            _convolved(d_middle, d_middle, 3, stride),
            nn.ReLU(),
            _convolved(d_middle, d_out, 1),
        )

    def forward(self, X: Tensor) -> Tensor:
        """Return the sum of shortcut and branch, after ReLU."""
        return nn.functional.relu(
            (X if self.shortcut is None else self.shortcut(X)) + self.branch(X)
        )


def _convolved(d_in: int, d_out: int, size: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(conv(d_in, d_out, size, stride), nn.BatchNorm2d(d_out))


class ResNet(ResidualNet):
    """Residual network of bottlenecks with a stem for large images. The default is ResNet-50.

    Parameters
    ----------
    n_outputs : int
        Width of the output (logits).
    n_channels : int, default=3
        Number of channels of an image.
    image_size : pair of int, default=(224, 224)
        Height and width of an image. Other large images work, too.
    depth : {50, 101, 152}, default=50
        Number of layers of the published network.
    width : int, default=64
        Width of the stem. The first group is four times as wide, and each further group is twice
        as wide as the previous one.
    blocks : sequence of int or None, default=None
        Number of blocks of each group. None means those of ``depth``. The stem
        reduces height and width to a quarter, and each group but the first halves them.

    Attributes
    ----------
    stages : torch.nn.ModuleList
        The stem, each group of blocks, and the head.

    Notes
    -----
    Shapes: ``(n_samples, n_channels, height, width)`` in, ``(n_samples, n_outputs)`` out. The
    3 x 3 convolution of a block has the stride, as in most implementations. In the paper, the first
    convolution has it.

    References
    ----------
    He et al., "Deep Residual Learning for Image Recognition", CVPR 2016.

    Examples
    --------
    >>> import torch
    >>> from mixupe_sklearn.modules import ResNet
    >>> ResNet(10, width=8, blocks=(1, 1, 1, 1))(torch.zeros(5, 3, 64, 64)).shape
    torch.Size([5, 10])
    """

    def __init__(
        self,
        n_outputs: int,
        *,
        n_channels: int = 3,
        image_size: tuple[int, int] = (224, 224),
        depth: int = 50,
        width: int = 64,
        blocks: Sequence[int] | None = None,
    ):
        check_counts(n_outputs=n_outputs, n_channels=n_channels, width=width)
        blocks = blocks_of("ResNet", depth, BLOCKS, blocks)
        least = 4 * 2 ** (len(blocks) - 1)
        reason = f"its stem and {len(blocks)} groups reduce that to 1 x 1"
        check = ImageCheck("ResNet", n_channels, image_size, least, reason, exact=False)
        convolved = _convolved(n_channels, width, 7, stride=2)
        pool = nn.MaxPool2d(3, stride=2, padding=1)
        stem = nn.Sequential(check, convolved, nn.ReLU(), pool)
        super().__init__(stem, Bottleneck, blocks, width, EXPANSION * width, n_outputs)
