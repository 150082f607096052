"""The coefficients alpha of the paper's equation (6): where Mixup pushes a derivative up."""

from typing import NamedTuple

import torch
from torch import Tensor

from mixupe_sklearn._method.glm import HEADS


class Coefficients(NamedTuple):
    """What equation (6) takes ``q`` apart into, for each row and output.

    ``q`` of a row is the sum over its outputs of ``alpha * norm`` times ``distance``. ``alpha`` is
    the residual times the cosine between an output's gradient and the way to the mean; ``norm``
    the length of that gradient; ``distance`` of shape (n_rows,) that of the way.
    """

    alpha: Tensor
    norm: Tensor
    distance: Tensor
    q: Tensor


def coefficients(
    logits: Tensor, X: Tensor, y_onehot: Tensor, X_mean: Tensor | float, head: str = "softmax"
) -> Coefficients:
    """Take the first directional derivative apart.

    Parameters
    ----------
    logits : Tensor of shape (n_rows, n_outputs)
        Module output, computed from ``X``.
    X : Tensor of shape (n_rows, ...)
        Input (or hidden state) that requires a gradient.
    y_onehot : Tensor of shape (n_rows, n_outputs)
        Targets.
    X_mean : Tensor or float
        ``E[x']``, broadcastable to ``X``.
    head : {"softmax", "sigmoid", "squared"}, default="softmax"
        What the logits mean.

    Examples
    --------
    >>> import torch                                     # f = (2x, 0) at x = 0, on the way to 3
    >>> X = torch.zeros(1, 1, requires_grad=True)
    >>> logits = torch.cat([2 * X, 0 * X], dim=1)
    >>> parts = coefficients(logits, X, torch.tensor([[1.0, 0.0]]), X_mean=3.0)
    >>> parts.alpha.tolist(), parts.norm.tolist(), parts.distance.tolist(), parts.q.tolist()
    ([[-0.5, 0.0]], [[2.0, 0.0]], [3.0], [-3.0])
    """
    n_rows, n_outputs = logits.shape
    unit = torch.eye(n_outputs, dtype=logits.dtype, device=logits.device)
    # One backward pass for all outputs: rows do not see each other, so each has its own gradient.
    (grads,) = torch.autograd.grad(
        logits, X, unit[:, None].expand(-1, n_rows, -1), is_grads_batched=True
    )
    way = (X_mean - X).detach().flatten(1)
    grads, residual = grads.flatten(2), HEADS[head].mean(logits.detach()) - y_onehot
    along, norm = (grads * way).sum(dim=-1).T, grads.norm(dim=-1).T
    distance = way.norm(dim=-1)
    lengths = norm * distance[:, None]
    cosine = torch.where(lengths > 0, along / lengths.clamp_min(1e-30), torch.zeros_like(along))
    return Coefficients(residual * cosine, norm, distance, (residual * along).sum(dim=-1))
