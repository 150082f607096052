"""The networks of an estimator: what is saved of them, and how they are rebuilt."""

import copy
import functools
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook

from mixupe_sklearn._estimators.base import BaseMixupE
from mixupe_sklearn._net.callbacks import user_callbacks
from mixupe_sklearn._net.net import make_net, module_arguments, set_head
from mixupe_sklearn._persistence.allowed_types import is_known, name_of
from mixupe_sklearn._runtime.torch_state import alone, seeded
from mixupe_sklearn._training.config import of_member
from mixupe_sklearn._utils.parameter_rules import is_same
from mixupe_sklearn._utils.warnings import warn_user

# Parameters of a net that training set.
_NUMBERS = ("lr", "batch_size", "max_epochs")
# Number of values that any file may allocate.
SMALL = 2**20


def state_of(estimator: BaseMixupE, keep_training: bool) -> dict[str, Any]:
    """What is saved of a fitted estimator beyond plain attributes."""
    fixed = estimator._fixed.items()
    # Parameters of the first fit that changed since. The others are restored as the same objects.
    changed = {name: value for name, value in fixed if not is_same(getattr(estimator, name), value)}
    nets = [_state_of_net(net, keep_training) for net in estimator.nets_]
    return {"nets_": nets, "_fixed": changed}


def _state_of_net(net: Any, keep_training: bool) -> dict[str, Any]:
    kept = {name: getattr(net, name) for name in _NUMBERS}
    kept |= {
        "arguments": net.get_params_for("module"),
        "weights": dict(net.module_.state_dict()),
        "head": net.criterion_.head,
        "work": net._work,
        "history": [dict(row) for row in net.history],
    }
    if hasattr(net, "classes_inferred_"):
        kept["classes"] = net.classes_inferred_
    if keep_training:
        kept["optimizer"] = net.optimizer_.state_dict()
        kept["callbacks"] = [callback for _, callback in user_callbacks(net)]
    return kept


def restore(
    estimator: BaseMixupE, kept: list[dict[str, Any]], device: str | None, trusted: Collection[Any]
) -> None:
    """Build the networks of an estimator that has all its other attributes."""
    names = estimator._fixed_names
    now = {name: copy.copy(getattr(estimator, name)) for name in names}
    estimator._fixed = now | estimator._fixed
    if device is not None:
        estimator.device = estimator._fixed["device"] = device
    try:
        where = estimator._resolved_device()
    except ValueError as error:
        warn_user(f"{error} The model was loaded onto the CPU; it can predict there.")
        where = torch.device("cpu")
    n_streams, n_members = len(estimator._streams), estimator._fixed.get("n_members", 1)
    if not (len(kept) == n_streams == n_members and n_members >= 1):
        raise ValueError(f"has {len(kept)} networks and {n_streams} streams for {n_members}")
    with seeded(0, where), alone(0, where):  # initial weights are drawn and then overwritten
        estimator.nets_ = [_build(estimator, own, n, where, trusted) for n, own in enumerate(kept)]
    estimator.net_ = estimator.nets_[0]


def _build(
    estimator: BaseMixupE,
    kept: Mapping[str, Any],
    number: int,
    device: torch.device,
    trusted: Collection[Any],
) -> Any:
    # The estimator as it was when its net was built: parameters may have changed since.
    before: Any = copy.copy(estimator)
    vars(before).update(estimator._fixed)
    settings = of_member(before._settings(), number) | {"module_params": kept["arguments"]}
    _check_module(estimator, settings, kept["weights"], trusted)
    streams = estimator._streams[number]
    net = make_net(
        estimator._net_class,
        settings,
        estimator._modules,
        widths={},
        order_rng=streams.order,
        mixing_rng=streams.mixing,
        device=device,
    )
    net.module_.load_state_dict(kept["weights"])
    for name in _NUMBERS:
        setattr(net, name, kept[name])
    set_head(net, kept["head"])
    if hasattr(estimator, "_equip"):
        estimator._equip(net)
    if kept["work"] is not None:
        net._work = kept["work"]
    if "classes" in kept:
        net.classes_inferred_ = kept["classes"]
    net.history.extend(kept["history"])
    if "optimizer" in kept:
        _check_optimizer(net, kept["optimizer"])
        net.optimizer_.load_state_dict(kept["optimizer"])
        for (_, callback), own in zip(user_callbacks(net), kept["callbacks"], strict=True):
            vars(callback).clear()
            vars(callback).update(vars(own))
    return net


def _check_module(
    estimator: BaseMixupE,
    settings: Mapping[str, Any],
    weights: Mapping[str, torch.Tensor],
    trusted: Collection[Any],
) -> None:
    """Build a known module on the meta device first: it must not need more than the file has."""
    module = settings["module"]
    module = estimator._modules[module] if isinstance(module, str) else module
    made_by = module
    while isinstance(made_by, functools.partial):
        made_by = made_by.func
    if made_by in trusted or not is_known(name_of(made_by)):
        return  # the user trusts it
    if not (isinstance(made_by, type) and issubclass(made_by, torch.nn.Module)):
        raise ValueError(f"has {name_of(made_by)!r} for a module")
    arguments = module_arguments(module, {}, settings["module_params"])
    n_values = sum(value.numel() for value in weights.values())
    if _largest(arguments) > max(n_values, SMALL):
        raise ValueError("has arguments of its module that exceed the size of its weights")
    with torch.device("meta"), at_most(len(weights)):
        made = module(**arguments)
    wanted = {name: (value.shape, value.dtype) for name, value in made.state_dict().items()}
    if wanted != {name: (value.shape, value.dtype) for name, value in weights.items()}:
        raise ValueError(f"has weights that do not match a {made_by.__name__}")
    # Files do not hold some buffers, which the module creates itself.
    if sum(value.numel() for value in made.buffers()) > n_values + SMALL:
        raise ValueError(f"has a {made_by.__name__} that needs more memory than its weights")


def _largest(value: Any) -> float:
    """The largest number in nested arguments."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return max(map(_largest, value), default=0)
    return abs(value) if isinstance(value, (int, float)) else 0


@contextmanager
def at_most(n_parameters: int) -> Iterator[None]:
    """Raise a ValueError if this thread creates modules with more parameters."""
    thread, count = threading.get_ident(), 0

    def hook(*_: Any) -> None:
        nonlocal count
        count += threading.get_ident() == thread
        if count > n_parameters:
            raise ValueError("has fewer weights than its module")

    handle = register_module_parameter_registration_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def _check_optimizer(net: Any, state: Mapping[str, Any]) -> None:
    """Raise if the state of the optimizer has other shapes than the weights: kernels rely on it."""
    if not is_known(name_of(type(net.optimizer_))):
        return
    weights = [weight for group in net.optimizer_.param_groups for weight in group["params"]]
    for number, values in state["state"].items():
        weight = weights[number]
        for value in values.values():
            has_shape = isinstance(value, torch.Tensor) and value.shape == weight.shape
            is_like = has_shape and value.dtype == weight.dtype
            if isinstance(value, torch.Tensor) and value.numel() > 1 and not is_like:
                raise ValueError("has an optimizer state with other shapes than the weights")
