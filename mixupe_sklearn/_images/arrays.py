"""Numbers as images: which axis holds the channels, what the values mean, and which size.

Images are tensors (n, c, h, w), of bytes (0 to 255) or of float32 (0 to 1).
"""

import math
import warnings
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mixupe_sklearn._utils.warnings import own_filters

# Grey, colour, colour with transparency: an axis of this size is taken for the channels.
CHANNELS = (1, 3, 4)
# How far floats may overstep a range by rounding; they are put back into it.
SLACK = 1e-5
# Images that are resized at once.
CHUNK = 256
LARGER = {"u2": "i4", "u4": "i8", "u8": "i8", "f16": "f8"}
WAY_OUT = "give value_range=(low, high) if they have another range"
# Some have normalised their images by habit.
NORMALISED = ", leave normalising to fit, and spectrograms to MixupESpeechClassifier"
# How one knows a range that a user gave; some give the one that they want in the end.
AS_GIVEN = ", as value_range says"
NOT_THE_RESULT = "give the range in which values come, not one to map them to: None for bytes"

Range = tuple[float, float]
Where = Callable[[int], str]


def check_image_size(image_size: Any) -> None:
    """Raise one sentence unless a size is None or (height, width).

    Examples
    --------
    >>> check_image_size(32)
    Traceback (most recent call last):
        ...
    ValueError: Got image_size=32, but expected None or two integers >= 1: (height, width).
    """
    if image_size is None:
        return
    if isinstance(image_size, (tuple, list)) and len(image_size) == 2:
        is_good = [isinstance(side, Integral) and int(side) >= 1 for side in image_size]
        if all(is_good):
            return
    raise ValueError(
        f"Got image_size={image_size!r}, but expected None or two integers >= 1: (height, width)."
    )


def check_value_range(value_range: Any) -> None:
    """Raise one sentence unless a range is None or (low, high).

    Examples
    --------
    >>> check_value_range((1, 0))
    Traceback (most recent call last):
        ...
    ValueError: Got value_range=(1, 0), but expected None or two finite numbers: (low, high).
    """
    if value_range is None:
        return
    if isinstance(value_range, (tuple, list)) and len(value_range) == 2:
        is_good = [isinstance(end, Real) and math.isfinite(end) for end in value_range]
        if all(is_good) and value_range[0] < value_range[1]:
            return
    raise ValueError(
        f"Got value_range={value_range!r}, but expected None or two finite numbers: (low, high)."
    )


def as_tensor(data: Any, name: str) -> Tensor:
    """Numbers as a tensor that shares their memory where it can; read-only memory stays so.

    Examples
    --------
    >>> import numpy as np
    >>> as_tensor(np.ones((1, 2), dtype=np.uint8), "X")
    tensor([[1, 1]], dtype=torch.uint8)
    """
    if isinstance(data, Tensor):
        if data.is_complex() or data.is_sparse:
            raise TypeError(f"Got {name} of type {data.dtype}, but expected dense real numbers.")
        return data.detach()
    if data.dtype.kind not in "biuf":
        raise TypeError(f"Got {name} of type {data.dtype}, but expected real numbers.")
    kind = data.dtype.newbyteorder("=")
    # torch cannot compute with these.
    kind = np.dtype(LARGER.get(kind.str[1:], kind))
    data = data.astype(kind, copy=False)
    if any(stride < 0 for stride in data.strides):
        data = data.copy()
    if data.flags.writeable:
        return torch.from_numpy(data)
    with own_filters():
        # Nobody writes to it, and a copy would double the memory of the data.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(data)


def channels_first(images: Tensor, name: str, *, is_torch: bool, is_single: bool = False) -> Tensor:
    """A view (n, c, h, w) of images (n, h, w), (n, h, w, c) or (n, c, h, w).

    The channels are the axis of size 1, 3 or 4. In torch they come first: tensors are read so
    wherever they can be, and with any number of channels that is smaller than the image. A
    single image has ``n = 1``, of which sentences do not speak.

    Examples
    --------
    >>> import torch
    >>> channels_first(torch.zeros(5, 32, 16, 3), "X", is_torch=False).shape
    torch.Size([5, 3, 32, 16])
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
    shape, axes = _told(images, is_single)
    fault = "two axes" if first else "no axis"
    raise ValueError(
        f"Got {name} of shape {shape} with {fault} of 1, 3 or 4 channels, but expected {axes}; a "
        f"torch tensor is read with channels first, any number of them below h and w."
    )


def _told(images: Tensor, is_single: bool) -> tuple[tuple[int, ...], str]:
    """The shape as the user knows it, and those that it may have."""
    if is_single:
        return tuple(images.shape[1:]), "(h, w, c) or (c, h, w)"
    return tuple(images.shape), "(n, h, w, c) or (n, c, h, w)"


def _check_axes(images: Tensor, name: str) -> None:
    shape = tuple(images.shape)
    hint = ""
    if len(shape) == 2:
        hint = "; rows of pixels need their size, as in X.reshape(-1, 28, 28)"
    elif len(shape) == 3 and shape[2] in CHANNELS and shape[1] > 4:
        hint = "; a single image (h, w, c) becomes a set of one by X[None]"
    if len(shape) not in (3, 4) or hint:
        raise ValueError(
            f"Got {name} of shape {shape}, but expected images (n, h, w), (n, h, w, c) or "
            f"(n, c, h, w){hint}."
        )
    if 0 in shape:
        raise ValueError(f"Got {name} of shape {shape}, but expected one image at least.")


def one_image(data: Any, where: str) -> Tensor:
    """A view (1, c, h, w) of one image (h, w), (h, w, c) or (c, h, w).

    Examples
    --------
    >>> import numpy as np
    >>> one_image(np.zeros((32, 16, 3)), "X[0]").shape
    torch.Size([1, 3, 32, 16])
    """
    image = as_tensor(data, where)
    if image.ndim not in (2, 3) or 0 in image.shape:
        raise ValueError(
            f"Got {where} of shape {tuple(image.shape)}, but expected an image (h, w), (h, w, c) "
            f"or (c, h, w)."
        )
    if image.ndim == 2:
        return image[None, None]
    is_torch = isinstance(data, Tensor)
    return channels_first(image[None], where, is_torch=is_torch, is_single=True)


def find_range(images: list[Tensor], name: str, where: Where) -> Range | None:
    """Which values floats run through, judged from all of them; None if there are no floats.

    Examples
    --------
    >>> import torch
    >>> find_range([torch.tensor([0.0, 200.0])], "X", str)
    (0.0, 255.0)
    """
    ends = [
        check_finite(part, where, k) for k, part in enumerate(images) if part.is_floating_point()
    ]
    if not ends:
        return None
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    if low >= -SLACK and high <= 1 + SLACK:
        return 0.0, 1.0
    # Floats up to 1.3 are no dark images of 0 to 255: something else happened to them.
    if low >= -SLACK and 2 < high <= 255 * (1 + SLACK):
        return 0.0, 255.0
    assumed, reason = ("255", "some are") if high > 1 + SLACK else ("1", "none is")
    span = f"0 to {assumed} was assumed, since {reason} above 1"
    if low >= -SLACK and high <= 2:
        span = "for 0 to 255, none is above 2"
    raise ValueError(
        f"Got {name} with floats from {low:.6g} to {high:.6g}, but expected them within 0 to 1, or "
        f"within 0 to 255 ({span}); {WAY_OUT}{NORMALISED if low < -SLACK else ''}."
    )


def check_clear(images: list[Tensor], name: str) -> None:
    """Raise one sentence if all floats are 0 or 1: black and white, or the darkest of 0 to 255.

    Examples
    --------
    >>> import torch
    >>> check_clear([torch.tensor([0.0, 1.0, 0.2])], "X")
    >>> check_clear([torch.tensor([0.0, 1.0])], "X")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ValueError: Got X with floats that are all 0 or 1, but expected others after a fit on bytes...
    """
    floats = [part for part in images if part.is_floating_point()]
    # Of zeros alone it does not matter: they are black in any case.
    if not any(bool(part.any()) for part in floats):
        return
    if all(bool(((part == 0) | (part == 1)).all()) for part in floats):
        raise ValueError(
            f"Got {name} with floats that are all 0 or 1, but expected others after a fit on "
            f"bytes, since 1 may be white or nearly black; give bytes: (255 * X).astype('uint8') "
            f"if it is white, else X.astype('uint8')."
        )


def check_finite(images: Tensor, where: Where, start: int = 0) -> tuple[float, float]:
    """The least and the greatest value of floats, or one sentence on the first that is not finite.

    Examples
    --------
    >>> import torch
    >>> check_finite(torch.tensor([[0.0, 1.0], [2.0, torch.nan]]), "X[{}]".format)
    Traceback (most recent call last):
        ...
    ValueError: Got X[1] with a pixel of nan, but expected finite numbers.
    """
    low, high = (float(end) for end in torch.aminmax(images))
    if math.isfinite(low) and math.isfinite(high):
        return low, high
    number = int(torch.isfinite(images.flatten(1)).all(dim=1).int().argmin())
    values = images[number]
    value = float(values[~torch.isfinite(values)][0])
    raise ValueError(
        f"Got {where(start + number)} with a pixel of {value}, but expected finite numbers."
    )


def to_unit(images: Tensor, where: Where, value_range: Range | None, told: str = "") -> Tensor:
    """Images as bytes, or as float32 from 0 to 1, or one sentence on the first that cannot be.

    Parameters
    ----------
    images : tensor of shape (n, c, h, w)
        The images. Booleans and bytes need no range.
    where : callable
        From the number of an image to its name, for sentences.
    value_range : pair of float or None
        What becomes 0 and 1; None takes integers for 0 to 255.
    told : str, default=""
        How one knows this range; ``AS_GIVEN`` if the user gave it.

    Returns
    -------
    images : tensor of shape (n, c, h, w)
        Of uint8 or float32; the same memory where nothing had to change.

    Examples
    --------
    >>> import torch
    >>> to_unit(torch.tensor([[0, 255]]), str, None)
    tensor([[  0, 255]], dtype=torch.uint8)
    >>> to_unit(torch.tensor([[-1.0, 0.0]]), str, (-1, 1))
    tensor([[0.0000, 0.5000]])
    """
    if images.dtype == torch.bool:
        return images.to(torch.uint8) * 255
    if not images.is_floating_point() and value_range in (None, (0, 255)):
        if images.dtype != torch.uint8:
            _check_within(images, where, (0, 255), "")
        return images.to(torch.uint8)
    low, high = value_range or (0.0, 1.0)
    oversteps = _check_within(images, where, (low, high), told)
    images = images.to(torch.float64 if images.dtype == torch.int64 else torch.float32)
    if (low, high) != (0, 1):
        images = (images - low).div_(high - low).float()
    return images.clamp(0, 1) if oversteps else images


def _check_within(images: Tensor, where: Where, span: Range, told: str) -> bool:
    """Whether some values overstep the range by rounding; one sentence if by more."""
    if images.is_floating_point():
        check_finite(images, where)
    least, most = (end.item() for end in torch.aminmax(images))
    if span[0] <= least and most <= span[1]:
        return False
    slack = SLACK * (span[1] - span[0]) if images.is_floating_point() else 0
    low, high = span[0] - slack, span[1] + slack
    if low <= least and most <= high:
        return True
    is_bad = ((images < low) | (images > high)).flatten(1)
    number = int(is_bad.any(dim=1).int().argmax())
    value = images[number].flatten()[is_bad[number]][0].item()
    is_normalised = images.is_floating_point() and least < low
    way_out = WAY_OUT + (NORMALISED if is_normalised else "")
    raise ValueError(
        f"Got {where(number)} with a pixel of {value:.6g}, but expected {span[0]:g} to {span[1]:g}"
        f"{told}; {NOT_THE_RESULT if told == AS_GIVEN else way_out}."
    )


def resize(images: Tensor, image_size: tuple[int, int] | None) -> Tensor:
    """Images (n, c, h, w) stretched to (height, width), bilinear and antialiased.

    Examples
    --------
    >>> import torch
    >>> resize(torch.tensor([[[[0, 100], [100, 200]]]], dtype=torch.uint8), (1, 1))
    tensor([[[[100]]]], dtype=torch.uint8)
    """
    if image_size is None or tuple(images.shape[2:]) == tuple(image_size):
        return images
    size = [int(side) for side in image_size]
    parts = [
        functional.interpolate(part, size, mode="bilinear", antialias=True)
        for part in images.split(CHUNK)
    ]
    return torch.cat(parts)
