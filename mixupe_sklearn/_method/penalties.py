"""The formulas of the paper: the loss of a generalised linear form, ``q``, ``q_hat``, ``E[1-lam]``.

Every head is one convex function ``h`` of the logits ``f`` with the loss ``h(f) - y'f`` (the
paper's notation section): its gradient ``g`` is the predicted mean, its Hessian gives the slope of
the penalty. Signs, once and for all: ``residual = g(f) - y`` and

    q     =  residual' J_f(x) (E[x'] - x)      the directional penalty, equation (4)
    q_hat = -residual' f(x)                    the logit penalty, equation (5)

so that ``q == q_hat`` for a bias-free ReLU network (``J_f(x) x = f(x)``) and ``E[x'] = 0``.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus


class Head(NamedTuple):
    """A generalised linear form, by three functions of the logits ``(n_samples, n_outputs)``.

    ``potential`` is ``h``, one number a row; ``mean`` is its gradient ``g``; ``curve(mean, v)``
    is its Hessian at that mean times ``v``. ``floor(target, mass)`` is the least value of
    ``mass * h(f) - target'f``: the loss subtracts it, which changes no gradient, where it can be
    written down (squared error), so that a loss is never negative.
    """

    potential: Callable[[Tensor], Tensor]
    mean: Callable[[Tensor], Tensor]
    curve: Callable[[Tensor, Tensor], Tensor]
    floor: Callable[[Tensor, Tensor], Tensor] | None = None


def _softmax_curve(mean: Tensor, vector: Tensor) -> Tensor:
    return mean * (vector - (mean * vector).sum(dim=-1, keepdim=True))


def _squared_floor(target: Tensor, mass: Tensor) -> Tensor:
    # A row of zero mass has a zero target: its floor is 0 and not 0/0.
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


def _form(head: str | Head) -> Head:
    return head if isinstance(head, Head) else HEADS[head]


def one_minus_lam_mean(alpha: float, beta: float | None = None) -> float:
    """``E[1 - lam]`` under the mixture that Mixup induces, ``2ab / ((a+b)(a+b+1))``.

    The mixture is ``a/(a+b) Beta(a+1, b) + b/(a+b) Beta(b+1, a)``; with ``alpha = beta`` the value
    is ``alpha / (2 alpha + 1)``, the paper's ``1 - (alpha+1)/(2 alpha+1)``.

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
    # a/(a+b) before the product: it stays finite for every finite pair.
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
    # 1 - lam is Beta(beta, alpha+1) where lam is Beta(alpha+1, beta), and the other way round.
    total = 0.0
    for share, first in ((alpha, beta), (beta, alpha)):
        value = share / (alpha + beta)
        for step in range(order):
            value *= (first + step) / (alpha + beta + 1 + step)
        total += value
    return total


def glm_loss(
    logits: Tensor, target: Tensor, mass: Tensor | None = None, head: str | Head = "softmax"
) -> tuple[Tensor, Tensor]:
    """Each row's loss ``mass * h(f) - target'f`` and its gradient ``mass * g(f) - target``.

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
    form = _form(head)
    potential, mean = form.potential(logits), form.mean(logits)
    if mass is not None:
        potential, mean = mass * potential, mass[..., None] * mean
    loss = potential - (target * logits).sum(dim=-1)
    if form.floor is not None:
        loss = loss - form.floor(target, torch.ones_like(loss) if mass is None else mass)
    return loss, mean - target


def logit_penalty(
    logits: Tensor, y_onehot: Tensor, head: str | Head = "softmax"
) -> tuple[Tensor, Tensor]:
    """``q_hat = (y - g(f))' f`` of each row, and its gradient ``(y - g) - g'(f) f``.

    For classes it is the right class's logit minus the mean logit under the predicted
    probabilities: positive where the right class leads, negative where a wrong one does. The loss
    takes the absolute value of each row.

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
    form = _form(head)
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
    """``q = (g(f) - y)' J_f(x) (E[x'] - x)`` of each row, exact, by one vector-Jacobian product.

    The result stays differentiable with respect to the parameters (through the residual and
    through the Jacobian). Where rows do not see each other (no BatchNorm in training mode) row
    ``i`` holds the derivative of sample ``i`` alone.

    Parameters
    ----------
    logits : Tensor of shape (..., n_samples, n_outputs)
        Module output, computed from ``X``; the first dimensions may count models.
    X : Tensor of shape (..., n_samples, ...)
        Input (or hidden state) that requires a gradient, with as many first dimensions.
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
    residual = _form(head).mean(logits) - y_onehot
    (grad,) = torch.autograd.grad(logits, X, residual, create_graph=True)
    return (grad * (X_mean - X)).flatten(start_dim=logits.ndim - 1).sum(dim=-1)


def row_shares(total: float, weight: Tensor, rows: np.ndarray | None = None) -> Tensor:
    """What each row's ``|q|`` counts in ``total`` times the weighted mean over some of the rows.

    Parameters
    ----------
    total : float
        What a mean of ones is multiplied with, ``E[1-lam]``.
    weight : Tensor of shape (n_samples,)
        Weight of each row of the batch.
    rows : array or None, default=None
        Numbers of the rows that are seen; the others count nothing. None: all.

    Examples
    --------
    >>> import numpy as np, torch
    >>> row_shares(1.0, torch.ones(4)), row_shares(1.0, torch.ones(4), np.array([3, 0]))
    (tensor([0.2500, 0.2500, 0.2500, 0.2500]), tensor([0.5000, 0.0000, 0.0000, 0.5000]))
    """
    if rows is None:
        return total / len(weight) * weight
    is_seen = torch.zeros_like(weight)
    is_seen[torch.as_tensor(rows, dtype=torch.long, device=weight.device)] = 1
    return total / len(rows) * weight * is_seen


def loss_scale(mixup_loss: Tensor, total_loss: Tensor) -> Tensor:
    """The paper's eta-hat, ``|mixup_loss| / |total_loss|``, and 1 where both are zero.

    Examples
    --------
    >>> import torch
    >>> loss_scale(torch.tensor(2.0), torch.tensor(4.0)), loss_scale(*torch.zeros(2))
    (tensor(0.5000), tensor(1.))
    """
    scale = (mixup_loss / total_loss).abs().detach()
    return torch.where(total_loss == 0, torch.ones_like(scale), scale)
