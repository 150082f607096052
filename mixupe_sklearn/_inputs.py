"""Rows and weights: what every estimator checks and prepares before it trains."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from mixupe_sklearn._batches import CentredRows, centre

CURE = "for instance with mixupe_sklearn.make_preprocessor() in a Pipeline"


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
    if not isinstance(data, Tensor):
        return data
    data = data.detach().cpu()
    return (data.float() if data.dtype == torch.bfloat16 else data).numpy()


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
        if np.isfinite(np.sum(values, dtype=np.float64)) or np.isfinite(values).all():
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
    except (TypeError, ValueError):
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
    for start in range(0, n_samples, size):
        part = slice(start, start + size) if index is None else index[start : start + size]
        if weight is None:
            total += np.asarray(X[part].sum(axis=0, dtype=np.float64)).ravel()
        else:
            total += np.asarray(weight[part] @ X[part]).ravel()
    return total / n_samples


def centred(X: Any, X_mean: np.ndarray, dtype: torch.dtype) -> Tensor | CentredRows:
    """Rows ready for the module: dense ones at once, sparse ones batch by batch."""
    limit = torch.finfo(dtype).max
    if sparse.issparse(X):
        largest = max(abs(X.min()), abs(X.max())) if X.nnz else 0.0
        if largest + np.abs(X_mean).max(initial=0.0) <= limit:
            return CentredRows(X, X_mean, dtype)
    else:
        rows = centre(X, X_mean, dtype)
        if bool(torch.isfinite(rows.sum())) or bool(torch.isfinite(rows).all()):
            return rows
        largest = np.abs(X).max()
    raise ValueError(
        f"Input X holds a value of size {largest:.3g}, but expected at most {limit:.3g}, the range "
        f"of the network's {dtype}."
    )
