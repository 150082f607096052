"""What an estimator checks of a user's rows, targets and weights before it trains."""

import functools
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.utils import assert_all_finite, check_array
from sklearn.utils.validation import check_consistent_length, validate_data

from mixupe_sklearn._data.rows import (
    CURE,
    Rows,
    check_finite,
    check_weight,
    first_odd_column,
    normalise,
    to_numpy,
    types_of_rows,
)
from mixupe_sklearn._estimators.ensemble import ValidationFolds, hold_out
from mixupe_sklearn._training.config import n_groups


def _check_enough(rows: Rows) -> None:
    if rows.n_rows < 2:
        raise ValueError(
            f"Got n_samples={rows.n_rows} with early_stopping=True, but expected at least 2: some "
            f"rows are set aside."
        )


class CheckedRows(ABC):
    """The checks of an estimator; its subclasses know about targets."""

    n_members: int
    n_features_in_: int
    validation_fraction: float
    _y_is_numeric: bool
    _split_seed: int

    @abstractmethod
    def _learn_targets(self, y, weight) -> None:
        """Learn from the first training rows what the targets are."""

    def _learn_weights(self, y, weight) -> None:
        """Learn from the training rows of each call what their targets weigh: nothing, here."""
        self._class_factors: Any = None

    @abstractmethod
    def _encode(self, y, weight, name: str) -> tuple[np.ndarray, Any]:
        """Targets as the module wants them, and the rows' final weights."""

    @abstractmethod
    def _n_outputs(self) -> int:
        """How wide the module's output is to be."""

    @abstractmethod
    def _head_for(self, n_outputs: int) -> str | None:
        """The criterion's head for an output of this width; None where the width does not fit."""

    def _strata(self, targets: np.ndarray) -> np.ndarray | None:
        """Classes to keep in equal shares when rows are set aside."""
        return None

    def _rows(self, X, y, sample_weight, *, is_new=False, learn=False, suffix="") -> Rows:
        """Checked rows with weights above zero, of mean one, and encoded targets."""
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
        """Checked rows of a fitted estimator, without weights; nothing is learned from them."""
        X = self._validate_rows(X, reset=False)
        y = self._validate_targets(X, y, "y")
        self._check_finite(X, "X")
        self._check_targets(y, "y")
        return Rows(X, self._encode(y, None, "y")[0], None)

    def _select(self, X: Any, is_wanted: np.ndarray) -> Any:
        """Some of the checked rows."""
        return X[is_wanted]

    def _check_finite(self, X: Any, name: str) -> None:
        """Raise one sentence where checked rows hold NaN or infinity."""
        check_finite(X, getattr(self, "feature_names_in_", None), name)

    def _validate_rows(self, X, *, reset, name="X"):
        """scikit-learn's own checks, with our words for text."""
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
                    f"encode it first, {CURE}."
                ) from error
            if "could not convert string" in str(error):
                value = str(error).split(":", 1)[1].strip()
                raise ValueError(
                    f"Input {name} holds the text {value}, but expected numbers; encode it first, "
                    f"{CURE}."
                ) from error
            if name == "X" or isinstance(error, TypeError):
                raise
            raise ValueError(f"{name} does not fit: {error}") from error

    def _is_checked(self, X: Any) -> bool:
        """Whether scikit-learn's checks would return X itself: for one row they cost the most."""
        return (
            type(X) is np.ndarray
            and X.dtype in (np.float64, np.float32)
            and X.ndim == 2
            and X.shape[0] > 0
            and X.shape[1] == self.n_features_in_
            and not hasattr(self, "feature_names_in_")  # else they would warn
        )

    def _check_targets(self, y: Any, name: str) -> None:
        """Raise one sentence where checked targets have holes."""
        with np.errstate(over="ignore", invalid="ignore"):  # it sums
            assert_all_finite(y, input_name=name)

    def _validate_targets(self, X, y, name):
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target {name} is None."
            )
        y = check_array(
            to_numpy(y),
            accept_sparse=False if self._y_is_numeric else "csr",
            ensure_2d=False,
            dtype="numeric" if self._y_is_numeric else None,
            ensure_all_finite=False,
            input_name=name,
        )
        check_consistent_length(X, y)
        return y

    def _hold_out_folds(self, rows: Rows) -> ValidationFolds:
        """Let members set different rows aside, those of one team all that the team sets aside."""
        _check_enough(rows)
        folds = [number // n_groups(vars(self)) for number in range(self.n_members)]
        strata, share = self._strata(rows.targets), self.validation_fraction
        parts = hold_out(rows.n_rows, strata, folds[-1] + 1, share, self._split_seed)
        return ValidationFolds(rows, [parts[fold] for fold in folds])

    def _hold_out(self, rows: Rows) -> list[Rows]:
        """Part the rows for early stopping, each class in its share where that can be done."""
        _check_enough(rows)
        size = min(rows.n_rows - 1, max(1, round(self.validation_fraction * rows.n_rows)))
        split = functools.partial(
            train_test_split,
            np.arange(rows.n_rows),
            test_size=size,
            random_state=self._split_seed,
        )
        try:
            parts = split(stratify=self._strata(rows.targets))
        except ValueError:  # a class of one row, or more classes than rows to set aside
            parts = split()
        return rows.parts(*(np.sort(part) for part in parts))
