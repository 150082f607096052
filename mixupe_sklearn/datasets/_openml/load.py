"""A task, a data set or a suite, read from the files of a shelf."""

import os
import warnings
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from mixupe_sklearn._utils.warnings import warn_user
from mixupe_sklearn.datasets._dataset import Fold, Table
from mixupe_sklearn.datasets._openml.cache import Shelf, read_frame
from mixupe_sklearn.datasets._openml.metadata import (
    CLASSIFICATION,
    PROCEDURES,
    DataFile,
    FeaturesFile,
    TaskFile,
    check_arff,
    check_parquet,
    check_rows,
    names_in,
    read_description,
    read_features,
    read_n_rows,
    read_suite,
    read_task,
)
from mixupe_sklearn.datasets._openml.splits import check_all_folds, n_folds_told, read_folds
from mixupe_sklearn.datasets._openml.table import split_target, tidy
from mixupe_sklearn.datasets._openml.web import OutOfReachError, RefusedError


def task_table(openml: Any, shelf: Shelf, server: str, task_id: int) -> Table:
    """The table of a task, with its own folds."""
    task = shelf.get(
        f"tasks/{task_id}/task.xml", f"{server}/task/{task_id}", partial(read_task, task_id=task_id)
    )
    if task.kind != CLASSIFICATION:
        raise ValueError(
            f"Got task_id={task_id}, which is a task of {task.kind_name!r}, but expected one of "
            f"'Supervised Classification'."
        )
    if task.procedure and task.procedure not in PROCEDURES:
        raise ValueError(
            f"Got task_id={task_id}, whose rows are split by {task.procedure!r}, but expected "
            f"training rows and others to test on: choose a task with a cross-validation or a "
            f"holdout, or its data set by load_dataset."
        )
    description, X, y = _data(openml, shelf, server, task.data_id, task.target)
    folds = _folds(shelf, task_id, task, len(y))
    _warn_if_withdrawn(description, task.data_id)
    return Table(description.name, X, y, "openml", task_id, task.data_id, folds)


def dataset_table(
    openml: Any, shelf: Shelf, server: str, data_id: int, target: str | None
) -> Table:
    """The table of a data set, by a target of the user's or its own."""
    description, X, y = _data(openml, shelf, server, data_id, target)
    _warn_if_withdrawn(description, data_id)
    return Table(description.name, X, y, "openml", None, data_id, None)


def suite_tasks(openml: Any, shelf: Shelf, server: str, suite_id: int) -> list[int]:
    """The tasks of a suite; the client keeps no suites, so this file of the cache is ours."""
    read = partial(read_suite, suite_id=suite_id)
    return shelf.get(f"studies/{suite_id}/study.xml", f"{server}/study/{suite_id}", read)


def _warn_if_withdrawn(description: DataFile, data_id: int) -> None:
    if (description.status or "").lower() == "deactivated":
        warn_user(
            f"Got data set {data_id} ({description.name}), which OpenML has deactivated, often "
            f"because something is wrong with it: its page there says why."
        )


def _data(
    openml: Any, shelf: Shelf, server: str, data_id: int, target: str | None
) -> tuple[DataFile, pd.DataFrame, np.ndarray]:
    """A data set's description, its columns, and its classes by a target of one's own or its."""
    folder = f"datasets/{data_id}"
    description = shelf.get(
        f"{folder}/description.xml",
        f"{server}/data/{data_id}",
        partial(read_description, data_id=data_id),
    )
    features = shelf.get(
        f"{folder}/features.xml", f"{server}/data/features/{data_id}", read_features
    )
    names = _data_names(data_id)
    told_rows = _told_rows(shelf, server, data_id, not any(map(shelf.has, names)))
    name = _data_name(shelf, data_id, description, told_rows, len(features.kinds))
    with shelf.guard(name):
        frame = read_frame(openml, shelf, data_id, name)
        check_rows(len(frame), told_rows)
    target = description.target if target is None else target
    left_out = _left_out(description, features) - {target}  # a target that is named is wanted
    frame = tidy(
        frame.drop(columns=list(left_out), errors="ignore"), features.kinds, features.values
    )
    return description, *split_target(frame, target, data_id)


def _left_out(description: DataFile, features: FeaturesFile) -> set[str]:
    """Row ids and columns to ignore: the two files tell them, not always both."""
    named = [names_in(text, features.kinds) for text in description.lists_left_out]
    return features.left_out.union(*named)


def _data_names(data_id: int) -> list[str]:
    """What the file with the rows may be called, the best first (as in the client)."""
    skip_parquet = os.environ.get("OPENML_SKIP_PARQUET", "").casefold() == "true"
    parquet = [] if skip_parquet else [f"dataset_{data_id}.pq", "dataset.pq"]
    return [f"datasets/{data_id}/{name}" for name in [*parquet, "dataset.arff"]]


def _told_rows(shelf: Shelf, server: str, data_id: int, is_wanted: bool) -> int | None:
    """How many rows the server has counted: asked for only where the rows are fetched, too."""
    name = f"datasets/{data_id}/qualities.xml"
    if not shelf.has(name) and (shelf.ask is None or not is_wanted):
        return None
    try:
        return shelf.get(name, f"{server}/data/qualities/{data_id}", read_n_rows)
    except RefusedError:  # not every data set has them
        return None


def _data_name(
    shelf: Shelf, data_id: int, description: DataFile, told_rows: int | None, n_columns: int
) -> str:
    """The file with the rows: from the cache, else fetched, as parquet where that can be had."""
    names = _data_names(data_id)
    here = [name for name in names if shelf.has(name)]
    if here and here[0].endswith(".pq"):
        return here[0]
    failure = None
    if not here and names[0].endswith(".pq") and description.parquet_url:
        read = partial(check_parquet, told_rows=told_rows, told_columns=n_columns)
        try:
            shelf.get(names[0], description.parquet_url, read)
            return names[0]
        except (RefusedError, OutOfReachError) as error:  # the rows may be had elsewhere
            failure = error
    try:
        _get_arff(shelf, data_id, description)
    except (RefusedError, OutOfReachError) as error:
        raise failure or error from None
    return names[-1]


def _get_arff(shelf: Shelf, data_id: int, description: DataFile) -> None:
    if not description.url or description.form.lower() == "sparse_arff":
        # The client's reader of sparse ARFF does not work with pandas 3.
        raise ValueError(
            f"Got data_id={data_id}, which cannot be had as parquet or dense ARFF, but expected "
            f"one of these: choose another version of this data set."
        )
    read = partial(check_arff, md5=description.md5)
    shelf.get(f"datasets/{data_id}/dataset.arff", description.url, read)


def _folds(shelf: Shelf, task_id: int, task: TaskFile, n_rows: int) -> list[Fold]:
    name = f"tasks/{task_id}/datasplits.arff"
    read = partial(read_folds, n_rows=n_rows, task=task)

    def read_all(content: bytes) -> list[Fold]:
        folds = read(content)
        check_all_folds(folds, n_rows, task)
        return folds

    # A cache may hold some of the folds on purpose, if each of them is whole; a server may not.
    is_fresh = not (shelf.folder / name).is_file()
    folds = shelf.get(name, task.splits_url, read_all if is_fresh else read)
    told = n_folds_told(folds, task)
    if len(folds) != told:
        warnings.warn(
            f"Got {len(folds)} of the {told} folds of task {task_id} in "
            f"{str(shelf.folder / name)!r}: only these are used.",
            stacklevel=5,
        )
    return folds
