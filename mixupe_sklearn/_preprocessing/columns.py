"""What a table's columns hold, and how they are read: numbers, times, or levels as text."""

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

# The squares of larger numbers, of which a variance is made, leave the range of floats.
LARGEST = 1e150


def _columns(X: Any) -> Iterator[tuple[Any, Any]]:
    """Names and columns of a pandas or polars frame, or of an array, which has no names."""
    is_frame = hasattr(X, "columns")
    if len(X.shape) != 2 or not (is_frame or isinstance(X, np.ndarray)):
        raise ValueError(
            f"Got X of type {type(X).__name__} and shape {X.shape}, but expected a data frame, or "
            f"an array with rows and columns."
        )
    if hasattr(X, "iter_columns"):
        return ((column.name, column) for column in X.iter_columns())
    return iter(X.items()) if is_frame else ((None, column) for column in X.T)


def _is_missing(value: Any) -> bool:
    # By name: pandas, whose NA has no truth value, need not be installed.
    if type(value).__name__ in ("NoneType", "NAType", "NaTType"):
        return True
    if isinstance(value, Decimal):  # which may have a NaN that refuses to be compared
        return value.is_nan()
    return isinstance(value, (float, np.floating)) and value != value


def _is_present(values: np.ndarray) -> np.ndarray:
    return ~np.frompyfunc(_is_missing, 1, 1)(values).astype(bool)


def _kind(column: Any) -> str:
    """What a column holds; numpy's type of its values tells, objects are looked at."""
    # Its values may well be numbers; polars has categories of text only.
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
    if values.dtype.kind in "Mm":  # nanoseconds would become whole numbers
        values = values.astype(f"{values.dtype.kind}8[us]")
    return values.astype(object)


def _seconds(value: Any) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if not isinstance(value, date):
        raise TypeError
    moment = value if isinstance(value, datetime) else datetime.combine(value, time())
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _level(value: Any) -> str:
    # A hole turns whole numbers into floats, so 1 and 1.0 are the same level.
    is_whole = isinstance(value, (float, np.floating)) and float(value).is_integer()
    return str(int(value) if is_whole else value)


def _where(name: Any) -> str:
    return "a column" if name is None else f"column {name!r}"


def _each(values: np.ndarray, convert: Callable, where: str, expected: str) -> np.ndarray:
    """Floats of objects one by one, NaN for holes."""
    floats = np.full(len(values), np.nan)
    for row in np.flatnonzero(_is_present(values)):
        try:
            floats[row] = convert(values[row])
        except (TypeError, ValueError, OverflowError):
            raise ValueError(
                f"Got {values[row]!r} in {where}, but expected {expected}, as in the rows of fit."
            ) from None
    return floats


def _numbers(name: Any, column: Any) -> np.ndarray:
    values, where = np.asarray(column), _where(name)
    if values.dtype.kind in "biuf":
        floats = values.astype(np.float64, copy=False)
    else:
        floats = _each(_objects(values), float, where, "numbers")
    if np.isinf(floats).any():
        raise ValueError(f"Got infinity in {where}, but expected finite numbers, or NaN for holes.")
    largest = np.nanmax(np.abs(floats), initial=0.0)
    if largest > LARGEST:
        raise ValueError(
            f"Got a number of size {largest:.3g} in {where}, but expected at most {LARGEST:g}."
        )
    return floats


def _times(name: Any, column: Any) -> np.ndarray:
    return _each(_objects(column), _seconds, _where(name), "dates or spans of time")


def _levels(name: Any, column: Any) -> np.ndarray:
    values = _objects(column)
    is_present = _is_present(values)
    levels = np.full(len(values), np.nan, dtype=object)
    levels[is_present] = [_level(value) for value in values[is_present]]
    return levels


_READERS: dict[str, Callable] = {"numbers": _numbers, "times": _times, "categories": _levels}


def select_columns(X: Any, kind: str) -> list[Any]:
    """Columns of one kind that hold two different values at least: the others tell nothing.

    Names, or positions where names are not text.

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
            # Whatever is a hole is NaN by now, which differs from itself.
            values = values[values == values]
            if len(values) and (values != values[0]).any():
                # ColumnTransformer takes whole numbers for positions, even where they are names.
                found.append(name if isinstance(name, str) else position)
    return found


def read_columns(X: Any, kind: str) -> np.ndarray:
    """Columns of one kind as floats (numbers, or times in seconds) or as text, NaN for holes.

    Examples
    --------
    >>> from datetime import date
    >>> read_columns(np.array([[date(1970, 1, 2)], [None]]), kind="times").tolist()
    [[86400.0], [nan]]
    >>> read_columns(np.array([["Oslo"], [7.0], [None]], dtype=object), kind="categories").tolist()
    [['Oslo'], ['7'], [nan]]
    """
    return np.column_stack([_READERS[kind](name, column) for name, column in _columns(X)])
