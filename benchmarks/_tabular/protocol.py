"""The paper's protocol for tabular data: methods, grids, splits, jobs and the columns of a row.

The paper selects the alpha and eta with the best mean validation accuracy of five seeds. It does
not describe the splits. Here each seed has its own: 60 % training, 20 % validation, 20 % test.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from benchmarks._harness.results_file import Key, Schema, as_json
from benchmarks._tabular import baselines
from benchmarks._tabular.methods import OWN, own_params, paper_settings
from mixupe_sklearn.datasets import Table
from mixupe_sklearn.search import METHOD_PARAMETERS, PAPER_GRID

KEY = ("dataset", "data", "splits", "split", "seed", "method", "alpha", "eta", "params")
COLUMNS = (
    *("source", "dataset", "task_id", "data_id", "data", "n_rows", "n_features", "n_classes"),
    *("splits", "split", "seed", "method", "alpha", "eta", "params", "grid"),
    *("valid_error", "test_error", "valid_log_loss", "test_log_loss"),
    *("test_balanced_accuracy", "test_ece", "fit_seconds", "predict_seconds", "n_together"),
    *("train_losses", "test_losses", "error", "versions", "commit", "run"),
)
_TEXTS = ("source", "dataset", "data", "splits", "method", "params", "grid", "train_losses")
FITS = Schema(
    COLUMNS, frozenset((*_TEXTS, "test_losses", "error", "versions", "commit", "run")), KEY
)
# What each method sets in the estimator, besides the paper's preset.
METHODS: dict[str, dict[str, Any]] = {
    "erm": {"method": "erm"},
    "mixup": {"method": "mixup"},
    "mixupe": {"method": "mixupe"},
    "mixupe-directional": {"method": "mixupe", "penalty": "directional"},
    "erm+penalty": {"method": "erm+penalty"},
    "manifold-mixup": {"method": "mixup", "mix_at": "hidden"},
}
PAPER_METHODS = ("erm", "mixup", "mixupe")
# "reduced" has every other alpha and three values of eta; "default" is one configuration.
GRIDS: dict[str, dict[str, list[float]]] = {
    "paper": PAPER_GRID,
    "reduced": {"alpha": PAPER_GRID["alpha"][1::2], "eta": PAPER_GRID["eta"][1:4]},
}
NUMBERS = ("alpha", "eta", "penalty_fraction")
TRAINING = baselines.TRAINING
# Networks that train as one, and their inputs in sum; a killed run loses one such group.
TOGETHER = 15
INPUTS_TOGETHER = 4_000


@dataclass(frozen=True)
class Config:
    """A method and the numbers that it reads; the others are None."""

    method: str
    alpha: float | None = None
    eta: float | None = None
    penalty_fraction: float | None = None

    @property
    def numbers(self) -> dict[str, float | None]:
        """The numbers by name."""
        return {name: getattr(self, name) for name in NUMBERS}

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of the estimator."""
        given = {name: value for name, value in self.numbers.items() if value is not None}
        return METHODS[self.method] | given


@dataclass(frozen=True, eq=False)
class Split:
    """Positions of the training, validation and test samples."""

    kind: str
    number: int
    seed: int
    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray


@dataclass(frozen=True, eq=False)
class Job:
    """A unit of work of one process: some configurations of one method on one split."""

    table: Table
    split: Split
    configs: tuple[Config, ...]
    training: Mapping[str, Any]
    grid: str

    def identity(self, config: Config) -> dict[str, Any]:
        """Return the columns of a row that identify a fit."""
        table, split = self.table, self.split
        return {
            **{name: getattr(table, name) for name in ("source", "task_id", "data_id")},
            "dataset": table.name,
            "data": table.fingerprint,
            "n_rows": table.n_rows,
            "n_features": table.X.shape[1],
            "n_classes": table.n_classes,
            "splits": split.kind,
            "split": split.number,
            "seed": split.seed,
            "method": config.method,
            "alpha": config.alpha,
            "eta": config.eta,
            "params": params_text(config.method, self.training),
            "grid": self.grid,
        }

    @property
    def cost(self) -> int:
        """A rough duration in steps of a narrow network, for the progress bar."""
        n_rows, width = len(self.split.train), 1 + self.table.X.shape[1] / 700
        if self.configs[0].method not in METHODS:
            return round(n_rows * width)
        n_steps = n_rows / self.training.get("batch_size", 100) + 2
        passes = 1.35 if self.configs[0].eta is not None else 1
        return round(len(self.configs) * self.training["max_epochs"] * n_steps * width * passes)


def configs_of(method: str, grid: str) -> list[Config]:
    """Return the configurations of a method in a grid."""
    read = METHOD_PARAMETERS[METHODS[method]["method"]] if method in METHODS else ()
    # Rows hold the values of the preset, which may change.
    values = GRIDS.get(grid) or {name: [paper_settings().classifier[name]] for name in read}
    alphas = values["alpha"] if "alpha" in read else (None,)
    etas = values["eta"] if "eta" in read else (None,)
    return [Config(method, alpha, eta) for alpha in alphas for eta in etas]


def splits_of(table: Table, kind: str, n_seeds: int) -> list[Split]:
    """Return the splits of a dataset: ``"holdout"``, or those of its OpenML ``"task"``."""
    if kind == "holdout":
        splits = []
        for seed in range(n_seeds):
            rest, test = hold_out(np.arange(len(table.y)), table.y, 0.2, seed)
            splits.append(Split(kind, seed, seed, *hold_out(rest, table.y, 0.2 / 0.8, seed), test))
        return splits
    if table.folds is None:
        raise ValueError(
            f"Got splits='task' for {table.name}, which has no such splits, but expected an "
            f"OpenML task: use splits='holdout'."
        )
    kind = f"task {table.task_id}"  # a dataset may have several tasks
    return [
        Split(kind, number, number, *hold_out(train, table.y, 0.2, number), np.asarray(test))
        for number, (train, test) in enumerate(table.folds)
    ]


def hold_out(
    rows: np.ndarray, y: np.ndarray, share: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Split samples at random, with the same share of each class on both sides."""
    codes = pd.factorize(y[rows])[0]
    # Classes with one sample form one group.
    groups = np.where(np.bincount(codes)[codes] < 2, -1, codes)
    n_held_out = round(share * len(rows))
    n_groups, n_single = len(np.unique(groups)), (groups == -1).sum()
    # A single sample, or more groups than held-out samples, cannot be stratified.
    cannot_stratify = n_single == 1 or n_groups > min(n_held_out, len(rows) - n_held_out)
    kept, held_out = train_test_split(
        rows, test_size=share, random_state=seed, stratify=None if cannot_stratify else groups
    )
    return np.sort(kept), np.sort(held_out)


def params_text(method: str, training: Mapping[str, Any]) -> str:
    """Return the parameters of a method besides alpha and eta, as rows hold them."""
    if method in OWN:
        return as_json(own_params(method))
    params = training if method in METHODS else baselines.params_of(method, training)
    return as_json(dict(params))


def jobs_of(
    table: Table,
    splits: Iterable[Split],
    methods: Sequence[str],
    grid: str,
    training: Mapping[str, Any],
    done: Collection[Key] = (),
) -> Iterator[Job]:
    """Yield the jobs for all fits that are not done yet, split by split."""
    n_together = max(1, min(TOGETHER, INPUTS_TOGETHER // max(1, table.X.shape[1])))
    for split in splits:
        for method in methods:
            complete = Job(table, split, tuple(configs_of(method, grid)), training, grid)
            configs = [
                config
                for config in complete.configs
                if FITS.key_of(complete.identity(config)) not in done
            ]
            for start in range(0, len(configs), n_together):
                yield replace(complete, configs=tuple(configs[start : start + n_together]))
