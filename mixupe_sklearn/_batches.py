"""In-memory mini-batches: one indexing operation a batch instead of one call a row."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from mixupe_sklearn._random import generator_like_torch


class CentredRows:
    """Rows of a sparse matrix minus a mean, made dense a batch at a time.

    Parameters
    ----------
    X : scipy sparse matrix or array of shape (n_samples, n_features)
        The data; kept sparse.
    X_mean : array of shape (n_features,)
        What is subtracted from each row.
    dtype : torch.dtype
        Type of the batches.

    Examples
    --------
    >>> import numpy as np, torch
    >>> from scipy import sparse
    >>> rows = CentredRows(sparse.csr_array([[0.0, 2.0], [4.0, 0.0]]), np.array([2.0, 1.0]))
    >>> rows[np.array([1])]
    tensor([[ 2., -1.]])
    """

    def __init__(self, X: Any, X_mean: np.ndarray, dtype: torch.dtype = torch.float32):
        self.X = sparse.csr_array(X)
        self.X_mean = X_mean
        self.dtype = dtype
        self.shape = X.shape

    def __len__(self) -> int:
        return self.X.shape[0]

    def __getitem__(self, index: Any) -> Tensor:
        return centre(self.X[index].toarray(), self.X_mean, self.dtype)


def centre(X: np.ndarray, X_mean: np.ndarray, dtype: torch.dtype = torch.float32) -> Tensor:
    """Subtract the mean in the precision of ``X``, then round: no full copy in between.

    Examples
    --------
    >>> import numpy as np
    >>> centre(np.array([[1e9 + 1.0]]), np.array([1e9]))
    tensor([[1.]])
    """
    has_numpy_type = dtype in (torch.float16, torch.float32, torch.float64)
    centred = torch.empty(X.shape, dtype=dtype if has_numpy_type else torch.float32)
    with np.errstate(over="ignore"):  # what overflows becomes infinite, and the caller looks
        np.subtract(X, X_mean, out=centred.numpy(), casting="same_kind")
    return centred.to(dtype)


def can_batch(data: Any) -> bool:
    """Whether ``Batches`` can take rows of this: arrays, tensors, sparse rows, or dicts of them."""
    if isinstance(data, Mapping):
        return all(can_batch(value) for value in data.values())
    if isinstance(data, np.ndarray):
        return data.dtype.kind in "biuf"
    return isinstance(data, (Tensor, CentredRows)) or (sparse.issparse(data) and data.ndim == 2)


def _indexable(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {name: _indexable(value) for name, value in data.items()}
    if sparse.issparse(data):
        return sparse.csr_array(data)
    if isinstance(data, np.ndarray):
        # torch takes no foreign byte order or backward stride, and warns of read-only memory.
        data = np.ascontiguousarray(data, dtype=data.dtype.newbyteorder("="))
        return torch.from_numpy(data if data.flags.writeable else data.copy())
    return data


def _take(data: Any, index: Any) -> Any:
    if isinstance(data, dict):
        return {name: _take(value, index) for name, value in data.items()}
    if isinstance(data, Tensor):
        return data[torch.from_numpy(index) if isinstance(index, np.ndarray) else index]
    rows = data[index]
    return torch.from_numpy(rows.toarray()) if sparse.issparse(rows) else rows


class Batches:
    """Loop over mini-batches of data that lies in memory; takes the place of a DataLoader.

    Parameters
    ----------
    X, y : array, tensor, sparse matrix, CentredRows, or dict of these
        The data. ``y`` may be None: batches then carry zeros.
    indices : array of int or None, default=None
        The rows to use; None means all.
    batch_size : int, default=128
        Rows a batch; the last one may be smaller.
    shuffle : bool, default=False
        Whether rows are put in a new order each time one loops.
    drop_last : bool, default=False
        Whether a smaller last batch is left out.
    min_rows : int, default=1
        A last batch with fewer rows than this joins the one before it (BatchNorm cannot train on
        one row).
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

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        order = self.indices
        if self.shuffle:
            permutation = generator_like_torch(self.rng).permutation(self.n_samples)
            order = permutation if order is None else order[permutation]
        for start, stop in self._bounds():
            index = slice(start, stop) if order is None else order[start:stop]
            yield _take(self.X, index), _take(self.y, index)
