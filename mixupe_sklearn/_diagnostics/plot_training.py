"""Figures of a training: its losses, and what a ``DerivativeMonitor`` recorded."""

from typing import Any

import numpy as np

from mixupe_sklearn._diagnostics.display import Display
from mixupe_sklearn._diagnostics.fitted import column, monitored, records_of
from mixupe_sklearn._utils.plotting import COLOURS, FAINT, line_style, tidy


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

    _n_axes = 2

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
        records = records_of(estimator, member=None)
        train = column(records, "train_loss")
        if not len(train[0]):
            raise ValueError("Got records without train_loss, but expected those of a training.")
        return cls(train, column(records, "valid_loss"), name=name).plot(ax=ax, **line_kw)

    plot = Display.plot  # also here, so that the API page of the class lists it

    def _draw(self, ax: Any, label: str | None, line_kw: dict[str, Any]) -> None:
        how = line_style(ax[0], line_kw, len(self.train[0]), label=label)
        curves = ((self.train, "training loss"), (self.valid, "validation loss"))
        self.lines_ = []
        for own, (values, title) in zip(ax, curves, strict=True):
            self.lines_ += own.plot(*values, **how)
            tidy(own, x="epoch", y=title)
            if label is not None:
                own.legend(frameon=False)


class AlphaMinDisplay(Display):
    """The minimum of the coefficient alpha by epoch (the paper's Figure 2).

    Below zero, Mixup alone enlarges a directional derivative of some sample and output.

    Parameters
    ----------
    epochs, alpha_min : ndarray
        Evaluated epochs and the values.
    name : str or None, default=None
        Label in the legend.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the plot.
    figure_ : matplotlib Figure
        Figure of the axes.
    line_ : matplotlib line
        The curve.

    Examples
    --------
    >>> from mixupe_sklearn.diagnostics import AlphaMinDisplay
    >>> display = AlphaMinDisplay([1, 2, 3], [-0.4, -0.2, -0.1], name="Mixup").plot()
    >>> display.ax_.get_ylabel()
    'minimum alpha'
    """

    def __init__(self, epochs: Any, alpha_min: Any, *, name: str | None = None):
        self.epochs = epochs
        self.alpha_min = alpha_min
        self.name = name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        member: int = 0,
        name: str | None = None,
        ax: Any = None,
        **line_kw: Any,
    ) -> "AlphaMinDisplay":
        """Plot what a ``DerivativeMonitor`` recorded.

        Parameters
        ----------
        estimator : fitted estimator, net, or list of records
            Trained with ``callbacks=[DerivativeMonitor()]``.
        member : int, default=0
            Index of the network of an estimator with several.
        name : str or None, default=None
            Label in the legend.
        ax : matplotlib Axes or None, default=None
            Axes to draw on; None creates new ones.
        **line_kw : dict
            Passed on to matplotlib's ``plot``.
        """
        epochs, values = monitored(records_of(estimator, member), "alpha_min")
        return cls(epochs, values, name=name).plot(ax=ax, **line_kw)

    plot = Display.plot  # also here, so that the API page of the class lists it

    def _draw(self, ax: Any, label: str | None, line_kw: dict[str, Any]) -> None:
        how = line_style(ax, line_kw, len(self.epochs), label=label)
        (self.line_,) = ax.plot(self.epochs, self.alpha_min, **how)
        ax.axhline(0.0, color=FAINT, linewidth=1.0, zorder=0)
        tidy(ax, x="epoch", y="minimum alpha")
        if label is not None:
            ax.legend(frameon=False)


class PenaltyDisplay(Display):
    """Size of the penalty and its share of the loss, by epoch.

    Parameters
    ----------
    epochs, q_abs, q_hat_abs : ndarray
        Evaluated epochs, and the means of ``|q|`` and ``|q_hat|``.
    share_epochs, penalty_share : ndarray
        Epochs, and the share of the penalty in the loss.

    Attributes
    ----------
    ax_ : ndarray of matplotlib Axes
        Axes of the sizes and of the shares.
    figure_ : matplotlib Figure
        Figure of the axes.
    lines_ : list of matplotlib lines
        ``|q|``, ``|q_hat|`` and the share.

    Examples
    --------
    >>> from mixupe_sklearn.diagnostics import PenaltyDisplay
    >>> display = PenaltyDisplay([1, 2], [0.5, 0.2], [0.4, 0.3], [1, 2], [0.1, 0.2]).plot()
    >>> [line.get_label() for line in display.lines_[:2]]
    ['mean |q|', 'mean |q_hat|']
    """

    _n_axes = 2

    def __init__(
        self, epochs: Any, q_abs: Any, q_hat_abs: Any, share_epochs: Any, penalty_share: Any
    ):
        self.epochs = epochs
        self.q_abs = q_abs
        self.q_hat_abs = q_hat_abs
        self.share_epochs = share_epochs
        self.penalty_share = penalty_share

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, member: int = 0, ax: Any = None, **line_kw: Any
    ) -> "PenaltyDisplay":
        """Plot what a ``DerivativeMonitor`` recorded.

        Parameters
        ----------
        estimator : fitted estimator, net, or list of records
            Trained with ``callbacks=[DerivativeMonitor()]``.
        member : int, default=0
            Index of the network of an estimator with several.
        ax : pair of matplotlib Axes or None, default=None
            Axes of the two panels; None creates new ones.
        **line_kw : dict
            Passed on to matplotlib's ``plot``.
        """
        records = records_of(estimator, member)
        epochs, q_abs = monitored(records, "q_abs")
        _, q_hat_abs = monitored(records, "q_hat_abs")
        share = monitored(records, "penalty_share")
        return cls(epochs, q_abs, q_hat_abs, *share).plot(ax, **line_kw)

    plot = Display.plot  # also here, so that the API page of the class lists it

    def _draw(self, ax: Any, label: str | None, line_kw: dict[str, Any]) -> None:
        left, right = ax
        start = "" if label is None else f"{label}: "
        share = 100 * np.asarray(self.penalty_share)
        dashed = {"label": f"{start}mean |q_hat|", "linestyle": "--"}
        curves = [
            (left, self.epochs, self.q_abs, {"label": f"{start}mean |q|"}),
            (left, self.epochs, self.q_hat_abs, dashed),
            (right, self.share_epochs, share, {}),
        ]
        self.lines_ = []
        for (own, epochs, values, named), colour in zip(curves, COLOURS, strict=False):
            how = line_style(own, line_kw, len(epochs), color=colour, **named)
            self.lines_ += own.plot(epochs, values, **how)
        left.set_ylim(bottom=0)
        right.set_ylim(bottom=0)
        left.legend(frameon=False)
        tidy(left, x="epoch", y="first directional derivative")
        tidy(right, x="epoch", y="penalty in the loss (%)")


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
    return LossCurvesDisplay._of_all(estimators, ax=ax)


def plot_alpha_min(estimators: Any, *, ax: Any = None) -> dict[str, AlphaMinDisplay]:
    """Plot the minimum of the coefficient alpha of several trainings.

    Parameters
    ----------
    estimators : dict of str to estimator, or estimator
        Fitted with ``callbacks=[DerivativeMonitor()]``.
    ax : matplotlib Axes or None, default=None
        Axes to draw on; None creates new ones.

    Returns
    -------
    displays : dict of str to AlphaMinDisplay
        All on the same axes.

    Examples
    --------
    >>> from mixupe_sklearn.diagnostics import plot_alpha_min
    >>> displays = plot_alpha_min({"Mixup": [{"alpha_min": -0.3}, {"alpha_min": -0.1}]})
    >>> displays["Mixup"].alpha_min
    array([-0.3, -0.1])
    """
    return AlphaMinDisplay._of_all(estimators, ax=ax)


def plot_penalty(estimator: Any, *, member: int = 0, ax: Any = None) -> PenaltyDisplay:
    """Plot the size of the penalty and its share of the loss.

    Parameters
    ----------
    estimator : fitted estimator, net, or list of records
        Trained with ``callbacks=[DerivativeMonitor()]``.
    member : int, default=0
        Index of the network of an estimator with several.
    ax : pair of matplotlib Axes or None, default=None
        Axes to draw on; None creates new ones.

    Returns
    -------
    display : PenaltyDisplay
        The display.

    Examples
    --------
    >>> from mixupe_sklearn.diagnostics import plot_penalty
    >>> row = {"q_abs": 0.3, "q_hat_abs": 0.2, "penalty_share": 0.05}
    >>> plot_penalty([row, row]).penalty_share
    array([0.05, 0.05])
    """
    return PenaltyDisplay.from_estimator(estimator, member=member, ax=ax)
