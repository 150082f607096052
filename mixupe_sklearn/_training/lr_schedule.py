"""How the learning rate moves over the steps of a training."""

import math

import numpy as np

SCHEDULES = ("constant", "cosine", "onecycle")
# Of "onecycle", as in torch: the share of steps that go up, and what the first and the last step
# are divided by.
RISE, FIRST, LAST = 0.3, 25.0, 1e4


def rate_factors(schedule: str, n_steps: int) -> list[float] | None:
    """What the learning rate is multiplied with at each step; None where it stays as it is.

    Parameters
    ----------
    schedule : {"constant", "cosine", "onecycle"}
        ``"cosine"`` falls along half a cosine to zero, ``"onecycle"`` rises first and falls then,
        both as torch's schedulers of these names do.
    n_steps : int
        How many steps there will be.

    Returns
    -------
    factors : list of float or None
        One for each step.

    Examples
    --------
    >>> [round(factor, 3) for factor in rate_factors("cosine", 4)]
    [1.0, 0.854, 0.5, 0.146]
    >>> rate_factors("constant", 4) is None
    True
    """
    if schedule == "constant":
        return None
    steps = np.arange(n_steps)
    if schedule == "cosine":
        return _fall(steps / n_steps).tolist()
    peak, last = RISE * n_steps - 1, n_steps - 1
    up = 1 - _fall(steps / peak) if peak > 0 else np.ones(n_steps)
    down = _fall((steps - peak) / (last - peak))
    rising = 1 / FIRST + (1 - 1 / FIRST) * up
    falling = 1 / (FIRST * LAST) + (1 - 1 / (FIRST * LAST)) * down
    return np.where(steps <= peak, rising, falling).tolist()


def _fall(share: np.ndarray) -> np.ndarray:
    """Half a cosine: 1 at a share of 0, and 0 at a share of 1."""
    return 0.5 * (1 + np.cos(math.pi * share))


def n_epochs_for(max_epochs: int, min_steps: int, n_rows: int, batch_size: int) -> int:
    """How many epochs there are to be, so that a small table is not trained with a few steps.

    Examples
    --------
    >>> n_epochs_for(25, min_steps=0, n_rows=80, batch_size=100)
    25
    >>> n_epochs_for(25, min_steps=1000, n_rows=450, batch_size=100)
    200
    """
    return max(max_epochs, math.ceil(min_steps / math.ceil(n_rows / batch_size)))


def n_epochs_per_evaluation(n_epochs: int) -> int:
    """How many epochs pass between two looks at validation rows: there are a hundred at most.

    Examples
    --------
    >>> n_epochs_a_look(50), n_epochs_a_look(500)
    (1, 5)
    """
    return math.ceil(n_epochs / 100)
