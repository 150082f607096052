"""CoAtNet: convolutions on large feature maps, then attention on small ones."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from mixupe_sklearn.modules._attention import SelfAttention, feed_forward, small_normal
from mixupe_sklearn.modules._layers import (
    ImageCheck,
    MakeBlock,
    Staged,
    block_group,
    check_counts,
    check_sequence,
    conv,
    he_fan_out,
)

N_ATTENTION = 2  # the last groups use attention
EXPANSION = 4  # ratio of the hidden width of a block
SQUEEZE = 4  # ratio of the squeezed width of a gate


def _shortcut(d_in: int, d_out: int, stride: int) -> nn.Module:
    if d_in == d_out and stride == 1:
        return nn.Identity()
    return nn.Sequential(_pool(stride), conv(d_in, d_out, 1, bias=True))


def _pool(stride: int) -> nn.Module:
    # Odd sizes are rounded up, as by convolutions with padding.
    return nn.Identity() if stride == 1 else nn.MaxPool2d(stride, ceil_mode=True)


class Gate(nn.Module):
    """Squeeze and excitation: scales each map by a function of the means of all maps."""

    def __init__(self, d_maps: int, d_squeezed: int):
        super().__init__()
        self.scale = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            conv(d_maps, d_squeezed, 1, bias=True),
            nn.GELU(),
            conv(d_squeezed, d_maps, 1, bias=True),
            nn.Sigmoid(),
        )

    def forward(self, X: Tensor) -> Tensor:
        """Return the scaled maps."""
        return X * self.scale(X)


class MBConv(nn.Module):
    """An inverted bottleneck: a depthwise 3 x 3 convolution between two 1 x 1 convolutions.

    The first convolution has the stride, as in the paper's formula.
    """

    def __init__(self, d_in: int, d_out: int, stride: int):
        super().__init__()
        d_wide = EXPANSION * d_out
        self.shortcut = _shortcut(d_in, d_out, stride)
        self.branch = nn.Sequential(
            nn.BatchNorm2d(d_in),
            conv(d_in, d_wide, 1, stride),
            nn.BatchNorm2d(d_wide),
            nn.GELU(),
            conv(d_wide, d_wide, 3, groups=d_wide),
            nn.BatchNorm2d(d_wide),
            nn.GELU(),
            Gate(d_wide, max(1, d_out // SQUEEZE)),
            conv(d_wide, d_out, 1, bias=True),
        )

    def forward(self, X: Tensor) -> Tensor:
        """Return the sum of shortcut and branch."""
        return self.shortcut(X) + self.branch(X)


class RelativePlaces(nn.Module):
    """The relative position bias of attention: a learned number for each head and offset."""

    offset: Tensor

    def __init__(self, map_size: tuple[int, int], n_heads: int):
        super().__init__()
        height, width = map_size
        n_offsets = (2 * height - 1) * (2 * width - 1)
        self.scores = nn.Parameter(torch.empty(n_heads, n_offsets))
        nn.init.trunc_normal_(self.scores, std=0.02)
        rows = torch.arange(height).repeat_interleave(width)
        columns = torch.arange(width).repeat(height)
        down = rows[:, None] - rows + height - 1
        right = columns[:, None] - columns + width - 1
        # The index of the offset of each pair of positions.
        self.register_buffer("offset", down * (2 * width - 1) + right, persistent=False)

    def forward(self) -> Tensor:
        """Return the bias of each head for each pair of positions."""
        return self.scores[:, self.offset]


class AttentionBlock(nn.Module):
    """A transformer block on feature maps, with relative position bias.

    Pooling with the stride comes before attention and in the shortcut. ``map_size`` is the height
    and width of the output.
    """

    def __init__(self, d_in: int, d_out: int, stride: int, map_size: tuple[int, int], d_head: int):
        super().__init__()
        self.map_size = map_size
        self.shortcut = _shortcut(d_in, d_out, stride)
        self.norm = nn.LayerNorm(d_in, eps=1e-6)
        self.pool = _pool(stride)
        n_heads = d_out // d_head
        self.attention = SelfAttention(d_in, d_out, n_heads, RelativePlaces(map_size, n_heads))
        self.feed = feed_forward(d_out, EXPANSION * d_out)

    def forward(self, X: Tensor) -> Tensor:
        """Return the output maps."""
        ready = self.pool(self.norm(X.movedim(1, -1)).movedim(-1, 1))
        tokens = self.shortcut(X).flatten(2).mT + self.attention(ready.flatten(2).mT)
        tokens = tokens + self.feed(tokens)
        return tokens.mT.unflatten(2, self.map_size)


class CoAtNet(Staged):
    """CoAtNet: a stem, groups of convolution blocks, and two groups of attention blocks.

    The default is CoAtNet-0.

    Parameters
    ----------
    n_outputs : int
        Width of the output (logits).
    n_channels : int, default=3
        Number of channels of an image.
    image_size : pair of int, default=(224, 224)
        Height and width of an image.
    widths : sequence of int, default=(64, 96, 192, 384, 768)
        Width of the stem and of each group. Each of them halves the image.
    blocks : sequence of int, default=(2, 2, 3, 5, 2)
        Number of convolutions of the stem, and of blocks of each group.
    d_head : int, default=32
        Width of an attention head. It divides the last two widths.

    Attributes
    ----------
    stages : torch.nn.ModuleList
        The stem, each group of blocks, and the head.

    Notes
    -----
    Shapes: ``(n_samples, n_channels, height, width)`` in, ``(n_samples, n_outputs)`` out. Details
    that the paper leaves open follow most later implementations: the hidden width of a block is
    four times its output width, and that of the gate is a quarter. A norm and a dense layer with
    tanh follow the global pooling. There is no stochastic depth. Convolutions are initialized as
    in He et al. (2015), and dense layers from a truncated normal distribution with deviation
    0.02.

    References
    ----------
    Dai et al., "CoAtNet: Marrying Convolution and Attention for All Data Sizes", NeurIPS 2021.

    Examples
    --------
    A small network, for a CPU:

    >>> import torch
    >>> from mixupe_sklearn.modules import CoAtNet
    >>> module = CoAtNet(
    ...     10, image_size=(32, 32), widths=(8, 8, 16, 32), blocks=(1, 1, 1, 1), d_head=8
    ... )
    >>> module(torch.zeros(5, 3, 32, 32)).shape, len(module.stages)
    (torch.Size([5, 10]), 5)
    """

    def __init__(
        self,
        n_outputs: int,
        *,
        n_channels: int = 3,
        image_size: tuple[int, int] = (224, 224),
        widths: Sequence[int] = (64, 96, 192, 384, 768),
        blocks: Sequence[int] = (2, 2, 3, 5, 2),
        d_head: int = 32,
    ):
        check_counts(n_outputs=n_outputs, n_channels=n_channels, d_head=d_head)
        widths = check_sequence("widths", widths, n_least=1 + N_ATTENTION)
        blocks = check_sequence("blocks", blocks, n_least=1 + N_ATTENTION)
        if len(blocks) != len(widths):
            raise ValueError(
                f"Got blocks={blocks!r}, but expected {len(widths)} numbers, one for each of "
                f"widths."
            )
        if any(width % d_head for width in widths[-N_ATTENTION:]):
            raise ValueError(
                f"Got widths={widths!r}, but expected the last {N_ATTENTION} to be multiples of "
                f"d_head={d_head}."
            )
        reason = f"its stem and {len(widths) - 1} groups halve the image each"
        check = ImageCheck("CoAtNet", n_channels, image_size, 2 ** len(widths), reason)
        width = widths[0]
        layers: list[nn.Module] = [check, conv(n_channels, width, 3, stride=2)]
        for _ in range(blocks[0] - 1):
            layers += [nn.BatchNorm2d(width), nn.GELU(), conv(width, width, 3)]
        stages = [nn.Sequential(*layers)]
        for i in range(1, len(widths)):
            make: MakeBlock = MBConv
            if i >= len(widths) - N_ATTENTION:
                # After halving i + 1 times, each time rounded up.
                map_size = tuple(-(-side // 2 ** (i + 1)) for side in check.image_size)
                make = partial(AttentionBlock, map_size=map_size, d_head=d_head)
            stages.append(block_group(make, blocks[i], widths[i - 1], widths[i], stride=2))
        width = widths[-1]
        mean = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(width, eps=1e-6))
        dense = (nn.Linear(width, width), nn.Tanh(), nn.Linear(width, n_outputs))
        super().__init__([*stages, nn.Sequential(*mean, *dense)])
        he_fan_out(self)
        small_normal(self)
