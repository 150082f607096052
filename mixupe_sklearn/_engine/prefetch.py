"""What the steps of an epoch are fed: drawn, gathered and mixed for several batches at once.

A step of a small network is so short that looking up its rows and mixing them would take as long as
the step. Here that work is done for as many batches as fit into the processor's cache.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mixupe_sklearn._engine.loss import Feed, Pairs
from mixupe_sklearn._method.forward import encode_targets
from mixupe_sklearn._method.penalties import one_minus_lam_mean

# Entries of inputs and targets that are made ready at once: a megabyte of single precision.
AHEAD = 2**18
# Up to this many features inputs are mixed, and the clean ones run beside them through the first
# layer; from there on it is quicker to run the clean ones alone and to mix what the layer makes of
# them. Measured with one thread; the choice changes no result but by rounding.
MOST_MIXED = 256


def kind_of(criterion: Any) -> tuple[bool, str | None, float]:
    """Which rows a step runs: whether some are mixed, and which penalty sees what share of them."""
    if not criterion.has_penalty:
        return criterion.has_mixing, None, 1.0
    return criterion.has_mixing, criterion.penalty, criterion.penalty_fraction


class Terms(NamedTuple):
    """What each member's loss is: ``eta`` and ``E[1-lam]``, (n_members,), its head and penalty."""

    eta: Tensor
    one_minus_lam: Tensor
    head: str
    penalty: str | None


def terms_of(criteria: list[Any], dtype: torch.dtype) -> Terms:
    """The terms of members from their criteria, which are of one kind."""
    shares = [one_minus_lam_mean(criterion.alpha, criterion.beta) for criterion in criteria]
    return Terms(
        eta=torch.tensor([criterion.eta for criterion in criteria], dtype=dtype),
        one_minus_lam=torch.tensor(shares, dtype=dtype),
        head=criteria[0].head,
        penalty=kind_of(criteria[0])[1],
    )


def mixes_inputs(n_features: int, clean_share: float) -> bool:
    """Whether mixing the inputs is quicker than mixing what the first layer makes of them.

    Examples
    --------
    >>> mixes_inputs(784, clean_share=0.0), mixes_inputs(784, clean_share=1.0)
    (True, False)
    """
    return n_features * clean_share <= MOST_MIXED


class Data:
    """Rows shared by all members of a group.

    Parameters
    ----------
    X : Tensor or CentredRows of shape (n_samples, n_features)
        Inputs, of the floating type of the members.
    y : Tensor of shape (n_samples,) or (n_samples, n_outputs)
        Targets; for a softmax, class numbers.
    weight : Tensor of shape (n_samples,) or None
        Weights.
    net : MixupENet
        Any one of the members.
    index : array of int or None, default=None
        The rows that are used; None means all.
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
        self.n_features = layer.in_features
        self.n_outputs = last.out_features
        self.is_class_number = self.head == "softmax" and y.ndim == 1 and not y.is_floating_point()
        if self.is_class_number:  # once for all; other targets are looked at as they come
            used = y if index is None else y[torch.from_numpy(index)]
            self._encode(torch.stack([used.min(), used.max()]))

    def __len__(self) -> int:
        return len(self.y)

    def _encode(self, y: Tensor) -> Tensor:
        logits = torch.empty((), dtype=self.dtype).expand(len(y), self.n_outputs)
        return encode_targets(y, logits, self.head)

    def targets(self, index: Tensor, out: Tensor) -> Tensor:
        """Write encoded targets by row numbers to ``out``, of these numbers' shape and a width."""
        y = self.y[index.flatten()]
        if not self.is_class_number:
            return out.copy_(self._encode(y).view(out.shape))
        out.zero_().view(-1, self.n_outputs).scatter_(1, y.long()[:, None], 1.0)
        return out

    def inputs(self, index: Tensor, out: Tensor) -> Tensor:
        """Write inputs by row numbers to ``out``, of these numbers' shape and a width."""
        rows = out.view(-1, self.n_features)
        if isinstance(self.X, Tensor):
            torch.index_select(self.X, 0, index.flatten(), out=rows)
        else:
            self.X.take(index.flatten(), rows)
        return out


class Draws(NamedTuple):
    """The draws of several steps, or None for each that is not drawn.

    ``lam`` has the shape (n_steps, n_members, n_rows or 1, 1), ``partner`` (n_steps, n_members,
    n_rows); ``clean`` are the rows that the penalty sees, (n_steps, n_members, n_clean).
    """

    lam: Tensor | None
    partner: Tensor | None
    clean: Tensor | None


def _numbered(local: Tensor, n_rows: int) -> Tensor:
    """Turn row numbers of each batch into numbers that count through all first dimensions."""
    n_batches = local.shape[:-1].numel()
    offset = torch.arange(n_batches).mul_(n_rows).view(*local.shape[:-1], 1)
    return (local + offset).flatten()


class Feeder:
    """Makes the feeds of an epoch's steps.

    Parameters
    ----------
    data : Data
        The rows.
    criteria : list of MixupELoss
        One for each member, all of one kind; they draw.
    terms : Terms
        The members' losses.
    rooms : dict
        Memory to be used again, also by the next epoch's feeder.
    """

    def __init__(self, data: Data, criteria: list[Any], terms: Terms, rooms: dict[str, Tensor]):
        self.data, self.criteria, self.terms, self.rooms = data, criteria, terms, rooms
        _, penalty, fraction = kind_of(criteria[0])
        self.has_penalty = penalty is not None
        # Where an input's gradient is asked for, the clean inputs must be there.
        self.at_input = penalty != "directional" and mixes_inputs(
            data.n_features, fraction if self.has_penalty else 0.0
        )

    def feeds(self, orders: Tensor, sizes: list[int]) -> Iterator[Feed]:
        """Feeds for batches of these sizes, in turn from the orders (n_members, n_samples)."""
        start = 0
        for n_rows, n_steps in self._runs(sizes, len(orders)):
            stop = start + n_rows * n_steps
            index = orders[:, start:stop].view(len(orders), n_steps, n_rows).transpose(0, 1)
            yield from self._ready(index)
            start = stop

    def _runs(self, sizes: list[int], n_members: int) -> Iterator[tuple[int, int]]:
        """Runs of neighbouring batches of one size, none longer than can be made ready at once."""
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
        """Each member's own draws, from its own generator, in the order of the steps."""
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

    def _ready(self, index: Tensor) -> Iterator[Feed]:
        """Feeds of some steps, given their row numbers (n_steps, n_members, n_rows)."""
        n_steps, _, n_rows = index.shape
        draws = self._draw(n_steps, n_rows)
        X = self.data.inputs(index, self._room("X", *index.shape, self.data.n_features))
        y = self.data.targets(index, self._room("y", *index.shape, self.data.n_outputs))
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
        pull = self._pulls(index, weight, draws, n_clean) if self.has_penalty else None
        columns = (X, targets, mass, clean, pull, pairs)
        for one in zip(*(_in_turn(column, n_steps) for column in columns), strict=True):
            yield Feed(*one)

    def _room(self, name: str, *shape: int) -> Tensor:
        """Memory of a name that is used again; new memory for each run of steps would be slow."""
        size = torch.Size(shape).numel()
        if name not in self.rooms or self.rooms[name].numel() < size:
            with torch.inference_mode(False):  # the next epoch may be one with autograd
                self.rooms[name] = torch.empty(size, dtype=self.data.dtype)
        return self.rooms[name][:size].view(shape)

    def _mixed(
        self, name: str, values: Tensor, lam: Tensor, partner: Tensor, n_clean: int = 0
    ) -> Tensor:
        """Mixed values, and below them those of the first partners, as they are."""
        *first, n_rows, width = values.shape
        out = self._room(name, *first, n_rows + n_clean, width)
        other = self._room("other", *values.shape)
        torch.index_select(values.flatten(0, 2), 0, partner, out=other.view(-1, width))
        torch.lerp(other, values, lam, out=out[:, :, :n_rows])
        if n_clean:
            out[:, :, n_rows:] = other[:, :, :n_clean]
        return out

    def _pulls(self, index: Tensor, weight: Tensor | None, draws: Draws, n_clean: int) -> Tensor:
        """What the penalty of each row that it sees counts beside the loss of one row."""
        n_rows = index.shape[2]
        pull = (self.terms.eta * self.terms.one_minus_lam * (n_rows / n_clean))[None, :, None, None]
        weight = None if weight is None else weight[..., None]
        if draws.partner is not None:
            pull = pull.expand(*index.shape[:2], n_clean, 1)
            if weight is None:
                return pull
            return pull * _first_partners(weight, _numbered(draws.partner, n_rows), n_clean)
        pull = pull.expand(*index.shape, 1)
        if draws.clean is not None:
            # All rows are run anyway; those that the penalty does not see count nothing.
            is_seen = torch.zeros(pull.shape, dtype=pull.dtype)
            pull = pull * is_seen.scatter_(2, draws.clean[..., None], 1.0)
        return pull if weight is None else pull * weight


def _in_turn(values: Any, n_steps: int) -> Any:
    """What each step gets of a tensor, of a list, or of None."""
    if values is None:
        return (None,) * n_steps
    return values.unbind() if isinstance(values, Tensor) else values


def _first_partners(values: Tensor, partner: Tensor, n_clean: int) -> Tensor:
    return values.flatten(0, 2)[partner].view(values.shape)[:, :, :n_clean]


def _pairs(lam: Tensor, partner: Tensor) -> list[Pairs]:
    """How the states of each step are mixed; rows are numbered through its members."""
    n_rows = partner.shape[2]
    lam = lam.expand(*partner.shape[:2], n_rows, 1)
    numbers = torch.stack([_numbered(step, n_rows) for step in partner])
    inverse = torch.empty_like(numbers)
    inverse.scatter_(1, numbers, torch.arange(numbers.shape[1]).expand_as(numbers))
    return [Pairs(*one) for one in zip(lam, numbers, inverse, strict=True)]
