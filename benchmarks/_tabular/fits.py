"""Run one job: prepare its rows, train its networks as one where that is possible, and measure."""

import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks._tabular.metrics import measure
from benchmarks._tabular.own import OWN, PAPER_INPUTS, paper_settings, settings_of
from benchmarks._tabular.peers import make_peer
from benchmarks._tabular.protocol import METHODS, Config, Job, Split
from mixupe_sklearn import MixupEClassifier, make_preprocessor
from mixupe_sklearn._estimators.fit_many import fit_many, why_not_many
from mixupe_sklearn._search.evaluate import DENSE_ENTRIES
from mixupe_sklearn.datasets import Table

Row = dict[str, Any]


@dataclass(eq=False)
class Prepared:
    """Rows of one split as numbers, by a preprocessor that has seen the training rows only."""

    X: dict[str, Any]
    y: dict[str, np.ndarray]
    classes: np.ndarray
    seconds: float


def prepare(table: Table, split: Split) -> Prepared:
    """Fit the preprocessor on the training rows, and put all rows through it."""
    parts = {name: getattr(split, name) for name in ("train", "valid", "test")}
    y = {name: table.y[rows] for name, rows in parts.items()}
    start = time.perf_counter()
    preprocessor = make_preprocessor(**PAPER_INPUTS)
    X = {"train": preprocessor.fit_transform(table.X.iloc[parts["train"]])}
    seconds = time.perf_counter() - start
    for name in ("valid", "test"):
        X[name] = preprocessor.transform(table.X.iloc[parts[name]])
    if sparse.issparse(X["train"]) and np.prod(X["train"].shape) <= DENSE_ENTRIES:
        X = {name: rows.toarray() for name, rows in X.items()}
    X = {name: rows.astype(np.float32) for name, rows in X.items()}
    return Prepared(X, y, np.unique(table.y), seconds)


# The last split that this process has prepared: jobs of one split follow each other.
_LAST: dict[tuple, Prepared] = {}


def _prepared(job: Job) -> Prepared:
    key = (job.table.fingerprint, job.split.kind, job.split.number)
    if key not in _LAST:
        _LAST.clear()
        _LAST[key] = prepare(job.table, job.split)
    return _LAST[key]


@dataclass(eq=False)
class Watch:
    """Notes the test loss of networks after each epoch, and the time that this takes.

    Nothing is chosen by it: it is for the report's curves alone.
    """

    X: Any
    y: np.ndarray
    losses: dict[int, list[float]] = field(default_factory=dict)
    seconds: float = 0.0

    def __call__(self, epoch: int, members: list[Any]) -> None:
        """Look at all members that are in training."""
        start = time.perf_counter()
        for member in members:
            # Lighter than all of the metrics, which are not wanted 25 times a fit.
            proba, is_own = member.predict_proba(self.X), self.y[:, None] == member.classes_
            own = np.maximum((proba * is_own).sum(axis=1), np.finfo(np.float32).eps)
            self.losses.setdefault(id(member), []).append(float(-np.log(own).mean()))
        self.seconds += time.perf_counter() - start

    def of_one(self, member: Any) -> bool:
        """Look at one estimator that trains alone, and never stop it."""
        self(0, [member])
        return False


def estimator_of(config: Config, seed: int, training: Mapping[str, Any]) -> MixupEClassifier:
    """The classifier of a configuration: the paper's, but for what the method and training say."""
    params = paper_settings().classifier | config.params | dict(training)
    return MixupEClassifier(**params, random_state=seed, device="cpu")


def run_job(job: Job) -> list[Row]:
    """Fit all configurations of a job: one row each, without versions; a failed fit says why."""
    try:
        with few_rows_allowed():
            if job.configs[0].method in METHODS:
                return _run_networks(job)
            return [_run_alone(job, config) for config in job.configs]
    except Exception as error:
        return [job.identity(config) | {"error": one_line(error)} for config in job.configs]


@contextmanager
def few_rows_allowed() -> Iterator[None]:
    """Say nothing of a batch that is larger than the table: it is the paper's, of 100 rows."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Got .* training rows, fewer than batch_size")
        yield


@lru_cache
def _warm_up() -> None:
    """Fit once without a clock: the first fit of a process loads what it needs."""
    MixupEClassifier(**paper_settings().classifier, device="cpu").fit(np.eye(4), [0, 0, 1, 1])


@lru_cache
def warm_up_defaults() -> None:
    """The same for the classifier as it comes, which may have more parts to load."""
    X = np.random.default_rng(0).normal(size=(40, 4))
    pipeline = settings_of("mixupe-default").make(seed=0)
    pipeline.set_params(classifier__max_epochs=1, classifier__min_steps=0)
    pipeline.fit(X, np.arange(40) % 2)


def _run_networks(job: Job) -> list[Row]:
    _warm_up()
    data = _prepared(job)
    models = [estimator_of(config, job.split.seed, job.training) for config in job.configs]
    watch = Watch(data.X["test"], data.y["test"])
    is_together = why_not_many(models, data.X["train"]) is None
    n_together = len(models) if is_together else 1
    start = time.perf_counter()
    results: list[Any]
    if is_together:
        results = fit_many(
            models, data.X["train"], data.y["train"], on_epoch=watch, on_error="return"
        )
    else:
        results = [_fit_alone(model, data, watch) for model in models]
    # Jobs of different lengths are compared by the share of one network.
    seconds = (time.perf_counter() - start - watch.seconds) / len(models)
    rows = []
    for config, model, result in zip(job.configs, models, results, strict=True):
        row = job.identity(config) | {"n_together": n_together}
        if isinstance(result, Exception):
            row["error"] = one_line(result)
        else:
            row |= _measured(model, data) | {"fit_seconds": rounded(seconds + data.seconds)}
            row["train_losses"] = _curve(epoch["train_loss"] for epoch in model.history_)
            row["test_losses"] = _curve(watch.losses[id(model)])
        rows.append(row)
    return rows


def _fit_alone(model: Any, data: Prepared, watch: Watch) -> Any:
    # As in a search: an interrupt ends the run instead of leaving a half-trained network.
    model._keeps_interrupted = False
    model._epoch_hook = watch.of_one
    try:
        return model.fit(data.X["train"], data.y["train"])
    except Exception as error:
        return error


def _run_alone(job: Job, config: Config) -> Row:
    if config.method in OWN:
        warm_up_defaults()
        model: Any = settings_of(config.method).make(job.split.seed)
    else:
        model = make_peer(config.method, job.split.seed, training=dict(job.training))
    data = raw_rows(job.table, job.split)
    seconds = fit_seconds(model, data)
    row = job.identity(config) | _measured(model, data)
    return row | {"fit_seconds": seconds, "n_together": 1}


def fit_seconds(model: Any, data: Prepared) -> float:
    """Fit on the training rows: how long it takes."""
    start = time.perf_counter()
    model.fit(data.X["train"], data.y["train"])
    return rounded(time.perf_counter() - start)


def raw_rows(table: Table, split: Split) -> Prepared:
    """Rows of one split as they come."""
    parts = {name: getattr(split, name) for name in ("train", "valid", "test")}
    X = {name: table.X.iloc[rows] for name, rows in parts.items()}
    y = {name: table.y[rows] for name, rows in parts.items()}
    return Prepared(X, y, np.unique(table.y), seconds=0.0)


def _measured(model: Any, data: Prepared) -> Row:
    """Errors and losses of a fitted model, and how long it takes to predict the test rows."""
    valid, _ = measured_on(model, data, "valid")
    test, seconds = measured_on(model, data, "test")
    return {
        "valid_error": valid["error"],
        "test_error": test["error"],
        "valid_log_loss": valid["log_loss"],
        "test_log_loss": test["log_loss"],
        "test_balanced_accuracy": test["balanced_accuracy"],
        "test_ece": test["ece"],
        "predict_seconds": rounded(seconds),
    }


def measured_on(model: Any, data: Prepared, part: str) -> tuple[dict[str, float], float]:
    """Metrics of a fitted model on a part of the rows, and how long the prediction takes."""
    start = time.perf_counter()
    proba = np.asarray(model.predict_proba(data.X[part]), dtype=float)
    seconds = time.perf_counter() - start
    metrics = measure(data.y[part], proba, model.classes_, data.classes)
    return {name: rounded(value) for name, value in metrics.items()}, seconds


def rounded(value: float, digits: int = 6) -> float:
    """A number with so many significant digits: rows stay small."""
    return float(f"{value:.{digits}g}")


def _curve(losses: Any) -> str:
    return " ".join(f"{loss:.3g}" for loss in losses)


def one_line(error: BaseException) -> str:
    """An error as a row tells it."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:500]
