"""What a training has recorded, epoch by epoch, whoever kept it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from mixupe_sklearn._diagnostics.sample import member_of
from mixupe_sklearn._estimators.base import BaseMixupE


def records_of(estimator: Any, member: int = 0) -> list[Mapping[str, Any]]:
    """What each epoch has recorded: of an estimator, one of its members, a net, or a list of it."""
    if isinstance(estimator, Sequence) and not isinstance(estimator, (str, bytes)):
        if not estimator or not all(isinstance(row, Mapping) for row in estimator):
            raise TypeError(
                "Got a list of something else than records of epochs, but expected the history of "
                "one training; several trainings go into a dict, by name."
            )
        return list(estimator)
    if isinstance(estimator, Pipeline):
        return records_of(estimator[-1], member)
    if isinstance(estimator, BaseMixupE):
        check_is_fitted(estimator, "net_")
        # Members that trained as one have no records of their own.
        own = list(member_of(estimator.nets_, member).history)
        return own if own and "train_loss" in own[-1] else list(estimator.history_)
    if hasattr(estimator, "history"):
        return list(estimator.history)
    raise TypeError(
        f"Got a {type(estimator).__name__}, but expected a fitted estimator of mixupe_sklearn, a "
        f"skorch net, or the records of its epochs."
    )


def column(records: Sequence[Mapping[str, Any]], name: str) -> tuple[np.ndarray, np.ndarray]:
    """The epochs that have a number of this name, and the numbers."""
    values = np.array([row.get(name, np.nan) for row in records], dtype=float)
    epochs = np.arange(1, len(values) + 1)
    is_there = ~np.isnan(values)
    return epochs[is_there], values[is_there]


def watched(records: Sequence[Mapping[str, Any]], name: str) -> tuple[np.ndarray, np.ndarray]:
    epochs, values = column(records, name)
    if not len(values):
        raise ValueError(
            f"Got a training without {name}, but expected one with callbacks=[DerivativeMonitor()]."
        )
    return epochs, values


def by_name(estimators: Any) -> Mapping[str, Any]:
    """Trainings by name; a single one has none."""
    return estimators if isinstance(estimators, Mapping) else {"": estimators}
