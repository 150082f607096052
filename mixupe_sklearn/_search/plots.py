"""Figures of a search: the map of two parameters, the history, and what mattered."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState

from mixupe_sklearn._search.storage import quiet
from mixupe_sklearn._search.study import live_trials
from mixupe_sklearn._utils.parameter_rules import Choice, check_rules
from mixupe_sklearn._utils.plotting import FAINT, plain_label, tidy

KINDS = ("map", "history", "importances")
GOOD = "#0b5394"
PRUNED = {"marker": "x", "s": 18, "color": FAINT, "label": "pruned"}


def plot_search(search: Any, kind: str | Sequence[str] = KINDS, *, params: Any = None) -> Any:
    """Draw a search: where in the alpha x eta plane it is good, how it went, and what mattered.

    Parameters
    ----------
    search : MixupESearchCV or optuna.study.Study
        A fitted search, or its study.
    kind : {"map", "history", "importances"} or sequence, default=("map", "history", "importances")
        Which panels, from left to right.
    params : pair of str or None, default=None
        The parameters of the map's two axes. None means ``alpha`` and ``eta`` where both were
        searched over, else the first two that are numbers.

    Returns
    -------
    figure : matplotlib.figure.Figure
        To be shown or saved: ``figure.savefig("search.png")``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mixupe_sklearn import MixupEClassifier, MixupESearchCV, plot_search, preset
    >>> X, y = load_iris(return_X_y=True)
    >>> space = {"alpha": [0.1, 1.0], "eta": [0.001, 0.1]}
    >>> classifier = MixupEClassifier(**preset("paper") | {"batch_size": 20, "max_epochs": 5})
    >>> search = MixupESearchCV(classifier, space, cv=3, random_state=0).fit(X, y)
    >>> len(plot_search(search, kind=["map", "history"]).axes)  # with the bar of colours
    3
    """
    kinds = [kind] if isinstance(kind, str) else list(kind)
    for name in kinds:
        check_rules({"kind": name}, {"kind": Choice(KINDS)})
    study = getattr(search, "study_", search)
    if not isinstance(study, optuna.study.Study):
        raise ValueError(
            f"Got a {type(search).__name__}, but expected a fitted MixupESearchCV or a study of "
            f"Optuna's."
        )
    trials = [trial for trial in live_trials(study) if trial.value is not None]
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    if not complete:
        raise ValueError("Got a study without a complete trial, but expected at least one.")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "plot_search needs matplotlib: pip install mixupe-sklearn[search]."
        ) from error
    figure = Figure(figsize=(5.2 * len(kinds), 4.4), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True):
        if name == "map":
            _draw_map(axes, trials, params)
        elif name == "history":
            _draw_history(axes, trials)
        else:
            _draw_importances(axes, study, complete)
    return figure


def _short(name: str) -> str:
    return plain_label(name.split("__")[-1])


def _axes_of_map(trials: Sequence[FrozenTrial], params: Any) -> tuple[str, str]:
    known = trials[0].params
    numbers = {
        _short(name): name
        for name in known
        if all(isinstance(trial.params.get(name), (int, float)) for trial in trials)
    }
    if params is not None:
        for name in params:
            if name not in numbers.values():
                raise ValueError(
                    f"Got {name!r} among params, but expected two of "
                    f"{', '.join(map(repr, numbers.values()))}, which are numbers."
                )
        return tuple(params)
    if len(numbers) < 2:
        raise ValueError(
            f"Got a search over {', '.join(map(repr, known))}, but a map needs two parameters "
            f"that are numbers; leave 'map' out of kind."
        )
    first, second, *_ = ("alpha", "eta") if {"alpha", "eta"} <= set(numbers) else numbers
    return numbers[first], numbers[second]


def _draw_map(axes: Any, trials: Sequence[FrozenTrial], params: Any) -> None:
    x_name, y_name = _axes_of_map(trials, params)
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    x, y = (np.array([t.params[name] for t in complete], dtype=float) for name in (x_name, y_name))
    score = np.array([trial.value for trial in complete])
    is_grid = len(set(zip(x, y, strict=True))) == len(set(x)) * len(set(y)) > 1
    if is_grid:
        colours = _draw_cells(axes, x, y, score)
    else:
        colours = axes.scatter(x, y, c=score, s=46, cmap="viridis", edgecolor="white", zorder=3)
        pruned = [trial.params for trial in trials if trial.state == TrialState.PRUNED]
        axes.scatter([p[x_name] for p in pruned], [p[y_name] for p in pruned], **PRUNED)
        best = int(score.argmax())
        axes.scatter(x[best], y[best], s=190, facecolor="none", edgecolor="crimson", label="best")
        for axis, values in (("x", x), ("y", y)):
            if values.min() > 0 and values.max() / values.min() > 30:
                axes.set(**{f"{axis}scale": "log"})
        axes.legend(loc="best", fontsize=8, framealpha=0.8)
    axes.figure.colorbar(colours, ax=axes, label="mean validation score")
    axes.set(xlabel=_short(x_name), ylabel=_short(y_name))
    axes.set_title(f"{_short(x_name)} and {_short(y_name)}", loc="left")


def _draw_cells(axes: Any, x: np.ndarray, y: np.ndarray, score: np.ndarray) -> Any:
    """A grid as cells of equal size, each with its score; the mean where others vary, too."""
    columns, rows = np.unique(x), np.unique(y)
    cells = np.array([[score[(x == c) & (y == r)].mean() for c in columns] for r in rows])
    colours = axes.pcolormesh(cells, cmap="viridis", edgecolors="white", linewidth=0.6)
    row, column = np.unravel_index(cells.argmax(), cells.shape)
    span = np.ptp(cells) or 1.0
    for (i, j), value in np.ndenumerate(cells):
        is_dark = (value - cells.min()) / span < 0.6
        axes.text(
            j + 0.5,
            i + 0.5,
            f"{value:.3f}".removeprefix("0"),
            ha="center",
            va="center",
            fontsize=6 if cells.size > 60 else 8,
            color="white" if is_dark else "black",
        )
    corners = np.add([[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]], [column, row])
    axes.plot(*corners.T, color="crimson", linewidth=2)
    axes.set_xticks(np.arange(len(columns)) + 0.5, [f"{value:g}" for value in columns])
    axes.set_yticks(np.arange(len(rows)) + 0.5, [f"{value:g}" for value in rows])
    return colours


def _draw_history(axes: Any, trials: Sequence[FrozenTrial]) -> None:
    numbers = np.array([trial.number for trial in trials])
    values = np.array([trial.value for trial in trials])
    is_complete = np.array([trial.state == TrialState.COMPLETE for trial in trials])
    axes.scatter(numbers[is_complete], values[is_complete], s=22, color=GOOD, label="complete")
    if not is_complete.all():
        axes.scatter(numbers[~is_complete], values[~is_complete], **PRUNED)
    best = np.fmax.accumulate(np.where(is_complete, values, np.nan))
    axes.step(numbers, best, where="post", color="crimson", label="best so far")
    axes.set_title("History", loc="left")
    axes.legend(loc="best", fontsize=8, framealpha=0.8)
    tidy(axes, x="trial", y="mean validation score")


def _draw_importances(axes: Any, study: Any, complete: Sequence[FrozenTrial]) -> None:
    axes.set_title("What mattered", loc="left")
    values = {trial.value for trial in complete}
    if len(complete) < 4 or len(values) < 2:
        axes.text(0.5, 0.5, "too few different trials to say", ha="center", va="center")
        axes.set_axis_off()
        return
    with quiet():
        evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
        found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    names = sorted(found, key=lambda name: found[name])
    bars = axes.barh([_short(name) for name in names], [found[n] for n in names], color=GOOD)
    axes.bar_label(bars, fmt="%.2f", padding=3, fontsize=8)
    axes.set_xlim(0, 1.12)
    tidy(axes, x="share of the variance of the score (fANOVA)", y="")
