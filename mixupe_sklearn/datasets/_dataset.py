"""A table with a target, which every loader of tables returns."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

Fold = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """A table with features, classes and its source.

    Parameters
    ----------
    name : str
        A short name, such as ``"iris"``.
    X : pandas.DataFrame
        Raw columns: numbers and categories, with missing values.
    y : ndarray of shape (n_rows,)
        The class of each row, as text or integer, without missing values.
    source : str
        ``"embedded"``, ``"openml"`` or ``"csv"``.
    task_id : int or None, default=None
        Id of the OpenML task, if the table is one.
    data_id : int or None, default=None
        Id of the OpenML dataset, if the table is one.
    folds : sequence of (train, test) or None, default=None
        Row positions of the task's splits, by repeat, then fold.

    Examples
    --------
    >>> table = Table("two", pd.DataFrame({"size": [1.0, 2.0]}), np.array(["a", "b"]), "csv")
    >>> table
    Table('two' from csv: 2 rows, 1 columns, 2 classes)
    >>> len(table.fingerprint)
    12
    """

    name: str
    X: pd.DataFrame
    y: np.ndarray
    source: str
    task_id: int | None = None
    data_id: int | None = None
    folds: Sequence[Fold] | None = None

    def __repr__(self) -> str:
        size = f"{self.n_rows} rows, {self.X.shape[1]} columns, {self.n_classes} classes"
        return f"Table({self.name!r} from {self.source}: {size})"

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self.y)

    @cached_property
    def n_classes(self) -> int:
        """The number of classes."""
        return len(np.unique(self.y))

    @cached_property
    def fingerprint(self) -> str:
        """Twelve hex digits that identify columns, rows and classes."""
        digest = hashlib.sha256(repr([str(name) for name in self.X.columns]).encode())
        for values in (self.X, pd.Series(self.y)):
            hashes: Any = pd.util.hash_pandas_object(values, index=False)
            digest.update(hashes.to_numpy().tobytes())
        return digest.hexdigest()[:12]


def as_classes(column: pd.Series, where: str) -> np.ndarray:
    """The classes in a column without missing values, as text or integers.

    Raises an error for fractions and for a single class. ``where`` names the column in it.
    """
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        numbers = column.to_numpy()
        # Beyond this limit, all floats are integers.
        others = numbers[(numbers != np.floor(numbers)) | (np.abs(numbers) > 2.0**53)]
        if len(others):
            raise ValueError(
                f"Got {where} with numbers such as {others[0]:g}, but expected classes; use "
                f"MixupERegressor for continuous targets, or text for classes."
            )
        y = numbers.astype(np.int64)
    else:
        y = np.asarray(column.astype(str), dtype=str)
    if len(y) and (y == y[0]).all():
        raise ValueError(f"Got {where} with one class only, {y[0].item()!r}, but expected two.")
    return y
