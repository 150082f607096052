"""Tables of OpenML: tasks with their own folds, and data sets, from a cache or from its server.

What is missing in the cache is fetched within a time limit, checked, and asked for again where
that may help; a file of the cache is never changed, replaced or deleted. Reading the files is
left to openml-python, in a scratch folder. See the page "OpenML" of the documentation.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any, Literal, TypeVar

from mixupe_sklearn.datasets._dataset import Table
from mixupe_sklearn.datasets._openml.cache import (
    MissingError,
    Shelf,
    import_openml,
    one_at_a_time,
    server_folder,
)
from mixupe_sklearn.datasets._openml.load import dataset_table, suite_tasks, task_table
from mixupe_sklearn.datasets._openml.web import (
    OutOfReachError,
    RefusedError,
    fetch,
    is_loopback,
)

Result = TypeVar("Result")
CacheDir = str | os.PathLike[str] | None
WAYS_OUT = (
    "connect to the network and run it again, or copy a cache that has it and name the copy by "
    "cache_dir or OPENML_CACHE_DIR"
)


def _check_number(name: str, number: Any) -> int:
    if isinstance(number, bool) or not isinstance(number, Integral) or number < 1:
        raise ValueError(f"Got {name}={number!r}, but expected a whole number >= 1.")
    return int(number)


@dataclass(frozen=True)
class Item:
    """A task or a data set of OpenML, by its number.

    Examples
    --------
    >>> str(Item("task", 59)), Item("dataset", 1557)
    ('task 59', Item('dataset', 1557))
    """

    kind: Literal["task", "dataset"]
    number: int

    def __post_init__(self) -> None:
        if self.kind not in ("task", "dataset"):
            raise ValueError(f"Got kind={self.kind!r}, but expected 'task' or 'dataset'.")
        _check_number("number", self.number)

    def __repr__(self) -> str:
        return f"Item({self.kind!r}, {self.number})"

    def __str__(self) -> str:
        return f"{'task' if self.kind == 'task' else 'data set'} {self.number}"


# The 15 sets of the paper's table, in its order. Abalone has no public task.
PAPER_TASKS: dict[str, Item] = {
    "arrhythmia": Item("task", 5),
    "letter": Item("task", 6),
    "balance-scale": Item("task", 11),
    "mfeat-factors": Item("task", 12),
    "mfeat-fourier": Item("task", 14),
    "mfeat-karhunen": Item("task", 16),
    "mfeat-morphological": Item("task", 18),
    "mfeat-zernike": Item("task", 22),
    "cmc": Item("task", 23),
    "optdigits": Item("task", 28),
    "pendigits": Item("task", 32),
    "iris": Item("task", 59),
    "mnist_784": Item("task", 3573),
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
        Number of the task, such as 59.
    cache_dir : path or None, default=None
        Root of a cache in the layout of openml-python; None: the one that openml is configured
        with (``OPENML_CACHE_DIR``). What is there is read and never changed; what is missing is
        fetched and added. A folder that cannot be written is fine if nothing is missing.
    timeout : float, default=30.0
        Seconds that one try at one file may take, from asking to the last byte. Raise it for large
        files over a slow line.
    n_tries : int, default=3
        How often to ask for a file, with a growing wait between; an unknown task is asked for once.
    offline : bool, default=False
        Whether to read from the cache only. No connection is opened then.

    Returns
    -------
    table : Table
        With ``folds`` by repeat, then fold.

    Raises
    ------
    ValueError
        An unknown task, one that is no classification, or a corrupt file in the cache.
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
    task_id = _check_number("task_id", task_id)
    options = _Options(f"task_id={task_id}", cache_dir, timeout, n_tries, offline)
    return _load(partial(task_table, task_id=task_id), options)


def load_dataset(
    data_id: int,
    *,
    target: str | None = None,
    cache_dir: CacheDir = None,
    timeout: float = 30.0,
    n_tries: int = 3,
    offline: bool = False,
) -> Table:
    """Load a data set of OpenML; it has no folds of its own.

    Parameters
    ----------
    data_id : int
        Number of the data set, such as 1557.
    target : str or None, default=None
        The column with the classes; None: the one that OpenML names. Every row must have a class.
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
    ValueError: Got data_id=-1, but expected a whole number >= 1.
    """
    data_id = _check_number("data_id", data_id)
    options = _Options(f"data_id={data_id}", cache_dir, timeout, n_tries, offline)
    return _load(partial(dataset_table, data_id=data_id, target=target), options)


def tasks_of_suite(
    suite_id: int,
    *,
    cache_dir: CacheDir = None,
    timeout: float = 30.0,
    n_tries: int = 3,
    offline: bool = False,
) -> list[int]:
    """The numbers of the tasks in a benchmark suite, such as 99 (OpenML-CC18).

    Parameters
    ----------
    suite_id : int
        Number of the suite.
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
    ValueError: Got n_tries=0, but expected a whole number >= 1.
    """
    suite_id = _check_number("suite_id", suite_id)
    options = _Options(f"suite_id={suite_id}", cache_dir, timeout, n_tries, offline)
    return _load(partial(suite_tasks, suite_id=suite_id), options)


def prefetch(
    items: Iterable[Item],
    *,
    cache_dir: CacheDir = None,
    timeout: float = 30.0,
    n_tries: int = 3,
    offline: bool = False,
) -> list[Table]:
    """Load all of these, one after the other, so that later loads need no network.

    Of several processes that fetch into one cache, one does at a time, and nothing is fetched
    twice. What is there already is only checked, so a call that was stopped goes on where it was.

    Parameters
    ----------
    items : iterable of Item
        Tasks and data sets, such as ``PAPER_TASKS.values()``.
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
    options: dict[str, Any] = {
        "cache_dir": cache_dir,
        "timeout": timeout,
        "n_tries": n_tries,
        "offline": offline,
    }
    loaders: dict[str, Callable[..., Table]] = {"task": load_task, "dataset": load_dataset}
    return [loaders[item.kind](item.number, **options) for item in items]


@dataclass(frozen=True)
class _Options:
    """How to get something, and what to call it in a sentence."""

    label: str
    cache_dir: CacheDir
    timeout: float
    n_tries: int
    offline: bool

    def __post_init__(self) -> None:
        if not 0 < self.timeout < float("inf"):
            raise ValueError(f"Got timeout={self.timeout!r}, but expected a number of seconds > 0.")
        _check_number("n_tries", self.n_tries)


def _load(read: Callable[..., Result], options: _Options) -> Result:
    """Read from the cache alone, and only if something is missing there, with the server."""
    openml = import_openml()
    server = openml.config.server.rstrip("/")
    root, folder = server_folder(openml, options.cache_dir)
    try:
        return read(openml, Shelf(folder, None), server)
    except MissingError as missing:
        if options.offline:
            raise FileNotFoundError(
                f"Got {options.label}, but the cache has no file {str(missing)!r} and offline=True "
                f"forbids to fetch it: {WAYS_OUT}."
            ) from None
    try:
        with one_at_a_time(root):
            shelf = Shelf(folder, _asker(openml, server, options))
            result = read(openml, shelf, server)
            shelf.keep()
            return result
    except OutOfReachError as error:
        raise ConnectionError(
            f"Got {options.label}, which is not whole in the cache {str(root)!r} and cannot be "
            f"fetched from {error}: {WAYS_OUT}."
        ) from None
    except RefusedError as error:
        raise ValueError(
            f"Got {options.label}, but the server refuses it ({error}): check the number, and for "
            f"what is not public the API key."
        ) from None


def _asker(openml: Any, server: str, options: _Options) -> Callable[..., bytes]:
    key = openml.config.apikey
    base = server.partition("/api/")[0]

    def ask(url: str, check: Callable[[bytes], Any]) -> bytes:
        # Nobody on the way is to read the key, and no other server is to get it.
        is_safe = url.startswith(f"{base}/") and (url.startswith("https://") or is_loopback(url))
        query = {"api_key": key} if key and is_safe else {}
        how: dict[str, Any] = {"timeout": options.timeout, "n_tries": options.n_tries}
        return fetch(url, check, server=base, query=query, **how)

    return ask
