"""Search spaces: named ones, Optuna's distributions, and lists of values."""

import difflib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

from mixupe_sklearn._estimators.base import BaseMixupE
from mixupe_sklearn._utils.parameter_rules import is_same

# The grid of the paper's tabular experiments.
PAPER_GRID = {
    "alpha": [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0],
    "eta": [1e-4, 1e-3, 1e-2, 1e-1, 1.0],
}
# The parameters that each method uses (the penalty alone also scales with alpha).
METHOD_PARAMETERS = {
    "mixupe": ("alpha", "eta"),
    "erm+penalty": ("alpha", "eta"),
    "mixup": ("alpha",),
    "erm": (),
}
# Types that databases store; any other choice is stored by its name.
PLAIN = (bool, int, float, str, type(None))


@dataclass(frozen=True)
class Space:
    """Distributions by full parameter name, and the values of choices that are stored by name."""

    distributions: dict[str, BaseDistribution]
    named: dict[str, dict[str, Any]]

    @classmethod
    def of(cls, space: Mapping[str, Any]) -> "Space":
        """Turn lists of values into distributions; Optuna's distributions stay as they are."""
        distributions, named = {}, {}
        for name, given in space.items():
            if isinstance(given, BaseDistribution) and not hasattr(given, "choices"):
                distributions[name] = given
                continue
            values = _different(getattr(given, "choices", None) or _as_choices(name, given))
            if not _are_plain(values):
                named[name] = {_name_of(v, number): v for number, v in enumerate(values)}
                values = list(named[name])
            distributions[name] = CategoricalDistribution(values)
        return cls(distributions, named)

    @property
    def is_grid(self) -> bool:
        """Whether the space consists of lists only."""
        kinds = self.distributions.values()
        return all(isinstance(kind, CategoricalDistribution) for kind in kinds)

    @property
    def size(self) -> float:
        """Number of points."""
        return math.prod(map(len, self.grid.values())) if self.is_grid else math.inf

    @property
    def grid(self) -> dict[str, list[Any]]:
        """The choices of each parameter."""
        kinds = self.distributions.items()
        return {n: list(k.choices) for n, k in kinds if isinstance(k, CategoricalDistribution)}

    def decode(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters as the estimator takes them, in the order of the space."""
        return {
            name: self.named[name][params[name]] if name in self.named else params[name]
            for name in self.distributions
            if name in params
        }

    def place(self, params: Mapping[str, Any]) -> int:
        """The number of a point in a grid, in the order of GridSearchCV."""
        number = 0
        for name in sorted(self.grid):
            number = number * len(self.grid[name]) + self.grid[name].index(params[name])
        return number


def _different(values: Sequence[Any]) -> list[Any]:
    """Distinct values; numpy scalars become Python's."""
    found: list[Any] = []
    for value in values:
        plain = value.item() if isinstance(value, np.generic) else value
        if not any(type(plain) is type(other) and is_same(plain, other) for other in found):
            found.append(plain)
    return found


def _are_plain(values: Sequence[Any]) -> bool:
    """Whether Optuna can distinguish the values: 1, 1.0 and True are equal, NaN is not."""
    if not all(isinstance(value, PLAIN) and value == value for value in values):
        return False
    return len(set(values)) == len(values)


def _name_of(value: Any, number: int) -> str:
    """A name that is the same in every process."""
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    text = repr(value)
    return f"{type(value).__name__} {number}" if " at 0x" in text else text


def _as_choices(name: str, values: Any) -> list[Any]:
    # A tuple reads like a range, of which it would only try the two ends.
    is_list = isinstance(values, (Sequence, np.ndarray))
    if not is_list or isinstance(values, (str, bytes, tuple)) or len(values) == 0:
        raise ValueError(
            f"Got {name}={values!r} in the space, but expected a list of values such as "
            f"[0.01, 0.1, 1.0], or an Optuna distribution such as "
            f"FloatDistribution(0.01, 1.0, log=True)."
        )
    return list(values)


def resolve_space(space: Any, estimator: Any, prefix: str, core: Any) -> Space:
    """Turn the ``space`` parameter into a Space whose names the estimator has.

    ``core`` is the last step of the estimator, and ``prefix`` that of its parameters.
    """
    if isinstance(space, Mapping):
        check_names(space, estimator.get_params(deep=True))
        return Space.of(space)
    if space not in ("paper", "default"):
        raise ValueError(
            f"Got space={space!r}, but expected 'paper', 'default' or a dict of lists "
            f"or Optuna distributions."
        )
    if not isinstance(core, BaseMixupE):
        raise ValueError(
            f"Got space={space!r} for a {type(core).__name__}, but expected a dict "
            f"of its parameters."
        )
    return named_space(space, prefix, core.method)


def named_space(space: str, prefix: str, method: str) -> Space:
    """The paper's grid or the default ranges, for parameters with a prefix."""
    read = METHOD_PARAMETERS[method]
    if space == "paper":
        if not read:
            raise ValueError(
                f"Got space='paper' with method={method!r}, which uses neither alpha nor eta; "
                f"give a dict such as {{'{prefix}lr': [0.001, 0.01]}}."
            )
        return Space.of({prefix + name: PAPER_GRID[name] for name in read})
    ranges = {
        "alpha": FloatDistribution(0.01, 5.0, log=True),
        "eta": FloatDistribution(1e-4, 1.0, log=True),
        "lr": FloatDistribution(1e-4, 1e-2, log=True),
        "weight_decay": FloatDistribution(1e-7, 1e-2, log=True),
    }
    return Space.of({prefix + name: ranges[name] for name in (*read, "lr", "weight_decay")})


def check_names(space: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise if a space is empty or names an unknown parameter."""
    if not space:
        raise ValueError("Got an empty space, but expected at least one parameter to search over.")
    for name in space:
        if name not in known:
            # The step of a pipeline was forgotten, or a name is misspelled.
            inner = [other for other in known if other.endswith(f"__{name}")]
            alike = difflib.get_close_matches(str(name), list(known), cutoff=0.5)
            closest = list(dict.fromkeys([*inner, *alike]))[:3] or sorted(known)[:3]
            raise ValueError(
                f"Got the unknown parameter {name!r} in the space; the closest names are "
                f"{', '.join(map(repr, closest))}."
            )
