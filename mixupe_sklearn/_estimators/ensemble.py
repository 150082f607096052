"""Training of an ensemble: members that train together or in turn, with validation folds.

Each member has its own seeds, and therefore its own initial weights, sample order and draws. With
early stopping, each member holds out a different fold: every loss is measured by members that have
not seen the sample, and every sample still trains most of the members.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch.utils.data import Subset

from mixupe_sklearn._data.batches import make_dataset
from mixupe_sklearn._data.rows import Rows, Tensors, ValidationFolds, as_tensors
from mixupe_sklearn._engine.trainer import (
    Data,
    StackedTrainer,
    kind_of,
    n_together,
    rates_of,
    restore_parameters,
    sizes_of,
    why_not_by_hand,
)
from mixupe_sklearn._estimators.fit_monitor import EpochMonitor
from mixupe_sklearn._net.build import (
    check_batches,
    check_weights,
    compile_net,
    remember,
    rows_a_pass,
)
from mixupe_sklearn._net.net import RECORDED, float_type, forward_all
from mixupe_sklearn._runtime.device import drop_compiled, threads_for
from mixupe_sklearn._training.config import n_epochs_per_evaluation, rate_factors
from mixupe_sklearn._training.early_stopping import GroupEarlyStopping


class BatchedMembers:
    """Members that train together: plain MLPs on the CPU.

    Parameters
    ----------
    nets : list of MixupENet
        The members.
    tensors : tuple
        Inputs, targets and weights of all samples.
    own : list of arrays
        Numbers of the samples that each member trains on, equally many for all.
    """

    has_ended = False  # there is no callback to end it

    def __init__(self, nets: list[Any], tensors: Tensors, own: list[np.ndarray]):
        self.nets, self.own = nets, own
        self.data = Data(*tensors, net=nets[0])
        self.sizes = sizes_of(len(own[0]), nets[0].batch_size)
        # Members of one kind and equal rates are neighbours, and share a trainer up to its limit.
        kinds = [(repr(kind_of(net.criterion_)), rates_of(net.optimizer_)) for net in nets]
        order = sorted(range(len(nets)), key=lambda number: kinds[number])
        self.parts: list[list[int]] = []
        most = n_together(nets[0], len(own[0]), self.data.n_features)
        for number in order:
            last = self.parts[-1] if self.parts else []
            if not last or len(last) == most or kinds[last[0]][0] != kinds[number][0]:
                self.parts.append([])
            self.parts[-1].append(number)
        self.trainers = [StackedTrainer([nets[number] for number in part]) for part in self.parts]

    def run_epoch(self, factors: Sequence[float] | None) -> np.ndarray:
        """Run an epoch; return the losses of each step, (n_steps, 4, n_members)."""
        values = np.empty((len(self.sizes), 4, len(self.nets)))
        for part, trainer in zip(self.parts, self.trainers, strict=True):
            orders = [self._order(number) for number in part]
            criteria = [self.nets[number].criterion_ for number in part]
            values[:, :, part] = trainer.run_epoch(criteria, self.data, orders, self.sizes, factors)
        return values

    def _order(self, number: int) -> np.ndarray:
        own = self.own[number]
        return own[self.nets[number].iterator_train__random_state.permutation(len(own))]

    def close(self) -> None:
        """Restore the parameters and the optimizer state of each net."""
        for trainer in self.trainers:
            trainer.release()


class SequentialMembers:
    """Members that train one after the other, with any module, device and callback.

    Parameters
    ----------
    nets : list of MixupENet
        The members.
    tensors : tuple
        Inputs, targets and weights of all samples.
    own : list of arrays
        Numbers of the samples that each member trains on.
    has_callbacks : bool
        Whether a user's callback may end the training of one member; the others then continue.
    validation_sets : list of datasets or None, default=None
        Validation samples of each member, for its callbacks.
    """

    def __init__(
        self,
        nets: list[Any],
        tensors: Tensors,
        own: list[np.ndarray],
        has_callbacks: bool,
        validation_sets: list[Any] | None = None,
    ):
        self.nets, self.has_callbacks = nets, has_callbacks
        self.validation_sets = [None] * len(nets) if validation_sets is None else validation_sets
        self.ended: set[int] = set()
        whole = make_dataset(*tensors)
        # Arrays, though Subset's type asks for a sequence: a list of many integers is large.
        self.parts = [Subset(whole, cast(Any, rows)) for rows in own]
        self.sizes = sizes_of(len(own[0]), nets[0].batch_size)
        for net, part in zip(nets, self.parts, strict=True):
            net.check_data(part, None)
            net.notify("on_train_begin", X=part, y=None)

    def run_epoch(self, factors: Sequence[float] | None) -> np.ndarray:
        """Run an epoch of each member; return the mean losses of its steps, (1, 4, n_members)."""
        for number, (net, part) in enumerate(zip(self.nets, self.parts, strict=True)):
            if number in self.ended:
                continue
            net.set_schedule(factors)
            valid = self.validation_sets[number]
            net.notify("on_epoch_begin", dataset_train=part, dataset_valid=valid)
            iterator = net.get_iterator(part, training=True)
            net.run_single_epoch(iterator, training=True, prefix="train", step_fn=net.train_step)
            if valid is not None:
                net.run_single_epoch(
                    net.get_iterator(valid, training=False),
                    training=False,
                    prefix="valid",
                    step_fn=net.validation_step,
                )
            self._end_epoch(number)
        return np.array([[[net.history[-1][name] for net in self.nets] for name in RECORDED]])

    def _end_epoch(self, number: int) -> None:
        net, part, valid = self.nets[number], self.parts[number], self.validation_sets[number]
        try:
            net.notify("on_epoch_end", dataset_train=part, dataset_valid=valid)
        except KeyboardInterrupt:  # callbacks of skorch raise it to stop
            if not self.has_callbacks:
                raise
            self.ended.add(number)
        net.history[-1]["batches"] = []
        net.set_schedule(None)

    @property
    def has_ended(self) -> bool:
        """Whether callbacks have ended the training of every member."""
        return len(self.ended) == len(self.nets)

    def close(self) -> None:
        """End the training of each net; an interrupted epoch leaves no record."""
        for net, part in zip(self.nets, self.parts, strict=True):
            if net.history and RECORDED[0] not in net.history[-1]:
                net.history.pop()
            net.set_schedule(None)
            net.notify("on_train_end", X=part, y=None)
            restore_parameters(net)
            drop_compiled(net.module_)


def make_trainer(
    nets: list[Any],
    tensors: Tensors,
    own: list[np.ndarray],
    settings: Mapping[str, Any],
    validation_sets: list[Any] | None = None,
) -> BatchedMembers | SequentialMembers:
    """Return a trainer of all members together where possible, else in turn.

    Parameters
    ----------
    nets : list of MixupENet
        The members.
    tensors : tuple
        Inputs, targets and weights of all samples.
    own : list of arrays
        Numbers of the samples that each member trains on, equally many for all.
    settings : mapping
        Parameters of the estimator.
    validation_sets : list of datasets or None, default=None
        Validation samples of each member, for callbacks of the user.
    """
    if settings["compile"]:
        for net in nets:
            compile_net(net, tensors)
    iterator = nets[0].get_iterator(make_dataset(*tensors), training=True)
    is_plain = all(why_not_by_hand(net, iterator) is None for net in nets)
    if settings["callbacks"] or settings["compile"] or not is_plain:
        has_callbacks = bool(settings["callbacks"])
        return SequentialMembers(
            nets, tensors, own, has_callbacks, validation_sets if has_callbacks else None
        )
    return BatchedMembers(nets, tensors, own)


def train_members(
    nets: list[Any],
    train: Rows,
    folds: ValidationFolds | None,
    X_mean: np.ndarray,
    settings: Mapping[str, Any],
    *,
    epochs: int,
    schedule: str,
    monitor: EpochMonitor,
) -> tuple[np.ndarray, bool]:
    """Train members; return their weights in the ensemble, and False after an interrupt."""
    place = float_type(nets[0]), torch.device(nets[0].device)
    tensors = as_tensors(train, X_mean, *place, by_batch=True)
    own = [np.arange(train.n_rows)] * len(nets)
    if folds is not None and folds.rows is train:
        own = [np.setdiff1d(own[0], fold, assume_unique=True) for fold in folds.index]
    check_batches(nets[0], len(own[0]))
    undo = [remember(net) for net in nets]
    n_rows = rows_a_pass(nets[0], len(own[0]))
    with threads_for(nets[0].module_, n_rows, settings["n_threads"]):
        try:
            stopping = validation_sets = None
            if folds is not None:
                is_part = folds.rows is train
                held_out = (
                    tensors if is_part else as_tensors(folds.rows, X_mean, *place, by_batch=True)
                )
                whole = make_dataset(*held_out)
                stopping = GroupEarlyStopping(nets, folds, held_out, settings, forward_all)
                validation_sets = [Subset(whole, cast(Any, fold)) for fold in folds.index]
            trainer = make_trainer(nets, tensors, own, settings, validation_sets)
            try:
                factors = rate_factors(schedule, epochs * len(trainer.sizes))
                is_complete = _run(trainer, stopping, factors, epochs, monitor)
            finally:
                trainer.close()
            weights = np.full(len(nets), 1 / len(nets)) if stopping is None else stopping.finish()
            for net in nets:
                check_weights(net)
        except BaseException:
            for undo_one in undo:
                undo_one()
            raise
    return weights, is_complete


def _run(trainer, stopping, factors, epochs, monitor) -> bool:
    """Run the epochs; return False after an interrupt."""
    n_steps, pause = len(trainer.sizes), n_epochs_per_evaluation(epochs)
    try:
        for epoch in range(1, epochs + 1):
            monitor.begin_epoch()
            start = time.perf_counter()
            part = None if factors is None else factors[(epoch - 1) * n_steps : epoch * n_steps]
            values = _mean_losses(trainer.run_epoch(part), trainer.sizes, epoch)
            row = {"epoch": epoch, **dict(zip(RECORDED, values.tolist(), strict=True))}
            if stopping is not None and (epoch % pause == 0 or epoch == epochs):
                row["valid_loss"] = stopping.evaluate()
            row["dur"] = time.perf_counter() - start
            # The monitor sees the last epoch too, whoever asks to stop.
            wants_stop = stopping is not None and stopping.wants_stop
            if any([monitor.record_epoch(row), trainer.has_ended, wants_stop]):
                break
    except KeyboardInterrupt:
        return False
    return True


def _mean_losses(values: np.ndarray, sizes: list[int], epoch: int) -> np.ndarray:
    """Mean losses of an epoch over its steps and members, (4,); raises if they are not finite."""
    if not np.isfinite(values).all():
        _, mixup_loss, penalty_term, _ = values.mean(axis=(0, 2))
        raise FloatingPointError(
            f"The loss became non-finite in epoch {epoch}: mixup_loss={mixup_loss}, "
            f"penalty_term={penalty_term}; lower lr or eta, or scale the inputs."
        )
    weights = sizes if len(values) == len(sizes) else None
    return np.average(values, axis=0, weights=weights).mean(axis=1)
