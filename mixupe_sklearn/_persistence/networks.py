"""The networks of an estimator: what is saved of them, and how they are rebuilt."""

import copy
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.nn.parameter import is_lazy

from mixupe_sklearn._engine.network import n_outputs_of
from mixupe_sklearn._estimators.base import BaseMixupE
from mixupe_sklearn._estimators.inputs import Labels
from mixupe_sklearn._graphs.node_features import NodeInputs
from mixupe_sklearn._method.formulas import HEADS
from mixupe_sklearn._net.callbacks import user_callbacks
from mixupe_sklearn._net.net import make_net, module_arguments, set_head
from mixupe_sklearn._persistence.schemas import SCHEMAS, name_of
from mixupe_sklearn._persistence.values import check_keys, rows_of, table_of
from mixupe_sklearn._runtime.torch_state import Streams, alone, seeded
from mixupe_sklearn._training.config import TRAINING_RULES, check_settings, of_member
from mixupe_sklearn._utils.parameter_rules import check_rules, is_same
from mixupe_sklearn._utils.warnings import warn_user

# Parameters of a net that training set.
_NUMBERS = ("lr", "batch_size", "max_epochs")
# State of torch's optimizers: tensors like the weight, and single numbers.
_MOMENTS = {
    *("exp_avg", "exp_avg_sq", "exp_inf", "max_exp_avg_sq", "momentum_buffer", "square_avg"),
    *("grad_avg", "acc_delta", "sum", "ax", "prev", "step_size"),
}
_SINGLE = {"step", "mu_product", "eta", "mu"}
# Numbers of a parameter group that schedules add.
_OF_SCHEDULES = {"initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum"}
# Number of values that any file may allocate.
SMALL = 2**20
# Parameters that a module may create beside those it keeps.
_SPARE = 16
_WORD = 2**64


def state_of(
    estimator: BaseMixupE, attributes: dict[str, Any], keep_training: bool
) -> dict[str, Any]:
    """The fitted attributes of an estimator as the schemas name them."""
    if "nets_" not in attributes:
        return attributes
    # Parameters of the first fit that changed since. The others are restored as the same objects.
    fixed = {
        name: value
        for name, value in attributes.pop("_fixed").items()
        if not is_same(getattr(estimator, name), value)
    }
    nets = [_state_of_net(net, keep_training) for net in attributes.pop("nets_")]
    for number, net in enumerate(nets):
        _check_saved(estimator, net["weights"], number)
    del attributes["net_"]  # the first of them
    attributes |= {"nets": nets, "fixed": fixed, "history_": table_of(estimator.history_)}
    attributes["streams"] = _words_of(attributes.pop("_streams"))
    if "_labels" in attributes:
        attributes["are_several"] = attributes.pop("_labels").are_several
    if "inputs_" in attributes:
        inputs = attributes.pop("inputs_")
        check_keys(inputs.known)
        attributes["inputs"] = {"kind": inputs.kind, "known": list(inputs.known)}
        attributes["inputs"]["n_given"] = inputs.n_given
    return attributes


def _check_saved(estimator: BaseMixupE, weights: Mapping[str, torch.Tensor], number: int) -> None:
    """Raise one sentence for a network that load would refuse."""
    try:
        check_module(estimator, weights, number)
    except Exception as error:  # the user's module may fail in any way on the meta device
        raise ValueError(
            f"Got a network that load cannot build again, since it {error}, but expected one with "
            f"finite weights whose module can be built on torch's meta device; try pickle."
        ) from error


def _state_of_net(net: Any, keep_training: bool) -> dict[str, Any]:
    kept = {name: getattr(net, name) for name in _NUMBERS}
    kept |= {
        "weights": dict(net.module_.state_dict()),
        "head": net.criterion_.head,
        "work": net._work,
        "history": table_of([_without_batches(row) for row in net.history]),
    }
    if hasattr(net, "classes_inferred_"):
        kept["classes"] = net.classes_inferred_
    if keep_training:
        weights = [weight for group in net.optimizer_.param_groups for weight in group["params"]]
        kept["state"] = [dict(net.optimizer_.state.get(weight, {})) for weight in weights]
        kept["groups"] = [
            {key: own for key, own in group.items() if _is_schedulable(own)}
            for group in net.optimizer_.param_groups
        ]
        kept["callbacks"] = [callback for _, callback in user_callbacks(net)]
    return kept


def _without_batches(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "batches"}


def _is_schedulable(value: Any) -> bool:
    values = value if isinstance(value, tuple) else (value,)
    return all(isinstance(own, (int, float)) and not isinstance(own, bool) for own in values)


def _words_of(streams: list[Streams]) -> np.ndarray:
    """The states of the generators as 64-bit words, (n_members, n_streams, 6)."""

    def words(rng: np.random.Generator) -> list[int]:
        state = rng.bit_generator.state
        parts = [divmod(state["state"][name], _WORD) for name in ("state", "inc")]
        return [*parts[0], *parts[1], state["has_uint32"], state["uinteger"]]

    return np.array([[words(rng) for rng in own] for own in streams], dtype=np.uint64)


def _streams_of(words: np.ndarray) -> list[Streams]:
    def generator(parts: list[int]) -> np.random.Generator:
        if parts[3] % 2 == 0:  # it may draw zeros for ever, and a rejection sampler never ends
            raise ValueError("has a generator with an even increment")
        rng: Any = np.random.PCG64(0)
        inner = {"state": parts[0] * _WORD + parts[1], "inc": parts[2] * _WORD + parts[3]}
        own = {"has_uint32": parts[4] % 2, "uinteger": parts[5] % 2**32}
        rng.state = {"bit_generator": "PCG64", "state": inner} | own
        return np.random.Generator(rng)

    return [Streams(*map(generator, own)) for own in words.tolist()]


def restore(estimator: BaseMixupE, fitted: dict[str, Any], device: str | None) -> None:
    """Set the fitted attributes of an estimator, and build its networks."""
    names = estimator._fixed_names
    kept, words, changed = (fitted.pop(name) for name in ("nets", "streams", "fixed"))
    if not set(changed) <= set(names):
        raise ValueError("has a changed parameter that is not fixed")
    _restore_data(estimator, fitted)
    estimator._streams = _streams_of(words)
    estimator._fixed = {name: copy.copy(getattr(estimator, name)) for name in names} | changed
    if device is not None:
        estimator.device = estimator._fixed["device"] = device
    try:
        where = estimator._resolved_device()
    except ValueError as error:
        warn_user(f"{error} The model was loaded onto the CPU; it can predict there.")
        where = torch.device("cpu")
    n_members = estimator._fixed.get("n_members", 1)
    if not (isinstance(kept, list) and len(kept) == len(words) == n_members >= 1):
        raise ValueError(f"has networks and streams for other than {n_members} members")
    if len(estimator.member_weights_) != n_members:
        raise ValueError("has weights for another number of members")
    with seeded(0, where), alone(0, where):  # initial weights are drawn and then overwritten
        estimator.nets_ = [_build(estimator, own, n, where) for n, own in enumerate(kept)]
    estimator.net_ = estimator.nets_[0]


def _restore_data(estimator: Any, fitted: dict[str, Any]) -> None:
    fitted["history_"] = rows_of(fitted["history_"])
    several = fitted.pop("are_several", None)
    if several is not None:
        classes = fitted["classes_"]
        if several and not np.array_equal(classes, np.arange(len(classes))):
            raise ValueError("has labels that are not the numbers of their columns")
        fitted["_labels"] = Labels(classes, several)
    if "inputs" in fitted:
        known = fitted["inputs"]["known"]
        check_keys(known)
        is_rising = fitted["inputs"]["kind"] != "degree" or known == sorted(known)
        fitted["inputs_"] = NodeInputs(**fitted.pop("inputs") | {"known": tuple(known)})
        if not is_rising or type(fitted["inputs_"].n_given) is not int:
            raise ValueError("has inputs of nodes in another order")
    if "shape_in_" in fitted and len(fitted["X_mean_"]) != fitted["shape_in_"][0]:
        raise ValueError("has a mean of other channels than the images")
    size = fitted.get("_known", {}).get("image_size")
    if size is not None and tuple(np.broadcast_to(size, 2)) != fitted["shape_in_"][1:]:
        raise ValueError("has a size of images other than that of their shape")
    vars(estimator).update(fitted)


def _at_first_fit(estimator: BaseMixupE, number: int) -> tuple[Any, dict[str, Any]]:
    """The estimator and its settings when its nets were built: parameters may have changed."""
    before: Any = copy.copy(estimator)
    vars(before).update(estimator._fixed)
    return before, of_member(before._settings(), number)


def _build(
    estimator: BaseMixupE,
    kept: Mapping[str, Any],
    number: int,
    device: torch.device,
) -> Any:
    before, settings = _at_first_fit(estimator, number)
    check_settings(before._settings(), estimator._modules)
    numbers = {name: kept[name] for name in _NUMBERS}
    check_rules(numbers, {name: TRAINING_RULES[name] for name in _NUMBERS})
    if kept["head"] not in HEADS or not (kept["work"] is None or type(kept["work"]) is int):
        raise ValueError("has a network with an unknown head")
    check_module(estimator, kept["weights"], number)
    streams = estimator._streams[number]
    net = make_net(
        estimator._net_class,
        settings,
        estimator._modules,
        widths=before._widths(),
        order_rng=streams.order,
        mixing_rng=streams.mixing,
        device=device,
    )
    net.module_.load_state_dict(kept["weights"])
    n_outputs = n_outputs_of(net.module_)
    if n_outputs is not None and estimator._head_for(n_outputs) != kept["head"]:
        raise ValueError(f"has a network of {n_outputs} outputs with the head {kept['head']!r}")
    for name, value in numbers.items():
        setattr(net, name, value)
    set_head(net, kept["head"])
    if hasattr(before, "_equip"):
        before._equip(net)
    if kept["work"] is not None:
        net._work = kept["work"]
    if "classes" in kept:
        net.classes_inferred_ = np.asarray(kept["classes"])
    net.history.extend({"batches": []} | row for row in rows_of(kept["history"]))
    if "state" in kept:
        _restore_optimizer(net.optimizer_, kept["state"], kept["groups"])
        _restore_callbacks(net, kept["callbacks"])
    return net


def check_module(estimator: BaseMixupE, weights: Mapping[str, torch.Tensor], number: int) -> None:
    """Build a module on the meta device first: it must not need more than the file has."""
    before, settings = _at_first_fit(estimator, number)
    module = settings["module"]
    module = estimator._modules[module] if isinstance(module, str) else module
    arguments = module_arguments(module, before._widths(), settings["module_params"])
    n_values = sum(value.numel() for value in weights.values())
    if _largest(arguments) > max(n_values, SMALL):
        raise ValueError("has arguments of its module that exceed the size of its weights")
    for name, value in weights.items():
        # Buffers may hold infinity, such as the mask of an attention.
        if value.is_floating_point() and bool(torch.isnan(value).any()):
            raise ValueError(f"has weights {name!r} that are not finite")
    with torch.device("meta"), at_most(2 * len(weights) + _SPARE):
        made = module(**arguments)
    state = made.state_dict()
    wanted = {name: None if is_lazy(own) else (own.shape, own.dtype) for name, own in state.items()}
    found = {name: (own.shape, own.dtype) for name, own in weights.items()}
    if wanted.keys() != found.keys() or any(
        own is not None and own != found[name] for name, own in wanted.items()
    ):
        raise ValueError(f"has weights that do not match a {type(made).__name__}")
    parameters = {name for name, _ in made.named_parameters()}
    for name in parameters & found.keys():
        if not bool(torch.isfinite(weights[name]).all()):
            raise ValueError(f"has weights {name!r} that are not finite")
    # Files do not hold some buffers, which the module creates itself.
    if sum(value.numel() for value in made.buffers() if not is_lazy(value)) > n_values + SMALL:
        raise ValueError(f"has a {type(made).__name__} that needs more memory than its weights")


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


def _restore_optimizer(optimizer: Any, kept: list[Any], groups: list[Any]) -> None:
    """Set the state of an optimizer; its kernels rely on the shapes and types."""
    is_torchs = name_of(type(optimizer)) in SCHEMAS
    whole = optimizer.state_dict()
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    for weight, values in zip(weights, kept, strict=True):
        for key, value in values.items():
            is_like = isinstance(value, torch.Tensor) and value.shape == weight.shape
            is_like = is_like and value.dtype == weight.dtype
            is_single = isinstance(value, torch.Tensor) and value.shape == ()
            is_right = is_like if key in _MOMENTS else is_single and key in _SINGLE
            if not is_torchs:
                is_right = is_like or is_single or value is None or _is_schedulable(value)
            if not is_right:
                raise ValueError("has an optimizer state with other shapes than the weights")
    whole["state"] = {number: values for number, values in enumerate(kept) if values}
    for group, own in zip(whole["param_groups"], groups, strict=True):
        for key, value in own.items():
            is_like = type(value) is type(group.get(key)) or key in _OF_SCHEDULES
            is_like = is_like or {type(value), type(group.get(key))} == {int, float}
            if not (is_like and _is_schedulable(value)):
                raise ValueError(f"has an optimizer with the number {key!r}")
        group.update(own)
    optimizer.load_state_dict(whole)


def _shapes_of(weights: Iterable[torch.Tensor]) -> list[Any]:
    return [(own.shape, own.is_floating_point()) for own in weights]


def _restore_callbacks(net: Any, kept: list[Any]) -> None:
    """Give the callbacks of a net the attributes of saved ones of the same types."""
    users = user_callbacks(net)
    weights = [*net.module_.parameters(), *net.module_.buffers()]
    shapes = _shapes_of(weights)
    for (name, callback), own in zip(users, kept, strict=True):
        if type(own) is not type(callback):
            raise ValueError(f"has a {type(own).__name__} in place of the callback {name!r}")
        rules = SCHEMAS[known].rules if (known := name_of(type(own))) in SCHEMAS else {}
        for key, value in vars(own).items():
            is_copy = rules.get(key) == "weights" and value is not None
            if is_copy and _shapes_of(value) != shapes:
                raise ValueError(f"has a callback {name!r} with other weights than the network")
        vars(callback).clear()
        vars(callback).update(vars(own))
