"""Targets of the estimators: classes of any type, multi-label targets, and numbers."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import column_or_1d

from mixupe_sklearn._data.rows import mean_of_rows, normalise
from mixupe_sklearn._utils.parameter_rules import Number
from mixupe_sklearn._utils.warnings import warn_user

# Larger targets leave the range of floats when they are standardised and back.
LARGEST = 1e300


def unique_labels(y: Any) -> np.ndarray:
    """Return the sorted labels, or raise one sentence where they cannot be sorted."""
    try:
        return np.unique(y)
    except TypeError:
        kinds = sorted({type(label).__name__ for label in y})
        raise ValueError(
            f"Got labels of the types {', '.join(kinds)} in y, but expected one type."
        ) from None


def check_missing_labels(y: Any, name: str) -> None:
    """Raise one sentence where a label is missing.

    Examples
    --------
    >>> check_missing_labels(["a", None], "y")
    Traceback (most recent call last):
        ...
    ValueError: Got y=None at row 1, but expected a label for every sample.
    """
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


def in_range(weight: np.ndarray) -> np.ndarray:
    """Divide weights by a power of two, so that sums and products of huge ones stay finite.

    Only the ratios matter, and a power of two changes them in no digit.

    Examples
    --------
    >>> import numpy as np
    >>> in_range(np.array([3.0, 12.0]))
    array([0.1875, 0.75  ])
    """
    return np.ldexp(weight, -np.frexp(weight.max(initial=0.0))[1])


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


class ClassTargets:
    """Targets of a classifier: classes, their weights, and the head that they need.

    ``InputValidationMixin`` and ``BaseMixupE`` call these methods, which call nothing back.
    """

    class_weight: Any
    _labels: Labels

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
