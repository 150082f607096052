"""The formulas of the paper, each once, with its equation number.

With the loss of a generalised linear form, ``l = h(f(x)) - y'f(x)`` (equation 1), whose ``h`` has
the gradient ``g`` (the predicted mean), and ``residual = g(f(x)) - y``::

    X_mixed = lam X + (1 - lam) X[partner]                      Algorithm 1, line 4
    q     =  residual' J_f(x) (E[x'] - x)                       equation (4), directional penalty
    q_hat = -residual' f(x)                                     equation (5), logit penalty
    R     =  E[1-lam] / n * sum |q|                             equation (7), with q or q_hat
    loss  =  loss_scale * (mixup_loss + eta * R)                equation (8)
    loss_scale = |mixup_loss| / |mixup_loss + eta * R|          equation (9)

``q`` equals ``q_hat`` for a bias-free ReLU network (``J_f(x) x = f(x)``) and ``E[x'] = 0``. Leading
dimensions of logits and targets may index networks. The ``sample_*`` functions draw from a numpy
Generator; all others are pure. Sample weights need no rule of their own: a weighted target is
``weight * target``, and the mass of a mixed sample is its mixed weight.
"""

from collections.abc import Callable, Mapping
from reprlib import repr as shortened
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus


class Head(NamedTuple):
    """A generalised linear form, as functions of the logits ``(n_samples, n_outputs)``.

    ``potential`` is ``h``, one value per sample. ``mean`` is its gradient ``g``. ``curve(mean, v)``
    is its Hessian at that mean times ``v``. ``floor(target, mass)`` is the minimum of
    ``mass * h(f) - target'f`` over ``f``, where it has a closed form (squared error). The loss
    subtracts it, which changes no gradient and makes the loss non-negative.
    """

    potential: Callable[[Tensor], Tensor]
    mean: Callable[[Tensor], Tensor]
    curve: Callable[[Tensor, Tensor], Tensor]
    floor: Callable[[Tensor, Tensor], Tensor] | None = None


def _softmax_curve(mean: Tensor, vector: Tensor) -> Tensor:
    return mean * (vector - (mean * vector).sum(dim=-1, keepdim=True))


def _squared_floor(target: Tensor, mass: Tensor) -> Tensor:
    # A sample of zero mass has a zero target. Its floor is 0, not 0/0.
    return -0.5 * target.square().sum(dim=-1) / mass.clamp_min(torch.finfo(mass.dtype).tiny)


HEADS = {
    "softmax": Head(
        potential=lambda logits: logits.logsumexp(dim=-1),
        mean=lambda logits: logits.softmax(dim=-1),
        curve=_softmax_curve,
    ),
    "sigmoid": Head(
        potential=lambda logits: softplus(logits).sum(dim=-1),
        mean=torch.sigmoid,
        curve=lambda mean, vector: mean * (1 - mean) * vector,
    ),
    "squared": Head(
        potential=lambda logits: 0.5 * logits.square().sum(dim=-1),
        mean=lambda logits: logits,
        curve=lambda mean, vector: vector,
        floor=_squared_floor,
    ),
}


def head_of(head: str | Head) -> Head:
    """The head of a name; a ``Head`` is returned unchanged."""
    return head if isinstance(head, Head) else HEADS[head]


def glm_loss(
    logits: Tensor, target: Tensor, mass: Tensor | None = None, head: str | Head = "softmax"
) -> tuple[Tensor, Tensor]:
    """Loss ``mass * h(f) - target'f`` of each sample and its gradient ``mass * g(f) - target``.

    Parameters
    ----------
    logits, target : Tensor of shape (..., n_samples, n_outputs)
        Module output and (mixed, weighted) targets.
    mass : Tensor of shape (..., n_samples) or None, default=None
        (Mixed) sample weights; None means ones.
    head : {"softmax", "sigmoid", "squared"} or Head, default="softmax"
        Which ``h``.

    Returns
    -------
    loss : Tensor of shape (..., n_samples)
    gradient : Tensor of shape (..., n_samples, n_outputs)

    Examples
    --------
    >>> import torch
    >>> loss, gradient = glm_loss(torch.zeros(1, 2), torch.tensor([[1.0, 0.0]]))
    >>> loss, gradient                                   # log 2, and (1/2 - 1, 1/2 - 0)
    (tensor([0.6931]), tensor([[-0.5000,  0.5000]]))
    >>> glm_loss(torch.tensor([[3.0]]), torch.tensor([[1.0]]), head="squared")[0]
    tensor([2.])
    """
    form = head_of(head)
    potential, mean = form.potential(logits), form.mean(logits)
    if mass is not None:
        potential, mean = mass * potential, mass[..., None] * mean
    loss = potential - (target * logits).sum(dim=-1)
    if form.floor is not None:
        loss = loss - form.floor(target, torch.ones_like(loss) if mass is None else mass)
    return loss, mean - target


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
    lam: float | np.ndarray | Tensor,
    partner: Any,
    rows: np.ndarray | None = None,
    *,
    out: Tensor | None = None,
    other: Tensor | None = None,
) -> Tensor:
    """Return ``lam * values + (1 - lam) * values[partner]``, sample by sample.

    This is line 4 of Algorithm 1.

    Parameters
    ----------
    values : Tensor of shape (n_samples, ...)
        Inputs, hidden states, targets or weights; further leading dimensions may index networks.
    lam : float, array of shape (n_samples,), or Tensor
        Weight of the first sample. A Tensor broadcasts against the values.
    partner : array or Tensor of as many entries as there are samples, or None
        Index of the second sample, counted over all leading dimensions; None leaves the values
        unmixed.
    rows : array or None, default=None
        Indices of the samples to return; None means all.
    out, other : Tensor or None, default=None
        Memory of the result and of ``values[partner]``.

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
        others, values = take(values, partner), take(values, rows)
    else:
        others = partners_of(values, partner, other)
    if isinstance(lam, np.ndarray):
        shape = (-1,) + (1,) * (values.ndim - 1)
        lam = torch.as_tensor(lam, dtype=values.dtype, device=values.device).reshape(shape)
    return torch.lerp(others, values, lam, out=out)


def partners_of(values: Tensor, partner: Any, out: Tensor | None = None) -> Tensor:
    """Return ``values[partner]``, with samples counted over all leading dimensions.

    Examples
    --------
    >>> import torch
    >>> partners_of(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([1, 0, 3, 2]))
    tensor([[2., 1.],
            [4., 3.]])
    """
    index = torch.as_tensor(partner, dtype=torch.long, device=values.device)
    rows = values.reshape(index.numel(), -1)
    out = None if out is None else out.view_as(rows)
    return torch.index_select(rows, 0, index, out=out).view(values.shape)


def one_minus_lam_mean(alpha: float, beta: float | None = None) -> float:
    """``E[1 - lam]`` of equation (7), ``2ab / ((a+b)(a+b+1))``.

    The expectation is over the mixture that Mixup induces, the paper's ``D_lambda``:
    ``a/(a+b) Beta(a+1, b) + b/(a+b) Beta(b+1, a)``. For ``alpha = beta`` the value is
    ``alpha / (2 alpha + 1)``, the paper's ``1 - (alpha+1)/(2 alpha+1)``.

    Examples
    --------
    >>> one_minus_lam_mean(1.0)
    0.3333333333333333
    >>> one_minus_lam_mean(1.0, 3.0)
    0.3
    >>> one_minus_lam_mean(0.0)
    0.0
    """
    beta = alpha if beta is None else beta
    if alpha == 0 or beta == 0:
        return 0.0
    # a/(a+b) first, so that the product stays finite for every finite pair.
    return 2 * (alpha / (alpha + beta)) * (beta / (alpha + beta + 1))


def one_minus_lam_moment(order: int, alpha: float, beta: float | None = None) -> float:
    """``E[(1 - lam)**order]`` under the same mixture.

    Examples
    --------
    >>> [round(one_minus_lam_moment(order, 1.0), 4) for order in (1, 2, 3)]   # of Beta(1, 2)
    [0.3333, 0.1667, 0.1]
    """
    beta = alpha if beta is None else beta
    if alpha == 0 or beta == 0:
        return 0.0
    # If lam is Beta(alpha+1, beta), then 1 - lam is Beta(beta, alpha+1), and vice versa.
    total = 0.0
    for share, first in ((alpha, beta), (beta, alpha)):
        value = share / (alpha + beta)
        for step in range(order):
            value *= (first + step) / (alpha + beta + 1 + step)
        total += value
    return total


def logit_penalty(
    logits: Tensor, y_onehot: Tensor, head: str | Head = "softmax"
) -> tuple[Tensor, Tensor]:
    """``q_hat = (y - g(f))' f`` of each sample, equation (5), and its gradient.

    The gradient with respect to the logits is ``(y - g) - g'(f) f``. For classes, ``q_hat`` is the
    logit of the true class minus the mean logit under the predicted probabilities: positive if the
    true class leads, negative if another one does. The loss takes the absolute value per sample.

    Parameters
    ----------
    logits : Tensor of shape (..., n_samples, n_outputs)
        Module output on the clean batch.
    y_onehot : Tensor of shape (..., n_samples, n_outputs)
        Targets.
    head : {"softmax", "sigmoid", "squared"} or Head, default="softmax"
        Which ``h``.

    Returns
    -------
    q_hat : Tensor of shape (..., n_samples)
    gradient : Tensor of shape (..., n_samples, n_outputs)

    Examples
    --------
    >>> import torch                                     # p = (3/4, 1/4): q_hat = log(3) / 4
    >>> logits = torch.tensor([[3.0, 1.0]]).log()
    >>> logit_penalty(logits, torch.tensor([[1.0, 0.0]]))[0]
    tensor([0.2747])
    """
    form = head_of(head)
    mean = form.mean(logits)
    residual = mean - y_onehot
    return -(residual * logits).sum(dim=-1), -residual - form.curve(mean, logits)


def directional_penalty(
    logits: Tensor,
    X: Tensor,
    y_onehot: Tensor,
    X_mean: Tensor | float,
    head: str | Head = "softmax",
) -> Tensor:
    """``q = (g(f) - y)' J_f(x) (E[x'] - x)`` of each sample, equation (4), exact.

    One vector-Jacobian product computes it. The result is differentiable with respect to the
    parameters, through the residual and through the Jacobian. Entry ``i`` is the derivative of
    sample ``i`` alone unless samples interact, as in BatchNorm in training mode.

    Parameters
    ----------
    logits : Tensor of shape (..., n_samples, n_outputs)
        Module output, computed from ``X``; leading dimensions may index models.
    X : Tensor of shape (..., n_samples, ...)
        Input (or hidden state) that requires a gradient, with the same leading dimensions.
    y_onehot : Tensor of shape (..., n_samples, n_outputs)
        Targets.
    X_mean : Tensor or float
        ``E[x']``, broadcastable to ``X``.
    head : {"softmax", "sigmoid", "squared"} or Head, default="softmax"
        Which ``h``.

    Examples
    --------
    >>> import torch                                     # f = (2x, 0) at x = 0: residual -1/2
    >>> X = torch.zeros(1, 1, requires_grad=True)
    >>> logits = torch.cat([2 * X, 0 * X], dim=1)
    >>> directional_penalty(logits, X, torch.tensor([[1.0, 0.0]]), X_mean=3.0).detach()
    tensor([-3.])
    """
    residual = head_of(head).mean(logits) - y_onehot
    (grad,) = torch.autograd.grad(logits, X, residual, create_graph=True)
    return (grad * (X_mean - X)).flatten(start_dim=logits.ndim - 1).sum(dim=-1)


def penalty_weights(total: Any, weight: Tensor, rows: Any = None, unit: int = 1) -> Tensor:
    """Weight of each sample's ``|q|`` in equation (7): ``R = sum(penalty_weights * |q|)``.

    Parameters
    ----------
    total : float or Tensor
        The factor ``E[1-lam]``; a Tensor broadcasts against the weights.
    weight : Tensor of shape (..., n_samples)
        Sample weights of the batch.
    rows : array or Tensor of shape (..., n_rows) or None, default=None
        Indices of the samples that the mean is over; all others get weight 0. None means all.
    unit : int, default=1
        Factor of the result: the weights relative to a mean over so many samples.

    Examples
    --------
    >>> import numpy as np, torch
    >>> penalty_weights(1.0, torch.ones(4)), penalty_weights(1.0, torch.ones(4), np.array([3, 0]))
    (tensor([0.2500, 0.2500, 0.2500, 0.2500]), tensor([0.5000, 0.0000, 0.0000, 0.5000]))
    """
    if rows is None:
        return total * (unit / weight.shape[-1]) * weight
    rows = torch.as_tensor(rows, dtype=torch.long, device=weight.device)
    is_used = torch.zeros_like(weight).scatter_(-1, rows, 1.0)
    return total * (unit / rows.shape[-1]) * weight * is_used


def loss_scale(mixup_loss: Any, total_loss: Any) -> Any:
    """``|mixup_loss| / |total_loss|``, equation (9), the paper's eta-hat; 1 if both are zero.

    Both are tensors or both are floats. The result carries no gradient.

    Examples
    --------
    >>> import torch
    >>> loss_scale(torch.tensor(2.0), torch.tensor(4.0)), loss_scale(*torch.zeros(2))
    (tensor(0.5000), tensor(1.))
    """
    if isinstance(total_loss, float):
        return abs(mixup_loss / total_loss) if total_loss else 1.0
    scale = (mixup_loss / total_loss).abs().detach()
    return torch.where(total_loss == 0, torch.ones_like(scale), scale)


# torch computes a function of single entries in blocks (of 32 or fewer) and rounds an incomplete
# last one differently; matrix products round by the alignment of their memory. The entries of each
# network are padded to a multiple of this many, so that it does not depend on the others.
LANE = 64


class State(NamedTuple):
    """Memory of a state, (n_members, n_rows, width), in which each member fills whole blocks.

    ``padded`` is all of the memory, (n_members, a multiple of ``LANE``).
    """

    values: Tensor
    padded: Tensor

    @classmethod
    def new(cls, like: Tensor, n_rows: int, width: int) -> "State":
        """Return zeros for as many members as ``like`` has."""
        n_entries = n_rows * width
        padded = like.new_zeros(len(like), n_entries + -n_entries % LANE)
        return cls(padded[:, :n_entries].unflatten(1, (n_rows, width)), padded)


class LossMemory:
    """Logits of a step, with memory for their mean and for the gradient of the loss.

    Parameters
    ----------
    logits : Tensor of shape (n_members, n_run, n_outputs)
        Logits: samples in the loss first, samples in the penalty last; the two coincide without
        mixing.
    n_rows : int
        Number of samples in the loss.
    n_clean : int
        Number of samples in the penalty.
    """

    def __init__(self, logits: Tensor, n_rows: int, n_clean: int):
        self.logits, self.mean = logits, torch.empty_like(logits)
        self.state = State.new(logits, *logits.shape[1:])  # of the gradient
        self.grad = self.state.values
        self.n_rows = n_rows
        # Views are made once: each costs as much as a small sum.
        self.of_loss = self.grad[:, :n_rows]
        first = logits.shape[1] - n_clean
        self.of_clean = self.mean[:, first:], self.grad[:, first:]


def fused_loss(
    memory: LossMemory,
    targets: Tensor,
    mass: Tensor | None,
    clean: Tensor | None,
    weights: Tensor | None,
    head: str,
) -> tuple[Tensor, Tensor | None]:
    """Loss and penalty of several networks, with the gradient of equation (8) in ``memory.grad``.

    It equals ``glm_loss``, ``logit_penalty`` and ``loss_scale``, but evaluates the head once for
    all samples and writes into existing memory: a step of a small network takes two thirds of the
    time. A softmax needs targets that sum to their mass.

    Parameters
    ----------
    memory : LossMemory
        The logits.
    targets : Tensor of shape (n_members, n_run, n_outputs)
        Mixed and weighted targets of the samples in the loss, then the plain targets of samples
        that are in the penalty only.
    mass : Tensor of shape (n_members, n_rows) or None
        Mixed weights of the samples in the loss; None means ones.
    clean : Tensor of shape (n_members, n_rows, n_outputs) or None
        Plain targets for the penalty, if it uses the samples in the loss.
    weights : Tensor of shape (n_members, n_clean, 1) or None
        Weight of each sample's penalty relative to the loss of one sample; None: no penalty.
    head : {"softmax", "sigmoid", "squared"}
        Which ``h``.

    Returns
    -------
    loss, penalty : Tensor of shape (n_members,)
        Sums over the samples. The penalty includes its weights, and is None without them.
    """
    n_rows, grad = memory.n_rows, memory.grad
    logits, potential = _evaluate_head(memory.logits, head, memory.mean)
    inner = torch.linalg.vecdot(targets, logits)
    losses = inner[:, :n_rows].neg()
    if potential is not None:
        potential = potential[:, :n_rows]
        losses = losses + (potential if mass is None else mass * potential)
        floor = HEADS[head].floor
        if floor is not None:
            losses -= floor(targets[:, :n_rows], torch.ones_like(losses) if mass is None else mass)
    loss = losses.sum(dim=-1)
    if mass is None:
        torch.sub(memory.mean, targets, out=grad)
    else:
        grad.copy_(memory.mean)
        memory.of_loss.mul_(mass[..., None])
        grad.sub_(targets)
    if weights is None:
        grad.mul_(1 / n_rows)
        return loss, None
    penalty = _fused_penalty(memory, logits, inner, clean, weights, head)
    # With one value per network, Python's floats are faster than tensors.
    parts = zip(loss.tolist(), penalty.tolist(), strict=True)
    scales = [loss_scale(mixup_loss, mixup_loss + own) / n_rows for mixup_loss, own in parts]
    grad.mul_(grad.new_tensor(scales)[:, None, None])
    return loss, penalty


# From this many outputs on, torch is fast at a softmax over the last dimension; below, it is faster
# over the one before it.
WIDE = 16


def _evaluate_head(logits: Tensor, head: str, mean: Tensor) -> tuple[Tensor, Tensor | None]:
    """Write ``g`` to ``mean``; return the logits to use further, and ``h``.

    A softmax uses its logarithm further: it differs from the logits by a constant per sample, which
    changes neither the loss nor the penalty. ``h`` is then zero, and None here.
    """
    form, shape = HEADS[head], logits.shape[1:]
    if head == "softmax" and shape[-1] >= WIDE:
        logits = logits.log_softmax(dim=-1)
        torch.exp(logits, out=mean)
        return logits, None
    if head == "softmax":
        columns = logits.mT.contiguous().log_softmax(dim=-2)
        mean.copy_(columns.exp().mT)
        return columns.mT.contiguous(), None
    if head == "sigmoid":
        flat = torch.nn.functional.pad(logits.flatten(1), (0, -shape.numel() % LANE))
        values = form.potential(flat[..., None]), form.mean(flat)
        potential, g = (value[:, : shape.numel()].unflatten(1, shape) for value in values)
        mean.copy_(g)
        return logits, potential.sum(dim=-1)
    mean.copy_(form.mean(logits))
    return logits, form.potential(logits)


def _fused_penalty(
    memory: LossMemory,
    logits: Tensor,
    inner: Tensor,
    clean: Tensor | None,
    weights: Tensor,
    head: str,
) -> Tensor:
    """Return the sum of the penalty, and add its gradient to the residuals."""
    mean, grad = memory.of_clean
    logits = logits[:, -mean.shape[1] :]
    # Single columns, for broadcasting over the outputs.
    of_mean = (mean * logits).sum(dim=-1, keepdim=True)
    if clean is None:
        residual, of_target = grad, inner[:, memory.n_rows :, None]
    else:
        residual = mean - clean
        of_target = (clean * logits).sum(dim=-1, keepdim=True)
    minus_q = of_mean - of_target
    weights = minus_q.sign().mul_(weights)
    penalty = (weights * minus_q).sum(dim=(1, 2))
    # The gradient of -q_hat: residual + g'(f) f.
    if head == "softmax":
        grad_q_hat = torch.addcmul(residual, mean, logits - of_mean)
    else:
        grad_q_hat = residual + HEADS[head].curve(mean, logits)
    if clean is None:
        torch.mul(grad_q_hat, weights, out=grad)
    else:
        grad.addcmul_(grad_q_hat, weights)
    return penalty
