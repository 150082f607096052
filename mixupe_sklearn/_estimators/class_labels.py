"""Labels to targets and back: classes of any type, or several yes/no labels a row."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import column_or_1d

from mixupe_sklearn._utils.parameter_rules import Number


def unique_labels(y: Any) -> np.ndarray:
    """Sorted labels, or one sentence where they cannot be sorted."""
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
    >>> check_holes(["a", None], "y")
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
        # Only NaN is unlike itself; pandas' NA does not say, and pandas need not be installed.
        if label is None or type(label).__name__ == "NAType" or label != label:
            raise ValueError(
                f"Got {name}={label} at row {row}, but expected a label for every sample."
            )


def as_written(y: Any) -> Any:
    """Labels of a list as objects where numpy would change them: holes and numbers beside text.

    Whole numbers of more than 64 bits would be rounded, and the zeros behind a text cut off.

    Examples
    --------
    >>> as_written(["a", 1]), as_written([1, 2])
    (array(['a', 1], dtype=object), [1, 2])
    """
    if not isinstance(y, (list, tuple)) or not y or np.ndim(y[0]):
        return y
    try:
        is_kept = np.asarray(y).tolist() == list(y)
    except ValueError:  # rows of different lengths: the caller refuses them
        return y
    return y if is_kept else np.array([*y, None], dtype=object)[:-1]


def is_multilabel(y: Any) -> bool:
    """Whether rows have several labels each, as a matrix of two values."""
    return _kind_of(y).startswith("multilabel")


def _kind_of(y: Any) -> str:
    try:
        with np.errstate(invalid="ignore"):  # floats beyond 64 bits are no whole numbers
            return type_of_target(y)
    except TypeError:
        unique_labels(y)  # says what is wrong with labels of mixed types
        raise


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
        shares = None if weight is None else in_range(weight)
        totals = np.bincount(np.searchsorted(classes, y), weights=shares, minlength=len(classes))
        is_there = totals > 0  # where training goes on, some of the known classes may not be
        return totals.sum() / (is_there.sum() * np.where(is_there, totals, totals.sum()))
    if not isinstance(class_weight, Mapping):
        raise ValueError(
            f"Got class_weight={class_weight!r}, but expected a dict, 'balanced' or None."
        )
    labels = classes.tolist()
    unknown = [label for label in class_weight if label not in labels]
    if unknown and any(label not in class_weight for label in labels):
        # Where all labels have a weight, more are no typing error: a fold may lack a class.
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

    Only their ratios matter, and these stay what they are to the last digit.

    Examples
    --------
    >>> import numpy as np
    >>> in_range(np.array([3.0, 12.0]))
    array([0.1875, 0.75  ])
    """
    return np.ldexp(weight, -np.frexp(weight.max(initial=0.0))[1])


class Labels(NamedTuple):
    """What a classifier knows of its labels.

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
        """Learn the classes, or the number of labels a row, from training targets."""
        if y.ndim == 1 and y.dtype == object:
            unique_labels(y)  # scikit-learn would fail on mixed types, with a puzzle
        with np.errstate(invalid="ignore"):
            check_classification_targets(y)
        if _kind_of(y) == "multiclass-multioutput":
            raise ValueError(
                f"Got y of shape {y.shape} with several classes a column, but expected one column "
                f"of labels, or a matrix of zeros and ones."
            )
        if is_multilabel(y):
            return cls(np.arange(y.shape[1]), are_several=True)
        return cls(unique_labels(column_or_1d(y, warn=True)))

    def encode(self, y: Any, name: str) -> np.ndarray:
        """Class numbers, or a matrix of zeros and ones in single precision."""
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
        """The most probable class of each row, or the labels above one half."""
        if self.are_several:
            return (proba > 0.5).astype(np.int64)
        return self.classes[proba.argmax(axis=1)]

    def factors(self, class_weight: Any, y: Any, weight: np.ndarray | None) -> np.ndarray | None:
        """What ``weigh`` is to multiply rows with: a number a class, or two a label."""
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
        """Weights of rows, times those of their classes; of all their labels, if several."""
        if factors is None:
            return weight
        if self.are_several:
            by_label = np.where(targets > 0, factors[:, 1], factors[:, 0])
            by_class = np.apply_along_axis(in_range, 0, by_label).prod(axis=1)
        else:
            by_class = factors[targets]
        return by_class if weight is None else in_range(by_class) * in_range(weight)


class ClassTargets:
    """What a classifier knows of its targets: classes, their weights, and the head they need."""

    class_weight: Any
    _labels: Labels

    def _by_class(self, proba) -> np.ndarray:
        if proba.shape[-1] < self._n_outputs():  # one logit for two classes
            return np.concatenate([1 - proba, proba], axis=-1)
        return proba

    def _know(self, labels: Labels) -> None:
        self._labels, self.classes_ = labels, labels.classes

    def _announce(self, classes, y, *, is_new: bool) -> bool:
        """Take over what ``partial_fit`` is told of the classes; whether ``y`` is to tell it."""
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"Got class_weight={self.class_weight!r} with partial_fit, which does not see all "
                f"rows, but expected a dict or None."
            )
        check_missing_labels(y, "y")
        are_several = is_multilabel(y)
        if is_new and classes is None and not are_several:
            raise ValueError("Got classes=None, but expected all labels at the first call.")
        if classes is not None:
            classes = unique_labels(column_or_1d(as_written(classes)))
            if is_new and not are_several:
                self._know(Labels(classes))
            elif not is_new and not np.array_equal(classes, self.classes_):
                raise ValueError(
                    f"Got classes={classes.tolist()}, but expected those of the first call, "
                    f"{self.classes_.tolist()}."
                )
        return is_new and are_several

    def _validate_targets(self, X, y, name):
        return super()._validate_targets(X, as_written(y), name)  # type: ignore[misc]

    def _check_targets(self, y, name: str) -> None:
        if y.dtype.kind in "OmM":
            check_missing_labels(y, name)
        super()._check_targets(y, name)  # type: ignore[misc]

    def _learn_targets(self, y, weight) -> None:
        self._know(Labels.learned_from(y))

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
