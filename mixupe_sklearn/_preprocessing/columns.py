"""The kinds of a table's columns, and how each is read: numbers, times, or categories as text."""

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

# The squares of larger numbers, which a variance needs, overflow.
LARGEST = 1e150


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
    if values.dtype.kind in "iufMm":
        return "times" if values.dtype.kind in "Mm" else "numbers"
    if values.dtype.kind != "O" or str in set(map(type, values)):
        return "categories"
    types = set(map(type, values[_is_present(values)]))
    if all(issubclass(kind, (Real, Decimal)) and kind is not bool for kind in types):
        return "numbers"
    return "times" if all(issubclass(kind, (date, timedelta)) for kind in types) else "categories"


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


_READERS: dict[str, Callable] = {"numbers": _numbers, "times": _times, "categories": _categories}


def select_columns(X: Any, kind: str) -> list[Any]:
    """Columns of one kind that are not constant.

    Names, or positions where names are not strings.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"size": [1.0, 2.0], "unit": [1, 1], "city": ["Oslo", None]})
    >>> select_columns(frame, kind="numbers"), select_columns(frame, kind="categories")
    (['size'], [])
    """
    found = []
    for position, (name, column) in enumerate(_columns(X)):
        if _kind(column) == kind:
            values = _READERS[kind](name, column)
            # Missing values are NaN by now, which differs from itself.
            values = values[values == values]
            if len(values) and (values != values[0]).any():
                # ColumnTransformer takes integers for positions, even if they are names.
                found.append(name if isinstance(name, str) else position)
    return found


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
