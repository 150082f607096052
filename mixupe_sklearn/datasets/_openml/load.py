"""Tasks, datasets and suites of OpenML, loaded through a cache."""

import hashlib
import io
import itertools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import arff
import numpy as np
import openml
import pandas as pd
from pyarrow import parquet

from mixupe_sklearn._utils.warnings import warn_user
from mixupe_sklearn.datasets._dataset import Fold, Table, as_classes
from mixupe_sklearn.datasets._openml.cache import Cache, NotCachedError, cache_folders, locked
from mixupe_sklearn.datasets._openml.metadata import (
    DatasetMetadata,
    InvalidFileError,
    TaskMetadata,
    first_line,
    read_description,
    read_features,
    read_n_rows,
    read_suite,
    read_task,
    split_names,
)
from mixupe_sklearn.datasets._openml.transport import DownloadError, RefusedError, fetch

# A few bytes of parquet can expand to any number of values.
MAX_CELLS = 10**9
SPLIT_COLUMNS = ["type", "rowid", "repeat", "fold"]
ADVICE = (
    "connect to the network and run it again, or copy a cache that has it and set cache_dir or "
    "OPENML_CACHE_DIR to the copy"
)

Result = TypeVar("Result")


def through_cache(
    read: Callable[[Cache, str], Result],
    label: str,
    cache_dir: str | os.PathLike[str] | None,
    timeout: float,
    n_tries: int,
    offline: bool,
) -> Result:
    """Call ``read(cache, server)``: offline first, and with downloads if a file is missing.

    ``label`` names the task or dataset in a message.
    """
    server = openml.config.server.rstrip("/")
    root, folder = cache_folders(cache_dir)
    try:
        return read(Cache(folder), server)
    except NotCachedError as error:
        if offline:
            raise FileNotFoundError(
                f"Got {label}, but the cache has no file {str(error)!r} and offline=True forbids "
                f"its download: {ADVICE}."
            ) from None
    limits: dict[str, Any] = {"timeout": timeout, "n_tries": n_tries}
    limits |= {"server": server.partition("/api/")[0], "api_key": openml.config.apikey or ""}
    try:
        with locked(root):
            cache = Cache(folder, partial(fetch, **limits))
            result = read(cache, server)
            cache.save()
            return result
    except DownloadError as error:
        raise ConnectionError(
            f"Got {label}, which is not complete in the cache {str(root)!r} and cannot be "
            f"downloaded from {error}: {ADVICE}."
        ) from None
    except RefusedError as error:
        raise ValueError(
            f"Got {label}, but the server refuses it ({error}): check the number, and the API key "
            f"if it is not public."
        ) from None


def load_task(cache: Cache, server: str, task_id: int) -> Table:
    """The table of a task, with its folds."""
    read = partial(read_task, task_id=task_id)
    task = cache.get(f"tasks/{task_id}/task.xml", f"{server}/task/{task_id}", read)
    name, X, y = _load_data(cache, server, task.data_id, task.target)
    folds = _load_folds(cache, task_id, task, len(y))
    return Table(name, X, y, "openml", task_id, task.data_id, folds)


def load_dataset(cache: Cache, server: str, data_id: int, target: str | None) -> Table:
    """The table of a dataset. A ``target`` of None means the dataset's own."""
    name, X, y = _load_data(cache, server, data_id, target)
    return Table(name, X, y, "openml", None, data_id, None)


def load_suite(cache: Cache, server: str, suite_id: int) -> list[int]:
    """The task ids of a suite. openml-python does not cache suites, so this file is ours."""
    read = partial(read_suite, suite_id=suite_id)
    return cache.get(f"studies/{suite_id}/study.xml", f"{server}/study/{suite_id}", read)


def _load_data(
    cache: Cache, server: str, data_id: int, target: str | None
) -> tuple[str, pd.DataFrame, np.ndarray]:
    """Name, features and classes of a dataset."""
    folder, url = f"datasets/{data_id}", f"{server}/data"
    read = partial(read_description, data_id=data_id)
    dataset = cache.get(f"{folder}/description.xml", f"{url}/{data_id}", read)
    features = cache.get(f"{folder}/features.xml", f"{url}/features/{data_id}", read_features)
    frame = _load_frame(cache, server, data_id, dataset, len(features.types))
    target = dataset.target if target is None else target
    # The two files do not always agree on ignored columns. A target that is named is kept.
    listed = [split_names(text, features.types) for text in dataset.ignored]
    ignored = features.ignored.union(*listed) - {target}
    frame = frame.drop(columns=list(ignored), errors="ignore")
    X, y = split_target(set_dtypes(frame, features.types, features.values), target, data_id)
    return dataset.name, X, y


def _load_frame(
    cache: Cache, server: str, data_id: int, dataset: DatasetMetadata, n_columns: int
) -> pd.DataFrame:
    """All columns, from a file in the cache, or else from parquet or ARFF on the server."""
    urls = {f"datasets/{data_id}/dataset_{data_id}.pq": dataset.parquet_url}
    if dataset.format.lower() != "sparse_arff":
        urls[f"datasets/{data_id}/dataset.arff"] = dataset.url
    cached = [path for path in urls if cache.has(path)][:1]
    n_rows = _declared_rows(cache, server, data_id, has_data=bool(cached))
    as_parquet = partial(read_parquet, n_rows=n_rows, n_columns=n_columns)
    as_arff = partial(read_arff, n_rows=n_rows, md5=dataset.md5)
    failures: list[Exception] = []
    for path in cached or urls:
        if urls[path] or cached:
            try:
                read = as_parquet if path.endswith(".pq") else as_arff
                return cache.get(path, urls[path] or "", read)
            except (RefusedError, DownloadError) as error:  # the other format may be available
                failures.append(error)
    if failures:
        raise failures[0]
    raise ValueError(
        f"Got data_id={data_id}, which is not available as parquet or dense ARFF, but expected one "
        f"of them: choose another version of this dataset."
    )


def _declared_rows(cache: Cache, server: str, data_id: int, has_data: bool) -> int | None:
    """The number of rows that the server declares. It is downloaded only along with the data."""
    name = f"datasets/{data_id}/qualities.xml"
    if not cache.has(name) and (has_data or cache.download is None):
        return None
    try:
        return cache.get(name, f"{server}/data/qualities/{data_id}", read_n_rows)
    except RefusedError:  # not every dataset has this file
        return None


def read_parquet(content: bytes, n_rows: int | None, n_columns: int) -> pd.DataFrame:
    """Read a parquet file of this size."""
    try:
        size = parquet.read_metadata(io.BytesIO(content))
        if size.num_rows * size.num_columns > MAX_CELLS:
            raise ValueError(f"{size.num_rows} rows of {size.num_columns} columns are too many")
        frame = pd.read_parquet(io.BytesIO(content))
    except Exception as error:  # a damaged file can make the reader raise anything
        raise InvalidFileError(f"not an intact parquet file ({first_line(error)})") from None
    n_found = sum(not str(name).startswith("__index_level_") for name in frame)
    if n_found != n_columns:
        raise InvalidFileError(f"it has {n_found} columns, but expected {n_columns}")
    return _check_rows(frame, n_rows)


def read_arff(content: bytes, n_rows: int | None, md5: str | None) -> pd.DataFrame:
    """Read a dense ARFF file with this checksum. Windows line ends do not count."""
    versions = (content, content.replace(b"\r\n", b"\n"))
    found = [hashlib.md5(v, usedforsecurity=False).hexdigest() for v in versions]
    if md5 and md5.lower() not in found:
        raise InvalidFileError(f"its checksum is {found[0]}, but expected {md5}")
    try:
        file = arff.loads(content.decode("utf-8"))
        frame = pd.DataFrame(file["data"], columns=[name for name, _ in file["attributes"]])
    except Exception as error:  # as above
        raise InvalidFileError(f"not an intact ARFF file ({first_line(error)})") from None
    for name, values in file["attributes"]:
        if isinstance(values, list):
            frame[name] = pd.Categorical(frame[name], values)
    return _check_rows(frame, n_rows)


def _check_rows(frame: pd.DataFrame, n_rows: int | None) -> pd.DataFrame:
    if n_rows is not None and len(frame) != n_rows:
        raise InvalidFileError(f"it has {len(frame)} rows, but expected {n_rows}")
    return frame


def set_dtypes(
    frame: pd.DataFrame, types: Mapping[str, str], values: Mapping[str, Sequence[str]]
) -> pd.DataFrame:
    """Numeric columns as numbers and nominal columns as categories, as ``features.xml`` declares.

    A column without values has no type, and some parquet files store categories as numbers or
    booleans.
    """
    frame = frame.reset_index(drop=True)
    for name, dtype in frame.dtypes.items():
        kind = types.get(str(name))
        if kind == "numeric" and pd.api.types.is_object_dtype(dtype):
            frame[name] = pd.to_numeric(frame[name]).astype(float)
        elif kind == "nominal":
            column: Any = frame[name].astype("category")
            found = column.cat.categories.tolist()
            names = [_declared_value(value, values.get(str(name), [])) for value in found]
            is_renamed = names != found and len(set(names)) == len(names)
            frame[name] = column.cat.rename_categories(names) if is_renamed else column
    return frame


def _declared_value(value: Any, declared: Sequence[str]) -> Any:
    """The spelling of OpenML for a nominal value, if it declares that value."""
    if isinstance(value, float) and value.is_integer() and str(value) not in declared:
        value = int(value)
    text = str(value)
    if text in declared:
        return text
    matches = [name for name in declared if name.lower() == text.lower()]
    return matches[0] if len(matches) == 1 else value


def split_target(
    frame: pd.DataFrame, target: str | None, data_id: int
) -> tuple[pd.DataFrame, np.ndarray]:
    """The features, and the class of each row as text or integer."""
    if target is None or target not in frame.columns:
        raise ValueError(
            f"Got target={target!r}, but expected one of the {len(frame.columns)} columns of "
            f"dataset {data_id}, such as {', '.join(map(repr, frame.columns[-3:]))}."
        )
    values: Any = frame[target]
    missing = np.flatnonzero(values.isna())
    if len(missing):
        # Folds hold row positions, which would change if these rows were dropped.
        raise ValueError(
            f"Got target={target!r}, which is missing in {len(missing)} of {len(frame)} rows of "
            f"dataset {data_id} (first in row {missing[0]}), but expected a class in every row: "
            f"choose another target, or fill these rows in a CSV file of your own."
        )
    return frame.drop(columns=target), as_classes(values, f"target={target!r} of dataset {data_id}")


def _load_folds(cache: Cache, task_id: int, task: TaskMetadata, n_rows: int) -> list[Fold]:
    # A cache may hold the first folds only, if each of them is complete. A download may not.
    name = f"tasks/{task_id}/datasplits.arff"
    is_cached = cache.has(name)
    read = partial(read_folds, n_rows=n_rows, task=task, allow_fewer=is_cached)
    folds = cache.get(name, task.splits_url, read)
    n_declared = (task.n_repeats or 1) * (task.n_folds or 0)
    if len(folds) < n_declared:
        warn_user(
            f"Got {len(folds)} of the {n_declared} folds of task {task_id} in "
            f"{str(cache.folder / name)!r}: only these are used."
        )
    return folds


def read_folds(
    content: bytes, n_rows: int, task: TaskMetadata, allow_fewer: bool = False
) -> list[Fold]:
    """Read ``datasplits.arff``: positions of training and test rows, by repeat, then fold."""
    table = _read_splits(content)
    ids = table["rowid"].to_numpy()
    if ids.min() < 0 or ids.max() >= n_rows:
        raise InvalidFileError(f"it names the rows {ids.min()} to {ids.max()} of {n_rows} rows")
    groups: dict[Any, Any] = dict(list(table.groupby(["repeat", "fold"], sort=True)))
    n_folds = task.n_folds or len({fold for _, fold in groups})
    declared = list(itertools.product(range(task.n_repeats or 1), range(n_folds)))
    expected = declared[: len(groups)] if allow_fewer else declared
    if list(groups) != expected:
        raise InvalidFileError(
            f"it has {len(groups)} folds, but expected the {len(declared)} folds of the task"
        )
    is_complete = task.procedure == "crossvalidation"
    folds = []
    for (repeat, fold), group in groups.items():
        is_test, rows = group["is_test"].to_numpy(), group["rowid"].to_numpy()
        train, test = rows[~is_test], rows[is_test]
        n_found, name = len(np.unique(rows)), f"fold {fold} of repeat {repeat}"
        if not (len(train) and len(test)):
            raise InvalidFileError(f"{name} has no {'test' if len(train) else 'training'} rows")
        if np.intersect1d(train, test).size:
            raise InvalidFileError(f"{name} trains and tests on the same rows")
        if is_complete and n_found != n_rows:
            raise InvalidFileError(f"{name} has {n_found} of {n_rows} rows")
        folds.append((train, test))
    tested = table[table["is_test"]]
    if is_complete and tested.duplicated(["repeat", "rowid"]).any():
        raise InvalidFileError("it tests on a row twice in one repeat")
    if is_complete and not allow_fewer and len(tested) != n_rows * (task.n_repeats or 1):
        raise InvalidFileError("it does not test on every row once per repeat")
    return folds


def _read_splits(content: bytes) -> pd.DataFrame:
    # Splits have a line per row and fold, for which liac-arff takes far longer than pandas.
    head, *rest = re.split(rb"^\s*@data\b.*$", content, maxsplit=1, flags=re.I | re.M)
    found = re.findall(r"^\s*@attribute\s+(\S+)", head.decode("utf-8", "replace"), re.I | re.M)
    names = [name.strip("'\"").lower() for name in found]
    if not rest or not set(SPLIT_COLUMNS) <= set(names):
        raise InvalidFileError("not an ARFF file of splits")
    try:
        lines = io.BytesIO(rest[0])
        table = pd.read_csv(lines, header=None, names=names, comment="%", skipinitialspace=True)
        table = table[SPLIT_COLUMNS]
        kinds = table.pop("type").astype(str).str.strip("'\" ").str.upper()
        if table.empty or table.isna().any(axis=None) or not kinds.isin(["TRAIN", "TEST"]).all():
            raise ValueError("a line is incomplete")
        return table.astype(np.int64).assign(is_test=kinds == "TEST")
    except ValueError as error:  # pandas' parser errors are ValueErrors
        raise InvalidFileError(f"not an intact file of splits ({first_line(error)})") from None
