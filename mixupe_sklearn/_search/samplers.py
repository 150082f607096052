"""Samplers and pruners by name."""

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
from mixupe_sklearn._utils.parameter_rules import Choice, check_rules

SAMPLERS = Choice(("auto", "grid", "tpe", "random"), ", or an Optuna sampler")
# A grid of at most this many points is enumerated even if only part of it is tried: no repeats.
SMALL_GRID = 1000
# Trials that run in full before halving prunes any.
N_FULL = 5
PRUNERS = Choice(
    ("auto", "halving", "hyperband", "median", "wilcoxon", "none"), ", an Optuna pruner or None"
)


def make_sampler(sampler: Any, space: Space, n_trials: float | None, seed: int | None) -> Any:
    """Turn a name into a sampler: "auto" enumerates a grid that is small or tried in full."""
    if isinstance(sampler, GridSampler):
        sampler = "grid"
    if isinstance(sampler, BaseSampler):
        return copy.deepcopy(sampler)  # it is modified, and parameters must not be
    check_rules({"sampler": sampler}, {"sampler": SAMPLERS})
    is_full = n_trials is None or n_trials >= space.size
    is_walked = space.is_grid and (is_full or space.size <= SMALL_GRID)
    if sampler == "grid" or (sampler == "auto" and is_walked):
        if not space.is_grid:
            raise ValueError(
                "Got sampler='grid' with a space that has ranges, but expected lists only."
            )
        # All workers on a study number the points alike.
        return GridSampler(space.grid, seed=0)
    if sampler == "random":
        return RandomSampler(seed=seed)
    with quiet():
        return TPESampler(multivariate=True, seed=seed)


class PruneAfterTrials(BasePruner):
    """Never prunes the first trials of a study, and follows another pruner afterwards.

    With few trials to compare, halving would mostly keep the first one. The other pruner is called
    from the start, since it keeps state.
    """

    def __init__(self, pruner: BasePruner, n_trials: int):
        self.pruner = pruner
        self.n_trials = n_trials

    def prune(self, study: Any, trial: Any) -> bool:
        """Whether to prune the trial."""
        is_bad = self.pruner.prune(study, trial)
        return is_bad and trial.number >= self.n_trials


def make_pruner(pruner: Any, space: Space, n_epochs: int | None, n_fits: int) -> Any:
    """Turn a name into a pruner: "auto" means halving unless the space is a grid.

    Steps are epochs, counted over all fits of a trial. Every pruner waits for a fifth of the first
    fit, until the network has begun to learn. Halving decides then, and again whenever the number
    of epochs has tripled (``python -m benchmarks.studies.search`` measures its savings and costs).
    """
    if isinstance(pruner, BasePruner):
        return pruner
    pruner = "none" if pruner is None else pruner
    check_rules({"pruner": pruner}, {"pruner": PRUNERS})
    if pruner == "auto":
        pruner = "none" if space.is_grid or n_epochs is None else "halving"
    n_steps = (n_epochs or 1) * n_fits
    first = max(1, (n_epochs or 1) // 5)
    with quiet():
        if pruner == "halving":
            halving = SuccessiveHalvingPruner(min_resource=first, reduction_factor=3)
            return PruneAfterTrials(halving, N_FULL)
        if pruner == "hyperband":
            return HyperbandPruner(min_resource=first, max_resource=n_steps, reduction_factor=3)
        if pruner == "median":
            return MedianPruner(n_warmup_steps=first)
        return WilcoxonPruner() if pruner == "wilcoxon" else NopPruner()
