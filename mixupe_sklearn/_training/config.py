"""Parameters of a training: their rules, presets, the share of each member, length and rates."""

import difflib
import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from mixupe_sklearn._method.criterion import METHOD_RULES
from mixupe_sklearn._utils.parameter_rules import FLAG, Choice, Kind, Number, Rule, check_rules
from mixupe_sklearn.modules import MLP

MODULES: dict[str, Callable[..., torch.nn.Module]] = {
    "mlp": MLP,
    "mlp-gelu": functools.partial(MLP, activation="gelu"),
    "mlp-tabular": functools.partial(
        MLP, d_hidden=(128, 128, 128), activation="gelu", input_scale=True
    ),
}
OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "nadam": torch.optim.NAdam,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
}
SCHEDULES = ("constant", "cosine", "onecycle")
TRAINING_RULES: dict[str, Rule] = {
    "n_members": Number("an integer >= 1", low=1, integer=True),
    "lr": Number("a number > 0", open_low=True),
    "lr_schedule": Choice(SCHEDULES),
    "weight_decay": Number("a number >= 0"),
    "max_epochs": Number("an integer >= 1", low=1, integer=True),
    "min_steps": Number("an integer >= 0", integer=True),
    "batch_size": Number("an integer >= 1", low=1, integer=True),
    "early_stopping": FLAG,
    "validation_fraction": Number("a number above 0 and below 1", high=1, open_low=True),
    "n_iter_no_change": Number("an integer >= 1", low=1, integer=True),
    "tol": Number("a number >= 0"),
    "ema_decay": Number(
        "a number above 0 and below 1, or None", high=1, open_low=True, or_none=True
    ),
    "time_limit": Number("a number of seconds > 0, or None", open_low=True, or_none=True),
    "warm_start": FLAG,
    # Above this number, the thread library ends the process where it cannot start the threads.
    "n_threads": Number(
        "an integer from 1 to 1024 or None", low=1, high=1025, integer=True, or_none=True
    ),
    "compile": FLAG,
    "scale_inputs": FLAG,
    "module_params": Kind("a dict or None", (Mapping,), or_none=True),
    "optimizer_params": Kind("a dict or None", (Mapping,), or_none=True),
    "callbacks": Kind("a list of skorch callbacks or None", (list, tuple), or_none=True),
    "verbose": Kind("an integer", (int, np.integer)),
}
# Parameters of the estimators for tables.
PARAMETERS = (
    *(*METHOD_RULES, *TRAINING_RULES),
    *("module", "optimizer", "class_weight", "device", "random_state"),
)
# Parameters that cannot change while a network continues training.
FIXED = (
    *("module", "module_params", "scale_inputs", "optimizer", "optimizer_params", "callbacks"),
    *("device", "n_members"),
)
# Parameters that accept several values, which the members take in turn.
BY_MEMBER = ("alpha", "eta")
# Of "onecycle", as in torch: the fraction of steps that rise, and the divisors of the first and the
# last rate.
RISE, FIRST, LAST = 0.3, 25.0, 1e4

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {
        "method": "mixupe",
        "penalty": "logit",
        "penalty_order": 1,
        "alpha": 0.05,
        "beta": None,
        "eta": 1.0,
        "penalty_fraction": 1.0,
        "lam_per": "batch",
        "mix_at": "input",
        "n_members": 1,
        "module": "mlp",
        "module_params": None,  # two hidden layers of 128 with ReLU
        "scale_inputs": False,
        "optimizer": "adam",
        "lr": 0.001,
        "lr_schedule": "constant",
        "weight_decay": 0.0,
        "max_epochs": 25,
        "min_steps": 0,
        "batch_size": 100,
        "early_stopping": False,
        "validation_fraction": 0.1,
        "n_iter_no_change": 10,
        "tol": 1e-4,
        "ema_decay": None,
    },
    # What differs from the defaults.
    "fast": {
        **{"n_members": 1, "alpha": 0.1, "validation_fraction": 0.1},
        **{"max_epochs": 15, "min_steps": 300, "n_iter_no_change": 10},
    },
    "best": {"n_members": 16, "max_epochs": 100, "min_steps": 3000, "n_iter_no_change": 40},
}


def preset(name: str, **overrides: Any) -> dict[str, Any]:
    """Return the parameters of an estimator by the name of a preset.

    Parameters
    ----------
    name : {"paper", "fast", "best"}
        ``"paper"`` is the network and the training of the paper's tabular experiments: one network
        of 128-128, Adam with 0.001, batches of 100, 25 epochs. The paper searches ``alpha`` and
        ``eta`` for each dataset; the preset has the pair of its grid with the best result on the
        validation samples of its datasets. Its inputs are those of
        ``make_preprocessor(scaling="standard", n_bins=0)``.
        ``"fast"`` is a single network with the default method and a short training, ``"best"`` an
        ensemble of sixteen with a long one. Both replace some defaults and leave the others.
    **overrides
        Parameters of :class:`MixupEClassifier` or :class:`MixupERegressor` that replace or extend
        those of the preset.

    Returns
    -------
    params : dict
        A new dict.

    Examples
    --------
    >>> from mixupe_sklearn import MixupEClassifier, preset
    >>> classifier = MixupEClassifier(**preset("paper", alpha=0.2, random_state=0))
    >>> classifier.alpha, classifier.max_epochs
    (0.2, 25)
    >>> preset("paper", epochs=10)
    Traceback (most recent call last):
        ...
    ValueError: Got the parameter 'epochs', but expected a parameter of MixupEClassifier or \
MixupERegressor, such as 'max_epochs'.
    """
    check_rules({"name": name}, {"name": Choice(tuple(PRESETS))})
    unknown = next((key for key in overrides if key not in PARAMETERS), None)
    if unknown is not None:
        nearest = difflib.get_close_matches(unknown, PARAMETERS, n=1, cutoff=0.0)[0]
        raise ValueError(
            f"Got the parameter {unknown!r}, but expected a parameter of MixupEClassifier or "
            f"MixupERegressor, such as {nearest!r}."
        )
    return PRESETS[name] | overrides


def of_member(settings: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return the settings of one member.

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
    """Return the number of different pairs of ``alpha`` and ``eta`` among the members.

    Examples
    --------
    >>> n_groups({"alpha": (0.1, 0.5), "eta": 1.0, "n_members": 8})
    2
    """
    values = (settings[name] for name in BY_MEMBER)
    n_values = math.lcm(*(len(value) for value in values if isinstance(value, (tuple, list))))
    return min(n_values, settings["n_members"])


def n_epochs_for(max_epochs: int, min_steps: int, n_rows: int, batch_size: int) -> int:
    """Return the number of epochs: more than ``max_epochs`` where ``min_steps`` asks for it.

    Examples
    --------
    >>> n_epochs_for(25, min_steps=0, n_rows=80, batch_size=100)
    25
    >>> n_epochs_for(25, min_steps=1000, n_rows=450, batch_size=100)
    200
    """
    return max(max_epochs, math.ceil(min_steps / math.ceil(n_rows / batch_size)))


def rate_factors(schedule: str, n_steps: int) -> list[float] | None:
    """Return the factor of the learning rate at each step; None for a constant rate.

    Parameters
    ----------
    schedule : {"constant", "cosine", "onecycle"}
        ``"cosine"`` falls along half a cosine to zero. ``"onecycle"`` rises first and then falls.
        Both follow torch's schedulers of these names.
    n_steps : int
        Number of steps.

    Returns
    -------
    factors : list of float or None
        One for each step.

    Examples
    --------
    >>> [round(factor, 3) for factor in rate_factors("cosine", 4)]
    [1.0, 0.854, 0.5, 0.146]
    >>> rate_factors("constant", 4) is None
    True
    """
    if schedule == "constant":
        return None
    steps = np.arange(n_steps)
    if schedule == "cosine":
        return _half_cosine(steps / n_steps).tolist()
    peak, last = RISE * n_steps - 1, n_steps - 1
    up = 1 - _half_cosine(steps / peak) if peak > 0 else np.ones(n_steps)
    down = _half_cosine((steps - peak) / (last - peak))
    rising = 1 / FIRST + (1 - 1 / FIRST) * up
    falling = 1 / (FIRST * LAST) + (1 - 1 / (FIRST * LAST)) * down
    return np.where(steps <= peak, rising, falling).tolist()


def _half_cosine(share: np.ndarray) -> np.ndarray:
    """1 at a share of 0, and 0 at a share of 1."""
    return 0.5 * (1 + np.cos(math.pi * share))


def check_settings(
    settings: Mapping[str, Any], modules: Mapping[str, Callable[..., torch.nn.Module]]
) -> None:
    """Raise one sentence for the first parameter with a wrong value."""
    check_rules(settings, TRAINING_RULES)
    _check_values(settings)
    check_rules(of_member(settings, 0), METHOD_RULES)
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


def _check_values(settings: Mapping[str, Any]) -> None:
    """Check all values of ``alpha`` and ``eta``, also those that no member takes."""
    for name in BY_MEMBER:
        values = settings[name] if isinstance(settings[name], (tuple, list)) else [settings[name]]
        if not len(values):
            raise ValueError(
                f"Got {name}={settings[name]!r}, but expected a number >= 0, or several of them."
            )
        for value in values:
            check_rules({name: value}, {name: METHOD_RULES[name]})
