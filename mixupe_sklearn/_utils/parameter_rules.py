"""Parameter rules as data: each rule names what it expects and checks a value."""

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np


class Number(NamedTuple):
    """A finite real number within bounds; ``or_none`` also accepts ``None``."""

    expected: str
    low: float = 0.0
    high: float = math.inf
    open_low: bool = False
    integer: bool = False
    or_none: bool = False

    def accepts(self, value: Any) -> bool:
        """Whether the value is such a number."""
        if value is None:
            return self.or_none
        if isinstance(value, bool) or not isinstance(value, Integral if self.integer else Real):
            return False
        try:
            number = float(value)
        except OverflowError:  # an integer of more than 308 digits
            return False
        above = number > self.low if self.open_low else number >= self.low
        return above and number < self.high


class Choice(NamedTuple):
    """One of a few strings; ``other`` ends the message where the caller takes more than these."""

    options: tuple[str, ...]
    other: str = ""

    @property
    def expected(self) -> str:
        """The options, listed."""
        return "one of " + ", ".join(repr(option) for option in self.options) + self.other

    def accepts(self, value: Any) -> bool:
        """Whether the value is one of the options."""
        return isinstance(value, str) and value in self.options


class Kind(NamedTuple):
    """An instance of a type, or ``None`` where that is allowed."""

    expected: str
    types: tuple[type, ...]
    or_none: bool = False

    def accepts(self, value: Any) -> bool:
        """Whether the value is of the type."""
        return (value is None and self.or_none) or isinstance(value, self.types)


Rule = Number | Choice | Kind
FLAG = Kind("True or False", (bool, np.bool_))


def check_rules(values: Mapping[str, Any], rules: Mapping[str, Rule]) -> None:
    """Raise a ValueError for the first value that breaks its rule.

    Examples
    --------
    >>> check_rules({"alpha": -1.0}, {"alpha": Number("a number >= 0")})
    Traceback (most recent call last):
        ...
    ValueError: Got alpha=-1.0, but expected a number >= 0.
    """
    for name, rule in rules.items():
        if not rule.accepts(values[name]):
            raise ValueError(f"Got {name}={values[name]!r}, but expected {rule.expected}.")


def is_same(first: Any, second: Any) -> bool:
    """Whether two parameters are equal, dicts and arrays included.

    Examples
    --------
    >>> import numpy as np
    >>> is_same({"w": np.ones(2)}, {"w": np.ones(2)}), is_same({"w": 1}, {"v": 1})
    (True, False)
    """
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        keys = first.keys()
        return keys == second.keys() and all(is_same(first[key], second[key]) for key in keys)
    return first is second or bool(np.all(first == second))
