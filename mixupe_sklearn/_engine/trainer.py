"""Training of several networks as one: their batches, their optimizer, their steps.

A step of a small network is so short that gathering and mixing its samples would take as long as
the step. That work is done for as many batches as fit into the CPU's cache.
"""

import copy as copying
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mixupe_sklearn._data.batches import Batches
from mixupe_sklearn._data.rows import CentredRows
from mixupe_sklearn._engine.network import (
    Pairs,
    Passes,
    Stack,
    StepBatch,
    Sums,
    activation_of,
    directional_step,
    is_plain,
    padded,
)
from mixupe_sklearn._method.criterion import MixupELoss
from mixupe_sklearn._method.forward import encode_targets
from mixupe_sklearn._method.penalties import one_minus_lam_mean
from mixupe_sklearn._runtime.device import is_compiled

# Entries of inputs and targets that are prepared at once: a megabyte of single precision.
AHEAD = 2**18
# Up to this many features, inputs are mixed, and the clean ones run through the first layer with
# them. Above, it is faster to run the clean inputs alone and to mix the states after the first
# layer. Measured with one thread; the choice changes results by rounding only.
MOST_MIXED = 256
# Largest number of entries (weights, their gradients and moments, and the states of a step) of the
# members that train together. With (128, 128) hidden units this is 15 members at 64 features and 5
# at 784: more were no faster.
STACK_ENTRIES = 3_300_000
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


def kind_of(criterion: Any) -> tuple[bool, str | None, float]:
    """Return whether a step mixes samples, its penalty, and the penalised fraction of samples."""
    if not criterion.has_penalty:
        return criterion.has_mixing, None, 1.0
    return criterion.has_mixing, criterion.penalty, criterion.penalty_fraction


class Terms(NamedTuple):
    """Terms of the members' losses: ``eta`` and ``E[1-lam]``, (n_members,), head and penalty."""

    eta: Tensor
    one_minus_lam: Tensor
    head: str
    penalty: str | None


def terms_of(criteria: list[Any], dtype: torch.dtype) -> Terms:
    """Return the terms of members from their criteria, which are of one kind."""
    shares = [one_minus_lam_mean(criterion.alpha, criterion.beta) for criterion in criteria]
    return Terms(
        eta=torch.tensor([criterion.eta for criterion in criteria], dtype=dtype),
        one_minus_lam=torch.tensor(shares, dtype=dtype),
        head=criteria[0].head,
        penalty=kind_of(criteria[0])[1],
    )


def mixes_inputs(n_features: int, clean_share: float) -> bool:
    """Return whether mixing the inputs is faster than mixing the states after the first layer.

    Examples
    --------
    >>> mixes_inputs(784, clean_share=0.0), mixes_inputs(784, clean_share=1.0)
    (True, False)
    """
    return n_features * clean_share <= MOST_MIXED


class Data:
    """Samples shared by all members that train together.

    Parameters
    ----------
    X : Tensor or CentredRows of shape (n_samples, n_features)
        Inputs, of the floating type of the members.
    y : Tensor of shape (n_samples,) or (n_samples, n_outputs)
        Targets; for a softmax, class numbers.
    weight : Tensor of shape (n_samples,) or None
        Weights.
    net : MixupENet
        Any of the members.
    index : array of int or None, default=None
        Numbers of the samples to use; None means all.
    """

    def __init__(
        self,
        X: Any,
        y: Tensor,
        weight: Tensor | None,
        net: Any,
        index: np.ndarray | None = None,
    ):
        first, last = net.module_.stages[0], net.module_.stages[-1]
        layer: Any = first[0] if isinstance(first, torch.nn.Sequential) else first
        self.dtype: torch.dtype = layer.weight.dtype
        self.head = net.criterion_.head
        self.X, self.y = X.detach() if isinstance(X, Tensor) else X, y
        self.weight = None if weight is None else weight.to(self.dtype)
        self.n_features = int(layer.in_features)  # a user may give a numpy integer
        self.n_outputs = int(last.out_features)
        self.is_class_number = self.head == "softmax" and y.ndim == 1 and not y.is_floating_point()
        if self.is_class_number:  # checked once; other targets are checked batch by batch
            used = y if index is None else y[torch.from_numpy(index)]
            self._encode(torch.stack([used.min(), used.max()]))

    def __len__(self) -> int:
        return len(self.y)

    def _encode(self, y: Tensor) -> Tensor:
        logits = torch.empty((), dtype=self.dtype).expand(len(y), self.n_outputs)
        return encode_targets(y, logits, self.head)

    def targets(self, index: Tensor, out: Tensor) -> Tensor:
        """Write the encoded targets of numbered samples to ``out``, (*index.shape, n_outputs)."""
        y = self.y[index.flatten()]
        if not self.is_class_number:
            return out.copy_(self._encode(y).view(out.shape))
        out.zero_().view(-1, self.n_outputs).scatter_(1, y.long()[:, None], 1.0)
        return out

    def inputs(self, index: Tensor, out: Tensor) -> Tensor:
        """Write the inputs of numbered samples to ``out``, (*index.shape, n_features)."""
        rows = out.view(-1, self.n_features)
        if isinstance(self.X, Tensor):
            torch.index_select(self.X, 0, index.flatten(), out=rows)
        else:
            self.X.take(index.flatten(), rows)
        return out


class Draws(NamedTuple):
    """The draws of several steps; None for values that are not drawn.

    ``lam`` has the shape (n_steps, n_members, n_rows or 1, 1), ``partner`` (n_steps, n_members,
    n_rows). ``clean`` numbers the penalised samples, (n_steps, n_members, n_clean).
    """

    lam: Tensor | None
    partner: Tensor | None
    clean: Tensor | None


def _numbered(local: Tensor, n_rows: int) -> Tensor:
    """Turn sample numbers within each batch into numbers across all batches."""
    n_batches = local.shape[:-1].numel()
    offset = torch.arange(n_batches).mul_(n_rows).view(*local.shape[:-1], 1)
    return (local + offset).flatten()


class Prefetcher:
    """Draws, gathers and mixes the batches of an epoch, several at a time.

    Parameters
    ----------
    data : Data
        The samples.
    criteria : list of MixupELoss
        One for each member, all of one kind; they make the draws.
    terms : Terms
        The terms of the members' losses.
    buffers : dict
        Memory to reuse, also in the next epoch.
    """

    def __init__(self, data: Data, criteria: list[Any], terms: Terms, buffers: dict[str, Tensor]):
        self.data, self.criteria, self.terms, self.buffers = data, criteria, terms, buffers
        _, penalty, fraction = kind_of(criteria[0])
        self.has_penalty = penalty is not None
        # The gradient with respect to an input needs the clean inputs.
        self.at_input = penalty != "directional" and mixes_inputs(
            data.n_features, fraction if self.has_penalty else 0.0
        )

    def batches(self, orders: Tensor, sizes: list[int]) -> Iterator[StepBatch]:
        """Yield batches of these sizes, in the orders (n_members, n_samples)."""
        start = 0
        for n_rows, n_steps in self._runs(sizes, len(orders)):
            stop = start + n_rows * n_steps
            index = orders[:, start:stop].view(len(orders), n_steps, n_rows).transpose(0, 1)
            yield from self._prepare(index)
            start = stop

    def _runs(self, sizes: list[int], n_members: int) -> Iterator[tuple[int, int]]:
        """Yield runs of consecutive batches of one size, short enough to prepare at once."""
        entries = 2 * n_members * (self.data.n_features + self.data.n_outputs)
        done = 0
        while done < len(sizes):
            n_rows = sizes[done]
            longest = max(1, AHEAD // (entries * n_rows))
            n_steps = 1
            while n_steps < longest and sizes[done + n_steps : done + n_steps + 1] == [n_rows]:
                n_steps += 1
            yield n_rows, n_steps
            done += n_steps

    def _draw(self, n_steps: int, n_rows: int) -> Draws:
        """Draw for each member from its own generator, in the order of the steps."""
        draws = [[c.draw(n_rows) for c in self.criteria] for _ in range(n_steps)]

        def stacked(name: str) -> Tensor | None:
            if getattr(draws[0][0], name) is None:
                return None
            return torch.from_numpy(np.array([[getattr(d, name) for d in row] for row in draws]))

        partner, clean = stacked("partner"), stacked("clean")
        if partner is None:
            return Draws(None, None, clean)
        lam = torch.from_numpy(np.array([[draw.lam for draw in row] for row in draws]))
        lam = lam.view(*lam.shape[:2], -1, 1).to(self.data.dtype)
        return Draws(lam, partner, clean)

    def _prepare(self, index: Tensor) -> Iterator[StepBatch]:
        """Yield the batches of some steps by sample numbers (n_steps, n_members, n_rows)."""
        n_steps, _, n_rows = index.shape
        draws = self._draw(n_steps, n_rows)
        X = self.data.inputs(index, self._buffer("X", *index.shape, self.data.n_features))
        y = self.data.targets(index, self._buffer("y", *index.shape, self.data.n_outputs))
        weight = None if self.data.weight is None else self.data.weight[index]
        targets = y if weight is None else weight[..., None] * y
        mass, clean, pairs = weight, y if self.has_penalty else None, None
        n_clean = 0 if clean is None else n_rows if draws.clean is None else draws.clean.shape[2]
        if draws.lam is not None and draws.partner is not None:
            partner = _numbered(draws.partner, n_rows)
            targets = self._mixed("targets", targets, draws.lam, partner, n_clean)
            if weight is not None:
                mass = self._mixed("mass", weight[..., None], draws.lam, partner)[..., 0]
                if clean is not None:
                    targets[:, :, n_rows:] = _first_partners(clean, partner, n_clean)
            if self.at_input:
                X = self._mixed("inputs", X, draws.lam, partner, n_clean)
            else:
                pairs = _pairs(draws.lam, draws.partner)
            clean = None
        penalty_weight = None
        if self.has_penalty:
            penalty_weight = self._penalty_weights(index, weight, draws, n_clean)
        columns = (X, targets, mass, clean, penalty_weight, pairs)
        for one in zip(*(_in_turn(column, n_steps) for column in columns), strict=True):
            yield StepBatch(*one)

    def _buffer(self, name: str, *shape: int) -> Tensor:
        """Return reused memory of a name; new memory for each run of steps would be slow."""
        size = torch.Size(shape).numel()
        if name not in self.buffers or self.buffers[name].numel() < size:
            with torch.inference_mode(False):  # the next epoch may use autograd
                self.buffers[name] = torch.empty(size, dtype=self.data.dtype)
        return self.buffers[name][:size].view(shape)

    def _mixed(
        self, name: str, values: Tensor, lam: Tensor, partner: Tensor, n_clean: int = 0
    ) -> Tensor:
        """Return mixed values, followed by the unmixed values of the first partners."""
        *first, n_rows, width = values.shape
        out = self._buffer(name, *first, n_rows + n_clean, width)
        other = self._buffer("other", *values.shape)
        torch.index_select(values.flatten(0, 2), 0, partner, out=other.view(-1, width))
        torch.lerp(other, values, lam, out=out[:, :, :n_rows])
        if n_clean:
            out[:, :, n_rows:] = other[:, :, :n_clean]
        return out

    def _penalty_weights(
        self, index: Tensor, weight: Tensor | None, draws: Draws, n_clean: int
    ) -> Tensor:
        """Weight of each sample's penalty relative to the loss of one sample."""
        n_rows = index.shape[2]
        scale = self.terms.eta * self.terms.one_minus_lam * (n_rows / n_clean)
        scale = scale[None, :, None, None]
        weight = None if weight is None else weight[..., None]
        if draws.partner is not None:
            scale = scale.expand(*index.shape[:2], n_clean, 1)
            if weight is None:
                return scale
            return scale * _first_partners(weight, _numbered(draws.partner, n_rows), n_clean)
        scale = scale.expand(*index.shape, 1)
        if draws.clean is not None:
            # All samples run in any case; those without a penalty get the weight zero.
            is_seen = torch.zeros(scale.shape, dtype=scale.dtype)
            scale = scale * is_seen.scatter_(2, draws.clean[..., None], 1.0)
        return scale if weight is None else scale * weight


def _in_turn(values: Any, n_steps: int) -> Any:
    """Return the value of each step, from a tensor, a list, or None."""
    if values is None:
        return (None,) * n_steps
    return values.unbind() if isinstance(values, Tensor) else values


def _first_partners(values: Tensor, partner: Tensor, n_clean: int) -> Tensor:
    return values.flatten(0, 2)[partner].view(values.shape)[:, :, :n_clean]


def _pairs(lam: Tensor, partner: Tensor) -> list[Pairs]:
    """Return the mixing of each step; samples are numbered across its members."""
    n_rows = partner.shape[2]
    lam = lam.expand(*partner.shape[:2], n_rows, 1)
    numbers = torch.stack([_numbered(step, n_rows) for step in partner])
    inverse = torch.empty_like(numbers)
    inverse.scatter_(1, numbers, torch.arange(numbers.shape[1]).expand_as(numbers))
    return [Pairs(*one) for one in zip(lam, numbers, inverse, strict=True)]


def n_together(net: Any, n_rows: int, n_features: int) -> int:
    """Return how many members like this net train together without loss of speed."""
    has_mixing, penalty, _ = kind_of(net.criterion_)
    shapes = [parameter.shape for parameter in net.module_.parameters()]
    n_weights = sum(shape.numel() for shape in shapes)
    n_states = sum(shape[0] for shape in shapes if len(shape) == 2)
    n_run = 2 if has_mixing and penalty else 1
    n_entries = 4 * n_weights + min(net.batch_size, n_rows) * (n_features + 2 * n_run * n_states)
    return max(1, STACK_ENTRIES // n_entries)


def sizes_of(n_rows: int, batch_size: int) -> list[int]:
    """Return the number of samples of each step of an epoch.

    Examples
    --------
    >>> sizes_of(250, batch_size=100)
    [100, 100, 50]
    """
    return [min(batch_size, n_rows - start) for start in range(0, n_rows, batch_size)]


class StackedTrainer:
    """Trains nets with stacked weights and one optimizer; all take each step.

    While it lives, the parameters of the nets are views of the stack; ``release`` restores them.
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
        self.buffers: dict[str, Tensor] = {}

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
            The samples.
        orders : sequence of arrays of shape (n_samples,)
            The sample numbers of each member, in the order of its steps.
        sizes : list of int
            Number of samples of each step.
        factors : sequence of float or None, default=None
            Factors of the learning rates at each step; None for constant rates.

        Returns
        -------
        values : array of shape (n_steps, 4, n_members)
            Loss, its parts and its scale.
        """
        if not sizes:
            return np.empty((0, 4, len(criteria)))
        terms = terms_of(criteria, self.stack.weights.dtype)
        prefetcher = Prefetcher(data, criteria, terms, self.buffers)
        # Gradients in closed form need no autograd: each call is cheaper without it.
        with torch.inference_mode(terms.penalty != "directional"):
            batches = prefetcher.batches(torch.from_numpy(np.stack(orders)), sizes)
            rates: Sequence[float | None] = factors or [None] * len(sizes)
            pairs = zip(batches, rates, strict=True)
            steps = [self.step(batch, terms, factor) for batch, factor in pairs]
            return _values(steps, np.array(sizes)[:, None], terms)

    def step(self, batch: StepBatch, terms: Terms, factor: float | None = None) -> Sums:
        """Take one step, with the learning rates times a factor."""
        if terms.penalty == "directional":
            sums = directional_step(self.stack, batch, terms.head)
        else:
            sums = self.passes_for(batch).run(batch, terms.head)
        self.take_step(factor)
        return sums

    def passes_for(self, batch: StepBatch) -> Passes:
        """Return the memory for batches of this size: the usual one, or that of the last batch."""
        n_run = batch.targets.shape[1]
        n_clean = 0 if batch.penalty_weight is None else batch.penalty_weight.shape[1]
        n_extra = n_clean if batch.clean is None else 0
        sizes = n_run - n_extra, n_clean, n_extra
        if sizes not in self.passes:
            self.passes[sizes] = Passes(self.stack, *sizes)
        return self.passes[sizes]

    def release(self) -> None:
        """Restore the parameters and the optimizer state of each net."""
        self.stack.release()
        unstack_optimizer(self.stack, self.optimizer, self.optimizers)


def _values(steps: list[Sums], n_rows: np.ndarray, terms: Terms) -> np.ndarray:
    """Return the loss, its parts and its scale from the sums of each step."""
    mixup_loss = torch.stack([sums.loss for sums in steps]).double().numpy() / n_rows
    penalty_term, eta = np.zeros_like(mixup_loss), terms.eta.double().numpy()
    # The net reports values that are not finite; an eta below single precision counts as 0.
    with np.errstate(all="ignore"):
        if terms.penalty is not None:
            penalties = [sums.penalty for sums in steps if sums.penalty is not None]
            share = torch.stack(penalties).double().numpy() / n_rows
            penalty_term = np.where(eta > 0, share / eta, 0.0)
        total = mixup_loss + eta * penalty_term
        scale = np.where(total == 0, 1.0, np.abs(mixup_loss / total))
        return np.stack([scale * total, mixup_loss, penalty_term, scale], axis=1)


def rates_of(optimizer: torch.optim.Optimizer) -> str:
    """Return the options of an optimizer as a key to compare and to sort by."""
    (group,) = optimizer.param_groups
    return repr({name: value for name, value in group.items() if name != "params"})


def stack_optimizers(
    stack: Stack, optimizers: Sequence[torch.optim.Optimizer]
) -> torch.optim.Optimizer:
    """Return one optimizer of the same class over the stack, with the states of the given ones.

    Neighbours with equal options form one parameter group.
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
    """Takes the steps of an optimizer; those of a fused Adam without torch's overhead.

    torch inspects parameters and hooks at every step, which takes longer than the update of a small
    network.
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

    def call() -> None:
        state["step"] += 1
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
    stack: Stack,
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
        views = {name: stack.unflatten(value[row]) for name, value in arrays.items()}
        for number, parameter in enumerate(optimizer.param_groups[0]["params"]):
            own = {name: _copy(value, parameter.dtype) for name, value in counts_of(state).items()}
            own |= {
                name: view[number].clone() if copy else view[number] for name, view in views.items()
            }
            optimizer.state[parameter] = {name: own[name] for name in state}


def counts_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of an optimizer's state that is not one value per weight."""
    return {name: value for name, value in state.items() if not _is_array(value)}


def _copy(value: Any, dtype: torch.dtype) -> Any:
    # A fused optimizer counts its steps in single precision, others in the type of the weights.
    return value.to(dtype, copy=True) if isinstance(value, Tensor) else value


def why_not_by_hand(net: Any, iterator: Any) -> str | None:
    """Return why the engine cannot run an epoch of this net, or None if it can.

    Parameters
    ----------
    net : MixupENet
        An initialised net.
    iterator : Batches or other iterable
        The batches of the epoch.

    Returns
    -------
    reason : str or None
        One reason.
    """
    parts = (_about_module(net.module_), _about_loss(net.criterion_), _about_optimizer(net))
    reasons = (reason for part in (*parts, _about_data(net, iterator)) for reason in part)
    return next(reasons, None)


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
        yield "the module is not on the CPU"
    if any(parameter.dtype not in (torch.float32, torch.float64) for parameter in parameters):
        yield "the weights are not of single or double precision"


def _about_loss(criterion: Any) -> Iterable[str]:
    if type(criterion) is not MixupELoss:
        yield "the criterion is not MixupELoss"
    elif criterion.mix_at == "hidden" and (criterion.has_mixing or criterion.has_penalty):
        yield "samples are mixed at a hidden layer"
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
    """Return what all weights of a network must share: the names and the counts of their state."""
    counts = counts_of(state).items()
    return *state, *(float(v) if isinstance(v, Tensor) else v for _, v in counts)


def _about_data(net: Any, iterator: Any) -> Iterable[str]:
    if net._prepare is not None or net._precision is not None:
        yield "inputs are prepared batch by batch, or computed in low precision"
    if type(iterator) is not Batches:
        yield "the data is not in memory"
        return
    X, weight = _parts_of(iterator)
    dtype = next(net.module_.parameters()).dtype
    if not isinstance(X, (Tensor, CentredRows)) or X.dtype != dtype or len(X.shape) != 2:
        yield "the inputs are not rows of the module's floating type"
    elif X.shape[1] != next(net.module_.parameters()).shape[1]:
        yield "the inputs have another width than the module"
    if weight is not None and (not isinstance(weight, Tensor) or weight.ndim != 1):
        yield "there is not one weight per sample"
    if not isinstance(iterator.y, Tensor) or iterator.y.device.type != "cpu":
        yield "the targets are not a tensor"
    elif net.criterion_.head == "softmax" and (
        iterator.y.ndim != 1 or iterator.y.is_floating_point()
    ):
        yield "the targets are not class numbers"


def _parts_of(iterator: Batches) -> tuple[Any, Any]:
    """Return the inputs and weights of batches; None for inputs of several arrays."""
    if not isinstance(iterator.X, dict):
        return iterator.X, None
    is_known = set(iterator.X) <= {"X", "sample_weight"}
    return iterator.X.get("X") if is_known else None, iterator.X.get("sample_weight")


class StackedSession:
    """Training of one net whose parameters and optimizer state are views of a stack.

    Between epochs the net is complete: its parameters, their gradients and its optimizer's state
    have the current values. Values that a callback writes into them count. If a callback replaces
    them or changes the options of the training, the session ends and a new one begins.
    """

    def __init__(self, net: Any):
        self.key = _session_key(net)
        self.trainer = StackedTrainer([net])
        (self.optimizer,) = self.trainer.optimizers
        self.states: list[tuple[Any, dict[str, Any]]] = []

    def is_good(self, net: Any) -> bool:
        """Return whether the net still has the parameter views and the same options."""
        is_same = net.optimizer_ is self.optimizer and _session_key(net) == self.key
        return is_same and self.trainer.stack.is_whole and self.has_states

    @property
    def has_states(self) -> bool:
        """Whether the optimizer still has the state views."""
        return all(
            self.optimizer.state.get(parameter) is state
            and _history_of(state) == _history_of(self.common_state)
            for parameter, state in self.states
        )

    @property
    def common_state(self) -> dict[str, Any]:
        """The state of the optimizer that takes the steps."""
        (weights,) = self.trainer.optimizer.param_groups[0]["params"]
        return self.trainer.optimizer.state.get(weights, {})

    def run_epoch(
        self, net: Any, data: Data, order: np.ndarray, sizes: list[int], factors: Any
    ) -> np.ndarray:
        """Run an epoch and return the losses of each step, (n_steps, 4)."""
        values = self.trainer.run_epoch([net.criterion_], data, [order], sizes, factors)[:, :, 0]
        self._update_net()
        return values

    def _update_net(self) -> None:
        """Show the result of the epoch in the net's parameters, gradients and optimizer."""
        stack, optimizer = self.trainer.stack, self.optimizer
        if not self.states:
            unstack_optimizer(stack, self.trainer.optimizer, [optimizer], copy=False)
            self.states = list(optimizer.state.items())
        for _, state in self.states:
            for name, value in counts_of(self.common_state).items():
                is_tensor = isinstance(value, Tensor)
                state[name] = value.to(state[name].dtype, copy=True) if is_tensor else value
        for parameter, _, _ in stack.views:
            parameter.grad = None
        # Without gradients it changes nothing, but schedules check whether it was called.
        optimizer.step()
        gradients = stack.unflatten(stack.gradient[0])
        for (parameter, _, _), gradient in zip(stack.views, gradients, strict=True):
            parameter.grad = gradient.clone()

    def restore_parameters(self) -> None:
        """Restore parameters and optimizer state with memory of their own."""
        stack = self.trainer.stack
        stack.release()
        if not self.states:  # an interrupted epoch
            unstack_optimizer(stack, self.trainer.optimizer, [self.optimizer])
        for parameter, state in self.states:
            if self.optimizer.state.get(parameter) is state:  # else it was replaced
                arrays = {name: state[name] for name in state if name not in counts_of(state)}
                state.update({name: value.clone() for name, value in arrays.items()})


def _session_key(net: Any) -> tuple[Any, ...]:
    """Return what must not change during a session."""
    return rates_of(net.optimizer_), activation_of(net.module_)


# The sessions of nets in training; none keeps its net alive.
_sessions: weakref.WeakKeyDictionary[Any, StackedSession] = weakref.WeakKeyDictionary()


def run_by_hand(net: Any, iterator: Batches, factors: Sequence[float] | None) -> np.ndarray:
    """Run one epoch, and leave net and optimizer as autograd would, up to rounding.

    Call ``restore_parameters`` at the end of the training.

    Parameters
    ----------
    net : MixupENet
        A net for which ``why_not_by_hand`` returns None.
    iterator : Batches
        The batches of the epoch.
    factors : sequence of float or None
        Factors of the learning rate at each step; None for a constant rate.

    Returns
    -------
    values : array of shape (n_batches, 4)
        Loss, its parts and its scale.
    """
    if net in _sessions and not _sessions[net].is_good(net):
        restore_parameters(net)
    if net not in _sessions:
        _sessions[net] = StackedSession(net)
    X, weight = _parts_of(iterator)
    data = Data(X, iterator.y, weight, net, iterator.indices)
    order = iterator.order()
    order = np.arange(iterator.n_samples) if order is None else order
    return _sessions[net].run_epoch(net, data, order, iterator.sizes(), factors)


def restore_parameters(net: Any) -> None:
    """Restore the net's parameters and optimizer state, if they are views."""
    session = _sessions.pop(net, None)
    if session is not None:
        session.restore_parameters()
