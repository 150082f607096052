"""Input validation of the estimators: samples, targets and weights, before training."""

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import assert_all_finite, check_array
from sklearn.utils.validation import check_consistent_length, validate_data

from mixupe_sklearn._data.rows import (
    Rows,
    ValidationFolds,
    hold_out_folds,
    normalise,
    split_rows,
    to_numpy,
    types_of_rows,
)
from mixupe_sklearn._estimators.targets import as_written, check_missing_labels
from mixupe_sklearn._training.config import n_groups

REMEDY = "for instance with mixupe_sklearn.make_preprocessor() in a Pipeline"


def first_odd_column(X: Any) -> Any:
    """Return the name of a pandas frame's first column without numbers, or None.

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
    """Raise one sentence with the column, and the remedy, where X holds NaN or infinity.

    Examples
    --------
    >>> import numpy as np
    >>> check_finite(np.array([[1.0, np.inf]]))
    Traceback (most recent call last):
        ...
    ValueError: Input X contains infinity in column 1 (1 of 1 rows), but expected finite numbers.
    """
    values = X.data if sparse.issparse(X) else X
    # The sum is finite in nearly all cases, and needs no array of booleans.
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
        + (f"; fill missing values first, {REMEDY}." if has_nan else ".")
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
            f"Got {name} of shape {weight.shape}, but expected ({n_samples},), one weight per "
            f"sample."
        )
    is_bad = ~(np.isfinite(weight) & (weight >= 0))
    if is_bad.any():
        row = int(np.flatnonzero(is_bad)[0])
        kind = "numbers >= 0" if np.isfinite(weight[row]) else "finite numbers"
        raise ValueError(f"Got {name}={weight[row]} at row {row}, but expected {kind}.")
    if not weight.any():
        raise ValueError(f"Got {name} of all zero weights, but expected at least one above zero.")
    return weight


def first_text(y: Any) -> str | None:
    """Return the first text among targets, one that is no number if there is any, or None.

    Examples
    --------
    >>> first_text([1.0, "2", "b"]), first_text([1.0])
    ('b', None)
    """
    texts = [value for value in np.array(y, dtype=object).ravel() if isinstance(value, str)]
    return next((text for text in texts if not _is_number(text)), texts[0] if texts else None)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class InputValidationMixin(ABC):
    """Validation of samples, targets and weights; the subclasses define the targets.

    The methods from ``_learn_targets`` to ``_strata`` belong to the mixins of ``targets.py``.
    """

    n_members: int
    n_features_in_: int
    validation_fraction: float
    _y_is_numeric: bool
    _split_seed: int

    @abstractmethod
    def _learn_targets(self, y, weight) -> None:
        """Learn the classes, or the scale of numbers, from the first training samples."""

    @abstractmethod
    def _encode(self, y, weight, name: str) -> tuple[np.ndarray, Any]:
        """Return the targets of the module, and the final weights of the samples."""

    @abstractmethod
    def _n_outputs(self) -> int:
        """Return the number of outputs of the module."""

    @abstractmethod
    def _head_for(self, n_outputs: int) -> str | None:
        """Return the criterion's head for this number of outputs; None if it does not fit."""

    def _learn_weights(self, y, weight) -> None:
        """Learn the class weights from the training samples of each call."""
        self._class_factors: Any = None

    def _strata(self, targets: np.ndarray) -> np.ndarray | None:
        """Return the classes whose shares a validation split keeps."""
        return None

    def _rows(self, X, y, sample_weight, *, is_new=False, learn=False, suffix="") -> Rows:
        """Validated samples of positive weight (of mean one), and encoded targets."""
        X = self._validate_rows(X, reset=is_new, name=f"X{suffix}")
        y = self._validate_targets(X, y, f"y{suffix}")
        weight = check_weight(sample_weight, X.shape[0], f"sample_weight{suffix}")
        if weight is not None and not weight.all():
            X, y, weight = self._select(X, weight > 0), y[weight > 0], weight[weight > 0]
        self._check_finite(X, f"X{suffix}")
        self._check_targets(y, f"y{suffix}")
        if learn:
            self._learn_targets(y, weight)
        if not suffix:
            self._learn_weights(y, weight)
        targets, weight = self._encode(y, weight, f"y{suffix}")
        if weight is not None and not weight.all():  # a class of weight zero
            check_weight(weight, X.shape[0], "class_weight times sample_weight")
            X, targets = self._select(X, weight > 0), targets[weight > 0]
            weight = weight[weight > 0]
        return Rows(X, targets, normalise(weight))

    def _monitored_rows(self, X, y) -> Rows:
        """Validated samples of a fitted estimator, without weights; learns nothing from them."""
        X = self._validate_rows(X, reset=False)
        y = self._validate_targets(X, y, "y")
        self._check_finite(X, "X")
        self._check_targets(y, "y")
        return Rows(X, self._encode(y, None, "y")[0], None)

    def _select(self, X: Any, is_wanted: np.ndarray) -> Any:
        """Some of the validated samples."""
        return X[is_wanted]

    def _check_finite(self, X: Any, name: str) -> None:
        """Raise one sentence where validated samples hold NaN or infinity."""
        check_finite(X, getattr(self, "feature_names_in_", None), name)

    def _validate_rows(self, X, *, reset, name="X"):
        """Run scikit-learn's own checks, with our sentences for text."""
        if not reset and self._is_checked(X):
            return X
        try:
            return validate_data(
                self,
                to_numpy(X),
                accept_sparse="csr",
                dtype=types_of_rows(X),
                ensure_all_finite=False,
                reset=reset,
            )
        except (TypeError, ValueError) as error:
            column = first_odd_column(X)
            if column is not None:
                raise ValueError(
                    f"Column {column!r} of {name} holds {X[column].dtype}, but expected numbers; "
                    f"encode it first, {REMEDY}."
                ) from error
            if "could not convert string" in str(error):
                value = str(error).split(":", 1)[1].strip()
                raise ValueError(
                    f"Input {name} holds the text {value}, but expected numbers; encode it first, "
                    f"{REMEDY}."
                ) from error
            if name == "X" or isinstance(error, TypeError):
                raise
            raise ValueError(f"{name} does not fit: {error}") from error

    def _is_checked(self, X: Any) -> bool:
        """Return whether scikit-learn's checks would return X itself: they are slow for one row."""
        return (
            type(X) is np.ndarray
            and X.dtype in (np.float64, np.float32)
            and X.ndim == 2
            and X.shape[0] > 0
            and X.shape[1] == self.n_features_in_
            and not hasattr(self, "feature_names_in_")  # else they would warn
        )

    def _check_targets(self, y: Any, name: str) -> None:
        """Raise one sentence where validated targets have missing or infinite values."""
        if not self._y_is_numeric and y.dtype.kind in "OmM":
            check_missing_labels(y, name)
        with np.errstate(over="ignore", invalid="ignore"):  # it sums
            assert_all_finite(y, input_name=name)

    def _validate_targets(self, X, y, name):
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target {name} is None."
            )
        try:
            y = check_array(
                to_numpy(y if self._y_is_numeric else as_written(y)),
                accept_sparse=False if self._y_is_numeric else "csr",
                ensure_2d=False,
                dtype="numeric" if self._y_is_numeric else None,
                ensure_all_finite=False,
                input_name=name,
            )
        except ValueError as error:
            text = first_text(y) if self._y_is_numeric else None
            if text is None:
                raise
            raise ValueError(f"Got {name} with the text {text!r}, but expected numbers.") from error
        check_consistent_length(X, y)
        return y

    def _hold_out_folds(self, rows: Rows) -> ValidationFolds:
        """Hold out different samples for the members of a group, the same for all groups."""
        _check_enough(rows)
        folds = [number // n_groups(vars(self)) for number in range(self.n_members)]
        strata, fraction = self._strata(rows.targets), self.validation_fraction
        parts = hold_out_folds(rows.n_rows, strata, folds[-1] + 1, fraction, self._split_seed)
        return ValidationFolds(rows, [parts[fold] for fold in folds])

    def _hold_out(self, rows: Rows) -> list[Rows]:
        """Split the samples of a single network for early stopping."""
        _check_enough(rows)
        strata = self._strata(rows.targets)
        return split_rows(rows, strata, self.validation_fraction, self._split_seed)


def _check_enough(rows: Rows) -> None:
    if rows.n_rows < 2:
        raise ValueError(
            f"Got n_samples={rows.n_rows} with early_stopping=True, but expected at least 2: some "
            f"are held out."
        )
