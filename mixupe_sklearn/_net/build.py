"""Builds the nets of an estimator from its parameters, and trains a single net."""

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from skorch.helper import predefined_split
from torch import Tensor
from torch.utils.data import Dataset, Subset

from mixupe_sklearn._data.batches import make_dataset
from mixupe_sklearn._data.rows import Rows, Tensors
from mixupe_sklearn._method.criterion import METHOD_RULES
from mixupe_sklearn._method.forward import stages_of
from mixupe_sklearn._method.mixup import share_size
from mixupe_sklearn._net.net import EpochHook, Stopper, has_batch_norm, is_callback
from mixupe_sklearn._runtime.compile import compile_module
from mixupe_sklearn._runtime.device import drop_compiled, threads_for
from mixupe_sklearn._training.config import OPTIMIZERS, rate_factors
from mixupe_sklearn._utils.parameter_rules import is_same
from mixupe_sklearn._utils.warnings import warn_user

# Names of the callbacks in every net of an estimator.
STOPPER, HOOK = "mixupe_stopper", "mixupe_hook"


def _accepts(function: Callable[..., Any], name: str) -> bool:
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def module_arguments(
    module: Callable[..., Any], widths: Mapping[str, Any], module_params: Any
) -> dict:
    """Return the arguments of a module: the user's, and the widths that it has parameters for."""
    known = {name: width for name, width in widths.items() if _accepts(module, name)}
    given = module_params or {}
    _check_names(module, given, "module_params")
    n_features = widths.get("n_features")
    if n_features is not None and not is_same(given.get("n_features", n_features), n_features):
        raise ValueError(
            f"Got n_features={given['n_features']!r} in module_params, but expected "
            f"{n_features}, as in X: leave it out, since it is filled in."
        )
    return {**known, **given}


def _check_names(function: Callable[..., Any], given: Mapping[str, Any], name: str) -> None:
    """Raise one sentence where the signature of a function lacks an argument."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return
    known = [one.name for one in parameters]
    unknown = [key for key in given if key not in known]
    if unknown and not any(one.kind is one.VAR_KEYWORD for one in parameters):
        raise ValueError(
            f"Got {name} with {unknown[0]!r}, but expected arguments of {_name_of(function)}: "
            f"{', '.join(known)}."
        )


def _name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function; for a partial, that of the function inside."""
    function = getattr(function, "func", function)
    return getattr(function, "__name__", repr(function))


def _optimizer_arguments(optimizer: Any, settings: Mapping[str, Any]) -> dict:
    decay = {"weight_decay": settings["weight_decay"]}
    if not _accepts(optimizer, "weight_decay"):
        if settings["weight_decay"]:
            raise ValueError(
                f"Got weight_decay={settings['weight_decay']} with {optimizer.__name__}, but "
                f"expected 0, since that optimizer has none."
            )
        decay = {}
    given = settings["optimizer_params"] or {}
    own = {name: given[name] for name in given if name != "param_groups"}  # skorch reads these
    _check_names(optimizer, own, "optimizer_params")
    try:
        _take_a_step(optimizer, own)
    except Exception as error:  # torch fails on wrong values in many ways
        raise ValueError(
            f"Got optimizer_params={given!r}, but expected what {_name_of(optimizer)} takes: "
            f"{error}."
        ) from error
    return {**decay, **given}


def _take_a_step(optimizer: Any, arguments: Mapping[str, Any]) -> None:
    """Check the arguments of an optimizer by a step: some of them are only used there."""
    if not arguments or not issubclass(optimizer, tuple(OPTIMIZERS.values())):
        return  # other optimizers may need more than this step
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    optimizer([parameter], **arguments).step()


def make_net(
    net_class: Any,
    settings: Mapping[str, Any],
    modules: Mapping[str, Callable[..., torch.nn.Module]],
    *,
    widths: Mapping[str, Any],
    order_rng: np.random.Generator,
    mixing_rng: np.random.Generator,
    device: torch.device,
) -> Any:
    """Build and initialise the skorch net; its initial weights come from torch's generator."""
    module, optimizer = settings["module"], settings["optimizer"]
    module = modules[module] if isinstance(module, str) else module
    optimizer = OPTIMIZERS[optimizer] if isinstance(optimizer, str) else optimizer
    parts = {
        "module": module_arguments(module, widths, settings["module_params"]),
        "criterion": {name: settings[name] for name in METHOD_RULES} | {"random_state": mixing_rng},
        "optimizer": _optimizer_arguments(optimizer, settings),
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
        callbacks=_make_callbacks(settings["callbacks"]),
        verbose=0,
        device=str(device),
        **dunder,
    )
    net._keeps_batches = False
    try:
        return net.initialize()
    except (TypeError, ValueError, RuntimeError) as error:
        if "empty parameter list" in str(error):
            raise ValueError(
                f"Got module={settings['module']!r}, which has no parameters to train."
            ) from error
        is_own = not isinstance(settings["module"], str)
        if is_own or str(error).startswith("Got ") or "allocate" in str(error):  # too little memory
            raise
        raise ValueError(
            f"Got module_params={settings['module_params']!r}, but expected what "
            f"{_name_of(module)} takes: {error}."
        ) from error


def _make_callbacks(callbacks: Any) -> list[Any]:
    for callback in callbacks or []:
        if not is_callback(callback):
            raise ValueError(
                f"Got {callback!r} among the callbacks, but expected skorch callbacks, or pairs of "
                f"a name and a callback."
            )
    # Copies: skorch writes into callbacks, and parameters belong to the user. The hook is last,
    # since it may stop training.
    users = [_copy_of(callback) for callback in callbacks or []]
    return [(STOPPER, Stopper()), *users, (HOOK, EpochHook())]


def _copy_of(callback: Any) -> Any:
    try:
        return copy.deepcopy(callback)
    except TypeError as error:  # an open file, a thread, a connection
        name = type(callback[1] if isinstance(callback, tuple) else callback).__name__
        raise ValueError(
            f"Got a {name} among the callbacks that cannot be copied ({error}), but expected one "
            f"that opens what it needs in on_train_begin, since an estimator trains with copies."
        ) from error


def update_net(net: Any, settings: Mapping[str, Any]) -> None:
    """Apply parameters that changed since the last training of a net."""
    for name in METHOD_RULES:
        setattr(net.criterion_, name, settings[name])
        setattr(net, f"criterion__{name}", settings[name])
    net.batch_size = settings["batch_size"]
    changed = {}
    if settings["lr"] != net.lr:  # else a schedule may have changed it on purpose
        net.lr = changed["lr"] = settings["lr"]
    arguments = _optimizer_arguments(type(net.optimizer_), settings)
    if "weight_decay" in arguments:
        changed["weight_decay"] = arguments["weight_decay"]
    for group in net.optimizer_.param_groups:
        group.update(changed)


def set_head(net: Any, head: str) -> None:
    """Set the head of the criterion without a new criterion."""
    net.criterion__head = net.criterion_.head = head


def compile_net(net: Any, tensors: Tensors) -> None:
    """Compile the modules of a training step, after a trial with the first two samples."""
    module, criterion = net.module_, copy.deepcopy(net.criterion_)  # its draws are for training
    is_exact = criterion.penalty == "directional" or criterion.penalty_order == 2
    if criterion.has_penalty and is_exact:
        named = "penalty='directional'" if criterion.penalty_order == 1 else "penalty_order=2"
        warn_user(
            f"Got compile=True with {named}, whose second derivatives a compiled module does not "
            f"have; the module runs as it is."
        )
        return
    X, y = (few.to(torch.device(net.device)) for few in (first_rows(tensors[0]), tensors[1][:2]))
    X = net._prepared(X, training=True)
    # Mixing between stages calls them one by one.
    parts = stages_of(module) if criterion.mix_at == "hidden" else [module]
    compile_module(
        module,
        [part for part in parts if isinstance(part, torch.nn.Module)],
        lambda: criterion(module.train(), X, y).loss.backward(),
    )


def first_rows(X: Any) -> Any:
    """Return the first two samples, for a trial; those of a Dataset are read and stacked."""
    if not isinstance(X, Dataset):
        return X[:2]
    return torch.stack([X[number] for number in range(min(2, len(X)))])  # type: ignore[arg-type]


def rows_a_pass(net: Any, n_rows: int) -> int:
    """Return the rows of a full batch in one pass, the clean ones of the penalty included."""
    criterion, n_mixed = net.criterion_, min(net.batch_size, n_rows)
    if not (criterion.has_mixing and criterion.has_penalty and criterion.single_pass):
        return n_mixed
    return n_mixed + share_size(n_mixed, criterion.penalty_fraction)


def train_net(
    net: Any,
    train: Rows,
    tensors: Tensors,
    valid: Rows | None,
    valid_tensors: Tensors | None,
    settings: Mapping[str, Any],
    *,
    epochs: int,
    schedule: str,
    monitor: Any,
) -> bool:
    """Train a single net; return False after an interrupt.

    Parameters
    ----------
    net : MixupENet
        The initialised net.
    train : Rows
        The training samples.
    tensors : tuple
        Their inputs, targets and weights.
    valid : Rows or None
        The validation samples.
    valid_tensors : tuple or None
        Their inputs, targets and weights; None if they are a part of the training samples.
    settings : mapping
        Parameters of the estimator.
    epochs : int
        Number of epochs.
    schedule : str
        Schedule of the learning rate.
    monitor : EpochMonitor
        Called around each epoch. A stop that it asks for is no interrupt, nor is early stopping.
    """
    check_batches(net, train.n_rows)
    callbacks = dict(net.callbacks_)
    stopper, hook = callbacks[STOPPER], callbacks[HOOK]
    stopper.reset(
        is_active=settings["early_stopping"] and valid is not None,
        patience=settings["n_iter_no_change"],
        tol=settings["tol"],
    )
    hook.reset(monitor, stopper)
    net.verbose = int(settings["verbose"] > 1)
    n_before = len(net.history)
    undo = remember(net, is_new=not net.history and not net.optimizer_.state)
    try:
        n_rows = rows_a_pass(net, train.n_rows)
        with threads_for(net.module_, n_rows, settings["n_threads"], net._work):
            if settings["compile"]:
                compile_net(net, tensors)
            dataset, net.train_split = _datasets(train, tensors, valid, valid_tensors)
            n_steps = epochs * net.n_batches(dataset)
            net.set_schedule(rate_factors(schedule, n_steps))
            net.max_epochs = max(settings["max_epochs"], epochs)  # callbacks may use it
            net.partial_fit(dataset, None, epochs=epochs)
        check_weights(net)
        was_stopped = hook.has_stopped_
    except BaseException:
        undo()
        raise
    finally:
        # The net keeps neither the data nor the monitor, which holds the estimator.
        net.train_split = None
        net.set_schedule(None)
        drop_compiled(net.module_)
        hook.reset()
        stopper.best_weights_ = None
        was_cut = _forget_batches(net, n_before)
    is_short = was_cut or (len(net.history) - n_before < epochs and not settings["callbacks"])
    return was_stopped or not is_short


def check_batches(net: Any, n_rows: int) -> None:
    """Raise one sentence where BatchNorm would have to train on single samples."""
    if has_batch_norm(net.module_) and min(n_rows, net.batch_size) < 2:
        raise ValueError(
            f"Got batches of one sample (n_samples={n_rows}, batch_size={net.batch_size}), but "
            f"expected at least two samples per batch for a module with BatchNorm."
        )


def remember(net: Any, *, is_new: bool = False) -> Callable[[], None]:
    """Return a function that restores the current state of a net."""
    if is_new:
        return lambda: None  # a failed fit discards it
    parts = (net.module_, net.optimizer_)
    states = [copy.deepcopy(part.state_dict()) for part in parts]
    n_epochs = len(net.history)
    users = [callback for name, callback in net.callbacks_ if name not in (STOPPER, HOOK)]
    values = [_copied(vars(callback)) for callback in users]

    def undo() -> None:
        for part, state in zip(parts, states, strict=True):
            part.load_state_dict(state)
        for callback, before in zip(users, values, strict=True):
            vars(callback).clear()
            vars(callback).update(before)
        del net.history[n_epochs:]

    return undo


def _copied(values: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the attributes of a callback, with their tensors, which training writes into."""

    def copied(value: Any) -> Any:
        if isinstance(value, list):
            return [copied(item) for item in value]
        return value.clone() if isinstance(value, Tensor) else value

    return {name: copied(value) for name, value in values.items()}


def check_weights(net: Any) -> None:
    """Raise one sentence where training has left a weight that is not finite."""
    for name, parameter in net.module_.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            raise FloatingPointError(
                f"The weights of {name} became non-finite in the last step; lower lr or eta, or "
                f"scale the inputs."
            )


def _datasets(
    train: Rows, tensors: Tensors, valid: Rows | None, valid_tensors: Tensors | None
) -> tuple[Any, Any]:
    """Return the training samples as a dataset, and the split with the validation samples."""
    whole = make_dataset(*tensors)
    if valid is None:
        return whole, None
    if valid_tensors is not None:
        return whole, predefined_split(make_dataset(*valid_tensors))
    # Arrays, though Subset's type asks for a sequence: a list of many integers is large.
    held_out = Subset(whole, cast(Sequence[int], valid.index))
    return Subset(whole, cast(Sequence[int], train.index)), predefined_split(held_out)


def _forget_batches(net: Any, n_before: int) -> bool:
    """Drop per-batch records, which grow without bound; return whether an epoch is incomplete."""
    was_cut = len(net.history) > n_before and "train_loss" not in net.history[-1]
    if was_cut:
        net.history.pop()
    for row in net.history[n_before:]:
        row["batches"] = []
    return was_cut


def readable(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of an epoch as plain numbers, without skorch's own entries."""
    return {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in row.items()
        if name != "batches" and not name.endswith(("_best", "_batch_count"))
    }
