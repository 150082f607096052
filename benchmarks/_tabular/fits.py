"""Run the jobs of the benchmark: prepare the data, train the networks as one, and measure."""

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks._harness.results_file import Key, one_line, rounded
from benchmarks._harness.runner import Row
from benchmarks._tabular.baselines import make_baseline
from benchmarks._tabular.methods import OWN, PAPER_INPUTS, paper_settings, settings_of
from benchmarks._tabular.metrics import log_loss_of, measure
from benchmarks._tabular.protocol import (
    FITS,
    METHODS,
    TRAINING,
    Config,
    Job,
    Split,
    jobs_of,
    splits_of,
)
from mixupe_sklearn import MixupEClassifier, make_preprocessor
from mixupe_sklearn._estimators.fit_many import fit_many, why_not_many
from mixupe_sklearn.datasets import Table

DENSE_ENTRIES = 2**25  # sparse inputs with at most so many entries become dense: 128 MiB


@dataclass(eq=False)
class Prepared:
    """The features and classes of the three parts of a split."""

    X: dict[str, Any]
    y: dict[str, np.ndarray]
    classes: np.ndarray
    seconds: float


def prepare(table: Table, split: Split) -> Prepared:
    """Fit the preprocessor on the training samples, and transform all samples."""
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


# The last prepared split of this process: jobs of one split follow each other.
_LAST: dict[tuple, Prepared] = {}


def _prepared(job: Job) -> Prepared:
    key = (job.table.fingerprint, job.split.kind, job.split.number)
    if key not in _LAST:
        _LAST.clear()
        _LAST[key] = prepare(job.table, job.split)
    return _LAST[key]


@dataclass(eq=False)
class LossRecorder:
    """Records the test loss of networks after each epoch, and its time; it selects nothing."""

    X: Any
    y: np.ndarray
    losses: dict[int, list[float]] = field(default_factory=dict)
    seconds: float = 0.0

    def __call__(self, epoch: int, members: list[Any]) -> None:
        """Evaluate all networks in training."""
        start = time.perf_counter()
        for member in members:
            loss = log_loss_of(member.predict_proba(self.X), self.y, member.classes_)
            self.losses.setdefault(id(member), []).append(loss)
        self.seconds += time.perf_counter() - start

    def of_one(self, member: Any) -> bool:
        """Evaluate one estimator that trains alone; never stop it."""
        self(0, [member])
        return False


def estimator_of(config: Config, seed: int, training: Mapping[str, Any]) -> MixupEClassifier:
    """Return the classifier of a configuration: the paper's settings, method and training."""
    params = paper_settings().classifier | config.params | dict(training)
    return MixupEClassifier(**params, random_state=seed, device="cpu")


def run_job(job: Job) -> list[Row]:
    """Fit all configurations of a job and return a row each; a failed fit records its error."""
    try:
        with few_rows_allowed():
            if job.configs[0].method in METHODS:
                return _run_networks(job)
            return [_run_alone(job, config) for config in job.configs]
    except Exception as error:
        return [job.identity(config) | {"error": one_line(error)} for config in job.configs]


@contextmanager
def few_rows_allowed() -> Iterator[None]:
    """Ignore the warning that the paper's batch of 100 is larger than the dataset."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Got .* training samples, fewer than batch_size")
        yield


@lru_cache
def _warm_up() -> None:
    """Fit once untimed: the first fit of a process loads libraries."""
    MixupEClassifier(**paper_settings().classifier, device="cpu").fit(np.eye(4), [0, 0, 1, 1])


@lru_cache
def warm_up_defaults() -> None:
    """Fit the default classifier once untimed."""
    X = np.random.default_rng(0).normal(size=(40, 4))
    pipeline = settings_of("mixupe-default").make(seed=0)
    pipeline.set_params(classifier__max_epochs=1, classifier__min_steps=0)
    pipeline.fit(X, np.arange(40) % 2)


def _run_networks(job: Job) -> list[Row]:
    _warm_up()
    data = _prepared(job)
    models = [estimator_of(config, job.split.seed, job.training) for config in job.configs]
    recorder = LossRecorder(data.X["test"], data.y["test"])
    is_together = why_not_many(models, data.X["train"]) is None
    n_together = len(models) if is_together else 1
    start = time.perf_counter()
    results: list[Any]
    if is_together:
        results = fit_many(
            models, data.X["train"], data.y["train"], on_epoch=recorder, on_error="return"
        )
    else:
        results = [_fit_alone(model, data, recorder) for model in models]
    # Rows hold the time per network: jobs differ in their number of networks.
    seconds = (time.perf_counter() - start - recorder.seconds) / len(models)
    rows = []
    for config, model, result in zip(job.configs, models, results, strict=True):
        row = job.identity(config) | {"n_together": n_together}
        if isinstance(result, Exception):
            row["error"] = one_line(result)
        else:
            row |= _measured(model, data) | {"fit_seconds": rounded(seconds + data.seconds)}
            row["train_losses"] = _curve(epoch["train_loss"] for epoch in model.history_)
            row["test_losses"] = _curve(recorder.losses[id(model)])
        rows.append(row)
    return rows


def _fit_alone(model: Any, data: Prepared, recorder: LossRecorder) -> Any:
    # An interrupt ends the run instead of keeping a partly trained network.
    model._keeps_interrupted = False
    model._epoch_hook = recorder.of_one
    try:
        return model.fit(data.X["train"], data.y["train"])
    except Exception as error:
        return error


def _run_alone(job: Job, config: Config) -> Row:
    if config.method in OWN:
        warm_up_defaults()
        model: Any = settings_of(config.method).make(job.split.seed)
    else:
        model = make_baseline(config.method, job.split.seed, training=dict(job.training))
    data = raw_rows(job.table, job.split)
    seconds = fit_seconds(model, data)
    row = job.identity(config) | _measured(model, data)
    return row | {"fit_seconds": seconds, "n_together": 1}


def fit_seconds(model: Any, data: Prepared) -> float:
    """Fit on the training samples and return the seconds."""
    start = time.perf_counter()
    model.fit(data.X["train"], data.y["train"])
    return rounded(time.perf_counter() - start)


def raw_rows(table: Table, split: Split) -> Prepared:
    """Return the raw samples of one split."""
    parts = {name: getattr(split, name) for name in ("train", "valid", "test")}
    X = {name: table.X.iloc[rows] for name, rows in parts.items()}
    y = {name: table.y[rows] for name, rows in parts.items()}
    return Prepared(X, y, np.unique(table.y), seconds=0.0)


def _measured(model: Any, data: Prepared) -> Row:
    """Return errors and losses of a fitted model, and the seconds to predict the test samples."""
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
    """Return the metrics of a fitted model on a part of the split, and the seconds to predict."""
    start = time.perf_counter()
    proba = np.asarray(model.predict_proba(data.X[part]), dtype=float)
    seconds = time.perf_counter() - start
    metrics = measure(data.y[part], proba, model.classes_, data.classes)
    return {name: rounded(value) for name, value in metrics.items()}, seconds


def _curve(losses: Any) -> str:
    return " ".join(f"{loss:.3g}" for loss in losses)


@dataclass(frozen=True)
class TabularPlan:
    """What a run does on each dataset."""

    methods: Sequence[str]
    grid: str = "paper"
    splits: str = "holdout"
    n_seeds: int = 5
    training: dict[str, Any] = field(default_factory=lambda: dict(TRAINING))
    retry_failed: bool = False

    def open_jobs(self, table: Table, done: set[Key]) -> list[Job]:
        """Return the jobs on a dataset that are not in ``done``, and add them to ``done``."""
        splits = splits_of(table, self.splits, self.n_seeds)
        jobs = list(jobs_of(table, splits, self.methods, self.grid, self.training, done))
        # A dataset may be requested twice, for example by its task and by a suite.
        done |= {FITS.key_of(job.identity(config)) for job in jobs for config in job.configs}
        return jobs

    run_job = staticmethod(run_job)
