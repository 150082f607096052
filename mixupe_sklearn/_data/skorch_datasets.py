"""Rows on their way into a skorch net: with their weights, as data sets, and back."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from skorch.dataset import Dataset
from skorch.helper import predefined_split
from torch import Tensor
from torch.utils.data import Subset

from mixupe_sklearn._data.batches import can_batch


def with_weight(X: Any, sample_weight: Any) -> Any:
    """Put weights beside the inputs, the way skorch lets them travel: as an entry of a dict."""
    if sample_weight is None:
        return X
    if isinstance(X, torch.utils.data.Dataset):
        raise ValueError(
            "Got sample_weight beside a Dataset, but expected arrays; a Dataset may return "
            "{'X': ..., 'sample_weight': ...} as its inputs."
        )
    weight = sample_weight if isinstance(sample_weight, Tensor) else np.asarray(sample_weight)
    is_good = (weight >= 0) & (weight < math.inf)
    if not is_good.all():
        value = float(weight[~is_good][0])
        raise ValueError(f"Got sample_weight={value}, but expected finite numbers >= 0.")
    return _beside(X, weight)


def _beside(X: Any, weight: Any) -> dict[str, Any]:
    inputs = X if isinstance(X, Mapping) else {"X": X}
    return {**inputs, "sample_weight": weight}


def split_weight(X: Any) -> tuple[Any, Tensor | None]:
    """Undo ``with_weight``: the inputs and their weights, or None."""
    if not isinstance(X, Mapping) or "sample_weight" not in X:
        return X, None
    inputs = {name: value for name, value in X.items() if name != "sample_weight"}
    return (inputs["X"] if set(inputs) == {"X"} else inputs), X["sample_weight"]


def _whole(dataset: Any) -> tuple[Any, np.ndarray | None]:
    """A data set, or the one that this is a part of with the numbers of the part."""
    if not isinstance(dataset, Subset):
        return dataset, None
    return dataset.dataset, torch.as_tensor(dataset.indices).numpy()


def targets_of(dataset: Any) -> Any:
    """The targets of a skorch data set, or of a part of one; None for any other."""
    dataset, indices = _whole(dataset)
    if type(dataset) is not Dataset or not can_batch(dataset.y):
        return None
    return dataset.y if indices is None else dataset.y[indices]


def rows_in_memory(dataset: Any) -> tuple[Any, Any, Any] | None:
    """``X``, ``y`` and row numbers of a skorch data set that lies in memory, else None."""
    dataset, indices = _whole(dataset)
    if type(dataset) is not Dataset or not can_batch(dataset.X):
        return None
    if dataset.y is not None and not can_batch(dataset.y):
        return None
    return dataset.X, dataset.y, indices


def make_dataset(X: Any, y: Any, sample_weight: Any = None) -> Dataset:
    """A data set of skorch over rows in memory, or read one by one, with their weights."""
    return Dataset(X if sample_weight is None else _beside(X, sample_weight), y)


def fixed_validation(dataset: Any) -> Callable[..., Any]:
    """A ``train_split`` that measures the validation loss on these rows."""
    return predefined_split(dataset)
