"""Many small MLPs trained as one: their weights are stacked, and each step is taken by all.

A step of one small network is mostly overhead. Networks that differ in their seed and in numbers
(``alpha``, ``eta``, ``lr``, ...) but not in shape share it here, each with its own batches, draws
and loss, so that each ends where its own ``fit`` would have taken it.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from mixupe_sklearn._data.rows import Rows
from mixupe_sklearn._data.skorch_datasets import make_dataset
from mixupe_sklearn._engine.prefetch import Data, kind_of
from mixupe_sklearn._engine.trainer import Batch, n_together, rates_of, sizes_of
from mixupe_sklearn._estimators.base import BaseMixupE, restore
from mixupe_sklearn._net.build import as_tensors, check_weights, rows_a_pass
from mixupe_sklearn._runtime.device import gradients_on, resolve_device, threads_for
from mixupe_sklearn._runtime.seeding import new_seed, seeded
from mixupe_sklearn._training.config import MODULES
from mixupe_sklearn._training.lr_schedule import rate_factors
from mixupe_sklearn._utils.parameter_rules import Choice, check_rules, is_same

# Members of one batch agree in these.
SHARED = (
    *(
        "module",
        "module_params",
        "optimizer",
        "max_epochs",
        "min_steps",
        "batch_size",
        "class_weight",
    ),
    *("lam_per", "single_pass", "n_threads", "lr_schedule"),
)
OnEpoch = Callable[[int, list[Any]], Iterable[Any] | None]


def why_not_many(
    estimators: Sequence[Any], X: Any, fit_params: Mapping[str, Any] | None = None
) -> str | None:
    """Say why these estimators cannot be trained together, or None if they can.

    Parameters
    ----------
    estimators : sequence of MixupEClassifier, or of MixupERegressor
        What is to be fitted.
    X : array-like or sparse matrix
        The training rows.
    fit_params : dict or None, default=None
        What else ``fit`` would be given.

    Returns
    -------
    reason : str or None
        One plain reason.

    Examples
    --------
    >>> import numpy as np
    >>> from mixupe_sklearn import MixupEClassifier
    >>> from mixupe_sklearn import preset
    >>> one = MixupEClassifier(**preset("paper"))
    >>> why_not_many([one, MixupEClassifier(**preset("paper") | {"eta": 0.0})], np.eye(3))
    >>> why_not_many([MixupEClassifier()], np.eye(3))
    'n_members is above one, and they train as one by themselves'
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
        "n_members is above one, and they train as one by themselves": estimator.n_members != 1,
        "early_stopping is on": estimator.early_stopping,
        "callbacks are given": estimator.callbacks or getattr(estimator, "_skl_callbacks", None),
        "warm_start goes on with a net": estimator.warm_start and hasattr(estimator, "net_"),
        "device is not the cpu": not _is_on_cpu(estimator.device),
        "compile is on": estimator.compile,
        "penalty_order is not 1": estimator.penalty_order != 1,
    }
    return (reason for reason, is_so in found.items() if is_so)


def _is_on_cpu(device: Any) -> bool:
    try:
        return resolve_device(device).type == "cpu"
    except ValueError:
        return True  # fit itself has the words for it


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
    and generators, up to rounding. The rounding does not depend on the other members (but a
    network with a single output rounds differently when it is the only one). Those that differ in
    shape, epochs or batch size train one group after the other. Nothing is shown while they train,
    whatever ``verbose`` says; an interrupt leaves all as they were.

    Parameters
    ----------
    estimators : sequence of MixupEClassifier, or of MixupERegressor
        Estimators for which ``why_not_many`` knows no reason.
    X : array-like of shape (n_samples, n_features)
        Training rows.
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Targets.
    sample_weight : array-like of shape (n_samples,) or None, default=None
        Weight of each row.
    on_epoch : callable or None, default=None
        Called as ``on_epoch(epoch, members)`` after each epoch, with the number of epochs so far
        and the estimators that are in training together at this moment; each of them can predict.
        The members that it returns (None: none) stop there and keep what they have learned.
    on_error : {"raise", "return"}, default="raise"
        What to do with an error in one member's fit, such as a loss that becomes non-finite.
        ``"raise"`` raises it and leaves all estimators as they were; ``"return"`` leaves this
        one as it was, returns the error in its place, and goes on with the others.

    Returns
    -------
    fitted : list
        The estimators in their order, fitted.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mixupe_sklearn import MixupEClassifier, preset
    >>> X, y = load_iris(return_X_y=True)
    >>> params = [preset("paper") | {"alpha": alpha, "random_state": 0} for alpha in (0.1, 0.4)]
    >>> estimators = [MixupEClassifier(**own) for own in params]
    >>> [bool(fitted.score(X, y) > 0.8) for fitted in fit_many(estimators, X, y)]
    [True, True]
    """
    check_rules({"on_error": on_error}, {"on_error": Choice(("raise", "return"))})
    reason = why_not_many(estimators, X, {"sample_weight": sample_weight})
    if reason is not None:
        raise ValueError(f"Got estimators that cannot be trained together: {reason}.")
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
    """An estimator in training, what it was before, and the error that ended its fit, if any."""

    estimator: Any
    before: dict[str, Any]
    error: Exception | None = None

    @property
    def net(self) -> Any:
        """The estimator's net."""
        return self.estimator.net_

    @contextmanager
    def guarded(self, on_error: str) -> Iterator[None]:
        """Run a block of this member's fit, and do with an error what was asked for."""
        try:
            yield
        except Exception as error:
            if on_error == "raise":
                raise
            restore(self.estimator, self.before)
            self.error = error

    def prepare(self, X: Any, y: Any, sample_weight: Any) -> Rows:
        """Do what a fit does before it trains, and return the rows."""
        estimator = self.estimator
        rows = estimator._begin(X, y, sample_weight, is_new=True, learn=True)
        estimator._warn_of_few(rows.n_rows, estimator._n_epochs(rows.n_rows))
        device = resolve_device(estimator.device)
        seed = new_seed(estimator._streams[0].torch)
        with seeded(seed, device):
            estimator._start(rows, seed, device)
        return rows

    def agrees(self, other: "Member", *names: str) -> bool:
        """Whether both have equal parameters of these names, as far as they have them."""
        mine, others = vars(self.estimator), vars(other.estimator)
        return all(is_same(mine.get(name), others.get(name)) for name in names)

    def fits(self, other: "Member") -> bool:
        """Whether both may train in one batch."""
        is_of_kind = kind_of(self.net.criterion_) == kind_of(other.net.criterion_)
        return is_of_kind and self.agrees(other, *SHARED)

    def record(self, values: np.ndarray, sizes: list[int], dataset: Any) -> None:
        """Let the net end its epoch: losses of shape (n_batches, 4)."""
        self.net.record_epoch(values, sizes)
        self.net.notify("on_epoch_end", dataset_train=dataset, dataset_valid=None)
        self.net.history[-1]["batches"] = []

    def finish(self, dataset: Any) -> None:
        """Do what a fit does after it has trained."""
        self.net.notify("on_train_end", X=dataset, y=None)
        check_weights(self.net)
        self.estimator._keep_history()


def _groups(members, X, y, sample_weight, on_error) -> list["Group"]:
    """Prepare all members, in their order, and sort them into groups."""
    groups: list[Group] = []
    for member in members:
        with member.guarded(on_error):
            rows = member.prepare(X, y, sample_weight)
            group = next((g for g in groups if g.members[0].fits(member)), None)
            if group is None:
                # Rows depend on the class weights alone: what is there already serves again.
                alike = (g for g in groups if g.members[0].agrees(member, "class_weight"))
                group = Group(next((g.rows for g in alike), rows), [])
                groups.append(group)
            group.members.append(member)
    return groups


@dataclass
class Group:
    """Members that agree in all that a batch shares, and the rows they are trained on."""

    rows: Rows
    members: list[Member]

    def train(self, on_epoch: OnEpoch | None, on_error: str) -> None:
        """Train all, as many at a time as is good for them."""
        first = self.members[0]
        tensors = as_tensors(first.net, self.rows, first.estimator.X_mean_)
        data, dataset = Data(*tensors, first.net), make_dataset(*tensors)
        # Those of equal rates lie side by side, and share a group of the optimizer.
        members = sorted(self.members, key=lambda member: rates_of(member.net.optimizer_))
        most = n_together(first.net, self.rows.n_rows, self.rows.X.shape[1])
        n_parts = math.ceil(len(members) / most)
        bounds = [round(part * len(members) / n_parts) for part in range(n_parts + 1)]
        for start, stop in itertools.pairwise(bounds):
            _train(members[start:stop], data, dataset, on_epoch, on_error)


def _train(members: list[Member], data: Data, dataset: Any, on_epoch: Any, on_error: str) -> None:
    """Train members in one batch, which shrinks when some of them stop."""
    first = members[0].estimator
    for member in members:
        member.net.check_data(dataset, None)
        member.net.notify("on_train_begin", X=dataset, y=None)
    batch = Batch([member.net for member in members])
    # As for one alone, so that a member's result does not depend on its company.
    n_rows = rows_a_pass(first.net_, len(dataset))
    epochs, sizes = first._n_epochs(len(dataset)), sizes_of(len(dataset), first.batch_size)
    factors = rate_factors(first.lr_schedule, epochs * len(sizes))
    with threads_for(first.net_.module_, n_rows, first.n_threads):
        for epoch in range(1, epochs + 1):
            part = None if factors is None else factors[(epoch - 1) * len(sizes) :][: len(sizes)]
            running = _run_epoch(batch, data, members, dataset, on_error, part)
            stopping = _stopping(epoch, running, on_epoch)
            leaving = running if epoch == epochs else stopping
            if not leaving and len(running) == len(members):
                continue
            batch.release()
            for member in leaving:
                with member.guarded(on_error):
                    member.finish(dataset)
            members = [member for member in running if member not in leaving]
            if not members:
                return
            batch = Batch([member.net for member in members])


def _run_epoch(
    batch: Batch, data: Data, members: list[Member], dataset: Any, on_error: str, factors: Any
) -> list[Member]:
    """Train for one epoch and return the members that have come through."""
    for member in members:
        member.net.notify("on_epoch_begin", dataset_train=dataset, dataset_valid=None)
    sizes = sizes_of(len(data), members[0].estimator.batch_size)
    orders = [m.net.iterator_train__random_state.permutation(len(data)) for m in members]
    values = batch.run_epoch([m.net.criterion_ for m in members], data, orders, sizes, factors)
    for number, member in enumerate(members):
        with member.guarded(on_error):
            member.record(values[:, :, number], sizes, dataset)
    return [member for member in members if member.error is None]


def _stopping(epoch: int, running: list[Member], on_epoch: OnEpoch | None) -> list[Member]:
    """The members that someone wants to stop after this epoch."""
    estimators = [member.estimator for member in running]
    named = {id(estimator) for estimator in estimators if estimator._end_epoch(None)}
    if on_epoch is not None and estimators:
        named |= {id(estimator) for estimator in on_epoch(epoch, estimators) or ()}
    return [member for member in running if id(member.estimator) in named]
