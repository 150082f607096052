"""Fit and score the configurations of trials on every fold, for every seed.

Trials whose networks can train as one batched model (``fit_many``) run side by side, fold by fold.
All others run fit by fit. Both write to the result of the trial, and stop when it is pruned.
"""

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.pipeline import Pipeline

from mixupe_sklearn._estimators.base import BaseMixupE
from mixupe_sklearn._estimators.fit_many import fit_many, why_not_many
from mixupe_sklearn._search.trial import (
    FAILURES,
    Task,
    TrialResult,
    final_estimator,
    text_of,
)

# Sparse training samples with at most this many entries (256 MB) are made dense for batching.
DENSE_ENTRIES = 2**25


def evaluate_sequential(task: Task, record: TrialResult) -> None:
    """Evaluate one trial, fit by fit."""
    for number in range(len(task.folds)):
        _evaluate_fold(task, record, number)


def _evaluate_fold(task: Task, record: TrialResult, number: int) -> None:
    for repeat in range(len(task.seeds)):
        if not record.is_open:
            return
        try:
            _fit_and_score(task, record, number, repeat)
        except FAILURES as error:
            record_failure(task, record, error)
        if record.is_open and record.values:
            record.prune_if(record.reporter.after_fit(record.values))


def record_failure(task: Task, record: TrialResult, error: BaseException) -> None:
    """Give a failed fit the ``error_score``, or fail the trial."""
    if isinstance(task.error_score, str):
        record.fail(error)
        raise error
    if np.isnan(task.error_score):
        record.fail(error)
        return
    record.fit_errors.append(text_of(error))
    # The metrics of a user's function are known only after its first return.
    names = [] if task.is_own_scorer else getattr(task.scorer, "_scorers", ["score"])
    record.add(dict.fromkeys(names, record.fill), np.nan, np.nan)


def _fit_and_score(task: Task, record: TrialResult, number: int, repeat: int) -> None:
    train, test = task.folds[number]
    model = task.model(record.params, task.seeds[repeat])
    core = final_estimator(model)[1]
    X_train, y_train = task.rows(train)
    X_test, y_test = task.rows(test, train)
    score_params = task.params_of(task.score_params, test)
    epoch, X_through = 0, X_test

    def on_epoch(core: Any) -> bool:
        """Score the network on the validation samples, report it, and return whether it stops."""
        nonlocal epoch, X_through
        epoch += 1
        record.note_progress(record.reporter.part_of(epoch))
        if not record.reporter.is_by_epoch:
            return False
        if epoch == 1 and not task.is_own_scorer:  # the earlier steps are fitted by now
            X_through = transform_by_pipeline(model, X_test)
        # A user's own scorer gets the whole pipeline.
        scored = model if task.is_own_scorer else core
        score = task.value_of(task.score(scored, X_through, y_test, score_params))
        record.prune_if(record.reporter.after_epoch(record.values, epoch, [score]))
        return not record.is_open

    if isinstance(core, BaseMixupE):
        core._keeps_interrupted = False
        core._epoch_hook = on_epoch if record.is_watched else None
    fit_params = task.params_of(task.fit_params, train)
    start = time.perf_counter()
    with task.reported(record.number, number, repeat, model, X_train, y_train, fit_params):
        try:
            arguments = (X_train,) if y_train is None else (X_train, y_train)
            model.fit(*arguments, **fit_params)
        finally:
            vars(core).pop("_epoch_hook", None)
            vars(core).pop("_keeps_interrupted", None)
            if isinstance(core, BaseMixupE):
                record.n_epochs += int(getattr(core, "n_iter_", 0))
        middle = time.perf_counter()
        if record.is_open:
            scores = task.score(model, X_test, y_test, score_params)
            score_time = time.perf_counter() - middle
            train_scores = task.score_train(model, X_train, y_train, train)
            record.add(scores, middle - start, score_time, train_scores)


def transform_by_pipeline(model: Any, X: Any) -> Any:
    """Samples as the last step of a fitted pipeline receives them."""
    while isinstance(model, Pipeline):
        # Step by step: a sliced pipeline raises if its last step has no fitted attributes.
        for _, step in model.steps[:-1]:
            X = X if step in (None, "passthrough") else step.transform(X)
        model = model.steps[-1][1]
    return X


@dataclass
class _Fold:
    """A fold, transformed by the pipeline's first steps, which were fitted on its training part."""

    steps: list[tuple[str, Any]]
    number: int
    X_raw: Any
    X_train: Any
    y_train: Any
    fit_params: dict[str, Any]
    X_test: Any
    X_test_through: Any
    y_test: Any
    score_params: dict[str, Any]


def why_not_batched(task: Task, names: Sequence[str]) -> str | None:
    """Why trials over these parameters cannot be batched, or None if they may be."""
    prefix, core = final_estimator(task.estimator)
    if not isinstance(core, BaseMixupE):
        return f"{type(core).__name__} is not an estimator of this package"
    if prefix.count("__") > 1:
        return "the pipeline holds another pipeline"
    outside = [name for name in names if not name.startswith(prefix)]
    if outside:
        return f"the space holds {outside[0]!r}, which is not a parameter of the network"
    others = set(task.fit_params) - {f"{prefix}sample_weight"}
    if others:
        return f"fit is given {sorted(others)[0]!r}"
    if task.fit_tasks is not None and task.fit_tasks.are_passed_on:
        return "a callback of the search is called within each fit"
    return why_not_many([core], None)


def evaluate_batched(task: Task, records: Sequence[TrialResult]) -> str | None:
    """Evaluate trials side by side; return the reason if their networks cannot be batched."""
    for number in range(len(task.folds)):
        running = [record for record in records if record.is_open]
        if not running:
            break
        try:
            fold = _open_fold(task, number)
        except FAILURES as error:
            for record in running:
                for _ in task.seeds:
                    if record.is_open:
                        record_failure(task, record, error)
            continue
        models = [[task.model(record.params, seed) for seed in task.seeds] for record in running]
        cores = [final_estimator(model)[1] for own in models for model in own]
        reason = why_not_many(cores, fold.X_train)
        if reason is None:
            _train_fold(task, fold, running, models)
        elif number == 0:
            return reason
        else:  # only this fold, for example with more zeros than the first
            for record in running:
                _evaluate_fold(task, record, number)
    return None


def _open_fold(task: Task, number: int) -> _Fold:
    train, test = task.folds[number]
    X_train, y_train = task.rows(train)
    X_raw = X_train
    X_test, y_test = task.rows(test, train)
    steps = []
    model = task.model({}, None)
    if isinstance(model, Pipeline) and len(model.steps) > 1:
        front = model[:-1]
        X_train = front.fit_transform(X_train, y_train)
        steps = front.steps
        model.steps = [*steps, model.steps[-1]]
    X_through = transform_by_pipeline(model, X_test)
    if sparse.issparse(X_train) and math.prod(X_train.shape) <= DENSE_ENTRIES:
        X_train = X_train.toarray()
    fit_params = task.params_of(task.fit_params, train)
    score_params = task.params_of(task.score_params, test)
    return _Fold(
        steps, number, X_raw, X_train, y_train, fit_params, X_test, X_through, y_test, score_params
    )


def _train_fold(
    task: Task, fold: _Fold, records: list[TrialResult], models: list[list[Any]]
) -> None:
    """Train all seeds of all trials on one fold, then score them one by one."""
    for own in models:
        for model in own:
            if isinstance(model, Pipeline):
                model.steps = [*fold.steps, model.steps[-1]]
    reporter = _FoldReporter(task, fold, records, models)
    with ExitStack() as stack:
        for record in records:
            for repeat in range(len(task.seeds)):
                data = (None, fold.X_raw, fold.y_train, fold.fit_params)
                stack.enter_context(task.reported(record.number, fold.number, repeat, *data))
        start = time.perf_counter()
        results = fit_many(
            [core for own in reporter.cores for core in own],
            fold.X_train,
            fold.y_train,
            next(iter(fold.fit_params.values()), None),
            on_epoch=reporter if any(record.is_watched for record in records) else None,
            on_error="return",
        )
        seconds = (time.perf_counter() - start) / len(results)
        fitted = iter(results)
        for record, own in zip(records, models, strict=True):
            for model in own:
                result = reporter.errors.get(id(record), next(fitted))
                _score_member(task, fold, record, model, result, seconds)


class _FoldReporter:
    """Scores the networks of several trials after each epoch of one fold, and reports them."""

    def __init__(
        self, task: Task, fold: _Fold, records: list[TrialResult], models: list[list[Any]]
    ):
        self.task = task
        self.fold = fold
        self.records = records
        self.cores = [[final_estimator(model)[1] for model in own] for own in models]
        self.model_of = {id(final_estimator(model)[1]): model for own in models for model in own}
        self.last: dict[int, float] = {}  # last score of each network
        self.epochs: dict[int, float] = {}  # part of its epochs that each network has trained
        self.errors: dict[int, BaseException] = {}  # errors of scoring a trial's networks

    def __call__(self, epoch: int, members: Sequence[Any]) -> list[Any]:
        """Report an epoch; return the networks of trials that are pruned."""
        inside = {id(core) for core in members}
        stopped = []
        for record, cores in zip(self.records, self.cores, strict=True):
            own = [core for core in cores if id(core) in inside]
            if own and record.is_open:
                self.epochs.update((id(core), record.reporter.part_of(epoch)) for core in own)
                record.note_progress(sum(self.epochs.get(id(core), 0.0) for core in cores))
            is_scored = record.reporter.is_by_epoch and id(record) not in self.errors
            if own and record.is_open and is_scored:
                try:
                    self._report(record, epoch, own, cores)
                except FAILURES as error:
                    self.errors[id(record)] = error
            if not record.is_open or id(record) in self.errors:
                stopped += own
        return stopped

    def _report(self, record: TrialResult, epoch: int, own: list[Any], cores: list[Any]) -> None:
        # Seeds of one trial may train in several batches in sequence.
        earlier = [self.last[id(c)] for c in cores if id(c) in self.last and c not in own]
        scores = [self._score(core) for core in own]
        self.last.update(zip(map(id, own), scores, strict=True))
        finished = [*record.values, *earlier]
        record.prune_if(record.reporter.after_epoch(finished, epoch, scores))

    def _score(self, core: Any) -> float:
        scored, X = core, self.fold.X_test_through
        if self.task.is_own_scorer:
            scored, X = self.model_of[id(core)], self.fold.X_test
        scores = self.task.score(scored, X, self.fold.y_test, self.fold.score_params)
        return self.task.value_of(scores)


def _score_member(
    task: Task, fold: _Fold, record: TrialResult, model: Any, result: Any, seconds: float
) -> None:
    """Add the score of one network as the last step of its pipeline."""
    core = final_estimator(model)[1]
    record.n_epochs += int(getattr(core, "n_iter_", 0))
    if not record.is_open:
        return
    start = time.perf_counter()
    try:
        if isinstance(result, BaseException):
            raise result
        scores = task.score(model, fold.X_test, fold.y_test, fold.score_params)
        score_time = time.perf_counter() - start
        train = task.folds[fold.number][0]
        train_scores = task.score_train(model, fold.X_raw, fold.y_train, train)
        record.add(scores, seconds, score_time, train_scores)
    except FAILURES as error:
        record_failure(task, record, error)
    if record.is_open and record.values:
        record.prune_if(record.reporter.after_fit(record.values))
