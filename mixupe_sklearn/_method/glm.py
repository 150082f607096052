"""The loss of a generalised linear form, ``l = h(f(x)) - y'f(x)``, and its ``h``, equation (1).

``f(x)`` are the logits. The gradient of ``h`` is the predicted mean ``g(f(x))``: the softmax, the
sigmoid, or the logits themselves. The paper has the first two; squared error has the same form.
"""

from collections.abc import Callable
from typing import NamedTuple

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
