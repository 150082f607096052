"""Images and labels of a torch Dataset: read and checked one by one."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset, TensorDataset

from mixupe_sklearn._data.dataloader import Loader
from mixupe_sklearn._images.arrays import Range, check_alike, one_image, resize, to_unit
from mixupe_sklearn._images.files import is_image, to_array

# Number of images in a batch.
CHUNK = 256


def batches(dataset: Any, n_workers: int = 0, collate: Any = None) -> Iterator:
    """Batches of the items of a Dataset, in order."""
    # Its own generator: otherwise the loader draws from the global one.
    own = torch.Generator()
    yield from Loader(dataset, CHUNK, num_workers=n_workers, collate_fn=collate, generator=own)


def read_item(item: Any, where: str, n_channels: int | None) -> Tensor:
    """One image (1, c, h, w), with unscaled values."""
    if is_image(item):
        return torch.from_numpy(to_array(item, where, n_channels)).permute(2, 0, 1)[None]
    if isinstance(item, (list, tuple)) and len(item) == 2:
        raise ValueError(
            f"Got {where}, a pair, but expected an image alone; give labels in y, or a torch "
            f"Dataset of pairs."
        )
    if not isinstance(item, (np.ndarray, Tensor)):
        raise TypeError(
            f"Got {where} of type {type(item).__name__}, but expected a PIL image or an "
            f"array; a list of paths may hold nothing else."
        )
    return one_image(item, where)


class DatasetImages(Dataset):
    """Images of a torch Dataset, checked on access: tensors (c, h, w) of equal size.

    Parameters
    ----------
    dataset : torch Dataset
        Its items are images, or tuples that begin with one.
    image_size, value_range, float_range, n_channels, name
        As in ``read_images``.

    Attributes
    ----------
    shape : tuple of int
        (n, c, h, w), by the first item.
    dtype : torch.dtype
        uint8 or float32, by the first item.
    """

    def __init__(
        self,
        dataset: Any,
        image_size: tuple[int, int] | None = None,
        value_range: Range | None = None,
        float_range: Range = (0.0, 1.0),
        n_channels: int | None = None,
        name: str = "X",
    ):
        self.dataset = dataset
        self.image_size = image_size
        self.value_range = value_range
        self.float_range = float_range
        self.n_channels = n_channels
        self.name = name
        item = _image_of(dataset[0])
        first = self._ready(item, 0)
        if is_image(item):
            self.n_channels = len(first)
        self.shape = (len(dataset), *first.shape)
        self.dtype = first.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: int) -> Tensor:
        image = self._ready(_image_of(self.dataset[index]), index)
        where, first = f"{self.name}[{index}]", f"{self.name}[0]"
        check_alike(image, self.shape[1:], self.dtype, where, first)
        return image

    def _ready(self, item: Any, index: int) -> Tensor:
        image = read_item(item, f"{self.name}[{index}]", self.n_channels)
        # PIL images always have bytes from 0 to 255.
        span = None if is_image(item) else self.value_range
        span = self.float_range if image.is_floating_point() else span
        return resize(to_unit(image, self.name, span, index), self.image_size)[0]


def _image_of(item: Any) -> Any:
    return item[0] if isinstance(item, (tuple, list)) and len(item) else item


def _label_of(item: Any) -> Any:
    """The second entry of an item: one label, several labels, or None."""
    label: Any = item[1] if isinstance(item, (tuple, list)) and len(item) > 1 else None
    if not isinstance(label, (np.ndarray, np.generic, Tensor)):
        return label
    label = np.asarray(label.cpu() if isinstance(label, Tensor) else label)
    return label.item() if label.size == 1 else label


def _labels_of(items: list) -> list:
    return [_label_of(item) for item in items]


def find_labels(dataset: Any, n_workers: int = 0, name: str = "X") -> np.ndarray | None:
    """Labels of a Dataset: from its attributes, else from its items. None if there are none.

    Items with several labels give a matrix.
    """
    stored = _stored_labels(dataset)
    if stored is not None:
        return stored
    if _label_of(dataset[0]) is None:
        return None
    labels = [label for batch in batches(dataset, n_workers, _labels_of) for label in batch]
    sizes = [0 if label is None else np.size(label) for label in labels]
    other = next((number for number, size in enumerate(sizes) if size != sizes[0]), None)
    if other is not None:
        raise ValueError(
            f"Got {name}[{other}] with {sizes[other]} labels, but expected {sizes[0]} as {name}[0] "
            f"has; multi-label items need a zero or a one for every label."
        )
    return np.asarray(labels)


def _stored_labels(dataset: Any) -> np.ndarray | None:
    """Labels that a Dataset stores in an attribute, so that no image has to be read."""
    if isinstance(dataset, Subset):
        whole = _stored_labels(dataset.dataset)
        return None if whole is None else whole[np.asarray(dataset.indices, dtype=np.int64)]
    if isinstance(dataset, TensorDataset):
        return dataset.tensors[1].cpu().numpy() if len(dataset.tensors) > 1 else None
    # A target_transform changes the labels of the items.
    if getattr(dataset, "target_transform", None) is not None:
        return None
    for name in ("targets", "labels"):
        labels = getattr(dataset, name, None)
        if isinstance(labels, (list, tuple, np.ndarray, Tensor)) and len(labels) == len(dataset):
            return labels.cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    return None
