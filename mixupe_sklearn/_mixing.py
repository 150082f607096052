"""Draw ``lam`` and the partners of a batch once, then apply the same draw to everything.

Randomness lives in the two ``sample_*`` functions, which take a numpy Generator; ``mix`` is pure
and never writes to its input. Weights need no rule of their own: a weighted target is
``weight * target`` and the mass of a mixed row is its mixed weight, so the partner brings its own.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Draw(NamedTuple):
    """One step's randomness: what is mixed with what, how much, and where in the module.

    ``lam`` is a float (one for the batch) or an array ``(n_samples,)``; ``partner`` an array
    ``(n_samples,)`` of row numbers, or None where nothing is mixed; ``stage`` the number of module
    stages that run before mixing (0: the input itself is mixed).
    """

    lam: float | np.ndarray = 1.0
    partner: np.ndarray | None = None
    stage: int = 0


def is_unmixed(alpha: float, beta: float) -> bool:
    """Whether ``Beta(alpha, beta)`` has all its mass at an end, so that every row stays itself."""
    return alpha == 0 or beta == 0


def sample_lam(
    alpha: float, beta: float, rng: np.random.Generator, size: int | None = None
) -> float | np.ndarray:
    """Draw the mixing weight of the first sample from ``Beta(alpha, beta)``.

    Parameters
    ----------
    alpha, beta : float
        Parameters of the Beta distribution; a zero means no mixing, ``lam = 1``.
    rng : numpy.random.Generator
        Source of randomness.
    size : int or None, default=None
        None draws one number for the whole batch (the paper), an integer one per sample.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> 0 <= sample_lam(0.5, 0.5, rng) <= 1
    True
    >>> sample_lam(0.0, 0.0, rng, size=3)
    array([1., 1., 1.])
    """
    if is_unmixed(alpha, beta):
        return 1.0 if size is None else np.ones(size)
    return rng.beta(alpha, beta, size)


def sample_partner(n_samples: int, rng: np.random.Generator) -> np.ndarray:
    """Draw the other sample of each pair: a permutation of the batch, as in Algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> sorted(sample_partner(4, np.random.default_rng(0)).tolist())
    [0, 1, 2, 3]
    """
    return rng.permutation(n_samples)


def mix(values: Tensor, lam: float | np.ndarray, partner: np.ndarray | None) -> Tensor:
    """Return ``lam * values + (1 - lam) * values[partner]``, row by row.

    Parameters
    ----------
    values : Tensor of shape (n_samples, ...)
        Inputs, hidden states, targets or weights.
    lam : float or array of shape (n_samples,)
        Weight of the first sample.
    partner : array of shape (n_samples,) or None
        Row number of the second sample; None leaves the values as they are.

    Examples
    --------
    >>> import numpy as np, torch
    >>> mix(torch.tensor([0.0, 4.0]), 0.75, np.array([1, 0]))
    tensor([1., 3.])
    >>> mix(torch.tensor([0.0, 4.0]), np.array([0.5, 1.0]), np.array([1, 0]))
    tensor([2., 4.])
    """
    if partner is None:
        return values
    other = values[torch.as_tensor(partner, device=values.device)]
    if isinstance(lam, np.ndarray):
        shape = (-1,) + (1,) * (values.ndim - 1)
        weight = torch.as_tensor(lam, dtype=values.dtype, device=values.device).reshape(shape)
        return weight * values + (1 - weight) * other
    return lam * values + (1 - lam) * other
