"""Members that take their training steps together: their weights, their steps, one optimizer."""

import copy as copying
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mixupe_sklearn._engine.loss import Feed, Sums, padded
from mixupe_sklearn._engine.network import Passes, Stack, directional_step
from mixupe_sklearn._engine.prefetch import Data, Feeder, Terms, kind_of, terms_of

# Entries (weights, their gradients and moments, and the states of a step) that the members of one
# batch may hold together. With (128, 128) hidden units this is 15 members at 64 features and 5 at
# 784: more were no faster.
STACK_ENTRIES = 3_300_000


def n_together(net: Any, n_rows: int, n_features: int) -> int:
    """How many members like this net are best trained in one batch."""
    has_mixing, penalty, _ = kind_of(net.criterion_)
    shapes = [parameter.shape for parameter in net.module_.parameters()]
    n_weights = sum(shape.numel() for shape in shapes)
    n_states = sum(shape[0] for shape in shapes if len(shape) == 2)
    n_run = 2 if has_mixing and penalty else 1
    n_entries = 4 * n_weights + min(net.batch_size, n_rows) * (n_features + 2 * n_run * n_states)
    return max(1, STACK_ENTRIES // n_entries)


def sizes_of(n_rows: int, batch_size: int) -> list[int]:
    """How many rows each step of an epoch takes.

    Examples
    --------
    >>> sizes_of(250, batch_size=100)
    [100, 100, 50]
    """
    return [min(batch_size, n_rows - start) for start in range(0, n_rows, batch_size)]


class Batch:
    """Nets with stacked weights and one optimizer; each step is taken by all.

    It borrows weights and optimizer states from the nets, and ``release`` gives them back.
    """

    def __init__(self, nets: list[Any]):
        self.optimizers = [net.optimizer_ for net in nets]
        self.stack = Stack([net.module_ for net in nets])
        try:
            self.optimizer = stack_optimizers(self.stack, self.optimizers)
        except BaseException:
            self.stack.release()
            raise
        self.take_step = Stepper(self.optimizer)
        self.passes: dict[tuple[int, int, int], Passes] = {}
        self.rooms: dict[str, Tensor] = {}

    def run_epoch(
        self,
        criteria: list[Any],
        data: Data,
        orders: Sequence[np.ndarray],
        sizes: list[int],
        factors: Sequence[float] | None = None,
    ) -> np.ndarray:
        """Take all steps of an epoch.

        Parameters
        ----------
        criteria : list of MixupELoss
            The members' losses, all of one kind.
        data : Data
            The rows.
        orders : sequence of arrays of shape (n_samples,)
            The row numbers of each member, in the order of its steps.
        sizes : list of int
            How many rows each step takes.
        factors : sequence of float or None, default=None
            What the learning rates are multiplied with at each step; None leaves them.

        Returns
        -------
        values : array of shape (n_steps, 4, n_members)
            Loss, its parts and its scale.
        """
        if not sizes:
            return np.empty((0, 4, len(criteria)))
        terms = terms_of(criteria, self.stack.weights.dtype)
        feeder = Feeder(data, criteria, terms, self.rooms)
        # Where the gradient is written by hand, torch need not follow: each call is cheaper.
        with torch.inference_mode(terms.penalty != "directional"):
            feeds = feeder.feeds(torch.from_numpy(np.stack(orders)), sizes)
            moves = [None] * len(sizes) if factors is None else factors
            steps = [self.step(feed, terms, by) for feed, by in zip(feeds, moves, strict=True)]
            return _values(steps, np.array(sizes)[:, None], terms)

    def step(self, feed: Feed, terms: Terms, factor: float | None = None) -> Sums:
        """Take one step, with the learning rates times a factor."""
        if terms.penalty == "directional":
            sums = directional_step(self.stack, feed, terms.head)
        else:
            sums = self.passes_for(feed).run(feed, terms.head)
        self.take_step(factor)
        return sums

    def passes_for(self, feed: Feed) -> Passes:
        """Memory for batches of this size: the usual one, or that of the last batch."""
        n_run, n_clean = feed.targets.shape[1], 0 if feed.pull is None else feed.pull.shape[1]
        n_extra = n_clean if feed.clean is None else 0
        sizes = n_run - n_extra, n_clean, n_extra
        if sizes not in self.passes:
            self.passes[sizes] = Passes(self.stack, *sizes)
        return self.passes[sizes]

    def release(self) -> None:
        """Give each net its own weights and optimizer state."""
        self.stack.release()
        unstack_optimizer(self.stack, self.optimizer, self.optimizers)


def _values(steps: list[Sums], n_rows: np.ndarray, terms: Terms) -> np.ndarray:
    """Loss, its parts and its scale, from the sums of each step."""
    mixup_loss = torch.stack([sums.loss for sums in steps]).double().numpy() / n_rows
    penalty_term, eta = np.zeros_like(mixup_loss), terms.eta.double().numpy()
    # What is not finite here is told of by the net; an eta below single precision is none.
    with np.errstate(all="ignore"):
        if terms.penalty is not None:
            penalties = [sums.penalty for sums in steps if sums.penalty is not None]
            share = torch.stack(penalties).double().numpy() / n_rows
            penalty_term = np.where(eta > 0, share / eta, 0.0)
        total = mixup_loss + eta * penalty_term
        scale = np.where(total == 0, 1.0, np.abs(mixup_loss / total))
        return np.stack([scale * total, mixup_loss, penalty_term, scale], axis=1)


def rates_of(optimizer: torch.optim.Optimizer) -> str:
    """All that one optimizer is told of its parameters, as a key to compare and sort by."""
    (group,) = optimizer.param_groups
    return repr({name: value for name, value in group.items() if name != "params"})


def stack_optimizers(
    stack: Stack, optimizers: Sequence[torch.optim.Optimizer]
) -> torch.optim.Optimizer:
    """One optimizer of the same kind over the stack, going on where the given ones are.

    Neighbours of equal rates form one of its groups.
    """
    groups, states, start = [], [], 0
    for _, equals in itertools.groupby(optimizers, rates_of):
        own = list(equals)
        rows = slice(start, start + len(own))
        weights = stack.weights[rows]
        weights.grad = stack.gradient[rows]
        groups.append({**_fused(own[0].param_groups[0]), "params": [weights]})
        states.append((weights, _stack_states(own)))
        start += len(own)
    kind: Any = type(optimizers[0])
    stacked = kind(groups)
    for weights, state in states:
        if state:
            stacked.state[weights] = state
    return stacked


class Stepper:
    """Takes the steps of an optimizer; those of a fused Adam without torch's work around each.

    torch looks anew at every step for what its parameters are and whether someone watches, which
    takes longer than to move the weights of a small network.
    """

    def __init__(self, optimizer: torch.optim.Optimizer):
        self.optimizer = optimizer
        self.rates = [group["lr"] for group in optimizer.param_groups]
        self.calls: list[Callable[[], Any]] | None = None

    def __call__(self, factor: float | None = None) -> None:
        if factor is not None:
            for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
                group["lr"] = factor * rate
        if self.calls is None:
            with torch.inference_mode(False):  # the first step makes the state, which will stay
                self.optimizer.step()
            self.calls = _fused_calls(self.optimizer) or [self.optimizer.step]
            return
        for call in self.calls:
            call()


def _fused_calls(optimizer: torch.optim.Optimizer) -> list[Callable[[], Any]] | None:
    """For each group the one call that is a step; None where there is no such call."""
    is_adam = type(optimizer) in (torch.optim.Adam, torch.optim.AdamW)
    if not is_adam or not all(group["fused"] for group in optimizer.param_groups):
        return None
    return [_fused_call(group, optimizer.state) for group in optimizer.param_groups]


def _fused_call(group: dict, states: Any) -> Callable[[], Any]:
    function = torch._fused_adamw_ if group["decoupled_weight_decay"] else torch._fused_adam_
    (weights,) = group["params"]
    state, (beta1, beta2) = states[weights], group["betas"]
    largest = [state["max_exp_avg_sq"]] if group["amsgrad"] else []
    moments = [state["exp_avg"]], [state["exp_avg_sq"]], largest
    options = {name: group[name] for name in ("weight_decay", "eps", "amsgrad", "maximize")}
    options = {"beta1": beta1, "beta2": beta2, **options}

    def call() -> None:
        state["step"] += 1
        function([weights], [weights.grad], *moments, [state["step"]], lr=group["lr"], **options)

    return call


def _fused(group: dict) -> dict:
    # One pass over the memory instead of one an operation; a choice of the user's stands.
    is_free = group.get("fused", False) is None and not group["foreach"]
    is_plain = not (group.get("differentiable") or group.get("capturable"))
    return {**group, "fused": True} if is_free and is_plain else group


def _stack_states(optimizers: Sequence[torch.optim.Optimizer]) -> dict:
    states = [
        [optimizer.state.get(parameter, {}) for parameter in optimizer.param_groups[0]["params"]]
        for optimizer in optimizers
    ]

    def stacked(name: str) -> Tensor:
        rows = [torch.cat([one[name].flatten() for one in own]) for own in states]
        return padded(torch.stack(rows))

    return {
        name: stacked(name) if _is_array(value) else copying.deepcopy(value)
        for name, value in states[0][0].items()
    }


def _is_array(value: object) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0


def unstack_optimizer(
    stack: Stack,
    stacked: torch.optim.Optimizer,
    optimizers: Sequence[torch.optim.Optimizer],
    copy: bool = True,
) -> None:
    """Undo ``stack_optimizers``: each optimizer gets its own state.

    Without ``copy``, what it has for each weight is a view of the common state.
    """
    rows = (
        (group["params"][0], row)
        for group in stacked.param_groups
        for row in range(len(group["params"][0]))
    )
    for optimizer, (weights, row) in zip(optimizers, rows, strict=True):
        state = stacked.state.get(weights)
        if not state:  # plain gradient descent remembers nothing
            continue
        arrays = {name: value for name, value in state.items() if _is_array(value)}
        views = {name: stack.unflatten(value[row]) for name, value in arrays.items()}
        for number, parameter in enumerate(optimizer.param_groups[0]["params"]):
            own = {name: _copy(value, parameter.dtype) for name, value in counts_of(state).items()}
            own |= {
                name: view[number].clone() if copy else view[number] for name, view in views.items()
            }
            optimizer.state[parameter] = {name: own[name] for name in state}


def counts_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """The part of an optimizer's state that is not one number for each weight."""
    return {name: value for name, value in state.items() if not _is_array(value)}


def _copy(value: Any, dtype: torch.dtype) -> Any:
    # A fused optimizer counts its steps in single precision, others in that of the weights.
    return value.to(dtype, copy=True) if isinstance(value, Tensor) else value
