"""Several networks of one architecture as one: parameters in one buffer, passes in closed form.

Every tensor has the members first: (n_members, n_rows, width). The first layer is linear, so it
commutes with mixing: the first state of mixed samples is the mix of the clean samples' first
states. Wide inputs therefore need no mixing, and the widest matrix product runs once for clean and
mixed samples.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mixupe_sklearn._engine.layers import LAYERS, Elementwise
from mixupe_sklearn._method.formulas import LANE, LossMemory, State, fused_loss, mix, partners_of
from mixupe_sklearn.modules import MLP


def layers_of(module: nn.Module) -> list[nn.Module] | None:
    """Return the layers of an ``MLP`` or a ``Sequential`` in order; None if one is not known.

    Examples
    --------
    >>> from torch import nn
    >>> [type(layer).__name__ for layer in layers_of(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))]
    ['Linear', 'ReLU']
    >>> layers_of(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))) is None
    True
    """
    # From torch's own dicts, since every prediction calls this function.
    if type(module) is MLP and list(module._modules) == ["stages"] and not module._parameters:
        module = module.stages
    elif type(module) is not nn.Sequential:
        return None
    found: list[nn.Module] = []
    return found if _collect(module, found) else None


def _collect(container: nn.Module, found: list[nn.Module]) -> bool:
    """Add the layers of a container; return whether all are known."""
    parts: list[Any] = list(container._modules.values())
    for part in parts:
        if type(part) is nn.Sequential and not part._parameters:
            if not _collect(part, found):
                return False
        elif type(part) is not nn.Identity:
            layer = LAYERS.get(type(part))
            expected = layer.expected if isinstance(layer, Elementwise) else {}
            if layer is None or any(getattr(part, name) != expected[name] for name in expected):
                return False
            found.append(part)
    return True


def parts_of(module: nn.Module) -> Iterator[nn.Module]:
    """Yield a module and all modules in it, as its ``modules()`` does, in a third of the time."""
    yield module
    for part in module._modules.values():
        if part is not None:
            yield from parts_of(part)


def architecture_of(module: nn.Module) -> tuple[Any, ...] | None:
    """Return what networks of one architecture share, or None if the engine cannot run it."""
    layers = layers_of(module)
    if layers is None or not any(LAYERS[type(layer)].has_weights for layer in layers):
        return None
    weights = [weight for layer in layers for weight in layer._parameters.values()]
    given = [weight for weight in weights if weight is not None]
    if len({id(weight) for weight in given}) < len(given):  # shared between layers
        return None
    shapes = tuple(None if weight is None else (*weight.shape, weight.dtype) for weight in weights)
    return (
        *(type(layer) for layer in layers),
        *(getattr(layer, "p", None) for layer in layers),
        shapes,
    )


def n_outputs_of(module: nn.Module) -> int | None:
    """Return the number of outputs of known layers; raise if the layers do not fit together."""
    width = None
    for number, layer in enumerate(layers_of(module) or ()):
        if LAYERS[type(layer)].has_weights:
            linear: Any = layer
            if width not in (None, linear.in_features):
                raise ValueError(
                    f"Got a {type(module).__name__} whose layer {number}, {type(layer).__name__}, "
                    f"takes {linear.in_features} features, but expected {width}, as many as the "
                    f"layers before it return."
                )
            width = int(linear.out_features)
    return width


class Pairs(NamedTuple):
    """The mixing of a step: ``lam`` of shape (n_members, n_rows, 1), and the partners.

    ``partner`` and its inverse number the samples across all members, so that one lookup serves all
    of them.
    """

    lam: Tensor
    partner: Tensor
    inverse: Tensor


class StepBatch(NamedTuple):
    """The batch of one step; samples are numbered across all members.

    Parameters
    ----------
    X : Tensor of shape (n_members, n_given, n_features)
        Inputs: those to run, or the clean ones if ``pairs`` mixes the first states.
    targets : Tensor of shape (n_members, n_run, n_outputs)
        Targets of the samples to run: first the mixed and weighted ones of the samples in the loss,
        then those of samples in the penalty only, which are the first partners.
    mass : Tensor of shape (n_members, n_rows) or None
        Mixed weights of the samples in the loss; None means ones.
    clean : Tensor of shape (n_members, n_rows, n_outputs) or None
        Unweighted targets for the penalty, if it uses the samples in the loss.
    penalty_weight : Tensor of shape (n_members, n_clean, 1) or None
        Weight of each sample's penalty relative to the loss of one sample; None means no penalty.
    pairs : dict of Pairs
        How states are mixed, by the number of the layer after which they are; empty if the inputs
        are already mixed, or nothing is.
    """

    X: Tensor
    targets: Tensor
    mass: Tensor | None
    clean: Tensor | None
    penalty_weight: Tensor | None
    pairs: dict[int, Pairs]


class _MixPoint:
    """Memory for the mixing of a state: samples in the loss first, further clean samples last.

    Where the state has no further samples yet, they are the first partners.
    """

    def __init__(self, state: Tensor, n_rows: int, n_extra: int):
        n_members, n_given, width = state.shape
        self.n_rows = n_rows
        self.out = State.new(state, n_rows + n_extra, width)
        self.other, self.scratch = state.new_empty(2, n_members, n_rows, width)
        self.grad = State.new(state, n_given, width)
        self.given = self.out.values  # the gradient of the mixed state, once it has memory
        # Views are made once: each costs as much as a small sum.
        self.first = state[:, :n_rows]
        self.mixed, self.extra = self.out.values[:, :n_rows], self.out.values[:, n_rows:]
        self.source = state[:, n_rows:] if n_given > n_rows else self.other[:, :n_extra]
        self.grows = n_given == n_rows and n_extra > 0

    def forward(self, pairs: Pairs) -> None:
        """Write the mixed state to ``out``."""
        first = self.first if self.first.is_contiguous() else self.first.contiguous()
        mix(first, pairs.lam, pairs.partner, out=self.mixed, other=self.other)
        if self.extra.shape[1]:
            self.extra.copy_(self.source)

    def backward(self, pairs: Pairs) -> None:
        """Write the gradient of the state: the transpose of ``mix``, for both of each pair."""
        n_rows, extra = self.n_rows, self.given[:, self.n_rows :]
        mixed, first = self.given[:, :n_rows], self.grad.values[:, :n_rows]
        torch.mul(mixed, pairs.lam, out=first)
        torch.sub(mixed, first, out=self.scratch)
        if self.grows:
            self.scratch[:, : extra.shape[1]] += extra
        elif extra.shape[1]:
            self.grad.values[:, n_rows:] = extra
        first += partners_of(self.scratch, pairs.inverse, self.other)


class Passes:
    """Forward and backward pass of a network in closed form, in memory that each step reuses.

    Parameters
    ----------
    network : Network
        The members.
    batch : StepBatch
        A batch of the sizes that the memory is for.
    """

    def __init__(self, network: "Network", batch: StepBatch):
        self.layers = network.layers
        self.first = next(n for n, layer in enumerate(self.layers) if layer.has_weights)
        n_run = batch.targets.shape[1]
        n_clean = 0 if batch.penalty_weight is None else batch.penalty_weight.shape[1]
        n_extra = n_clean if batch.clean is None else 0
        n_rows, weights = n_run - n_extra, network.weights
        self.input = State.new(weights, *batch.X.shape[1:])
        # Inputs are used where they are if each member begins at a multiple of LANE.
        self.is_copied = self.first > 0 or batch.X.stride(0) % LANE > 0
        self.points: dict[int, _MixPoint] = {}
        # The calls of a step, with their memory. The first input may be that of the batch.
        self.forwards: list[tuple[Callable[..., None], Tensor, Tensor]] = []
        self.backwards: list[tuple[int, Callable[..., None], Tensor, Tensor, Tensor | None]] = []
        inputs, outputs, state = [], [], self.input
        for number, layer in enumerate(self.layers):
            inputs.append(state)
            n_given, width = state.values.shape[1:]
            width = layer.weight.shape[1] if layer.has_weights else width
            is_new = layer.has_weights or layer.saves == "input" or number == 0
            state = State.new(weights, n_given, width) if is_new else state
            outputs.append(state)
            part = _part(layer)
            self.forwards.append((layer.forward, inputs[-1][part], state[part]))
            if number in batch.pairs:
                self.points[number] = _MixPoint(state.values, n_rows, n_extra)
                state = self.points[number].out
        self.memory = LossMemory(state.values, n_rows, n_clean)
        grad = self.memory.state
        for number in range(len(self.layers) - 1, self.first - 1, -1):
            layer, part = self.layers[number], _part(self.layers[number])
            if number in self.points:
                self.points[number].given, grad = grad.values, self.points[number].grad
            target: State | None = grad
            if layer.has_weights:
                is_needed = number > self.first
                target = State.new(weights, *inputs[number].values.shape[1:]) if is_needed else None
            saved = inputs[number] if layer.saves == "input" else outputs[number]
            grad_input = None if target is None else target[part]
            self.backwards.append((number, layer.backward, grad[part], saved[part], grad_input))
            grad = target or grad

    def run(self, batch: StepBatch, head: str) -> tuple[Tensor, Tensor | None]:
        """Return the sums of loss and penalty, and write the gradient of every parameter."""
        X, points = batch.X, self.points
        if self.is_copied:
            self.input.values.copy_(X)
        for number, (forward, state, out) in enumerate(self.forwards):
            forward(state if number or self.is_copied else X, out=out)
            if number in points:
                points[number].forward(batch.pairs[number])
        sums = fused_loss(
            self.memory, batch.targets, batch.mass, batch.clean, batch.penalty_weight, head
        )
        for number, backward, grad, saved, grad_input in self.backwards:
            if number in points:
                points[number].backward(batch.pairs[number])
            backward(grad, saved if number or self.is_copied else X, grad_input=grad_input)
        return sums


def _part(layer: Any) -> int:
    """Which part of a state a layer gets: functions of single entries take all memory."""
    return 1 if isinstance(layer, Elementwise) else 0


class Network:
    """Modules of one architecture as one network; their parameters are views of ``weights``.

    Parameters
    ----------
    modules : sequence of torch.nn.Module
        Modules with the same ``architecture_of``. They share every change of ``weights`` until
        ``release``.

    Examples
    --------
    >>> import torch
    >>> modules = [torch.nn.Sequential(torch.nn.Linear(2, 1)) for _ in range(3)]
    >>> network = Network(modules)
    >>> network.weights.shape
    torch.Size([3, 64])
    >>> _ = network.weights.zero_()
    >>> modules[1](torch.ones(1, 2)).item()
    0.0
    """

    def __init__(self, modules: Sequence[nn.Module]):
        self.modules = modules
        rows = [list(module.parameters()) for module in modules]
        self.shapes = [parameter.shape for parameter in rows[0]]
        flat = [torch.cat([p.detach().flatten() for p in row]) for row in rows]
        self.n_weights = len(flat[0])
        self.weights = padded(torch.stack(flat))
        self.gradient = torch.zeros_like(self.weights)
        self.views: list[tuple[nn.Parameter, Tensor, Tensor]] = []
        for row, weights in zip(rows, self.weights, strict=True):
            for parameter, view in zip(row, self.unflatten(weights), strict=True):
                self.views.append((parameter, parameter.data, view))
                parameter.data = view
        self.layers = list(self._bind())
        self.passes: dict[Any, Passes] = {}

    def _bind(self) -> Iterator[Any]:
        """Yield the layers with views of their parameters and gradients, for all members."""
        weights, grads = self.unflatten(self.weights), self.unflatten(self.gradient)
        for module in layers_of(self.modules[0]) or ():
            layer, n_own = LAYERS[type(module)], len(list(module.parameters()))
            if isinstance(layer, Elementwise):
                yield layer
            else:
                yield layer(module, weights[:n_own], grads[:n_own])
            del weights[:n_own], grads[:n_own]

    def unflatten(self, flat: Tensor) -> list[Tensor]:
        """Return views of the last dimension in the shapes of the parameters."""
        parts = flat[..., : self.n_weights].split([shape.numel() for shape in self.shapes], dim=-1)
        return [part.unflatten(-1, shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def run(self, batch: StepBatch, head: str) -> tuple[Tensor, Tensor | None]:
        """Return the sums of loss and penalty of a batch, and write the gradient."""
        key = batch.X.shape, batch.targets.shape, batch.clean is None, *batch.pairs
        if key not in self.passes:
            self.passes[key] = Passes(self, batch)
        return self.passes[key].run(batch, head)

    def predict(self, X: Tensor) -> Tensor:
        """Return the logits in prediction, (n_members, n_rows, n_outputs).

        ``X`` has the shape (n_rows, n_features), or has different samples for each member.
        """
        state = X.expand(len(self.modules), *X.shape[-2:])
        for layer in self.layers:
            state = layer.function(state)
        return state

    def check_shapes(self) -> None:
        """Raise if a callback has changed the shape of a parameter."""
        for module in self.modules:
            for (name, own), shape in zip(module.named_parameters(), self.shapes, strict=False):
                if own.shape != shape:
                    raise ValueError(
                        f"Got a callback that changed {name} of the module from the shape "
                        f"{tuple(shape)} to {tuple(own.shape)}, but expected the same shape: "
                        f"callbacks may change values only."
                    )

    def release(self) -> None:
        """Restore the parameters of every module, with their new values and last gradients."""
        gradients = [view for row in self.gradient for view in self.unflatten(row)]
        for (parameter, own, view), gradient in zip(self.views, gradients, strict=True):
            if parameter.data_ptr() == view.data_ptr():  # else it was replaced
                parameter.data = own.copy_(view)
                parameter.grad = gradient.clone()


def padded(values: Tensor) -> Tensor:
    """Fill the last dimension with zeros to a multiple of ``LANE``."""
    return nn.functional.pad(values, (0, -values.shape[-1] % LANE))


def predict_stacked(modules: Sequence[nn.Module], X: Tensor) -> Tensor | None:
    """Return the logits of several modules, whose parameters stay as they are.

    None if they are not made of the same known layers.

    Examples
    --------
    >>> import torch
    >>> from mixupe_sklearn.modules import MLP
    >>> predict_stacked([MLP(4, 3), MLP(4, 3)], torch.zeros(5, 4)).shape
    torch.Size([2, 5, 3])
    """
    layers = [layers_of(module) for module in modules]
    first = layers[0]
    if first is None or any(own is None or len(own) != len(first) for own in layers):
        return None
    state = X.expand(len(modules), *X.shape[-2:])
    for own in zip(*layers, strict=True):
        kind = type(own[0])
        if any(type(part) is not kind for part in own):
            return None
        layer = LAYERS[kind]
        if not isinstance(layer, Elementwise):
            parameters = zip(*(part.parameters() for part in own), strict=True)
            weights = [torch.stack([p.detach() for p in group]) for group in parameters]
            layer = layer(own[0], weights, weights)
        state = layer.function(state)
    return state
