"""Which samples of a batch a process runs, when several processes train one network together.

All processes make the same draw for the whole batch. A process that holds all samples mixes those
of its shard with partners from anywhere in the batch, and the processes together compute what one
would compute alone. A process that holds its own samples only (hidden states, data that are read
shard by shard) mixes them with each other.

``MixupELoss`` knows nothing of shards. It asks a ``Draw`` which samples to mix and which to run
clean; ``ShardDraw`` answers for one process.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mixupe_sklearn._method.criterion import LossParts, Term, WithGradient
from mixupe_sklearn._method.formulas import Draw, mix, share_size, take


class Shard(NamedTuple):
    """The place of a process among those that train together.

    ``rank`` counts from 0 to ``n_shards - 1``. ``total`` returns the sum of a small tensor over
    all processes. ``sizes`` are the numbers of samples of all shards if the given batch is the
    shard of this process alone, or None if it is the whole batch.
    """

    rank: int
    n_shards: int
    total: Callable[[Tensor], Tensor]
    sizes: tuple[int, ...] | None = None


class ShardDraw(Draw):
    """The part of a draw that one process runs.

    ``mixed`` and ``ran`` are the indices of the samples that it mixes and that it runs clean, None
    for all. ``mixed_weight`` and ``penalty_weight`` turn its terms into its addends of the batch's.
    """

    shard: Shard
    mixed: np.ndarray | None = None
    ran: np.ndarray | None = None
    mixed_weight: float = 1.0
    penalty_weight: float = 1.0

    @classmethod
    def of(cls, draw: Draw, shard: Shard, **own: Any) -> "ShardDraw":
        """The given draw, for one shard."""
        made = cls(*draw)
        made.shard = shard
        vars(made).update(own)
        return made

    def mix(self, values: Tensor) -> Tensor:
        """The mixed samples of this shard."""
        return mix(values, self.lam, self.partner, self.mixed)

    def take_clean(self, values: Any) -> Any:
        """The clean samples of this shard."""
        return take(values, self.ran)

    def expand(self, logits: Tensor, n_samples: int) -> Tensor:
        """Logits with one row per sample of the given batch."""
        return logits if self.mixed is None else logits[:1].expand(n_samples, -1)

    def reduce(self, mixup: Term, penalty: Term) -> tuple[Term, Term]:
        """Turn the terms of one process into those of the batch, the same in all processes.

        The gradients are with respect to this process's logits. They are multiplied by the number
        of processes, so that their mean over the processes is the gradient of the batch.
        """
        n_shards, own_value = self.shard.n_shards, self.penalty_weight * penalty.value
        values = torch.stack([self.mixed_weight * mixup.value, own_value.detach()])
        mixup_value, penalty_value = self.shard.total(values).unbind()
        grad = penalty.grad
        if grad is not None:
            grad = n_shards * self.penalty_weight * grad
        elif own_value.requires_grad:
            times = torch.full_like(penalty_value, n_shards)
            penalty_value = WithGradient.apply(own_value, None, penalty_value, times, None)
        mixup_grad = n_shards * self.mixed_weight * mixup.grad
        return Term(mixup_value, mixup_grad), Term(penalty_value, grad)


def sharded_loss(
    criterion: Any,
    shard: Shard,
    module: Any,
    X: Any,
    y: Tensor,
    sample_weight: Tensor | None = None,
    *,
    draw: Draw | None = None,
    **module_params: Any,
) -> LossParts:
    """Run the shard of one process through ``MixupELoss``; the parts are those of the whole batch.

    The mean of the gradients over the processes is the gradient of the batch.
    """
    n_stages = len(criterion.stages_of(module))
    if n_stages > 1:
        X, y, sample_weight, shard = cut(X, y, sample_weight, shard)
    n_samples = len(y) if shard.sizes is None else sum(shard.sizes)
    draw = criterion.resolve_draw(draw, n_samples, n_stages)
    own = own_draw(draw, n_samples, shard, criterion.min_clean)
    return criterion(module, X, y, sample_weight, draw=own, **module_params)


def shard_sizes(n_samples: int, n_shards: int) -> tuple[int, ...]:
    """Samples of each shard of a batch: as equal as possible, the larger shards first."""
    small, n_larger = divmod(n_samples, n_shards)
    return tuple(small + (rank < n_larger) for rank in range(n_shards))


def own_rows(rows: np.ndarray, shard: Shard) -> np.ndarray:
    """The shard of some samples; if there are too few for all shards, the first sample instead.

    A process without samples must still run the module, since the others wait for its gradients.
    """
    sizes = shard_sizes(len(rows), shard.n_shards)
    start = sum(sizes[: shard.rank])
    return rows[start : start + sizes[shard.rank]] if sizes[shard.rank] else rows[:1]


def cut(
    X: Any, y: Tensor, sample_weight: Tensor | None, shard: Shard
) -> tuple[Any, Tensor, Tensor | None, Shard]:
    """Reduce a whole batch to the samples of one process; a batch of own samples stays as it is.

    A process mixes the hidden states that it computes, so it mixes its samples with each other.
    """
    if shard.sizes is not None:
        return X, y, sample_weight, shard
    rows = own_rows(np.arange(len(y)), shard)
    weight = None if sample_weight is None else take(sample_weight, rows)
    sizes = shard_sizes(len(y), shard.n_shards)
    return take(X, rows), take(y, rows), weight, shard._replace(sizes=sizes)


def own_draw(draw: Draw, n_samples: int, shard: Shard, least: int = 1) -> ShardDraw:
    """The part of one process in a draw that all processes made for the whole batch.

    ``least`` is the minimum number of clean samples, if a shard has as many.
    """
    if shard.sizes is not None:
        return _of_own_samples(draw, shard, shard.sizes, least)
    mixed = clean = own_rows(np.arange(n_samples), shard)
    size = n_clean = shard_sizes(n_samples, shard.n_shards)[shard.rank]
    if draw.partner is not None and draw.clean is not None:
        clean = own_rows(draw.clean, shard)
        n_clean = shard_sizes(len(draw.clean), shard.n_shards)[shard.rank]
    weights = {"mixed_weight": size / n_samples, "penalty_weight": float(n_clean > 0)}
    return ShardDraw.of(draw, shard, mixed=mixed, ran=clean, **weights)


def _of_own_samples(draw: Draw, shard: Shard, sizes: tuple[int, ...], least: int) -> ShardDraw:
    """Partners within the shard, in the order that the whole batch's partners have there."""
    rank, n_samples = shard.rank, sum(sizes)
    size, start = sizes[rank], sum(sizes[:rank])
    block = slice(start, start + size) if size else slice(0, 1)
    lam = draw.lam[block] if isinstance(draw.lam, np.ndarray) else draw.lam
    partner = None if draw.partner is None else np.argsort(draw.partner[block])
    own, weight = draw._replace(lam=lam, partner=partner), size / n_samples
    if draw.clean is None:
        return ShardDraw.of(own, shard, mixed_weight=weight, penalty_weight=weight)
    if partner is None:  # all samples run; the draw of the batch selects those of the penalty
        clean = np.flatnonzero(np.isin(np.arange(n_samples)[block], draw.clean))
        n_clean, n_all = len(clean) * (size > 0), len(draw.clean)
    else:
        fraction = len(draw.clean) / n_samples
        shares = [share_size(size, fraction, least) for size in sizes]
        clean, n_clean, n_all = partner[: shares[rank]], shares[rank], sum(shares)
    clean = clean if len(clean) else np.zeros(1, dtype=np.int64)
    ran = None if partner is None else clean
    weights = {"mixed_weight": weight, "penalty_weight": n_clean / n_all}
    return ShardDraw.of(own._replace(clean=clean), shard, ran=ran, **weights)
