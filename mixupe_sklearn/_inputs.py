"""Rows and weights: what every estimator checks and prepares before it trains."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from mixupe_sklearn._batches import CentredRows, centre

CURE = "for instance with mixupe_sklearn.make_preprocessor() in a Pipeline"


class Rows(NamedTuple):
    """Inputs, encoded targets and weights (None: all alike) of a training or validation part."""

    X: Any
    targets: np.ndarray
    weight: np.ndarray | None

    def take(self, index: np.ndarray) -> "Rows":
        """The rows of an index or a mask."""
        weight = None if self.weight is None else self.weight[index]
        return Rows(self.X[index], self.targets[index], weight)


def to_numpy(data: Any) -> Any:
    """Bring a tensor from wherever it is to numpy, and leave all else alone.

    Examples
    --------
    >>> import torch
    >>> to_numpy(torch.ones(2, requires_grad=True))
    array([1., 1.], dtype=float32)
    """
    return data.detach().cpu().numpy() if isinstance(data, Tensor) else data


def check_finite(X: Any, names: Any = None) -> None:
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
        f"Input X contains {'NaN' if has_nan else 'infinity'} in column {name} "
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
    weight = np.asarray(weight, dtype=np.float64)
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


def class_factors(
    class_weight: Any, classes: np.ndarray, y: np.ndarray, weight: np.ndarray | None
) -> np.ndarray | None:
    """What the rows of each class are weighted with; None for no class weights.

    Examples
    --------
    >>> import numpy as np
    >>> classes, y = np.array(["a", "b"]), np.array(["a", "b", "b", "b"])
    >>> class_factors({"b": 2}, classes, y, None)
    array([1., 2.])
    >>> class_factors("balanced", classes, y, None)
    array([2.        , 0.66666667])
    """
    if class_weight is None:
        return None
    if isinstance(class_weight, str) and class_weight == "balanced":
        totals = np.bincount(np.searchsorted(classes, y), weights=weight)
        return totals.sum() / (len(totals) * totals)
    if not isinstance(class_weight, Mapping):
        raise ValueError(
            f"Got class_weight={class_weight!r}, but expected a dict, 'balanced' or None."
        )
    labels = classes.tolist()
    unknown = [label for label in class_weight if label not in labels]
    if unknown:
        raise ValueError(
            f"Got class_weight for the label {unknown[0]!r}, but expected some of {labels[:20]}."
        )
    factors = np.array([class_weight.get(label, 1.0) for label in labels], dtype=np.float64)
    if not (np.isfinite(factors).all() and (factors >= 0).all()):
        raise ValueError(f"Got class_weight={class_weight!r}, but expected numbers >= 0.")
    return factors


def mean_of_rows(X: Any, weight: np.ndarray | None) -> np.ndarray:
    """Weighted mean of the rows, in float64; dense or sparse.

    Examples
    --------
    >>> import numpy as np
    >>> mean_of_rows(np.array([[0.0], [4.0]]), np.array([0.5, 1.5]))
    array([3.])
    """
    if weight is None:
        return np.asarray(X.mean(axis=0, dtype=np.float64)).ravel()
    return np.asarray(weight @ X, dtype=np.float64).ravel() / X.shape[0]


def centred(X: Any, X_mean: np.ndarray, dtype: torch.dtype) -> Tensor | CentredRows:
    """Rows ready for the module: dense ones at once, sparse ones batch by batch."""
    if sparse.issparse(X):
        return CentredRows(X, X_mean, dtype)
    rows = centre(X, X_mean, dtype)
    if not bool(torch.isfinite(rows.sum())) and not bool(torch.isfinite(rows).all()):
        largest = np.abs(X).max()
        raise ValueError(
            f"Input X holds a value of size {largest:.3g}, but expected at most "
            f"{torch.finfo(dtype).max:.3g}, the range of the network's {dtype}."
        )
    return rows
