"""In-memory mini-batches: one indexing operation a batch instead of one call a row."""

import mmap
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from mixupe_sklearn._runtime.seeding import generator_like_torch

# A copy up to this size is made once, before training; above it, each batch is made by itself. A
# batch of its own costs more in every epoch (batches of 100 rows: 20 microseconds more at 100
# features, 100 at 784), but a large copy would double the memory of the data.
SMALL_COPY = 64 * 2**20
NUMPY_TYPES = (torch.float16, torch.float32, torch.float64)


def is_mapped(X: Any) -> bool:
    """Whether an array lies in a file: to copy it would read it whole.

    Examples
    --------
    >>> import numpy as np
    >>> is_mapped(np.zeros(2))
    False
    """
    while X is not None:
        if isinstance(X, (np.memmap, mmap.mmap)):
            return True
        # A view knows whose memory it shows, and a memoryview calls it by another name.
        X = X.obj if isinstance(X, memoryview) else getattr(X, "base", None)
    return False


class Gathers:
    """Data that make a batch themselves, by row numbers or a slice; ``shape`` tells how many."""

    shape: tuple[int, ...]


class CentredRows(Gathers):
    """Rows minus a mean, gathered, centred and made dense a batch at a time.

    Batches are to the bit those of ``centre``, which centres all rows at once.

    Parameters
    ----------
    X : array, scipy sparse matrix or array of shape (n_samples, n_features)
        The data; kept as it is: sparse, in a file, or read-only.
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
    >>> rows.take(slice(0, 2), out=torch.empty(2, 2))
    tensor([[-2.,  1.],
            [ 2., -1.]])
    """

    def __init__(self, X: Any, X_mean: np.ndarray, dtype: torch.dtype = torch.float32):
        self.X = _canonical(X) if sparse.issparse(X) else np.asarray(X)
        self.X_mean = np.asarray(X_mean)
        self.dtype = dtype
        self.shape = X.shape

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Tensor:
        if isinstance(index, (int, np.integer)):
            return self[[range(len(self))[index]]][0]
        index = _row_numbers(index, len(self))
        n_rows = len(range(len(self))[index]) if isinstance(index, slice) else len(index)
        return self.take(index, torch.empty(n_rows, self.shape[1], dtype=self.dtype))

    def take(self, index: Any, out: Tensor) -> Tensor:
        """Write the rows of these numbers (array, tensor or slice) to ``out``, and return it."""
        index = _row_numbers(index, len(self))
        is_open = out.dtype in NUMPY_TYPES and out.device.type == "cpu"  # numpy can write to it
        target = out if is_open else torch.empty(out.shape, dtype=torch.float32)
        # What overflows becomes infinite: who made the rows has looked at their range.
        with np.errstate(over="ignore"):
            self._fill(index, target.numpy())
        return out if target is out else out.copy_(target)

    def _fill(self, index: Any, out: np.ndarray) -> None:
        if not sparse.issparse(self.X):
            rows = _gathered(self.X, index, out)
            np.subtract(rows, self.X_mean, out=out, casting="same_kind")
            return
        rows = self.X[index]
        # Most entries are minus the mean: only the stored ones are looked at one by one.
        np.subtract(0.0, self.X_mean, out=out, casting="same_kind")
        numbers = np.repeat(np.arange(len(out)), np.diff(rows.indptr))
        out[numbers, rows.indices] = rows.data - self.X_mean[rows.indices]


def _canonical(X: Any) -> Any:
    """Sparse rows whose entries are stored once each; the caller's matrix stays as it is."""
    X = sparse.csr_array(X)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def _row_numbers(index: Any, n_rows: int) -> slice | np.ndarray:
    """A slice as it is, all else as numbers of rows that are there."""
    if isinstance(index, slice):
        return index
    index = index.cpu().numpy() if isinstance(index, Tensor) else np.asarray(index)
    if index.dtype == bool:
        index = np.flatnonzero(index)
    index = index.astype(np.int64, copy=False)
    # One look for both ends: as unsigned numbers, those below zero are huge.
    if len(index) and index.view(np.uint64).max() >= n_rows:
        raise IndexError(
            f"Got row numbers from {index.min()} to {index.max()}, but expected 0 to {n_rows - 1}."
        )
    return index


def _gathered(X: np.ndarray, index: Any, out: np.ndarray) -> np.ndarray:
    """Rows of a dense array, in ``out`` itself where that can be."""
    if isinstance(index, slice):
        return X[index]
    # ``take`` is faster than brackets, but copies an array whole that is not laid out for it; and
    # only where it need not check the numbers does it write to ``out`` at once.
    if X.flags.c_contiguous:
        same = out if out.dtype == X.dtype else None
        return np.take(X, index, axis=0, out=same, mode="clip")
    if X.flags.f_contiguous:
        return np.take(X.T, index, axis=1, mode="clip").T
    return X[index]


def centre(X: np.ndarray, X_mean: np.ndarray, dtype: torch.dtype = torch.float32) -> Tensor:
    """Subtract the mean in the precision of ``X``, then round: no full copy in between.

    Examples
    --------
    >>> import numpy as np
    >>> centre(np.array([[1e9 + 1.0]]), np.array([1e9]))
    tensor([[1.]])
    """
    return CentredRows(X, X_mean, dtype)[:]


def can_batch(data: Any) -> bool:
    """Whether ``Batches`` can take rows of this: arrays, tensors, sparse rows, or what gathers."""
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
    # torch takes no foreign byte order or backward stride, and warns of read-only memory.
    if data.dtype.isnative and data.flags.writeable and data.flags.c_contiguous:
        return torch.from_numpy(data)
    if data.nbytes > SMALL_COPY:
        return data
    return torch.from_numpy(np.array(data, dtype=data.dtype.newbyteorder("="), order="C"))


class _Order:
    """Row numbers in the order of an epoch: moved once to each device where rows lie."""

    def __init__(self, numbers: np.ndarray):
        self.numbers = numbers
        self.moved: dict[torch.device, Tensor] = {}

    def on(self, device: torch.device) -> Tensor:
        if device not in self.moved:
            self.moved[device] = torch.from_numpy(self.numbers).to(device)
        return self.moved[device]


def _take(data: Any, order: _Order | None, rows: slice) -> Any:
    """These rows of the order; without one, of the data as they lie."""
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
        # What was gathered is new; what was sliced still shows the memory that torch cannot take.
        own = np.array if order is None else np.asarray
        return torch.from_numpy(own(taken, dtype=taken.dtype.newbyteorder("="), order="C"))
    return taken


class BatchNumbers:
    """The batches of a DataLoader as those of ``Batches`` are: the same rows in the same order.

    Parameters
    ----------
    n_rows : int
        How many rows there are.
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

    def sizes(self) -> list[int]:
        """Rows of each batch."""
        return [stop - start for start, stop in self._bounds()]

    def order(self) -> np.ndarray | None:
        """Draw the row numbers of the next loop; None means all rows as they lie."""
        if not self.shuffle:
            return self.indices
        permutation = generator_like_torch(self.rng).permutation(self.n_samples)
        return permutation if self.indices is None else self.indices[permutation]

    def numbers(self) -> Iterator[list[int]]:
        """The row numbers of each batch of the next loop, for rows that are read elsewhere."""
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
