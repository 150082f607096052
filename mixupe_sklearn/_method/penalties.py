"""The penalty of the paper and its parts, with the equation numbers of the paper.

With ``residual = g(f(x)) - y``::

    q     =  residual' J_f(x) (E[x'] - x)      equation (4), the directional penalty
    q_hat = -residual' f(x)                    equation (5), the logit penalty
    R     =  E[1-lam] / n * sum |q|            equation (7), with q or q_hat
    loss  =  loss_scale * (mixup_loss + eta * R)                equation (8)
    loss_scale = |mixup_loss| / |mixup_loss + eta * R|          equation (9)

``q`` equals ``q_hat`` for a bias-free ReLU network (``J_f(x) x = f(x)``) and ``E[x'] = 0``.
"""

import numpy as np
import torch
from torch import Tensor

from mixupe_sklearn._method.glm import Head, head_of


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


def penalty_weights(total: float, weight: Tensor, rows: np.ndarray | None = None) -> Tensor:
    """Weight of each sample's ``|q|`` in equation (7): ``R = sum(penalty_weights * |q|)``.

    Parameters
    ----------
    total : float
        The factor ``E[1-lam]``.
    weight : Tensor of shape (n_samples,)
        Sample weights of the batch.
    rows : array or None, default=None
        Indices of the samples that the mean is over; all others get weight 0. None means all.

    Examples
    --------
    >>> import numpy as np, torch
    >>> penalty_weights(1.0, torch.ones(4)), penalty_weights(1.0, torch.ones(4), np.array([3, 0]))
    (tensor([0.2500, 0.2500, 0.2500, 0.2500]), tensor([0.5000, 0.0000, 0.0000, 0.5000]))
    """
    if rows is None:
        return total / len(weight) * weight
    is_used = torch.zeros_like(weight)
    is_used[torch.as_tensor(rows, dtype=torch.long, device=weight.device)] = 1
    return total / len(rows) * weight * is_used


def loss_scale(mixup_loss: Tensor, total_loss: Tensor) -> Tensor:
    """``|mixup_loss| / |total_loss|``, equation (9), the paper's eta-hat; 1 if both are zero.

    The result carries no gradient.

    Examples
    --------
    >>> import torch
    >>> loss_scale(torch.tensor(2.0), torch.tensor(4.0)), loss_scale(*torch.zeros(2))
    (tensor(0.5000), tensor(1.))
    """
    scale = (mixup_loss / total_loss).abs().detach()
    return torch.where(total_loss == 0, torch.ones_like(scale), scale)
