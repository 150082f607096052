"""Which rows of a batch a process runs, where several processes train one network together.

All processes make the same draw for the whole batch. Where a process has all rows, it mixes those
of its portion with partners from anywhere in the batch, and the processes together do what one
would do alone. Where it has its own rows only (hidden states, data that are read in portions), its
rows are mixed with each other.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mixupe_sklearn._method.mixup import Draw, share_size, take


class Shard(NamedTuple):
    """The place of a process among those that train together.

    ``rank`` counts from 0 to ``n_portions - 1``; ``total`` returns the sum of a small tensor over
    all processes; ``sizes`` are the rows of each portion where the batch at hand is this process's
    portion alone, or None where it is the whole batch.
    """

    rank: int
    n_shards: int
    total: Callable[[Tensor], Tensor]
    sizes: tuple[int, ...] | None = None

    def n_samples(self, n_at_hand: int) -> int:
        """Rows of the whole batch."""
        return n_at_hand if self.sizes is None else sum(self.sizes)


class Own(NamedTuple):
    """What a process does of one step.

    ``draw`` is about the rows at hand; ``mixed`` and ``clean`` are the numbers of the rows that it
    mixes and that it runs clean, None for all; ``mixed_weight`` and ``penalty_weight`` turn what it
    finds on them into its addend of the batch's.
    """

    draw: Draw
    mixed: np.ndarray | None = None
    clean: np.ndarray | None = None
    mixed_weight: float = 1.0
    penalty_weight: float = 1.0


class WithGradient(torch.autograd.Function):
    """A number whose gradient with respect to two tensors is already known."""

    @staticmethod
    def forward(ctx, mixed_logits, clean_logits, value, mixed_gradient, clean_gradient):
        ctx.save_for_backward(mixed_gradient, clean_gradient)
        return value.clone()

    @staticmethod
    def backward(ctx, upstream):
        if torch.is_grad_enabled():  # create_graph=True: the constants below would be wrong in it
            raise RuntimeError("MixupELoss has first derivatives only, but a second was asked for.")
        mixed_gradient, clean_gradient = ctx.saved_tensors
        clean = None if clean_gradient is None else upstream * clean_gradient
        return upstream * mixed_gradient, clean, None, None, None


def shard_sizes(n_samples: int, n_shards: int) -> tuple[int, ...]:
    """Rows of each portion of a batch: as equal as can be, the first ones the larger.

    Examples
    --------
    >>> portion_sizes(7, 3), portion_sizes(1, 2)
    ((3, 2, 2), (1, 0))
    """
    small, n_larger = divmod(n_samples, n_shards)
    return tuple(small + (rank < n_larger) for rank in range(n_shards))


def own_rows(rows: np.ndarray, shard: Shard) -> np.ndarray:
    """The portion of some rows; where there are too few for all, the first one as a stand-in.

    A process without rows still has to run the module, since the others wait for its gradients.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([4, 2, 7])
    >>> own_rows(rows, Portion(0, 2, total=None)), own_rows(rows[:1], Portion(1, 2, total=None))
    (array([4, 2]), array([4]))
    """
    sizes = shard_sizes(len(rows), shard.n_shards)
    start = sum(sizes[: shard.rank])
    return rows[start : start + sizes[shard.rank]] if sizes[shard.rank] else rows[:1]


def cut(
    X: Any, y: Tensor, sample_weight: Tensor | None, shard: Shard
) -> tuple[Any, Tensor, Tensor | None, Shard]:
    """Leave a process its own rows of a whole batch, if that is what it has.

    Hidden states are computed in the process that mixes them, so its rows are mixed by themselves.

    Examples
    --------
    >>> import torch
    >>> X, y, weight, portion = cut(torch.arange(5), torch.arange(5), None, Portion(1, 2, None))
    >>> X, portion.sizes
    (tensor([3, 4]), (3, 2))
    """
    if shard.sizes is not None:
        return X, y, sample_weight, shard
    rows = own_rows(np.arange(len(y)), shard)
    weight = None if sample_weight is None else take(sample_weight, rows)
    sizes = shard_sizes(len(y), shard.n_shards)
    return take(X, rows), take(y, rows), weight, shard._replace(sizes=sizes)


def own_part(draw: Draw, n_samples: int, shard: Shard | None, least: int = 1) -> Own:
    """What a process does of a step that all have drawn for the whole batch.

    Parameters
    ----------
    draw : Draw
        The draw, the same in all processes.
    n_samples : int
        Rows of the whole batch.
    portion : Portion or None
        The place of this process; None where it is the only one.
    least : int, default=1
        Rows at least in a share that runs clean, as far as a portion has them.

    Examples
    --------
    >>> import numpy as np
    >>> draw = Draw(lam=0.5, partner=np.array([2, 0, 1]))
    >>> own_part(draw, 3, Portion(1, 2, total=None)).mixed         # all rows are at hand
    array([2])
    >>> own = own_part(draw, 3, Portion(0, 2, total=None, sizes=(2, 1)))
    >>> own.draw.partner, round(own.mixed_weight, 3)               # only its two rows are
    (array([1, 0]), 0.667)
    """
    if shard is None:
        return Own(draw, clean=None if draw.partner is None else draw.clean)
    if shard.sizes is not None:
        return _of_rows_at_hand(draw, shard.sizes, shard.rank, least)
    every = np.arange(n_samples)
    mixed = clean = own_rows(every, shard)
    size = n_clean = shard_sizes(n_samples, shard.n_shards)[shard.rank]
    if draw.partner is not None and draw.clean is not None:
        clean = own_rows(draw.clean, shard)
        n_clean = shard_sizes(len(draw.clean), shard.n_shards)[shard.rank]
    return Own(draw, mixed, clean, size / n_samples, float(n_clean > 0))


def _of_rows_at_hand(draw: Draw, sizes: tuple[int, ...], rank: int, least: int) -> Own:
    """Partners within the portion, in the order that those of the whole batch have there."""
    size, n_samples, start = sizes[rank], sum(sizes), sum(sizes[:rank])
    block = slice(start, start + size) if size else slice(0, 1)
    lam = draw.lam[block] if isinstance(draw.lam, np.ndarray) else draw.lam
    partner = None if draw.partner is None else np.argsort(draw.partner[block])
    own = Own(draw._replace(lam=lam, partner=partner), mixed_weight=size / n_samples)
    if draw.clean is None:
        return own._replace(penalty_weight=size / n_samples)
    if partner is None:  # all rows run: which of them are seen was drawn for the batch
        clean = np.flatnonzero(np.isin(np.arange(n_samples)[block], draw.clean))
        n_clean, n_all = len(clean) * (size > 0), len(draw.clean)
    else:
        fraction = len(draw.clean) / n_samples
        shares = [share_size(size, fraction, least) for size in sizes]
        clean, n_clean, n_all = partner[: shares[rank]], shares[rank], sum(shares)
    clean = clean if len(clean) else np.zeros(1, dtype=np.int64)
    draw = own.draw._replace(clean=clean)
    ran = None if partner is None else clean
    return own._replace(draw=draw, clean=ran, penalty_weight=n_clean / n_all)


def joined(
    shard: Shard,
    own: Own,
    mixup_part: tuple[Tensor, Tensor],
    penalty_part: tuple[Tensor, Tensor | None],
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor | None]]:
    """Turn what one process has found into the figures of the batch, the same in all of them.

    Each part is a number and its gradient with respect to this process's logits. The gradients are
    multiplied by the number of processes, whose mean is then that of the whole batch.

    Examples
    --------
    >>> import torch
    >>> own = Own(Draw(), mixed_weight=0.5, penalty_weight=0.5)
    >>> portion = Portion(0, 2, total=lambda values: 2 * values)   # the other found the same
    >>> part = (torch.tensor(3.0), torch.ones(1, 1))
    >>> joined(portion, own, part, part)[0]
    (tensor(3.), tensor([[1.]]))
    """
    (mixup_loss, gradient), (penalty_term, grad) = mixup_part, penalty_part
    penalty_term = own.penalty_weight * penalty_term
    found = torch.stack([own.mixed_weight * mixup_loss, penalty_term.detach()])
    mixup_loss, whole_term = shard.total(found).unbind()
    gradient = shard.n_shards * own.mixed_weight * gradient
    if grad is not None:
        grad = shard.n_shards * own.penalty_weight * grad
    elif penalty_term.requires_grad:
        times = torch.full_like(whole_term, shard.n_shards)
        whole_term = WithGradient.apply(penalty_term, None, whole_term, times, None)
    return (mixup_loss, gradient), (whole_term, grad)
