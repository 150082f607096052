"""Mixup: draw ``lam`` and the partners of a batch once, then apply the same draw to everything.

The ``sample_*`` functions draw from a numpy Generator. ``mix`` and ``take`` are pure and never
write to their input. Sample weights need no rule of their own: a weighted target is
``weight * target``, and the mass of a mixed sample is its mixed weight.
"""

from collections.abc import Mapping
from reprlib import repr as shortened
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor


class Draw(NamedTuple):
    """The randomness of one step: what is mixed with what, how much, and where in the module.

    ``lam`` is a float (one for the batch) or an array ``(n_samples,)``. ``partner`` is an array
    ``(n_samples,)`` of sample indices, or None if nothing is mixed. ``stage`` is the number of
    module stages that run before mixing; 0 mixes the input. ``clean`` is an array with the indices
    of the samples that the penalty is computed on, or None for all; if samples are mixed, they are
    the first partners. ``toward`` is an array ``(n_samples,)`` with the other sample of each for
    the second-order penalty if there are no partners.

    Examples
    --------
    >>> import torch
    >>> from mixupe_sklearn import Draw, MixupELoss
    >>> module, X, y = torch.nn.Linear(3, 2), torch.randn(4, 3), torch.tensor([0, 1, 1, 0])
    >>> draw = Draw(lam=0.7, partner=np.array([1, 0, 3, 2]))   # repeats the same step
    >>> one, two = (MixupELoss()(module, X, y, draw=draw).loss for _ in range(2))
    >>> bool(one == two)
    True
    """

    lam: float | np.ndarray = 1.0
    partner: np.ndarray | None = None
    stage: int = 0
    clean: np.ndarray | None = None
    toward: np.ndarray | None = None

    def mix(self, values: Tensor) -> Tensor:
        """``lam * values + (1 - lam) * values[partner]``; the values if nothing is mixed."""
        return mix(values, self.lam, self.partner)

    def take_clean(self, values: Any) -> Any:
        """The samples that run clean: those of ``clean``, or all if nothing is mixed."""
        return take(values, None if self.partner is None else self.clean)

    def others(self) -> np.ndarray:
        """The other sample of each one that runs clean: its partner, else ``toward``."""
        others = self.toward if self.partner is None else self.partner
        assert others is not None
        return self.take_clean(others)

    def expand(self, logits: Tensor, n_samples: int) -> Tensor:
        """Logits with one row per sample of the batch. A shard of a batch has fewer."""
        return logits

    def reduce(self, mixup: Any, penalty: Any) -> tuple[Any, Any]:
        """The terms of the loss over the whole batch. Shards of a batch add theirs up."""
        return mixup, penalty


def is_unmixed(alpha: float, beta: float) -> bool:
    """Whether ``Beta(alpha, beta)`` has all its mass at an end, so that nothing is mixed."""
    return alpha == 0 or beta == 0


def sample_lam(
    alpha: float, beta: float, rng: np.random.Generator, size: int | None = None
) -> float | np.ndarray:
    """Draw ``lam``, the mixing weight of the first sample, from ``Beta(alpha, beta)``.

    Parameters
    ----------
    alpha, beta : float
        Parameters of the Beta distribution; a zero means no mixing, ``lam = 1``.
    rng : numpy.random.Generator
        Source of randomness.
    size : int or None, default=None
        None draws one value for the batch (the paper), an integer one per sample.

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
    """Draw the partner of each sample: a permutation of the batch, as in Algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> sorted(sample_partner(4, np.random.default_rng(0)).tolist())
    [0, 1, 2, 3]
    """
    return rng.permutation(n_samples)


def share_size(n_samples: int, fraction: float, least: int = 1) -> int:
    """Number of samples in a fraction of a batch, rounded, and at least ``least``.

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
    """Select a random fraction of a batch without replacement; None stands for all samples.

    Partners are a random permutation of the batch, so the first ones already are such a selection.
    Nothing is drawn then, nor if all samples are taken.

    Parameters
    ----------
    n_samples : int
        Samples of the batch.
    fraction : float
        The fraction, above 0 and up to 1, rounded to a number of samples.
    rng : numpy.random.Generator
        Source of randomness.
    least : int, default=1
        Minimum number of samples, if the batch has as many.
    partner : array of shape (n_samples,) or None, default=None
        The partners of the batch, or None if nothing is mixed.

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
    n_taken = share_size(n_samples, fraction, least)
    if n_taken == n_samples:
        return None
    order = rng.permutation(n_samples) if partner is None else partner
    return order[:n_taken]


def take(values: Any, rows: np.ndarray | None) -> Any:
    """Return some samples of a tensor, an array, or each tensor of a dict; None returns all.

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
    if isinstance(values, np.ndarray):
        return values[rows]
    return values[torch.as_tensor(rows, dtype=torch.long, device=values.device)]


def check_clean(rows: np.ndarray | None, n_samples: int) -> None:
    """Raise a ValueError if ``clean`` of a draw does not index samples of the batch.

    Examples
    --------
    >>> import numpy as np
    >>> check_clean(np.array([0, 4]), 3)
    Traceback (most recent call last):
        ...
    ValueError: Got draw.clean=[0, 4], but expected distinct sample indices from 0 to 2, or None ...
    """
    if rows is None:
        return
    indices = torch.as_tensor(rows)
    is_integer = not (indices.is_floating_point() or indices.dtype == torch.bool)
    if is_integer and indices.ndim == 1 and len(indices) > 0:
        is_inside = bool(indices.min() >= 0) and bool(indices.max() < n_samples)
        if is_inside and len(indices.unique()) == len(indices):
            return
    raise ValueError(
        f"Got draw.clean={shortened(indices.tolist())}, but expected distinct sample indices from "
        f"0 to {n_samples - 1}, or None for all samples."
    )


def mix(
    values: Tensor,
    lam: float | np.ndarray,
    partner: np.ndarray | None,
    rows: np.ndarray | None = None,
) -> Tensor:
    """Return ``lam * values + (1 - lam) * values[partner]``, sample by sample.

    This is line 4 of Algorithm 1.

    Parameters
    ----------
    values : Tensor of shape (n_samples, ...)
        Inputs, hidden states, targets or weights.
    lam : float or array of shape (n_samples,)
        Weight of the first sample.
    partner : array of shape (n_samples,) or None
        Index of the second sample; None leaves the values unmixed.
    rows : array or None, default=None
        Indices of the samples to return; None means all.

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
