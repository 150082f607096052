"""Checks of several processes before they train a network together."""

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from skorch.callbacks import BatchScoring, EpochScoring

from mixupe_sklearn._data.batches import Batches, rows_in_memory, targets_of
from mixupe_sklearn._distributed.sharding import shard_sizes
from mixupe_sklearn._method.criterion import METHOD_RULES
from mixupe_sklearn._method.formulas import share_size
from mixupe_sklearn._net.net import overrides

# Approximate number of input values to compare.
N_COMPARED = 3000


def settings_of(net: Any, n_epochs: int) -> dict[str, Any]:
    """Settings that must be equal in all processes: lengths, method and network."""
    found = {
        "max_epochs": n_epochs,
        "batch_size": net.batch_size,
        "numbers of weights": sum(weight.numel() for weight in net.module_.parameters()),
    }
    for part in ("module", "criterion", "optimizer"):
        found[part] = type(getattr(net, f"{part}_")).__name__
    for name in (*METHOD_RULES, "head"):
        found[f"criterion__{name}"] = getattr(net.criterion_, name, None)
    for number, group in enumerate(net.optimizer_.param_groups):
        plain = {key: value for key, value in group.items() if key != "params"}
        found[f"settings of the optimizer (group {number})"] = plain
    return found


def data_of(train: Any, valid: Any) -> dict[str, Any]:
    """Properties of the data that must be equal: number of samples, targets, some inputs."""
    return {
        "numbers of samples": _n_rows(train),
        "checksums of the targets": _checksum(targets_of(train)),
        "inputs": _some_inputs(train),
        "numbers of validation samples": _n_rows(valid),
        "checksums of the validation targets": _checksum(targets_of(valid)),
    }


def _n_rows(dataset: Any) -> int | None:
    return len(dataset) if hasattr(dataset, "__len__") else None


def _checksum(targets: Any) -> int | None:
    return None if targets is None else zlib.crc32(_numbers(targets).tobytes())


def _some_inputs(dataset: Any) -> np.ndarray | None:
    """Some values of the first, the middle and the last sample, if they are in memory.

    A Dataset may return something new each time, such as a random transformation, and is not
    compared.
    """
    rows = rows_in_memory(dataset)
    if rows is None or not len(dataset):
        return None
    X, y, indices = rows
    places = np.array([0, len(dataset) // 2, len(dataset) - 1])
    places = places if indices is None else indices[places]
    inputs, _ = next(iter(Batches(X, y, indices=places)))
    numbers = _numbers(inputs)
    return numbers[:: len(numbers) // N_COMPARED + 1]


def _numbers(values: Any) -> np.ndarray:
    if isinstance(values, Mapping):
        return np.concatenate([_numbers(value) for value in values.values()])
    return torch.as_tensor(values).detach().cpu().double().numpy().ravel()


def check_batch_norm(criterion: Any, n_rows: int, n_processes: int) -> None:
    """Raise a ValueError if BatchNorm of a process would see single samples."""
    least = shard_sizes(n_rows, n_processes)[-1]
    if least >= 2 and criterion.has_mixing and criterion.has_penalty and not criterion.single_pass:
        n_clean = share_size(n_rows, criterion.penalty_fraction, 2)
        least = shard_sizes(n_clean, n_processes)[-1]
    if least < 2:
        raise ValueError(
            f"Got batches of {n_rows} samples for {n_processes} processes with "
            f"penalty_fraction={criterion.penalty_fraction}, but expected at least two samples per "
            f"process and pass for a module with BatchNorm; increase batch_size."
        )


def check_supported(net: Any) -> None:
    """Raise a ValueError for settings that several processes do not support."""
    criterion = net.criterion_
    if criterion.mix_at == "hidden" and criterion.has_penalty and criterion.penalty != "logit":
        raise ValueError(
            f"Got penalty={criterion.penalty!r} with mix_at='hidden' in "
            f"{net.accelerator.num_processes} processes, but expected penalty='logit' or "
            f"mix_at='input', since no process knows the mean of all hidden states."
        )
    if criterion.has_penalty and criterion.penalty_order == 2:
        raise ValueError(
            f"Got penalty_order=2 in {net.accelerator.num_processes} processes, but expected "
            f"penalty_order=1, since a partner may be in another process."
        )
    if overrides(net, "infer"):
        raise ValueError(
            f"Got an infer of {type(net).__name__} in {net.accelerator.num_processes} processes, "
            f"but expected none, since each process runs the module on its shard without infer."
        )
    for name, callback in net.callbacks_:
        is_scoring = isinstance(callback, (EpochScoring, BatchScoring))
        if is_scoring and callback.on_train and callback.use_caching:
            raise ValueError(
                f"Got the callback {name} with on_train=True and use_caching=True, but expected "
                f"use_caching=False, since each process predicts only its shard of a batch."
            )
