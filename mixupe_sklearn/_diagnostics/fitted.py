"""What diagnostics need of a fitted estimator or net: its samples, its network, its history."""

import copy
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.utils.data import Subset

from mixupe_sklearn._data.batches import make_dataset, split_weight
from mixupe_sklearn._estimators.base import BaseMixupE
from mixupe_sklearn._method.criterion import MixupELoss
from mixupe_sklearn._method.forward import (
    as_logits,
    encode_targets,
    mixable,
    run_stages,
    stages_of,
)
from mixupe_sklearn._net.net import MixupENet, MixupENetRegressor


class Sample(NamedTuple):
    """Samples in double precision at the stage that mixes them, and the rest of the network."""

    run: Callable[[Tensor], Tensor]
    X: Tensor
    targets: Tensor
    criterion: MixupELoss


def fitted_net(estimator: Any, X: Any, y: Any, member: int = 0) -> tuple[Any, Any]:
    """The net of one member, and a dataset of the samples as the net takes them."""
    if isinstance(estimator, Pipeline):
        check_is_fitted(estimator)
        X = estimator[:-1].transform(X) if len(estimator) > 1 else X
        return fitted_net(estimator[-1], X, y, member)
    if isinstance(estimator, BaseMixupE):
        check_is_fitted(estimator, "net_")
        net = member_of(estimator.nets_, member)
        return net, make_dataset(*estimator._tensors(net, estimator._monitored_rows(X, y)))
    if isinstance(estimator, (MixupENet, MixupENetRegressor)):
        check_is_fitted(estimator, "module_")
        if y is None:
            raise ValueError("Got y=None, but expected the targets of the samples.")
        return member_of([estimator], member), estimator.get_dataset(X, y)
    hint = "; pass its best_estimator_" if hasattr(estimator, "best_estimator_") else ""
    raise TypeError(
        f"Got a {type(estimator).__name__}, but expected an estimator of mixupe_sklearn, a "
        f"pipeline that ends with one, or a MixupENet{hint}."
    )


def member_of(nets: Sequence[Any], member: int) -> Any:
    """One of several networks, by its index."""
    if isinstance(member, bool) or not isinstance(member, Integral) or not 0 <= member < len(nets):
        raise ValueError(
            f"Got member={member!r}, but expected 0 to {len(nets) - 1}, since the estimator has "
            f"n_members={len(nets)}."
        )
    return nets[member]


def spread(n_rows: int, n_wanted: int) -> np.ndarray:
    """Indices of some samples, evenly spaced over all, without a random draw."""
    return np.linspace(0, n_rows - 1, min(n_rows, n_wanted)).round().astype(int)


def batches_of(net: Any, dataset: Any, numbers: np.ndarray | None = None) -> list[tuple[Any, Any]]:
    """Inputs, ready for the module, and targets of some samples or all, batch by batch."""
    if numbers is not None:
        dataset = Subset(dataset, numbers)  # type: ignore[arg-type]  # an array will do
    pairs = net.get_iterator(dataset, training=False)
    return [(net._prepared(split_weight(X)[0], training=False), y) for X, y in pairs]


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Run a block with a module in evaluation mode: samples do not interact, dropout is off."""
    was_training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(was_training)


def first_stage(net: Any, stage: int | None = None) -> int:
    """How many stages of a module run before derivatives are taken.

    ``stage=None`` means none if inputs are tensors, and one if only hidden states can be mixed, as
    with graphs.
    """
    if stage is None:
        return int(hasattr(net.module_, "encode") and net.criterion_.mix_at == "hidden")
    n_stages = len(stages_of(net.module_))
    if not 0 <= stage < n_stages:
        raise ValueError(
            f"Got stage={stage}, but expected 0 to {n_stages - 1}, the number of stages of "
            f"{type(net.module_).__name__} that can run before derivatives are taken."
        )
    return stage


def state_at(module: nn.Module, stage: int, inputs: Any) -> Tensor:
    """The inputs after some stages of a module: derivatives are taken along this state."""
    return mixable(run_stages(stages_of(module)[:stage], inputs, {}) if stage else inputs)


def logits_from(module: nn.Module, stage: int, state: Any) -> Tensor:
    """Run the stages that follow."""
    return as_logits(run_stages(stages_of(module)[stage:] if stage else [module], state, {}))


def sample_of(net: Any, dataset: Any, stage: int | None = None) -> Sample:
    """All samples of a dataset, and the rest of a copy of the network, in double precision.

    The copy is in evaluation mode: samples do not interact, and dropout is off.
    """
    stage = first_stage(net, stage)
    with evaluating(net.module_), torch.no_grad():
        pairs = batches_of(net, dataset)
        parts = [state_at(net.module_, stage, inputs) for inputs, _ in pairs]
    module = copy.deepcopy(net.module_).cpu().double().eval().requires_grad_(False)
    run = functools.partial(logits_from, module, stage)
    X = torch.cat(parts).detach().cpu().double()
    y = torch.cat([torch.as_tensor(targets) for _, targets in pairs]).cpu()
    with torch.no_grad():
        width = run(X[:1]).expand(len(X), -1)
    return Sample(run, X, encode_targets(y, width, net.criterion_.head), net.criterion_)


def records_of(estimator: Any, member: int | None = 0) -> list[Mapping[str, Any]]:
    """The history of one member of a fitted estimator, or of a net; a list is returned as is.

    ``member=None`` is the history of the estimator, with the means over its members.
    """
    if isinstance(estimator, Sequence) and not isinstance(estimator, (str, bytes)):
        if not estimator or not all(isinstance(row, Mapping) for row in estimator):
            raise TypeError(
                "Got a list of something other than records of epochs, but expected the history of "
                "one training; pass several trainings as a dict, by name."
            )
        return list(estimator)
    if isinstance(estimator, Pipeline):
        return records_of(estimator[-1], member)
    if isinstance(estimator, BaseMixupE):
        check_is_fitted(estimator, "net_")
        if member is None:
            return list(estimator.history_)
        return list(member_of(estimator.nets_, member).history)
    if hasattr(estimator, "history"):
        return list(estimator.history)
    raise TypeError(
        f"Got a {type(estimator).__name__}, but expected a fitted estimator of mixupe_sklearn, a "
        f"skorch net, or the records of its epochs."
    )


def column(records: Sequence[Mapping[str, Any]], name: str) -> tuple[np.ndarray, np.ndarray]:
    """The epochs that recorded a value of this name, and the values."""
    values = np.array([row.get(name, np.nan) for row in records], dtype=float)
    epochs = np.arange(1, len(values) + 1)
    is_there = ~np.isnan(values)
    return epochs[is_there], values[is_there]


def monitored(records: Sequence[Mapping[str, Any]], name: str) -> tuple[np.ndarray, np.ndarray]:
    """The same for a value of ``DerivativeMonitor``; raises if the training had none."""
    epochs, values = column(records, name)
    if not len(values):
        raise ValueError(
            f"Got a training without {name}, but expected one with callbacks=[DerivativeMonitor()]."
        )
    return epochs, values
