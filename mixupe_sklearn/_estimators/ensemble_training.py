"""Members in training: as one where they are plain networks, else one after the other."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from torch.utils.data import Subset

from mixupe_sklearn._data.rows import Rows
from mixupe_sklearn._data.skorch_datasets import make_dataset
from mixupe_sklearn._engine.eligibility import restore_parameters, why_not_by_hand
from mixupe_sklearn._engine.prefetch import Data, kind_of
from mixupe_sklearn._engine.trainer import Batch, n_together, rates_of, sizes_of
from mixupe_sklearn._net.build import Tensors, as_tensors, compile_net
from mixupe_sklearn._net.net import RECORDED
from mixupe_sklearn._runtime.device import drop_compiled


class BatchedMembers:
    """Members whose epochs are run as one: plain MLPs on the processor.

    Parameters
    ----------
    nets : list of MixupENet
        The members.
    tensors : tuple
        Inputs, targets and weights of all rows.
    own : list of arrays
        The rows that each member trains on, equally many for all.
    """

    has_ended = False  # none listens who could end it

    def __init__(self, nets: list[Any], tensors: Tensors, own: list[np.ndarray]):
        self.nets, self.own = nets, own
        self.data = Data(*tensors, net=nets[0])
        self.sizes = sizes_of(len(own[0]), nets[0].batch_size)
        # Those of one kind and equal rates lie side by side, as many at a time as is good for them.
        kinds = [(repr(kind_of(net.criterion_)), rates_of(net.optimizer_)) for net in nets]
        order = sorted(range(len(nets)), key=lambda number: kinds[number])
        self.groups: list[list[int]] = []
        most = n_together(nets[0], len(own[0]), self.data.n_features)
        for number in order:
            last = self.groups[-1] if self.groups else []
            if not last or len(last) == most or kinds[last[0]][0] != kinds[number][0]:
                self.groups.append([])
            self.groups[-1].append(number)
        self.batches = [Batch([nets[number] for number in group]) for group in self.groups]

    def run_epoch(self, factors: Sequence[float] | None) -> np.ndarray:
        """Run an epoch; the losses of each step, (n_steps, 4, n_members)."""
        values = np.empty((len(self.sizes), 4, len(self.nets)))
        for group, batch in zip(self.groups, self.batches, strict=True):
            orders = [self._order(number) for number in group]
            criteria = [self.nets[number].criterion_ for number in group]
            values[:, :, group] = batch.run_epoch(criteria, self.data, orders, self.sizes, factors)
        return values

    def _order(self, number: int) -> np.ndarray:
        own = self.own[number]
        return own[self.nets[number].iterator_train__random_state.permutation(len(own))]

    def close(self) -> None:
        """Give each net its weights and its optimizer's state."""
        for batch in self.batches:
            batch.release()


class SequentialMembers:
    """Members that run their epochs one after the other: any module, device and callback.

    Parameters
    ----------
    nets : list of MixupENet
        The members.
    tensors : tuple
        Inputs, targets and weights of all rows.
    own : list of arrays
        The rows that each member trains on.
    has_callbacks : bool
        Whether a callback of the user's may end the training of a member; the others then go on.
    exams : list of data sets or None, default=None
        What callbacks of each member see as its validation rows.
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
        # Arrays, though Subset's type asks for a sequence: see _training.
        self.parts = [Subset(whole, rows) for rows in own]  # type: ignore[arg-type]
        self.sizes = sizes_of(len(own[0]), nets[0].batch_size)
        for net, part in zip(nets, self.parts, strict=True):
            net.check_data(part, None)
            net.notify("on_train_begin", X=part, y=None)

    def run_epoch(self, factors: Sequence[float] | None) -> np.ndarray:
        """Run an epoch of each; the losses, (1, 4, n_members), as means over its steps."""
        for number, (net, part) in enumerate(zip(self.nets, self.parts, strict=True)):
            if number in self.ended:
                continue
            net.set_schedule(factors)
            folds = self.validation_sets[number]
            net.notify("on_epoch_begin", dataset_train=part, dataset_valid=folds)
            iterator = net.get_iterator(part, training=True)
            net.run_single_epoch(iterator, training=True, prefix="train", step_fn=net.train_step)
            if folds is not None:
                net.run_single_epoch(
                    net.get_iterator(folds, training=False),
                    training=False,
                    prefix="valid",
                    step_fn=net.validation_step,
                )
            self._end_epoch(number)
        return np.array([[[net.history[-1][name] for net in self.nets] for name in RECORDED]])

    def _end_epoch(self, number: int) -> None:
        net, part, folds = self.nets[number], self.parts[number], self.validation_sets[number]
        try:
            net.notify("on_epoch_end", dataset_train=part, dataset_valid=folds)
        except KeyboardInterrupt:  # with which callbacks of skorch say that they have had enough
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
        """End the training of each net; an epoch that was cut short leaves no record."""
        for net, part in zip(self.nets, self.parts, strict=True):
            if net.history and RECORDED[0] not in net.history[-1]:
                net.history.pop()
            net.set_schedule(None)
            net.notify("on_train_end", X=part, y=None)
            restore_parameters(net)
            drop_compiled(net.module_)


def make_trainer(
    nets: list[Any],
    train: Rows,
    tensors: Tensors,
    own: list[np.ndarray],
    X_mean: np.ndarray,
    settings: Mapping[str, Any],
    validation_sets: list[Any] | None = None,
) -> BatchedMembers | SequentialMembers:
    """Members that train as one where they can.

    Parameters
    ----------
    nets : list of MixupENet
        The members.
    train : Rows
        All rows, as they came.
    tensors : tuple
        Inputs, targets and weights of these rows.
    own : list of arrays
        The rows that each member trains on, equally many for all.
    X_mean : array of shape (n_features,)
        What is subtracted from inputs.
    settings : mapping
        Parameters of the estimator.
    exams : list of data sets or None, default=None
        Validation rows of each member, for callbacks of the user's.
    """
    if settings["compile"]:
        for net in nets:
            compile_net(net, train, partial(as_tensors, net, X_mean=X_mean))
    iterator = nets[0].get_iterator(make_dataset(*tensors), training=True)
    is_plain = all(why_not_by_hand(net, iterator) is None for net in nets)
    if settings["callbacks"] or settings["compile"] or not is_plain:
        has_callbacks = bool(settings["callbacks"])
        return SequentialMembers(
            nets, tensors, own, has_callbacks, validation_sets if has_callbacks else None
        )
    return BatchedMembers(nets, tensors, own)
