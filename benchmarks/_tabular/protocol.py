"""The paper's protocol for tables: methods, grids, splits, and the units of work they make.

The paper says: a network of 128-128, Adam with 0.001, batches of 100, 25 epochs, five seeds for
each alpha and eta of its grids, and the pair with the best validation accuracy. It does not say
how rows are split; here each seed has a split of its own, 60 % to train, 20 % to choose with and
20 % to test.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from benchmarks._tabular import peers
from benchmarks._tabular.own import OWN, as_json, own_params, paper_settings
from mixupe_sklearn._search.space import PAPER_ALPHAS, PAPER_ETAS, READ_BY
from mixupe_sklearn.datasets import Table

# What each method sets in the estimator, besides the paper's preset.
METHODS: dict[str, dict[str, Any]] = {
    "erm": {"method": "erm"},
    "mixup": {"method": "mixup"},
    "mixupe": {"method": "mixupe"},
    "mixupe-directional": {"method": "mixupe", "penalty": "directional"},
    "erm+penalty": {"method": "erm+penalty"},
    "manifold-mixup": {"method": "mixup", "mix_at": "hidden"},
}
# The three of the paper's table; the others are run on request.
PAPER_METHODS = ("erm", "mixup", "mixupe")
# "reduced" keeps every other value of alpha and three of eta; "default" is one configuration.
GRIDS: dict[str, dict[str, tuple[float, ...]]] = {
    "paper": {"alpha": PAPER_ALPHAS, "eta": PAPER_ETAS},
    "reduced": {"alpha": PAPER_ALPHAS[1::2], "eta": PAPER_ETAS[1:4]},
}
TRAINING = peers.TRAINING
HOLDOUT_SHARES = {"valid": 0.2, "test": 0.2}
# Networks that train as one, and numbers in their input that they may have together: more would
# only lose more work when a run is killed.
TOGETHER = 15
INPUTS_TOGETHER = 4_000


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

    @property
    def params(self) -> dict[str, Any]:
        """Parameters of the estimator."""
        numbers = {"alpha": self.alpha, "eta": self.eta}
        return METHODS[self.method] | {k: v for k, v in numbers.items() if v is not None}


@dataclass(frozen=True, eq=False)
class Split:
    """Positions of the rows to train with, to choose with and to test with."""

    kind: str
    number: int
    seed: int
    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray


@dataclass(frozen=True, eq=False)
class Job:
    """What one process does at a time: some configurations of one method on one split."""

    table: Table
    split: Split
    configs: tuple[Config, ...]
    training: Mapping[str, Any]
    grid: str

    def identity(self, config: Config) -> dict[str, Any]:
        """The part of a row that says which fit it is."""
        return identity(self.table, self.split, config, self.training, self.grid)

    @property
    def cost(self) -> int:
        """Roughly how long it takes, in steps of a narrow network: for the time that is left."""
        n_rows, width = len(self.split.train), 1 + self.table.X.shape[1] / 700
        if self.configs[0].method not in METHODS:
            return round(n_rows * width)
        n_steps = n_rows / self.training.get("batch_size", 100) + 2
        passes = 1.35 if self.configs[0].eta is not None else 1
        return round(len(self.configs) * self.training["max_epochs"] * n_steps * width * passes)


def configs_of(method: str, grid: str) -> list[Config]:
    """All configurations of a method: those of a grid, as far as the method reads its numbers.

    Examples
    --------
    >>> [len(configs_of(method, "paper")) for method in ("erm", "mixup", "mixupe", "logistic")]
    [1, 9, 45, 1]
    >>> configs_of("erm", "default")
    [Config(method='erm', alpha=None, eta=None)]
    """
    read = READ_BY[METHODS[method]["method"]] if method in METHODS else ()
    # Rows hold the numbers themselves: a preset may change.
    values = GRIDS.get(grid) or {name: (paper_settings().classifier[name],) for name in read}
    alphas = values["alpha"] if "alpha" in read else (None,)
    etas = values["eta"] if "eta" in read else (None,)
    return [Config(method, alpha, eta) for alpha in alphas for eta in etas]


def splits_of(table: Table, kind: str, n_seeds: int) -> list[Split]:
    """The splits of a table, the same for all methods: ``"holdout"``, or the ``"task"``'s own.

    A task's folds tell training from test rows only; a fifth of its training rows are set aside to
    choose with.
    """
    if kind == "holdout":
        return [_holdout(table.y, seed) for seed in range(n_seeds)]
    if table.folds is None:
        raise ValueError(
            f"Got splits='task' for {table.name}, which has no splits of its own, but expected an "
            f"OpenML task: use splits='holdout'."
        )
    kind = f"task {table.task_id}"  # a data set may have several tasks
    return [
        Split(kind, number, number, *_set_aside(train, table.y, 0.2, number), np.asarray(test))
        for number, (train, test) in enumerate(table.folds)
    ]


def _holdout(y: np.ndarray, seed: int) -> Split:
    rest, test = _set_aside(np.arange(len(y)), y, HOLDOUT_SHARES["test"], seed)
    share = HOLDOUT_SHARES["valid"] / (1 - HOLDOUT_SHARES["test"])
    return Split("holdout", seed, seed, *_set_aside(rest, y, share, seed), test)


def _set_aside(
    rows: np.ndarray, y: np.ndarray, share: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Split rows at random, with the same share of each class on both sides."""
    groups = _groups_of(y[rows], round(share * len(rows)))
    kept, aside = train_test_split(rows, test_size=share, random_state=seed, stratify=groups)
    return np.sort(kept), np.sort(aside)


def _groups_of(y: np.ndarray, n_aside: int) -> np.ndarray | None:
    """Classes to split by: those of too few rows to be on both sides count as one."""
    codes, counts = pd.factorize(y)[0], pd.Series(y).value_counts()
    rare = pd.Series(y).map(counts).to_numpy() < 2
    groups = np.where(rare, -1, codes)
    n_groups = len(np.unique(groups))
    # A lone row, or more groups than there are rows to set aside, cannot be shared out evenly.
    if rare.sum() == 1 or n_groups > min(n_aside, len(y) - n_aside):
        return None
    return groups


def params_text(method: str, training: Mapping[str, Any]) -> str:
    """What is set for a method besides alpha and eta, as rows hold it.

    Examples
    --------
    >>> params_text("erm", {"max_epochs": 3}), params_text("random-forest", {"max_epochs": 3})
    ('{"max_epochs": 3}', '{}')
    """
    if method in OWN:
        return as_json(own_params(method))
    params = training if method in METHODS else peers.params_of(method, training)
    return as_json(dict(params))


def identity(
    table: Table, split: Split, config: Config, training: Mapping[str, Any], grid: str
) -> dict[str, Any]:
    """The part of a row that says which fit it is."""
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
        "params": params_text(config.method, training),
        "grid": grid,
    }


def jobs_of(
    table: Table,
    splits: Iterable[Split],
    methods: Sequence[str],
    grid: str,
    training: Mapping[str, Any],
    is_done: Callable[[dict[str, Any]], bool] = lambda fit: False,
) -> Iterator[Job]:
    """Units of work for all fits that are not done yet, split by split."""
    n_together = max(1, min(TOGETHER, INPUTS_TOGETHER // max(1, table.X.shape[1])))
    for split in splits:
        for method in methods:
            configs = [
                config
                for config in configs_of(method, grid)
                if not is_done(identity(table, split, config, training, grid))
            ]
            for start in range(0, len(configs), n_together):
                yield Job(table, split, tuple(configs[start : start + n_together]), training, grid)
