"""How to look for good configurations, and when to give one up."""

import copy
from typing import Any

from optuna.pruners import (
    BasePruner,
    HyperbandPruner,
    MedianPruner,
    NopPruner,
    SuccessiveHalvingPruner,
    WilcoxonPruner,
)
from optuna.samplers import BaseSampler, GridSampler, RandomSampler, TPESampler

from mixupe_sklearn._search.space import Space
from mixupe_sklearn._search.storage import quiet
from mixupe_sklearn._search.study import Grid

SAMPLERS = ("auto", "grid", "tpe", "random")
# Up to so many points a grid is walked even if only some of them are to be tried: no point twice.
SMALL_GRID = 1000
# Trials that halving lets run to their end before it gives any up.
N_FULL = 5
PRUNERS = ("auto", "halving", "hyperband", "median", "wilcoxon", "none")


def make_sampler(sampler: Any, space: Space, n_trials: float | None, seed: int | None) -> Any:
    """Turn a name into a sampler: "auto" walks a grid that is small or to be tried in full.

    Examples
    --------
    >>> space = Space.of({"alpha": [0.1, 1.0]})
    >>> type(make_sampler("auto", space, n_trials=None, seed=0)).__name__
    'Grid'
    """
    if isinstance(sampler, GridSampler):
        sampler = "grid"
    if isinstance(sampler, BaseSampler):
        return copy.deepcopy(sampler)  # it is written to, and a parameter belongs to the user
    if sampler not in SAMPLERS:
        raise ValueError(
            f"Got sampler={sampler!r}, but expected a sampler of Optuna's or one of the names "
            f"{', '.join(map(repr, SAMPLERS))}."
        )
    is_full = n_trials is None or n_trials >= space.size
    is_walked = space.is_grid and (is_full or space.size <= SMALL_GRID)
    if sampler == "grid" or (sampler == "auto" and is_walked):
        if not space.is_grid:
            raise ValueError(
                "Got sampler='grid' with a space that holds ranges, but expected lists only."
            )
        return Grid(space.grid)
    if sampler == "random":
        return RandomSampler(seed=seed)
    with quiet():
        return TPESampler(multivariate=True, seed=seed)


class AfterSome(BasePruner):
    """Lets the first trials of a study run to their end, and asks another pruner from then on.

    With few to compare with, halving would mostly keep the first trial. It is asked all along,
    since it remembers what it is asked about.
    """

    def __init__(self, pruner: BasePruner, n_trials: int):
        self.pruner = pruner
        self.n_trials = n_trials

    def prune(self, study: Any, trial: Any) -> bool:
        """Whether the trial is to end here."""
        is_bad = self.pruner.prune(study, trial)
        return is_bad and trial.number >= self.n_trials


def make_pruner(pruner: Any, space: Space, n_epochs: int | None, n_fits: int) -> Any:
    """Turn a name into a pruner: "auto" halves where the space is no grid.

    Steps are epochs, counted over all fits of a trial. Every pruner waits for a fifth of the first
    fit, so that a network has begun to learn; halving judges then, and each time that there are
    three times as many (``python -m benchmarks.pruning`` shows what it saves and costs).

    Examples
    --------
    >>> space = Space.of({"alpha": [0.1, 1.0]})
    >>> type(make_pruner("auto", space, n_epochs=25, n_fits=5)).__name__
    'NopPruner'
    """
    if isinstance(pruner, BasePruner):
        return pruner
    if pruner is not None and pruner not in PRUNERS:
        raise ValueError(
            f"Got pruner={pruner!r}, but expected a pruner of Optuna's, None or one of the names "
            f"{', '.join(map(repr, PRUNERS))}."
        )
    if pruner == "auto":
        pruner = "none" if space.is_grid or n_epochs is None else "halving"
    n_steps = (n_epochs or 1) * n_fits
    first = max(1, (n_epochs or 1) // 5)
    with quiet():
        if pruner == "halving":
            halving = SuccessiveHalvingPruner(min_resource=first, reduction_factor=3)
            return AfterSome(halving, N_FULL)
        if pruner == "hyperband":
            return HyperbandPruner(min_resource=first, max_resource=n_steps, reduction_factor=3)
        if pruner == "median":
            return MedianPruner(n_warmup_steps=first)
        return WilcoxonPruner() if pruner == "wilcoxon" else NopPruner()
