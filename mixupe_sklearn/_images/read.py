"""Images from wherever they come: arrays, lists, files, folders and datasets of torch."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, Subset

from mixupe_sklearn._images.arrays import (
    AS_GIVEN,
    Range,
    Where,
    as_tensor,
    channels_first,
    check_clear,
    check_image_size,
    check_value_range,
    find_range,
    resize,
    to_unit,
)
from mixupe_sklearn._images.files import (
    ImageFiles,
    is_colour,
    is_image,
    list_folder,
    list_images,
)
from mixupe_sklearn._images.torch_datasets import (
    CHUNK,
    DatasetImages,
    batches,
    check_alike,
    find_labels,
    read_item,
)

# Files whose pixels take no more than this are read once, into memory.
IN_MEMORY = 2**30
# Below this deviation, a channel is constant but for rounding.
CONSTANT = 1e-8
KINDS = "arrays, a list of images or of files, a folder of class folders, or a torch Dataset"


@dataclass(frozen=True)
class ImageData:
    """Images as ``read_images`` gives them.

    Parameters
    ----------
    data : tensor of shape (n, c, h, w), ImageFiles or DatasetImages
        The images: bytes, or float32 from 0 to 1. What is not a tensor is lazy: a torch Dataset
        with a ``shape`` whose items are such tensors (c, h, w).
    labels : array of shape (n,) or (n, n_labels), or None
        Names of the class folders, or labels of a Dataset.
    float_range : pair of float or None
        What floats were taken to mean; None if there were none.
    """

    data: Any
    labels: np.ndarray | None = None
    float_range: Range | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Number of images, channels, height and width."""
        return tuple(self.data.shape)

    @property
    def is_lazy(self) -> bool:
        """Whether images are read one by one, when they are needed."""
        return not isinstance(self.data, Tensor)


@dataclass(frozen=True)
class _Reading:
    """How images are to be read: the arguments of ``read_images``."""

    image_size: tuple[int, int] | None
    value_range: Range | None
    float_range: Range | None
    is_after_bytes: bool
    n_channels: int | None
    labelled: bool
    n_classes: int
    n_workers: int
    name: str

    def names(self, start: int = 0) -> Where:
        """From the number of an image, counted from a start, to what sentences call it."""
        return lambda number: f"{self.name}[{start + number}]"

    @property
    def told(self) -> str:
        """How one knows the range of values."""
        if self.value_range is not None:
            return AS_GIVEN
        return "" if self.float_range is None else ", as in fit"


def read_images(
    X: Any,
    *,
    image_size: tuple[int, int] | None = None,
    value_range: Range | None = None,
    float_range: Range | Literal["new"] | None = "new",
    n_channels: int | None = None,
    labelled: bool = True,
    n_classes: int = 2,
    n_workers: int = 0,
    name: str = "X",
) -> ImageData:
    """Read images, or raise one sentence that says what is wrong with which of them.

    Parameters
    ----------
    X : array, tensor, list, path or torch Dataset
        Images (n, h, w), (n, h, w, c) or (n, c, h, w); a list of images of Pillow, of arrays
        (h, w), (h, w, c) or (c, h, w), or of paths; the path of a folder of class folders; or a
        Dataset of images or of pairs (image, label).
    image_size : (height, width) or None, default=None
        Size to which all are stretched; None wants them equal.
    value_range : (low, high) or None, default=None
        What becomes 0 and 1. None takes integers for 0 to 255, and floats for 0 to 1 if none
        is larger, else for 0 to 255; those of a Dataset for 0 to 1.
    float_range : (low, high), None or "new", default="new"
        What floats mean if ``value_range`` is None: what they meant in fit. None if there were
        none: it is found out here, and floats that are all 0 or 1 are refused, which may be
        black and white, or the darkest of 0 to 255. ``"new"`` finds out whatever they are.
    n_channels : int or None, default=None
        1 or 3: how files and images of Pillow are read. None reads all in colour if one has any.
    labelled : bool, default=True
        Whether labels are wanted; if not, a folder may hold images directly.
    n_classes : int, default=2
        How many class folders there must be at least, where labels are wanted.
    n_workers : int, default=0
        Processes that read files and collect labels.
    name : str, default="X"
        What sentences call the images.

    Returns
    -------
    images : ImageData
        Tensors, or a lazy Dataset for files that take more than a GiB and for Datasets.

    Examples
    --------
    >>> import numpy as np
    >>> read_images(np.zeros((5, 32, 16, 3), dtype=np.uint8)).shape
    (5, 3, 32, 16)
    >>> read_images(np.full((1, 2, 2), 51.0)).data.max()
    tensor(0.2000)
    """
    check_image_size(image_size)
    check_value_range(value_range)
    if value_range is not None:
        value_range = (float(value_range[0]), float(value_range[1]))
    floats = (None if float_range == "new" else float_range, float_range is None)
    labels = (labelled, n_classes)
    reading = _Reading(image_size, value_range, *floats, n_channels, *labels, n_workers, name)
    if isinstance(X, (str, os.PathLike)):
        return _read_folder(X, reading)
    if isinstance(X, Dataset):
        return _read_dataset(X, reading)
    X = _plain(X)
    if isinstance(X, list):
        return _read_list(X, reading)
    if isinstance(X, (np.ndarray, Tensor)):
        return _read_array(X, reading)
    raise TypeError(f"Got {name} of type {type(X).__name__}, but expected {KINDS}.")


def _plain(X: Any) -> Any:
    """Arrays of objects or paths and tuples as lists, lists of numbers as arrays."""
    if hasattr(X, "to_numpy"):  # a column of paths, in a frame of any kind
        X = X.to_numpy()
    if isinstance(X, np.ndarray) and X.dtype.kind in "OUST" and X.ndim == 1:
        return X.tolist()
    if not isinstance(X, (list, tuple)):
        return X
    if len(X) and isinstance(X[0], (list, tuple, Real)):
        try:
            return np.asarray(X)
        except ValueError:
            pass  # of unequal lengths: each item is told of by itself
    return list(X)


def _read_array(X: np.ndarray | Tensor, reading: _Reading) -> ImageData:
    is_torch = isinstance(X, Tensor)
    images = channels_first(as_tensor(X, reading.name), reading.name, is_torch=is_torch)
    return _finish([images], reading, [reading.value_range])


def _finish(parts: list[Tensor], reading: _Reading, ranges: list[Range | None]) -> ImageData:
    """Parts (1, c, h, w) or a whole (n, c, h, w), with values from 0 to 1 and of one size.

    The ranges are those of integers.
    """
    float_range = None
    if any(part.is_floating_point() for part in parts):
        known = reading.value_range or reading.float_range
        float_range = known or find_range(parts, reading.name, reading.names())
        if known is None and reading.is_after_bytes:
            check_clear(parts, reading.name)
    ready: list[Tensor] = []
    for number, (part, own) in enumerate(zip(parts, ranges, strict=True)):
        span = float_range if part.is_floating_point() else own
        image = to_unit(part, reading.names(number), span, reading.told)
        ready.append(resize(image, reading.image_size))
        where, where_first = reading.names()(number), reading.names()(0)
        check_alike(ready[number][0], ready[0][0], where, where_first)
    return ImageData(ready[0] if len(ready) == 1 else torch.cat(ready), None, float_range)


def _read_list(X: list, reading: _Reading) -> ImageData:
    if not X:
        raise ValueError(f"Got {reading.name} without any image, but expected some.")
    if all(isinstance(item, (str, bytes, os.PathLike)) for item in X):
        return _read_files(X, None, reading)
    n_channels = reading.n_channels
    if n_channels is None and any(is_image(item) and is_colour(item) for item in X):
        n_channels = 3
    parts = [read_item(item, reading.names()(k), n_channels) for k, item in enumerate(X)]
    # The bytes of an image mean what they always mean.
    ranges = [None if is_image(item) else reading.value_range for item in X]
    return _finish(parts, reading, ranges)


def _read_folder(X: str | os.PathLike, reading: _Reading) -> ImageData:
    if reading.labelled:
        return _read_files(*list_folder(X, reading.name, reading.n_classes), reading)
    return _read_files(list_images(X, reading.name), None, reading)


def _read_files(paths: Sequence, labels: np.ndarray | None, reading: _Reading) -> ImageData:
    n_channels = reading.n_channels if reading.n_channels in (1, 3) else None
    files = ImageFiles(paths, reading.image_size, n_channels)
    if np.prod(files.shape, dtype=np.int64) > IN_MEMORY:
        return ImageData(files, labels)
    n, c, height, width = files.shape
    data = torch.empty(n, height, width, c, dtype=torch.uint8).permute(0, 3, 1, 2)
    start = 0
    for batch in batches(files, reading.n_workers, _stacked):
        data[start : start + len(batch)] = batch
        start += len(batch)
    return ImageData(data, labels)


def _stacked(images: list[Tensor]) -> Tensor:
    """A batch of images that has the bytes of a pixel side by side, as they came from files."""
    return torch.stack([image.permute(1, 2, 0) for image in images]).permute(0, 3, 1, 2)


def _read_dataset(X: Dataset, reading: _Reading) -> ImageData:
    if isinstance(X, IterableDataset) or not hasattr(X, "__len__"):
        raise TypeError(
            f"Got {reading.name}={type(X).__name__} without a length, but expected a Dataset whose "
            f"items have numbers."
        )
    if not len(X):
        raise ValueError(f"Got {reading.name} without any image, but expected some.")
    float_range = reading.value_range or reading.float_range or (0.0, 1.0)
    images = DatasetImages(
        X, reading.image_size, reading.value_range, float_range, reading.n_channels, reading.name
    )
    if reading.float_range is not None and reading.value_range is None:
        images.told = ", as in fit"
    labels = find_labels(X, reading.n_workers, reading.name) if reading.labelled else None
    return ImageData(images, labels, float_range if images.dtype == torch.float32 else None)


def channel_statistics(
    data: Any, index: Any = None, weight: Any = None, *, n_workers: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each channel, on a scale from 0 to 1.

    Parameters
    ----------
    data : tensor of shape (n, c, h, w), or lazy images
        As in ``ImageData.data``; read batch by batch.
    index : array of int or None, default=None
        The images to look at; None means all.
    weight : array of shape (n,) or None, default=None
        Weights of all images (those of the index are taken).
    n_workers : int, default=0
        Processes that read lazy images.

    Returns
    -------
    mean, std : array of shape (c,)
        In float64. A constant channel has a deviation of 1.

    Examples
    --------
    >>> import torch
    >>> channel_statistics(torch.tensor([0, 255], dtype=torch.uint8).reshape(2, 1, 1, 1))
    (array([0.5]), array([0.5]))
    """
    index = np.arange(data.shape[0]) if index is None else np.asarray(index)
    weights = np.ones(len(index)) if weight is None else np.asarray(weight, dtype=float)[index]
    index, weights = index[weights > 0], torch.from_numpy(weights[weights > 0])
    shift, sums, start = None, torch.zeros(2, data.shape[1], dtype=torch.float64), 0
    for batch in _chunks(data, index, n_workers):
        values = batch.to("cpu", torch.float64).flatten(2)
        values = values.div_(255) if batch.dtype == torch.uint8 else values
        # Deviations from a value near the mean: their squares lose no digits.
        shift = values.mean(dim=(0, 2)) if shift is None else shift
        values -= shift[:, None]
        own = weights[start : start + len(batch)]
        sums += torch.stack([own @ values.mean(2), own @ values.square_().mean(2)])
        start += len(batch)
    if shift is None:
        raise ValueError("Got images of no weight, but expected one of weight above 0 at least.")
    first, second = sums / weights.sum()
    std = (second - first**2).clamp(min=0).sqrt().numpy()
    return (shift + first).numpy(), np.where(std > CONSTANT, std, 1.0)


def _chunks(data: Any, index: np.ndarray, n_workers: int) -> Iterator[Tensor]:
    if isinstance(data, Tensor):
        for start in range(0, len(index), CHUNK):
            yield data[torch.from_numpy(index[start : start + CHUNK]).to(data.device)]
    elif len(index):
        yield from batches(Subset(data, index.tolist()), n_workers)
