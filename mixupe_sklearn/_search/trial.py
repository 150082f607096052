"""The parts of a trial: the task, the reporter to the pruner, and the result."""

import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np
from optuna.exceptions import UpdateFinishedTrialError
from optuna.pruners import NopPruner, WilcoxonPruner
from optuna.trial import TrialState
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.validation import _check_method_params

from mixupe_sklearn._estimators.base import BaseMixupE
from mixupe_sklearn._search.search_tasks import FitTasks
from mixupe_sklearn._search.space import Space
from mixupe_sklearn._search.storage import TRANSIENT_ERRORS
from mixupe_sklearn._training.config import n_epochs_for

# What fails a trial, and no more: a step that calls sys.exit ends its trial only.
FAILURES = (Exception, SystemExit)


def final_estimator(estimator: Any) -> tuple[str, Any]:
    """The prefix of the parameters of the estimator at the end of a pipeline, and the estimator."""
    prefix = ""
    while isinstance(estimator, Pipeline):
        name, estimator = estimator.steps[-1]
        prefix += f"{name}__"
    return prefix, estimator


@dataclass(frozen=True)
class Task:
    """The data, folds, scorer and seeds that every trial is evaluated with."""

    estimator: Any
    X: Any
    y: Any
    folds: list[tuple[np.ndarray, np.ndarray]]
    scorer: Callable[..., Any]
    is_own_scorer: bool  # a user's function, which may use the whole pipeline
    metric: str
    fit_params: Mapping[str, Any]
    score_params: Mapping[str, Any]
    seeds: Sequence[int | None]
    error_score: Any
    return_train_score: bool = False
    fit_tasks: FitTasks | None = None  # of scikit-learn's callbacks, if there are any

    @property
    def n_fits(self) -> int:
        """Fits of one trial."""
        return len(self.folds) * len(self.seeds)

    def longest_fit(self, space: Space) -> int | None:
        """Upper bound of the epochs of a fit; None where no epochs are reported."""
        prefix, core = final_estimator(self.estimator)
        if not isinstance(core, BaseMixupE):
            return None

        def largest(name: str, low: float) -> Any:
            """The largest value of a parameter; the fit itself raises for invalid ones."""
            values = space.values_of(prefix + name) or [getattr(core, name)]
            return max((v for v in values if isinstance(v, Real) and float(v) >= low), default=low)

        n_rows = min(len(train) for train, _ in self.folds)
        if largest("early_stopping", False):
            # One network holds out this fraction. An ensemble deals its samples into whole parts.
            fraction = largest("validation_fraction", 0.0)
            n_parts = max(2, round(1 / fraction)) if fraction else n_rows
            n_rows = max(1, n_rows - max(round(fraction * n_rows), n_rows // n_parts))
        lengths = (largest("max_epochs", 1), largest("min_steps", 0))
        return n_epochs_for(*lengths, n_rows, largest("batch_size", 1))

    def reported(self, number: int, fold: int, repeat: int, *data: Any) -> Any:
        """Report a fit of a trial to callbacks while a block runs."""
        if self.fit_tasks is None:
            return nullcontext()
        place = (number * len(self.folds) + fold) * len(self.seeds) + repeat
        return self.fit_tasks.fit(place, *data)

    def model(self, params: Mapping[str, Any], seed: int | None) -> Any:
        """A new estimator with a trial's parameters and a seed (None keeps its own)."""
        model = clone(self.estimator).set_params(**clone(dict(params), safe=False))
        prefix, core = final_estimator(model)
        if seed is not None and "random_state" in core.get_params():
            model.set_params(**{f"{prefix}random_state": seed})
        return model

    def rows(self, part: np.ndarray, train: np.ndarray | None = None) -> tuple[Any, Any]:
        """Samples of one part of a fold; a precomputed kernel also needs the training samples."""
        return _safe_split(self.estimator, self.X, self.y, part, train)

    def params_of(self, params: Mapping[str, Any], part: np.ndarray) -> dict[str, Any]:
        """Arguments of fit or score for these samples: weights and the like are indexed alike."""
        return _check_method_params(self.X, params=params, indices=part)

    def score(self, model: Any, X: Any, y: Any, params: Mapping[str, Any]) -> dict[str, float]:
        """Each metric by name; a single one is called "score"."""
        arguments = (X,) if y is None else (X, y)
        scores = self.scorer(model, *arguments, **params)
        scores = scores if isinstance(scores, dict) else {"score": scores}
        for name, value in scores.items():
            if isinstance(value, str):  # how scikit-learn passes on the error of a scorer
                raise ValueError(f"The scorer {name!r} failed: {value.strip().splitlines()[-1]}")
        return {name: float(value) for name, value in scores.items()}

    def score_train(self, model: Any, X: Any, y: Any, train: np.ndarray) -> dict[str, float]:
        """Each metric on the training samples, if they are wanted."""
        if not self.return_train_score:
            return {}
        return self.score(model, X, y, self.params_of(self.score_params, train))

    def value_of(self, scores: Mapping[str, float]) -> float:
        """The score that the search maximises; the first if none is named."""
        return scores[self.metric] if self.metric in scores else next(iter(scores.values()))


class PruningReporter:
    """Reports the scores of a trial to Optuna, and asks whether to prune the trial.

    The Wilcoxon pruner compares fits of the same fold and seed. Every other pruner sees the
    validation score of each epoch: epochs of a later fit count as later steps, and the value of a
    step is the mean over the finished fits and the running one.
    """

    def __init__(self, trial: Any, pruner: Any, *, n_epochs: int | None, n_fits: int):
        self.trial = trial
        self.n_epochs = n_epochs or 0
        self.n_fits = n_fits
        self.last_step = self.n_epochs * n_fits
        self.is_by_fit = isinstance(pruner, WilcoxonPruner)
        self.is_by_epoch = not (n_epochs is None or self.is_by_fit or isinstance(pruner, NopPruner))

    def part_of(self, epoch: int) -> float:
        """The part of a fit that so many epochs are."""
        return min(1.0, epoch / self.n_epochs) if self.n_epochs else 0.0

    def after_epoch(self, finished: Sequence[float], epoch: int, scores: Sequence[float]) -> bool:
        """Whether to prune, by the scores of finished fits and of the running ones."""
        if epoch > self.n_epochs:  # weights of zero leave fewer samples, and allow more epochs
            return False
        step = len(finished) * self.n_epochs + epoch
        value = float(np.mean([*finished, *scores]))
        is_done = step + (len(scores) - 1) * self.n_epochs >= self.last_step
        return self._should_prune(step, value) and not is_done

    def after_fit(self, finished: Sequence[float]) -> bool:
        """Whether to prune, by the scores of all finished fits."""
        return self.is_by_fit and self._should_prune(len(finished) - 1, finished[-1])

    def _should_prune(self, step: int, value: float) -> bool:
        if not np.isfinite(value):
            return False  # the final score decides
        try:
            self.trial.report(value, step)
            return self.trial.should_prune()
        except UpdateFinishedTrialError:
            return True  # this worker was declared dead, and another runs the trial
        except TRANSIENT_ERRORS:
            return False  # a missing report does no harm


def text_of(error: BaseException) -> str:
    """The traceback of an error."""
    return "".join(traceback.format_exception(error))


@dataclass
class TrialResult:
    """Scores, times and state of a trial so far."""

    number: int
    params: dict[str, Any]
    metric: str
    reporter: PruningReporter
    fill: float = np.nan
    state: TrialState = TrialState.RUNNING
    scores: dict[str, list[float]] = field(default_factory=dict)
    train_scores: dict[str, list[float]] = field(default_factory=dict)
    fit_time: list[float] = field(default_factory=list)
    score_time: list[float] = field(default_factory=list)
    n_epochs: int = 0
    fit_errors: list[str] = field(default_factory=list)  # of fits that got the error_score
    error: str | None = None
    on_progress: Callable[[int, float], None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the trial still runs."""
        return self.state == TrialState.RUNNING

    @property
    def is_watched(self) -> bool:
        """Whether the end of each epoch is of interest."""
        return self.reporter.is_by_epoch or self.on_progress is not None

    @property
    def values(self) -> list[float]:
        """The searched metric of the finished fits; the first metric if none is named."""
        if not self.scores:  # the scorer has not yet named its metrics
            return [self.fill] * len(self.fit_time)
        first = next(iter(self.scores))
        return self.scores.get(self.metric if self.metric in self.scores else first, [])

    def prune_if(self, is_hopeless: bool) -> None:
        """Prune the trial on this condition."""
        if is_hopeless and self.is_open:
            self.state = TrialState.PRUNED

    def add(
        self,
        scores: Mapping[str, float],
        fit_time: float,
        score_time: float,
        train_scores: Mapping[str, float] | None = None,
    ) -> None:
        """Add one fit; a failed fit has no scores and gets the fill value for all metrics."""
        for kept, added in ((self.scores, scores), (self.train_scores, train_scores or {})):
            for name in {**kept, **added}:
                known = kept.setdefault(name, [self.fill] * len(self.fit_time))
                known.append(added.get(name, self.fill))
        self.fit_time.append(fit_time)
        self.score_time.append(score_time)
        self.note_progress(0.0)

    def note_progress(self, part: float) -> None:
        """Report how much of the trial is done: its finished fits, and a part of the next ones."""
        if self.on_progress is not None:
            n_done = len(self.fit_time) + part
            self.on_progress(self.number, min(1.0, n_done / self.reporter.n_fits))

    def fail(self, error: BaseException) -> None:
        """Fail the trial with an error."""
        self.state = TrialState.FAIL
        self.error = text_of(error)

    def close(self) -> float | None:
        """The trial's value, after the last fit."""
        if self.is_open:
            self.state = TrialState.COMPLETE
        if self.state != TrialState.COMPLETE:
            return None
        value = float(np.mean(self.values))
        if not np.isfinite(value):
            self.state, self.error = TrialState.FAIL, f"The mean score is {value}."
            return None
        return value
