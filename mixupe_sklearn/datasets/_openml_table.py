"""From the frame that the client reads to columns and classes."""

import difflib
from typing import Any

import numpy as np
import pandas as pd


def tidy(frame: pd.DataFrame, features: dict[str, str]) -> pd.DataFrame:
    """Numbers as numbers, and nominal columns as categories, as ``features.xml`` names them.

    A column of holes only has no type of its own, and some parquet files store categories as
    numbers.

    Examples
    --------
    >>> frame = pd.DataFrame({"size": [None, None], "colour": [1, 2]}, dtype=object)
    >>> tidy(frame, {"size": "numeric", "colour": "nominal"}).dtypes.astype(str).tolist()
    ['float64', 'category']
    """
    frame = frame.reset_index(drop=True)
    for name, dtype in frame.dtypes.items():
        kind = features.get(str(name))
        is_category = isinstance(dtype, pd.CategoricalDtype)
        if kind == "numeric" and pd.api.types.is_object_dtype(dtype):
            frame[name] = pd.to_numeric(frame[name]).astype(float)
        elif kind == "nominal" and not is_category:
            frame[name] = frame[name].astype("category")
    return frame


def split_target(frame: pd.DataFrame, target: str, data_id: int) -> tuple[pd.DataFrame, np.ndarray]:
    """The columns, and the class of each row as text or whole numbers.

    Examples
    --------
    >>> X, y = split_target(pd.DataFrame({"size": [1.5, 2.5], "class": ["a", "b"]}), "class", 1)
    >>> list(X), y.tolist()
    (['size'], ['a', 'b'])
    """
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
    return frame.drop(columns=target), _classes(values, target, data_id)


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
