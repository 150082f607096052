"""One fit of a network by a method, and the plan of all of them."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks._signals.data import Parts, Signals
from benchmarks._signals.deforming import accuracies
from benchmarks._signals.networks import Network
from benchmarks._signals.rows import SIGNALS
from benchmarks._tabular.fits import Row, few_rows_allowed, one_line, rounded
from benchmarks._tabular.metrics import measure
from benchmarks._tabular.own import as_json
from benchmarks._tabular.protocol import METHODS
from benchmarks._tabular.rows import Key, take_open
from mixupe_sklearn._search.space import READ_BY
from mixupe_sklearn.adapters.image import MixupEImageClassifier
from mixupe_sklearn.adapters.speech import MixupESpeechClassifier

ESTIMATORS = {"image": MixupEImageClassifier, "speech": MixupESpeechClassifier}
# Settings that make a fit another fit, beside those with a column of their own.
KEPT = (
    *("module", "module_params", "image_size", "augment", "sampling_rate"),
    *("optimizer", "optimizer_params", "lr", "lr_schedule", "weight_decay"),
    *("max_epochs", "batch_size", "penalty", "lam_per", "single_pass"),
    *("amp", "channels_last", "compile", "device", "callbacks"),
)


@dataclass(frozen=True)
class Config:
    """A method and the numbers that it reads; None is a number that it does not read.

    Examples
    --------
    >>> Config("mixup", alpha=0.2).params
    {'method': 'mixup', 'alpha': 0.2}
    """

    method: str
    alpha: float | None = None
    eta: float | None = None
    penalty_fraction: float | None = None

    @property
    def numbers(self) -> dict[str, float | None]:
        """The numbers by name."""
        return {name: getattr(self, name) for name in ("alpha", "eta", "penalty_fraction")}

    @property
    def params(self) -> dict[str, Any]:
        """Parameters of the estimator."""
        given = {name: value for name, value in self.numbers.items() if value is not None}
        return METHODS[self.method] | given


def config_of(method: str, *, alpha: float, eta: float, penalty_fraction: float = 1.0) -> Config:
    """A method with those of the numbers that it reads.

    Examples
    --------
    >>> config_of("mixup", alpha=1.0, eta=0.001)
    Config(method='mixup', alpha=1.0, eta=None, penalty_fraction=None)
    """
    read = READ_BY[METHODS[method]["method"]]
    return Config(
        method,
        alpha if "alpha" in read else None,
        eta if "eta" in read else None,
        penalty_fraction if "eta" in read else None,
    )


@dataclass(frozen=True, eq=False)
class Fit:
    """What one process does at a time: a network, trained by a method from a seed."""

    table: Signals
    seed: int
    network: Network
    config: Config
    training: Mapping[str, Any]

    def make(self) -> Any:
        """The estimator, not fitted."""
        network = {"module": self.network.module, "module_params": self.network.module_params}
        params = dict(self.training) | self.network.training | network | self.config.params
        return ESTIMATORS[self.table.kind](**params, random_state=self.seed, n_threads=1)

    @property
    def identity(self) -> dict[str, Any]:
        """The part of a row that says which fit it is."""
        settings = self.make().get_params(deep=False)
        settings["callbacks"] = [_told(callback) for callback in settings["callbacks"] or ()]
        return {
            "dataset": self.table.name,
            "data": self.table.fingerprint,
            "seed": self.seed,
            "network": self.network.name,
            "method": self.config.method,
            **self.config.numbers,
            "params": as_json({name: settings[name] for name in KEPT if name in settings}),
        }

    @property
    def cost(self) -> int:
        """Roughly how long it takes, in rows that go through a network: for the time left."""
        n_rows = len(self.table.y) * self.make().max_epochs
        return round(n_rows * (1 + (self.config.penalty_fraction or 0.0)))


def _told(callback: Any) -> dict[str, Any]:
    """A callback as rows tell it: its class and its parameters."""
    return {"callback": type(callback).__name__, **callback.get_params(deep=False)}


def run_fit(fit: Fit) -> list[Row]:
    """Fit and measure: one row; a fit that fails says why."""
    identity = fit.identity
    try:
        with few_rows_allowed():
            parts, model = fit.table.parts(fit.seed), fit.make()
            # As in a search: an interrupt ends the run instead of leaving a half-trained network.
            model._keeps_interrupted = False
            start = time.perf_counter()
            model.fit(parts.X_train, parts.y_train)
            seconds = time.perf_counter() - start
            row = _measured(fit.table, model, parts) | {"fit_seconds": rounded(seconds)}
            return [identity | row | {"error": ""}]
    except Exception as error:
        return [identity | {"error": one_line(error)}]


def _measured(table: Signals, model: Any, parts: Parts) -> Row:
    proba = np.asarray(model.predict_proba(parts.X_test), dtype=float)
    metrics = measure(parts.y_test, proba, model.classes_, np.unique(table.y))
    row: Row = {f"test_{name}": rounded(metrics[name]) for name in ("error", "log_loss", "ece")}
    if table.kind == "image":
        found = accuracies(model, parts.X_test, parts.y_test)
        row |= {column: rounded(value) for column, value in found.items()}
    n_parameters = sum(one.numel() for one in model.net_.module_.parameters())
    row |= {"n_parameters": n_parameters, "n_classes": table.n_classes}
    row |= {"n_train": len(parts.y_train), "n_test": len(parts.y_test)}
    durations = [epoch["dur"] for epoch in model.history_]
    return row | {"seconds_per_epoch": rounded(float(np.median(durations)))}


@dataclass(frozen=True)
class Study:
    """All methods with all networks, seed by seed: a run that is cut has whole seeds."""

    networks: Sequence[Network]
    configs: Sequence[Config]
    training: Mapping[str, Any]
    n_seeds: int = 3
    retry_failed: bool = False
    methods: Sequence[str] = ()

    def fits(self, table: Signals) -> list[Fit]:
        """All fits, in the order in which they are made."""
        return [
            Fit(table, seed, network, config, self.training)
            for seed in range(self.n_seeds)
            for network in self.networks
            for config in self.configs
        ]

    def open_jobs(self, table: Signals, done: set[Key]) -> list[Fit]:
        """Fits that are not done yet; from now on they count as done."""
        return take_open(self.fits(table), done, SIGNALS)

    @staticmethod
    def run_job(job: Fit) -> list[Row]:
        """Do a unit of work: its rows."""
        return run_fit(job)
