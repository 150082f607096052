"""The second-order term of the paper's Theorem 1, equation (2), left to future work there.

    R2 = E[(1-lam)^2] / 2 * mean |q2|,   q2 = second derivative of loss(x + a (x' - x), y) at a = 0

``x'`` is one other sample of the batch: the partner if samples are mixed. The theorem averages over
all ``x'`` inside the absolute value, so the absolute value of each pair is an upper bound. For a
piecewise linear network, such as a ReLU network, ``q2`` is the curvature of ``h`` alone and never
negative.
"""

import numpy as np
import torch
from torch import Tensor

from mixupe_sklearn._method.formulas import HEADS, one_minus_lam_moment


def step_toward(clean: Tensor, batch: Tensor, others: np.ndarray) -> tuple[Tensor, Tensor]:
    """Write samples as a step of length zero toward others; return them and the step.

    Parameters
    ----------
    clean : Tensor of shape (n_clean, ...)
        The samples.
    batch : Tensor of shape (n_samples, ...)
        The batch that holds the others.
    others : array of shape (n_clean,)
        Index of the other sample of each.

    Returns
    -------
    moved : Tensor of shape (n_clean, ...)
        The same values. Their derivative with respect to the step is ``x' - x``.
    step : Tensor of shape (n_clean,)
        Zeros that require a gradient.
    """
    step = torch.zeros(len(clean), dtype=clean.dtype, device=clean.device, requires_grad=True)
    toward = batch[torch.as_tensor(others, dtype=torch.long, device=clean.device)]
    return clean + step.view(-1, *[1] * (clean.ndim - 1)) * (toward - clean), step


def second_derivative(
    logits: Tensor, y_onehot: Tensor, step: Tensor, head: str = "softmax"
) -> Tensor:
    """``q2``: the second derivative of each sample's loss with respect to its step, exact.

    The result is differentiable with respect to the parameters. Entry ``i`` is the derivative of
    sample ``i`` alone unless samples interact.

    Parameters
    ----------
    logits : Tensor of shape (n_clean, n_outputs)
        Module output, computed from the samples of ``step_toward``.
    y_onehot : Tensor of shape (n_clean, n_outputs)
        Targets.
    step : Tensor of shape (n_clean,)
        The step of ``step_toward``.
    head : {"softmax", "sigmoid", "squared"}, default="softmax"
        Which ``h``.

    Examples
    --------
    >>> import numpy as np, torch                        # f = (2x, 0) from 0 to 3: p (1 - p) 6^2
    >>> moved, step = step_toward(torch.zeros(1, 1), torch.tensor([[3.0]]), np.array([0]))
    >>> logits = torch.cat([2 * moved, 0 * moved], dim=1)
    >>> second_derivative(logits, torch.tensor([[1.0, 0.0]]), step).detach()
    tensor([9.])
    """
    loss = HEADS[head].potential(logits) - (y_onehot * logits).sum(dim=-1)
    (first,) = torch.autograd.grad(loss.sum(), step, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), step, create_graph=True)
    return second


def second_order_term(
    logits: Tensor,
    y_onehot: Tensor,
    weights: Tensor,
    step: Tensor,
    alpha: float,
    beta: float | None,
    head: str,
) -> Tensor:
    """``R2`` of a batch; ``weights`` are the ``penalty_weights`` of the first-order term."""
    first, second = (one_minus_lam_moment(order, alpha, beta) for order in (1, 2))
    q2 = second_derivative(logits, y_onehot, step, head)
    return second / first / 2 * (weights * q2.abs()).sum()
