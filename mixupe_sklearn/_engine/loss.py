"""The loss of one step of several members, and its gradient with respect to their logits.

Every tensor has the members first: ``(n_members, n_rows, n_outputs)``. The formulas are those of
``_penalty``; here they are written for speed, with few calls and into memory that is there already.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mixupe_sklearn._method.glm import HEADS

# Members lie this many entries apart, or a multiple. torch works on entries in blocks (of 32 or
# fewer), and rounds the odd ones at the end in another way: where each member fills whole blocks,
# its bits do not depend on its company.
LANE = 64
# From this many outputs on torch is fast at a softmax over the last dimension; below, it is faster
# over the one before it.
WIDE = 16


def padded(values: Tensor) -> Tensor:
    """Fill the last dimension with zeros to a multiple of ``LANE``."""
    return nn.functional.pad(values, (0, -values.shape[-1] % LANE))


class Pairs(NamedTuple):
    """What is mixed with what: ``lam`` of shape (n_members, n_rows, 1), and row numbers.

    ``partner`` and its inverse number the rows of all members through, so that one look-up serves
    them all.
    """

    lam: Tensor
    partner: Tensor
    inverse: Tensor

    def mix(self, values: Tensor, out: Tensor | None = None, other: Tensor | None = None) -> Tensor:
        """``lam * values + (1 - lam) * values[partner]`` for ``(n_members, n_rows, width)``.

        The result and the partners are written to ``out`` and ``other`` where given.
        """
        other = _take(values, self.partner, other)
        return torch.lerp(other, values, self.lam, out=out)

    def unmix(
        self, grad: Tensor, extra: Tensor, out: Tensor, other: Tensor, scratch: Tensor
    ) -> Tensor:
        """The transpose of ``mix``: the slope of mixed rows, brought to both rows of each.

        ``extra`` is a further slope of the first partners.
        """
        torch.mul(grad, self.lam, out=out)
        torch.sub(grad, out, out=scratch)
        if extra.shape[1]:
            scratch[:, : extra.shape[1]] += extra
        return out.add_(_take(scratch, self.inverse, other))

    def partners(self, values: Tensor) -> Tensor:
        """``values[partner]`` for ``(n_members, n_rows, ...)``."""
        return _take(values, self.partner, None)


def _take(values: Tensor, index: Tensor, out: Tensor | None) -> Tensor:
    """Rows by numbers that count through all members."""
    return rows_of(values.flatten(0, 1), index.view(values.shape[:2]), out)


def rows_of(values: Tensor, index: Tensor, out: Tensor | None = None) -> Tensor:
    """Rows by numbers of shape (n_members, n_rows), written to ``out`` where given.

    Examples
    --------
    >>> import torch
    >>> rows_of(torch.tensor([[1.0], [2.0]]), torch.tensor([[1, 0, 1]]))[0, :, 0]
    tensor([2., 1., 2.])
    """
    out = None if out is None else out.flatten(0, 1)
    rows = torch.index_select(values, 0, index.flatten(), out=out)
    return rows.view(index.shape + values.shape[1:])


class Feed(NamedTuple):
    """What one step is fed; the rows of all members are numbered through.

    Parameters
    ----------
    X : Tensor of shape (n_members, n_given, n_features)
        Inputs: those that are run, or the clean ones where ``pairs`` says how to mix their states.
    targets : Tensor of shape (n_members, n_run, n_outputs)
        Targets of the rows that are run: first the mixed and weighted ones of rows whose loss
        counts, then those of rows that run for the penalty alone. These are the first partners.
    mass : Tensor of shape (n_members, n_rows) or None
        Mixed weights of the rows whose loss counts; None means ones.
    clean : Tensor of shape (n_members, n_rows, n_outputs) or None
        Unweighted targets for the penalty, where it sees the rows whose loss counts.
    pull : Tensor of shape (n_members, n_clean, 1) or None
        What the penalty of each row that it sees counts beside the loss of one row:
        ``n_rows * eta * E[1-lam]`` times its part of the weighted mean; None means no penalty.
    pairs : Pairs or None
        How first states are to be mixed; None where the inputs are mixed already, or not at all.
    """

    X: Tensor
    targets: Tensor
    mass: Tensor | None = None
    clean: Tensor | None = None
    pull: Tensor | None = None
    pairs: Pairs | None = None


class Sums(NamedTuple):
    """What a step comes to: loss and penalty of each member, (n_members,), as sums over rows.

    The penalty's rows count by their ``pull``; it is None where there is no penalty.
    """

    loss: Tensor
    penalty: Tensor | None = None


class Outputs:
    """Logits of a step's rows, with room for what is made of them.

    Parameters
    ----------
    logits : Tensor of shape (n_members, n_run, n_outputs)
        Where the logits will be: of the rows whose loss counts first, of those that the penalty
        sees last; they are the same where nothing is mixed.
    n_rows : int
        Rows whose loss counts.
    n_clean : int
        Rows that the penalty sees.
    """

    def __init__(self, logits: Tensor, n_rows: int, n_clean: int):
        self.logits, self.mean = logits, torch.empty_like(logits)
        self.grad = torch.empty_like(logits)
        self.n_rows = n_rows
        # Made once: a view costs as much as a small sum.
        self.of_loss = self.grad[:, :n_rows]
        first = logits.shape[1] - n_clean
        self.of_clean = self.mean[:, first:], self.grad[:, first:]


def scale_of(loss: Tensor, penalty: Tensor, n_rows: int) -> Tensor | float:
    """What takes sums over rows to scaled means: ``|loss| / |loss + penalty| / n_rows``.

    The ratio is 1 where both are zero. The shape is (n_members, 1, 1); one member has a number,
    which is quicker than a tensor of one entry, and rounded alike.
    """
    if len(loss) == 1:
        value = loss.item()
        total = value + penalty.item()
        return (abs(value / total) if total else 1.0) / n_rows
    exact = loss.double()
    # A loss that is no number still shows, in the loss itself.
    ratio = (exact / (exact + penalty)).abs_().nan_to_num_(1.0, math.inf, -math.inf)
    return ratio.div_(n_rows).to(loss.dtype)[:, None, None]


class Values(NamedTuple):
    """What a head makes of logits: those to go on with, ``h`` and ``g``.

    A softmax goes on with its logarithm. That is the logits but for a number that is the same in
    each row, by which neither the loss nor the penalty changes; ``h`` is then zero, and None here.
    """

    logits: Tensor
    potential: Tensor | None
    mean: Tensor


def evaluate(logits: Tensor, head: str, out: Tensor | None = None) -> Values:
    """Evaluate a head for all rows at once; ``g`` is written to ``out`` where given."""
    form, shape = HEADS[head], logits.shape[1:]
    potential: Tensor | None = None
    if head == "softmax" and shape[-1] >= WIDE:
        logits = logits.log_softmax(dim=-1)
        return Values(logits, None, torch.exp(logits, out=out))
    if head == "softmax":
        columns = logits.mT.contiguous().log_softmax(dim=-2)
        logits, mean = columns.mT.contiguous(), columns.exp().mT
    elif head == "sigmoid":  # entry by entry: see LANE
        flat = padded(logits.flatten(1))
        values = form.potential(flat[..., None]), form.mean(flat)
        potential, mean = (value[:, : shape.numel()].unflatten(1, shape) for value in values)
        potential = potential.sum(dim=-1)
    else:
        potential, mean = form.potential(logits), form.mean(logits)
    return Values(logits, potential, mean if out is None else out.copy_(mean))


def losses_of(values: Values, inner: Tensor, n_rows: int, feed: Feed, head: str) -> Tensor:
    """Loss of each of the first rows, ``mass * h(f) - target'f``, given the inner products."""
    inner = inner[:, :n_rows]
    if values.potential is None:
        return -inner
    potential = values.potential[:, :n_rows]
    losses = (potential if feed.mass is None else feed.mass * potential) - inner
    floor = HEADS[head].floor
    if floor is None:
        return losses
    mass = torch.ones_like(losses) if feed.mass is None else feed.mass
    return losses - floor(feed.targets[:, :n_rows], mass)


def write_grad(outputs: Outputs, feed: Feed, head: str) -> Sums:
    """Sum up loss and penalty; their gradient for the logits is written in closed form."""
    n_rows, grad = outputs.n_rows, outputs.grad
    values = evaluate(outputs.logits, head, out=outputs.mean)
    inner = torch.linalg.vecdot(feed.targets, values.logits)
    loss = losses_of(values, inner, n_rows, feed, head).sum(dim=-1)
    if feed.mass is None:
        torch.sub(values.mean, feed.targets, out=grad)
    else:
        grad.copy_(values.mean)
        outputs.of_loss.mul_(feed.mass[..., None])
        grad.sub_(feed.targets)
    if feed.pull is None:
        grad.mul_(1 / n_rows)
        return Sums(loss)
    penalty = _write_penalty(outputs, values.logits, inner, feed, head)
    grad.mul_(scale_of(loss, penalty, n_rows))
    return Sums(loss, penalty)


def _write_penalty(
    outputs: Outputs, logits: Tensor, inner: Tensor, feed: Feed, head: str
) -> Tensor:
    """Sum up the penalty, and bring its gradient to the residuals that are there already."""
    mean, grad = outputs.of_clean
    logits = logits[:, -mean.shape[1] :]
    # One column each, so that they can be multiplied with rows.
    of_mean = (mean * logits).sum(dim=-1, keepdim=True)
    if feed.clean is None:
        residual, of_target = grad, inner[:, outputs.n_rows :, None]
    else:
        residual = mean - feed.clean
        of_target = (feed.clean * logits).sum(dim=-1, keepdim=True)
    minus_q = of_mean - of_target
    assert feed.pull is not None
    pull = minus_q.sign().mul_(feed.pull)
    penalty = (pull * minus_q).sum(dim=(1, 2))
    # The gradient of -q_hat: residual + g'(f) f.
    if head == "softmax":
        grad_q_hat = torch.addcmul(residual, mean, logits - of_mean)
    else:
        grad_q_hat = residual + HEADS[head].curve(mean, logits)
    if feed.clean is None:
        torch.mul(grad_q_hat, pull, out=grad)
    else:
        grad.addcmul_(grad_q_hat, pull)
    return penalty
