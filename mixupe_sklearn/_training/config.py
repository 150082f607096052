"""Parameters of an estimator: what they may be, and what each member gets of them."""

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from mixupe_sklearn._method.criterion import METHOD_RULES
from mixupe_sklearn._net.callbacks import is_schedule
from mixupe_sklearn._training.lr_schedule import SCHEDULES
from mixupe_sklearn._utils.parameter_rules import FLAG, Choice, Kind, Number, Rule, check_rules
from mixupe_sklearn.modules import MLP

MODULES: dict[str, Callable[..., torch.nn.Module]] = {
    "mlp": MLP,
    "mlp-gelu": functools.partial(MLP, activation="gelu"),
}
OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "nadam": torch.optim.NAdam,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
}
TRAINING_RULES: dict[str, Rule] = {
    "n_members": Number("a whole number >= 1", low=1, integer=True),
    "lr": Number("a number > 0", open_low=True),
    "lr_schedule": Choice(SCHEDULES),
    "weight_decay": Number("a number >= 0"),
    "max_epochs": Number("a whole number >= 1", low=1, integer=True),
    "min_steps": Number("a whole number >= 0", integer=True),
    "batch_size": Number("a whole number >= 1", low=1, integer=True),
    "early_stopping": FLAG,
    "validation_fraction": Number("a number above 0 and below 1", high=1, open_low=True),
    "n_iter_no_change": Number("a whole number >= 1", low=1, integer=True),
    "tol": Number("a number >= 0"),
    "warm_start": FLAG,
    # Beyond, the library that runs them ends the process where it cannot have so many.
    "n_threads": Number(
        "a whole number from 1 to 1024 or None", low=1, high=1025, integer=True, or_none=True
    ),
    "compile": FLAG,
    "module_params": Kind("a dict or None", (Mapping,), or_none=True),
    "optimizer_params": Kind("a dict or None", (Mapping,), or_none=True),
    "callbacks": Kind("a list of skorch callbacks or None", (list, tuple), or_none=True),
    "verbose": Kind("a whole number", (int, np.integer)),
}
# Parameters that a network cannot change while it goes on.
FIXED = (
    *("module", "module_params", "optimizer", "optimizer_params", "callbacks", "device"),
    "n_members",
)
# Parameters that may have several values, which members take in turn.
BY_MEMBER = ("alpha", "eta")


def of_member(settings: Mapping[str, Any], number: int) -> dict[str, Any]:
    """The settings of one member.

    Examples
    --------
    >>> of_member({"alpha": (0.1, 0.5), "eta": 1.0}, 3)
    {'alpha': 0.5, 'eta': 1.0}
    """
    own = dict(settings)
    for name in BY_MEMBER:
        if isinstance(own[name], (tuple, list)):
            own[name] = own[name][number % len(own[name])]
    return own


def n_groups(settings: Mapping[str, Any]) -> int:
    """How many different pairs of ``alpha`` and ``eta`` the members have.

    Examples
    --------
    >>> n_teams({"alpha": (0.1, 0.5), "eta": 1.0, "n_members": 8})
    2
    """
    values = (settings[name] for name in BY_MEMBER)
    n_values = math.lcm(*(len(value) for value in values if isinstance(value, (tuple, list))))
    return min(n_values, settings["n_members"])


def _check_values(settings: Mapping[str, Any]) -> None:
    """Check all values, also those for which there are too few members."""
    for name in BY_MEMBER:
        values = settings[name] if isinstance(settings[name], (tuple, list)) else [settings[name]]
        if not len(values):
            raise ValueError(
                f"Got {name}={settings[name]!r}, but expected a number >= 0, or several of them."
            )
        for value in values:
            check_rules({name: value}, {name: METHOD_RULES[name]})


def check_settings(
    settings: Mapping[str, Any], modules: Mapping[str, Callable[..., torch.nn.Module]]
) -> None:
    """Raise one sentence for the first parameter that is not what it should be."""
    check_rules(settings, TRAINING_RULES)
    _check_values(settings)
    check_rules(of_member(settings, 0), METHOD_RULES)
    _check_schedule(settings)
    module, optimizer = settings["module"], settings["optimizer"]
    if isinstance(module, str):
        check_rules(settings, {"module": Choice(tuple(modules))})
    elif isinstance(module, torch.nn.Module) or not callable(module):
        raise ValueError(
            f"Got module={type(module).__name__}(...), but expected a name, a module class, or a "
            f"function that returns a new module."
        )
    if isinstance(optimizer, str):
        check_rules(settings, {"optimizer": Choice(tuple(OPTIMIZERS))})
    elif not (inspect.isclass(optimizer) and issubclass(optimizer, torch.optim.Optimizer)):
        raise ValueError(
            f"Got optimizer={optimizer!r}, but expected a torch optimizer class or one of the "
            f"names {', '.join(map(repr, OPTIMIZERS))}."
        )


def _check_schedule(settings: Mapping[str, Any]) -> None:
    if settings["lr_schedule"] != "constant" and any(map(is_schedule, settings["callbacks"] or [])):
        raise ValueError(
            f"Got lr_schedule={settings['lr_schedule']!r} and a schedule among the callbacks, but "
            f"expected one of them: set lr_schedule='constant'."
        )
