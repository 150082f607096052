"""Tables of OpenML: tasks with their folds, and datasets, from a cache or from its server.

Missing files are downloaded within a time limit, checked, and retried. A file of the cache is never
changed, replaced or deleted. See the page "OpenML" of the documentation.
"""

import importlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from mixupe_sklearn._utils.parameter_rules import Number, check_rules
from mixupe_sklearn.datasets._dataset import Table

CacheDir = str | os.PathLike[str] | None


COUNT = Number("an integer >= 1", 1, integer=True)
SECONDS = Number("a number of seconds > 0", open_low=True)


@dataclass(frozen=True)
class Item:
    """A task or a dataset of OpenML, by its id.

    Examples
    --------
    >>> Item("dataset", 1557)
    Item(kind='dataset', number=1557)
    """

    kind: Literal["task", "dataset"]
    number: int


_PAPER_TASK_IDS = {
    **{"arrhythmia": 5, "letter": 6, "balance-scale": 11, "mfeat-factors": 12},
    **{"mfeat-fourier": 14, "mfeat-karhunen": 16, "mfeat-morphological": 18, "mfeat-zernike": 22},
    **{"cmc": 23, "optdigits": 28, "pendigits": 32, "iris": 59, "mnist_784": 3573},
}
# The 15 datasets of the paper's table, in its order. Abalone has no public task.
PAPER_TASKS: dict[str, Item] = {
    **{name: Item("task", number) for name, number in _PAPER_TASK_IDS.items()},
    "abalone": Item("dataset", 1557),
    "volkert": Item("task", 168331),
}


def load_task(
    task_id: int,
    *,
    cache_dir: CacheDir = None,
    timeout: float = 30.0,
    n_tries: int = 3,
    offline: bool = False,
) -> Table:
    """Load a classification task of OpenML, with its own folds.

    Parameters
    ----------
    task_id : int
        Id of the task, such as 59.
    cache_dir : path or None, default=None
        Root of a cache in the layout of openml-python. None means the root that openml is
        configured with (``OPENML_CACHE_DIR``). Its files are read and never changed. Missing files
        are downloaded and added. A read-only folder is fine if no file is missing.
    timeout : float, default=30.0
        Limit in seconds for one download of one file, from the request to the last byte. Raise it
        for large files over a slow connection.
    n_tries : int, default=3
        Number of tries for each file, with a growing wait between them. The id of an unknown task
        is requested once.
    offline : bool, default=False
        Whether to read from the cache only, without opening a connection.

    Returns
    -------
    table : Table
        With ``folds`` by repeat, then fold.

    Raises
    ------
    ValueError
        The task is unknown or not a classification, or a file in the cache is corrupt.
    FileNotFoundError
        A file is not in the cache, and ``offline`` is set.
    ConnectionError
        A file is not in the cache, and the server gave no usable answer.

    Examples
    --------
    >>> load_task(59, offline=True, cache_dir="no/such/folder")
    Traceback (most recent call last):
    FileNotFoundError: Got task_id=59, but the cache has no file ...
    """
    return _load("load_task", "task_id", task_id, cache_dir, timeout, n_tries, offline)


def load_dataset(
    data_id: int,
    *,
    target: str | None = None,
    cache_dir: CacheDir = None,
    timeout: float = 30.0,
    n_tries: int = 3,
    offline: bool = False,
) -> Table:
    """Load a dataset of OpenML, which has no folds.

    Parameters
    ----------
    data_id : int
        Id of the dataset, such as 1557.
    target : str or None, default=None
        The column with the classes. None means the target that OpenML declares. Every row must
        have a class.
    cache_dir, timeout, n_tries, offline
        As in :func:`load_task`.

    Returns
    -------
    table : Table
        With ``folds=None``.

    Examples
    --------
    >>> load_dataset(-1)
    Traceback (most recent call last):
    ValueError: Got data_id=-1, but expected an integer >= 1.
    """
    limits = (cache_dir, timeout, n_tries, offline)
    return _load("load_dataset", "data_id", data_id, *limits, target=target)


def tasks_of_suite(
    suite_id: int,
    *,
    cache_dir: CacheDir = None,
    timeout: float = 30.0,
    n_tries: int = 3,
    offline: bool = False,
) -> list[int]:
    """The ids of the tasks in a benchmark suite, such as 99 (OpenML-CC18).

    Parameters
    ----------
    suite_id : int
        Id of the suite.
    cache_dir, timeout, n_tries, offline
        As in :func:`load_task`.

    Returns
    -------
    task_ids : list of int
        In the order of the suite.

    Examples
    --------
    >>> tasks_of_suite(99, n_tries=0)
    Traceback (most recent call last):
    ValueError: Got n_tries=0, but expected an integer >= 1.
    """
    return _load("load_suite", "suite_id", suite_id, cache_dir, timeout, n_tries, offline)


def prefetch(
    items: Iterable[Item],
    *,
    cache_dir: CacheDir = None,
    timeout: float = 30.0,
    n_tries: int = 3,
    offline: bool = False,
) -> list[Table]:
    """Load several tasks and datasets, so that later loads need no network.

    If several processes prefetch into one cache, one of them downloads at a time, and no file is
    downloaded twice. Files in the cache are only checked, so an interrupted call can be resumed.

    Parameters
    ----------
    items : iterable of Item
        Tasks and datasets, such as ``PAPER_TASKS.values()``.
    cache_dir, timeout, n_tries, offline
        As in :func:`load_task`.

    Returns
    -------
    tables : list of Table
        In the order of the items.

    Examples
    --------
    >>> prefetch([])
    []
    """
    limits: dict[str, Any] = {"cache_dir": cache_dir, "timeout": timeout}
    limits |= {"n_tries": n_tries, "offline": offline}
    loaders: dict[str, Callable[..., Table]] = {"task": load_task, "dataset": load_dataset}
    return [loaders[item.kind](item.number, **limits) for item in items]


def _load(
    load: str,
    id_name: str,
    number: Any,
    cache_dir: CacheDir,
    timeout: float,
    n_tries: int,
    offline: bool,
    **options: Any,
) -> Any:
    """Check the arguments, import the extra's modules, and call a function of ``_openml.load``."""
    values = {id_name: number, "timeout": timeout, "n_tries": n_tries}
    check_rules(values, {id_name: COUNT, "timeout": SECONDS, "n_tries": COUNT})
    try:
        module = importlib.import_module("mixupe_sklearn.datasets._openml.load")
    except ImportError as error:
        raise ImportError(
            f"Got no module {error.name or 'openml'!r}, but data of OpenML needs it: pip install "
            f"mixupe-sklearn[openml]."
        ) from error
    read = partial(getattr(module, load), **{id_name: int(number)}, **options)
    label = f"{id_name}={number}"
    return module.through_cache(read, label, cache_dir, timeout, n_tries, offline)
