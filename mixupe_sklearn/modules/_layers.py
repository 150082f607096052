"""Shared parts of the image networks: stages, size checks, and a few layers."""

import math
from collections.abc import Callable, Sequence
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
        Height and width of an image, or their minimum if ``exact`` is false.
    exact : bool
        Whether the network accepts one size only.

    Examples
    --------
    >>> import torch
    >>> check = ImageCheck("VGG", 1, (160, 101), exact=True)
    >>> check(torch.zeros(5, 1, 101, 160))
    Traceback (most recent call last):
    ...
    ValueError: Got a batch of shape (5, 1, 101, 160), but VGG expected (n, 1, 160, 101): build it \
with the n_channels and image_size of the images.
    """

    def __init__(self, family: str, n_channels: int, image_size: tuple[int, int], exact: bool):
        super().__init__()
        self.family = family
        self.n_channels = n_channels
        self.image_size = tuple(image_size)
        self.exact = exact

    def forward(self, X: Tensor) -> Tensor:
        """Return the batch unchanged."""
        if X.ndim == 4 and X.shape[1] == self.n_channels and self._fits(X.shape[2], X.shape[3]):
            return X
        height, width = self.image_size
        least = "" if self.exact else " or larger"
        raise ValueError(
            f"Got a batch of shape {tuple(X.shape)}, but {self.family} expected "
            f"(n, {self.n_channels}, {height}, {width}){least}: build it with the n_channels and "
            f"image_size of the images."
        )

    def _fits(self, height: int, width: int) -> bool:
        if self.exact:
            return (height, width) == self.image_size
        return height >= self.image_size[0] and width >= self.image_size[1]

    def extra_repr(self) -> str:
        """Parameters, for ``repr``."""
        return f"n_channels={self.n_channels}, image_size={self.image_size}, exact={self.exact}"


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
    found = tuple(values) if isinstance(values, Sequence) else ()
    if len(found) < n_least or not all(is_count(value) for value in found):
        raise ValueError(
            f"Got {name}={values!r}, but expected a sequence of at least {n_least} integers >= 1."
        )
    return found


def check_depth(family: str, depth: Any, known: Sequence[int]) -> None:
    """Check that a network is defined for this depth.

    Examples
    --------
    >>> check_depth("VGG", 12, (11, 13))
    Traceback (most recent call last):
    ...
    ValueError: Got depth=12, but VGG expected one of 11, 13: give blocks for another one.
    """
    if depth not in known:
        names = ", ".join(map(str, known))
        raise ValueError(
            f"Got depth={depth!r}, but {family} expected one of {names}: give blocks for another "
            f"one."
        )


def check_image_size(family: str, image_size: Any, least: int, reason: str) -> tuple[int, int]:
    """Check that images are large enough for a network, and return their height and width.

    Examples
    --------
    >>> check_image_size("VGG", (8, 40), 32, "its 5 poolings halve the image each")
    Traceback (most recent call last):
    ...
    ValueError: Got image_size=(8, 40), but VGG expected at least 32 x 32: its 5 poolings halve \
the image each.
    """
    found = tuple(image_size) if isinstance(image_size, Sequence) else ()
    if len(found) != 2 or not all(is_count(value) for value in found):
        raise ValueError(
            f"Got image_size={image_size!r}, but expected two integers: height and width."
        )
    if min(found) < least:
        raise ValueError(
            f"Got image_size={image_size!r}, but {family} expected at least {least} x {least}: "
            f"{reason}."
        )
    return int(found[0]), int(found[1])


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
