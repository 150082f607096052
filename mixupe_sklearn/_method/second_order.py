"""The second-order term of the paper's first theorem, which the paper leaves to future work.

    R2 = E[(1-lam)^2] / 2 * mean |q2|,   q2 = second derivative of loss(x + a (x' - x), y) at a = 0

with one other row of the batch, its partner where rows are mixed, as ``x'``. In the theorem the
mean over all ``x'`` is taken inside; the absolute value of each pair is its upper bound. For a
network that is linear between kinks, as ReLU networks are, ``q2`` is the curvature of ``h`` alone
and never negative.
"""

import numpy as np
import torch
from torch import Tensor

from mixupe_sklearn._method.penalties import HEADS, one_minus_lam_moment


def on_the_way(clean: Tensor, whole: Tensor, others: np.ndarray) -> tuple[Tensor, Tensor]:
    """Rows as they are, written as a step of length zero towards others, and that length.

    Parameters
    ----------
    clean : Tensor of shape (n_rows, ...)
        The rows.
    whole : Tensor of shape (n_samples, ...)
        The batch that the others are in.
    others : array of shape (n_rows,)
        Which row of it each looks towards.

    Returns
    -------
    rows : Tensor of shape (n_rows, ...)
        The same numbers, whose derivative with respect to the step is the way.
    step : Tensor of shape (n_rows,)
        Zeros that require a gradient.
    """
    step = torch.zeros(len(clean), dtype=clean.dtype, device=clean.device, requires_grad=True)
    toward = whole[torch.as_tensor(others, dtype=torch.long, device=clean.device)]
    return clean + step.view(-1, *[1] * (clean.ndim - 1)) * (toward - clean), step


def second_derivative(
    logits: Tensor, y_onehot: Tensor, step: Tensor, head: str = "softmax"
) -> Tensor:
    """``q2``: each row's second derivative of the loss with respect to its step, exact.

    The result stays differentiable with respect to the parameters. Where rows do not see each
    other, row ``i`` holds the derivative of sample ``i`` alone.

    Parameters
    ----------
    logits : Tensor of shape (n_rows, n_outputs)
        Module output, computed from the rows of ``on_the_way``.
    y_onehot : Tensor of shape (n_rows, n_outputs)
        Targets.
    step : Tensor of shape (n_rows,)
        The step of ``on_the_way``.
    head : {"softmax", "sigmoid", "squared"}, default="softmax"
        Which ``h``.

    Examples
    --------
    >>> import numpy as np, torch                        # f = (2x, 0) from 0 to 3: p (1 - p) 6^2
    >>> rows, step = on_the_way(torch.zeros(1, 1), torch.tensor([[3.0]]), np.array([0]))
    >>> logits = torch.cat([2 * rows, 0 * rows], dim=1)
    >>> second_derivative(logits, torch.tensor([[1.0, 0.0]]), step).detach()
    tensor([9.])
    """
    loss = HEADS[head].potential(logits) - (y_onehot * logits).sum(dim=-1)
    (first,) = torch.autograd.grad(loss.sum(), step, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), step, create_graph=True)
    return second


def second_term(
    logits: Tensor,
    y_onehot: Tensor,
    share: Tensor,
    step: Tensor,
    alpha: float,
    beta: float | None,
    head: str,
) -> Tensor:
    """``R2`` of a batch; ``share`` is what each row counts in the first-order term."""
    first, second = (one_minus_lam_moment(order, alpha, beta) for order in (1, 2))
    q2 = second_derivative(logits, y_onehot, step, head)
    return second / first / 2 * (share * q2.abs()).sum()
