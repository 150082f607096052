"""Members that take their training steps together: their rows, their draws, one optimizer."""

import copy
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mixupe_sklearn._forward import encode_targets
from mixupe_sklearn._penalty import one_minus_lam_mean
from mixupe_sklearn._stacked import (
    Goal,
    Pairs,
    Parts,
    Passes,
    Stack,
    Terms,
    directional_step,
    loss_and_slope,
    padded,
    rows_of,
)


def kind_of(criterion: Any) -> tuple[bool, str | None]:
    """Which rows a step runs: whether some are mixed, and which penalty asks for clean ones."""
    return criterion.has_mixing, criterion.penalty if criterion.has_penalty else None


class Data:
    """Rows as tensors, shared by all members of a group; ``net`` is any one of theirs."""

    def __init__(self, X: Tensor, y: Tensor, weight: Tensor | None, net: Any):
        n_outputs = net.module_.stages[-1].out_features
        logits = X.new_empty(()).expand(len(X), n_outputs)
        self.X, self.weight = X, weight
        self.targets = encode_targets(y, logits, net.criterion_.head)
        self.weighted = self.targets if weight is None else weight[:, None] * self.targets

    def goal(self, index: Tensor, pairs: Pairs | None) -> Goal:
        """Targets and weights of the rows that each member takes: (n_members, n_rows)."""
        clean = rows_of(self.targets, index)
        weight = None if self.weight is None else rows_of(self.weight, index)
        mixed = clean if weight is None else rows_of(self.weighted, index)
        if pairs is None:
            return Goal(clean, mixed, weight, weight)
        mass = None if weight is None else pairs.mix(weight[..., None])[..., 0]
        return Goal(clean, pairs.mix(mixed), weight, mass)


class Batch:
    """Nets with stacked weights and one optimizer; each step is taken by all.

    It takes weights and optimizer states from the nets, and ``release`` gives them back.
    """

    def __init__(self, nets: list[Any], data: Data):
        self.data = data
        self.order_rngs = [net.iterator_train__random_state for net in nets]
        self.criteria = [net.criterion_ for net in nets]
        self.is_mixed, penalty = kind_of(self.criteria[0])
        self.stack = Stack([net.module_ for net in nets])
        self.optimizers = [net.optimizer_ for net in nets]
        self.optimizer = stack_optimizers(self.stack, self.optimizers)
        number = self.stack.weights.new_tensor
        self.terms = Terms(
            eta=number([criterion.eta for criterion in self.criteria]),
            one_minus_lam=number([one_minus_lam_mean(c.alpha, c.beta) for c in self.criteria]),
            head=self.criteria[0].head,
            penalty=penalty,
        )
        self.passes: dict[int, Passes] = {}

    def run_epoch(self, batch_size: int) -> tuple[np.ndarray, list[int]]:
        """Take all steps; return the losses, (n_batches, 4, n_members), and the batches' sizes."""
        orders = [rng.permutation(len(self.data.X)) for rng in self.order_rngs]
        batches = torch.from_numpy(np.stack(orders)).split(batch_size, dim=1)
        # Where the gradient is written by hand, torch need not follow: each call is cheaper.
        with torch.inference_mode(self.terms.penalty != "directional"):
            values = torch.stack([torch.stack(self.step(index)) for index in batches])
        return values.double().numpy(), [index.shape[1] for index in batches]

    def step(self, index: Tensor) -> Parts:
        """Take one step with the given rows, (n_members, n_rows)."""
        pairs = self.draw(index.shape[1]) if self.is_mixed else None
        goal = self.data.goal(index, pairs)
        if self.terms.penalty == "directional":
            X = rows_of(self.data.X, index)
            parts = directional_step(self.stack, X, goal, pairs, self.terms)
        else:
            passes = self.passes_for(index.shape[1])
            rows_of(self.data.X, index, out=passes.X)
            parts, slope = loss_and_slope(passes.forward(pairs), goal, self.terms)
            passes.backward(slope, pairs)
        self.optimizer.step()
        return parts

    def passes_for(self, n_rows: int) -> Passes:
        """Memory for batches of this size: the usual one, or that of the last batch."""
        if n_rows not in self.passes:
            has_both = self.is_mixed and self.terms.penalty is not None
            self.passes[n_rows] = Passes(self.stack, n_rows, has_both)
        return self.passes[n_rows]

    def draw(self, n_rows: int) -> Pairs:
        """Each member's own draw, from its own generator."""
        lam = np.empty((len(self.criteria), n_rows))
        partner = np.empty(lam.shape, dtype=np.int64)
        for number, criterion in enumerate(self.criteria):
            draw = criterion.draw(n_rows)
            lam[number], partner[number] = draw.lam, draw.partner
        partner += np.arange(len(lam))[:, None] * n_rows
        inverse = np.empty(lam.size, dtype=np.int64)
        inverse[partner.ravel()] = np.arange(lam.size)
        return Pairs(
            torch.from_numpy(lam)[..., None].to(self.stack.weights.dtype),
            torch.from_numpy(partner.ravel()),
            torch.from_numpy(inverse),
        )

    def release(self) -> None:
        """Give each net its own weights and optimizer state."""
        self.stack.release()
        unstack_optimizer(self.stack, self.optimizer, self.optimizers)


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
        name: stacked(name) if _is_array(value) else copy.deepcopy(value)
        for name, value in states[0][0].items()
    }


def _is_array(value: object) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0


def unstack_optimizer(
    stack: Stack, stacked: torch.optim.Optimizer, optimizers: Sequence[torch.optim.Optimizer]
) -> None:
    """Undo ``stack_optimizers``: bring each optimizer its own state."""
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
            optimizer.state[parameter] = {
                name: _copy(views[name][number] if name in views else value, parameter.dtype)
                for name, value in state.items()
            }


def _copy(value: Any, dtype: torch.dtype) -> Any:
    # A fused optimizer counts its steps in single precision, others in that of the weights.
    return value.to(dtype, copy=True) if isinstance(value, Tensor) else value
