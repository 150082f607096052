"""Rows and weights: what every estimator checks and prepares before it trains."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from mixupe_sklearn._data.batches import NUMPY_TYPES, SMALL_COPY, CentredRows, centre, is_mapped

CURE = "for instance with mixupe_sklearn.make_preprocessor() in a Pipeline"
# What a chunk of rows may have at predict: rows, and entries (16 MiB of float32).
MAX_ROWS, CHUNK = 8192, 2**22
# Chunks are filled up to a multiple of this many rows: matrix products then run the same kernel for
# one row as for many, so that a row's prediction does not depend on its company.
ROW_BLOCK = 16
# The share of a device's free memory that data may take; the network and its states need the rest.
DEVICE_SHARE = 0.5


@dataclass(frozen=True)
class Rows:
    """Inputs, encoded targets and weights (None: all alike); a part of them by row numbers.

    Parts share their inputs: rows that are set aside cost no copy.
    """

    X: Any
    targets: np.ndarray
    weight: np.ndarray | None
    index: np.ndarray | None = None

    @property
    def n_rows(self) -> int:
        """How many rows there are, in this part."""
        return self.X.shape[0] if self.index is None else len(self.index)

    def parts(self, *indices: np.ndarray) -> list["Rows"]:
        """Parts by row numbers, the weights of each again of mean one."""
        weight = None
        if self.weight is not None:
            weight = np.ones_like(self.weight)
            for index in indices:
                own = normalise(self.weight[index])
                weight[index] = 1.0 if own is None else own
        return [replace(self, weight=weight, index=index) for index in indices]


def to_numpy(data: Any) -> Any:
    """Bring a tensor from wherever it is to numpy, and leave all else alone.

    Examples
    --------
    >>> import torch
    >>> to_numpy(torch.ones(2, requires_grad=True))
    array([1., 1.], dtype=float32)
    """
    if np.ma.is_masked(data):
        raise ValueError(
            f"Got an array with {np.ma.count_masked(data)} masked values, but expected one without "
            f"holes: fill them, or leave their rows out."
        )
    if not isinstance(data, Tensor):
        return data
    data = data.detach().cpu()
    return (data.float() if data.dtype == torch.bfloat16 else data).numpy()


def types_of_rows(X: Any) -> Any:
    """The types that rows may have, for scikit-learn's checks; others become the first of them.

    Arrays of whole numbers stay as they are (None): each batch becomes floating by itself, and to
    convert all at once would take up to eight times the memory of the data.

    Examples
    --------
    >>> import numpy as np
    >>> types_of_rows(np.zeros((2, 2), dtype=np.uint8)) is None
    True
    """
    is_kept = isinstance(X, np.ndarray) and (X.dtype.kind in "biu" or X.dtype == np.float16)
    return None if is_kept else (np.float64, np.float32)


def first_odd_column(X: Any) -> Any:
    """Name of a pandas frame's first column that does not hold numbers, or None.

    Examples
    --------
    >>> import pandas as pd
    >>> first_odd_column(pd.DataFrame({"size": [1.0], "city": ["Oslo"]}))
    'city'
    """
    if not hasattr(X, "iloc"):
        return None
    kinds = ((name, getattr(dtype, "kind", "O")) for name, dtype in X.dtypes.items())
    return next((name for name, kind in kinds if kind not in "biufc"), None)


def check_finite(X: Any, names: Any = None, input_name: str = "X") -> None:
    """Raise one sentence that names the column, and the cure, where X holds NaN or infinity.

    Examples
    --------
    >>> import numpy as np
    >>> check_finite(np.array([[1.0, np.inf]]))
    Traceback (most recent call last):
        ...
    ValueError: Input X contains infinity in column 1 (1 of 1 rows), but expected finite numbers.
    """
    values = X.data if sparse.issparse(X) else X
    # The sum is finite in all but odd cases, and needs no array of flags.
    with np.errstate(all="ignore"):
        if math.isfinite(values.sum(dtype=np.float64)) or np.isfinite(values).all():
            return
    has_nan = bool(np.isnan(values).any())
    is_bad = np.isnan if has_nan else np.isinf
    if sparse.issparse(X):
        entries = sparse.coo_array(X)
        columns = entries.coords[1][is_bad(entries.data)]
    else:
        columns = np.nonzero(is_bad(X))[1]
    column = int(columns.min())
    name = column if names is None else repr(str(names[column]))
    raise ValueError(
        f"Input {input_name} contains {'NaN' if has_nan else 'infinity'} in column {name} "
        f"({int((columns == column).sum())} of {X.shape[0]} rows), but expected finite numbers"
        + (f"; fill the holes first, {CURE}." if has_nan else ".")
    )


def check_weight(weight: Any, n_samples: int, name: str = "sample_weight") -> np.ndarray | None:
    """Turn weights into a float64 array, or raise one sentence; None stays None.

    Examples
    --------
    >>> check_weight([1, -2], n_samples=2)
    Traceback (most recent call last):
        ...
    ValueError: Got sample_weight=-2.0 at row 1, but expected numbers >= 0.
    """
    if weight is None:
        return None
    weight = to_numpy(weight)
    if np.isscalar(weight):
        weight = np.full(n_samples, weight)
    weight = np.asarray(weight)
    if weight.dtype.kind not in "biufO":
        raise ValueError(f"Got {name} of type {weight.dtype}, but expected real numbers.")
    try:
        weight = weight.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"Got {name} that are not all numbers, but expected numbers.") from None
    if weight.shape != (n_samples,):
        raise ValueError(
            f"Got {name} of shape {weight.shape}, but expected ({n_samples},), a weight a row."
        )
    is_bad = ~(np.isfinite(weight) & (weight >= 0))
    if is_bad.any():
        row = int(np.flatnonzero(is_bad)[0])
        kind = "numbers >= 0" if np.isfinite(weight[row]) else "finite numbers"
        raise ValueError(f"Got {name}={weight[row]} at row {row}, but expected {kind}.")
    if not weight.any():
        raise ValueError(f"Got {name} of all zero weights, but expected at least one above zero.")
    return weight


def normalise(weight: np.ndarray | None) -> np.ndarray | None:
    """Scale weights to a mean of one; equal weights become None, so that they change nothing.

    Examples
    --------
    >>> import numpy as np
    >>> normalise(np.array([1.0, 3.0])), normalise(np.array([2.0, 2.0]))
    (array([0.5, 1.5]), None)
    """
    if weight is None or (weight == weight[0]).all():
        return None
    # Through the largest one first: the sum of huge weights would overflow.
    weight = weight / weight.max()
    return weight / weight.mean()


def mean_of_rows(rows: Any, weight: np.ndarray | None = None, size: int = 8192) -> np.ndarray:
    """Weighted mean of rows in float64, a chunk at a time; dense, sparse, or a part of ``Rows``.

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
    # Sums beyond the range of floats: ``centred`` refuses such rows with a sentence.
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, n_samples, size):
            part = slice(start, start + size) if index is None else index[start : start + size]
            if weight is None:
                total += np.asarray(X[part].sum(axis=0, dtype=np.float64)).ravel()
            else:
                total += np.asarray(weight[part] @ X[part]).ravel()
    return total / n_samples


def in_chunks(n_rows: int, n_features: int, n_members: int = 1) -> Iterator[slice]:
    """Slices that cover all rows, each of at most ``MAX_ROWS`` rows and about ``CHUNK`` entries.

    Several networks that see the rows share that number of rows.

    Examples
    --------
    >>> [(part.start, part.stop) for part in in_chunks(10_000, 3)]
    [(0, 8192), (8192, 10000)]
    """
    most = min(MAX_ROWS // n_members, CHUNK // max(1, n_features))
    size = max(ROW_BLOCK, most // ROW_BLOCK * ROW_BLOCK)
    return (slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size))


def is_copied(X: Any, dtype: torch.dtype) -> bool:
    """Whether a centred copy of a dense array is worth its memory.

    It is where it is small, or where data and copy together are at most one and a half times the
    data: float64 rows for a network of float32. What lies in a file is to stay there.

    Examples
    --------
    >>> import numpy as np
    >>> is_copied(np.zeros((1000, 10)), torch.float32)
    True
    """
    n_bytes = X.size * dtype.itemsize
    return n_bytes <= SMALL_COPY or (2 * n_bytes <= X.nbytes and not is_mapped(X))


def centred(
    X: Any, X_mean: np.ndarray, dtype: torch.dtype, by_batch: bool = False
) -> Tensor | CentredRows:
    """Rows ready for the module: sparse ones batch by batch, and large ones where allowed."""
    if sparse.issparse(X) or (by_batch and not is_copied(X, dtype)):
        rows = CentredRows(X, X_mean, dtype)
        if _is_in_range(rows):
            return rows
    else:
        copy = centre(X, X_mean, dtype)
        if _is_finite(copy):
            return copy
    raise _out_of_range(X, dtype)


def centred_block(X: Any, X_mean: np.ndarray, dtype: torch.dtype) -> Tensor:
    """Dense rows ready for the module, with zeros behind them up to a multiple of ``ROW_BLOCK``.

    Examples
    --------
    >>> import numpy as np
    >>> centred_block(np.array([[3.0]]), np.array([1.0]), torch.float32)[:2].tolist()
    [[2.0], [0.0]]
    """
    n_rows = X.shape[0]
    new = torch.zeros if n_rows % ROW_BLOCK else torch.empty
    block = new(n_rows + -n_rows % ROW_BLOCK, X.shape[1], dtype=dtype)
    if dtype in NUMPY_TYPES and not sparse.issparse(X):
        # What ``take`` does, by hand: for one row, each call on the way costs as much as the sum.
        rows = block.numpy()[:n_rows]
        with np.errstate(all="ignore"):
            np.subtract(X, X_mean, out=rows, casting="same_kind")
            is_finite = math.isfinite(rows.sum()) or bool(np.isfinite(rows).all())
    else:
        CentredRows(X, X_mean, dtype).take(slice(None), block[:n_rows])
        is_finite = _is_finite(block)
    if not is_finite:
        raise _out_of_range(X, dtype)
    return block


def _is_finite(rows: Tensor) -> bool:
    return math.isfinite(rows.sum().item()) or bool(torch.isfinite(rows).all())


class OutOfRangeError(ValueError):
    """Rows that are not finite once they are centred, in the type of the network."""


def _out_of_range(X: Any, dtype: torch.dtype) -> OutOfRangeError:
    return OutOfRangeError(
        f"Input X holds a value of size {_largest(X):.3g}, but expected at most "
        f"{torch.finfo(dtype).max:.3g}, the range of the network's {dtype}."
    )


def _largest(X: Any) -> float:
    # From both ends: the size of each entry would be a copy.
    return max(abs(float(X.min())), abs(float(X.max()))) if X.size else 0.0


def _is_in_range(rows: CentredRows) -> bool:
    """Whether all batches will be finite; where the numbers are not huge, no batch is made."""
    limit = torch.finfo(rows.dtype).max
    if _largest(rows.X) + np.abs(rows.X_mean).max(initial=0.0) <= limit:
        return True
    return all(bool(torch.isfinite(rows[part]).all()) for part in in_chunks(*rows.shape))


def free_memory(device: torch.device) -> int:
    """How many bytes a device has left; none for a processor, where the data lies already.

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
    """Size of a tensor, or of the dense rows that come out of ``CentredRows``."""
    return math.prod(data.shape) * data.dtype.itemsize


def on_device(data: Sequence[Any], device: torch.device, n_free: int) -> list[Any]:
    """Data of a fit, moved to the device once if all of it fits; else as it is, batch by batch.

    Parameters
    ----------
    data : sequence of Tensor, CentredRows or None
        Inputs, targets, weights. Sparse inputs stay: they are made dense for a batch at a time.
    device : torch.device
        Where the network is.
    n_free : int
        The device's free memory in bytes.

    Returns
    -------
    data : list
        The same in the same order.

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
    # Chunk by chunk: the host has never room for the whole.
    whole = torch.empty(data.shape, dtype=data.dtype, device=device)
    for part in in_chunks(*data.shape):
        whole[part] = data[part].to(device)
    return whole
