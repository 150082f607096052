"""Read images from arrays, lists, files, folders and torch datasets."""

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, Subset

from mixupe_sklearn._images.arrays import (
    Range,
    as_tensor,
    channels_first,
    check_alike,
    check_pairs,
    find_range,
    resize,
    to_unit,
)
from mixupe_sklearn._images.files import ImageFiles, is_colour, is_image, list_folder, list_images
from mixupe_sklearn._images.torch_datasets import (
    CHUNK,
    DatasetImages,
    batches,
    find_labels,
    read_item,
)

# Files whose pixels need at most this many bytes are read into memory.
IN_MEMORY = 2**30
# Below this standard deviation, a channel is constant up to rounding.
CONSTANT = 1e-8
KINDS = "arrays, a list of images or of files, a folder of class folders, or a torch Dataset"


@dataclass(frozen=True)
class ImageData:
    """The result of ``read_images``.

    Parameters
    ----------
    data : tensor of shape (n, c, h, w), ImageFiles or DatasetImages
        The images: uint8, or float32 from 0 to 1. If it is not a tensor, it is a lazy torch Dataset
        with a ``shape``, whose items are such tensors (c, h, w).
    labels : array of shape (n,) or (n, n_labels), or None
        Names of the class folders, or labels of a Dataset.
    float_range : pair of float or None
        The range of floats: given, or inferred. None if there were no floats.
    """

    data: Any
    labels: np.ndarray | None = None
    float_range: Range | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Number of images, channels, height and width."""
        return tuple(self.data.shape)


def read_images(
    X: Any,
    *,
    image_size: tuple[int, int] | None = None,
    value_range: Range | None = None,
    float_range: Range | None = None,
    n_channels: int | None = None,
    labelled: bool = True,
    n_classes: int = 2,
    n_workers: int = 0,
    name: str = "X",
) -> ImageData:
    """Read images, or raise an error that names the first invalid one.

    Parameters
    ----------
    X : array, tensor, list, path or torch Dataset
        Images (n, h, w), (n, h, w, c) or (n, c, h, w); a list of PIL images, of arrays
        (h, w), (h, w, c) or (c, h, w), or of paths; the path of a folder of class folders; or a
        Dataset of images or of pairs (image, label).
    image_size : (height, width) or None, default=None
        Size to which all images are resized. None requires equal sizes.
    value_range : (low, high) or None, default=None
        The values that become 0 and 1. None means 0 to 255 for integers; 0 to 1 for floats if none
        is larger, else 0 to 255; and 0 to 1 for floats of a Dataset.
    float_range : (low, high) or None, default=None
        The range of floats in fit, used if ``value_range`` is None. None infers the range.
    n_channels : int or None, default=None
        1 or 3 channels for files and PIL images. None reads all in colour if one has colours.
    labelled : bool, default=True
        Whether labels are needed. If not, a folder may hold images directly.
    n_classes : int, default=2
        Minimum number of class folders if ``labelled``.
    n_workers : int, default=0
        Number of processes that read files and labels.
    name : str, default="X"
        Name of the input in messages.

    Returns
    -------
    images : ImageData
        A tensor, or a lazy Dataset for Datasets and for files that need more than 1 GiB.

    Examples
    --------
    >>> import numpy as np
    >>> read_images(np.zeros((5, 32, 16, 3), dtype=np.uint8)).shape
    (5, 3, 32, 16)
    >>> read_images(np.full((1, 2, 2), 51.0)).data.max()
    tensor(0.2000)
    """
    check_pairs(image_size, value_range)
    if value_range is not None:
        value_range = (float(value_range[0]), float(value_range[1]))
    known = value_range or float_range
    if isinstance(X, (str, os.PathLike)):
        paths, labels = (
            list_folder(X, name, n_classes) if labelled else (list_images(X, name), None)
        )
        return _read_files(paths, labels, image_size, n_channels, n_workers)
    if isinstance(X, Dataset):
        _check_dataset(X, name)
        known = known or (0.0, 1.0)
        images = DatasetImages(X, image_size, value_range, known, n_channels, name)
        labels = find_labels(X, n_workers, name) if labelled else None
        return ImageData(images, labels, known if images.dtype == torch.float32 else None)
    X = _plain(X)
    if isinstance(X, list):
        if X and all(isinstance(item, (str, bytes, os.PathLike)) for item in X):
            return _read_files(X, None, image_size, n_channels, n_workers)
        parts = _read_list(X, n_channels, name)
        # PIL images always have bytes from 0 to 255.
        ranges = [None if is_image(item) else value_range for item in X]
    elif isinstance(X, (np.ndarray, Tensor)):
        parts = [channels_first(as_tensor(X, name), name, is_torch=isinstance(X, Tensor))]
        ranges = [value_range]
    else:
        raise TypeError(f"Got {name} of type {type(X).__name__}, but expected {KINDS}.")
    return _finish(parts, ranges, known, image_size, name)


def _plain(X: Any) -> Any:
    """Object arrays and tuples as lists, and lists of numbers as arrays."""
    if hasattr(X, "to_numpy"):  # a column of paths in a data frame
        X = X.to_numpy()
    if isinstance(X, np.ndarray) and X.dtype.kind in "OUST" and X.ndim == 1:
        return X.tolist()
    if not isinstance(X, (list, tuple)):
        return X
    if len(X) and isinstance(X[0], (list, Real)):
        return np.asarray(X)
    return list(X)


def _read_list(X: list, n_channels: int | None, name: str) -> list[Tensor]:
    if not X:
        raise ValueError(f"Got {name} without any image, but expected some.")
    if n_channels is None and any(is_image(item) and is_colour(item) for item in X):
        n_channels = 3
    return [read_item(item, f"{name}[{number}]", n_channels) for number, item in enumerate(X)]


def _finish(
    parts: list[Tensor],
    ranges: list[Range | None],
    float_range: Range | None,
    image_size: tuple[int, int] | None,
    name: str,
) -> ImageData:
    """Scale and resize images that were read one by one, or one tensor of all of them.

    ``ranges`` applies to integers.
    """
    float_range = float_range or find_range(parts, name)
    ready: list[Tensor] = []
    for number, (part, own) in enumerate(zip(parts, ranges, strict=True)):
        span = float_range if part.is_floating_point() else own
        image = resize(to_unit(part, name, span, number), image_size)
        first = ready[0] if ready else image
        check_alike(image[0], first.shape[1:], first.dtype, f"{name}[{number}]", f"{name}[0]")
        ready.append(image)
    return ImageData(ready[0] if len(ready) == 1 else torch.cat(ready), None, float_range)


def _read_files(
    paths: Sequence,
    labels: np.ndarray | None,
    image_size: tuple[int, int] | None,
    n_channels: int | None,
    n_workers: int,
) -> ImageData:
    files = ImageFiles(paths, image_size, n_channels if n_channels in (1, 3) else None)
    if math.prod(files.shape) > IN_MEMORY:
        return ImageData(files, labels)
    n, c, height, width = files.shape
    data = torch.empty(n, height, width, c, dtype=torch.uint8).permute(0, 3, 1, 2)
    start = 0
    for batch in batches(files, n_workers, _stacked):
        data[start : start + len(batch)] = batch
        start += len(batch)
    return ImageData(data, labels)


def _stacked(images: list[Tensor]) -> Tensor:
    """Stack images in the memory format channels last, as files have it."""
    return torch.stack([image.permute(1, 2, 0) for image in images]).permute(0, 3, 1, 2)


def _check_dataset(X: Any, name: str) -> None:
    if isinstance(X, IterableDataset) or not hasattr(X, "__len__"):
        raise TypeError(
            f"Got {name}={type(X).__name__} without a length, but expected a map-style Dataset."
        )
    if not len(X):
        raise ValueError(f"Got {name} without any image, but expected some.")


def channel_statistics(
    data: Any, index: Any = None, weight: Any = None, *, n_workers: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each channel, in float64 on a scale from 0 to 1.

    ``data`` is a tensor (n, c, h, w) or lazy images as in ``ImageData``, read in batches. ``index``
    has the positions of the images to use, and ``weight`` the weights of all images. The deviation
    of a constant channel is 1.
    """
    index = np.arange(data.shape[0]) if index is None else np.asarray(index)
    weights = np.ones(len(index)) if weight is None else np.asarray(weight, dtype=float)[index]
    index, weights = index[weights > 0], torch.from_numpy(weights[weights > 0])
    shift, sums, start = None, torch.zeros(2, data.shape[1], dtype=torch.float64), 0
    for batch in _chunks(data, index, n_workers):
        values = batch.to("cpu", torch.float64).flatten(2)
        values = values.div_(255) if batch.dtype == torch.uint8 else values
        # Subtract a value near the mean first: the squares keep their precision.
        shift = values.mean(dim=(0, 2)) if shift is None else shift
        values -= shift[:, None]
        own = weights[start : start + len(batch)]
        sums += torch.stack([own @ values.mean(2), own @ values.square_().mean(2)])
        start += len(batch)
    if shift is None:
        raise ValueError(
            "Got images of weight 0 only, but expected at least one with a weight above 0."
        )
    first, second = sums / weights.sum()
    std = (second - first**2).clamp(min=0).sqrt().numpy()
    return (shift + first).numpy(), np.where(std > CONSTANT, std, 1.0)


def _chunks(data: Any, index: np.ndarray, n_workers: int) -> Iterator[Tensor]:
    if isinstance(data, Tensor):
        for start in range(0, len(index), CHUNK):
            yield data[torch.from_numpy(index[start : start + CHUNK]).to(data.device)]
    elif len(index):
        yield from batches(Subset(data, index.tolist()), n_workers)
