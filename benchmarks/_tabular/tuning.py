"""Tuning by Optuna: a study per dataset, split and method; its best model is tested on the split.

A study sees the training and the validation samples of a split. Trials are fitted on the first and
scored on the second. The best configuration, which may be the default one, is fitted on both.
"""

import hashlib
import json
import math
import re
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import optuna
from optuna.trial import TrialState
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning
from sqlalchemy.exc import SQLAlchemyError

from benchmarks._harness.results_file import Schema, as_json, rounded
from benchmarks._harness.runner import Row
from benchmarks._harness.single_fits import SingleFits
from benchmarks._tabular.baselines import Baseline, check_baselines, make_baseline
from benchmarks._tabular.fits import Prepared, fit_seconds, measured_on, warm_up_defaults
from benchmarks._tabular.methods import OWN, settings_of
from benchmarks._tabular.metrics import log_loss_of
from benchmarks._tabular.protocol import TRAINING, Split, hold_out, params_text, splits_of
from benchmarks._tabular.spaces import STOPPING_FRACTION, TUNABLE
from mixupe_sklearn import MixupESearchCV
from mixupe_sklearn.datasets import Table
from mixupe_sklearn.search import METHOD_PARAMETERS, PAPER_GRID

KEY = ("dataset", "data", "splits", "split", "seed", "method", "space", "budget", "params")
SCORES = (
    *("valid_error", "valid_log_loss", "test_error", "test_log_loss"),
    *("test_balanced_accuracy", "test_ece", "fit_seconds"),
)
DEFAULTS = tuple(f"default_{name}" for name in SCORES)
COUNTS = ("n_complete", "n_pruned", "n_failed")
COLUMNS = (
    *("source", "dataset", "task_id", "data_id", "data", "n_rows", "n_features", "n_classes"),
    *KEY[2:],
    *SCORES,
    *("best", *COUNTS, "search_seconds"),
    *DEFAULTS,
    *("trials", "error", "versions", "commit", "run"),
)
_TEXTS = ("source", "dataset", "data", "splits", "method", "space", "budget", "params", "best")
TUNED = Schema(COLUMNS, frozenset((*_TEXTS, "trials", "error", "versions", "commit", "run")), KEY)
# The search space of each of our two methods.
SPACE_OF = {"mixupe-default": "default", "mixupe-paper": "paper"}
MOST_TRIALS = 200  # within a time limit; TabArena tries as many
FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)
# A log loss is at most 16, so that it never outweighs one sample of fewer than 300,000.
TIE = 1e-7


def validation_score(model: Any, X: Any, y: np.ndarray) -> float:
    """Return the accuracy; of two equal ones, that with the lower log loss is larger."""
    proba = model.predict_proba(X)
    accuracy = np.mean(model.classes_[proba.argmax(axis=1)] == y)
    return float(accuracy - TIE * log_loss_of(proba, y, model.classes_))


def error_and_loss(score: float, n_rows: int) -> tuple[float, float]:
    """Return the error in percent and the log loss of a validation score."""
    n_right = round(score * n_rows)
    return rounded(100 * (1 - n_right / n_rows)), rounded((n_right / n_rows - score) / TIE)


class TunedBaseline(Baseline):
    """A baseline with the parameters of its search space; boosting stops early by itself."""

    def __init__(self, name, seed=0, n_jobs=1, training=None, tuned=None):
        super().__init__(name, seed, n_jobs, training)
        self.tuned = tuned

    def get_params(self, deep=True):
        """Return the constructor's parameters, and with ``deep`` those of the search space."""
        own = super().get_params(deep=False)
        return own | dict.fromkeys(TUNABLE[self.name].space) | (self.tuned or {}) if deep else own

    def set_params(self, **params):
        """Set parameters of the constructor or of the search space."""
        of_space = {name: params.pop(name) for name in TUNABLE[self.name].space if name in params}
        if of_space:
            self.tuned = (self.tuned or {}) | of_space
        return super().set_params(**params)

    def _fit_model(self, make, features, y):
        tunable = TUNABLE[self.name]
        model = make(tunable.fixed | (self.tuned or {}))
        if not tunable.held_out:
            return model.fit(features, y)
        train, stop = hold_out(np.arange(len(y)), y, STOPPING_FRACTION, self.seed)
        # A class without training samples would be unknown.
        is_known = np.isin(y[stop], y[train])
        train, stop = np.concatenate([train, stop[~is_known]]), stop[is_known]
        held_out = features.iloc[stop], y[stop]
        given: Any = held_out if len(tunable.held_out) == 2 else [[held_out]]
        params = dict(zip(tunable.held_out, given, strict=True)) | tunable.fit_params
        return model.fit(features.iloc[train], y[train], **params)


@dataclass(frozen=True)
class Budget:
    """What each study may use: trials, or seconds with at most so many trials."""

    n_trials: int
    seconds: float | None = None

    def __str__(self) -> str:
        trials = f"{self.n_trials} trials"
        return trials if self.seconds is None else f"{self.seconds:g} s, {trials}"


@dataclass(frozen=True, eq=False)
class Study:
    """The job of a process: tune a method on a split, and test the result."""

    table: Table
    split: Split
    method: str
    budget: Budget
    storage: str
    is_again: bool = False

    @property
    def identity(self) -> Row:
        """The part of a row that identifies the study."""
        table, split = self.table, self.split
        return {
            **{name: getattr(table, name) for name in ("source", "task_id", "data_id")},
            **{"dataset": table.name, "data": table.fingerprint, "n_rows": table.n_rows},
            **{"n_features": table.X.shape[1], "n_classes": table.n_classes},
            **{"splits": split.kind, "split": split.number, "seed": split.seed},
            **{"method": self.method, "space": space_text(self.method)},
            **{"budget": str(self.budget), "params": params_text(self.method, TRAINING)},
        }

    @property
    def cost(self) -> int:
        """Seconds, or samples that are fitted, for the estimate of the remaining time."""
        if self.budget.seconds is not None:
            return round(self.budget.seconds)
        return self.budget.n_trials * len(self.split.train)

    @property
    def name(self) -> str:
        """The study's name in the storage: a larger budget continues the same study."""
        identity = self.identity
        text = as_json([identity[name] for name in ("space", "params")])
        parts = [identity[name] for name in ("dataset", "data", "splits", "split", "method")]
        return " ".join([*map(str, parts), hashlib.sha256(text.encode()).hexdigest()[:8]])

    @cached_property
    def data(self) -> Prepared:
        """Raw samples: those of the search, in the order training, validation, and of the test."""
        table, split = self.table, self.split
        parts = {"train": split.train, "valid": split.valid, "test": split.test}
        parts["search"] = np.concatenate([split.train, split.valid])
        X = {name: table.X.iloc[rows] for name, rows in parts.items()}
        y = {name: table.y[rows] for name, rows in parts.items()}
        return Prepared(X, y, np.unique(table.y), seconds=0.0)

    def default(self) -> Any:
        """Return the estimator with its default settings."""
        if self.method in OWN:
            return settings_of(self.method).make(self.split.seed)
        return make_baseline(self.method, self.split.seed)

    def measured(self) -> Row:
        """Fit the defaults, search, fit the best on all samples of the search, and test."""
        if self.method in OWN:
            warm_up_defaults()
        n_valid = len(self.split.valid)
        default = self.default()
        default.fit(self.data.X["train"], self.data.y["train"])
        first = validation_score(default, self.data.X["valid"], self.data.y["valid"])
        row = self._tested(default, first)
        row = {f"default_{name}": row[name] for name in SCORES}
        search, trials = self._search()
        best = max(trials, key=lambda trial: trial["value"] or -math.inf)
        if (best["value"] or -math.inf) > first:
            tuned = clone(search.estimator).set_params(**best["params"])
            row |= self._tested(tuned, best["value"])
        else:  # the defaults are a candidate, too
            row |= {name: row[f"default_{name}"] for name in SCORES}
            best = {"params": {}}
        states = [trial["state"] for trial in trials]
        row |= {f"n_{state}": states.count(state) for state in ("complete", "pruned", "failed")}
        return row | {
            "best": as_json(_short_params(best["params"])),
            "search_seconds": rounded(busy_seconds(search.study_.trials)),
            "trials": as_json([_trial_row(trial, n_valid) for trial in trials]),
        }

    def _tested(self, model: Any, score: float) -> Row:
        """Fit on all samples of the search, and measure on the test samples."""
        data = self.data
        samples = {name: {"train": part["search"]} for name, part in (("X", data.X), ("y", data.y))}
        seconds = fit_seconds(model, Prepared(samples["X"], samples["y"], data.classes, 0.0))
        test, _ = measured_on(model, data, "test")
        error, loss = error_and_loss(score, len(self.split.valid))
        metrics = ("error", "log_loss", "balanced_accuracy", "ece")
        return {
            **{"valid_error": error, "valid_log_loss": loss, "fit_seconds": seconds},
            **{f"test_{name}": test[name] for name in metrics},
        }

    def _search(self) -> tuple[MixupESearchCV, list[dict[str, Any]]]:
        """Run or resume the study; return the search and its finished trials."""
        n_train, n_rows = len(self.split.train), len(self.data.y["search"])
        is_ours = self.method in OWN
        if self.is_again:
            self._forget_failures()
        left = self.budget.seconds
        if left is not None:
            left = max(left - busy_seconds(self._earlier_trials()), 1e-3)
        search = MixupESearchCV(
            self.default() if is_ours else TunedBaseline(self.method, self.split.seed),
            SPACE_OF[self.method] if is_ours else TUNABLE[self.method].space,
            n_trials=self.budget.n_trials,
            timeout=left,
            cv=[(np.arange(n_train), np.arange(n_train, n_rows))],
            # In a dict the scorer gets the network instead of the whole pipeline.
            scoring={"validation": validation_score},
            refit=False,
            pruner="halving" if is_ours else "none",
            # In a batch of trials, all would end after the time limit.
            vectorize="auto" if left is None else False,
            storage=self.storage,
            study_name=self.name,
            random_state=self.split.seed,
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Study .* has trials of other processes")
            warnings.filterwarnings("ignore", category=FitFailedWarning)  # the row counts them
            search.fit(self.data.X["search"], self.data.y["search"])
        found = search.cv_results_
        columns = ("trial", "state", "n_epochs", "params", "mean_test_validation")
        trials = [
            dict(zip(columns, values, strict=True))
            for values in zip(*(found[name] for name in columns), strict=True)
        ]
        for trial in trials:
            value = float(trial.pop("mean_test_validation"))
            trial["value"] = value if math.isfinite(value) else None
        return search, trials

    def _earlier_trials(self) -> list[Any]:
        try:
            return optuna.load_study(study_name=self.name, storage=self.storage).trials
        except KeyError:  # there is no such study yet
            return []

    def _forget_failures(self) -> None:
        """Delete the study if none of its trials is complete: it would fail in the same way."""
        trials = self._earlier_trials()
        if trials and not any(one.state == TrialState.COMPLETE for one in trials):
            optuna.delete_study(study_name=self.name, storage=self.storage)


def busy_seconds(trials: Iterable[Any]) -> float:
    """Return the seconds in which at least one trial ran that was completed or pruned."""
    # A trial of a killed worker ends when another worker finds it, perhaps hours later.
    spans = sorted(
        (trial.datetime_start.timestamp(), trial.datetime_complete.timestamp())
        for trial in trials
        if trial.state in FINISHED
    )
    total, end = 0.0, -math.inf
    for start, stop in spans:
        total += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return total


def _trial_row(trial: Mapping[str, Any], n_valid: int) -> list[Any]:
    """What a row keeps of a trial: state, validation error and log loss, epochs, parameters."""
    value = trial["value"]
    scores = (None, None) if value is None else error_and_loss(value, n_valid)
    return [trial["state"], *scores, int(trial["n_epochs"]), _short_params(trial["params"])]


def _short_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters without the name of the pipeline's step, and numbers without rounding noise."""
    return {
        name.rpartition("__")[2]: rounded(value) if isinstance(value, float) else value
        for name, value in params.items()
    }


def create_storage(url: str) -> None:
    """Create the tables of a database before several processes open it at the same moment."""
    for is_last in (False, True):
        try:
            optuna.storages.get_storage(url)
            return
        except (SQLAlchemyError, ImportError) as error:
            if is_last:
                reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
                raise ValueError(
                    f"Got --storage {without_password(url)}, which cannot be reached: "
                    f"{reason.rstrip('.')}."
                ) from None
            time.sleep(1.0)  # another machine creates the tables right now


def without_password(text: str) -> str:
    """Hide the password in the URL of a database."""
    return re.sub(r"(://[^:/@]*:)[^@]*@", r"\1***@", text)


def space_text(method: str) -> str:
    """Return the search space of a method, as rows hold it."""
    if method in OWN:
        name = SPACE_OF[method]
        return as_json(name if name == "default" else {name: _paper_grid()})
    tunable = TUNABLE[method]
    space = {name: _as_text(one) for name, one in tunable.space.items()}
    stopping = {"held_out": STOPPING_FRACTION} if tunable.held_out else {}
    return as_json({"searched": space, "fixed": tunable.fixed} | stopping)


def _as_text(one: Any) -> str:
    if hasattr(one, "choices"):
        return " or ".join(map(str, one.choices))
    return f"{one.low:g} to {one.high:g}" + (", log" if one.log else "")


def _paper_grid() -> dict[str, list[float]]:
    return {name: PAPER_GRID[name] for name in METHOD_PARAMETERS["mixupe"]}


def read_trials(text: str) -> list[dict[str, Any]]:
    """Return the trials of a row."""
    names = ("state", "valid_error", "valid_log_loss", "n_epochs", "params")
    return [dict(zip(names, values, strict=True)) for values in json.loads(text or "[]")]


def check_tunable(names: Sequence[str]) -> list[str]:
    """Return the names if all can be tuned here; without names, all that can."""
    if not names:
        return [name for name in check_baselines([]) if name in TUNABLE]
    for name in check_baselines(names):
        if name not in TUNABLE:
            raise ValueError(
                f"Got baseline {name!r} with --tune, but expected one with a search space: "
                f"{', '.join(TUNABLE)}."
            )
    return list(dict.fromkeys(names))


@dataclass(frozen=True, kw_only=True)
class TuningPlan(SingleFits):
    """All methods on each split of a dataset, split by split."""

    budget: Budget
    storage: str
    tuned: Sequence[str]
    splits: str = "holdout"
    n_seeds: int = 1
    retry_failed: bool = False
    schema = TUNED

    @property
    def methods(self) -> Sequence[str]:  # type: ignore[override]
        """The libraries whose versions rows record."""
        return (*self.tuned, "optuna")

    def fits(self, table: Table) -> list[Study]:
        """Return all studies on a dataset."""
        return [
            Study(table, split, method, self.budget, self.storage, self.retry_failed)
            for split in splits_of(table, self.splits, self.n_seeds)
            for method in self.tuned
        ]
