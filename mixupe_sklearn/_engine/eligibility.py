"""Epochs of a single plain MLP whose gradients are written by hand, and when that can be done."""

import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mixupe_sklearn._data.batches import Batches, CentredRows
from mixupe_sklearn._engine.network import ACTIVATIONS, activation_of
from mixupe_sklearn._engine.prefetch import Data
from mixupe_sklearn._engine.trainer import Batch, counts_of, rates_of, unstack_optimizer
from mixupe_sklearn._method.criterion import MixupELoss
from mixupe_sklearn._runtime.device import is_compiled
from mixupe_sklearn.modules import MLP

# Optimizers that treat every weight alike and alone: one long vector is as good as many arrays.
OPTIMIZERS = {
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.NAdam,
    torch.optim.RMSprop,
    torch.optim.SGD,
}
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_WEIGHT_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


def why_not_by_hand(net: Any, iterator: Any) -> str | None:
    """Say why an epoch of this net is not run by hand, or None if it can be.

    Parameters
    ----------
    net : MixupENet
        An initialised net.
    iterator : Batches or other iterable
        The batches of the epoch.

    Returns
    -------
    reason : str or None
        One plain reason.
    """
    parts = (_about_module(net.module_), _about_loss(net.criterion_), _about_optimizer(net))
    reasons = (reason for part in (*parts, _about_data(net, iterator)) for reason in part)
    return next(reasons, None)


def is_plain(module: nn.Module) -> bool:
    """Whether a module is one of our MLPs as it is made, without dropout and BatchNorm."""
    if type(module) is not MLP:
        return False
    # Parts are taken from torch's own dicts: this is asked again with every row to predict.
    parts: list[Any] = list(module.stages._modules.values())
    *hidden, last = parts
    if not all(type(stage) is nn.Sequential and len(stage._modules) == 2 for stage in hidden):
        return False
    pairs = [tuple(stage._modules.values()) for stage in hidden]
    layers = [*(layer for layer, _ in pairs), last]
    activations = [activation for _, activation in pairs]
    # A user may have exchanged a layer, tied two, taken a bias away, or added a weight.
    if not all(_is_linear(layer) for layer in layers) or len(module._modules) > 1:
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


def _is_linear(layer: nn.Module) -> bool:
    return type(layer) is nn.Linear


def _about_module(module: nn.Module) -> Iterable[str]:
    if not is_plain(module):
        yield "the module is not an MLP without dropout and BatchNorm"
    if any(getattr(layer, name) for layer in module.modules() for name in _HOOKS):
        yield "the module has hooks"
    if is_compiled(module):
        yield "the module is compiled"
    parameters = list(module.parameters())
    if not all(parameter.requires_grad for parameter in parameters):
        yield "a weight is frozen"
    if any(getattr(parameter, name, None) for parameter in parameters for name in _WEIGHT_HOOKS):
        yield "a weight has hooks"
    if any(parameter.device.type != "cpu" for parameter in parameters):
        yield "the module is not on the processor"
    if any(parameter.dtype not in (torch.float32, torch.float64) for parameter in parameters):
        yield "the weights are not of single or double precision"


def _about_loss(criterion: Any) -> Iterable[str]:
    if type(criterion) is not MixupELoss:
        yield "the criterion is not MixupELoss"
    elif criterion.mix_at == "hidden" and (criterion.has_mixing or criterion.has_penalty):
        yield "rows are mixed at a hidden layer"
    elif criterion.penalty == "directional" and bool(criterion.X_mean.any()):
        yield "X_mean is not zero"
    elif criterion.penalty_order != 1 and criterion.has_penalty:
        yield "the penalty has a second-order term"


def _about_optimizer(net: Any) -> Iterable[str]:
    optimizer = net.optimizer_
    if type(optimizer) not in OPTIMIZERS or len(optimizer.param_groups) > 1:
        yield "the optimizer is not a plain one"
        return
    group = optimizer.param_groups[0]
    parameters = list(net.module_.parameters())
    is_whole = len(group["params"]) == len(parameters)
    if not is_whole or any(a is not b for a, b in zip(group["params"], parameters, strict=True)):
        yield "the optimizer does not train all weights of the module"
    if group.get("differentiable") or group.get("capturable") or isinstance(group["lr"], Tensor):
        yield "the optimizer has an unusual option"
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        yield "the optimizer has hooks"
    histories = [_history_of(optimizer.state.get(parameter, {})) for parameter in parameters]
    if any(history != histories[0] for history in histories):
        yield "the weights have different histories"


def _history_of(state: dict[str, Any]) -> tuple[Any, ...]:
    """What all weights of a network must agree in: the names in their state, and the counts."""
    counts = counts_of(state).items()
    return *state, *(float(v) if isinstance(v, Tensor) else v for _, v in counts)


def _about_data(net: Any, iterator: Any) -> Iterable[str]:
    if net._prepare is not None or net._precision is not None:
        yield "inputs are made ready batch by batch, or computed in low precision"
    if type(iterator) is not Batches:
        yield "the data do not lie in memory"
        return
    X, weight = _parts_of(iterator)
    dtype = next(net.module_.parameters()).dtype
    if not isinstance(X, (Tensor, CentredRows)) or X.dtype != dtype or len(X.shape) != 2:
        yield "the inputs are not rows of the module's floating type"
    elif X.shape[1] != next(net.module_.parameters()).shape[1]:
        yield "the inputs have another width than the module"
    if weight is not None and (not isinstance(weight, Tensor) or weight.ndim != 1):
        yield "the weights are not one a row"
    if not isinstance(iterator.y, Tensor) or iterator.y.device.type != "cpu":
        yield "the targets are not a tensor"
    elif net.criterion_.head == "softmax" and (
        iterator.y.ndim != 1 or iterator.y.is_floating_point()
    ):
        yield "the targets are not class numbers"


def _parts_of(iterator: Batches) -> tuple[Any, Any]:
    """Inputs and weights of batches; no inputs where there are several."""
    if not isinstance(iterator.X, dict):
        return iterator.X, None
    is_known = set(iterator.X) <= {"X", "sample_weight"}
    return iterator.X.get("X") if is_known else None, iterator.X.get("sample_weight")


class StackedSession:
    """Weights and optimizer state of a net, borrowed for the time of its training.

    Between epochs the net is whole: its parameters, their gradients and its optimizer's state show
    the values of the moment. What a callback writes into them counts; where it puts others in
    their place, or changes how they are trained, the loan is void and another one is made.
    """

    def __init__(self, net: Any):
        self.terms = _session_key(net)
        self.batch = Batch([net])
        (self.optimizer,) = self.batch.optimizers
        self.states: list[tuple[Any, dict[str, Any]]] = []

    def is_good(self, net: Any) -> bool:
        """Whether the net still has what was borrowed, and is trained as before."""
        is_same = net.optimizer_ is self.optimizer and _session_key(net) == self.terms
        return is_same and self.batch.stack.is_whole and self.has_states

    @property
    def has_states(self) -> bool:
        """Whether the optimizer still has the state that was borrowed."""
        return all(
            self.optimizer.state.get(parameter) is state
            and _history_of(state) == _history_of(self.common_state)
            for parameter, state in self.states
        )

    @property
    def common_state(self) -> dict[str, Any]:
        """The state of the optimizer that takes the steps."""
        (weights,) = self.batch.optimizer.param_groups[0]["params"]
        return self.batch.optimizer.state.get(weights, {})

    def run_epoch(self, net: Any, data: Data, order: np.ndarray, sizes: list[int]) -> np.ndarray:
        """Run an epoch and return the losses of each step, (n_steps, 4)."""
        factors = net.next_factors(len(sizes))
        values = self.batch.run_epoch([net.criterion_], data, [order], sizes, factors)[:, :, 0]
        self._show()
        return values

    def _show(self) -> None:
        """Let the net's parameters and its optimizer show what the epoch has come to."""
        stack, optimizer = self.batch.stack, self.optimizer
        if not self.states:
            unstack_optimizer(stack, self.batch.optimizer, [optimizer], copy=False)
            self.states = list(optimizer.state.items())
        for _, state in self.states:
            for name, value in counts_of(self.common_state).items():
                is_tensor = isinstance(value, Tensor)
                state[name] = value.to(state[name].dtype, copy=True) if is_tensor else value
        for parameter, _, _ in stack.lent:
            parameter.grad = None
        # Without gradients it moves nothing, but schedules ask whether it was called.
        optimizer.step()
        gradients = stack.unflatten(stack.gradient[0])
        for (parameter, _, _), gradient in zip(stack.lent, gradients, strict=True):
            parameter.grad = gradient.clone()

    def restore_parameters(self) -> None:
        """Give the net memory of its own."""
        stack = self.batch.stack
        stack.release()
        if not self.states:  # an epoch was cut short
            unstack_optimizer(stack, self.batch.optimizer, [self.optimizer])
        for parameter, state in self.states:
            if self.optimizer.state.get(parameter) is state:  # else someone has given it another
                arrays = {name: state[name] for name in state if name not in counts_of(state)}
                state.update({name: value.clone() for name, value in arrays.items()})


def _session_key(net: Any) -> tuple[Any, ...]:
    """What may not change while a loan lasts."""
    return rates_of(net.optimizer_), activation_of(net.module_)


# The loans of nets in training; none of them holds on to its net.
_sessions: weakref.WeakKeyDictionary[Any, StackedSession] = weakref.WeakKeyDictionary()


def run_by_hand(net: Any, iterator: Batches) -> np.ndarray:
    """Run one epoch, and leave net and optimizer as autograd would have, up to rounding.

    ``pay_back`` is to be called when training is over.

    Returns
    -------
    values : array of shape (n_batches, 4)
        Loss, its parts and its scale.
    """
    if net in _sessions and not _sessions[net].is_good(net):
        restore_parameters(net)
    if net not in _sessions:
        net.rest_rate()  # a step that was taken elsewhere may have moved it
        _sessions[net] = StackedSession(net)
    X, weight = _parts_of(iterator)
    data = Data(X, iterator.y, weight, net, iterator.indices)
    order = iterator.order()
    order = np.arange(iterator.n_samples) if order is None else order
    return _sessions[net].run_epoch(net, data, order, iterator.sizes())


def restore_parameters(net: Any) -> None:
    """Give the net's weights and optimizer state back, if they are borrowed."""
    session = _sessions.pop(net, None)
    if session is not None:
        session.restore_parameters()
