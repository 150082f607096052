"""From the frame that the client reads to columns and classes."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd


def tidy(
    frame: pd.DataFrame, kinds: Mapping[str, str], values: Mapping[str, Sequence[str]]
) -> pd.DataFrame:
    """Numbers as numbers, and nominal columns as categories, as ``features.xml`` names them.

    A column of holes only has no type of its own, some parquet files store categories as
    numbers, and the client turns ``false`` and ``true`` of ARFF into truth values.

    Examples
    --------
    >>> frame = pd.DataFrame({"size": [None, None], "old": [True, False]}, dtype=object)
    >>> tidied = tidy(frame, {"size": "numeric", "old": "nominal"}, {"old": ["false", "true"]})
    >>> tidied.dtypes.astype(str).tolist(), tidied["old"].tolist()
    (['float64', 'category'], ['true', 'false'])
    """
    frame = frame.reset_index(drop=True)
    for name, dtype in frame.dtypes.items():
        kind = kinds.get(str(name))
        if kind == "numeric" and pd.api.types.is_object_dtype(dtype):
            frame[name] = pd.to_numeric(frame[name]).astype(float)
        elif kind == "nominal":
            frame[name] = _as_told(frame[name].astype("category"), values.get(str(name), []))
    return frame


def _as_told(column: Any, told: Sequence[str]) -> Any:
    """The same categories, written as OpenML writes them, where one of its values is meant."""
    found = column.cat.categories.tolist()
    names = [_told_value(value, told) for value in found]
    is_same = names == found or len(set(names)) < len(names)
    return column if is_same else column.cat.rename_categories(names)


def _told_value(value: Any, told: Sequence[str]) -> Any:
    if isinstance(value, float) and value.is_integer() and str(value) not in told:
        value = int(value)
    text = str(value)
    if text in told:
        return text
    same = [name for name in told if name.lower() == text.lower()]
    return same[0] if len(same) == 1 else value


def split_target(
    frame: pd.DataFrame, target: str | None, data_id: int
) -> tuple[pd.DataFrame, np.ndarray]:
    """The columns, and the class of each row as text or whole numbers.

    Examples
    --------
    >>> X, y = split_target(pd.DataFrame({"size": [1.5, 2.5], "class": ["a", "b"]}), "class", 1)
    >>> list(X), y.tolist()
    (['size'], ['a', 'b'])
    """
    if target is None:
        raise ValueError(
            f"Got target=None, but data set {data_id} names no target of its own: name one of its "
            f"columns, such as {frame.columns[-1]!r}."
        )
    if target not in frame.columns:
        close = difflib.get_close_matches(target, list(frame.columns), n=3, cutoff=0.5)
        names = close or list(frame.columns)[-3:]
        raise ValueError(
            f"Got target={target!r}, but data set {data_id} has no such column: name one of its "
            f"{len(frame.columns)} columns, such as {', '.join(map(repr, names))}."
        )
    values: Any = frame[target]
    holes = np.flatnonzero(values.isna())
    if len(holes):
        # Dropping these rows would move all others, and the task's folds count rows.
        raise ValueError(
            f"Got target={target!r}, which has no value in {len(holes)} of {len(frame)} rows of "
            f"data set {data_id} (the first is row {holes[0]}), but expected a class in every row: "
            f"choose another target, or fill these rows in a CSV file of your own."
        )
    y = _classes(values, target, data_id)
    if len(y) and (y == y[0]).all():
        raise ValueError(
            f"Got target={target!r} of data set {data_id} with one class only, {y[0].item()!r}, "
            f"but expected two: choose another target."
        )
    return frame.drop(columns=target), y


def _classes(values: Any, target: str, data_id: int) -> np.ndarray:
    if not pd.api.types.is_numeric_dtype(values) or pd.api.types.is_bool_dtype(values):
        return np.asarray(values.astype(str), dtype=str)
    numbers = values.to_numpy()
    broken = numbers[numbers != np.floor(numbers)]
    if len(broken):
        raise ValueError(
            f"Got target={target!r} of data set {data_id} with numbers such as {broken[0]:g}, but "
            f"expected classes: choose a target that has classes."
        )
    return numbers.astype(np.int64)
