"""One fit of a network by a method, its row, and the plan of all fits."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks._harness.results_file import Schema, as_json, rounded
from benchmarks._harness.runner import Row
from benchmarks._harness.single_fits import SingleFits
from benchmarks._tabular.metrics import measure
from benchmarks._tabular.protocol import METHODS, NUMBERS, Config
from benchmarks._vision_speech.data import Dataset
from benchmarks._vision_speech.deformations import COLUMNS as DEFORMED
from benchmarks._vision_speech.deformations import accuracies
from benchmarks._vision_speech.networks import Network
from mixupe_sklearn.adapters.image import MixupEImageClassifier
from mixupe_sklearn.adapters.speech import MixupESpeechClassifier
from mixupe_sklearn.search import METHOD_PARAMETERS

ESTIMATORS = {"image": MixupEImageClassifier, "speech": MixupESpeechClassifier}
# Settings that identify a fit, besides those with their own column.
KEPT = (
    *("module", "module_params", "image_size", "augment", "sampling_rate"),
    *("optimizer", "optimizer_params", "lr", "lr_schedule", "weight_decay"),
    *("max_epochs", "batch_size", "penalty", "lam_per", "single_pass"),
    *("amp", "channels_last", "compile", "device", "callbacks"),
)
KEY = ("dataset", "data", "seed", "network", "method", *NUMBERS, "params")
TEXTS = ("dataset", "data", "network", "method", "params", "error", "versions", "commit", "run")
SCHEMA = Schema(
    (
        *KEY,
        *("n_train", "n_test", "n_classes", "n_parameters"),
        *("test_error", "test_log_loss", "test_ece"),
        *DEFORMED,
        *("seconds_per_epoch", "fit_seconds", "error", "versions", "commit", "run"),
    ),
    frozenset(TEXTS),
    KEY,
)


def config_of(method: str, *, alpha: float, eta: float, penalty_fraction: float = 1.0) -> Config:
    """A method with those of the numbers that it reads."""
    read = METHOD_PARAMETERS[METHODS[method]["method"]]
    penalty = (eta, penalty_fraction) if "eta" in read else (None, None)
    return Config(method, alpha if "alpha" in read else None, *penalty)


@dataclass(frozen=True, eq=False)
class Fit:
    """The job of a process: a network, trained by a method from a seed."""

    table: Dataset
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
    def identity(self) -> Row:
        """The part of a row that identifies the fit."""
        settings = self.make().get_params(deep=False)
        settings["callbacks"] = [
            {"callback": type(callback).__name__, **callback.get_params(deep=False)}
            for callback in settings["callbacks"] or ()
        ]
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
        """Samples that pass through a network, for the estimate of the remaining time."""
        n_samples = len(self.table.y) * self.make().max_epochs
        return round(n_samples * (1 + (self.config.penalty_fraction or 0.0)))

    def measured(self) -> Row:
        """Fit, and measure on the test samples."""
        split, model = self.table.split(self.seed), self.make()
        # As in a search, an interrupt ends the run and leaves no half-trained network.
        model._keeps_interrupted = False
        start = time.perf_counter()
        model.fit(split.X_train, split.y_train)
        seconds = time.perf_counter() - start
        proba = np.asarray(model.predict_proba(split.X_test), dtype=float)
        metrics = measure(split.y_test, proba, model.classes_, np.unique(self.table.y))
        found = {f"test_{name}": metrics[name] for name in ("error", "log_loss", "ece")}
        if self.table.kind == "image":
            found |= accuracies(model, split.X_test, split.y_test)
        found["seconds_per_epoch"] = float(np.median([one["dur"] for one in model.history_]))
        found["fit_seconds"] = seconds
        return {name: rounded(value) for name, value in found.items()} | {
            "n_parameters": sum(one.numel() for one in model.net_.module_.parameters()),
            "n_classes": self.table.n_classes,
            "n_train": len(split.y_train),
            "n_test": len(split.y_test),
        }


@dataclass(frozen=True)
class Study(SingleFits):
    """All methods with all networks, seed by seed, so that an interrupted run has whole seeds."""

    networks: Sequence[Network]
    configs: Sequence[Config]
    training: Mapping[str, Any]
    n_seeds: int = 3
    retry_failed: bool = False
    schema = SCHEMA

    def fits(self, table: Dataset) -> list[Fit]:
        """All fits in their order."""
        return [
            Fit(table, seed, network, config, self.training)
            for seed in range(self.n_seeds)
            for network in self.networks
            for config in self.configs
        ]
