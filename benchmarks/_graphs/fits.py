"""One fit on a fold, measured after each epoch, and the plan of all of them."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from skorch.callbacks import LRScheduler
from torch import nn

from benchmarks._graphs.data import GraphTable
from benchmarks._graphs.rows import GRAPHS, as_text
from benchmarks._signals.fits import Config, config_of
from benchmarks._tabular.fits import Row, few_rows_allowed, one_line, rounded
from benchmarks._tabular.own import as_json
from benchmarks._tabular.rows import Key, take_open
from mixupe_sklearn._graphs.read import read_graphs
from mixupe_sklearn.adapters.graph import AT_ONCE, MixupEGraphClassifier

# What Xu et al. train with, but for the widths and the epochs.
HALVED_EVERY = 50
LR = 0.01


@dataclass(frozen=True)
class Training:
    """What is the same in all fits on a set."""

    d_hidden: int = 32
    batch_size: int = 32
    max_epochs: int = 350

    @property
    def told(self) -> dict[str, Any]:
        """All of it, as rows tell it."""
        return {
            **{"d_hidden": self.d_hidden, "n_layers": 5, "readout": "sum", "norm": True},
            **{"dropout": 0.5},
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


class Measured:
    """Errors and losses of some graphs after each epoch; their batches are made once."""

    def __init__(self, graphs: Sequence[Any], y: np.ndarray):
        self.graphs, self.y = graphs, y
        self.errors: list[int] = []
        self.losses: list[float] = []
        self._batches: list[Any] | None = None

    def add(self, model: Any) -> None:
        """Measure a network as it is now."""
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
    """What one process does at a time: a network, trained by a method on a fold."""

    table: GraphTable
    protocol: str
    fold: int
    config: Config
    training: Training

    @property
    def identity(self) -> dict[str, Any]:
        """The part of a row that says which fit it is."""
        return {
            "dataset": self.table.name,
            "data": self.table.fingerprint,
            "protocol": self.protocol,
            "fold": self.fold,
            "method": self.config.method,
            "alpha": self.config.alpha,
            "eta": self.config.eta,
            "params": as_json(self.training.told),
        }

    @property
    def cost(self) -> int:
        """Roughly how long it takes, in nodes that go through a network: for the time left."""
        n_nodes = sum(adjacency.shape[0] for adjacency, _ in self.table.graphs)
        return n_nodes * self.training.max_epochs


def run_fit(fit: Fit) -> list[Row]:
    """Fit, measuring after each epoch: one row; a fit that fails says why."""
    identity = fit.identity
    try:
        with few_rows_allowed():
            return [identity | _fitted(fit) | {"error": ""}]
    except Exception as error:
        return [identity | {"error": one_line(error)}]


def _fitted(fit: Fit) -> Row:
    table = fit.table
    parts = table.parts(fit.protocol, fit.fold)
    (train, y), valid, test = (
        ([table.graphs[number] for number in part], table.y[part]) for part in parts
    )
    measured = {"valid": Measured(*valid), "test": Measured(*test)}
    model = fit.training.make(fit.config, seed=fit.fold)

    def look(model: Any) -> bool:
        for one in measured.values():
            one.add(model)
        return False

    # As in a search: called after each epoch, and an interrupt ends the run.
    model._epoch_hook = look
    model._keeps_interrupted = False
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
        "valid_errors": as_text(measured["valid"].errors),
        "valid_losses": as_text(measured["valid"].losses),
        "test_errors": as_text(measured["test"].errors),
        "seconds_per_epoch": rounded(float(np.median(durations))),
        "fit_seconds": rounded(seconds),
    }


def configs_of(
    methods: Sequence[str], alphas: Sequence[float], etas: Sequence[float]
) -> list[Config]:
    """Every method with every pair of numbers, as far as it reads them.

    Examples
    --------
    >>> names = ("erm", "mixup", "mixupe")
    >>> [len(configs_of([name], [0.2, 1.0], [0.01, 0.1, 1.0])) for name in names]
    [1, 2, 6]
    """
    every = [
        config_of(method, alpha=alpha, eta=eta)
        for method in methods
        for alpha in alphas
        for eta in etas
    ]
    return list(dict.fromkeys(every))


@dataclass(frozen=True)
class Study:
    """All methods on all folds by both protocols, fold by fold: a run that is cut has whole ones.

    ``trainings`` are by the name of a set, since widths and batches differ.
    """

    configs: Sequence[Config]
    protocols: Sequence[str]
    trainings: Mapping[str, Training]
    n_folds: int | None = None
    retry_failed: bool = False
    # Whose library is noted.
    methods: Sequence[str] = ("gin",)

    def fits(self, table: GraphTable) -> list[Fit]:
        """All fits on a set, in the order in which they are made."""
        n_folds = len(table.folds) if self.n_folds is None else self.n_folds
        return [
            Fit(table, protocol, fold, config, self.trainings[table.name])
            for fold in range(min(n_folds, len(table.folds)))
            for protocol in self.protocols
            for config in self.configs
        ]

    def open_jobs(self, table: GraphTable, done: set[Key]) -> list[Fit]:
        """Fits that are not done yet; from now on they count as done."""
        return take_open(self.fits(table), done, GRAPHS)

    @staticmethod
    def run_job(job: Fit) -> list[Row]:
        """Do a unit of work: its rows."""
        return run_fit(job)
