"""Fits many estimators together: their weights are stacked, and all take each step.

A step of one small network is mostly overhead. Networks of one shape that differ in their seed and
in numbers (``alpha``, ``eta``, ``lr``, ...) share it here. Each has its own batches, draws and
loss, and ends as its own ``fit`` would leave it.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import sparse

from mixupe_sklearn._data.batches import make_dataset
from mixupe_sklearn._data.rows import Rows, as_tensors
from mixupe_sklearn._engine.trainer import (
    Data,
    StackedTrainer,
    kind_of,
    n_together,
    rates_of,
    sizes_of,
)
from mixupe_sklearn._estimators.base import BaseMixupE, restore
from mixupe_sklearn._estimators.fit_monitor import EpochMonitor
from mixupe_sklearn._net.build import check_weights, rows_a_pass
from mixupe_sklearn._net.net import float_type
from mixupe_sklearn._runtime.device import gradients_on, resolve_device, threads_for
from mixupe_sklearn._runtime.seeding import new_seed, seeded
from mixupe_sklearn._training.config import MODULES, rate_factors
from mixupe_sklearn._utils.parameter_rules import Choice, check_rules, is_same

# Parameters that members of one trainer share.
SHARED = (
    *("module", "module_params", "optimizer", "max_epochs", "min_steps", "batch_size"),
    *("class_weight", "lam_per", "single_pass", "n_threads", "lr_schedule"),
)
OnEpoch = Callable[[int, list[Any]], Iterable[Any] | None]


def why_not_many(
    estimators: Sequence[Any], X: Any, fit_params: Mapping[str, Any] | None = None
) -> str | None:
    """Return why these estimators cannot be fitted together, or None if they can.

    Parameters
    ----------
    estimators : sequence of MixupEClassifier, or of MixupERegressor
        The estimators to fit.
    X : array-like or sparse matrix
        The training samples.
    fit_params : dict or None, default=None
        Further arguments of ``fit``.

    Returns
    -------
    reason : str or None
        One reason.

    Examples
    --------
    >>> import numpy as np
    >>> from mixupe_sklearn import MixupEClassifier, preset
    >>> estimators = [MixupEClassifier(**preset("paper", eta=eta)) for eta in (0.0, 1.0)]
    >>> why_not_many(estimators, np.eye(3))
    >>> why_not_many([MixupEClassifier()], np.eye(3))
    'n_members is above one: an ensemble already trains as one'
    """
    if not all(isinstance(estimator, BaseMixupE) for estimator in estimators):
        return "not all are estimators of mixupe_sklearn"
    if len({type(estimator) for estimator in estimators}) > 1:
        return "they are of different classes"
    if len({id(estimator) for estimator in estimators}) < len(estimators):
        return "an estimator is given twice"
    if sparse.issparse(X):
        return "X is sparse"
    for name, value in (fit_params or {}).items():
        if value is not None and name != "sample_weight":
            return f"{name} is given"
    reasons = (reason for estimator in estimators for reason in _obstacles(estimator))
    return next(reasons, None)


def _obstacles(estimator: Any) -> Iterable[str]:
    params = estimator.module_params if isinstance(estimator.module_params, Mapping) else {}
    found = {
        "they are not for tables": estimator._modules is not MODULES,
        "module is not given by name": not isinstance(estimator.module, str),
        "dropout is on": params.get("dropout"),
        "batch_norm is on": params.get("batch_norm"),
        "optimizer is not given by name": not isinstance(estimator.optimizer, str),
        "mix_at is 'hidden'": estimator.mix_at == "hidden",
        "n_members is above one: an ensemble already trains as one": estimator.n_members != 1,
        "early_stopping is on": estimator.early_stopping,
        "callbacks are given": estimator.callbacks or getattr(estimator, "_skl_callbacks", None),
        "warm_start continues with a net": estimator.warm_start and hasattr(estimator, "net_"),
        "device is not the cpu": not _is_on_cpu(estimator.device),
        "compile is on": estimator.compile,
        "penalty_order is not 1": estimator.penalty_order != 1,
    }
    return (reason for reason, is_so in found.items() if is_so)


def _is_on_cpu(device: Any) -> bool:
    try:
        return resolve_device(device).type == "cpu"
    except ValueError:
        return True  # fit itself raises the error


def fit_many(
    estimators: Sequence[Any],
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    on_epoch: OnEpoch | None = None,
    on_error: str = "raise",
) -> list[Any]:
    """Fit estimators that differ in numbers and seeds together, faster than one by one.

    Each ends as its own ``fit(X, y, sample_weight)`` would leave it: weights, history, optimizer
    and generators, up to rounding. The rounding does not depend on the other estimators (but a
    network with a single output rounds differently when it is alone). Estimators that differ in
    shape, epochs or batch size train in separate groups. ``verbose`` has no effect. An interrupt
    leaves all estimators as they were.

    Parameters
    ----------
    estimators : sequence of MixupEClassifier, or of MixupERegressor
        Estimators for tables with ``n_members=1``, modules and optimizers given by name, and
        neither early stopping, callbacks, dropout nor BatchNorm.
    X : array-like of shape (n_samples, n_features)
        Training samples.
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Targets.
    sample_weight : array-like of shape (n_samples,) or None, default=None
        Weight of each sample.
    on_epoch : callable or None, default=None
        Called as ``on_epoch(epoch, members)`` after each epoch, with the number of epochs so far
        and the estimators that currently train together; each of them can predict. The members
        that it returns (None: none) stop and keep their current weights.
    on_error : {"raise", "return"}, default="raise"
        How to handle an error of one estimator, such as a loss that becomes non-finite.
        ``"raise"`` raises it and leaves all estimators as they were. ``"return"`` leaves this one
        as it was, returns the error in its place, and continues with the others.

    Returns
    -------
    fitted : list
        The fitted estimators in their order.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mixupe_sklearn import MixupEClassifier, fit_many, preset
    >>> X, y = load_iris(return_X_y=True)
    >>> params = [preset("paper", alpha=alpha, random_state=0) for alpha in (0.1, 0.4)]
    >>> estimators = [MixupEClassifier(**own) for own in params]
    >>> [bool(fitted.score(X, y) > 0.8) for fitted in fit_many(estimators, X, y)]
    [True, True]
    """
    check_rules({"on_error": on_error}, {"on_error": Choice(("raise", "return"))})
    reason = why_not_many(estimators, X, {"sample_weight": sample_weight})
    if reason is not None:
        raise ValueError(f"Got estimators that cannot be fitted together: {reason}.")
    members = [Member(estimator, dict(vars(estimator))) for estimator in estimators]
    try:
        with gradients_on():
            for group in _groups(members, X, y, sample_weight, on_error):
                group.train(on_epoch, on_error)
    except BaseException:
        for member in members:
            restore(member.estimator, member.before)
        raise
    return [member.error or member.estimator for member in members]


@dataclass(eq=False)
class Member:
    """An estimator in training, its attributes before, and the error of its fit, if any."""

    estimator: Any
    before: dict[str, Any]
    error: Exception | None = None

    @property
    def net(self) -> Any:
        """The estimator's net."""
        return self.estimator.net_

    @contextmanager
    def guarded(self, on_error: str) -> Iterator[None]:
        """Run a block of this member's fit, and handle an error as ``on_error`` asks."""
        try:
            yield
        except Exception as error:
            if on_error == "raise":
                raise
            restore(self.estimator, self.before)
            self.error = error

    def prepare(self, X: Any, y: Any, sample_weight: Any) -> Rows:
        """Do what a fit does before it trains, and return the samples."""
        estimator = self.estimator
        rows = estimator._begin(X, y, sample_weight, is_new=True, learn=True)
        estimator._warn_of_few(rows.n_rows, estimator._n_epochs(rows.n_rows))
        device = resolve_device(estimator.device)
        seed = new_seed(estimator._streams[0].torch)
        with seeded(seed, device):
            estimator._start(rows, seed, device)
        return rows

    def agrees(self, other: "Member", *names: str) -> bool:
        """Return whether both have equal parameters of these names, as far as they have them."""
        mine, others = vars(self.estimator), vars(other.estimator)
        return all(is_same(mine.get(name), others.get(name)) for name in names)

    def fits(self, other: "Member") -> bool:
        """Return whether both may share a trainer."""
        is_of_kind = kind_of(self.net.criterion_) == kind_of(other.net.criterion_)
        return is_of_kind and self.agrees(other, *SHARED)

    def record(self, values: np.ndarray, sizes: list[int], dataset: Any) -> None:
        """End the epoch of the net, with losses of shape (n_batches, 4)."""
        self.net.record_epoch(values, sizes)
        self.net.notify("on_epoch_end", dataset_train=dataset, dataset_valid=None)
        self.net.history[-1]["batches"] = []

    def finish(self, dataset: Any) -> None:
        """Do what a fit does after it has trained."""
        self.net.notify("on_train_end", X=dataset, y=None)
        check_weights(self.net)
        self.estimator._keep_history()


def _groups(members, X, y, sample_weight, on_error) -> list["Group"]:
    """Prepare all members in their order, and sort them into groups."""
    groups: list[Group] = []
    for member in members:
        with member.guarded(on_error):
            rows = member.prepare(X, y, sample_weight)
            group = next((g for g in groups if g.members[0].fits(member)), None)
            if group is None:
                # Samples depend on the class weights only: members of equal ones share them.
                alike = (g for g in groups if g.members[0].agrees(member, "class_weight"))
                group = Group(next((g.rows for g in alike), rows), [])
                groups.append(group)
            group.members.append(member)
    return groups


@dataclass
class Group:
    """Members that may share a trainer, and their training samples."""

    rows: Rows
    members: list[Member]

    def train(self, on_epoch: OnEpoch | None, on_error: str) -> None:
        """Train all members, as many at a time as the engine takes."""
        first = self.members[0]
        place = float_type(first.net), torch.device(first.net.device)
        tensors = as_tensors(self.rows, first.estimator.X_mean_, *place)
        data, dataset = Data(*tensors, first.net), make_dataset(*tensors)
        # Members of equal rates are neighbours, and share a parameter group of the optimizer.
        members = sorted(self.members, key=lambda member: rates_of(member.net.optimizer_))
        most = n_together(first.net, self.rows.n_rows, self.rows.X.shape[1])
        n_parts = math.ceil(len(members) / most)
        bounds = [round(part * len(members) / n_parts) for part in range(n_parts + 1)]
        for start, stop in itertools.pairwise(bounds):
            _train(members[start:stop], data, dataset, on_epoch, on_error)


def _train(members: list[Member], data: Data, dataset: Any, on_epoch: Any, on_error: str) -> None:
    """Train members together, without those that stop."""
    first = members[0].estimator
    for member in members:
        member.net.check_data(dataset, None)
        member.net.notify("on_train_begin", X=dataset, y=None)
    trainer = StackedTrainer([member.net for member in members])
    # As for a single member, so that its result does not depend on the others.
    n_rows = rows_a_pass(first.net_, len(dataset))
    epochs, sizes = first._n_epochs(len(dataset)), sizes_of(len(dataset), first.batch_size)
    factors = rate_factors(first.lr_schedule, epochs * len(sizes))
    with threads_for(first.net_.module_, n_rows, first.n_threads):
        for epoch in range(1, epochs + 1):
            part = None if factors is None else factors[(epoch - 1) * len(sizes) :][: len(sizes)]
            running = _run_epoch(trainer, data, members, dataset, on_error, part)
            stopping = _stopping(epoch, running, on_epoch)
            leaving = running if epoch == epochs else stopping
            if not leaving and len(running) == len(members):
                continue
            trainer.release()
            for member in leaving:
                with member.guarded(on_error):
                    member.finish(dataset)
            members = [member for member in running if member not in leaving]
            if not members:
                return
            trainer = StackedTrainer([member.net for member in members])


def _run_epoch(
    trainer: StackedTrainer,
    data: Data,
    members: list[Member],
    dataset: Any,
    on_error: str,
    factors: Any,
) -> list[Member]:
    """Train for one epoch and return the members without an error."""
    for member in members:
        member.net.notify("on_epoch_begin", dataset_train=dataset, dataset_valid=None)
    sizes = sizes_of(len(data), members[0].estimator.batch_size)
    orders = [m.net.iterator_train__random_state.permutation(len(data)) for m in members]
    values = trainer.run_epoch([m.net.criterion_ for m in members], data, orders, sizes, factors)
    for number, member in enumerate(members):
        with member.guarded(on_error):
            member.record(values[:, :, number], sizes, dataset)
    return [member for member in members if member.error is None]


def _stopping(epoch: int, running: list[Member], on_epoch: OnEpoch | None) -> list[Member]:
    """Return the members that a hook stops after this epoch."""
    estimators = [member.estimator for member in running]
    named = {id(estimator) for estimator in estimators if EpochMonitor(estimator).end_epoch({})}
    if on_epoch is not None and estimators:
        named |= {id(estimator) for estimator in on_epoch(epoch, estimators) or ()}
    return [member for member in running if id(member.estimator) in named]
