"""Training of networks as one: which may, in which groups, their batches, optimizer and steps.

A step of a small network is so short that gathering and mixing its samples would take as long as
the step. That work is done for as many batches as fit into the CPU's cache. Networks of one
architecture train in groups that fit into the cache, too. The groups do not depend on the number
of threads, and a network does not depend on the others of its group, so results do not either.
"""

import copy as copying
import itertools
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mixupe_sklearn._data.rows import CHUNK, MAX_ROWS, CentredRows
from mixupe_sklearn._engine.layers import LAYERS
from mixupe_sklearn._engine.network import (
    Network,
    Pairs,
    StepBatch,
    architecture_of,
    layers_of,
    n_outputs_of,
    padded,
    parts_of,
)
from mixupe_sklearn._method.criterion import MixupELoss
from mixupe_sklearn._method.formulas import (
    LANE,
    glm_loss,
    loss_scale,
    mix,
    one_minus_lam_mean,
    partners_of,
    penalty_weights,
)
from mixupe_sklearn._method.forward import encode_targets
from mixupe_sklearn._runtime.torch_state import generator_like_torch, is_compiled

# Entries of inputs and targets that are prepared at once: a megabyte of single precision.
AHEAD = 2**18
# Up to this many features, inputs are mixed, and the clean ones run through the first layer with
# them. Above, it is faster to run the clean inputs alone and to mix the states after the first
# layer. Measured with one thread; the choice changes results by rounding only.
MOST_MIXED = 256
# Largest number of entries (weights, their gradients and moments, and the states of a step) of a
# group, and of its members. On one processor more were slower per member, since the group leaves
# the cache; on another, up to 32 made little difference. Groups are twice as large where that still
# leaves work for many cores: in a search of 160 networks, about as fast as the best of five sizes.
GROUP_ENTRIES, GROUP_MEMBERS, MANY_GROUPS = 1_200_000, 4, 8
# Optimizers that update each weight independently: one long vector equals many arrays.
OPTIMIZERS = {
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.NAdam,
    torch.optim.RMSprop,
    torch.optim.SGD,
}
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_WEIGHT_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


class Data:
    """Samples in memory, as the engine gathers them.

    Parameters
    ----------
    X : Tensor or CentredRows of shape (n_samples, n_features)
        Inputs, of the floating type of the networks.
    y : Tensor of shape (n_samples,) or (n_samples, n_outputs)
        Targets; for a softmax, class numbers.
    weight : Tensor of shape (n_samples,) or None
        Weights.
    net : MixupENet
        Any of the nets that use the samples.
    used : array of int or None, default=None
        Numbers of the samples that are used; None means all.
    """

    def __init__(self, X: Any, y: Tensor, weight: Tensor | None, net: Any, used: Any = None):
        self.dtype: torch.dtype = next(net.module_.parameters()).dtype
        self.head = net.criterion_.head
        self.X = X.detach() if isinstance(X, Tensor) else X
        self.weight = None if weight is None else weight.to(self.dtype)
        self.n_features, self.n_outputs = int(X.shape[1]), n_outputs_of(net.module_) or 1
        self.has_classes = self.head == "softmax"
        given = y if used is None else y[torch.from_numpy(used)]
        if not self.has_classes or given.min() < 0 or given.max() >= self.n_outputs:
            like = torch.empty((), dtype=self.dtype).expand(len(given), self.n_outputs)
            encode_targets(given, like, self.head)  # raises one sentence about wrong targets
        self.y = y.long() if self.has_classes else y.to(self.dtype).view(len(y), self.n_outputs)

    def targets(self, index: Tensor, out: Tensor) -> Tensor:
        """Write the encoded targets of numbered samples to ``out``, (*index.shape, n_outputs)."""
        rows, index = out.view(-1, self.n_outputs), index.flatten()
        if not self.has_classes:
            torch.index_select(self.y, 0, index, out=rows)
        else:
            rows.zero_().scatter_(1, self.y[index][:, None], 1.0)
        return out

    def inputs(self, index: Tensor, out: Tensor) -> Tensor:
        """Write the inputs of numbered samples to ``out``, (*index.shape, n_features)."""
        rows, index = out.view(-1, self.n_features), index.flatten()
        if isinstance(self.X, Tensor):
            torch.index_select(self.X, 0, index, out=rows)
        else:
            self.X.take(index, rows)
        return out


@dataclass(eq=False)
class Member:
    """A net in training, with its samples.

    Parameters
    ----------
    net : MixupENet
        The net.
    tensors : tuple
        Inputs, targets and weights of all samples; shared by the members that train on them.
    rows : array of int or None, default=None
        Numbers of the samples that train it; None means all.
    held_out : tuple or None, default=None
        Inputs, targets and weights of the validation samples, if there are some.
    fold : array of int or None, default=None
        Numbers of those that belong to this net; None means all.
    factors : sequence of float or None, default=None
        Factors of the learning rate at each step of the training; None for a constant rate.
    rng : numpy.random.Generator or None, default=None
        Generator of dropout; None draws a seed from torch's global generator where it is needed.
    ema_decay : float or None, default=None
        Decay of the average of the weights.
    order : callable or None, default=None
        Returns the sample numbers of the next epoch in their order; None permutes ``rows``.
    sizes : list of int or None, default=None
        Number of samples of each step of an epoch; None follows from the net's ``batch_size``.
    """

    net: Any
    tensors: tuple[Any, Any, Any]
    rows: np.ndarray | None = None
    held_out: tuple[Any, Any, Any] | None = None
    fold: np.ndarray | None = None
    factors: Sequence[float] | None = None
    rng: np.random.Generator | None = None
    ema_decay: float | None = None
    order: Callable[[], np.ndarray] | None = None
    sizes: list[int] = field(default_factory=list)
    # The best weights so far; average, raw weights and number of steps of ``ema_decay``; whether
    # callbacks know that the training has begun.
    best: Any = field(default=None, repr=False)
    average: tuple[Tensor, Tensor, int] | None = field(default=None, repr=False)
    has_begun: bool = False

    @property
    def n_rows(self) -> int:
        """Number of training samples."""
        return len(self.tensors[1]) if self.rows is None else len(self.rows)

    def next_order(self) -> np.ndarray:
        """Return the sample numbers of the next epoch."""
        if self.order is not None:
            return self.order()
        permutation = self.net.iterator_train__random_state.permutation(self.n_rows)
        return permutation if self.rows is None else self.rows[permutation]

    def kind(self) -> tuple[Any, ...]:
        """Return what the members of a group share."""
        n_held_out = -1 if self.fold is None else len(self.fold)
        return (
            architecture_of(self.net.module_),
            kind_of(self.net.criterion_),
            type(self.net.optimizer_),
            (id(self.tensors), id(self.held_out), n_held_out, *self.sizes),
            self.ema_decay,
        )

    def rates(self) -> tuple[Any, ...]:
        """Return what members share whose optimizers can be one."""
        optimizer = self.net.optimizer_
        history = _history_of(optimizer.state.get(optimizer.param_groups[0]["params"][0], {}))
        return rates_of(optimizer), len(self.factors or ()), (self.factors or [0])[-1], history


def kind_of(criterion: Any) -> tuple[Any, ...]:
    """Return what the steps of a group share: mixing, penalty, its fraction, and the draws."""
    fraction = criterion.penalty_fraction if criterion.has_penalty else 1.0
    draws = criterion.lam_per, criterion.mix_at, criterion.single_pass
    return criterion.has_mixing, criterion.has_penalty, fraction, *draws


class Draws(NamedTuple):
    """The draws of several steps; None for values that are not drawn.

    ``lam`` has the shape (n_steps, n_members, n_rows or 1, 1), ``partner`` (n_steps, n_members,
    n_rows), ``stage`` (n_steps, n_members). ``clean`` numbers the penalised samples, (n_steps,
    n_members, n_clean).
    """

    lam: Tensor | None
    partner: Tensor | None
    clean: Tensor | None
    stage: Tensor | None


class Prefetcher:
    """Draws, gathers and mixes the batches of a group, several at a time.

    Parameters
    ----------
    members : list of Member
        The members; their criteria make the draws.
    data : Data
        Their samples.
    """

    def __init__(self, members: list[Member], data: Data):
        self.data, self.criteria = data, [member.net.criterion_ for member in members]
        self.buffers: dict[str, Tensor] = {}  # reused in the next run of steps and the next epoch
        self.has_mixing, self.has_penalty, fraction, _, mix_at, _ = kind_of(self.criteria[0])
        clean_share = fraction if self.has_penalty else 0.0
        module, is_hidden = members[0].net.module_, self.has_mixing and mix_at == "hidden"
        self.ends = stage_ends(module) if is_hidden else []
        is_narrow = self.data.n_features * clean_share <= MOST_MIXED
        # Only a linear layer commutes with mixing.
        is_linear = LAYERS[type((layers_of(module) or [module])[0])].has_weights
        self.at_input = is_narrow or is_hidden or not is_linear

    def batches(self, orders: Tensor, sizes: list[int]) -> Iterator[StepBatch]:
        """Yield batches of these sizes, in the orders (n_members, n_samples)."""
        etas = torch.tensor([c.eta for c in self.criteria], dtype=self.data.dtype)
        shares = [one_minus_lam_mean(c.alpha, c.beta) for c in self.criteria]
        self.total = (etas * torch.tensor(shares, dtype=self.data.dtype))[None, :, None]
        start = 0
        for n_rows, n_steps in self._runs(sizes, len(orders)):
            stop = start + n_rows * n_steps
            index = orders[:, start:stop].view(len(orders), n_steps, n_rows).transpose(0, 1)
            yield from self._prepare(index)
            start = stop

    def _runs(self, sizes: list[int], n_members: int) -> Iterator[tuple[int, int]]:
        """Yield runs of consecutive batches of one size, short enough to prepare at once."""
        entries = 2 * n_members * (self.data.n_features + self.data.n_outputs)
        for n_rows, equals in itertools.groupby(sizes):
            n_left, longest = len(list(equals)), max(1, AHEAD // (entries * n_rows))
            while n_left:
                yield n_rows, min(n_left, longest)
                n_left -= min(n_left, longest)

    def _draw(self, n_steps: int, n_rows: int) -> Draws:
        """Draw for each member from its own generator, in the order of the steps."""
        n_stages = max(1, len(self.ends))
        draws = [[c.draw(n_rows, n_stages) for c in self.criteria] for _ in range(n_steps)]

        def stacked(name: str) -> Tensor | None:
            if getattr(draws[0][0], name) is None:
                return None
            return torch.from_numpy(np.array([[getattr(d, name) for d in row] for row in draws]))

        partner, clean = stacked("partner"), stacked("clean")
        if partner is None:
            return Draws(None, None, clean, None)
        lam = torch.from_numpy(np.array([[draw.lam for draw in row] for row in draws]))
        lam = lam.view(*lam.shape[:2], -1, 1).to(self.data.dtype)
        return Draws(lam, partner, clean, stacked("stage") if n_stages > 1 else None)

    def _prepare(self, index: Tensor) -> Iterator[StepBatch]:
        """Yield the batches of some steps by sample numbers (n_steps, n_members, n_rows)."""
        n_steps, _, n_rows = index.shape
        draws, data = self._draw(n_steps, n_rows), self.data
        X = data.inputs(index, self._buffer("X", *index.shape, data.n_features))
        y = data.targets(index, self._buffer("y", *index.shape, data.n_outputs))
        weight = None if data.weight is None else data.weight[index]
        targets = y if weight is None else weight[..., None] * y
        mass, clean = weight, y if self.has_penalty else None
        pairs: list[dict[int, Pairs]] = [{}] * n_steps
        n_clean = 0 if clean is None else n_rows if draws.clean is None else draws.clean.shape[2]
        first = None  # the partners that run clean
        if draws.lam is not None and draws.partner is not None:
            partner = _numbered(draws.partner, n_rows)
            targets = self._mixed("targets", targets, draws.lam, partner, n_clean)
            if weight is not None:
                mass = self._mixed("mass", weight[..., None], draws.lam, partner)[..., 0]
                first = partners_of(weight, partner)[..., :n_clean]
                if clean is not None:
                    targets[:, :, n_rows:] = partners_of(clean, partner)[:, :, :n_clean]
            if draws.stage is not None:
                X = self._mixed("inputs", X, torch.ones_like(draws.lam), partner, n_clean)
                pairs = self._hidden_pairs(draws.lam, draws.partner, draws.stage)
            elif self.at_input:
                X = self._mixed("inputs", X, draws.lam, partner, n_clean)
            else:
                pairs = [{0: one} for one in _pairs(draws.lam, draws.partner)]
            clean = None
        weights = None
        if self.has_penalty:
            weights = self._penalty_weights(index.shape, weight, first, draws, n_clean)
        columns = [_in_turn(column, n_steps) for column in (X, targets, mass, clean, weights)]
        for one in zip(*columns, pairs, strict=True):
            yield StepBatch(*one)

    def _penalty_weights(self, shape, weight, first, draws: Draws, n_clean: int) -> Tensor:
        """Weight of each sample's penalty relative to the loss of one sample."""
        if draws.partner is not None:
            own = torch.ones(1, dtype=self.data.dtype) if first is None else first
            own = own.expand(*shape[:2], n_clean)
            return penalty_weights(self.total, own, unit=shape[2])[..., None]
        own = torch.ones(1, dtype=self.data.dtype).expand(shape) if weight is None else weight
        return penalty_weights(self.total, own, draws.clean, unit=shape[2])[..., None]

    def _hidden_pairs(self, lam: Tensor, partner: Tensor, stage: Tensor) -> list[dict[int, Pairs]]:
        """Mix each member after its own stage, and leave it as it is after all others."""
        found: list[dict[int, Pairs]] = [{} for _ in lam]
        for number, end in enumerate(self.ends[:-1], start=1):
            own = torch.where((stage == number)[..., None, None], lam, 1.0)
            for step, one in enumerate(_pairs(own, partner)):
                found[step][end] = one
        return found

    def _buffer(self, name: str, *shape: int) -> Tensor:
        """Return reused memory of a name; new memory for each run of steps would be slow."""
        size = torch.Size(shape).numel()
        if name not in self.buffers or self.buffers[name].numel() < size:
            self.buffers[name] = torch.empty(size, dtype=self.data.dtype)
        return self.buffers[name][:size].view(shape)

    def _mixed(
        self, name: str, values: Tensor, lam: Tensor, partner: Tensor, n_clean: int = 0
    ) -> Tensor:
        """Return mixed values, followed by the unmixed values of the first partners."""
        *first, n_rows, width = values.shape
        out = self._buffer(name, *first, n_rows + n_clean, width)
        other = self._buffer("other", *values.shape)
        mix(values, lam, partner, out=out[:, :, :n_rows], other=other)
        if n_clean:
            out[:, :, n_rows:] = other[:, :, :n_clean]
        return out


def stage_ends(module: nn.Module) -> list[int]:
    """Return the number of the last layer of each stage, or nothing if there are no stages."""
    counts = [len(layers_of(nn.Sequential(stage)) or ()) for stage in getattr(module, "stages", ())]
    return [total - 1 for total in itertools.accumulate(counts)]


def _numbered(local: Tensor, n_rows: int) -> Tensor:
    """Turn sample numbers within each batch into numbers across all batches."""
    n_batches = local.shape[:-1].numel()
    offset = torch.arange(n_batches).mul_(n_rows).view(*local.shape[:-1], 1)
    return (local + offset).flatten()


def _in_turn(values: Any, n_steps: int) -> Any:
    """Return the value of each step, from a tensor or None."""
    return (None,) * n_steps if values is None else values.unbind()


def _pairs(lam: Tensor, partner: Tensor) -> list[Pairs]:
    """Return the mixing of each step; samples are numbered across its members."""
    n_rows = partner.shape[2]
    lam = lam.expand(*partner.shape[:2], n_rows, 1)
    numbers = torch.stack([_numbered(step, n_rows) for step in partner])
    inverse = torch.empty_like(numbers)
    inverse.scatter_(1, numbers, torch.arange(numbers.shape[1]).expand_as(numbers))
    return [Pairs(*one) for one in zip(lam, numbers, inverse, strict=True)]


def sizes_of(n_rows: int, batch_size: int) -> list[int]:
    """Return the number of samples of each step of an epoch.

    Examples
    --------
    >>> sizes_of(250, batch_size=100)
    [100, 100, 50]
    """
    return [min(batch_size, n_rows - start) for start in range(0, n_rows, batch_size)]


class Epoch(NamedTuple):
    """Result of an epoch of one net.

    ``values`` are the loss, its parts and its scale at each step, (n_steps, 4); ``sizes`` the
    numbers of samples of the steps; ``losses`` those of the validation samples, or None;
    ``accuracy`` their share of correct predictions, where a callback may ask for it.
    """

    values: np.ndarray
    sizes: Sequence[int]
    losses: np.ndarray | None = None
    accuracy: float | None = None


class Group:
    """Members that take each step together, with stacked weights and one optimizer."""

    def __init__(
        self, members: list[Member], data: Data, held_out: Data | None, is_stopped: list[bool]
    ):
        self.members, self.data, self.held_out = members, data, held_out
        self.is_stopped = is_stopped
        self.network = Network([member.net.module_ for member in members])
        try:
            self.optimizer = stack_optimizers(self.network, members)
            self.step = Stepper(self.optimizer)
        except BaseException:
            self.network.release()
            raise
        self.prefetcher = Prefetcher(members, data)
        self.shown: list[tuple[Any, ...]] = []  # what callbacks see of the optimizer
        self.saved = [_saved(member) for member in members]
        self.n_steps = 0
        # The average of the weights, and the raw weights while evaluations see the average.
        self.average: Any = None
        self.raw: Any = None
        if members[0].ema_decay is not None:
            self.average, self.raw = self.network.weights.clone(), self.network.weights.clone()
            for average, raw, member in zip(self.average, self.raw, members, strict=True):
                if member.average is not None:  # of another group
                    *found, self.n_steps = member.average
                    for row, values in zip((average, raw), found, strict=True):
                        row[: self.network.n_weights] = values
        for layer in self.network.layers:
            if hasattr(layer, "rngs"):
                layer.rngs = [member.rng or generator_like_torch(None) for member in members]

    @torch.inference_mode()  # gradients in closed form need no autograd: each call is cheaper
    def run_epoch(self, epoch: int, due: Any, deadline: float | None) -> dict[int, Epoch]:
        """Take the steps of an epoch, then evaluate the members that are due."""
        sizes, weights = self.members[0].sizes, self.network.weights
        if self.raw is not None:
            weights.copy_(self.raw)
        head, sums = self.data.head, []
        orders = torch.from_numpy(np.stack([member.next_order() for member in self.members]))
        start = (epoch - 1) * len(sizes)
        try:
            for number, batch in enumerate(self.prefetcher.batches(orders, sizes), start=start):
                sums.append(self.network.run(batch, head))
                self.step(number)
                if self.average is not None:
                    self._update_average()
                is_late = deadline is not None and time.perf_counter() > deadline
                if is_late or self.is_stopped[0]:
                    break
        finally:
            if self.average is not None:  # evaluations and callbacks see the average
                self.raw.copy_(weights)
                weights.copy_(self.average)
        values = self._values(sums, np.array(sizes[: len(sums)])[:, None])
        is_due = any(id(member.net) in due for member in self.members)
        n_members = len(self.members)
        losses, right = self._losses() if is_due else ([None] * n_members, [None] * n_members)
        return {
            id(member.net): Epoch(values[:, :, k], sizes[: len(sums)], losses[k], right[k])
            for k, member in enumerate(self.members)
        }

    def _update_average(self) -> None:
        self.n_steps += 1
        decay = min(self.members[0].ema_decay or 0.0, (1 + self.n_steps) / (10 + self.n_steps))
        self.average.lerp_(self.network.weights, 1 - decay)

    def _values(self, sums: list[Any], n_rows: np.ndarray) -> np.ndarray:
        """Return the loss, its parts and its scale of each step, (n_steps, 4, n_members)."""
        if not sums:
            return np.empty((0, 4, len(self.members)))
        mixup_loss = torch.stack([loss for loss, _ in sums]).double().numpy() / n_rows
        etas = [member.net.criterion_.eta for member in self.members]
        eta = torch.tensor(etas, dtype=self.network.weights.dtype).double().numpy()
        penalty_term = np.zeros_like(mixup_loss)
        # The loop reports values that are not finite; an eta below single precision counts as 0.
        with np.errstate(all="ignore"):
            if sums[0][1] is not None:
                share = torch.stack([penalty for _, penalty in sums]).double().numpy() / n_rows
                penalty_term = np.where(eta > 0, share / eta, 0.0)
            total = mixup_loss + eta * penalty_term
            scale = loss_scale(torch.from_numpy(mixup_loss), torch.from_numpy(total)).numpy()
            return np.stack([scale * total, mixup_loss, penalty_term, scale], axis=1)

    def _losses(self) -> tuple[Any, Any]:
        """Loss of each validation sample, (n_members, n_rows), and accuracy of each member."""
        data, parts, right = self.held_out, [], []
        assert data is not None
        width = max(1, data.n_features, data.n_outputs)
        # Parts do not depend on the number of members, and fill whole blocks (see LANE).
        most = max(1, min(MAX_ROWS, CHUNK // width) // (2 * GROUP_MEMBERS) // LANE) * LANE
        whole = np.arange(len(data.y))
        own = [whole if member.fold is None else member.fold for member in self.members]
        folds = torch.from_numpy(np.stack(own))
        n_rows = folds.shape[1]
        folds = torch.cat([folds, folds[:, -1:].expand(-1, -n_rows % LANE)], dim=1)
        for index in folds.split(most, dim=1):
            new = self.network.weights.new_empty
            logits = self.network.predict(data.inputs(index, new(*index.shape, data.n_features)))
            targets = data.targets(index, new(*index.shape, data.n_outputs))
            parts.append(glm_loss(logits.double(), targets.double(), None, data.head)[0])
            right.append(_is_right(logits, targets, data.head))
        losses = torch.cat(parts, dim=1)[:, :n_rows].numpy()
        if data.head == "squared":
            return losses, [None] * len(own)
        return losses, torch.cat(right, dim=1)[:, :n_rows].double().mean(dim=1).tolist()

    def show_state(self) -> None:
        """Show moments, counts and gradients in the members' own optimizers, for callbacks."""
        if not self.shown and self.optimizer.state:
            unstack_optimizer(self.network, self.optimizer, self._optimizers(), copy=False)
            rows = [view for row in self.network.gradient for view in self.network.unflatten(row)]
            for (parameter, _, _), gradient in zip(self.network.views, rows, strict=True):
                parameter.grad = gradient
            self.shown = [
                (optimizer, parameter, optimizer.state[parameter], counts)
                for optimizer, counts in zip(self._optimizers(), self._counts(), strict=True)
                for parameter in optimizer.param_groups[0]["params"]
            ]
            self.saved = [_saved(member) for member in self.members]
        for _, _, state, counts in self.shown:
            for name, value in counts.items():
                if isinstance(value, Tensor):
                    state[name].copy_(value)
                else:
                    state[name] = value
        for optimizer in self._optimizers():
            optimizer._opt_called = True  # type: ignore[attr-defined]  # torch's schedules check it

    def _counts(self) -> list[dict[str, Any]]:
        """The stacked counts of each member, in the order of the members."""
        groups = [group["params"][0] for group in self.optimizer.param_groups]
        return [counts for w in groups for counts in [counts_of(self.optimizer.state[w])] * len(w)]

    def is_current(self) -> bool:
        """Return whether no callback has replaced weights, moments, options or layers."""
        if self.saved != [_saved(member) for member in self.members]:
            self.network.check_shapes()
            return False
        return all(
            optimizer.state.get(parameter) is state
            and all(float(state[name]) == float(value) for name, value in counts.items())
            for optimizer, parameter, state, counts in self.shown
        )

    def _optimizers(self) -> list[torch.optim.Optimizer]:
        return [member.net.optimizer_ for member in self.members]

    def release(self) -> None:
        """Restore the parameters and the optimizer state of each net."""
        self.network.release()
        for row, member in enumerate(self.members) if self.average is not None else ():
            average, raw = (v[row, : self.network.n_weights] for v in (self.average, self.raw))
            member.average = average.clone(), raw.clone(), self.n_steps
        for optimizer in self._optimizers() if self.shown else ():
            for parameter, state in list(optimizer.state.items()):
                own = {n: v.clone() if _is_array(v) else v for n, v in state.items()}
                optimizer.state[parameter] = own
        if not self.shown:
            unstack_optimizer(self.network, self.optimizer, self._optimizers())


def _is_right(logits: Tensor, targets: Tensor, head: str) -> Tensor:
    """Whether each sample is predicted right; several labels count as one."""
    if head == "softmax":
        return logits.argmax(dim=-1) == targets.argmax(dim=-1)
    return ((logits > 0) == (targets > 0.5)).all(dim=-1)


def _saved(member: Member) -> tuple[Any, ...]:
    """Return what a callback may replace or add, to be compared."""
    net, criterion, optimizer = member.net, member.net.criterion_, member.net.optimizer_
    groups = optimizer.param_groups
    options = [{n: g[n] for n in g if n != "params"} for g in groups]
    trained = [id(parameter) for group in groups for parameter in group["params"]]
    method = criterion, criterion.head, criterion.penalty, criterion.penalty_order
    parts = list(parts_of(net.module_))
    own = [w for part in parts for w in part._parameters.values() if w is not None]
    weights = [(id(w), w.data_ptr(), w.requires_grad) for w in own]
    hooks = [
        *(len(getattr(part, name)) for part in parts for name in _HOOKS),
        *(part._compiled_call_impl for part in parts),
        *(len(getattr(w, name, None) or ()) for w in own for name in _WEIGHT_HOOKS),
        len(optimizer._optimizer_step_pre_hooks) + len(optimizer._optimizer_step_post_hooks),
    ]
    inner = parts, weights, hooks
    return optimizer, options, trained, *inner, *method, *kind_of(criterion), net.batch_size


class Trainer:
    """Trains nets as one, in groups that run on several threads.

    While it lives, the parameters of the nets are views of a common buffer; ``remove`` and
    ``close`` restore them.

    Parameters
    ----------
    members : list of Member
        The nets, for which ``why_not`` returns None.
    n_threads : int, default=1
        Number of threads that take groups. Each of them uses one thread of torch.
    datasets : dict or None, default=None
        Training and validation samples as skorch's datasets, by ``id(net)``, if the nets have
        callbacks of the user.
    """

    def __init__(
        self,
        members: Sequence[Member],
        n_threads: int = 1,
        datasets: Mapping[int, tuple[Any, Any]] | None = None,
    ):
        self.members, self.datasets = list(members), datasets
        self.is_stopped = [False]  # shared with the groups
        self.pool: ThreadPoolExecutor | None = None
        self.groups: list[Group] = []
        self.data: dict[int, Data] = {}
        self.epoch_begin = time.perf_counter()
        try:
            for part in grouped(members):
                self.groups.append(self._group(part))
        except BaseException:
            self.close()
            raise
        for member in self.members if datasets is not None else ():
            if not member.has_begun:
                member.has_begun = True
                train, _ = self._datasets_of(member.net)
                member.net.check_data(train, None)
                member.net.notify("on_train_begin", X=train, y=None)
        n_threads = min(n_threads, len(self.groups))
        self.n_threads = max(1, n_threads)
        if n_threads > 1:
            # torch's number of threads belongs to the Python thread that sets it.
            self.pool = ThreadPoolExecutor(
                n_threads - 1, initializer=torch.set_num_threads, initargs=(1,)
            )

    def together(self) -> Any:
        """Return a context that does nothing: there are no other processes."""
        return nullcontext()

    def begin_epoch(self) -> None:
        """Begin an epoch in the history of each net, and call the user's callbacks."""
        self.epoch_begin = time.perf_counter()
        for group in self.groups:
            for member in group.members:
                member.net.begin_quiet_epoch(*self._datasets_of(member.net))

    def end_epoch(self, net: Any, result: Epoch, row: dict[str, Any]) -> bool:
        """Record an epoch of a net; return whether a callback of the user ends its training."""
        row["dur"] = time.perf_counter() - self.epoch_begin
        if self.datasets is not None and result.accuracy is not None:
            row["valid_acc"] = result.accuracy
        try:
            net.end_quiet_epoch(row, *self._datasets_of(net))
        except KeyboardInterrupt:  # callbacks of skorch raise it to stop
            if self.datasets is None:
                raise
            return True
        return False

    def _datasets_of(self, net: Any) -> tuple[Any, Any]:
        return (None, None) if self.datasets is None else self.datasets[id(net)]

    def _group(self, members: list[Member]) -> Group:
        first = members[0]
        data = self._data(first.tensors, first)
        held_out = None if first.held_out is None else self._data(first.held_out, first)
        return Group(members, data, held_out, self.is_stopped)

    def _data(self, tensors: tuple[Any, Any, Any], member: Member) -> Data:
        if id(tensors) not in self.data:
            used = member.rows if tensors is member.tensors else member.fold
            self.data[id(tensors)] = Data(*tensors, net=member.net, used=used)
        return self.data[id(tensors)]

    def run_epoch(
        self, epoch: int, due: Any = (), deadline: float | None = None
    ) -> dict[int, Epoch]:
        """Run an epoch of every net; return the results by ``id(net)``.

        Parameters
        ----------
        epoch : int
            Its number, from 1.
        due : set of int
            ``id(net)`` of the nets whose validation samples are evaluated.
        deadline : float or None, default=None
            Time of ``time.perf_counter`` at which the epoch ends early, after one step at least.
        """

        def run(number: int) -> dict[int, Epoch]:
            end = deadline
            if deadline is not None:  # each thread shares its time between its groups
                n_left = math.ceil((len(self.groups) - number) / self.n_threads)
                now = time.perf_counter()
                end = now + (deadline - now) / n_left
            group = self.groups[number]
            # Callbacks find the validation loss of every epoch.
            is_heard = self.datasets is not None and group.held_out is not None
            own = {id(member.net) for member in group.members} if is_heard else due
            return group.run_epoch(epoch, own, end)

        numbers = iter(range(len(self.groups)))  # each thread takes the next group

        def run_all() -> dict[int, Epoch]:
            return {net: result for number in numbers for net, result in run(number).items()}

        try:
            # This thread takes part, too: to wake another one takes as long as a small step.
            others = []
            if self.pool is not None:
                others = [self.pool.submit(run_all) for _ in range(self.n_threads - 1)]
            found = run_all()
            for other in others:
                found |= other.result()
        except BaseException:
            self.is_stopped[0] = True  # an interrupt reaches this thread alone
            if self.pool is not None:
                self.pool.shutdown(cancel_futures=True)
            raise
        if self.datasets is not None:
            for group in self.groups:
                group.show_state()
        return found

    def keep(self, nets: Iterable[Any]) -> None:
        """Keep the current weights of some nets as their best."""
        wanted = {id(net) for net in nets}
        for member in self.members:
            if id(member.net) in wanted:
                member.best = torch.cat(
                    [p.detach().flatten() for p in member.net.module_.parameters()]
                )

    def restore_best(self, nets: Iterable[Any]) -> None:
        """Restore the best weights of some nets, if they have kept some."""
        wanted = {id(net) for net in nets}
        for member in self.members:
            if id(member.net) in wanted and member.best is not None:
                parameters = list(member.net.module_.parameters())
                parts = member.best.split([parameter.numel() for parameter in parameters])
                for parameter, part in zip(parameters, parts, strict=True):
                    parameter.data.copy_(part.view_as(parameter))

    def remove(self, nets: Iterable[Any]) -> None:
        """Restore nets that have ended; the others continue, in new groups."""
        ended = {id(net) for net in nets}
        groups, left = [], []
        for group in self.groups:
            over = [member for member in group.members if id(member.net) in ended]
            if not over:
                groups.append(group)
                continue
            group.release()
            self._end(over)
            left += [member for member in group.members if member not in over]
        self.groups = groups
        for part in grouped(left):
            self.groups.append(self._group(part))

    def _end(self, members: Iterable[Member]) -> None:
        for member in members:
            history = member.net.history
            if history and "train_loss" not in history[-1]:
                history.pop()  # an interrupted epoch leaves no record
            if self.datasets is not None:
                train, _ = self._datasets_of(member.net)
                member.net.notify("on_train_end", X=train, y=None)

    def is_current(self) -> bool:
        """Return whether no callback has replaced a part of a net that the groups hold."""
        return self.datasets is None or all(group.is_current() for group in self.groups)

    def close(self, is_over: bool = True) -> None:
        """Restore the parameters and the optimizer state of each net; tell callbacks if it ends."""
        if self.pool is not None:
            self.pool.shutdown()
        for group in self.groups:
            group.release()
            self._end(group.members if is_over else ())
        self.groups = []


def grouped(members: Iterable[Member]) -> list[list[Member]]:
    """Sort members into groups of one kind that fit into the cache and into memory.

    Members of equal rates are neighbours, since they share an optimizer.
    """
    kinds: dict[Any, list[Member]] = {}
    for member in members:
        if member.order is None:  # else they are given
            member.sizes = sizes_of(member.n_rows, member.net.batch_size)
        kinds.setdefault(member.kind(), []).append(member)
    groups = []
    for own in kinds.values():
        own = sorted(own, key=lambda member: repr(member.rates()))
        most = n_together(own[0], len(own))
        n_parts = math.ceil(len(own) / most)
        bounds = [round(part * len(own) / n_parts) for part in range(n_parts + 1)]
        groups += [own[start:stop] for start, stop in itertools.pairwise(bounds)]
    return groups


def n_together(member: Member, n_members: int) -> int:
    """Return how many of the members like this one form a group; raise if not even one fits."""
    net, n_rows = member.net, max(member.sizes, default=1)
    has_mixing, has_penalty, *_ = kind_of(net.criterion_)
    shapes = [parameter.shape for parameter in net.module_.parameters()]
    n_weights = sum(shape.numel() for shape in shapes)
    n_states = sum(shape[0] for shape in shapes if len(shape) == 2)
    n_run = 2 if has_mixing and has_penalty else 1
    n_features, dtype = member.tensors[0].shape[1], member.tensors[0].dtype
    n_entries = 4 * n_weights + n_rows * (n_features + 2 * n_run * n_states)
    n_bytes = n_entries * dtype.itemsize
    if n_bytes > memory_of_machine():
        raise MemoryError(
            f"Got a network of {n_weights:,} weights with batches of {n_rows:,} samples, which "
            f"need {n_bytes / 2**30:,.1f} GiB to train, but this machine has "
            f"{memory_of_machine() / 2**30:,.1f} GiB: lower d_hidden or batch_size."
        )
    factor = 1 if n_members < GROUP_MEMBERS * MANY_GROUPS else 2
    return max(1, min(factor * GROUP_MEMBERS, factor * GROUP_ENTRIES // n_entries))


def memory_of_machine() -> int:
    """Return the bytes of memory of this machine; a very large number if it does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 2**62


def rates_of(optimizer: torch.optim.Optimizer) -> str:
    """Return the options of an optimizer as a key to compare and to sort by."""
    (group,) = optimizer.param_groups
    return repr({name: value for name, value in group.items() if name != "params"})


def stack_optimizers(network: Network, members: Sequence[Member]) -> torch.optim.Optimizer:
    """Return one optimizer of the same class over the network, with the states of the members'.

    Neighbours with equal rates form one parameter group.
    """
    groups, states, start = [], [], 0
    for _, equals in itertools.groupby(members, Member.rates):
        own = list(equals)
        rows = slice(start, start + len(own))
        weights = network.weights[rows]
        weights.grad = network.gradient[rows]
        optimizers = [member.net.optimizer_ for member in own]
        options = _fused(optimizers[0].param_groups[0])
        groups.append({**options, "params": [weights], "factors": own[0].factors})
        states.append((weights, _stack_states(optimizers)))
        start += len(own)
    kind: Any = type(members[0].net.optimizer_)
    stacked = kind(groups)
    for weights, state in states:
        if state:
            stacked.state[weights] = state
    return stacked


class Stepper:
    """Takes the steps of an optimizer; those of a fused Adam without torch's overhead.

    torch inspects parameters and hooks at every step, which takes longer than the update of a small
    network. A parameter group may have ``factors`` of its learning rate at each step.
    """

    def __init__(self, optimizer: torch.optim.Optimizer):
        self.optimizer = optimizer
        groups = optimizer.param_groups
        self.scheduled = [(g, g["lr"], g["factors"]) for g in groups if g.get("factors")]
        self.calls: list[Callable[[], Any]] | None = None

    def __call__(self, number: int = 0) -> None:
        """Take the step of this number, from 0."""
        for group, rate, factors in self.scheduled:
            group["lr"] = factors[number] * rate
        if self.calls is None:
            with torch.inference_mode(False):  # the first step creates the state, which persists
                self.optimizer.step()
            self.calls = _fused_calls(self.optimizer) or [self.optimizer.step]
            return
        for call in self.calls:
            call()


def _fused_calls(optimizer: torch.optim.Optimizer) -> list[Callable[[], Any]] | None:
    """Return a function per parameter group that takes its step; None without a fused one."""
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

    one = torch.ones_like(state["step"])  # torch would convert a number at every step

    def call() -> None:
        state["step"].add_(one)
        function([weights], [weights.grad], *moments, [state["step"]], lr=group["lr"], **options)

    return call


def _fused(group: dict) -> dict:
    # One pass over the memory instead of one per operation, unless the user chose otherwise.
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
    network: Network,
    stacked: torch.optim.Optimizer,
    optimizers: Sequence[torch.optim.Optimizer],
    copy: bool = True,
) -> None:
    """Undo ``stack_optimizers``: give each optimizer its own state.

    Without ``copy``, the state of each parameter is a view of the common state.
    """
    rows = (
        (group["params"][0], row)
        for group in stacked.param_groups
        for row in range(len(group["params"][0]))
    )
    for optimizer, (weights, row) in zip(optimizers, rows, strict=True):
        state = stacked.state.get(weights)
        if not state:  # plain gradient descent has no state
            continue
        arrays = {name: value for name, value in state.items() if _is_array(value)}
        views = {name: network.unflatten(value[row]) for name, value in arrays.items()}
        for number, parameter in enumerate(optimizer.param_groups[0]["params"]):
            own = {name: _copy(value, parameter) for name, value in counts_of(state).items()}
            own |= {
                name: view[number].clone() if copy else view[number] for name, view in views.items()
            }
            optimizer.state[parameter] = {name: own[name] for name in state}


def counts_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of an optimizer's state that is not one value per weight."""
    return {name: value for name, value in state.items() if not _is_array(value)}


def _copy(value: Any, like: Tensor) -> Any:
    # A fused optimizer counts its steps in single precision, others in the type of the weights.
    return value.to(like.dtype, copy=True) if isinstance(value, Tensor) else value


def why_not(net: Any, X: Any, y: Any, weight: Any) -> str | None:
    """Return why the engine cannot train this net on these samples, or None if it can.

    Parameters
    ----------
    net : MixupENet
        An initialised net.
    X, y, weight : Tensor or other
        Inputs, targets and weights.

    Returns
    -------
    reason : str or None
        One reason.
    """
    parts = (_about_module(net.module_), _about_loss(net), _about_optimizer(net))
    reasons = (reason for part in (*parts, _about_data(net, X, y, weight)) for reason in part)
    return next(reasons, None)


def _about_module(module: nn.Module) -> Iterable[str]:
    if architecture_of(module) is None:
        yield "the module is not made of layers that know their gradient"
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
        yield "the module is not on the CPU"
    if any(parameter.dtype not in (torch.float32, torch.float64) for parameter in parameters):
        yield "the weights are not of single or double precision"


def _about_loss(net: Any) -> Iterable[str]:
    criterion = net.criterion_
    if type(criterion) is not MixupELoss:
        yield "the criterion is not MixupELoss"
    elif criterion.penalty == "directional" and criterion.has_penalty:
        yield "the penalty is directional"
    elif criterion.penalty_order != 1 and criterion.has_penalty:
        yield "the penalty has a second-order term"
    elif criterion.mix_at == "hidden" and criterion.has_mixing and len(stage_ends(net.module_)) < 2:
        yield "the module has no hidden state to mix"


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
    """Return what all weights of a network must share: the names and the counts of their state."""
    counts = counts_of(state).items()
    return *state, *(float(v) if isinstance(v, Tensor) else v for _, v in counts)


def _about_data(net: Any, X: Any, y: Any, weight: Any) -> Iterable[str]:
    if net._prepare is not None or net._precision is not None:
        yield "inputs are prepared batch by batch, or computed in low precision"
    first = next(net.module_.parameters(), None)
    if first is None or not isinstance(X, (Tensor, CentredRows)) or len(X.shape) != 2:
        yield "the inputs are not rows in memory"
    elif X.dtype != first.dtype:
        yield "the inputs are not rows of the module's floating type"
    elif X.shape[1] != first.shape[1]:
        yield "the inputs have another width than the module"
    elif isinstance(X, Tensor) and X.device.type != "cpu":
        yield "the inputs are not on the CPU"
    if weight is not None and (not isinstance(weight, Tensor) or weight.ndim != 1):
        yield "there is not one weight per sample"
    if not isinstance(y, Tensor) or y.device.type != "cpu":
        yield "the targets are not a tensor"
    elif net.criterion_.head == "softmax" and (y.ndim != 1 or y.is_floating_point()):
        yield "the targets are not class numbers"
