"""Mini-batches of in-memory data, and the skorch datasets that they come from."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from scipy import sparse
from skorch.dataset import Dataset
from torch import Tensor
from torch.utils.data import Subset

from mixupe_sklearn._data.rows import SMALL_COPY, Gathers
from mixupe_sklearn._runtime.torch_state import generator_like_torch


def can_batch(data: Any) -> bool:
    """Return whether ``Batches`` accepts this: arrays, tensors, sparse rows, or ``Gathers``."""
    if isinstance(data, Mapping):
        return all(can_batch(value) for value in data.values())
    if isinstance(data, np.ndarray):
        return data.dtype.kind in "biuf"
    return isinstance(data, (Tensor, Gathers)) or (sparse.issparse(data) and data.ndim == 2)


def _indexable(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {name: _indexable(value) for name, value in data.items()}
    if sparse.issparse(data):
        return sparse.csr_array(data)
    if not isinstance(data, np.ndarray):
        return data
    # torch rejects foreign byte orders and negative strides, and warns about read-only memory.
    if data.dtype.isnative and data.flags.writeable and data.flags.c_contiguous:
        return torch.from_numpy(data)
    if data.nbytes > SMALL_COPY:
        return data
    return torch.from_numpy(np.array(data, dtype=data.dtype.newbyteorder("="), order="C"))


class _Order:
    """Sample numbers in the order of an epoch, moved once to each device with data."""

    def __init__(self, numbers: np.ndarray):
        self.numbers = numbers
        self.moved: dict[torch.device, Tensor] = {}

    def on(self, device: torch.device) -> Tensor:
        if device not in self.moved:
            self.moved[device] = torch.from_numpy(self.numbers).to(device)
        return self.moved[device]


def _take(data: Any, order: _Order | None, rows: slice) -> Any:
    """Return these samples in the given order; without one, in the order of the data."""
    if isinstance(data, dict):
        return {name: _take(value, order, rows) for name, value in data.items()}
    if isinstance(data, Tensor):
        if order is None:
            return data[rows]
        return torch.index_select(data, 0, order.on(data.device)[rows])  # brackets are slower
    taken = data[rows if order is None else order.numbers[rows]]
    if sparse.issparse(taken):
        return torch.from_numpy(taken.toarray())
    if isinstance(taken, np.ndarray):
        # Gathered samples are new; sliced ones still share the memory that torch rejects.
        own = np.array if order is None else np.asarray
        return torch.from_numpy(own(taken, dtype=taken.dtype.newbyteorder("="), order="C"))
    return taken


class BatchNumbers:
    """Batch sampler of a DataLoader with the samples and the order of ``Batches``.

    Parameters
    ----------
    n_rows : int
        Number of samples.
    **params
        As for ``Batches``.

    Examples
    --------
    >>> list(BatchNumbers(5, batch_size=2, min_rows=2))
    [[0, 1], [2, 3, 4]]
    """

    def __init__(self, n_rows: int, **params: Any):
        self.batches = Batches(np.empty((n_rows, 0)), **params)

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[int]]:
        return self.batches.numbers()


class Batches:
    """Mini-batches of in-memory data, one indexing operation each; replaces a DataLoader.

    Parameters
    ----------
    X, y : array, tensor, sparse matrix, CentredRows, or dict of these
        The data. ``y`` may be None: batches then carry zeros.
    indices : array of int or None, default=None
        Numbers of the samples to use; None means all.
    batch_size : int, default=128
        Samples per batch; the last batch may be smaller.
    shuffle : bool, default=False
        Whether samples are shuffled in each iteration.
    drop_last : bool, default=False
        Whether a smaller last batch is dropped.
    min_rows : int, default=1
        A last batch with fewer samples than this joins the one before it (BatchNorm cannot train
        on one sample).
    random_state : int, numpy.random.Generator or None, default=None
        Source of the order. None draws from torch's global generator, as a DataLoader does.

    Examples
    --------
    >>> import torch
    >>> [len(X) for X, y in Batches(torch.zeros(7, 2), torch.zeros(7), batch_size=3)]
    [3, 3, 1]
    >>> [len(X) for X, y in Batches(torch.zeros(7, 2), torch.zeros(7), batch_size=3, min_rows=2)]
    [3, 4]
    """

    def __init__(
        self,
        X: Any,
        y: Any = None,
        *,
        indices: np.ndarray | None = None,
        batch_size: int = 128,
        shuffle: bool = False,
        drop_last: bool = False,
        min_rows: int = 1,
        random_state: int | np.random.Generator | None = None,
    ):
        self.X = _indexable(X)
        first = next(iter(self.X.values())) if isinstance(self.X, dict) else self.X
        n_rows = int(first.shape[0])
        self.y = torch.zeros(n_rows) if y is None else _indexable(y)
        self.indices = indices
        self.n_samples = n_rows if indices is None else len(indices)
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.min_rows = min_rows
        self.rng = None if random_state is None else np.random.default_rng(random_state)

    def _bounds(self) -> list[tuple[int, int]]:
        n_samples, size = self.n_samples, self.batch_size
        starts = range(0, n_samples, size)
        bounds = [(start, min(start + size, n_samples)) for start in starts]
        last = bounds[-1][1] - bounds[-1][0] if bounds else size
        if self.drop_last and last < size:
            return bounds[:-1]
        if last < self.min_rows and len(bounds) > 1:
            bounds[-2:] = [(bounds[-2][0], n_samples)]
        return bounds

    def __len__(self) -> int:
        return len(self._bounds())

    def sizes(self) -> list[int]:
        """Return the number of samples of each batch."""
        return [stop - start for start, stop in self._bounds()]

    def order(self) -> np.ndarray | None:
        """Draw the sample numbers of the next iteration; None means all, in order."""
        if not self.shuffle:
            return self.indices
        permutation = generator_like_torch(self.rng).permutation(self.n_samples)
        return permutation if self.indices is None else self.indices[permutation]

    def numbers(self) -> Iterator[list[int]]:
        """Yield the sample numbers of each batch, for data that is read elsewhere."""
        numbers = self.order()
        for start, stop in self._bounds():
            rows = range(start, stop) if numbers is None else numbers[start:stop].tolist()
            yield list(rows)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        numbers = self.order()
        order = None if numbers is None else _Order(numbers)
        for start, stop in self._bounds():
            rows = slice(start, stop)
            yield _take(self.X, order, rows), _take(self.y, order, rows)


def with_weight(X: Any, sample_weight: Any) -> Any:
    """Add weights to the inputs as an entry of a dict, as skorch passes them on."""
    if sample_weight is None:
        return X
    if isinstance(X, torch.utils.data.Dataset):
        raise ValueError(
            "Got sample_weight beside a Dataset, but expected arrays; a Dataset may return "
            "{'X': ..., 'sample_weight': ...} as its inputs."
        )
    weight = sample_weight if isinstance(sample_weight, Tensor) else np.asarray(sample_weight)
    is_good = (weight >= 0) & (weight < math.inf)
    if not is_good.all():
        value = float(weight[~is_good][0])
        raise ValueError(f"Got sample_weight={value}, but expected finite numbers >= 0.")
    return _beside(X, weight)


def _beside(X: Any, weight: Any) -> dict[str, Any]:
    inputs = X if isinstance(X, Mapping) else {"X": X}
    return {**inputs, "sample_weight": weight}


def split_weight(X: Any) -> tuple[Any, Tensor | None]:
    """Undo ``with_weight``: return the inputs and their weights or None."""
    if not isinstance(X, Mapping) or "sample_weight" not in X:
        return X, None
    inputs = {name: value for name, value in X.items() if name != "sample_weight"}
    return (inputs["X"] if set(inputs) == {"X"} else inputs), X["sample_weight"]


def _whole(dataset: Any) -> tuple[Any, np.ndarray | None]:
    """Return a dataset and None, or the dataset of a ``Subset`` and its indices."""
    if not isinstance(dataset, Subset):
        return dataset, None
    return dataset.dataset, torch.as_tensor(dataset.indices).numpy()


def targets_of(dataset: Any) -> Any:
    """Return the targets of a skorch dataset or of a subset of one; None for any other."""
    dataset, indices = _whole(dataset)
    if type(dataset) is not Dataset or not can_batch(dataset.y):
        return None
    return dataset.y if indices is None else dataset.y[indices]


def rows_in_memory(dataset: Any) -> tuple[Any, Any, Any] | None:
    """Return ``X``, ``y`` and indices of an in-memory skorch dataset, else None."""
    dataset, indices = _whole(dataset)
    if type(dataset) is not Dataset or not can_batch(dataset.X):
        return None
    if dataset.y is not None and not can_batch(dataset.y):
        return None
    return dataset.X, dataset.y, indices


def make_dataset(X: Any, y: Any, sample_weight: Any = None) -> Dataset:
    """Return a skorch dataset of samples with their weights."""
    return Dataset(X if sample_weight is None else _beside(X, sample_weight), y)
