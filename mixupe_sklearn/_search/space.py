"""Search spaces: named ones, Optuna's distributions, and lists of values."""

import difflib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from sklearn.model_selection import ParameterGrid

from mixupe_sklearn._estimators.base import BaseMixupE
from mixupe_sklearn._search.digest import digest

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
# Types whose values count as equal if their content is.
_BY_CONTENT = (*PLAIN, bytes, complex, list, tuple, dict, np.ndarray)


# The name of the only distribution of a list of grids: the number of the point.
CANDIDATE = "candidate"
# The ends of the quantiles by which unbounded distributions are drawn.
TAIL = 1e-6
# A longer choice is stored by its type and number.
LONG_NAME = 200


@dataclass(frozen=True)
class Space:
    """Distributions by full parameter name, and how a trial's values become parameters."""

    distributions: dict[str, BaseDistribution]
    named: dict[str, dict[str, Any]]  # values of choices that are stored by a name
    quantiles: dict[str, Any] = field(default_factory=dict)  # distributions of scipy
    points: Sequence[dict[str, Any]] = ()  # of a list of grids, all

    @classmethod
    def of(cls, space: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> "Space":
        """Turn lists of values and scipy's distributions into Optuna's, which stay as they are."""
        if not isinstance(space, Mapping):
            points = [point for one in space for point in cls.of(one).walk()]
            numbers = CategoricalDistribution(list(range(len(points))))
            return cls({CANDIDATE: numbers}, {}, points=points)
        distributions, named, quantiles = {}, {}, {}
        for name, given in space.items():
            if hasattr(given, "rvs"):
                distributions[name] = _from_scipy(name, given)
                if given.dist.name not in _BOUNDED:
                    quantiles[name] = given
                continue
            if isinstance(given, BaseDistribution) and not hasattr(given, "choices"):
                distributions[name] = given
                continue
            values = _different(getattr(given, "choices", None) or _as_choices(name, given))
            if not _are_plain(values):
                names = [_name_of(value, number) for number, value in enumerate(values)]
                if len(set(names)) < len(names):  # for example, two lambdas
                    names = [f"{text} {number}" for number, text in enumerate(names)]
                named[name] = dict(zip(names, values, strict=True))
                values = names
            distributions[name] = CategoricalDistribution(values)
        return cls(distributions, named, quantiles)

    @property
    def names(self) -> list[str]:
        """Full names of the parameters that vary."""
        return sorted({name for point in self.points for name in point}) or [*self.distributions]

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

    def walk(self) -> list[dict[str, Any]]:
        """All points of a grid, in the order of GridSearchCV."""
        if not self.is_grid:
            raise ValueError(
                "Got a list of spaces with ranges, but expected lists of values only in each."
            )
        return [self.decode(point) for point in ParameterGrid(self.grid)]

    def values_of(self, name: str) -> list[Any]:
        """The choices of a parameter, or the largest value of a range; empty if it is fixed."""
        if self.points:
            return [point[name] for point in self.points if name in point]
        kind: Any = self.distributions.get(name)
        if name in self.named:
            return list(self.named[name].values())
        if name in self.quantiles:
            return [self.decode({name: 1 - TAIL})[name]]
        return list(getattr(kind, "choices", None) or [kind.high]) if kind is not None else []

    def decode(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters as the estimator takes them, in the order of the space."""
        if self.points:
            return dict(self.points[params[CANDIDATE]])
        return {
            name: self._decode_one(name, params[name])
            for name in self.distributions
            if name in params
        }

    def _decode_one(self, name: str, value: Any) -> Any:
        if name in self.quantiles:
            drawn = self.quantiles[name].ppf(value)
            return float(drawn) if hasattr(self.quantiles[name].dist, "pdf") else int(drawn)
        return self.named[name][value] if name in self.named else value

    def place(self, params: Mapping[str, Any]) -> int:
        """The number of a point in a grid, in the order of GridSearchCV."""
        number = 0
        for name in sorted(self.grid):
            number = number * len(self.grid[name]) + self.grid[name].index(params[name])
        return number


# Distributions of scipy that Optuna has, too.
_BOUNDED: dict[str, Callable[[float, float], BaseDistribution]] = {
    "uniform": FloatDistribution,
    "loguniform": partial(FloatDistribution, log=True),
    "reciprocal": partial(FloatDistribution, log=True),
    "randint": lambda low, high: IntDistribution(int(low), int(high)),
}


def _from_scipy(name: str, given: Any) -> BaseDistribution:
    if not hasattr(given, "ppf") or not hasattr(given, "dist"):
        raise ValueError(
            f"Got {name}={given!r} in the space, but expected a list of values, or a distribution "
            f"of Optuna or scipy.stats, such as scipy.stats.loguniform(0.01, 1.0)."
        )
    if given.dist.name in _BOUNDED:
        return _BOUNDED[given.dist.name](*map(float, given.support()))
    return FloatDistribution(TAIL, 1 - TAIL)


def _different(values: Sequence[Any]) -> list[Any]:
    """Distinct values; numpy scalars become Python's."""
    found: list[Any] = []
    for value in values:
        plain = value.item() if isinstance(value, np.generic) else value
        if not any(_is_equal(plain, other) for other in found):
            found.append(plain)
    return found


def _is_equal(first: Any, second: Any) -> bool:
    if first is second or type(first) is not type(second):
        return first is second
    return isinstance(first, _BY_CONTENT) and digest(first) == digest(second)


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
    is_long = " at 0x" in text or len(text) > LONG_NAME
    return f"{type(value).__name__} {number}" if is_long else text


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
    is_list = isinstance(space, (list, tuple)) and len(space) > 0
    if is_list and all(isinstance(one, Mapping) for one in space):
        for one in space:
            check_names(one, estimator.get_params(deep=True))
        return Space.of(space)
    if space not in ("paper", "default"):
        raise ValueError(
            f"Got space={space!r}, but expected 'paper', 'default' or a dict of lists "
            f"or distributions."
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


def check_names(space: Mapping[str, Any], known: Collection[str], where: str = "the space") -> None:
    """Raise if a space is empty or names an unknown parameter."""
    if not space:
        raise ValueError("Got an empty space, but expected at least one parameter to search over.")
    for name in space:
        if name not in known and not _is_of_candidate(str(name), space):
            # The step of a pipeline was forgotten, or a name is misspelled.
            inner = [other for other in known if other.endswith(f"__{name}")]
            alike = difflib.get_close_matches(str(name), list(known), cutoff=0.5)
            closest = list(dict.fromkeys([*inner, *alike]))[:3] or sorted(known)[:3]
            raise ValueError(
                f"Got the unknown parameter {name!r} in {where}; the closest names are "
                f"{', '.join(map(repr, closest))}."
            )


def _is_of_candidate(name: str, space: Mapping[str, Any]) -> bool:
    """Whether a searched step has, for one of its candidates, the parameter of this name."""
    step, _, inner = name.rpartition("__")
    while step:
        candidates = space.get(step, ())
        if isinstance(candidates, list):
            return any(
                hasattr(one, "get_params") and inner in one.get_params() for one in candidates
            )
        step, _, outer = step.rpartition("__")
        inner = f"{outer}__{inner}"
    return False
