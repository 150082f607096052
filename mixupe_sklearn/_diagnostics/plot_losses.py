"""Figures of losses, as displays in the style of scikit-learn."""

from typing import Any

import numpy as np

from mixupe_sklearn._diagnostics.display import Display
from mixupe_sklearn._diagnostics.fitted import column, records_of
from mixupe_sklearn._utils.plotting import line_style, tidy


class LossCurvesDisplay(Display):
    """Training and validation loss of a training, by epoch (the paper's Figure 1).

    Parameters
    ----------
    train : pair of arrays
        Epochs and the training loss, which is that of mixed samples if samples are mixed.
    valid : pair of arrays
        Epochs and the loss of clean validation samples; empty if there were none.
    name : str or None, default=None
        Label in the legend.

    Attributes
    ----------
    ax_ : ndarray of matplotlib Axes
        Axes of the two losses.
    figure_ : matplotlib Figure
        Figure of the axes.
    lines_ : list of matplotlib lines
        One for each loss.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mixupe_sklearn import MixupEClassifier, preset
    >>> from mixupe_sklearn.diagnostics import LossCurvesDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = MixupEClassifier(**preset("paper") | {"batch_size": 20}, random_state=0)
    >>> classifier = classifier.fit(X[::2], y[::2], X_val=X[1::2], y_val=y[1::2])
    >>> display = LossCurvesDisplay.from_estimator(classifier, name="MixupE")
    >>> len(display.lines_)
    2
    """

    n_axes = 2

    def __init__(self, train: Any, valid: Any, *, name: str | None = None):
        self.train = train
        self.valid = valid
        self.name = name

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, name: str | None = None, ax: Any = None, **line_kw: Any
    ) -> "LossCurvesDisplay":
        """Plot the losses of a fitted estimator.

        Parameters
        ----------
        estimator : fitted estimator, net, or list of records
            Trained with ``X_val`` and ``y_val`` to have a validation loss.
        name : str or None, default=None
            Label in the legend.
        ax : pair of matplotlib Axes or None, default=None
            Axes of the two losses; None creates new ones.
        **line_kw : dict
            Passed on to matplotlib's ``plot``.
        """
        records = records_of(estimator)
        train = column(records, "train_loss")
        if not len(train[0]):
            raise ValueError("Got records without train_loss, but expected those of a training.")
        return cls(train, column(records, "valid_loss"), name=name).plot(ax=ax, **line_kw)

    def _draw(self, ax: Any, label: str | None, line_kw: dict[str, Any]) -> None:
        how = line_style(ax[0], line_kw, len(self.train[0]), label=label)
        curves = ((self.train, "training loss"), (self.valid, "validation loss"))
        self.lines_ = []
        for own, (values, title) in zip(ax, curves, strict=True):
            self.lines_ += own.plot(*values, **how)
            tidy(own, x="epoch", y=title)
            if _starts_high(own):
                own.set_yscale("log")
            if label is not None:
                own.legend(frameon=False)


def _starts_high(ax: Any) -> bool:
    """Whether the first losses are so large that a linear axis would hide the last ones."""
    curves = [np.asarray(line.get_ydata()) for line in ax.get_lines() if len(line.get_ydata())]
    if not curves or min(curve.min() for curve in curves) <= 0:
        return False
    return max(curve.max() for curve in curves) > 30 * max(curve[-1] for curve in curves)


def plot_loss_curves(estimators: Any, *, ax: Any = None) -> dict[str, LossCurvesDisplay]:
    """Plot training and validation loss of several trainings.

    Parameters
    ----------
    estimators : dict of str to estimator, or estimator
        Fitted; with ``X_val`` and ``y_val`` to have a validation loss.
    ax : pair of matplotlib Axes or None, default=None
        Axes to draw on; None creates new ones.

    Returns
    -------
    displays : dict of str to LossCurvesDisplay
        All on the same axes.

    Examples
    --------
    >>> from mixupe_sklearn.diagnostics import plot_loss_curves
    >>> erm = [{"train_loss": 0.5, "valid_loss": 0.6}, {"train_loss": 0.1, "valid_loss": 0.5}]
    >>> mixup = [{"train_loss": 0.7, "valid_loss": 0.6}, {"train_loss": 0.5, "valid_loss": 0.4}]
    >>> list(plot_loss_curves({"ERM": erm, "Mixup": mixup}))
    ['ERM', 'Mixup']
    """
    return LossCurvesDisplay.of_all(estimators, ax=ax)
