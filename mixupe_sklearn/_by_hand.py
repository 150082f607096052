"""Epochs of a single plain MLP whose gradients are written by hand, and when that can be done."""

import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mixupe_sklearn._batches import Batches, CentredRows
from mixupe_sklearn._criterion import MixupELoss
from mixupe_sklearn._feed import Data
from mixupe_sklearn._hardware import is_compiled
from mixupe_sklearn._lockstep import Batch, rates_of, unstack_optimizer
from mixupe_sklearn._stacked import ACTIVATIONS
from mixupe_sklearn.modules import MLP

# Optimizers that treat every weight alike and alone: one long vector is as good as many arrays.
OPTIMIZERS = {
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.NAdam,
    torch.optim.RMSprop,
    torch.optim.SGD,
}
_LAYERS = {MLP, nn.ModuleList, nn.Sequential, nn.Linear, *ACTIVATIONS}
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


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


def _about_module(module: nn.Module) -> Iterable[str]:
    layers = list(module.modules())
    if type(module) is not MLP or any(type(layer) not in _LAYERS for layer in layers):
        yield "the module is not an MLP without dropout and BatchNorm"
    if any(getattr(layer, name) for layer in layers for name in _HOOKS):
        yield "the module has hooks"
    if is_compiled(module):
        yield "the module is compiled"
    parameters = list(module.parameters())
    if not all(p.requires_grad and not p._backward_hooks for p in parameters):
        yield "a weight is frozen or has hooks"
    if any(p.device.type != "cpu" for p in parameters):
        yield "the module is not on the processor"


def _about_loss(criterion: Any) -> Iterable[str]:
    if type(criterion) is not MixupELoss:
        yield "the criterion is not MixupELoss"
    elif criterion.mix_at == "hidden" and (criterion.has_mixing or criterion.has_penalty):
        yield "rows are mixed at a hidden layer"
    elif criterion.penalty == "directional" and bool(criterion.X_mean.any()):
        yield "X_mean is not zero"


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


def _about_data(net: Any, iterator: Any) -> Iterable[str]:
    if type(iterator) is not Batches:
        yield "the data do not lie in memory"
        return
    X, weight = _parts_of(iterator)
    dtype = next(net.module_.parameters()).dtype
    if not isinstance(X, (Tensor, CentredRows)) or X.dtype != dtype or len(X.shape) != 2:
        yield "the inputs are not rows of the module's floating type"
    if weight is not None and (not isinstance(weight, Tensor) or weight.ndim != 1):
        yield "the weights are not one a row"
    if not isinstance(iterator.y, Tensor) or iterator.y.device.type != "cpu":
        yield "the targets are not a tensor"


def _parts_of(iterator: Batches) -> tuple[Any, Any]:
    """Inputs and weights of batches; no inputs where there are several."""
    if not isinstance(iterator.X, dict):
        return iterator.X, None
    is_known = set(iterator.X) <= {"X", "sample_weight"}
    return iterator.X.get("X") if is_known else None, iterator.X.get("sample_weight")


class Loan:
    """Weights and optimizer state of a net, borrowed for the time of its training.

    Between epochs the net is whole: its parameters and its optimizer's state show the values of
    the moment. What a callback writes into them counts, and so do new learning rates; where it
    puts others in their place, the loan is void.
    """

    def __init__(self, net: Any):
        self.net = net
        self.rates = rates_of(net.optimizer_)
        self.batch = Batch([net])
        self.states: list[tuple[Any, dict[str, Any]]] = []

    @property
    def is_good(self) -> bool:
        """Whether the net still has what was borrowed."""
        optimizer = self.net.optimizer_
        is_same = optimizer is self.batch.optimizers[0] and rates_of(optimizer) == self.rates
        return is_same and self.batch.stack.is_whole and self.has_states

    @property
    def has_states(self) -> bool:
        """Whether the optimizer still has the state that was borrowed."""
        (optimizer,) = self.batch.optimizers
        return all(optimizer.state.get(parameter) is state for parameter, state in self.states)

    def run_epoch(self, data: Data, order: np.ndarray, sizes: list[int]) -> np.ndarray:
        """Run an epoch and return the losses of each step, (n_steps, 4)."""
        values = self.batch.run_epoch(data, [order], sizes)[:, :, 0]
        optimizer = self.net.optimizer_
        if not self.states:
            batch = self.batch
            unstack_optimizer(batch.stack, batch.optimizer, batch.optimizers, copy=False)
            self.states = list(optimizer.state.items())
        for parameter in self.net.module_.parameters():
            parameter.grad = None
        # Without gradients it moves nothing, but schedules ask whether it was called.
        optimizer.step()
        return values

    def pay_back(self) -> None:
        """Give the net memory of its own."""
        self.batch.stack.release()
        if self.has_states:  # else someone has given the optimizer another
            batch = self.batch
            unstack_optimizer(batch.stack, batch.optimizer, batch.optimizers)


_loans: weakref.WeakKeyDictionary[Any, Loan] = weakref.WeakKeyDictionary()


def run_by_hand(net: Any, iterator: Batches) -> np.ndarray:
    """Run one epoch, and leave net and optimizer as autograd would have, up to rounding.

    ``pay_back`` is to be called when training is over.

    Returns
    -------
    values : array of shape (n_batches, 4)
        Loss, its parts and its scale.
    """
    if net in _loans and not _loans[net].is_good:
        pay_back(net)
    if net not in _loans:
        _loans[net] = Loan(net)
    X, weight = _parts_of(iterator)
    order = iterator.order()
    order = np.arange(iterator.n_samples) if order is None else order
    return _loans[net].run_epoch(Data(X, iterator.y, weight, net), order, iterator.sizes())


def pay_back(net: Any) -> None:
    """Give the net's weights and optimizer state back, if they are borrowed."""
    loan = _loans.pop(net, None)
    if loan is not None:
        loan.pay_back()
