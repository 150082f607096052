"""Tables from a folder: ``NAME.csv`` or ``NAME.csv.gz`` and a list of them, ``tables.json``.

The list has, by name, the task (``"classification"`` or ``"regression"``) and the columns that are
categories even where they look like numbers (``"nominal"``). The target is the column ``target``.
"""

import json
import pathlib
from functools import partial
from typing import Any

import pandas as pd

from benchmarks._harness.runner import Item
from mixupe_sklearn.datasets import Table

TARGET = "target"


def items_of_folder(folder: pathlib.Path) -> list[Item]:
    """Return the tables of a folder, in the order of their list."""
    path = folder / "tables.json"
    try:
        listed = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(
            f"Got --tables {folder}, but expected a folder with a list of tables, tables.json "
            f"({type(error).__name__})."
        ) from None
    return [Item(name, partial(read_table, folder, name, one)) for name, one in listed.items()]


def read_table(folder: pathlib.Path, name: str, about: dict[str, Any]) -> Table:
    """Read one table; its target is float for regression and text for classes."""
    found = sorted(folder.glob(f"{name}.csv*"))
    if not found:
        raise ValueError(f"Got a list with {name!r}, but expected {name}.csv or {name}.csv.gz.")
    frame = pd.read_csv(found[0], dtype=dict.fromkeys(about.get("nominal", ()), str))
    y = frame.pop(TARGET)
    has_numbers = about["task"] == "regression"
    return Table(
        name, frame, y.to_numpy(float) if has_numbers else y.astype(str).to_numpy(str), "csv"
    )


def is_regression(table: Table) -> bool:
    """Return whether the targets of a table are numbers."""
    return table.y.dtype.kind == "f"
