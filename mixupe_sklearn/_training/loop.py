"""The one loop over epochs: validation, early stopping, time limit, records and callbacks.

A fit has one network or several, and many fits may share a trainer. A trainer takes the steps: that
of the engine trains all networks as one, that of autograd one after the other. Members of one
``alpha`` and ``eta`` form a group with its own best epoch, since strong mixing needs more epochs
than weak mixing.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from mixupe_sklearn._training.config import rate_factors

# The records of an epoch: its loss, the parts of the loss, and its scale.
RECORDED = ("train_loss", "train_mixup_loss", "train_penalty", "loss_scale")
# The share of a time limit that is left for the last evaluation and the best weights.
RESERVE = 0.05


class Stop(KeyboardInterrupt):
    """A planned end of the training, on which all processes of a net agree."""


class EarlyStopping:
    """Follows the validation losses of a fit, and keeps the best weights of each group.

    Parameters
    ----------
    nets : list of MixupENet
        The members; member ``i`` belongs to group ``i % n_groups``.
    n_groups : int
        Number of groups.
    settings : mapping
        Parameters of the estimator. Without ``early_stopping``, losses are measured and no weights
        are kept.
    weight : array of shape (n_members, n_rows) or None
        Weights of the validation samples.
    """

    def __init__(self, nets: list[Any], n_groups: int, settings: Mapping[str, Any], weight: Any):
        self.nets, self.n_groups, self.weight = nets, n_groups, weight
        self.is_active = settings["early_stopping"]
        self.patience, self.tol = settings["n_iter_no_change"], settings["tol"]
        self.best_loss = np.full(n_groups, np.inf)
        self.best_losses: np.ndarray | None = None
        self.n_misses = 0

    @property
    def wants_stop(self) -> bool:
        """True if no group improved for ``n_iter_no_change`` evaluations."""
        return self.is_active and self.n_misses >= self.patience

    def update(self, losses: np.ndarray, trainer: Any) -> float:
        """Take the losses of all validation samples, (n_members, n_rows); return their mean."""
        weight, has_progress = self._weights(losses.shape), False
        if self.best_losses is None:
            self.best_losses = np.zeros_like(losses)
        for group in range(self.n_groups if self.is_active else 0):
            own = slice(group, None, self.n_groups)
            loss = np.average(losses[own], weights=None if weight is None else weight[own])
            has_progress |= loss < self.best_loss[group] - self.tol
            if loss <= self.best_loss[group]:
                self.best_loss[group], self.best_losses[own] = loss, losses[own]
                trainer.keep(self.nets[own])
        self.n_misses = 0 if has_progress else self.n_misses + 1
        return float(np.average(losses, weights=weight))

    def mean_of(self, losses: np.ndarray, number: int) -> float:
        """Return the mean validation loss of one member."""
        weight = self._weights((len(self.nets), len(losses)))
        return float(np.average(losses, weights=None if weight is None else weight[number]))

    def _weights(self, shape: tuple[int, ...]) -> Any:
        # Data outside memory has a single loss, which is a mean already.
        return self.weight if self.weight is not None and self.weight.shape == shape else None

    def member_weights(self, head: str) -> np.ndarray:
        """Return the weights of the members in the ensemble, which sum to 1."""
        n_members = len(self.nets)
        if self.n_groups == 1 or self.best_losses is None:
            return np.full(n_members, 1 / n_members)
        # All groups share the samples of a fold; the last fold may lack some groups.
        n_whole = n_members // self.n_groups * self.n_groups
        by_fold = self.best_losses[:n_whole].reshape(-1, self.n_groups, self.best_losses.shape[1])
        losses = by_fold.swapaxes(0, 1).reshape(self.n_groups, -1)
        if head == "squared":  # of a normal distribution
            losses = losses / max(2 * losses.mean(axis=1).min(), np.finfo(float).tiny)
        weight = None if self.weight is None else self.weight[: n_whole : self.n_groups].ravel()
        group = np.arange(n_members) % self.n_groups
        return (stacking_weights(losses, weight) / np.bincount(group))[group]


def stacking_weights(losses: np.ndarray, weight: Any = None, n_rounds: int = 50) -> np.ndarray:
    """Weights of a mixture of groups that make the held-out samples likely.

    Each round of expectation maximisation raises the likelihood. The rounds start from equal
    weights and stop early, which keeps groups that are nearly as good as the best: on few samples,
    small differences are chance.

    Parameters
    ----------
    losses : array of shape (n_groups, n_samples)
        Negative log-likelihood of each sample under each group.
    weight : array of shape (n_samples,) or None, default=None
        Weights of the samples.
    n_rounds : int, default=50
        Number of rounds.

    Examples
    --------
    >>> import numpy as np
    >>> stacking_weights(np.array([[0.1, 0.1, 3.0], [2.0, 2.0, 2.9]])).round(1)
    array([1., 0.])
    """
    likelihood = np.exp(losses.min(axis=0) - losses)
    weights = np.full(len(losses), 1 / len(losses))
    for _ in range(n_rounds if len(losses) > 1 else 0):
        share = weights[:, None] * likelihood
        weights = np.average(share / share.sum(axis=0), axis=1, weights=weight)
    return weights


class Fit:
    """The training of one estimator.

    Parameters
    ----------
    members : list of Member
        Its networks, with their samples.
    n_epochs : int
        Largest number of epochs.
    monitor : EpochMonitor
        Called around each epoch.
    stopping : EarlyStopping or None, default=None
        Follows the validation samples, if there are some.
    pause : int, default=1
        Epochs between two evaluations of the validation samples.
    time_limit : float or None, default=None
        Seconds after which the training ends.
    schedule : str, default="constant"
        Schedule of the learning rate.
    """

    def __init__(
        self,
        members: list[Any],
        n_epochs: int,
        monitor: Any,
        stopping: EarlyStopping | None = None,
        pause: int = 1,
        time_limit: float | None = None,
        schedule: str = "constant",
    ):
        self.schedule = schedule
        self.members, self.nets = members, [member.net for member in members]
        self.running = list(self.nets)  # without those that a callback has ended
        self.n_epochs, self.monitor, self.stopping = n_epochs, monitor, stopping
        self.pause = pause
        self.begin, self.time_limit = time.perf_counter(), time_limit
        self.epoch_begin = self.begin
        self.longest = 0.0  # seconds of an epoch
        self.is_evaluated = False  # the validation samples, after this epoch
        self.error: Exception | None = None
        self.ends_by = ""  # "time limit" or "interrupt", if either ended it

    def set_factors(self, n_steps: Sequence[int]) -> None:
        """Set the factors of the learning rate of each member from its steps in an epoch."""
        factors = {n: rate_factors(self.schedule, self.n_epochs * n) for n in set(n_steps)}
        for member, n in zip(self.members, n_steps, strict=True):
            member.factors = factors[n]

    @property
    def deadline(self) -> float | None:
        """Time of ``time.perf_counter`` at which steps end."""
        return self.begin + (1 - RESERVE) * self.time_limit if self.time_limit else None

    def is_due(self, epoch: int) -> bool:
        """Return whether the validation samples are evaluated after this epoch."""
        if self.stopping is None:
            return False
        is_last = epoch == self.n_epochs or self.is_out_of_time()
        return epoch % self.pause == 0 or is_last

    def is_out_of_time(self) -> bool:
        """Return whether the time limit ends before an epoch as long as the longest one would."""
        deadline = self.deadline
        return deadline is not None and time.perf_counter() + self.longest > deadline

    def end_epoch(self, epoch: int, results: Mapping[int, Any], trainer: Any) -> bool:
        """Record an epoch, and return whether the training ends with it."""
        try:
            with trainer.together():
                if self._record(epoch, results, trainer):
                    raise Stop
        except Stop:
            return True
        return False

    def _record(self, epoch: int, results: Mapping[int, Any], trainer: Any) -> bool:
        own = [results[id(net)] for net in self.running]
        means = np.array([_mean_of(result, epoch) for result in own])
        row = {"epoch": epoch, **dict(zip(RECORDED, means.mean(axis=0).tolist(), strict=True))}
        if self.stopping is not None and self.is_evaluated:
            losses = self._losses(own)
            row["valid_loss"] = self.stopping.update(losses, trainer)
        for net, result, values in zip(list(self.running), own, means, strict=True):
            record = dict(zip(RECORDED, values.tolist(), strict=True))
            if result.losses is not None and self.stopping is not None:
                record["valid_loss"] = self.stopping.mean_of(result.losses, self.nets.index(net))
            if trainer.end_epoch(net, result, record):
                self.running.remove(net)
        row["epoch"] = len(self.nets[0].history)
        if len(self.nets) == 1:
            row |= _readable(self.nets[0].history[-1])
        row["dur"] = time.perf_counter() - self.epoch_begin
        self.longest = max(self.longest, row["dur"])
        wants_stop = self.stopping is not None and self.stopping.wants_stop
        # The monitor sees the last epoch too, whoever asks to stop.
        is_stopped = any([self.monitor.end_epoch(row), wants_stop, not self.running])
        if is_stopped or epoch == self.n_epochs:
            return True
        if self.is_out_of_time():
            self.ends_by = "time limit"
        return bool(self.ends_by)

    def _losses(self, own: Sequence[Any]) -> np.ndarray:
        """Losses of all members; those of members that a callback has ended stay as they were."""
        found = dict(zip(map(id, self.running), (result.losses for result in own), strict=True))
        if len(self.running) == len(self.nets):
            self.last_losses = np.stack([found[id(net)] for net in self.nets])
        else:
            for number, net in enumerate(self.nets):
                if id(net) in found:
                    self.last_losses[number] = found[id(net)]
        return self.last_losses


def _mean_of(result: Any, epoch: int) -> np.ndarray:
    """Mean losses of an epoch of one net, (4,); raises if they are not finite."""
    is_finite = np.isfinite(result.values)
    if not is_finite.all():
        number = int((~is_finite).any(axis=1).argmax())
        _, mixup_loss, penalty_term, _ = result.values[number].tolist()
        raise FloatingPointError(
            f"The loss became non-finite in epoch {epoch}, batch {number + 1}: "
            f"mixup_loss={mixup_loss}, penalty_term={penalty_term}; lower lr or eta, or scale the "
            f"inputs."
        )
    # The arithmetic of np.average, whose checks take longer than a small step.
    sizes = np.array(result.sizes, dtype=float)
    return (result.values * sizes[:, None]).sum(axis=0) / sizes.sum()


def _readable(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of an epoch as plain numbers, without skorch's own entries."""
    return {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in row.items()
        if name not in ("batches", "dur") and not name.endswith(("_best", "_batch_count"))
    }


def train(
    fits: Sequence[Fit],
    trainer: Any,
    make_trainer: Callable[[list[Any]], Any],
    *,
    on_epoch: Callable[[int, list[Fit]], Iterable[Fit]] | None = None,
    on_error: str = "raise",
) -> None:
    """Train the networks of one or several fits.

    Parameters
    ----------
    fits : sequence of Fit
        The fits. Each ends by itself; the others continue.
    trainer : Trainer or AutogradTrainer
        Takes the steps of all members.
    make_trainer : callable
        Makes a trainer of some members, after a callback has replaced a part of a network.
    on_epoch : callable or None, default=None
        Called with the number of epochs so far and the fits that trained in the last one; those
        that it returns end.
    on_error : {"raise", "return"}, default="raise"
        Whether an error of one fit is raised, or kept as its ``error``.
    """
    running, epoch = list(fits), 0
    try:
        while running:
            epoch += 1
            _begin_epoch(running, trainer)
            if not trainer.is_current():  # a callback has changed a net
                trainer.close(is_over=False)
                nets = {id(net) for fit in running for net in fit.running}
                members = [member for fit in running for member in fit.members]
                trainer = make_trainer([member for member in members if id(member.net) in nets])
            ended = _run_epoch(epoch, running, trainer, on_error)
            sound = [fit for fit in running if fit.error is None]
            if on_epoch is not None and sound:  # it sees the last epoch too
                ended += [fit for fit in on_epoch(epoch, sound) if fit not in ended]
            trainer.remove([net for fit in running for net in fit.nets if net not in fit.running])
            for fit in ended:
                trainer.restore_best(fit.nets)
                trainer.remove(fit.nets)
            running = [fit for fit in running if fit not in ended]
    except KeyboardInterrupt:
        for fit in running:
            fit.ends_by = "interrupt"
            trainer.restore_best(fit.nets)
    finally:
        trainer.close()


def _begin_epoch(running: list[Fit], trainer: Any) -> None:
    """Report that an epoch begins."""
    now = time.perf_counter()
    for fit in running:
        fit.epoch_begin = now
        fit.monitor.begin_epoch()
    trainer.begin_epoch()


def _run_epoch(epoch: int, running: list[Fit], trainer: Any, on_error: str) -> list[Fit]:
    """Run one epoch; return the fits that end with it."""
    for fit in running:
        fit.is_evaluated = fit.is_due(epoch)
    due = {id(net) for fit in running if fit.is_evaluated for net in fit.running}
    deadlines = [fit.deadline for fit in running if fit.deadline is not None]
    results = trainer.run_epoch(epoch, due, min(deadlines, default=None))
    ended = []
    for fit in running:
        try:
            if fit.end_epoch(epoch, results, trainer):
                ended.append(fit)
        except Exception as error:
            if on_error == "raise":
                raise
            fit.error = error
            ended.append(fit)
    return ended


def n_epochs_per_evaluation(n_epochs: int, n_members: int) -> int:
    """Return the epochs between two evaluations: at most a hundred evaluations of an ensemble.

    Examples
    --------
    >>> n_epochs_per_evaluation(50, 8), n_epochs_per_evaluation(500, 8)
    (1, 5)
    >>> n_epochs_per_evaluation(500, 1)
    1
    """
    return 1 if n_members == 1 else math.ceil(n_epochs / 100)
