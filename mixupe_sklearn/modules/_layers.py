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

    Parameters
    ----------
    stages : sequence of torch.nn.Module
        Each maps a float tensor to a float tensor. The last returns the logits.

    Examples
    --------
    >>> import torch
    >>> Staged([torch.nn.Flatten(), torch.nn.Linear(12, 2)])(torch.zeros(5, 3, 2, 2)).shape
    torch.Size([5, 2])
    """

    def __init__(self, stages: Sequence[nn.Module]):
        super().__init__()
        self.stages = nn.ModuleList(stages)

    def forward(self, X: Tensor) -> Tensor:
        """Return the logits of a batch."""
        for stage in self.stages:
            X = stage(X)
        return X


class ImageCheck(nn.Module):
    """The first layer of a network: returns its input, or raises an error for an invalid shape.

    Parameters
    ----------
    family : str
        Name of the network, for messages.
    n_channels : int
        Number of channels of an image.
    image_size : pair of int
        Height and width of an image.
    least : int
        The smallest height and width that the network can process.
    reason : str
        Why it cannot process smaller images, for messages.
    exact : bool, default=True
        Whether the network accepts this size only, or any size from ``least`` on.

    Examples
    --------
    >>> import torch
    >>> check = ImageCheck("VGG", 1, (160, 101), 32, "its 5 poolings halve the image each")
    >>> check(torch.zeros(5, 1, 101, 160))
    Traceback (most recent call last):
    ...
    ValueError: Got a batch of shape (5, 1, 101, 160), but VGG expected (n, 1, 160, 101): build it \
with the n_channels and image_size of the images.
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


def is_count(value: Any, low: int = 1) -> bool:
    """Whether a value is an integer of at least ``low``, and not a boolean."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= low


def check_counts(**counts: Any) -> None:
    """Check that each value is an integer >= 1.

    Examples
    --------
    >>> check_counts(n_outputs=10, width=0)
    Traceback (most recent call last):
    ...
    ValueError: Got width=0, but expected an integer >= 1.
    """
    for name, value in counts.items():
        if not is_count(value):
            raise ValueError(f"Got {name}={value!r}, but expected an integer >= 1.")


def check_sequence(name: str, values: Any, n_least: int = 1) -> tuple[int, ...]:
    """Check a sequence of positive integers, and return it as a tuple.

    Examples
    --------
    >>> check_sequence("blocks", [1, 2])
    (1, 2)
    >>> check_sequence("blocks", 2)
    Traceback (most recent call last):
    ...
    ValueError: Got blocks=2, but expected a sequence of at least 1 integers >= 1.
    """
    found = tuple(values) if isinstance(values, Iterable) else (None,)
    if len(found) < n_least or not all(is_count(value) for value in found):
        least = f"at least {n_least} " if n_least else ""
        raise ValueError(f"Got {name}={values!r}, but expected a sequence of {least}integers >= 1.")
    return found


def blocks_of(
    family: str, depth: Any, known: Mapping[int, tuple[int, ...]], blocks: Any
) -> tuple[int, ...]:
    """The number of blocks of each group: the given ones, or those of a published depth.

    Examples
    --------
    >>> blocks_of("VGG", 12, {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2)}, None)
    Traceback (most recent call last):
    ...
    ValueError: Got depth=12, but VGG expected one of 11, 13: give blocks for another one.
    """
    if depth not in known:
        raise ValueError(
            f"Got depth={depth!r}, but {family} expected one of {', '.join(map(str, known))}: "
            f"give blocks for another one."
        )
    return check_sequence("blocks", known[depth] if blocks is None else blocks)


def conv(d_in: int, d_out: int, size: int, stride: int = 1, **params: Any) -> nn.Conv2d:
    """A convolution with padding that keeps height and width, up to its stride. It has no bias.

    Examples
    --------
    >>> import torch
    >>> conv(3, 8, 3, stride=2)(torch.zeros(1, 3, 7, 8)).shape
    torch.Size([1, 8, 4, 4])
    """
    params = {"bias": False, **params}
    return nn.Conv2d(d_in, d_out, size, stride=stride, padding=size // 2, **params)


def block_group(
    make: MakeBlock, n_blocks: int, d_in: int, d_out: int, stride: int
) -> nn.Sequential:
    """A sequence of blocks, of which the first changes width and size.

    Examples
    --------
    >>> import torch
    >>> group = block_group(lambda d_in, d_out, stride: conv(d_in, d_out, 3, stride), 2, 4, 8, 2)
    >>> len(group), group(torch.zeros(1, 4, 8, 8)).shape
    (2, torch.Size([1, 8, 4, 4]))
    """
    first, *others = (
        make(d_in if i == 0 else d_out, d_out, 1 if i else stride) for i in range(n_blocks)
    )
    return nn.Sequential(first, *others)


def pooled_head(d_in: int, n_outputs: int, *before: nn.Module) -> nn.Sequential:
    """Logits from global average pooling, after the layers ``before``.

    Examples
    --------
    >>> import torch
    >>> pooled_head(8, 3)(torch.zeros(5, 8, 4, 4)).shape
    torch.Size([5, 3])
    """
    return nn.Sequential(*before, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(d_in, n_outputs))


def he_fan_out(module: nn.Module) -> None:
    """Initialize all convolutions as in He et al. (2015), by fan-out.

    The fan-out of a grouped convolution is that of one group.

    Examples
    --------
    >>> import torch
    >>> layer = conv(64, 128, 3)
    >>> he_fan_out(layer)
    >>> round(layer.weight.std().item() * (128 * 9 / 2) ** 0.5, 1)
    1.0
    """
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            fan_out = layer.out_channels * math.prod(layer.kernel_size) // layer.groups
            nn.init.normal_(layer.weight, std=math.sqrt(2 / fan_out))
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
