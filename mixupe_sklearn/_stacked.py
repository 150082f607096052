"""The arithmetic of several MLPs of one shape that take their training steps together.

Every tensor has the members first: ``(n_members, n_rows, width)``. The first layer is linear, so it
commutes with mixing: the mixed rows' first state is the mix of the clean rows' first states. Hence
inputs are never mixed, and the widest matrix product is run once for clean and mixed rows.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from mixupe_sklearn._penalty import (
    HEADS,
    Head,
    directional_penalty,
    glm_loss,
    logit_penalty,
    loss_scale,
)

_aten = torch.ops.aten
Layers = list[tuple[Tensor, Tensor | None]]
# Members lie this many entries apart, or a multiple. torch works on entries in blocks (of 32 or
# fewer), and rounds the odd ones at the end in another way: where each member fills whole blocks,
# its bits do not depend on its company.
LANE = 64


def padded(values: Tensor) -> Tensor:
    """Fill the last dimension with zeros to a multiple of ``LANE``."""
    return nn.functional.pad(values, (0, -values.shape[-1] % LANE))


class Activation(NamedTuple):
    """A non-linearity: for autograd, and by hand with its derivative.

    ``forward(state, out)`` writes to ``out``, which is the state itself unless ``needs_input``.
    ``backward(slope, state)`` multiplies the slope in place; ``state`` is what went in where
    ``needs_input``, else what came out.
    """

    function: Callable[[Tensor], Tensor]
    forward: Callable[[Tensor, Tensor], object]
    backward: Callable[[Tensor, Tensor], object]
    needs_input: bool = False


ACTIVATIONS: dict[type[nn.Module], Activation] = {
    nn.ReLU: Activation(
        torch.relu,
        lambda state, out: torch.clamp_min(state, 0, out=out),
        lambda slope, state: _aten.threshold_backward.grad_input(slope, state, 0, grad_input=slope),
    ),
    nn.GELU: Activation(
        nn.functional.gelu,
        lambda state, out: _aten.gelu.out(state, out=out),
        lambda slope, state: _aten.gelu_backward.grad_input(slope, state, grad_input=slope),
        needs_input=True,
    ),
    nn.SiLU: Activation(
        nn.functional.silu,
        lambda state, out: _aten.silu.out(state, out=out),
        lambda slope, state: _aten.silu_backward.grad_input(slope, state, grad_input=slope),
        needs_input=True,
    ),
    nn.Tanh: Activation(
        torch.tanh,
        lambda state, out: torch.tanh(state, out=out),
        lambda slope, state: _aten.tanh_backward.grad_input(slope, state, grad_input=slope),
    ),
    nn.Identity: Activation(
        lambda state: state, lambda state, out: None, lambda slope, state: None
    ),
}


def activation_of(module: nn.Module) -> Activation:
    """The non-linearity of an MLP; a linear model has none and gets the identity."""
    kinds = (type(layer) for layer in module.modules())
    return ACTIVATIONS[next((kind for kind in kinds if kind in ACTIVATIONS), nn.Identity)]


def unflatten(flat: Tensor, shapes: Sequence[torch.Size]) -> list[Tensor]:
    """Views of the last dimension, one of each shape.

    Examples
    --------
    >>> import torch
    >>> [view.tolist() for view in unflatten(torch.arange(6), [(2, 2), (2,)])]
    [[[0, 1], [2, 3]], [4, 5]]
    """
    sizes = [torch.Size(shape).numel() for shape in shapes]
    parts = flat.split(sizes, dim=-1)
    return [part.unflatten(-1, shape) for part, shape in zip(parts, shapes, strict=True)]


class Stack:
    """Weights of several modules as the rows of one tensor, of which their parameters are views.

    Parameters
    ----------
    modules : list of torch.nn.Module
        MLPs of one shape. From here on they see every change of ``weights``, until ``release``.

    Examples
    --------
    >>> import torch
    >>> modules = [torch.nn.Linear(2, 1) for _ in range(3)]
    >>> stack = Stack(modules)
    >>> stack.weights.shape
    torch.Size([3, 64])
    >>> _ = stack.weights.zero_()
    >>> modules[1](torch.ones(1, 2)).item()
    0.0
    """

    def __init__(self, modules: Sequence[nn.Module]):
        self.modules = modules
        self.shapes = [parameter.shape for parameter in modules[0].parameters()]
        self.has_bias = any(len(shape) == 1 for shape in self.shapes)
        rows = [parameters_to_vector(module.parameters()).detach() for module in modules]
        self.n_weights = len(rows[0])
        self.weights = padded(torch.stack(rows))
        self.gradient = torch.zeros_like(self.weights)
        for module, row in zip(modules, self.weights, strict=True):
            for parameter, view in zip(module.parameters(), self.unflatten(row), strict=True):
                parameter.data = view

    def unflatten(self, flat: Tensor) -> list[Tensor]:
        """Views in the shapes of the parameters."""
        return unflatten(flat[..., : self.n_weights], self.shapes)

    def layers(self, flat: Tensor) -> Layers:
        """Weight and bias of each layer, with all members."""
        views = self.unflatten(flat)
        if self.has_bias:
            return list(zip(views[::2], views[1::2], strict=True))
        return [(view, None) for view in views]

    def release(self) -> None:
        """Give every module weights of its own, so that none holds those of the others."""
        for module in self.modules:
            for parameter in module.parameters():
                parameter.data = parameter.data.clone()


class Pairs(NamedTuple):
    """What is mixed with what: ``lam`` of shape (n_members, n_rows, 1), and row numbers.

    ``partner`` and its inverse number the rows of all members through, so that one look-up serves
    them all.
    """

    lam: Tensor
    partner: Tensor
    inverse: Tensor

    def mix(self, values: Tensor, out: Tensor | None = None, other: Tensor | None = None) -> Tensor:
        """``lam * values + (1 - lam) * values[partner]`` for ``(n_members, n_rows, width)``.

        The result and the partners are written to ``out`` and ``other`` where given.
        """
        other = _take(values, self.partner, other)
        return torch.lerp(other, values, self.lam, out=out)

    def unmix(self, slope: Tensor, out: Tensor, other: Tensor, scratch: Tensor) -> Tensor:
        """The transpose of ``mix``: the slope of mixed rows, brought to both rows of each."""
        torch.mul(slope, self.lam, out=out)
        torch.sub(slope, out, out=scratch)
        return out.add_(_take(scratch, self.inverse, other))


def _take(values: Tensor, index: Tensor, out: Tensor | None) -> Tensor:
    """Rows by numbers that count through all members."""
    return rows_of(values.flatten(0, 1), index.view(values.shape[:2]), out)


def rows_of(values: Tensor, index: Tensor, out: Tensor | None = None) -> Tensor:
    """Rows by numbers of shape (n_members, n_rows), written to ``out`` where given.

    Examples
    --------
    >>> import torch
    >>> rows_of(torch.tensor([[1.0], [2.0]]), torch.tensor([[1, 0, 1]]))[0, :, 0]
    tensor([2., 1., 2.])
    """
    out = None if out is None else out.flatten(0, 1)
    rows = torch.index_select(values, 0, index.flatten(), out=out)
    return rows.view(index.shape + values.shape[1:])


class Goal(NamedTuple):
    """What a step is to reach: clean and mixed targets with their weights (None: ones)."""

    clean: Tensor
    mixed: Tensor
    weight: Tensor | None
    mass: Tensor | None


class Terms(NamedTuple):
    """The loss of each member: ``eta`` and ``E[1-lam]`` of shape (n_members,), and its form.

    ``penalty`` is None where no member has one.
    """

    eta: Tensor
    one_minus_lam: Tensor
    head: str
    penalty: str | None


class Parts(NamedTuple):
    """Loss, its parts and its scale, each of shape (n_members,)."""

    loss: Tensor
    mixup_loss: Tensor
    penalty_term: Tensor
    loss_scale: Tensor


def _shares(goal: Goal, terms: Terms) -> Tensor:
    """What each row's penalty counts: ``E[1-lam]`` of its weighted mean."""
    n_rows = goal.clean.shape[1]
    share = (terms.one_minus_lam / n_rows)[:, None]
    return share.expand(-1, n_rows) if goal.weight is None else share * goal.weight


def _parts(mixup_loss: Tensor, penalty_term: Tensor, eta: Tensor) -> Parts:
    total = mixup_loss + eta * penalty_term
    scale = loss_scale(mixup_loss.detach(), total.detach())
    return Parts(scale * total, mixup_loss, penalty_term, scale)


def _evaluate(logits: Tensor, head: str) -> tuple[Tensor, Tensor]:
    """``h`` and ``g`` of all rows at once."""
    form, shape = HEADS[head], logits.shape[1:]
    if head == "sigmoid":  # entry by entry: see LANE
        flat = padded(logits.flatten(1))
        values = form.potential(flat[..., None]), form.mean(flat)
        potential, mean = (value[:, : shape.numel()].unflatten(1, shape) for value in values)
        return potential.sum(dim=-1), mean
    if head == "squared":
        return form.potential(logits), form.mean(logits)
    # torch is slow at a softmax over a short last dimension, and fast over the one before it.
    columns = logits.mT.contiguous()
    logs = columns.log_softmax(dim=-2)
    return columns[:, 0] - logs[:, 0], logs.exp().mT.contiguous()


def _heads(logits: Tensor, n_rows: int, head: str) -> list[Head]:
    """The form of the loss, evaluated already: at the mixed rows, and at the clean ones."""

    def at(rows: slice) -> Head:
        return HEADS[head]._replace(
            potential=lambda logits: potential[:, rows], mean=lambda logits: mean[:, rows]
        )

    potential, mean = _evaluate(logits, head)
    return [at(slice(None, n_rows)), at(slice(-n_rows, None))]


def loss_and_slope(logits: Tensor, goal: Goal, terms: Terms) -> tuple[Parts, Tensor]:
    """Each member's loss and its gradient with respect to the logits, in closed form.

    The first rows of the logits are those of the mixed rows, the last those of the clean ones;
    where nothing is mixed or no penalty is asked for, they are the same.
    """
    n_rows = goal.clean.shape[1]
    at_mixed, at_clean = _heads(logits, n_rows, terms.head)
    losses, slope = glm_loss(logits[:, :n_rows], goal.mixed, goal.mass, at_mixed)
    mixup_loss, slope = losses.mean(dim=-1), slope.div_(n_rows)
    if terms.penalty is None:
        return _parts(mixup_loss, torch.zeros_like(mixup_loss), terms.eta), slope
    q_hat, clean_slope = logit_penalty(logits[:, -n_rows:], goal.clean, at_clean)
    share = _shares(goal, terms)
    parts = _parts(mixup_loss, (share * q_hat.abs()).sum(dim=-1), terms.eta)
    clean_slope *= (terms.eta[:, None] * share * q_hat.sign())[..., None]
    is_one = logits.shape[1] == n_rows
    slope = slope + clean_slope if is_one else torch.cat([slope, clean_slope], dim=1)
    return parts, slope.mul_(parts.loss_scale[:, None, None])


def _linear(state: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor | None = None):
    if bias is None:
        return torch.bmm(state, weight.mT, out=out)
    return torch.baddbmm(bias[:, None], state, weight.mT, out=out)


class Passes:
    """Forward and backward pass of a stack by hand, in memory that is used again each step.

    Parameters
    ----------
    stack : Stack
        The members.
    n_rows : int
        Rows of a batch.
    has_both : bool
        Whether mixed and clean rows are run, and not one kind alone.
    """

    def __init__(self, stack: Stack, n_rows: int, has_both: bool):
        self.weights = stack.layers(stack.weights)
        self.gradients = stack.layers(stack.gradient)
        self.activation = activation_of(stack.modules[0])
        self.n_rows, self.has_both = n_rows, has_both
        widths = [weight.shape[1] for weight, _ in self.weights]
        n_members, n_run = len(stack.modules), n_rows * (1 + has_both)
        new = stack.weights.new_empty
        self.X = new(n_members, n_rows, self.weights[0][0].shape[2])
        self.first, self.other, self.scratch = new(3, n_members, n_rows, widths[0])
        self.before = [new(n_members, n_run, width) for width in widths]
        needs_input = self.activation.needs_input
        self.after = [torch.empty_like(s) if needs_input else s for s in self.before[:-1]]
        self.slopes = [torch.empty_like(state) for state in self.before[:-1]]

    def forward(self, pairs: Pairs | None) -> Tensor:
        """Logits of what is in ``X``: of mixed rows, clean rows, or both, one below the other."""
        if pairs is None:
            _linear(self.X, *self.weights[0], out=self.before[0])
        else:
            first = _linear(self.X, *self.weights[0], out=self.first)
            pairs.mix(first, self.before[0][:, : self.n_rows], self.other)
            if self.has_both:
                self.before[0][:, self.n_rows :] = first
        for number, (weight, bias) in enumerate(self.weights[1:]):
            self.activation.forward(self.before[number], self.after[number])
            _linear(self.after[number], weight, bias, out=self.before[number + 1])
        return self.before[-1]

    def backward(self, slope: Tensor, pairs: Pairs | None) -> None:
        """Write the gradient of every weight, from that of the logits."""
        states = self.before if self.activation.needs_input else self.after
        for number in reversed(range(1, len(self.weights))):
            self._write(number, slope, self.after[number - 1])
            slope = torch.bmm(slope, self.weights[number][0], out=self.slopes[number - 1])
            self.activation.backward(slope, states[number - 1])
        if pairs is not None:
            both = slope
            slope = pairs.unmix(both[:, : self.n_rows], self.first, self.other, self.scratch)
            if self.has_both:
                slope += both[:, self.n_rows :]
        self._write(0, slope, self.X)

    def _write(self, number: int, slope: Tensor, state: Tensor) -> None:
        weight, bias = self.gradients[number]
        torch.bmm(slope.mT, state, out=weight)
        if bias is not None:
            torch.sum(slope, dim=1, out=bias)


def directional_step(
    stack: Stack, X: Tensor, goal: Goal, pairs: Pairs | None, terms: Terms
) -> Parts:
    """Write the gradient of a loss with the directional penalty, whose slope autograd carries."""
    weights = stack.weights.detach().requires_grad_()
    X = X.detach().requires_grad_()
    activation = activation_of(stack.modules[0])
    (first_weight, first_bias), *others = stack.layers(weights)
    state = _linear(X, first_weight, first_bias)
    state = state if pairs is None else torch.cat([pairs.mix(state), state], dim=1)
    for weight, bias in others:
        state = _linear(activation.function(state), weight, bias)
    n_rows = X.shape[1]
    at_mixed, at_clean = _heads(state, n_rows, terms.head)
    losses, _ = glm_loss(state[:, :n_rows], goal.mixed, goal.mass, at_mixed)
    q = directional_penalty(state[:, -n_rows:], X, goal.clean, 0.0, at_clean)
    penalty_term = (_shares(goal, terms) * q.abs()).sum(dim=-1)
    parts = _parts(losses.mean(dim=-1), penalty_term, terms.eta)
    (gradient,) = torch.autograd.grad(parts.loss.sum(), weights)
    stack.gradient.copy_(gradient)
    return Parts(*(part.detach() for part in parts))
