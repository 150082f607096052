"""Several networks that make one estimator: trained side by side, chosen and weighed together.

Each member has seeds of its own, and so its own first weights, order of rows and draws. Where rows
are set aside, each sets other rows aside: the loss of a row is then measured by members that have
not seen it, and still every row trains most of the members.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import Subset

from mixupe_sklearn._data.rows import CHUNK, MAX_ROWS, ROW_BLOCK, Rows
from mixupe_sklearn._data.skorch_datasets import make_dataset
from mixupe_sklearn._estimators.ensemble_training import make_trainer
from mixupe_sklearn._method.forward import encode_targets
from mixupe_sklearn._method.glm import glm_loss
from mixupe_sklearn._net.build import (
    Tensors,
    as_tensors,
    check_batches,
    check_weights,
    remember,
    rows_a_pass,
)
from mixupe_sklearn._net.inference import forward_all
from mixupe_sklearn._net.net import RECORDED
from mixupe_sklearn._runtime.device import threads_for
from mixupe_sklearn._training.config import n_groups
from mixupe_sklearn._training.lr_schedule import n_epochs_per_evaluation, rate_factors


def deal(strata: np.ndarray | None, n_rows: int, n_parts: int, seed: int) -> list[np.ndarray]:
    """Row numbers in parts of one size, each class spread over the parts as evenly as it goes.

    Rows that would make a part larger than the others are in none.

    Examples
    --------
    >>> import numpy as np
    >>> classes = np.array([0, 0, 1, 1, 0, 0, 1])
    >>> [sorted(classes[part].tolist()) for part in deal(classes, 7, n_parts=3, seed=0)]
    [[0, 0], [0, 1], [0, 1]]
    """
    order = np.random.default_rng(seed).permutation(n_rows)
    if strata is not None:
        order = order[np.argsort(strata[order], kind="stable")]
    return [np.sort(order[part::n_parts][: n_rows // n_parts]) for part in range(n_parts)]


@dataclass(frozen=True, eq=False)
class ValidationFolds:
    """Rows that members are examined on: ``index[i]`` are those of member ``i``, in ``rows``."""

    rows: Rows
    index: list[np.ndarray]


def hold_out(
    n_rows: int, strata: np.ndarray | None, n_folds: int, share: float, seed: int
) -> list[np.ndarray]:
    """Row numbers to set aside, others for each fold as long as there are enough.

    Parameters
    ----------
    n_rows : int
        How many rows there are.
    strata : array of shape (n_rows,) or None
        Classes to be spread evenly.
    n_folds : int
        How many folds are needed.
    share : float
        The share of rows in each; less where this is needed to give each its own.
    seed : int
        Seed of the choice.
    """
    n_parts = min(n_rows, max(2, n_folds, round(min(n_rows, 1 / share))))  # one would be all rows
    parts = deal(strata, n_rows, n_parts, seed)
    return [parts[fold % n_parts] for fold in range(n_folds)]


class Watch:
    """Examines the members now and then, and keeps the weights of the best moment.

    Members of one ``alpha`` and ``eta`` are a team. Each team has its own best moment, since strong
    mixing takes longer than weak one.

    Parameters
    ----------
    nets : list of MixupENet
        The members; member ``i`` is of team ``i % n_teams``.
    exam : Exam
        What they are examined on.
    tensors : tuple
        Inputs, targets and weights of the exam's rows.
    settings : mapping
        Parameters of the estimator. Without ``early_stopping`` nothing is chosen.
    """

    def __init__(
        self, nets: list[Any], folds: ValidationFolds, tensors: Tensors, settings: Mapping[str, Any]
    ):
        self.nets, self.n_groups = nets, n_groups(settings)
        self.chooses = settings["early_stopping"]
        self.patience, self.tol = settings["n_iter_no_change"], settings["tol"]
        self.X, self.y, weight = tensors
        self.index = torch.from_numpy(np.stack(folds.index))
        self.weight = None if weight is None else weight.cpu()[self.index].double().numpy()
        with torch.inference_mode():
            one = forward_all(nets[:1], self.X[self.index[0, :1]])
        self.width = max(1, self.X.shape[1], one.shape[2])  # of what is looked at, in or out
        self.best = np.full(self.n_groups, np.inf)
        self.losses = np.zeros(tuple(self.index.shape))
        self.kept: list[Any] = [None] * len(nets)
        self.n_misses = 0

    @property
    def wants_stop(self) -> bool:
        """Whether no team has got on for as many looks as one is patient."""
        return self.chooses and self.n_misses >= self.patience

    def look(self) -> float:
        """Examine all members; keep the weights of teams that are at their best."""
        losses, weight = self._losses(), self.weight
        has_progress = False
        for group in range(self.n_groups if self.chooses else 0):
            own = slice(group, None, self.n_groups)
            loss = np.average(losses[own], weights=None if weight is None else weight[own])
            has_progress |= loss < self.best[group] - self.tol
            if loss < self.best[group]:
                self.best[group], self.losses[own] = loss, losses[own]
                self.kept[own] = [_copy(net.module_.state_dict()) for net in self.nets[own]]
        self.n_misses = 0 if has_progress else self.n_misses + 1
        return float(np.average(losses, weights=weight))

    def _losses(self) -> np.ndarray:
        """Loss of each row of each member, (n_members, n_rows), a chunk at a time."""
        head, parts = self.nets[0].criterion_.head, []
        most = min(MAX_ROWS, CHUNK // self.width)  # of all members together
        size = max(ROW_BLOCK, most // len(self.nets))
        with torch.inference_mode():
            for index in self.index.split(size, dim=1):
                rows = index.flatten()
                logits = forward_all(self.nets, self.X[rows].view(*index.shape, -1))
                target = encode_targets(self.y[rows].cpu(), logits.flatten(0, 1), head)
                parts.append(glm_loss(logits, target.view_as(logits), None, head)[0])
        return torch.cat(parts, dim=1).numpy()

    def finish(self) -> np.ndarray:
        """Take all members back to their best; return what each is to count, in sum one."""
        for net, state in zip(self.nets, self.kept, strict=True):
            if state is not None:
                net.module_.load_state_dict(state)
        # The rows of a fold are the same for all teams; a last one may not have all of them.
        n_whole = len(self.nets) // self.n_groups * self.n_groups
        by_fold = self.losses[:n_whole].reshape(-1, self.n_groups, self.losses.shape[1])
        losses = by_fold.swapaxes(0, 1).reshape(self.n_groups, -1)
        if self.nets[0].criterion_.head == "squared":  # of a normal distribution
            losses = losses / max(2 * losses.mean(axis=1).min(), np.finfo(float).tiny)
        weight = None if self.weight is None else self.weight[: n_whole : self.n_groups].ravel()
        group = np.arange(len(self.nets)) % self.n_groups
        return (weigh(losses, weight) / np.bincount(group))[group]


def _copy(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.clone() for name, value in state.items()}


def weigh(losses: np.ndarray, weight: Any = None, n_rounds: int = 50) -> np.ndarray:
    """Weights of a mixture of teams under which held-out rows are likely.

    Each round (of expectation and maximisation) makes the rows likelier. It starts from equal
    weights and is ended early, which keeps teams that are nearly as good; of a handful of rows,
    chance decides.

    Parameters
    ----------
    losses : array of shape (n_teams, n_rows)
        Negative logarithms of each team's likelihood of each row.
    weight : array of shape (n_rows,) or None, default=None
        Weights of the rows.
    n_rounds : int, default=50
        How often they are made better.

    Examples
    --------
    >>> import numpy as np
    >>> weigh(np.array([[0.1, 0.1, 3.0], [2.0, 2.0, 2.9]])).round(1)
    array([1., 0.])
    """
    likelihood = np.exp(losses.min(axis=0) - losses)
    weights = np.full(len(losses), 1 / len(losses))
    for _ in range(n_rounds if len(losses) > 1 else 0):
        share = weights[:, None] * likelihood
        weights = np.average(share / share.sum(axis=0), axis=1, weights=weight)
    return weights


@dataclass(frozen=True)
class Trained:
    """What a training of members gives: a record of each epoch, what each counts, how it ended."""

    history: list[dict[str, Any]]
    weights: np.ndarray
    is_complete: bool


def train_members(
    nets: list[Any],
    train: Rows,
    folds: ValidationFolds | None,
    X_mean: np.ndarray,
    settings: Mapping[str, Any],
    *,
    epochs: int,
    schedule: str,
    begin: Callable[[], Any],
    end: Callable[[dict[str, Any]], Any],
) -> Trained:
    """Train members for some epochs, calling functions around each, and choose the best moment."""
    tensors = as_tensors(nets[0], train, X_mean, by_batch=True)
    own = [np.arange(train.n_rows)] * len(nets)
    if folds is not None and folds.rows is train:
        own = [np.setdiff1d(own[0], rows, assume_unique=True) for rows in folds.index]
    check_batches(nets[0], len(own[0]))
    undo = [remember(net) for net in nets]
    n_rows = rows_a_pass(nets[0], len(own[0]))
    with threads_for(nets[0].module_, n_rows, settings["n_threads"]):
        try:
            watch, validation_sets = _watch(nets, folds, train, tensors, X_mean, settings)
            trainer = make_trainer(nets, train, tensors, own, X_mean, settings, validation_sets)
            try:
                factors = rate_factors(schedule, epochs * len(trainer.sizes))
                history, is_complete = _run(trainer, watch, factors, epochs, begin, end)
            finally:
                trainer.close()
            weights = np.full(len(nets), 1 / len(nets)) if watch is None else watch.finish()
            for net in nets:
                check_weights(net)
        except BaseException:
            for take_back in undo:
                take_back()
            raise
    return Trained(history, weights, is_complete)


def _watch(nets, folds, train, tensors, X_mean, settings) -> tuple[Watch | None, Any]:
    """Who examines the members, and the rows of each as a data set."""
    if folds is None:
        return None, None
    if folds.rows is not train:
        tensors = as_tensors(nets[0], folds.rows, X_mean, by_batch=True)
    whole = make_dataset(*tensors)
    return Watch(nets, folds, tensors, settings), [Subset(whole, rows) for rows in folds.index]


def _run(trainer, watch, factors, epochs, begin, end) -> tuple[list[dict[str, Any]], bool]:
    """Run the epochs; what each recorded, and whether none was cut short."""
    history: list[dict[str, Any]] = []
    n_steps, pause = len(trainer.sizes), n_epochs_per_evaluation(epochs)
    try:
        for epoch in range(1, epochs + 1):
            begin()
            start = time.perf_counter()
            part = None if factors is None else factors[(epoch - 1) * n_steps : epoch * n_steps]
            values = _checked(trainer.run_epoch(part), trainer.sizes, epoch)
            row = {"epoch": epoch, **dict(zip(RECORDED, values.tolist(), strict=True))}
            if watch is not None and (epoch % pause == 0 or epoch == epochs):
                row["valid_loss"] = watch.look()
            row["dur"] = time.perf_counter() - start
            history.append(row)
            # All are asked: who listens must see the epoch in which the watch has had enough.
            if any([end(row), trainer.has_ended, watch is not None and watch.wants_stop]):
                break
    except KeyboardInterrupt:
        return history, False
    return history, True


def _checked(values: np.ndarray, sizes: list[int], epoch: int) -> np.ndarray:
    """Means of an epoch's losses over its steps and members, (4,), once all are finite."""
    if not np.isfinite(values).all():
        _, mixup_loss, penalty_term, _ = values.mean(axis=(0, 2))
        raise FloatingPointError(
            f"The loss became non-finite in epoch {epoch}: mixup_loss={mixup_loss}, "
            f"penalty_term={penalty_term}; lower lr or eta, or scale the inputs."
        )
    weights = sizes if len(values) == len(sizes) else None
    return np.average(values, axis=0, weights=weights).mean(axis=1)
