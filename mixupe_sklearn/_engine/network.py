"""Arithmetic of several MLPs of one shape that take their training steps together.

Every tensor has the members first: ``(n_members, n_rows, width)``. The first layer is linear, so it
commutes with mixing: the first state of mixed samples is the mix of the clean samples' first
states. Wide inputs therefore need no mixing, and the widest matrix product runs once for clean and
mixed samples. The formulas of the loss are those of ``_method``; here they are written for speed,
with few calls and into existing memory.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from mixupe_sklearn._method.glm import HEADS
from mixupe_sklearn._method.penalties import directional_penalty
from mixupe_sklearn.modules import MLP

# Members start at multiples of this many entries. torch processes entries in blocks (of 32 or
# fewer) and rounds an incomplete last block differently. If each member fills complete blocks, its
# result does not depend on the other members.
LANE = 64
# From this many outputs on, torch is fast at a softmax over the last dimension; below, it is faster
# over the one before it.
WIDE = 16
_aten = torch.ops.aten
Layers = list[tuple[Tensor, Tensor | None]]


class Activation(NamedTuple):
    """An activation function: for autograd, and in closed form with its derivative.

    ``forward(state, out)`` writes to ``out``, which is the state itself unless ``needs_input``.
    ``backward(grad, state)`` multiplies the gradient in place. ``state`` is the input of the
    function where ``needs_input``, else its output.
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
    """Return the activation function of an MLP; the identity for a linear model."""
    kinds = (type(layer) for layer in module.modules())
    return ACTIVATIONS[next((kind for kind in kinds if kind in ACTIVATIONS), nn.Identity)]


def is_plain(module: nn.Module) -> bool:
    """Return whether a module is an unmodified ``MLP`` without dropout and BatchNorm."""
    if type(module) is not MLP:
        return False
    # Read from torch's own dicts, since every prediction calls this function.
    parts: list[Any] = list(module.stages._modules.values())
    *hidden, last = parts
    if not all(type(stage) is nn.Sequential and len(stage._modules) == 2 for stage in hidden):
        return False
    pairs = [tuple(stage._modules.values()) for stage in hidden]
    layers = [*(layer for layer, _ in pairs), last]
    activations = [activation for _, activation in pairs]
    # A user may have replaced a layer, tied two, removed a bias, or added a weight.
    if not all(type(layer) is nn.Linear for layer in layers) or len(module._modules) > 1:
        return False
    owners = [module, module.stages, *hidden, *activations]
    weights = [weight for layer in layers for weight in layer._parameters.values()]
    return (
        len({layer._parameters["bias"] is None for layer in layers}) == 1
        and len({type(activation) for activation in activations}) <= 1
        and all(type(activation) in ACTIVATIONS for activation in activations)
        and all(getattr(activation, "approximate", "none") == "none" for activation in activations)
        and len(weights) == 2 * len(layers)
        and len({id(weight) for weight in weights if weight is not None})
        == sum(weight is not None for weight in weights)
        and not any(owner._parameters for owner in owners)
    )


def padded(values: Tensor) -> Tensor:
    """Fill the last dimension with zeros to a multiple of ``LANE``."""
    return nn.functional.pad(values, (0, -values.shape[-1] % LANE))


class Pairs(NamedTuple):
    """The mixing of a step: ``lam`` of shape (n_members, n_rows, 1), and the partners.

    ``partner`` and its inverse number the samples across all members, so that one lookup serves all
    of them.
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

    def unmix(
        self, grad: Tensor, extra: Tensor, out: Tensor, other: Tensor, scratch: Tensor
    ) -> Tensor:
        """Transpose of ``mix``: add the gradient of mixed samples to both samples of each pair.

        ``extra`` is a further gradient of the first partners.
        """
        torch.mul(grad, self.lam, out=out)
        torch.sub(grad, out, out=scratch)
        if extra.shape[1]:
            scratch[:, : extra.shape[1]] += extra
        return out.add_(_take(scratch, self.inverse, other))

    def partners(self, values: Tensor) -> Tensor:
        """``values[partner]`` for ``(n_members, n_rows, ...)``."""
        return _take(values, self.partner, None)


def _take(values: Tensor, index: Tensor, out: Tensor | None) -> Tensor:
    """Rows by numbers across all members."""
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


class StepBatch(NamedTuple):
    """The batch of one step; samples are numbered across all members.

    Parameters
    ----------
    X : Tensor of shape (n_members, n_given, n_features)
        Inputs: those to run, or the clean ones if ``pairs`` mixes their states.
    targets : Tensor of shape (n_members, n_run, n_outputs)
        Targets of the samples to run: first the mixed and weighted ones of the samples in the loss,
        then those of samples in the penalty only, which are the first partners.
    mass : Tensor of shape (n_members, n_rows) or None
        Mixed weights of the samples in the loss; None means ones.
    clean : Tensor of shape (n_members, n_rows, n_outputs) or None
        Unweighted targets for the penalty, if it uses the samples in the loss.
    penalty_weight : Tensor of shape (n_members, n_clean, 1) or None
        Weight of each sample's penalty relative to the loss of one sample:
        ``n_rows * eta * E[1-lam]`` times its share of the weighted mean; None means no penalty.
    pairs : Pairs or None
        Mixing of the first states; None if the inputs are already mixed, or nothing is.
    """

    X: Tensor
    targets: Tensor
    mass: Tensor | None = None
    clean: Tensor | None = None
    penalty_weight: Tensor | None = None
    pairs: Pairs | None = None


class Sums(NamedTuple):
    """Result of a step: loss and penalty of each member, (n_members,), as sums over samples.

    The penalty includes its ``penalty_weight``; it is None without a penalty.
    """

    loss: Tensor
    penalty: Tensor | None = None


class Outputs:
    """Logits of a step, with memory for the mean and the gradient.

    Parameters
    ----------
    logits : Tensor of shape (n_members, n_run, n_outputs)
        Memory of the logits: samples in the loss first, samples in the penalty last; the two
        coincide without mixing.
    n_rows : int
        Number of samples in the loss.
    n_clean : int
        Number of samples in the penalty.
    """

    def __init__(self, logits: Tensor, n_rows: int, n_clean: int):
        self.logits, self.mean = logits, torch.empty_like(logits)
        self.grad = torch.empty_like(logits)
        self.n_rows = n_rows
        # Views are made once: each costs as much as a small sum.
        self.of_loss = self.grad[:, :n_rows]
        first = logits.shape[1] - n_clean
        self.of_clean = self.mean[:, first:], self.grad[:, first:]


def scale_of(loss: Tensor, penalty: Tensor, n_rows: int) -> Tensor | float:
    """Return the factor from sums to scaled means: ``|loss| / |loss + penalty| / n_rows``.

    The ratio is 1 where both are zero. The shape is (n_members, 1, 1). For one member it is a
    float, which is faster than a tensor of one entry and rounds alike.
    """
    if len(loss) == 1:
        value = loss.item()
        total = value + penalty.item()
        return (abs(value / total) if total else 1.0) / n_rows
    exact = loss.double()
    # A loss that is NaN stays visible in the loss itself.
    ratio = (exact / (exact + penalty)).abs_().nan_to_num_(1.0, math.inf, -math.inf)
    return ratio.div_(n_rows).to(loss.dtype)[:, None, None]


class Values(NamedTuple):
    """Values of a head: the logits to use further, ``h`` and ``g``.

    A softmax uses its logarithm further: it differs from the logits by a constant per sample, which
    changes neither the loss nor the penalty. ``h`` is then zero, and None here.
    """

    logits: Tensor
    potential: Tensor | None
    mean: Tensor


def evaluate(logits: Tensor, head: str, out: Tensor | None = None) -> Values:
    """Evaluate a head for all samples at once; writes ``g`` to ``out`` where given."""
    form, shape = HEADS[head], logits.shape[1:]
    potential: Tensor | None = None
    if head == "softmax" and shape[-1] >= WIDE:
        logits = logits.log_softmax(dim=-1)
        return Values(logits, None, torch.exp(logits, out=out))
    if head == "softmax":
        columns = logits.mT.contiguous().log_softmax(dim=-2)
        logits, mean = columns.mT.contiguous(), columns.exp().mT
    elif head == "sigmoid":  # entry by entry: see LANE
        flat = padded(logits.flatten(1))
        values = form.potential(flat[..., None]), form.mean(flat)
        potential, mean = (value[:, : shape.numel()].unflatten(1, shape) for value in values)
        potential = potential.sum(dim=-1)
    else:
        potential, mean = form.potential(logits), form.mean(logits)
    return Values(logits, potential, mean if out is None else out.copy_(mean))


def losses_of(values: Values, inner: Tensor, n_rows: int, batch: StepBatch, head: str) -> Tensor:
    """Loss of each sample in the loss, ``mass * h(f) - target'f``, from the inner products."""
    inner = inner[:, :n_rows]
    if values.potential is None:
        return -inner
    potential = values.potential[:, :n_rows]
    losses = (potential if batch.mass is None else batch.mass * potential) - inner
    floor = HEADS[head].floor
    if floor is None:
        return losses
    mass = torch.ones_like(losses) if batch.mass is None else batch.mass
    return losses - floor(batch.targets[:, :n_rows], mass)


def write_grad(outputs: Outputs, batch: StepBatch, head: str) -> Sums:
    """Return the sums of loss and penalty; write their gradient for the logits in closed form."""
    n_rows, grad = outputs.n_rows, outputs.grad
    values = evaluate(outputs.logits, head, out=outputs.mean)
    inner = torch.linalg.vecdot(batch.targets, values.logits)
    loss = losses_of(values, inner, n_rows, batch, head).sum(dim=-1)
    if batch.mass is None:
        torch.sub(values.mean, batch.targets, out=grad)
    else:
        grad.copy_(values.mean)
        outputs.of_loss.mul_(batch.mass[..., None])
        grad.sub_(batch.targets)
    if batch.penalty_weight is None:
        grad.mul_(1 / n_rows)
        return Sums(loss)
    penalty = _write_penalty(outputs, values.logits, inner, batch, head)
    grad.mul_(scale_of(loss, penalty, n_rows))
    return Sums(loss, penalty)


def _write_penalty(
    outputs: Outputs, logits: Tensor, inner: Tensor, batch: StepBatch, head: str
) -> Tensor:
    """Return the sum of the penalty, and add its gradient to the residuals."""
    mean, grad = outputs.of_clean
    logits = logits[:, -mean.shape[1] :]
    # Single columns, for broadcasting over the outputs.
    of_mean = (mean * logits).sum(dim=-1, keepdim=True)
    if batch.clean is None:
        residual, of_target = grad, inner[:, outputs.n_rows :, None]
    else:
        residual = mean - batch.clean
        of_target = (batch.clean * logits).sum(dim=-1, keepdim=True)
    minus_q = of_mean - of_target
    assert batch.penalty_weight is not None
    penalty_weight = minus_q.sign().mul_(batch.penalty_weight)
    penalty = (penalty_weight * minus_q).sum(dim=(1, 2))
    # The gradient of -q_hat: residual + g'(f) f.
    if head == "softmax":
        grad_q_hat = torch.addcmul(residual, mean, logits - of_mean)
    else:
        grad_q_hat = residual + HEADS[head].curve(mean, logits)
    if batch.clean is None:
        torch.mul(grad_q_hat, penalty_weight, out=grad)
    else:
        grad.addcmul_(grad_q_hat, penalty_weight)
    return penalty


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
    """Weights of several modules in one tensor, a row per module; their parameters are views of it.

    Parameters
    ----------
    modules : list of torch.nn.Module
        MLPs of one shape. They share every change of ``weights`` until ``release``.

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
        self.views: list[tuple[nn.Parameter, Tensor, Tensor]] = []
        for module, row in zip(modules, self.weights, strict=True):
            for parameter, view in zip(module.parameters(), self.unflatten(row), strict=True):
                self.views.append((parameter, parameter.data, view))
                parameter.data = view

    def unflatten(self, flat: Tensor) -> list[Tensor]:
        """Return views in the shapes of the parameters."""
        return unflatten(flat[..., : self.n_weights], self.shapes)

    def layers(self, flat: Tensor) -> Layers:
        """Return weight and bias of each layer, for all members."""
        views = self.unflatten(flat)
        if self.has_bias:
            return list(zip(views[::2], views[1::2], strict=True))
        return [(view, None) for view in views]

    @property
    def is_whole(self) -> bool:
        """Whether the modules still have the same parameters, as views of ``weights``."""
        parameters = [p for module in self.modules for p in module.parameters()]
        return len(parameters) == len(self.views) and all(
            p is own and p.data_ptr() == view.data_ptr()
            for p, (own, _, view) in zip(parameters, self.views, strict=True)
        )

    def release(self) -> None:
        """Restore the parameters of every module, with their new values."""
        for parameter, own, view in self.views:
            if parameter.data_ptr() == view.data_ptr():  # else it was replaced
                parameter.data = own.copy_(view)


class _Layer(NamedTuple):
    """Views of a layer's weights and of their gradients, made once."""

    weight: Tensor
    transposed: Tensor
    bias: Tensor | None
    weight_grad: Tensor
    bias_grad: Tensor | None

    def run(self, state: Tensor, out: Tensor) -> None:
        """Write the output of the layer."""
        if self.bias is None:
            torch.bmm(state, self.transposed, out=out)
        else:
            torch.baddbmm(self.bias, state, self.transposed, out=out)

    def write(self, grad: Tensor, state: Tensor) -> None:
        """Write the gradient of the layer's weights from that of its output."""
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
    """Forward and backward pass of a stack in closed form, in memory that each step reuses.

    Parameters
    ----------
    stack : Stack
        The members.
    n_rows : int
        Number of samples in the loss.
    n_clean : int
        Number of samples in the penalty.
    n_extra : int
        How many of those run for the penalty only: all, or none without mixing.
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

    def run(self, batch: StepBatch, head: str) -> Sums:
        """Return the sums of loss and penalty, and write the gradient of every weight."""
        self._forward(batch)
        sums = write_grad(self.outputs, batch, head)
        self._backward(batch)
        return sums

    def _forward(self, batch: StepBatch) -> None:
        first, *others = self.layers
        if batch.pairs is None:
            first.run(batch.X, self.before[0])
        else:
            first.run(batch.X, self.first)
            batch.pairs.mix(self.first, self.mixed, self.other)
            if self.n_extra:
                self.extra.copy_(self.other_first)
        for number, layer in enumerate(others):
            self.activation.forward(self.before[number], self.after[number])
            layer.run(self.after[number], self.before[number + 1])

    def _backward(self, batch: StepBatch) -> None:
        states = self.before if self.activation.needs_input else self.after
        grad = self.outputs.grad
        for number in reversed(range(1, len(self.layers))):
            layer = self.layers[number]
            layer.write(grad, self.after[number - 1])
            grad = torch.bmm(grad, layer.weight, out=self.grads[number - 1])
            self.activation.backward(grad, states[number - 1])
        if batch.pairs is not None:
            buffers = (self.first, self.other, self.scratch)
            grad = batch.pairs.unmix(self.mixed_grad, self.extra_grad, *buffers)
        self.layers[0].write(grad, batch.X)


def _linear(state: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None:
        return torch.bmm(state, weight.mT)
    return torch.baddbmm(bias[:, None], state, weight.mT)


def run_stacked(modules: Sequence[nn.Module], X: Tensor) -> Tensor:
    """Return the outputs of several MLPs of one shape, (n_members, n_rows, n_outputs).

    Parameters
    ----------
    modules : sequence of MLP
        Plain MLPs, without dropout and BatchNorm.
    X : Tensor of shape (n_rows, n_features) or (n_members, n_rows, n_features)
        The same samples for all members, or different ones.

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


def directional_step(stack: Stack, batch: StepBatch, head: str) -> Sums:
    """Write the gradient of a loss with the directional penalty, by autograd."""
    weights = stack.weights.detach().requires_grad_()
    X = batch.X.detach().requires_grad_()
    activation = activation_of(stack.modules[0])
    (first_weight, first_bias), *others = stack.layers(weights)
    state = _linear(X, first_weight, first_bias)
    assert batch.penalty_weight is not None
    n_rows, n_clean = X.shape[1], batch.penalty_weight.shape[1]
    if batch.pairs is not None:
        clean = batch.pairs.partners(state)[:, :n_clean]
        state = torch.cat([batch.pairs.mix(state), clean], dim=1)
    for weight, bias in others:
        state = _linear(activation.function(state), weight, bias)
    values = evaluate(state, head)
    inner = torch.linalg.vecdot(batch.targets, values.logits)
    loss = losses_of(values, inner, n_rows, batch, head).sum(dim=-1)
    q = _directional(state, values.mean, X, n_clean, batch, head)
    penalty = torch.linalg.vecdot(batch.penalty_weight[..., 0], q.abs())
    scale = scale_of(loss.detach(), penalty.detach(), n_rows)
    (gradient,) = torch.autograd.grad(((loss + penalty)[:, None, None] * scale).sum(), weights)
    stack.gradient.copy_(gradient)
    return Sums(loss.detach(), penalty.detach())


def _directional(
    logits: Tensor, mean: Tensor, X: Tensor, n_clean: int, batch: StepBatch, head: str
) -> Tensor:
    """Return ``q`` of the samples in the penalty."""
    y = batch.targets[:, -n_clean:] if batch.clean is None else batch.clean
    at_clean = HEADS[head]._replace(mean=lambda logits: mean[:, -n_clean:])
    q = directional_penalty(logits[:, -n_clean:], X, y, 0.0, at_clean)
    # One for each sample of X, in its order; the penalty uses the first partners.
    return q if batch.pairs is None else batch.pairs.partners(q)[:, :n_clean]
