"""Figures of predictions: decision boundaries and the calibration of probabilities."""

from typing import Any

import numpy as np
from sklearn.inspection import DecisionBoundaryDisplay
from sklearn.utils import check_array, check_consistent_length, check_X_y, column_or_1d
from sklearn.utils.validation import check_is_fitted

from mixupe_sklearn._diagnostics.display import Display
from mixupe_sklearn._utils.parameter_rules import Number, Rule, check_rules
from mixupe_sklearn._utils.plotting import COLOURS, FAINT, line_style, new_axes, plain_label, tidy

_RULES: dict[str, Rule] = {"n_bins": Number("an integer >= 1", low=1, integer=True)}


class ReliabilityDisplay(Display):
    """Accuracy of predictions against their confidence.

    Samples are binned by the probability of the predicted class, in bins of equal width. Each bin
    has a mean probability and an accuracy. Their mean absolute difference, weighted by the number
    of samples, is the expected calibration error. The area of a point grows with its number of
    samples. For the probability of the second of two classes see
    :class:`sklearn.calibration.CalibrationDisplay`.

    Parameters
    ----------
    confidence, accuracy, weight : ndarray of shape (n_filled_bins,)
        Mean probability, accuracy and share of the samples, of the non-empty bins.
    name : str or None, default=None
        Label in the legend.

    Attributes
    ----------
    calibration_error : float
        The expected calibration error.
    ax_ : matplotlib Axes
        Axes of the plot.
    figure_ : matplotlib Figure
        Figure of the axes.
    line_ : matplotlib line
        The curve.

    Examples
    --------
    >>> from mixupe_sklearn.diagnostics import ReliabilityDisplay
    >>> proba = [[0.9, 0.1], [0.8, 0.2], [0.2, 0.8], [0.1, 0.9]]
    >>> display = ReliabilityDisplay.from_predictions([0, 1, 1, 1], proba, n_bins=2)
    >>> round(display.calibration_error, 2)              # confidence 0.85, accuracy 0.75
    0.1
    """

    def __init__(self, confidence: Any, accuracy: Any, weight: Any, *, name: str | None = None):
        self.confidence = np.asarray(confidence, dtype=float)
        self.accuracy = np.asarray(accuracy, dtype=float)
        self.weight = np.asarray(weight, dtype=float)
        self.name = name

    @property
    def calibration_error(self) -> float:
        """Mean absolute difference of accuracy and confidence, weighted by samples."""
        return float(self.weight @ np.abs(self.accuracy - self.confidence))

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        n_bins: int = 10,
        name: str | None = None,
        ax: Any = None,
        **line_kw: Any,
    ) -> "ReliabilityDisplay":
        """Plot the predictions of a fitted classifier.

        Parameters
        ----------
        estimator : classifier
            Any scikit-learn classifier with ``predict_proba`` and ``classes_``.
        X, y : array-like
            Held-out samples and their labels.
        n_bins : int, default=10
            Number of bins.
        name : str or None, default=None
            Label in the legend.
        ax : matplotlib Axes or None, default=None
            Axes to draw on; None creates new ones.
        **line_kw : dict
            Passed on to matplotlib's ``plot``.
        """
        _check_classifier(estimator)
        how = {"classes": estimator.classes_, "n_bins": n_bins, "name": name, "ax": ax}
        return cls.from_predictions(y, estimator.predict_proba(X), **how, **line_kw)

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_proba: Any,
        *,
        classes: Any = None,
        n_bins: int = 10,
        name: str | None = None,
        ax: Any = None,
        **line_kw: Any,
    ) -> "ReliabilityDisplay":
        """Plot given probabilities.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            Labels.
        y_proba : array-like of shape (n_samples, n_classes)
            Probability of each class.
        classes : array-like of shape (n_classes,) or None, default=None
            The label of each column; None means 0, 1, 2 and so on.
        n_bins : int, default=10
            Number of bins.
        name : str or None, default=None
            Label in the legend.
        ax : matplotlib Axes or None, default=None
            Axes to draw on; None creates new ones.
        **line_kw : dict
            Passed on to matplotlib's ``plot``.
        """
        check_rules({"n_bins": n_bins}, _RULES)
        y_true, y_proba, labels = _checked(y_true, y_proba, classes)
        sure = y_proba.max(axis=1)
        is_right = labels[y_proba.argmax(axis=1)] == y_true
        bins = np.minimum((sure * n_bins).astype(int), n_bins - 1)
        n_rows = np.bincount(bins, minlength=n_bins)
        filled = n_rows > 0
        confidence, accuracy = (
            np.bincount(bins, of, n_bins)[filled] / n_rows[filled] for of in (sure, is_right)
        )
        display = cls(confidence, accuracy, n_rows[filled] / len(bins), name=name)
        return display.plot(ax=ax, **line_kw)

    plot = Display.plot  # also here, so that the API page of the class lists it

    def _draw(self, ax: Any, label: str | None, line_kw: dict[str, Any]) -> None:
        text = f"calibration error {100 * self.calibration_error:.1f} %"
        ours = {"label": text if label is None else f"{label}: {text}"}
        how = line_style(ax, line_kw, len(self.weight), linewidth=1.5, marker="", **ours)
        ax.plot([0, 1], [0, 1], color=FAINT, linewidth=1.0, linestyle=":", zorder=0)
        (self.line_,) = ax.plot(self.confidence, self.accuracy, **how)
        sizes = 12 + 150 * self.weight
        ax.scatter(self.confidence, self.accuracy, s=sizes, color=how["color"], alpha=0.6)
        ax.set_ylim(-0.02, 1.02)
        ax.legend(frameon=False, loc="upper left")
        tidy(ax, x="probability of the predicted class", y="accuracy")


def _checked(y_true: Any, y_proba: Any, classes: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Check and return labels, probabilities and the label of each column."""
    y_true, y_proba = column_or_1d(y_true), check_array(y_proba, dtype=float)
    check_consistent_length(y_true, y_proba)
    is_bad = (y_proba < 0) | (y_proba > 1 + 1e-6)
    if is_bad.any():
        raise ValueError(f"Got {y_proba[is_bad][0]} in y_proba, but expected probabilities.")
    labels = np.arange(y_proba.shape[1]) if classes is None else np.asarray(classes)
    if labels.shape != (y_proba.shape[1],):
        raise ValueError(
            f"Got {len(labels)} classes and {y_proba.shape[1]} columns of y_proba, but expected as "
            f"many of both."
        )
    _check_labels(y_true, labels, " (give their names as classes)" if classes is None else "")
    return y_true, y_proba, labels


def _check_labels(y: np.ndarray, classes: np.ndarray, hint: str = "") -> None:
    unknown = y[~np.isin(y, classes)]
    if len(unknown):
        raise ValueError(
            f"Got the label {unknown.tolist()[0]!r}, but expected one of "
            f"{', '.join(map(repr, classes[:9].tolist()))}{hint}."
        )


def _check_classifier(estimator: Any) -> None:
    check_is_fitted(estimator)
    if not hasattr(estimator, "predict_proba") or np.ndim(getattr(estimator, "classes_", 0)) != 1:
        raise TypeError(
            f"Got a {type(estimator).__name__}, but expected a classifier with predict_proba and "
            f"one label per sample."
        )


def plot_reliability(estimators: Any, X: Any, y: Any, *, n_bins: int = 10, ax: Any = None) -> dict:
    """Plot the reliability of the probabilities of several classifiers.

    Parameters
    ----------
    estimators : dict of str to classifier, or classifier
        Fitted classifiers of any kind.
    X, y : array-like
        Held-out samples and their labels.
    n_bins : int, default=10
        Number of bins.
    ax : matplotlib Axes or None, default=None
        Axes to draw on; None creates new ones.

    Returns
    -------
    displays : dict of str to ReliabilityDisplay
        All on the same axes.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from mixupe_sklearn.diagnostics import plot_reliability
    >>> X, y = load_iris(return_X_y=True)
    >>> displays = plot_reliability({"naive Bayes": GaussianNB().fit(X[::2], y[::2])}, X, y)
    >>> displays["naive Bayes"].calibration_error < 0.1
    True
    """
    return ReliabilityDisplay._of_all(estimators, X, y, n_bins=n_bins, ax=ax)


def plot_decision_boundary(
    estimator: Any, X: Any, y: Any, *, ax: Any = None, grid_resolution: int = 200
) -> DecisionBoundaryDisplay:
    """Plot the classes that a classifier of two features predicts, and samples on top.

    Parameters
    ----------
    estimator : classifier
        Fitted on two features.
    X : array-like of shape (n_samples, 2)
        Samples to show.
    y : array-like of shape (n_samples,)
        Their labels.
    ax : matplotlib Axes or None, default=None
        Axes to draw on; None creates new ones.
    grid_resolution : int, default=200
        Number of predictions along each axis.

    Returns
    -------
    display : sklearn.inspection.DecisionBoundaryDisplay
        Shades show probabilities: of the second of two classes, else of the most probable one.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from mixupe_sklearn import MixupEClassifier
    >>> from mixupe_sklearn.diagnostics import plot_decision_boundary
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> classifier = MixupEClassifier(n_members=1, alpha=0.2, random_state=0).fit(X, y)
    >>> display = plot_decision_boundary(classifier, X, y, grid_resolution=50)
    >>> display.response.shape[:2]
    (50, 50)
    """
    _check_classifier(estimator)
    rows, labels = check_X_y(X, y, ensure_all_finite="allow-nan")
    _check_labels(labels, estimator.classes_)
    X = X if hasattr(X, "columns") else rows
    (axes,) = new_axes(ax)
    classes = list(estimator.classes_)
    colours = [COLOURS[number % len(COLOURS)] for number in range(len(classes))]
    how: dict[str, Any] = {"alpha": 0.55, "grid_resolution": grid_resolution}
    if len(classes) > 2:
        how["multiclass_colors"] = colours
    elif len(classes) == 2:
        how |= {"plot_method": "pcolormesh", "cmap": _between(*colours)}
        how |= {"vmin": 0, "vmax": 1, "alpha": 1.0}  # transparent cells would show seams
    display = DecisionBoundaryDisplay.from_estimator(
        estimator, X, ax=axes, response_method="predict_proba", **how
    )
    for label, colour in zip(classes, colours, strict=True):
        own = rows[labels == label]
        named = {"color": colour, "label": plain_label(label)}
        axes.scatter(*own.T, s=18, edgecolor="white", linewidth=0.5, **named)
    axes.legend(frameon=False)
    tidy(axes, x=plain_label(axes.get_xlabel()), y=plain_label(axes.get_ylabel()))
    axes.grid(False)
    return display


def _between(first: str, second: str) -> Any:
    """Colours from one class over white to the other, paler than the samples."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgb

    start, end = (tuple(0.45 + 0.55 * part for part in to_rgb(one)) for one in (first, second))
    stops: list[Any] = [start, "white", end]
    return LinearSegmentedColormap.from_list("classes", stops)
