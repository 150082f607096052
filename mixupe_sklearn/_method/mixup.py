"""Draw ``lam`` and the partners of a batch once, then apply the same draw to everything.

Randomness lives in the ``sample_*`` functions, which take a numpy Generator; ``mix`` and ``take``
are pure and never write to their input. Weights need no rule of their own: a weighted target is
``weight * target`` and the mass of a mixed row is its mixed weight, so the partner brings its own.
"""

from collections.abc import Mapping
from reprlib import repr as shortened
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor


class Draw(NamedTuple):
    """One step's randomness: what is mixed with what, how much, and where in the module.

    ``lam`` is a float (one for the batch) or an array ``(n_samples,)``; ``partner`` an array
    ``(n_samples,)`` of row numbers, or None where nothing is mixed; ``stage`` the number of module
    stages that run before mixing (0: the input itself is mixed); ``clean`` an array of the row
    numbers that the penalty is measured on, the first partners where rows are mixed, or None for
    all; ``toward`` an array ``(n_samples,)`` of the rows that a second-order penalty looks towards
    where there are no partners.

    Examples
    --------
    >>> import torch
    >>> from mixupe_sklearn import Draw, MixupELoss
    >>> module, X, y = torch.nn.Linear(3, 2), torch.randn(4, 3), torch.tensor([0, 1, 1, 0])
    >>> draw = Draw(lam=0.7, partner=np.array([1, 0, 3, 2]))   # the same step as often as you like
    >>> one, two = (MixupELoss()(module, X, y, draw=draw).loss for _ in range(2))
    >>> bool(one == two)
    True
    """

    lam: float | np.ndarray = 1.0
    partner: np.ndarray | None = None
    stage: int = 0
    clean: np.ndarray | None = None
    toward: np.ndarray | None = None

    def way_of(self, rows: np.ndarray | None) -> np.ndarray:
        """Which rows some rows, or all, look towards: their partners, else ``toward``."""
        others = self.toward if self.partner is None else self.partner
        assert others is not None
        return others if rows is None else others[rows]


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


def share_size(n_samples: int, fraction: float, least: int = 1) -> int:
    """How many rows a share of a batch has, rounded to whole rows.

    Examples
    --------
    >>> share_size(100, 0.25), share_size(3, 0.1), share_size(1, 0.5, least=2)
    (25, 1, 1)
    """
    return min(n_samples, max(least, round(fraction * n_samples)))


def sample_share(
    n_samples: int,
    fraction: float,
    rng: np.random.Generator,
    least: int = 1,
    partner: np.ndarray | None = None,
) -> np.ndarray | None:
    """Pick a share of a batch's rows at random, without replacement; all rows are None.

    Partners are a random permutation of the batch, so the first of them are such a share already,
    and nothing is drawn. Nor is it where all rows are taken.

    Parameters
    ----------
    n_samples : int
        Rows of the batch.
    fraction : float
        The share, above 0 and up to 1; it is rounded to whole rows.
    rng : numpy.random.Generator
        Source of randomness.
    least : int, default=1
        Rows at least, as far as the batch has them.
    partner : array of shape (n_samples,) or None, default=None
        The partners of the batch, or None where nothing is mixed.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> len(sample_share(100, 0.25, rng)), len(sample_share(3, 0.1, rng))
    (25, 1)
    >>> sample_share(4, 0.5, rng, partner=np.array([2, 0, 3, 1]))
    array([2, 0])
    >>> sample_share(3, 1.0, rng) is None
    True
    """
    n_seen = share_size(n_samples, fraction, least)
    if n_seen == n_samples:
        return None
    order = rng.permutation(n_samples) if partner is None else partner
    return order[:n_seen]


def take(values: Any, rows: np.ndarray | None) -> Any:
    """Return the given rows of a tensor, or of each in a dict; None returns all as they are.

    Examples
    --------
    >>> import numpy as np, torch
    >>> take(torch.tensor([1.0, 2.0, 3.0]), np.array([2, 0]))
    tensor([3., 1.])
    """
    if rows is None:
        return values
    if isinstance(values, Mapping):
        return {name: take(value, rows) for name, value in values.items()}
    return values[torch.as_tensor(rows, dtype=torch.long, device=values.device)]


def check_clean(rows: np.ndarray | None, n_samples: int) -> None:
    """Raise one sentence where a draw's ``clean`` rows are not rows of the batch.

    Examples
    --------
    >>> import numpy as np
    >>> check_clean(np.array([0, 4]), 3)
    Traceback (most recent call last):
        ...
    ValueError: Got draw.clean=[0, 4], but expected different row numbers from 0 to 2, or None ...
    """
    if rows is None:
        return
    numbers = torch.as_tensor(rows)
    is_whole = not (numbers.is_floating_point() or numbers.dtype == torch.bool)
    if is_whole and numbers.ndim == 1 and len(numbers) > 0:
        is_inside = bool(numbers.min() >= 0) and bool(numbers.max() < n_samples)
        if is_inside and len(numbers.unique()) == len(numbers):
            return
    raise ValueError(
        f"Got draw.clean={shortened(numbers.tolist())}, but expected different row numbers from 0 "
        f"to {n_samples - 1}, or None for all rows."
    )


def mix(
    values: Tensor,
    lam: float | np.ndarray,
    partner: np.ndarray | None,
    rows: np.ndarray | None = None,
) -> Tensor:
    """Return ``lam * values + (1 - lam) * values[partner]``, row by row.

    Parameters
    ----------
    values : Tensor of shape (n_samples, ...)
        Inputs, hidden states, targets or weights.
    lam : float or array of shape (n_samples,)
        Weight of the first sample.
    partner : array of shape (n_samples,) or None
        Row number of the second sample; None leaves the values as they are.
    rows : array or None, default=None
        Numbers of the rows to return; None: all.

    Examples
    --------
    >>> import numpy as np, torch
    >>> mix(torch.tensor([0.0, 4.0]), 0.75, np.array([1, 0]))
    tensor([1., 3.])
    >>> mix(torch.tensor([0.0, 4.0]), np.array([0.5, 1.0]), np.array([1, 0]))
    tensor([2., 4.])
    >>> mix(torch.tensor([0.0, 4.0]), 0.75, np.array([1, 0]), rows=np.array([1]))
    tensor([3.])
    """
    if partner is None:
        return take(values, rows)
    if rows is not None:
        partner, lam = partner[rows], lam[rows] if isinstance(lam, np.ndarray) else lam
    values, other = take(values, rows), values[torch.as_tensor(partner, device=values.device)]
    if isinstance(lam, np.ndarray):
        shape = (-1,) + (1,) * (values.ndim - 1)
        weight = torch.as_tensor(lam, dtype=values.dtype, device=values.device).reshape(shape)
        return weight * values + (1 - weight) * other
    return lam * values + (1 - lam) * other
