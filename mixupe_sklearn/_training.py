"""From an estimator's parameters and rows to a trained net, and from there to logits."""

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mixupe_sklearn._callbacks import EpochBar, EpochHook, Stopper
from mixupe_sklearn._checks import FLAG, Kind, Number, Rule, check_rules, pick
from mixupe_sklearn._criterion import METHOD_RULES
from mixupe_sklearn._forward import as_logits
from mixupe_sklearn._hardware import few_threads
from mixupe_sklearn._inputs import Rows, centred
from mixupe_sklearn._net import has_batch_norm, validation_split
from mixupe_sklearn.modules import MLP

MODULES: dict[str, Callable[..., torch.nn.Module]] = {"mlp": MLP}
OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "nadam": torch.optim.NAdam,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
}
TRAINING_RULES: dict[str, Rule] = {
    "lr": Number("a number > 0", open_low=True),
    "weight_decay": Number("a number >= 0"),
    "max_epochs": Number("a whole number >= 1", low=1, integer=True),
    "batch_size": Number("a whole number >= 1", low=1, integer=True),
    "early_stopping": FLAG,
    "validation_fraction": Number("a number above 0 and below 1", high=1, open_low=True),
    "n_iter_no_change": Number("a whole number >= 1", low=1, integer=True),
    "tol": Number("a number >= 0"),
    "warm_start": FLAG,
    "module_params": Kind("a dict or None", (Mapping,), or_none=True),
    "optimizer_params": Kind("a dict or None", (Mapping,), or_none=True),
    "callbacks": Kind("a list of skorch callbacks or None", (list, tuple), or_none=True),
    "verbose": Kind("a whole number", (int, np.integer)),
}
# Entries that a chunk of rows may have at predict: 16 MiB of float32.
CHUNK = 2**22
# Chunks are filled up to a multiple of this many rows: matrix products then run the same kernel for
# one row as for many, so that a row's prediction does not depend on its company.
ROW_BLOCK = 16


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raise one sentence for the first parameter that is not what it should be."""
    check_rules(settings, {**METHOD_RULES, **TRAINING_RULES})
    module, optimizer = settings["module"], settings["optimizer"]
    if isinstance(module, str):
        pick("module", module, MODULES)
    elif isinstance(module, torch.nn.Module) or not callable(module):
        raise ValueError(
            f"Got module={type(module).__name__}(...), but expected a name, a module class, or a "
            f"function that returns a new module."
        )
    if isinstance(optimizer, str):
        pick("optimizer", optimizer, OPTIMIZERS)
    elif not (inspect.isclass(optimizer) and issubclass(optimizer, torch.optim.Optimizer)):
        raise ValueError(
            f"Got optimizer={optimizer!r}, but expected a torch optimizer class or one of the "
            f"names {', '.join(map(repr, OPTIMIZERS))}."
        )


def module_arguments(
    module: Callable[..., Any], n_features: int, n_outputs: int, module_params: Mapping | None
) -> dict[str, Any]:
    """The module's own parameters, and the two widths if it has arguments of these names."""
    try:
        names = set(inspect.signature(module).parameters)
    except (TypeError, ValueError):
        names = set()
    widths = {"n_features": n_features, "n_outputs": n_outputs}
    known = {name: width for name, width in widths.items() if name in names}
    return {**known, **(module_params or {})}


def make_net(
    net_class: Any,
    settings: Mapping[str, Any],
    *,
    n_features: int,
    n_outputs: int,
    order_rng: np.random.Generator,
    mixing_rng: np.random.Generator,
    device: torch.device,
) -> Any:
    """Compose and initialise the skorch net; its first weights come from torch's generator."""
    module, optimizer = settings["module"], settings["optimizer"]
    module = MODULES[module] if isinstance(module, str) else module
    optimizer = OPTIMIZERS[optimizer] if isinstance(optimizer, str) else optimizer
    parts = {
        "module": module_arguments(module, n_features, n_outputs, settings["module_params"]),
        "criterion": {name: settings[name] for name in METHOD_RULES} | {"random_state": mixing_rng},
        "optimizer": {
            "weight_decay": settings["weight_decay"],
            **(settings["optimizer_params"] or {}),
        },
        "iterator_train": {"random_state": order_rng},
    }
    dunder = {f"{part}__{key}": value for part in parts for key, value in parts[part].items()}
    net = net_class(
        module,
        optimizer=optimizer,
        lr=settings["lr"],
        max_epochs=settings["max_epochs"],
        batch_size=settings["batch_size"],
        train_split=None,
        callbacks=_make_callbacks(settings),
        verbose=int(settings["verbose"] > 1),
        device=str(device),
        **dunder,
    )
    return net.initialize()


def _make_callbacks(settings: Mapping[str, Any]) -> list[Any]:
    callbacks: list[Any] = [("epoch_hook", EpochHook())]
    if settings["early_stopping"]:
        callbacks.append(("stopper", Stopper(settings["n_iter_no_change"], settings["tol"])))
    if settings["verbose"] == 1:
        callbacks.append(("epoch_bar", EpochBar(settings["max_epochs"])))
    # A copy: skorch writes into callbacks, and a parameter belongs to the user.
    return callbacks + copy.deepcopy(list(settings["callbacks"] or []))


def float_type(net: Any) -> torch.dtype:
    """The floating type that the module computes in: float32, unless the user's module differs."""
    types = (parameter.dtype for parameter in net.module_.parameters())
    return next((dtype for dtype in types if dtype.is_floating_point), torch.float32)


def set_head(net: Any, head: str) -> None:
    """Tell the criterion what the logits mean, without making it anew."""
    net.criterion__head = net.criterion_.head = head


def n_module_outputs(net: Any, X: Any, X_mean: np.ndarray) -> int:
    """Run the new module on two rows to learn how wide its output is."""
    return int(logits_of(net, X[:2], X_mean).shape[1])


def train_net(
    net: Any,
    train: Rows,
    valid: Rows | None,
    X_mean: np.ndarray,
    *,
    epochs: int,
    begin: Callable[[], Any],
    end: Callable[[], Any],
) -> bool:
    """Train for some epochs, calling two functions around each; return whether all were run.

    A stop that was asked for (early stopping, a callback of scikit-learn) counts as complete.
    """
    if has_batch_norm(net.module_) and min(train.X.shape[0], net.batch_size) < 2:
        raise ValueError(
            f"Got batches of one row (n_samples={train.X.shape[0]}, batch_size={net.batch_size}), "
            f"but expected at least two rows a batch for a module with BatchNorm."
        )
    callbacks = dict(net.callbacks_)
    hook = callbacks["epoch_hook"]
    n_before = len(net.history)
    try:
        hook.begin, hook.end = begin, end
        if valid is not None:
            net.train_split = validation_split(*_as_tensors(net, valid, X_mean))
        with few_threads(net.module_):
            X, y, weight = _as_tensors(net, train, X_mean)
            net.partial_fit(X, y, sample_weight=weight, epochs=epochs)
    finally:
        # The net keeps neither the data nor functions that know the whole estimator.
        net.train_split = None
        hook.begin, hook.end = EpochHook().begin, EpochHook().end
        _forget_batches(net)
    was_stopped = any(getattr(callback, "has_stopped_", False) for callback in callbacks.values())
    return was_stopped or len(net.history) - n_before == epochs


def _as_tensors(net: Any, rows: Rows, X_mean: np.ndarray) -> tuple[Any, Tensor, Tensor | None]:
    dtype = float_type(net)
    y = torch.from_numpy(rows.targets)
    weight = None if rows.weight is None else torch.as_tensor(rows.weight, dtype=dtype)
    return centred(rows.X, X_mean, dtype), y.to(dtype) if y.is_floating_point() else y, weight


def _forget_batches(net: Any) -> None:
    """Drop per-batch records, which grow without bound, and an epoch that was not finished."""
    if len(net.history) and "train_loss" not in net.history[-1]:
        net.history.pop()
    for row in net.history:
        row["batches"] = []


def logits_of(net: Any, X: Any, X_mean: np.ndarray) -> Tensor:
    """Logits of raw rows in float64, a chunk at a time."""
    module, dtype, device = net.module_, float_type(net), torch.device(net.device)
    if module.training:
        module.eval()
    n_samples, n_features = X.shape
    size = max(ROW_BLOCK, min(8192, CHUNK // max(1, n_features)) // ROW_BLOCK * ROW_BLOCK)
    chunks = []
    with torch.inference_mode():
        for start in range(0, n_samples, size):
            rows = centred(X[start : start + size], X_mean, dtype)
            rows = rows if isinstance(rows, Tensor) else rows[:]
            n_rows = len(rows)
            rows = torch.nn.functional.pad(rows, (0, 0, 0, -n_rows % ROW_BLOCK))
            chunks.append(as_logits(module(rows.to(device)))[:n_rows].double().cpu())
    return torch.cat(chunks)
