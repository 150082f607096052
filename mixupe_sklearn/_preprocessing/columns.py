"""The kinds of a table's columns, and how each is read: numbers, times, or categories as text.

A column has one kind: ``"numbers"``, ``"dates"``, ``"durations"`` or ``"categories"``. Dates and
durations are both ``"times"``.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

# The squares of larger numbers, which a variance needs, overflow.
LARGEST = 1e150
TIMES = ("dates", "durations")
_KINDS = {"i": "numbers", "u": "numbers", "f": "numbers", "M": "dates", "m": "durations"}
# Fewer missing values in a column, or fewer present ones, are too few to learn from.
FEW = 10
# A column looks like an id if more than this share of so many samples have a value of their own.
FEW_IDS, ID_SHARE = 50, 0.9


def _columns(X: Any) -> Iterator[tuple[Any, Any]]:
    """Names and columns of a pandas or polars frame, or of an array, which has no names."""
    if hasattr(X, "iter_columns"):
        return ((column.name, column) for column in X.iter_columns())
    return iter(X.items()) if hasattr(X, "columns") else ((None, column) for column in X.T)


def _is_missing(value: Any) -> bool:
    # By name: pandas need not be installed, and its NA cannot be compared.
    if type(value).__name__ in ("NoneType", "NAType", "NaTType"):
        return True
    return isinstance(value, (float, np.floating, Decimal)) and value != value


def _is_present(values: np.ndarray) -> np.ndarray:
    return ~np.frompyfunc(_is_missing, 1, 1)(values).astype(bool)


def _kind(column: Any) -> str:
    """The kind of a column, by numpy's dtype, or by the types of its objects."""
    # Its values may be numbers; polars has categories of text only.
    if str(getattr(column, "dtype", "")) == "category":
        return "categories"
    values = np.asarray(column)
    if values.dtype.kind in _KINDS:
        return _KINDS[values.dtype.kind]
    if values.dtype.kind != "O" or str in set(map(type, values)):
        return "categories"
    types = set(map(type, values[_is_present(values)]))
    if all(issubclass(kind, (Real, Decimal)) and kind is not bool for kind in types):
        return "numbers"
    for found, kind in (("dates", date), ("durations", timedelta)):
        if all(issubclass(own, kind) for own in types):
            return found
    return "categories"


def _is_of(column: Any, kind: str) -> bool:
    found = _kind(column)
    return kind == found or (kind == "times" and found in TIMES)


def _places(X: Any, kind: str, is_chosen: Callable[[np.ndarray], bool]) -> list[Any]:
    """Columns of one kind whose values, as ``read_columns`` reads them, are chosen."""
    return [
        # ColumnTransformer takes integers for positions, even if they are names.
        name if isinstance(name, str) else position
        for position, (name, column) in enumerate(_columns(X))
        if _is_of(column, kind) and is_chosen(_READERS[kind](name, column))
    ]


def _objects(column: Any) -> np.ndarray:
    values = np.asarray(column)
    if values.dtype.kind in "Mm":  # nanoseconds would become integers
        values = values.astype(f"{values.dtype.kind}8[us]")
    return values.astype(object)


def _seconds(value: Any) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if not isinstance(value, date):
        raise TypeError
    moment = value if isinstance(value, datetime) else datetime.combine(value, time())
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _category(value: Any) -> str:
    # A missing value turns integers into floats, so 1 and 1.0 are the same category.
    is_integer = isinstance(value, (float, np.floating)) and float(value).is_integer()
    return str(int(value) if is_integer else value)


def _where(name: Any) -> str:
    return "a column" if name is None else f"column {name!r}"


def _each(values: np.ndarray, convert: Callable, where: str, expected: str) -> np.ndarray:
    """Floats of objects one by one, NaN for missing values."""
    floats = np.full(len(values), np.nan)
    for row in np.flatnonzero(_is_present(values)):
        try:
            floats[row] = convert(values[row])
        except (TypeError, ValueError, OverflowError):
            raise ValueError(
                f"Got {values[row]!r} in {where}, but expected {expected}, as in fit."
            ) from None
    return floats


def _numbers(name: Any, column: Any) -> np.ndarray:
    values, where = np.asarray(column), _where(name)
    if values.dtype.kind in "biuf":
        floats = values.astype(np.float64, copy=False)
    else:
        floats = _each(_objects(values), float, where, "numbers")
    largest = np.nanmax(np.abs(floats), initial=0.0)
    if largest > LARGEST:
        found = "infinity" if np.isinf(largest) else f"a number of size {largest:.3g}"
        raise ValueError(
            f"Got {found} in {where}, but expected finite numbers up to {LARGEST:g}, or NaN for "
            f"missing values."
        )
    return floats


def _times(name: Any, column: Any) -> np.ndarray:
    return _each(_objects(column), _seconds, _where(name), "dates or durations")


def _categories(name: Any, column: Any) -> np.ndarray:
    values = _objects(column)
    is_present = _is_present(values)
    categories = np.full(len(values), np.nan, dtype=object)
    categories[is_present] = [_category(value) for value in values[is_present]]
    return categories


_READERS: dict[str, Callable] = {
    "numbers": _numbers,
    **dict.fromkeys(("times", *TIMES), _times),
    "categories": _categories,
}


def select_columns(X: Any, kind: str) -> list[Any]:
    """Columns of one kind that are worth a feature: not constant, and no ids in text.

    Names, or positions where names are not strings. A category and enough missing values are two
    levels.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"size": [1.0, 2.0], "unit": [1, 1], "city": ["Oslo", None]})
    >>> select_columns(frame, kind="numbers"), select_columns(frame, kind="categories")
    (['size'], [])
    """

    def is_useful(values: np.ndarray) -> bool:
        present = values[values == values]  # missing values are NaN, which differs from itself
        is_varied = bool(len(present) and (present != present[0]).any())
        if kind != "categories":
            return is_varied
        return (is_varied or _has_both(values)) and not _n_ids(values, kind)

    return _places(X, kind, is_useful)


def _has_both(values: np.ndarray) -> bool:
    """Return whether there are enough missing and enough present values to learn from."""
    n_missing = int((values != values).sum())
    return min(n_missing, len(values) - n_missing) >= FEW


def select_missing(X: Any, kind: str) -> list[Any]:
    """Columns of one kind with enough missing values for a feature of their own.

    At least ten samples have none, and at least ten have one.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"size": [None, 1.0] * 10, "age": [2.0, 3.0] * 10})
    >>> select_missing(frame, kind="numbers")
    ['size']
    """
    return _places(X, kind, _has_both)


def select_many_levels(X: Any, kind: str, more_than: int) -> list[Any]:
    """Columns of one kind with many different values, but no ids.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"city": list("abcabc"), "size": list("aabbaa")})
    >>> select_many_levels(frame, kind="categories", more_than=2)
    ['city']
    """

    def has_many(values: np.ndarray) -> bool:
        return len(_levels(values)) > more_than and not _n_ids(values, kind)

    return _places(X, kind, has_many)


def find_ids(X: Any) -> list[tuple[Any, str, int]]:
    """Columns in which nearly every sample has a category, or an integer in sequence, of its own.

    Each with its kind and its number of different values. Few samples are not enough to tell.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"id": range(60), "name": [f"n{i}" for i in range(60)], "x": 1.5})
    >>> find_ids(frame)
    [('id', 'numbers', 60), ('name', 'categories', 60)]
    """
    found = []
    for position, (name, column) in enumerate(_columns(X)):
        kind = _kind(column)
        n_levels = 0 if kind in TIMES else _n_ids(_READERS[kind](name, column), kind)
        if n_levels:
            found.append((name if isinstance(name, str) else position, kind, n_levels))
    return found


def _levels(values: np.ndarray) -> set:
    return set(values[values == values].tolist())


def _n_ids(values: np.ndarray, kind: str) -> int:
    """Return the number of different values if they look like ids, else 0."""
    if len(values) < FEW_IDS:
        return 0
    levels = _levels(values)
    if kind == "categories":
        return len(levels) if len(levels) > ID_SHARE * len(values) else 0
    is_sequence = len(levels) == len(values) and max(levels) - min(levels) == len(values) - 1
    return len(levels) if is_sequence and all(map(float.is_integer, levels)) else 0


def read_columns(X: Any, kind: str) -> np.ndarray:
    """Columns of one kind as floats (times in seconds) or as text, NaN for missing values.

    Examples
    --------
    >>> from datetime import date
    >>> read_columns(np.array([[date(1970, 1, 2)], [None]]), kind="times").tolist()
    [[86400.0], [nan]]
    >>> read_columns(np.array([["Oslo"], [7.0], [None]], dtype=object), kind="categories").tolist()
    [['Oslo'], ['7'], [nan]]
    """
    return np.column_stack([_READERS[kind](name, column) for name, column in _columns(X)])
