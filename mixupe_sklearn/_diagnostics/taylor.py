"""The Mixup loss as a series of directional derivatives: Theorem 1 and equation (6) of the paper.

On average, mixing inputs and labels equals moving each sample part of the way to another one and
keeping its label. With ``a = 1 - lam`` and ``lam`` from the mixture of ``one_minus_lam_mean``,

    mixup_loss = mean over i and x' of E[phi(a)],    phi(a) = loss(x_i + a (x' - x_i), y_i)

Theorem 1, equation (2), expands ``phi`` around ``a = 0``. Here its terms are sorted by powers of
``a``,

    term k = E[a**k] / k! * mean of phi's k-th derivative at zero

so that term 1 is ``E[a] * mean q``. The remainder is what K terms leave out. (The printed theorem
expands ``h`` and the network, equation (3), each up to order K. That has the same terms up to K
and moves some higher ones out of the remainder.)
"""

from collections.abc import Callable

import numpy as np
import torch
from scipy.special import roots_jacobi
from torch import Tensor
from torch.func import jvp

from mixupe_sklearn._method.formulas import HEADS, is_unmixed, one_minus_lam_moment

# Nodes of the quadrature over lam, which is exact for polynomials of twice the degree.
N_NODES = 16
# Below this almost nothing is mixed, and the quadrature would lose precision.
LEAST_ALPHA = 1e-8


def moments(order: int, alpha: float, beta: float | None = None) -> np.ndarray:
    """``E[a**k]`` for k = 1 to ``order`` under the mixture that Mixup induces."""
    return np.array([one_minus_lam_moment(k, alpha, beta) for k in range(1, order + 1)])


def nodes(alpha: float, beta: float | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of a quadrature for expectations over ``a`` under the same mixture."""
    beta = alpha if beta is None else beta
    if is_unmixed(alpha, beta) or min(alpha, beta) < LEAST_ALPHA:
        return np.zeros(1), np.ones(1)
    points, weights = [], []
    # One component if alpha equals beta.
    for first, second in dict.fromkeys(((alpha, beta), (beta, alpha))):
        # Beta(second, first + 1) on [0, 1]; Gauss-Jacobi weights are powers of 1 - x and 1 + x.
        roots, own = roots_jacobi(N_NODES, first, second - 1)
        points.append((1 + roots) / 2)
        weights.append(first * own / own.sum())
    joined = np.concatenate(weights)
    return np.concatenate(points), joined / joined.sum()


def derivatives_at_zero(phi: Callable[[Tensor], Tensor], order: int) -> list[Tensor]:
    """``phi(0)`` and its derivatives up to ``order``, for a function of one scalar.

    Nested forward-mode differentiation: each order needs as much memory as ``phi`` itself,
    regardless of the number of inputs.
    """

    def up_to(number: int) -> Callable[[Tensor], tuple[Tensor, ...]]:
        if number == 0:
            return lambda a: (phi(a),)
        below = up_to(number - 1)

        def with_next(a: Tensor) -> tuple[Tensor, ...]:
            values, grads = jvp(below, (a,), (torch.ones_like(a),))[:2]
            return *values, grads[-1]

        return with_next

    return list(up_to(order)(torch.zeros((), dtype=torch.float64)))


def coefficients(
    logits: Tensor, X: Tensor, y_onehot: Tensor, X_mean: Tensor | float, head: str = "softmax"
) -> tuple[Tensor, Tensor]:
    """Decompose the first directional derivative as in equation (6).

    ``q`` of a sample is the sum over its outputs of ``alpha``, times the norm of the output's
    gradient, times the norm of ``E[x'] - x``. ``alpha`` is the residual times the cosine between
    the gradient and ``E[x'] - x``. A negative ``alpha`` means that Mixup enlarges the derivative.
    ``X`` is the input or hidden state that the logits were computed from, and requires a gradient.
    Returns ``alpha`` of shape (n_samples, n_outputs) and ``q`` of shape (n_samples,).
    """
    n_samples, n_outputs = logits.shape
    unit = torch.eye(n_outputs, dtype=logits.dtype, device=logits.device)
    # One backward pass for all outputs: samples do not interact, so each has its own gradient.
    (grads,) = torch.autograd.grad(
        logits, X, unit[:, None].expand(-1, n_samples, -1), is_grads_batched=True
    )
    direction = (X_mean - X).detach().flatten(1)
    grads, residual = grads.flatten(2), HEADS[head].mean(logits.detach()) - y_onehot
    along = (grads * direction).sum(dim=-1).T
    lengths = grads.norm(dim=-1).T * direction.norm(dim=-1)[:, None]
    cosine = torch.where(lengths > 0, along / lengths.clamp_min(1e-30), torch.zeros_like(along))
    return residual * cosine, (residual * along).sum(dim=-1)
