"""Fit and score the configurations of trials on every fold, for every seed.

Trials whose networks can train as one (see ``_many``) run side by side, fold by fold; all others
fit by fit. Both note what they learn in the trial's record, and stop when its judge says so.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.pipeline import Pipeline

from mixupe_sklearn._estimators.base import BaseMixupE
from mixupe_sklearn._estimators.fit_many import fit_many, why_not_many
from mixupe_sklearn._search.trial import Record, Task, core_of

# Up to so many entries (256 MB) sparse training rows are made dense, so that networks train as one.
DENSE_ENTRIES = 2**25


def run_alone(task: Task, record: Record) -> None:
    """Evaluate one trial, fit by fit."""
    for fold in task.folds:
        _run_fold_alone(task, record, *fold)


def _run_fold_alone(task: Task, record: Record, train: Any, test: Any) -> None:
    for seed in task.seeds:
        if not record.is_open:
            return
        try:
            _fit_and_score(task, record, seed, train, test)
        except Exception as error:
            note_failure(task, record, error)
        if record.is_open and record.values:
            record.prune_if(record.judge.after_fit(record.values))


def note_failure(task: Task, record: Record, error: Exception) -> None:
    """Give a fit that failed the score that the user has set for it, or end the trial."""
    if isinstance(task.error_score, str):
        record.fail(error)
        raise error
    if np.isnan(task.error_score):
        record.fail(error)
        return
    # What a function of the user's returns is known when it has returned once.
    names = [] if task.is_own_scorer else getattr(task.scorer, "_scorers", ["score"])
    record.add(dict.fromkeys(names, record.fill), np.nan, np.nan)


def _fit_and_score(task: Task, record: Record, seed: int | None, train: Any, test: Any) -> None:
    model = task.model(record.params, seed)
    core = core_of(model)[1]
    X_train, y_train = task.rows(train)
    X_test, y_test = task.rows(test, train)
    score_params = task.params_of(task.score_params, test)
    watch = EpochWatch(task, record, model, (X_test, y_test, score_params))
    if isinstance(core, BaseMixupE):
        core._keeps_interrupted = False
        core._epoch_hook = watch if record.judge.is_by_epoch else None
    start = time.perf_counter()
    try:
        arguments = (X_train,) if y_train is None else (X_train, y_train)
        model.fit(*arguments, **task.params_of(task.fit_params, train))
    finally:
        vars(core).pop("_epoch_hook", None)
        vars(core).pop("_keeps_interrupted", None)
        record.n_epochs += int(getattr(core, "n_iter_", 0)) if isinstance(core, BaseMixupE) else 0
    middle = time.perf_counter()
    if record.is_open:
        scores = task.score(model, X_test, y_test, score_params)
        record.add(scores, middle - start, time.perf_counter() - middle)


class EpochWatch:
    """Scores a network on the validation rows after each epoch of a fit, for the judge.

    The steps before it in a pipeline are fitted by the time the first epoch ends; the validation
    rows pass through them once (in each epoch for a scorer of the user's, which gets it all).
    """

    def __init__(self, task: Task, record: Record, model: Any, validation: tuple[Any, Any, dict]):
        self.task = task
        self.record = record
        self.model = model
        self.X, self.y, self.score_params = validation
        self.epoch = 0

    def __call__(self, core: Any) -> bool:
        """Tell the judge of an epoch; return whether training is to stop."""
        scored = core
        if self.task.is_own_scorer:
            scored = self.model
        elif self.epoch == 0:
            self.X = through_front(self.model, self.X)
        self.epoch += 1
        scores = self.task.score(scored, self.X, self.y, self.score_params)
        score = self.task.value_of(scores)
        finished = self.record.values
        self.record.prune_if(self.record.judge.after_epoch(finished, self.epoch, [score]))
        return not self.record.is_open


def through_front(model: Any, X: Any) -> Any:
    """Rows as the last step of a fitted pipeline sees them."""
    while isinstance(model, Pipeline):
        X = _transform(model.steps[:-1], X)
        model = model.steps[-1][1]
    return X


def _transform(steps: Sequence[tuple[str, Any]], X: Any) -> Any:
    # One by one: a part of a pipeline would refuse where its last step learns nothing in fit.
    for _, step in steps:
        X = X if step in (None, "passthrough") else step.transform(X)
    return X


@dataclass
class _Fold:
    """A fold whose rows have passed the pipeline's first steps, fitted on its training part."""

    steps: list[tuple[str, Any]]
    X_train: Any
    y_train: Any
    weight: Any
    X_test: Any
    X_test_through: Any
    y_test: Any
    score_params: dict[str, Any]


def why_not_together(task: Task, names: Sequence[str]) -> str | None:
    """Why trials over these parameters cannot share their training, or None if they might."""
    prefix, core = core_of(task.estimator)
    if not isinstance(core, BaseMixupE):
        return f"{type(core).__name__} is no estimator of ours"
    if prefix.count("__") > 1:
        return "the pipeline holds another pipeline"
    outside = [name for name in names if not name.startswith(prefix)]
    if outside:
        return f"the space holds {outside[0]!r}, which is no parameter of the network"
    others = set(task.fit_params) - {f"{prefix}sample_weight"}
    if others:
        return f"fit is given {sorted(others)[0]!r}"
    return why_not_many([core], None)


def run_together(task: Task, records: Sequence[Record]) -> str | None:
    """Evaluate trials side by side; return the reason if their networks cannot train as one."""
    for number, (train, test) in enumerate(task.folds):
        running = [record for record in records if record.is_open]
        if not running:
            break
        try:
            fold = _open_fold(task, train, test)
        except Exception as error:
            for record in running:
                _fail_fold(task, record, error)
            continue
        models = [[task.model(record.params, seed) for seed in task.seeds] for record in running]
        cores = [core_of(model)[1] for own in models for model in own]
        reason = why_not_many(cores, fold.X_train)
        if reason is None:
            _train_fold(task, fold, running, models)
        elif number == 0:
            return reason
        else:  # of this fold only, such as more zeros than in the first
            for record in running:
                _run_fold_alone(task, record, train, test)
    return None


def _fail_fold(task: Task, record: Record, error: Exception) -> None:
    for _ in task.seeds:
        if record.is_open:
            note_failure(task, record, error)


def _open_fold(task: Task, train: Any, test: Any) -> _Fold:
    X_train, y_train = task.rows(train)
    X_test, y_test = task.rows(test, train)
    steps, X_through = [], X_test
    model = task.model({}, None)
    if isinstance(model, Pipeline) and len(model.steps) > 1:
        front = model[:-1]
        X_train = front.fit_transform(X_train, y_train)
        steps, X_through = front.steps, _transform(front.steps, X_test)
    if sparse.issparse(X_train) and math.prod(X_train.shape) <= DENSE_ENTRIES:
        X_train = X_train.toarray()
    weight = next(iter(task.params_of(task.fit_params, train).values()), None)
    score_params = task.params_of(task.score_params, test)
    return _Fold(steps, X_train, y_train, weight, X_test, X_through, y_test, score_params)


def _train_fold(task: Task, fold: _Fold, records: list[Record], models: list[list[Any]]) -> None:
    """Train all seeds of all trials on one fold, then score them one by one."""
    for own in models:
        for model in own:
            if isinstance(model, Pipeline):
                model.steps = [*fold.steps, model.steps[-1]]
    watch = _FoldWatch(task, fold, records, models)
    start = time.perf_counter()
    results = fit_many(
        [core for own in watch.cores for core in own],
        fold.X_train,
        fold.y_train,
        fold.weight,
        on_epoch=watch if any(record.judge.is_by_epoch for record in records) else None,
        on_error="return",
    )
    seconds = (time.perf_counter() - start) / len(results)
    fitted = iter(results)
    for record, own in zip(records, models, strict=True):
        for model in own:
            result = next(fitted)
            result = watch.errors.get(id(record), result)
            _score_member(task, fold, record, model, result, seconds)


class _FoldWatch:
    """Scores the networks of several trials after each epoch of one fold, for their judges."""

    def __init__(self, task: Task, fold: _Fold, records: list[Record], models: list[list[Any]]):
        self.task = task
        self.fold = fold
        self.records = records
        self.cores = [[core_of(model)[1] for model in own] for own in models]
        self.model_of = {id(core_of(model)[1]): model for own in models for model in own}
        self.last: dict[int, float] = {}  # the last score of each network
        self.errors: dict[int, Exception] = {}  # what went wrong in scoring a trial's networks

    def __call__(self, epoch: int, members: Sequence[Any]) -> list[Any]:
        """Tell the judges of an epoch; return the networks of trials that end here."""
        inside = {id(core) for core in members}
        stopped = []
        for record, cores in zip(self.records, self.cores, strict=True):
            own = [core for core in cores if id(core) in inside]
            if own and record.is_open and id(record) not in self.errors:
                try:
                    self._judge(record, epoch, own, cores)
                except Exception as error:
                    self.errors[id(record)] = error
            if not record.is_open or id(record) in self.errors:
                stopped += own
        return stopped

    def _judge(self, record: Record, epoch: int, own: list[Any], cores: list[Any]) -> None:
        # Seeds of one trial may train in several batches, one after the other.
        earlier = [self.last[id(c)] for c in cores if id(c) in self.last and c not in own]
        scores = [self._score(core) for core in own]
        self.last.update(zip(map(id, own), scores, strict=True))
        finished = [*record.values, *earlier]
        record.prune_if(record.judge.after_epoch(finished, epoch, scores))

    def _score(self, core: Any) -> float:
        scored, X = core, self.fold.X_test_through
        if self.task.is_own_scorer:
            scored, X = self.model_of[id(core)], self.fold.X_test
        scores = self.task.score(scored, X, self.fold.y_test, self.fold.score_params)
        return self.task.value_of(scores)


def _score_member(
    task: Task, fold: _Fold, record: Record, model: Any, result: Any, seconds: float
) -> None:
    """Note the score of one network, as the last step of its whole pipeline."""
    core = core_of(model)[1]
    record.n_epochs += int(getattr(core, "n_iter_", 0))
    if not record.is_open:
        return
    start = time.perf_counter()
    try:
        if isinstance(result, Exception):
            raise result
        scores = task.score(model, fold.X_test, fold.y_test, fold.score_params)
        record.add(scores, seconds, time.perf_counter() - start)
    except Exception as error:
        note_failure(task, record, error)
    if record.is_open and record.values:
        record.prune_if(record.judge.after_fit(record.values))
