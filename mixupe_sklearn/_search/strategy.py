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


def make_pruner(pruner: Any, space: Space, n_epochs: int | None, n_fits: int) -> Any:
    """Turn a name into a pruner: "auto" halves where the space is no grid.

    Rungs are numbers of epochs, counted over all fits of a trial. Halving judges first after a
    sixth of them, and then at three times as many: an earlier first rung saves more, and more
    often gives the best trial up (``python -m benchmarks.pruning`` shows what it saves and costs).
    The other pruners wait for a fifth of a fit, so that a network has begun to learn.

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
            return SuccessiveHalvingPruner(min_resource=max(1, n_steps // 6), reduction_factor=3)
        if pruner == "hyperband":
            return HyperbandPruner(min_resource=first, max_resource=n_steps, reduction_factor=3)
        if pruner == "median":
            return MedianPruner(n_warmup_steps=first)
        return WilcoxonPruner() if pruner == "wilcoxon" else NopPruner()
