"""A task's own splits: read whole, or refused."""

import io
import itertools
import re
from typing import Any

import numpy as np
import pandas as pd

from mixupe_sklearn.datasets._dataset import Fold
from mixupe_sklearn.datasets._openml.metadata import FaultError, TaskFile, first_line, refuse_html

COLUMNS = ["type", "rowid", "repeat", "fold"]


def read_folds(content: bytes, n_rows: int, task: TaskFile) -> list[Fold]:
    """Read ``datasplits.arff``: positions to train and to test on, by repeat, then fold.

    Each fold must be whole, and follow the one before; ``check_all_folds`` asks for all of them.
    """
    table = _read_table(content)
    ids = table["rowid"].to_numpy()
    if ids.min() < 0 or ids.max() >= n_rows:
        raise FaultError(f"it names the row {ids[(ids < 0) | (ids >= n_rows)][0]} of {n_rows} rows")
    parts: dict[Any, Any] = dict(list(table.groupby(["repeat", "fold"], sort=True)))
    _check_keys(list(parts), task)
    folds = []
    for (repeat, fold), part in parts.items():
        is_test, rows = part["is_test"].to_numpy(), part["rowid"].to_numpy()
        train, test = rows[~is_test], rows[is_test]
        _check_fold(train, test, n_rows, task, f"fold {fold} of repeat {repeat}")
        folds.append((train, test))
    if task.procedure == "crossvalidation":
        _check_tested_once(table)
    return folds


def _read_table(content: bytes) -> pd.DataFrame:
    refuse_html(content)
    head, *rest = re.split(rb"^\s*@data\b.*$", content, maxsplit=1, flags=re.I | re.M)
    found = re.findall(r"^\s*@attribute\s+(\S+)", head.decode("utf-8", "replace"), re.I | re.M)
    names = [name.strip("'\"").lower() for name in found]
    if not rest or not set(COLUMNS) <= set(names):
        raise FaultError("no ARFF file of splits")
    try:
        lines = io.BytesIO(rest[0])
        table = pd.read_csv(lines, header=None, names=names, comment="%", skipinitialspace=True)
        table = table[COLUMNS]
        kinds = table.pop("type").astype(str).str.strip("'\" ").str.upper()
        if table.empty or table.isna().any(axis=None) or not kinds.isin(["TRAIN", "TEST"]).all():
            raise ValueError("a line is not whole")
        return table.astype(np.int64).assign(is_test=kinds == "TEST")
    except ValueError as error:  # pandas' own errors of parsing are such, too
        raise FaultError(f"no whole file of splits ({first_line(error)})") from None


def _check_keys(keys: list[tuple[int, int]], task: TaskFile) -> None:
    n_repeats = task.n_repeats or 1
    n_folds = task.n_folds or len({fold for _, fold in keys})
    told = list(itertools.product(range(n_repeats), range(n_folds)))
    if len(keys) > len(told):
        raise FaultError(f"it has {len(keys)} folds, but the task names {len(told)}")
    for key, expected in zip(keys, told, strict=False):
        if key != expected:
            raise FaultError(f"it lacks fold {expected[1]} of repeat {expected[0]}")


def _check_fold(
    train: np.ndarray, test: np.ndarray, n_rows: int, task: TaskFile, name: str
) -> None:
    if not (len(train) and len(test)):
        raise FaultError(f"{name} has no rows to {'test' if len(train) else 'train'} on")
    if np.intersect1d(train, test).size:
        raise FaultError(f"{name} trains and tests on the same rows")
    n_found = len(np.unique(np.concatenate([train, test])))
    if task.procedure == "crossvalidation" and n_found != n_rows:
        raise FaultError(f"{name} has {n_found} of {n_rows} rows")


def _check_tested_once(table: pd.DataFrame) -> None:
    tested = table[table["is_test"]]
    twice = tested[tested.duplicated(["repeat", "rowid"])]
    if len(twice):
        raise FaultError(f"it tests on row {twice['rowid'].iloc[0]} twice in one repeat")


def check_all_folds(folds: list[Fold], n_rows: int, task: TaskFile) -> None:
    """All repeats and folds that the task names must be there, and test on every row."""
    told = n_folds_told(folds, task)
    if len(folds) != told:
        raise FaultError(f"it has {len(folds)} folds, but the task names {told}")
    n_tested = sum(len(test) for _, test in folds)
    if task.procedure == "crossvalidation" and n_tested != n_rows * (task.n_repeats or 1):
        raise FaultError(f"it tests on {n_tested} rows in all, but not on each once per repeat")


def n_folds_told(folds: list[Fold], task: TaskFile) -> int:
    """How many folds the task names; as many as there are where it does not say."""
    return (task.n_repeats or 1) * task.n_folds if task.n_folds else len(folds)
