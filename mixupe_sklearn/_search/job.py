"""The job that the workers of a search share, made from the parameters of the search."""

import math
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from mixupe_sklearn._estimators.base import BaseMixupE
from mixupe_sklearn._search.samplers import make_pruner, make_sampler
from mixupe_sklearn._search.space import Space, check_names, named_space
from mixupe_sklearn._search.trial import Task, final_estimator
from mixupe_sklearn._training.config import n_epochs_for
from mixupe_sklearn._utils.warnings import warn_user

# Default number of configurations for a continuous space.
N_TRIALS = 50


@dataclass(frozen=True)
class Job:
    """Everything that a worker needs; it is sent to other processes."""

    task: Task
    space: Space
    storage: Any
    study_name: str
    sampler: Any
    pruner: Any
    n_trials: float
    n_jobs: int
    deadline: float  # wall-clock time, which processes share
    vectorize: bool | str
    n_epochs: int | None  # the longest training of a fit; None where no epochs are reported
    token: str  # identifies the trials of this search's workers


def resolve_space(space: Any, estimator: Any) -> Space:
    """Turn the ``space`` parameter into a Space whose names the estimator has."""
    prefix, core = final_estimator(estimator)
    if isinstance(space, Mapping):
        check_names(space, estimator.get_params(deep=True))
        return Space.of(space)
    if space not in ("paper", "default"):
        raise ValueError(
            f"Got space={space!r}, but expected 'paper', 'default' or a dict of lists "
            f"or Optuna distributions."
        )
    if not isinstance(core, BaseMixupE):
        raise ValueError(
            f"Got space={space!r} for a {type(core).__name__}, but expected a dict "
            f"of its parameters."
        )
    return named_space(space, prefix, core.method)


def draw_seeds(estimator: Any, space: Space, n_repeats: int, random_state: Any) -> list[int | None]:
    """A seed for each repeat; None keeps the estimator's own, or the one searched over."""
    prefix, core = final_estimator(estimator)
    own = core.get_params().get("random_state", NotImplemented)
    is_searched = f"{prefix}random_state" in space.distributions
    if n_repeats > 1 and (is_searched or own is NotImplemented):
        why = "the space has its random_state" if is_searched else "it has no random_state to vary"
        raise ValueError(
            f"Got n_repeats={n_repeats} for a {type(core).__name__}, but expected 1: {why}."
        )
    if is_searched or own is NotImplemented or (own is not None and n_repeats == 1):
        return [None]
    source = _generator(own if random_state is None else random_state)
    return [int(seed) for seed in source.randint(2**31 - 1, size=n_repeats)]


def _generator(random_state: Any) -> np.random.RandomState:
    # None means fresh entropy: numpy's global generator is not touched.
    return np.random.RandomState() if random_state is None else check_random_state(random_state)


def longest_training(task: Task, space: Space) -> int | None:
    """Upper bound of the number of epochs of a fit; None where no epochs are reported."""
    prefix, core = final_estimator(task.estimator)
    if not isinstance(core, BaseMixupE):
        return None

    def largest(name: str, low: float) -> Any:
        """The largest value of a parameter; the fit itself raises for invalid ones."""
        kind: Any = space.distributions.get(prefix + name)
        fixed = getattr(core, name)
        values = getattr(kind, "choices", None) or [getattr(kind, "high", fixed)]
        return max((v for v in values if isinstance(v, Real) and float(v) >= low), default=low)

    n_rows = min(len(train) for train, _ in task.folds)
    if largest("early_stopping", False):
        # One network holds out this fraction. An ensemble deals its samples into whole parts.
        fraction = largest("validation_fraction", 0.0)
        n_parts = max(2, round(1 / fraction)) if fraction else n_rows
        n_rows = max(1, n_rows - max(round(fraction * n_rows), n_rows // n_parts))
    lengths = (largest("max_epochs", 1), largest("min_steps", 0))
    return n_epochs_for(*lengths, n_rows, largest("batch_size", 1))


def make_job(search: Any, task: Task, space: Space, storage: Any, n_jobs: int) -> Job:
    """Make the job of a search from its parameters."""
    core = final_estimator(task.estimator)[1]
    n_epochs = longest_training(task, space)
    pruner = make_pruner(search.pruner, space, n_epochs, task.n_fits)
    if n_epochs is None and search.pruner not in (None, "none", "wilcoxon"):
        warn_user(
            f"A {type(core).__name__} reports no epochs, so its trials cannot be pruned by epoch; "
            f"pruner='wilcoxon' compares folds instead, pruner='none' turns this warning off."
        )
    seed = _generator(search.random_state).randint(2**31 - 1)
    sampler = make_sampler(search.sampler, space, search.n_trials, seed)
    n_trials = search.n_trials or (math.inf if search.timeout or space.is_grid else N_TRIALS)
    n_trials = min(n_trials, space.size)
    return Job(
        task=task,
        space=space,
        storage=storage,
        study_name=search.study_name,
        sampler=sampler,
        pruner=pruner,
        n_trials=n_trials,
        n_jobs=n_jobs,
        deadline=math.inf if search.timeout is None else time.time() + search.timeout,
        vectorize=search.vectorize,
        n_epochs=n_epochs,
        token=uuid.uuid4().hex,
    )
