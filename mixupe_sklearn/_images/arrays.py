"""Arrays as images: the channel axis, the value range, and the size.

Images are tensors (n, c, h, w) of uint8 (0 to 255) or of float32 (0 to 1).
"""

import math
import warnings
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mixupe_sklearn._utils.warnings import own_filters

# Grey, RGB and RGBA: an axis of this size is taken as the channel axis.
CHANNELS = (1, 3, 4)
# Floats may exceed a range by this fraction (rounding) and are clipped.
TOLERANCE = 1e-5
# Number of images that are resized at once.
CHUNK = 256
LARGER = {"u2": "i4", "u4": "i8", "u8": "i8"}
ADVICE = "value_range=(low, high) declares the range of the input, which fit normalises"

Range = tuple[float, float]


def check_pairs(image_size: Any, value_range: Any) -> None:
    """Raise an error unless a size is None or (height, width), and a range None or (low, high)."""
    if image_size is not None and not (_is_pair(image_size, Integral) and min(image_size) >= 1):
        raise ValueError(
            f"Got image_size={image_size!r}, but expected None or two integers >= 1: "
            f"(height, width)."
        )
    is_range = _is_pair(value_range, Real) and value_range[0] < value_range[1]
    if value_range is not None and not (is_range and all(map(math.isfinite, value_range))):
        raise ValueError(
            f"Got value_range={value_range!r}, but expected None or two finite numbers: "
            f"(low, high)."
        )


def _is_pair(value: Any, kind: type) -> bool:
    is_sequence = isinstance(value, (tuple, list)) and len(value) == 2
    return is_sequence and all(isinstance(one, kind) for one in value)


def as_tensor(data: Any, name: str) -> Tensor:
    """An array as a tensor that shares its memory if possible. Read-only memory stays read-only."""
    if isinstance(data, Tensor):
        if data.is_complex() or data.is_sparse:
            raise TypeError(f"Got {name} of type {data.dtype}, but expected dense real numbers.")
        return data.detach()
    if data.dtype.kind not in "biuf":
        raise TypeError(f"Got {name} of type {data.dtype}, but expected real numbers.")
    kind = data.dtype.newbyteorder("=")
    # torch does not support some types.
    kind = np.dtype(LARGER.get(kind.str[1:], kind))
    data = data.astype(kind, copy=False)
    if any(stride < 0 for stride in data.strides):
        data = data.copy()
    if data.flags.writeable:
        return torch.from_numpy(data)
    with own_filters():
        # Nothing writes to it, and a copy would double the memory.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(data)


def channels_first(images: Tensor, name: str, *, is_torch: bool) -> Tensor:
    """A view (n, c, h, w) of images (n, h, w), (n, h, w, c) or (n, c, h, w).

    The channel axis has a size of 1, 3 or 4. For torch tensors, channels come first if possible,
    and their number may be any number below the height and width.
    """
    _check_axes(images, name)
    if images.ndim == 3:
        return images[:, None]
    first, last = images.shape[1] in CHANNELS, images.shape[3] in CHANNELS
    if is_torch and not last:
        first = first or images.shape[1] < min(images.shape[2:])
    if first and (is_torch or not last):
        return images
    if last and not first:
        return images.movedim(3, 1)
    problem = "two axes" if first else "no axis"
    raise ValueError(
        f"Got {name} with images of shape {tuple(images.shape[1:])}, {problem} of 1, 3 or 4 "
        f"channels, but expected (h, w, c) or (c, h, w); torch tensors may have any number of "
        f"channels below h and w, channels first."
    )


def _check_axes(images: Tensor, name: str) -> None:
    shape = tuple(images.shape)
    hint = ""
    if len(shape) == 2:
        hint = "; reshape rows of pixels, as in X.reshape(-1, 28, 28)"
    elif len(shape) == 3 and shape[2] in CHANNELS and shape[1] > 4:
        hint = "; pass a single image (h, w, c) as X[None]"
    if len(shape) not in (3, 4) or hint:
        raise ValueError(
            f"Got {name} of shape {shape}, but expected images (n, h, w), (n, h, w, c) or "
            f"(n, c, h, w){hint}."
        )
    if 0 in shape:
        raise ValueError(f"Got {name} of shape {shape}, but expected at least one image.")


def one_image(data: Any, where: str) -> Tensor:
    """A view (1, c, h, w) of one image (h, w), (h, w, c) or (c, h, w)."""
    image = as_tensor(data, where)
    if image.ndim not in (2, 3) or 0 in image.shape:
        raise ValueError(
            f"Got {where} of shape {tuple(image.shape)}, but expected an image (h, w), (h, w, c) "
            f"or (c, h, w)."
        )
    if image.ndim == 2:
        return image[None, None]
    return channels_first(image[None], where, is_torch=isinstance(data, Tensor))


def find_range(images: list[Tensor], name: str) -> Range | None:
    """The value range of floats, inferred from all images, or None if there are no floats."""
    ends = [
        _check_finite(part, name, k) for k, part in enumerate(images) if part.is_floating_point()
    ]
    if not ends:
        return None
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    if low >= -TOLERANCE and high <= 1 + TOLERANCE:
        return 0.0, 1.0
    # A maximum of 1.3 is not a dark image of 0 to 255: the values were transformed.
    if low >= -TOLERANCE and 2 < high <= 255 * (1 + TOLERANCE):
        return 0.0, 255.0
    raise ValueError(
        f"Got {name} with floats from {low:.6g} to {high:.6g}, but expected them within 0 to 1, or "
        f"within 0 to 255 with some above 2; {ADVICE}."
    )


def _check_finite(images: Tensor, name: str, start: int) -> tuple[float, float]:
    """The minimum and maximum of floats. Raises an error for the first non-finite value."""
    low, high = (float(end) for end in torch.aminmax(images))
    if math.isfinite(low) and math.isfinite(high):
        return low, high
    number = int(torch.isfinite(images.flatten(1)).all(dim=1).int().argmin())
    values = images[number]
    value = float(values[~torch.isfinite(values)][0])
    raise ValueError(
        f"Got {name}[{start + number}] with a pixel of {value}, but expected finite numbers."
    )


def to_unit(images: Tensor, name: str, value_range: Range | None, start: int = 0) -> Tensor:
    """Images as uint8, or as float32 from 0 to 1. Raises an error for values out of range.

    ``value_range`` has the values that become 0 and 1. None means 0 to 255 for integers. ``start``
    is the position of the first of these images among all. The result shares memory with the input
    if nothing changed.
    """
    if images.dtype == torch.bool:
        return images.to(torch.uint8) * 255
    if not images.is_floating_point() and value_range in (None, (0, 255)):
        if images.dtype != torch.uint8:
            _check_within(images, name, (0, 255), start)
        return images.to(torch.uint8)
    low, high = value_range or (0.0, 1.0)
    exceeds = _check_within(images, name, (low, high), start)
    images = images.to(torch.float64 if images.dtype == torch.int64 else torch.float32)
    if (low, high) != (0, 1):
        images = (images - low).div_(high - low).float()
    return images.clamp(0, 1) if exceeds else images


def _check_within(images: Tensor, name: str, span: Range, start: int) -> bool:
    """Whether values exceed the range by rounding. Raises an error if they exceed it by more."""
    if images.is_floating_point():
        _check_finite(images, name, start)
    minimum, maximum = (end.item() for end in torch.aminmax(images))
    if span[0] <= minimum and maximum <= span[1]:
        return False
    tolerance = TOLERANCE * (span[1] - span[0]) if images.is_floating_point() else 0
    low, high = span[0] - tolerance, span[1] + tolerance
    if low <= minimum and maximum <= high:
        return True
    is_outside = ((images < low) | (images > high)).flatten(1)
    number = int(is_outside.any(dim=1).int().argmax())
    value = images[number].flatten()[is_outside[number]][0].item()
    raise ValueError(
        f"Got {name}[{start + number}] with a pixel of {value:.6g}, but expected {span[0]:g} to "
        f"{span[1]:g}; {ADVICE}."
    )


def check_alike(
    image: Tensor, shape: tuple[int, ...], dtype: torch.dtype, where: str, first: str
) -> None:
    """Raise an error if channels, size or type of an image (c, h, w) differ from the first."""
    if len(image) != shape[0]:
        channels = "1 channel" if len(image) == 1 else f"{len(image)} channels"
        raise ValueError(
            f"Got {where} with {channels}, but expected {shape[0]} as {first} has; make all grey "
            f"or all RGB."
        )
    if tuple(image.shape) != tuple(shape):
        raise ValueError(
            f"Got {where} of size {tuple(image.shape[1:])}, but expected {tuple(shape[1:])} as "
            f"{first} has; give image_size=(height, width) to resize all."
        )
    if image.dtype != dtype:
        raise ValueError(
            f"Got {where} of {image.dtype}, but expected {dtype} as {first} has; make all of one "
            f"type."
        )


def resize(images: Tensor, image_size: tuple[int, int] | None) -> Tensor:
    """Resize images (n, c, h, w) to (height, width): bilinear, with antialiasing."""
    if image_size is None or tuple(images.shape[2:]) == tuple(image_size):
        return images
    how: dict[str, Any] = {"size": list(image_size), "mode": "bilinear", "antialias": True}
    return torch.cat([functional.interpolate(part, **how) for part in images.split(CHUNK)])
