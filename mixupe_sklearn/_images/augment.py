"""Augmentation of batches of images: crops, flips and affine maps.

All functions take float tensors of shape (n, c, h, w) with a mean of zero, so that padding with
zeros is padding with the mean. They draw from torch's global generator of the tensor's device,
once for each image, and never write to their input.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

Augmentation = Callable[[Tensor], Tensor]


def flip(X: Tensor) -> Tensor:
    """Flip each image horizontally with a probability of one half."""
    is_flipped = torch.rand(len(X), 1, 1, 1, device=X.device) < 0.5
    return _laid_out_like(X, torch.where(is_flipped, X.flip(-1), X))


def pad_crop(X: Tensor, padding: int = 4) -> Tensor:
    """Pad each image with zeros and crop a random window of the original size."""
    n, _, height, width = X.shape
    padded = functional.pad(X, (padding,) * 4)
    top, left = torch.randint(2 * padding + 1, (2, n), device=X.device)
    # A view of every window: only the chosen ones are copied.
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)
    return _laid_out_like(X, windows[torch.arange(n, device=X.device), :, top, left])


def resized_crop(
    X: Tensor,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> Tensor:
    """Crop a random window from each image, and resize it to the size of the image.

    ``scale`` bounds the window's fraction of the area, which is drawn uniformly. ``ratio`` bounds
    its aspect ratio (width / height), drawn uniformly on a log scale. A window that exceeds the
    image is clipped, so that none is drawn again.
    """
    n, _, height, width = X.shape
    area = X.new_empty(n).uniform_(*scale)
    root = X.new_empty(n).uniform_(math.log(ratio[0]), math.log(ratio[1])).div(2).exp()
    # Fractions of the width and of the height. Their product is the fraction of the area.
    shape = math.sqrt(height / width)
    fractions = torch.stack([area.sqrt() * root * shape, area.sqrt() / root / shape]).clamp(max=1)
    # The centre of the window, in halves of the image, so that the window fits in.
    middle = (1 - fractions) * X.new_empty(2, n).uniform_(-1, 1)
    theta = torch.cat([torch.diag_embed(fractions.T), middle.T[:, :, None]], dim=2)
    # Border pixels are enlarged too, so values beyond their centres repeat them.
    return warp(X, theta, padding_mode="border")


def warp(X: Tensor, theta: Tensor, padding_mode: str = "zeros") -> Tensor:
    """Transform each image by its own affine map, with bilinear interpolation.

    ``theta`` of shape (n, 2, 3) or (1, 2, 3) maps points of the result to points of the input:
    ``theta[:, :, :2]`` multiplies (x, y), in pixels from the centre, x to the right and y down.
    ``theta[:, :, 2]`` is then added, in halves of the image's width and height. Values outside of
    the image are zeros, or the nearest pixel with ``padding_mode="border"``.
    """
    n, _, height, width = X.shape
    # Grids run from -1 to 1 along both axes.
    unequal = theta.new_tensor([[1.0, height / width, 1.0], [width / height, 1.0, 1.0]])
    theta = (theta * unequal).to(X.device, X.dtype).expand(n, 2, 3)
    grid = functional.affine_grid(theta, list(X.shape), align_corners=False)
    mapped = functional.grid_sample(X, grid, padding_mode=padding_mode, align_corners=False)
    return _laid_out_like(X, mapped)


def rotation(degrees: Tensor) -> Tensor:
    """Maps for ``warp`` that rotate images counterclockwise about their centre."""
    angle = torch.deg2rad(degrees)
    return _maps([[angle.cos(), -angle.sin()], [angle.sin(), angle.cos()]])


def shear(degrees: Tensor) -> Tensor:
    """Maps for ``warp`` that shear images horizontally by an angle."""
    one, zero = torch.ones_like(degrees), torch.zeros_like(degrees)
    return _maps([[one, torch.deg2rad(degrees).tan()], [zero, one]])


def zoom(fraction: Tensor) -> Tensor:
    """Maps for ``warp`` that show this fraction of the width and height: below 1 zooms in."""
    zero = torch.zeros_like(fraction)
    return _maps([[fraction, zero], [zero, fraction]])


def _maps(rows: list[list[Tensor]]) -> Tensor:
    """Affine maps (n, 2, 3) without a shift, from the entries of their matrices."""
    zero = torch.zeros_like(rows[0][0])
    return torch.stack([torch.stack([*row, zero], dim=-1) for row in rows], dim=-2)


def _laid_out_like(X: Tensor, result: Tensor) -> Tensor:
    """The result in the memory format of ``X``."""
    is_plain = X.is_contiguous() or not X.is_contiguous(memory_format=torch.channels_last)
    order = torch.contiguous_format if is_plain else torch.channels_last
    return result.contiguous(memory_format=order)


def _crop_flip(X: Tensor) -> Tensor:
    return flip(pad_crop(X))


def _resized_crop_flip(X: Tensor) -> Tensor:
    return flip(resized_crop(X))


# Named functions, so that an estimator that holds one can be pickled.
AUGMENTATIONS: dict[str, Augmentation] = {
    "flip": flip,
    "crop-flip": _crop_flip,
    "resized-crop-flip": _resized_crop_flip,
}


def make_augmentation(augment: Any) -> Augmentation | None:
    """The function of a batch for a parameter ``augment``, or None for no augmentation."""
    if augment is None or callable(augment):
        return augment
    if isinstance(augment, str) and augment in AUGMENTATIONS:
        return AUGMENTATIONS[augment]
    names = ", ".join(repr(name) for name in (None, *AUGMENTATIONS))
    raise ValueError(
        f"Got augment={augment!r}, but expected {names} or a function of a batch (n, c, h, w)."
    )
