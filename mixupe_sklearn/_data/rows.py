"""Samples of a fit as arrays and tensors: centred, in chunks, held out, and on a device."""

import math
import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

# A copy up to this size is made once, before training. Above it, each batch is made separately:
# this costs more in every epoch (batches of 100 samples: 20 microseconds more at 100 features, 100
# at 784), but a large copy would double the memory of the data.
SMALL_COPY = 64 * 2**20
NUMPY_TYPES = (torch.float16, torch.float32, torch.float64)
# Largest chunk at prediction: samples, and entries (16 MiB of float32).
MAX_ROWS, CHUNK = 8192, 2**22
# Chunks are padded to a multiple of this many samples. Matrix products then run the same kernel for
# one sample as for many, so a prediction does not depend on the other samples of the call.
ROW_BLOCK = 16
# The fraction of a device's free memory that data may take; the network needs the rest.
DEVICE_SHARE = 0.5

# Inputs, targets and weights of samples, as a network takes them.
Tensors = tuple[Any, Tensor, Tensor | None]


class Standardisation(NamedTuple):
    """What is subtracted from each feature, and what it is then divided by; None means one."""

    mean: np.ndarray
    scale: np.ndarray | None = None

    def apply(self, X: Any, out: np.ndarray) -> None:
        """Write standardised samples to ``out``, computed in the precision of ``X``."""
        if self.scale is None:
            np.subtract(X, self.mean, out=out, casting="same_kind")
        else:
            np.divide(np.subtract(X, self.mean), self.scale, out=out, casting="same_kind")


@dataclass(frozen=True)
class Rows:
    """Inputs, encoded targets and weights (None: equal) of samples, or of some by their numbers.

    Parts share their inputs: held-out samples cost no copy.
    """

    X: Any
    targets: np.ndarray
    weight: np.ndarray | None
    index: np.ndarray | None = None

    @property
    def n_rows(self) -> int:
        """Number of samples in this part."""
        return self.X.shape[0] if self.index is None else len(self.index)


def to_numpy(data: Any) -> Any:
    """Convert a tensor on any device to numpy; return anything else unchanged.

    Examples
    --------
    >>> import torch
    >>> to_numpy(torch.ones(2, requires_grad=True))
    array([1., 1.], dtype=float32)
    """
    if np.ma.is_masked(data):
        raise ValueError(
            f"Got an array with {np.ma.count_masked(data)} masked values, but expected one without "
            f"missing values: fill them, or drop their rows."
        )
    if not isinstance(data, Tensor):
        return data
    data = data.detach().cpu()
    return (data.float() if data.dtype == torch.bfloat16 else data).numpy()


def types_of_rows(X: Any) -> Any:
    """Return the types that scikit-learn's checks keep; they convert others to the first of them.

    Integer arrays stay as they are (None): each batch is converted separately. Converting all data
    at once would take up to eight times its memory.

    Examples
    --------
    >>> import numpy as np
    >>> types_of_rows(np.zeros((2, 2), dtype=np.uint8)) is None
    True
    """
    is_kept = isinstance(X, np.ndarray) and (X.dtype.kind in "biu" or X.dtype == np.float16)
    return None if is_kept else (np.float64, np.float32)


def normalise(weight: np.ndarray | None) -> np.ndarray | None:
    """Scale weights to a mean of one; equal weights become None, which changes nothing.

    Examples
    --------
    >>> import numpy as np
    >>> normalise(np.array([1.0, 3.0])), normalise(np.array([2.0, 2.0]))
    (array([0.5, 1.5]), None)
    """
    if weight is None or (weight == weight[0]).all():
        return None
    # Divided by the largest first: the sum of huge weights would overflow.
    weight = weight / weight.max()
    return weight / weight.mean()


def mean_of_rows(rows: Any, weight: np.ndarray | None = None, size: int = 8192) -> np.ndarray:
    """Weighted mean in float64, chunk by chunk, of a dense or sparse array or of ``Rows``.

    Examples
    --------
    >>> import numpy as np
    >>> mean_of_rows(np.array([[0.0], [4.0]]), np.array([0.5, 1.5]))
    array([3.])
    """
    X, index = (rows.X, rows.index) if isinstance(rows, Rows) else (rows, None)
    weight = rows.weight if isinstance(rows, Rows) else weight
    n_samples = X.shape[0] if index is None else len(index)
    total = np.zeros(X.shape[1])
    # Sums beyond the range of floats: ``centred`` rejects such samples with a sentence.
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, n_samples, size):
            part = slice(start, start + size) if index is None else index[start : start + size]
            if weight is None:
                total += np.asarray(X[part].sum(axis=0, dtype=np.float64)).ravel()
            else:
                total += np.asarray(weight[part] @ X[part]).ravel()
    return total / n_samples


def scale_of_rows(rows: Rows, mean: np.ndarray, size: int = 8192) -> np.ndarray:
    """Weighted standard deviation of each feature; its range if it has two values, 1 if constant.

    A rare category in one-hot columns would be large in units of its deviation.

    Examples
    --------
    >>> X = np.array([[0.0, 5.0, 1.0], [0.0, 5.0, 2.0], [4.0, 5.0, 3.0]])
    >>> scale_of_rows(Rows(X, np.zeros(3), None), X.mean(axis=0)).round(4).tolist()
    [4.0, 1.0, 0.8165]
    """
    X, weight, n_features = rows.X, rows.weight, rows.X.shape[1]
    squares, low = np.zeros(n_features), np.full(n_features, np.inf)
    high = -low
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for start in range(0, rows.n_rows, size):
            part = slice(start, start + size)
            chosen = part if rows.index is None else rows.index[part]
            own = X[chosen]
            squares += _squares(own, mean, None if weight is None else weight[chosen])
            low = np.minimum(low, _values(own.min(axis=0)))
            high = np.maximum(high, _values(own.max(axis=0)))
        variance, spread = squares / rows.n_rows, high - low
        # No other distribution on a range reaches this variance.
        has_two_values = variance >= (1 - 1e-9) * (high - mean) * (mean - low)
        deviation = np.sqrt(variance)
    is_used = ~has_two_values & np.isfinite(deviation) & (deviation > 0)
    scale = np.where(is_used, deviation, spread)
    return np.where(scale > np.finfo(scale.dtype).tiny, scale, 1.0)


def _values(row: Any) -> np.ndarray:
    return np.asarray(row.todense() if sparse.issparse(row) else row, np.float64).ravel()


def _squares(X: Any, mean: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """Weighted sums of squared distances from the mean."""
    ones = np.ones(X.shape[0]) if weight is None else weight
    if not sparse.issparse(X):
        return ones @ np.square(X - mean)
    X = _canonical(X).astype(np.float64)
    # Relative to samples of zeros, which are not stored.
    return ones.sum() * mean**2 + ones @ (X.multiply(X) - X.multiply(2 * mean))


def is_mapped(X: Any) -> bool:
    """Return whether an array is memory-mapped: copying it would read the whole file.

    Examples
    --------
    >>> import numpy as np
    >>> is_mapped(np.zeros(2))
    False
    """
    while X is not None:
        if isinstance(X, (np.memmap, mmap.mmap)):
            return True
        # A view refers to its base; a memoryview has another name for it.
        X = X.obj if isinstance(X, memoryview) else getattr(X, "base", None)
    return False


class Gathers:
    """Data that gather a batch themselves, by sample numbers or a slice."""

    shape: tuple[int, ...]


class CentredRows(Gathers):
    """Standardised samples, gathered and made dense batch by batch.

    Batches equal those of ``centre``, which does all samples at once, to the bit.

    Parameters
    ----------
    X : array, scipy sparse matrix or array of shape (n_samples, n_features)
        The data, unchanged: sparse, memory-mapped, or read-only.
    how : Standardisation
        Mean and scale.
    dtype : torch.dtype
        Type of the batches.

    Examples
    --------
    >>> import numpy as np, torch
    >>> from scipy import sparse
    >>> how = Standardisation(np.array([2.0, 1.0]))
    >>> rows = CentredRows(sparse.csr_array([[0.0, 2.0], [4.0, 0.0]]), how)
    >>> rows[np.array([1])]
    tensor([[ 2., -1.]])
    >>> rows.take(slice(0, 2), out=torch.empty(2, 2))
    tensor([[-2.,  1.],
            [ 2., -1.]])
    """

    def __init__(self, X: Any, how: Standardisation, dtype: torch.dtype = torch.float32):
        self.X = _canonical(X) if sparse.issparse(X) else np.asarray(X)
        self.how = how
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
        """Write the samples of these numbers (array, tensor or slice) to ``out``, and return it."""
        index = _row_numbers(index, len(self))
        is_writable = out.dtype in NUMPY_TYPES and out.device.type == "cpu"  # numpy can write to it
        target = out if is_writable else torch.empty(out.shape, dtype=torch.float32)
        # Overflow becomes infinity: the caller has checked the range.
        with np.errstate(over="ignore"):
            self._fill(index, target.numpy())
        return out if target is out else out.copy_(target)

    def _fill(self, index: Any, out: np.ndarray) -> None:
        if not sparse.issparse(self.X):
            rows = _gathered(self.X, index, out)
            self.how.apply(rows, out)
            return
        rows = self.X[index]
        # Most entries are those of zeros: only the stored ones are visited.
        self.how.apply(np.zeros((1, 1)), out)
        numbers = np.repeat(np.arange(len(out)), np.diff(rows.indptr))
        stored = rows.data - self.how.mean[rows.indices]
        if self.how.scale is not None:
            stored /= self.how.scale[rows.indices]
        out[numbers, rows.indices] = stored


def _canonical(X: Any) -> Any:
    """Return sparse rows without duplicate entries; the caller's matrix is unchanged."""
    X = sparse.csr_array(X)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def _row_numbers(index: Any, n_rows: int) -> slice | np.ndarray:
    """Return a slice unchanged, and anything else as valid sample numbers."""
    if isinstance(index, slice):
        return index
    index = index.cpu().numpy() if isinstance(index, Tensor) else np.asarray(index)
    if index.dtype == bool:
        index = np.flatnonzero(index)
    index = index.astype(np.int64, copy=False)
    # One comparison for both ends: as unsigned integers, negative numbers are huge.
    if len(index) and index.view(np.uint64).max() >= n_rows:
        raise IndexError(
            f"Got row numbers from {index.min()} to {index.max()}, but expected 0 to {n_rows - 1}."
        )
    return index


def _gathered(X: np.ndarray, index: Any, out: np.ndarray) -> np.ndarray:
    """Rows of a dense array, in ``out`` itself where possible."""
    if isinstance(index, slice):
        return X[index]
    # ``take`` is faster than brackets, but copies a whole array of another memory layout. It
    # writes to ``out`` directly only where it need not check the numbers.
    if X.flags.c_contiguous:
        same = out if out.dtype == X.dtype else None
        return np.take(X, index, axis=0, out=same, mode="clip")
    if X.flags.f_contiguous:
        return np.take(X.T, index, axis=1, mode="clip").T
    return X[index]


def centre(X: np.ndarray, how: Standardisation, dtype: torch.dtype = torch.float32) -> Tensor:
    """Standardise in the precision of ``X``, then round, chunk by chunk.

    Examples
    --------
    >>> import numpy as np
    >>> centre(np.array([[1e9 + 1.0]]), Standardisation(np.array([1e9]), np.array([0.5])))
    tensor([[2.]])
    """
    if how.scale is None:
        return CentredRows(X, how, dtype)[:]
    rows, whole = CentredRows(X, how, dtype), torch.empty(X.shape, dtype=dtype)
    for part in in_chunks(*X.shape):  # between the two operations stands a copy of a chunk
        rows.take(part, whole[part])
    return whole


def in_chunks(n_rows: int, n_features: int, n_members: int = 1) -> Iterator[slice]:
    """Slices over all samples, each of at most ``MAX_ROWS`` rows and about ``CHUNK`` entries.

    Several networks share this number of rows.

    Examples
    --------
    >>> [(part.start, part.stop) for part in in_chunks(10_000, 3)]
    [(0, 8192), (8192, 10000)]
    """
    most = min(MAX_ROWS // n_members, CHUNK // max(1, n_features))
    size = max(ROW_BLOCK, most // ROW_BLOCK * ROW_BLOCK)
    return (slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size))


def is_copied(X: Any, dtype: torch.dtype) -> bool:
    """Return whether a centred copy of a dense array is worth its memory.

    It is if the copy is small, or at most half the size of the data: float64 samples for a network
    of float32. Memory-mapped data stays in its file.

    Examples
    --------
    >>> import numpy as np
    >>> is_copied(np.zeros((1000, 10)), torch.float32)
    True
    """
    n_bytes = X.size * dtype.itemsize
    return n_bytes <= SMALL_COPY or (2 * n_bytes <= X.nbytes and not is_mapped(X))


def centred(
    X: Any, how: Standardisation, dtype: torch.dtype, by_batch: bool = False
) -> Tensor | CentredRows:
    """Standardised samples: sparse ones by batch, and large ones too if ``by_batch`` allows it."""
    if sparse.issparse(X) or (by_batch and not is_copied(X, dtype)):
        rows = CentredRows(X, how, dtype)
        if _is_in_range(rows):
            return rows
    else:
        copy = centre(X, how, dtype)
        if _is_finite(copy):
            return copy
    raise _out_of_range(X, dtype)


def centred_block(X: Any, how: Standardisation, dtype: torch.dtype) -> Tensor:
    """Standardised dense samples, padded with zeros to a multiple of ``ROW_BLOCK``.

    Examples
    --------
    >>> import numpy as np
    >>> how = Standardisation(np.array([1.0]))
    >>> centred_block(np.array([[3.0]]), how, torch.float32)[:2].tolist()
    [[2.0], [0.0]]
    """
    n_rows = X.shape[0]
    new = torch.zeros if n_rows % ROW_BLOCK else torch.empty
    block = new(n_rows + -n_rows % ROW_BLOCK, X.shape[1], dtype=dtype)
    if dtype in NUMPY_TYPES and not sparse.issparse(X):
        # As ``take`` does, with fewer calls: for one sample, each call costs as much as the sum.
        rows = block.numpy()[:n_rows]
        with np.errstate(all="ignore"):
            how.apply(X, rows)
            is_finite = math.isfinite(rows.sum()) or bool(np.isfinite(rows).all())
    else:
        CentredRows(X, how, dtype).take(slice(None), block[:n_rows])
        is_finite = _is_finite(block)
    if not is_finite:
        raise _out_of_range(X, dtype)
    return block


def _is_finite(rows: Tensor) -> bool:
    return math.isfinite(rows.sum().item()) or bool(torch.isfinite(rows).all())


class OutOfRangeError(ValueError):
    """Samples that are not finite after centring, in the type of the network."""


def _out_of_range(X: Any, dtype: torch.dtype) -> OutOfRangeError:
    return OutOfRangeError(
        f"Input X holds a value of size {_largest(X):.3g}, but expected at most "
        f"{torch.finfo(dtype).max:.3g}, the range of the network's {dtype}."
    )


def _largest(X: Any) -> float:
    # Both extremes: the absolute value of each entry would be a copy.
    return max(abs(float(X.min())), abs(float(X.max()))) if X.size else 0.0


def _is_in_range(rows: CentredRows) -> bool:
    """Return whether all batches will be finite; makes batches only for huge values."""
    limit = torch.finfo(rows.dtype).max
    mean, scale = rows.how
    least = 1.0 if scale is None else min(1.0, scale.min(initial=1.0))
    if _largest(rows.X) + np.abs(mean).max(initial=0.0) <= least * limit:
        return True
    return all(bool(torch.isfinite(rows[part]).all()) for part in in_chunks(*rows.shape))


def free_memory(device: torch.device) -> int:
    """Return the free bytes of a device; 0 for a CPU, where the data already is.

    Examples
    --------
    >>> free_memory(torch.device("cpu"))
    0
    """
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + kept
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    return 0


def n_bytes_of(data: Any) -> int:
    """Size in bytes of a tensor, or of the dense rows of ``CentredRows``."""
    return math.prod(data.shape) * data.dtype.itemsize


def on_device(data: Sequence[Any], device: torch.device, n_free: int) -> list[Any]:
    """Move the data of a fit to the device if all of it fits; else batches are moved later.

    Parameters
    ----------
    data : sequence of Tensor, CentredRows or None
        Inputs, targets, weights. Sparse inputs stay: each batch is made dense separately.
    device : torch.device
        The device of the network.
    n_free : int
        Free memory of the device in bytes.

    Returns
    -------
    data : list
        The data in the same order.

    Examples
    --------
    >>> import torch
    >>> data, device = [torch.zeros(100), None], torch.device("meta")
    >>> on_device(data, device, n_free=1000)[0].device
    device(type='meta')
    >>> on_device(data, device, n_free=500)[0].device
    device(type='cpu')
    """
    is_sparse = any(sparse.issparse(getattr(part, "X", None)) for part in data)
    n_bytes = sum(n_bytes_of(part) for part in data if part is not None)
    if is_sparse or n_bytes > DEVICE_SHARE * n_free:
        return list(data)
    return [part if part is None else _moved(part, device) for part in data]


def _moved(data: Tensor | CentredRows, device: torch.device) -> Tensor:
    if isinstance(data, Tensor):
        return data.to(device)
    # Chunk by chunk: the host may lack memory for the whole.
    whole = torch.empty(data.shape, dtype=data.dtype, device=device)
    for part in in_chunks(*data.shape):
        whole[part] = data[part].to(device)
    return whole


def as_tensors(
    rows: Rows,
    how: Standardisation,
    dtype: torch.dtype,
    device: torch.device,
    *,
    by_batch: bool = False,
) -> Tensors:
    """Standardised inputs, targets and weights in a floating type, on a device.

    With ``by_batch``, inputs too large to copy come as ``CentredRows``. Data that does not fit on
    the device stays where it is.
    """
    X = centred(rows.X, how, dtype, by_batch)
    y = torch.from_numpy(rows.targets)
    y = y.to(dtype) if y.is_floating_point() else y
    weight = None if rows.weight is None else torch.as_tensor(rows.weight, dtype=dtype)
    X, y, weight = on_device((X, y, weight), device, free_memory(device))
    return X, y, weight


@dataclass(frozen=True, eq=False)
class ValidationFolds:
    """Validation samples of an ensemble: ``index[i]`` numbers those of member ``i`` in ``rows``."""

    rows: Rows
    index: list[np.ndarray]


def stratified_folds(
    strata: np.ndarray | None, n_samples: int, n_folds: int, seed: int
) -> list[np.ndarray]:
    """Sample numbers in folds of one size, with each class spread evenly over the folds.

    Samples that would make a fold larger than the others belong to none.

    Examples
    --------
    >>> import numpy as np
    >>> classes = np.array([0, 0, 1, 1, 0, 0, 1])
    >>> folds = stratified_folds(classes, 7, n_folds=3, seed=0)
    >>> [sorted(classes[fold].tolist()) for fold in folds]
    [[0, 0], [0, 1], [0, 1]]
    """
    order = _stratified(strata, n_samples, seed)
    return [np.sort(order[fold::n_folds][: n_samples // n_folds]) for fold in range(n_folds)]


def _stratified(strata: np.ndarray | None, n_samples: int, seed: int) -> np.ndarray:
    """Return sample numbers in random order, sorted by class."""
    order = np.random.default_rng(seed).permutation(n_samples)
    return order if strata is None else order[np.argsort(strata[order], kind="stable")]


def hold_out_folds(
    n_samples: int, strata: np.ndarray | None, n_folds: int, fraction: float, seed: int
) -> list[np.ndarray]:
    """Sample numbers to hold out in each fold; folds differ as long as there are enough samples.

    Parameters
    ----------
    n_samples : int
        Number of samples.
    strata : array of shape (n_samples,) or None
        Classes to spread evenly.
    n_folds : int
        Number of folds.
    fraction : float
        Fraction of the samples in each fold; less where different folds need it.
    seed : int
        Seed of the choice.
    """
    if n_folds == 1:  # the exact fraction, spread evenly over the classes
        order, size = _stratified(strata, n_samples, seed), round(fraction * n_samples)
        size = min(n_samples - 1, max(1, size))
        return [np.sort(order[((np.arange(size) + 0.5) * n_samples / size).astype(int)])]
    # At least two parts: a single one would hold out all samples.
    n_parts = min(n_samples, max(2, n_folds, round(min(n_samples, 1 / fraction))))
    parts = stratified_folds(strata, n_samples, n_parts, seed)
    return [parts[fold % n_parts] for fold in range(n_folds)]
