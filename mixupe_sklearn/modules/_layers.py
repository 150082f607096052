"""Shared parts of the image networks: stages, size checks, and a few layers."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any

from torch import Tensor, nn

# Builds a block from its input width, output width and stride.
MakeBlock = Callable[[int, int, int], nn.Module]


class Staged(nn.Module):
    """A module that runs its ``stages`` in sequence. Manifold Mixup mixes after any but the last.

    Each stage maps a float tensor to a float tensor. The last returns the logits.
    """

    def __init__(self, stages: Sequence[nn.Module]):
        super().__init__()
        self.stages = nn.ModuleList(stages)

    def forward(self, X: Tensor) -> Tensor:
        """Return the logits of a batch."""
        for stage in self.stages:
            X = stage(X)
        return X


class ResidualNet(Staged):
    """A stem, groups of residual blocks, and a head with global average pooling.

    Each group after the first doubles the width and halves the image. Convolutions are initialized
    by their fan-out.
    """

    def __init__(
        self,
        stem: nn.Module,
        make_block: MakeBlock,
        blocks: Sequence[int],
        d_in: int,
        d_out: int,
        n_outputs: int,
        final_norm: bool = False,
    ):
        stages = [stem]
        for i, n_blocks in enumerate(blocks):
            stages.append(block_group(make_block, n_blocks, d_in, d_out, stride=2 if i else 1))
            d_in, d_out = d_out, 2 * d_out
        norm = (nn.BatchNorm2d(d_in), nn.ReLU()) if final_norm else ()
        pool = (nn.AdaptiveAvgPool2d(1), nn.Flatten())
        super().__init__([*stages, nn.Sequential(*norm, *pool, nn.Linear(d_in, n_outputs))])
        he_fan_out(self)


class ImageCheck(nn.Module):
    """The first layer of a network: returns its input, or raises an error for an invalid shape.

    ``family`` and ``reason`` are words of the messages: the name of the network, and why it cannot
    process images smaller than ``least``. A network that is not ``exact`` accepts any larger size.
    """

    def __init__(
        self,
        family: str,
        n_channels: int,
        image_size: Any,
        least: int,
        reason: str,
        exact: bool = True,
    ):
        super().__init__()
        size = tuple(image_size) if isinstance(image_size, Sequence) else ()
        if len(size) != 2 or not all(is_count(value) for value in size):
            raise ValueError(
                f"Got image_size={image_size!r}, but expected two integers: height and width."
            )
        if min(size) < least:
            raise ValueError(
                f"Got image_size={image_size!r}, but {family} expected at least {least} x {least}: "
                f"{reason}."
            )
        self.family = family
        self.n_channels = n_channels
        self.image_size = (int(size[0]), int(size[1])) if exact else (least, least)
        self.exact = exact

    def forward(self, X: Tensor) -> Tensor:
        """Return the batch unchanged."""
        height, width = self.image_size
        if X.ndim == 4 and X.shape[1] == self.n_channels:
            is_larger = X.shape[2] >= height and X.shape[3] >= width
            if X.shape[2:] == self.image_size or (is_larger and not self.exact):
                return X
        least = "" if self.exact else " or larger"
        raise ValueError(
            f"Got a batch of shape {tuple(X.shape)}, but {self.family} expected "
            f"(n, {self.n_channels}, {height}, {width}){least}: build it with the n_channels and "
            f"image_size of the images."
        )


def is_count(value: Any) -> bool:
    """Whether a value is an integer of at least 1, and not a boolean."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def check_counts(**counts: Any) -> None:
    """Check that each value is an integer >= 1."""
    for name, value in counts.items():
        if not is_count(value):
            raise ValueError(f"Got {name}={value!r}, but expected an integer >= 1.")


def check_sequence(name: str, values: Any, n_least: int = 1) -> tuple[int, ...]:
    """Check a sequence of positive integers, and return it as a tuple."""
    found = tuple(values) if isinstance(values, Iterable) else (None,)
    if len(found) < n_least or not all(is_count(value) for value in found):
        least = f"at least {n_least} " if n_least else ""
        raise ValueError(f"Got {name}={values!r}, but expected a sequence of {least}integers >= 1.")
    return found


def blocks_of(
    family: str, depth: Any, known: Mapping[int, tuple[int, ...]], blocks: Any
) -> tuple[int, ...]:
    """The number of blocks of each group: the given ones, or those of a published depth."""
    if depth not in known:
        raise ValueError(
            f"Got depth={depth!r}, but {family} expected one of {', '.join(map(str, known))}: "
            f"give blocks for another one."
        )
    return check_sequence("blocks", known[depth] if blocks is None else blocks)


def conv(
    d_in: int, d_out: int, size: int, stride: int = 1, groups: int = 1, bias: bool = False
) -> nn.Conv2d:
    """A convolution with padding that keeps height and width, up to its stride."""
    return nn.Conv2d(d_in, d_out, size, stride, padding=size // 2, groups=groups, bias=bias)


def block_group(
    make_block: MakeBlock, n_blocks: int, d_in: int, d_out: int, stride: int
) -> nn.Sequential:
    """A sequence of blocks, of which the first changes width and size."""
    first = make_block(d_in, d_out, stride)
    return nn.Sequential(first, *(make_block(d_out, d_out, 1) for _ in range(n_blocks - 1)))


def he_fan_out(module: nn.Module) -> None:
    """Initialize all convolutions as in He et al. (2015), by fan-out.

    The fan-out of a grouped convolution is that of one group.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            fan_out = layer.out_channels * math.prod(layer.kernel_size) // layer.groups
            nn.init.normal_(layer.weight, std=math.sqrt(2 / fan_out))
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
