"""One fit on a fold, measured after each epoch, its row, and the plan of all fits."""

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from skorch.callbacks import LRScheduler
from torch import nn

from benchmarks._graphs.data import GraphTable
from benchmarks._harness.results_file import Schema, as_json, rounded
from benchmarks._harness.runner import Row
from benchmarks._harness.single_fits import SingleFits
from benchmarks._tabular.protocol import Config
from benchmarks._vision_speech.fits import config_of
from mixupe_sklearn._graphs.read import read_graphs
from mixupe_sklearn.adapters.graph import AT_ONCE, MixupEGraphClassifier

TITLES = {"erm": "ERM", "mixup": "Mixup", "mixupe": "MixupE"}
METHODS = tuple(TITLES)
KEY = ("dataset", "data", "protocol", "fold", "method", "alpha", "eta", "params")
CURVES = ("valid_errors", "valid_losses", "test_errors")
TEXTS = ("dataset", "data", "protocol", "method", "params", *CURVES)
SCHEMA = Schema(
    (
        *KEY,
        *("n_train", "n_valid", "n_test", "n_classes", "n_parameters"),
        *CURVES,
        *("seconds_per_epoch", "fit_seconds", "error", "versions", "commit", "run"),
    ),
    frozenset((*TEXTS, "error", "versions", "commit", "run")),
    KEY,
)
# What Xu et al. train with, but for the widths and the epochs.
HALVED_EVERY = 50
LR = 0.01


@dataclass(frozen=True)
class Training:
    """What all fits on a dataset share."""

    d_hidden: int = 32
    batch_size: int = 32
    max_epochs: int = 350

    @property
    def recorded(self) -> dict[str, Any]:
        """All of it, as rows record it."""
        return {
            **{"d_hidden": self.d_hidden, "n_layers": 5, "readout": "sum", "norm": True},
            "dropout": 0.5,
            **{"optimizer": "adam", "lr": LR, "halved_every": HALVED_EVERY},
            **{"batch_size": self.batch_size, "max_epochs": self.max_epochs},
        }

    def make(self, config: Config, seed: int) -> MixupEGraphClassifier:
        """The estimator, not fitted."""
        return MixupEGraphClassifier(
            module_params={"d_hidden": self.d_hidden},
            lr=LR,
            lr_schedule="constant",
            callbacks=[LRScheduler(policy="StepLR", step_size=HALVED_EVERY, gamma=0.5)],
            batch_size=self.batch_size,
            max_epochs=self.max_epochs,
            device="cpu",
            n_threads=1,
            random_state=seed,
            **config.params,
        )


class Curves:
    """Errors and losses of some graphs after each epoch; their batches are built once."""

    def __init__(self, graphs: Sequence[Any], y: np.ndarray):
        self.graphs, self.y = graphs, y
        self.errors: list[int] = []
        self.losses: list[float] = []
        self._batches: list[Any] | None = None

    def add(self, model: Any) -> None:
        """Evaluate the network after an epoch."""
        if not len(self.y):
            return
        if self._batches is None:
            rows = model.inputs_.ready(read_graphs(self.graphs)[0])
            self._batches = list(rows.chunks(AT_ONCE))
        module = model.net_.module_.eval()
        with torch.inference_mode():
            logits = torch.cat([module(batch) for batch in self._batches])
        target = torch.from_numpy(np.searchsorted(model.classes_, self.y))
        self.errors.append(int((logits.argmax(dim=1) != target).sum()))
        self.losses.append(float(nn.functional.cross_entropy(logits, target)))


@dataclass(frozen=True, eq=False)
class Fit:
    """The job of a process: a network, trained by a method on a fold."""

    table: GraphTable
    protocol: str
    fold: int
    config: Config
    training: Training

    @property
    def identity(self) -> Row:
        """The part of a row that identifies the fit."""
        return {
            "dataset": self.table.name,
            "data": self.table.fingerprint,
            "protocol": self.protocol,
            "fold": self.fold,
            "method": self.config.method,
            "alpha": self.config.alpha,
            "eta": self.config.eta,
            "params": as_json(self.training.recorded),
        }

    @property
    def cost(self) -> int:
        """Nodes that pass through a network, for the estimate of the remaining time."""
        n_nodes = sum(adjacency.shape[0] for adjacency, _ in self.table.graphs)
        return n_nodes * self.training.max_epochs

    def measured(self) -> Row:
        """Fit, and evaluate after each epoch."""
        table = self.table
        parts = table.parts(self.protocol, self.fold)
        (train, y), valid, test = (
            ([table.graphs[number] for number in part], table.y[part]) for part in parts
        )
        curves = {"valid": Curves(*valid), "test": Curves(*test)}
        model = self.training.make(self.config, seed=self.fold)

        def evaluate(model: Any) -> bool:
            for one in curves.values():
                one.add(model)
            return False

        model._epoch_hook = evaluate
        model._keeps_interrupted = False  # as in a search, an interrupt ends the run
        start = time.perf_counter()
        model.fit(train, y)
        seconds = time.perf_counter() - start
        durations = [epoch["dur"] for epoch in model.history_]
        return {
            "n_train": len(y),
            "n_valid": len(valid[1]),
            "n_test": len(test[1]),
            "n_classes": len(np.unique(table.y)),
            "n_parameters": sum(one.numel() for one in model.net_.module_.parameters()),
            "valid_errors": curve_as_text(curves["valid"].errors),
            "valid_losses": curve_as_text(curves["valid"].losses),
            "test_errors": curve_as_text(curves["test"].errors),
            "seconds_per_epoch": rounded(float(np.median(durations))),
            "fit_seconds": rounded(seconds),
        }


def configs_of(
    methods: Sequence[str], alphas: Sequence[float], etas: Sequence[float]
) -> list[Config]:
    """Every method with every alpha and eta that it reads."""
    every = itertools.product(methods, alphas, etas)
    return list(dict.fromkeys(config_of(one, alpha=alpha, eta=eta) for one, alpha, eta in every))


@dataclass(frozen=True)
class Study(SingleFits):
    """All methods by both protocols, fold by fold, so that an interrupted run has whole folds."""

    configs: Sequence[Config]
    protocols: Sequence[str]
    trainings: Mapping[str, Training]
    n_folds: int | None = None
    retry_failed: bool = False
    methods: Sequence[str] = ("gin",)  # the library whose version is recorded
    schema = SCHEMA

    def fits(self, table: GraphTable) -> list[Fit]:
        """All fits on a dataset in their order."""
        n_folds = len(table.folds) if self.n_folds is None else self.n_folds
        return [
            Fit(table, protocol, fold, config, self.trainings[table.name])
            for fold in range(min(n_folds, len(table.folds)))
            for protocol in self.protocols
            for config in self.configs
        ]


def curve_as_text(values: list[int] | list[float]) -> str:
    """A curve as a cell of a row: a number per epoch."""
    return " ".join(f"{value:.4g}" for value in values)
