"""Samples, targets and weights of a fit: validated, encoded and decoded.

Samples become rows of finite numbers, and weights numbers >= 0 of mean one. ``ClassTargets`` and
``NumericTargets`` turn targets into what a network learns, and its outputs into predictions.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.utils import assert_all_finite, check_array
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_consistent_length, column_or_1d, validate_data

from mixupe_sklearn._data.rows import (
    Rows,
    ValidationFolds,
    hold_out_folds,
    mean_of_rows,
    normalise,
    to_numpy,
    types_of_rows,
)
from mixupe_sklearn._utils.parameter_rules import Number
from mixupe_sklearn._utils.warnings import warn_user

REMEDY = "for instance with mixupe_sklearn.make_preprocessor() in a Pipeline"
# Larger targets leave the range of floats when they are standardised and back.
LARGEST = 1e300


def first_odd_column(X: Any) -> Any:
    """Return the name of a pandas frame's first column without numbers, or None."""
    if not hasattr(X, "iloc"):
        return None
    kinds = ((name, getattr(dtype, "kind", "O")) for name, dtype in X.dtypes.items())
    return next((name for name, kind in kinds if kind not in "biufc"), None)


def check_finite(X: Any, names: Any = None, input_name: str = "X") -> None:
    """Raise one sentence with the column, and the remedy, where X holds NaN or infinity."""
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
    """Turn weights into a float64 array, or raise one sentence; None stays None."""
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


def in_range(weight: np.ndarray) -> np.ndarray:
    """Divide weights by a power of two, so that sums and products of huge ones stay finite.

    Only the ratios matter, and a power of two changes them in no digit.
    """
    return np.ldexp(weight, -np.frexp(weight.max(initial=0.0))[1])


def first_text(y: Any) -> str | None:
    """Return the first text among targets, one that is no number if there is any, or None."""
    texts = [value for value in np.array(y, dtype=object).ravel() if isinstance(value, str)]
    return next((text for text in texts if not _is_number(text)), texts[0] if texts else None)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def as_written(y: Any) -> Any:
    """Convert a list of labels to objects where numpy would change them, as in ``["a", 1]``.

    numpy would also round integers of more than 64 bits, and strip trailing null characters.

    Examples
    --------
    >>> as_written(["a", 1]), as_written([1, 2])
    (array(['a', 1], dtype=object), [1, 2])
    """
    if not isinstance(y, (list, tuple)) or not y or np.ndim(y[0]):
        return y
    try:
        is_kept = np.asarray(y).tolist() == list(y)
    except ValueError:  # rows of different lengths: the caller rejects them
        return y
    return y if is_kept else np.array([*y, None], dtype=object)[:-1]


def check_missing_labels(y: Any, name: str) -> None:
    """Raise one sentence where a label is missing."""
    labels = np.asarray(y) if hasattr(y, "__array__") else np.array(y, dtype=object)
    if labels.ndim != 1 or labels.dtype.kind not in "fOmM":
        return
    if labels.dtype.kind != "O" and not (labels != labels).any():
        return
    for row, label in enumerate(labels.tolist()):
        # NaN is the only value unlike itself. pandas' NA is not comparable, and pandas is optional.
        if label is None or type(label).__name__ == "NAType" or label != label:
            raise ValueError(
                f"Got {name}={label} at row {row}, but expected a label for every sample."
            )


def unique_labels(y: Any) -> np.ndarray:
    """Return the sorted labels, or raise one sentence where they cannot be sorted."""
    try:
        return np.unique(y)
    except TypeError:
        kinds = sorted({type(label).__name__ for label in y})
        raise ValueError(
            f"Got labels of the types {', '.join(kinds)} in y, but expected one type."
        ) from None


def is_multilabel(y: Any) -> bool:
    """Return whether the targets are multi-label, a matrix of two values."""
    return _kind_of(y).startswith("multilabel")


def _kind_of(y: Any) -> str:
    try:
        with np.errstate(invalid="ignore"):  # floats beyond 64 bits are no integers
            return type_of_target(y)
    except TypeError:
        unique_labels(y)  # raises the sentence about labels of mixed types
        raise


def class_factors(
    class_weight: Any, classes: np.ndarray, y: np.ndarray, weight: np.ndarray | None
) -> np.ndarray | None:
    """Return the weight of each class; None without class weights.

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
        shares = None if weight is None else in_range(weight)
        totals = np.bincount(np.searchsorted(classes, y), weights=shares, minlength=len(classes))
        is_there = totals > 0  # a later call may lack some of the known classes
        return totals.sum() / (is_there.sum() * np.where(is_there, totals, totals.sum()))
    if not isinstance(class_weight, Mapping):
        raise ValueError(
            f"Got class_weight={class_weight!r}, but expected a dict, 'balanced' or None."
        )
    labels = classes.tolist()
    unknown = [label for label in class_weight if label not in labels]
    if unknown and any(label not in class_weight for label in labels):
        # If all labels have a weight, more are no typing error: a fold may lack a class.
        raise ValueError(
            f"Got class_weight for the label {unknown[0]!r}, but expected some of {labels[:20]}."
        )
    factors = [class_weight.get(label, 1.0) for label in labels]
    is_number = Number("a number >= 0")
    if not all(is_number.accepts(factor) for factor in factors):
        raise ValueError(f"Got class_weight={class_weight!r}, but expected numbers >= 0.")
    return np.array(factors, dtype=np.float64)


class Labels(NamedTuple):
    """The labels of a classifier.

    Examples
    --------
    >>> import numpy as np
    >>> labels = Labels.learned_from(np.array(["no", "yes", "no"]))
    >>> labels.encode(np.array(["yes", "no"]), "y")
    array([1, 0])
    >>> labels.decode(np.array([[0.2, 0.8]]))
    array(['yes'], dtype='<U3')
    """

    classes: np.ndarray
    are_several: bool = False

    @classmethod
    def learned_from(cls, y: np.ndarray) -> "Labels":
        """Learn the classes, or the number of labels per sample, from training targets."""
        if y.ndim == 1 and y.dtype == object:
            unique_labels(y)  # on mixed types, scikit-learn fails with an obscure message
        with np.errstate(invalid="ignore"):
            check_classification_targets(y)
        if _kind_of(y) == "multiclass-multioutput":
            raise ValueError(
                f"Got y of shape {y.shape} with several classes per column, but expected one "
                f"column of labels, or a matrix of zeros and ones."
            )
        if is_multilabel(y):
            return cls(np.arange(y.shape[1]), are_several=True)
        return cls(unique_labels(column_or_1d(y, warn=True)))

    def encode(self, y: Any, name: str) -> np.ndarray:
        """Return class numbers, or a matrix of zeros and ones in single precision."""
        if self.are_several:
            return self._encode_several(y, name)
        y = column_or_1d(y)
        unknown = np.setdiff1d(unique_labels(y), self.classes)
        if len(unknown):
            raise ValueError(
                f"Got the labels {unknown.tolist()[:5]} in {name}, but expected some of "
                f"{self.classes.tolist()[:20]}, the labels of the first fit, or announced as "
                f"classes at the first call of partial_fit."
            )
        return np.searchsorted(self.classes, y)

    def _encode_several(self, y: Any, name: str) -> np.ndarray:
        targets = np.asarray(y.toarray() if sparse.issparse(y) else y)
        is_fit = targets.ndim == 2 and targets.shape[1] == len(self.classes)
        if not (is_fit and np.isin(targets, (0, 1)).all()):
            raise ValueError(
                f"Got {name} of shape {targets.shape} with values from {targets.min()} to "
                f"{targets.max()}, but expected zeros and ones in {len(self.classes)} columns."
            )
        return targets.astype(np.float32)

    def decode(self, proba: np.ndarray) -> np.ndarray:
        """Return the most probable class of each sample, or the labels above one half."""
        if self.are_several:
            return (proba > 0.5).astype(np.int64)
        return self.classes[proba.argmax(axis=1)]

    def factors(self, class_weight: Any, y: Any, weight: np.ndarray | None) -> np.ndarray | None:
        """Return the factors of ``weigh``: one per class, or two per label."""
        if class_weight is None:
            return None
        if not self.are_several:
            return class_factors(class_weight, self.classes, column_or_1d(y), weight)
        n_labels, is_balanced = len(self.classes), isinstance(class_weight, str)
        weights = [class_weight] * n_labels if is_balanced else class_weight
        if not (isinstance(weights, list) and len(weights) == n_labels):
            raise ValueError(
                f"Got class_weight={class_weight!r}, but expected a list of {n_labels} dicts, one "
                f"for each label, 'balanced' or None."
            )
        columns, values = self._encode_several(y, "y").T, np.array([0, 1])
        pairs = zip(weights, columns, strict=True)
        return np.array([class_factors(one, values, column, weight) for one, column in pairs])

    def weigh(
        self, targets: np.ndarray, weight: np.ndarray | None, factors: np.ndarray | None
    ) -> np.ndarray | None:
        """Return the weights of samples times those of their classes, or of all their labels."""
        if factors is None:
            return weight
        if self.are_several:
            by_label = np.where(targets > 0, factors[:, 1], factors[:, 0])
            by_class = np.apply_along_axis(in_range, 0, by_label).prod(axis=1)
        else:
            by_class = factors[targets]
        return by_class if weight is None else in_range(by_class) * in_range(weight)


class InputValidationMixin(ABC):
    """Validation of samples, targets and weights; the subclasses define the targets.

    The methods from ``_learn_targets`` to ``_strata`` belong to ``ClassTargets`` and
    ``NumericTargets``.
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

    def _hold_out(self, rows: Rows, n_groups: int) -> ValidationFolds:
        """Hold out different samples for the members of a group, the same for all groups."""
        _check_enough(rows)
        folds = [number // n_groups for number in range(self.n_members)]
        strata, fraction = self._strata(rows.targets), self.validation_fraction
        parts = hold_out_folds(rows.n_rows, strata, folds[-1] + 1, fraction, self._split_seed)
        return ValidationFolds(rows, [parts[fold] for fold in folds])


def _check_enough(rows: Rows) -> None:
    if rows.n_rows < 2:
        raise ValueError(
            f"Got n_samples={rows.n_rows} with early_stopping=True, but expected at least 2: some "
            f"are held out."
        )


class ClassTargets:
    """Targets of a classifier: classes, their weights, and the head that they need.

    ``InputValidationMixin`` and ``BaseMixupE`` call these methods, which call nothing back.
    """

    class_weight: Any
    _labels: Labels

    def _labels_of(self, proba: np.ndarray) -> np.ndarray:
        """Return the labels of probabilities."""
        return self._labels.decode(proba)

    def _by_class(self, proba) -> np.ndarray:
        if proba.shape[-1] < self._n_outputs():  # one logit for two classes
            return np.concatenate([1 - proba, proba], axis=-1)
        return proba

    def _set_labels(self, labels: Labels) -> None:
        self._labels, self.classes_ = labels, labels.classes

    def _announce(self, classes, y, *, is_new: bool) -> bool:
        """Take the ``classes`` of ``partial_fit``; return whether to learn them from ``y``."""
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"Got class_weight={self.class_weight!r} with partial_fit, which does not see all "
                f"samples, but expected a dict or None."
            )
        check_missing_labels(y, "y")
        are_several = is_multilabel(y)
        if is_new and classes is None and not are_several:
            raise ValueError("Got classes=None, but expected all labels at the first call.")
        if classes is not None:
            classes = unique_labels(column_or_1d(as_written(classes)))
            if is_new and not are_several:
                self._set_labels(Labels(classes))
            elif not is_new and not np.array_equal(classes, self.classes_):
                raise ValueError(
                    f"Got classes={classes.tolist()}, but expected those of the first call, "
                    f"{self.classes_.tolist()}."
                )
        return is_new and are_several

    def _learn_targets(self, y, weight) -> None:
        self._set_labels(Labels.learned_from(y))
        if len(self.classes_) == 1 and not self._labels.are_several:
            warn_user(
                f"Got y with the single class {self.classes_.tolist()[0]!r}, but expected two or "
                f"more: the model always predicts it."
            )

    def _learn_weights(self, y, weight) -> None:
        self._class_factors = self._labels.factors(self.class_weight, y, weight)

    def _encode(self, y, weight, name):
        targets = self._labels.encode(y, name)
        return targets, self._labels.weigh(targets, weight, self._class_factors)

    def _n_outputs(self) -> int:
        return len(self.classes_)

    def _head_for(self, n_outputs):
        if n_outputs == len(self.classes_):
            return "sigmoid" if self._labels.are_several else "softmax"
        is_single_logit = n_outputs == 1 and len(self.classes_) == 2
        return "sigmoid" if is_single_logit and not self._labels.are_several else None

    def _strata(self, targets):
        return None if self._labels.are_several else targets


class NumericTargets:
    """Targets of a regressor: numbers, standardised for the network.

    ``InputValidationMixin`` and ``BaseMixupE`` call these methods, which call nothing back.
    """

    y_mean_: np.ndarray
    y_scale_: np.ndarray

    def _in_units(self, standardised) -> np.ndarray:
        return standardised * self.y_scale_ + self.y_mean_

    def _learn_targets(self, y, weight) -> None:
        self._y_is_flat = y.ndim == 1 or y.shape[1] == 1
        if self._y_is_flat:
            y = column_or_1d(y, warn=True)
        columns, weight = _columns(y), normalise(weight)
        # Relative to the largest: squares of huge or tiny numbers leave the range of a float.
        unit = np.abs(columns).max(axis=0)
        unit = np.where(unit > 0, unit, 1.0)
        mean = mean_of_rows(columns / unit, weight)
        scale = np.sqrt(mean_of_rows((columns / unit - mean) ** 2, weight))
        self.y_mean_, y_scale = mean * unit, np.where(scale > 0, scale, 1.0) * unit
        self.y_scale_ = np.where(y_scale > 0, y_scale, np.finfo(np.float64).tiny)

    def _encode(self, y, weight, name):
        columns = _columns(y)
        if columns.shape[1] != self._n_outputs():
            raise ValueError(
                f"Got {name} with {columns.shape[1]} columns, but expected {self._n_outputs()}."
            )
        largest = np.abs(columns).max(initial=0.0)
        if largest > LARGEST:
            raise ValueError(
                f"Got {name} with a number of size {largest:.3g}, but expected at most "
                f"{LARGEST:g}: divide the targets."
            )
        return (columns - self.y_mean_) / self.y_scale_, weight

    def _n_outputs(self) -> int:
        return len(self.y_mean_)

    def _head_for(self, n_outputs):
        return "squared" if n_outputs == self._n_outputs() else None


def _columns(y: Any) -> np.ndarray:
    return np.asarray(y, dtype=np.float64).reshape(y.shape[0], -1)
