"""The arithmetic of several MLPs of one shape that take their training steps together.

Every tensor has the members first: ``(n_members, n_rows, width)``. The first layer is linear, so it
commutes with mixing: the mixed rows' first state is the mix of the clean rows' first states. Hence
wide inputs need not be mixed, and the widest matrix product is run once for clean and mixed rows.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from mixupe_sklearn._engine.loss import (
    Feed,
    Outputs,
    Sums,
    evaluate,
    losses_of,
    padded,
    scale_of,
    write_grad,
)
from mixupe_sklearn._method.glm import HEADS
from mixupe_sklearn._method.penalties import directional_penalty

_aten = torch.ops.aten
Layers = list[tuple[Tensor, Tensor | None]]


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
        lambda grad, state: _aten.threshold_backward.grad_input(grad, state, 0, grad_input=grad),
    ),
    nn.GELU: Activation(
        nn.functional.gelu,
        lambda state, out: _aten.gelu.out(state, out=out),
        lambda grad, state: _aten.gelu_backward.grad_input(grad, state, grad_input=grad),
        needs_input=True,
    ),
    nn.SiLU: Activation(
        nn.functional.silu,
        lambda state, out: _aten.silu.out(state, out=out),
        lambda grad, state: _aten.silu_backward.grad_input(grad, state, grad_input=grad),
        needs_input=True,
    ),
    nn.Tanh: Activation(
        torch.tanh,
        lambda state, out: torch.tanh(state, out=out),
        lambda grad, state: _aten.tanh_backward.grad_input(grad, state, grad_input=grad),
    ),
    nn.Identity: Activation(lambda state: state, lambda state, out: None, lambda grad, state: None),
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
        self.lent: list[tuple[nn.Parameter, Tensor, Tensor]] = []
        for module, row in zip(modules, self.weights, strict=True):
            for parameter, view in zip(module.parameters(), self.unflatten(row), strict=True):
                self.lent.append((parameter, parameter.data, view))
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

    @property
    def is_whole(self) -> bool:
        """Whether the modules' parameters are still the same, and views of ``weights``."""
        parameters = [p for module in self.modules for p in module.parameters()]
        return len(parameters) == len(self.lent) and all(
            p is lent and p.data_ptr() == view.data_ptr()
            for p, (lent, _, view) in zip(parameters, self.lent, strict=True)
        )

    def release(self) -> None:
        """Give every module its own weights back, with their new values."""
        for parameter, own, view in self.lent:
            if parameter.data_ptr() == view.data_ptr():  # else someone has given it new ones
                parameter.data = own.copy_(view)


class _Layer(NamedTuple):
    """Views of a layer's weights and of where their gradients go, made once."""

    weight: Tensor
    transposed: Tensor
    bias: Tensor | None
    weight_grad: Tensor
    bias_grad: Tensor | None

    def run(self, state: Tensor, out: Tensor) -> None:
        """Write what the layer makes of a state."""
        if self.bias is None:
            torch.bmm(state, self.transposed, out=out)
        else:
            torch.baddbmm(self.bias, state, self.transposed, out=out)

    def write(self, grad: Tensor, state: Tensor) -> None:
        """Write the gradient of the layer's weights, from that of what it gave."""
        torch.bmm(grad.mT, state, out=self.weight_grad)
        if self.bias_grad is not None:
            torch.sum(grad, dim=1, out=self.bias_grad)


def _layers_of(stack: Stack) -> list[_Layer]:
    pairs = zip(stack.layers(stack.weights), stack.layers(stack.gradient), strict=True)
    return [
        _Layer(weight, weight.mT, None if bias is None else bias[:, None], *grads)
        for (weight, bias), grads in pairs
    ]


class Passes:
    """Forward and backward pass of a stack by hand, in memory that is used again each step.

    Parameters
    ----------
    stack : Stack
        The members.
    n_rows : int
        Rows whose loss counts.
    n_clean : int
        Rows that the penalty sees.
    n_extra : int
        How many of those run for the penalty alone: all, or none where nothing is mixed.
    """

    def __init__(self, stack: Stack, n_rows: int, n_clean: int, n_extra: int):
        self.layers = _layers_of(stack)
        self.activation = activation_of(stack.modules[0])
        self.n_extra = n_extra
        widths = [layer.weight.shape[1] for layer in self.layers]
        n_members = len(stack.modules)
        new = stack.weights.new_empty
        self.first, self.other, self.scratch = new(3, n_members, n_rows, widths[0])
        self.before = [new(n_members, n_rows + n_extra, width) for width in widths]
        needs_input = self.activation.needs_input
        self.after = [torch.empty_like(s) if needs_input else s for s in self.before[:-1]]
        self.grads = [torch.empty_like(state) for state in self.before[:-1]]
        self.outputs = Outputs(self.before[-1], n_rows, n_clean)
        state, grad = self.before[0], (self.grads or [self.outputs.grad])[0]
        self.mixed, self.extra = state[:, :n_rows], state[:, n_rows:]
        self.mixed_grad, self.extra_grad = grad[:, :n_rows], grad[:, n_rows:]
        self.other_first = self.other[:, :n_extra]

    def run(self, feed: Feed, head: str) -> Sums:
        """Sum up the loss, and write the gradient of every weight."""
        self._forward(feed)
        sums = write_grad(self.outputs, feed, head)
        self._backward(feed)
        return sums

    def _forward(self, feed: Feed) -> None:
        first, *others = self.layers
        if feed.pairs is None:
            first.run(feed.X, self.before[0])
        else:
            first.run(feed.X, self.first)
            feed.pairs.mix(self.first, self.mixed, self.other)
            if self.n_extra:
                self.extra.copy_(self.other_first)
        for number, layer in enumerate(others):
            self.activation.forward(self.before[number], self.after[number])
            layer.run(self.after[number], self.before[number + 1])

    def _backward(self, feed: Feed) -> None:
        states = self.before if self.activation.needs_input else self.after
        grad = self.outputs.grad
        for number in reversed(range(1, len(self.layers))):
            layer = self.layers[number]
            layer.write(grad, self.after[number - 1])
            grad = torch.bmm(grad, layer.weight, out=self.grads[number - 1])
            self.activation.backward(grad, states[number - 1])
        if feed.pairs is not None:
            rooms = (self.first, self.other, self.scratch)
            grad = feed.pairs.unmix(self.mixed_grad, self.extra_grad, *rooms)
        self.layers[0].write(grad, feed.X)


def _linear(state: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None:
        return torch.bmm(state, weight.mT)
    return torch.baddbmm(bias[:, None], state, weight.mT)


def run_stacked(modules: Sequence[nn.Module], X: Tensor) -> Tensor:
    """Outputs of several MLPs of one shape in one pass, (n_members, n_rows, n_outputs).

    Parameters
    ----------
    modules : sequence of MLP
        Plain ones, without dropout and BatchNorm.
    X : Tensor of shape (n_rows, n_features) or (n_members, n_rows, n_features)
        The same rows for all, or other ones for each.

    Examples
    --------
    >>> import torch
    >>> from mixupe_sklearn.modules import MLP
    >>> modules = [MLP(4, 3), MLP(4, 3)]
    >>> run_stacked(modules, torch.zeros(5, 4)).shape
    torch.Size([2, 5, 3])
    """
    activation = activation_of(modules[0])
    layers = [
        [layer for layer in module.modules() if isinstance(layer, nn.Linear)] for module in modules
    ]
    state = X.expand(len(modules), *X.shape[-2:])
    for number, own in enumerate(zip(*layers, strict=True)):
        weight = torch.stack([layer.weight for layer in own])
        bias = None if own[0].bias is None else torch.stack([layer.bias for layer in own])
        state = _linear(state if number == 0 else activation.function(state), weight, bias)
    return state


def directional_step(stack: Stack, feed: Feed, head: str) -> Sums:
    """Write the gradient of a loss with the directional penalty, whose slope autograd carries."""
    weights = stack.weights.detach().requires_grad_()
    X = feed.X.detach().requires_grad_()
    activation = activation_of(stack.modules[0])
    (first_weight, first_bias), *others = stack.layers(weights)
    state = _linear(X, first_weight, first_bias)
    assert feed.pull is not None
    n_rows, n_clean = X.shape[1], feed.pull.shape[1]
    if feed.pairs is not None:
        clean = feed.pairs.partners(state)[:, :n_clean]
        state = torch.cat([feed.pairs.mix(state), clean], dim=1)
    for weight, bias in others:
        state = _linear(activation.function(state), weight, bias)
    values = evaluate(state, head)
    inner = torch.linalg.vecdot(feed.targets, values.logits)
    loss = losses_of(values, inner, n_rows, feed, head).sum(dim=-1)
    q = _directional(state, values.mean, X, n_clean, feed, head)
    penalty = torch.linalg.vecdot(feed.pull[..., 0], q.abs())
    scale = scale_of(loss.detach(), penalty.detach(), n_rows)
    (gradient,) = torch.autograd.grad(((loss + penalty)[:, None, None] * scale).sum(), weights)
    stack.gradient.copy_(gradient)
    return Sums(loss.detach(), penalty.detach())


def _directional(
    logits: Tensor, mean: Tensor, X: Tensor, n_clean: int, feed: Feed, head: str
) -> Tensor:
    """``q`` of the rows that the penalty sees."""
    y = feed.targets[:, -n_clean:] if feed.clean is None else feed.clean
    at_clean = HEADS[head]._replace(mean=lambda logits: mean[:, -n_clean:])
    q = directional_penalty(logits[:, -n_clean:], X, y, 0.0, at_clean)
    # One for each row of X, in its order; the rows that the penalty sees are the first partners.
    return q if feed.pairs is None else feed.pairs.partners(q)[:, :n_clean]
