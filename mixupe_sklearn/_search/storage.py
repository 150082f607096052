"""Where trials are stored: in memory, in a SQLite file or in a database."""

import functools
import os
import pathlib
import sqlite3
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import optuna
import sqlalchemy
from optuna.storages import InMemoryStorage, RDBStorage, RetryHeartbeatStaleTrialCallback

from mixupe_sklearn._utils.warnings import warn_user

# Seconds between two heartbeats of a worker, and without one until it counts as dead.
HEARTBEAT, GRACE = 5, 30
# Seconds to wait for another process that locks the file.
LOCK_SECONDS = 60
# Raised by a database that cannot be reached for a moment.
TRANSIENT_ERRORS = (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.StorageInternalError)
# A trial that was lost with this many processes is not run again.
MAX_RETRIES = 20


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Optuna's log, and its warnings about what is done here on purpose."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
            warnings.filterwarnings("ignore", message="Heartbeat of storage is supposed")
            yield
    finally:
        optuna.logging.set_verbosity(before)


def open_storage(storage: Any) -> Any:
    """Turn None, a file name, a database URL or an Optuna storage into a storage."""
    if storage is None or str(storage) in ("sqlite://", "sqlite:///:memory:"):
        return InMemoryStorage()
    if isinstance(storage, optuna.storages.BaseStorage):
        if not (isinstance(storage, InMemoryStorage) or has_heartbeat(storage)):
            warn_user(
                f"Got a {type(storage).__name__} without heartbeat_interval: a trial whose worker "
                f"dies counts as running for ever; pass a file name or a database URL as storage."
            )
        return storage
    if not isinstance(storage, (str, pathlib.Path)) or not str(storage):
        raise ValueError(
            f"Got storage={storage!r}, but expected a file name, a database URL, an Optuna "
            f"storage or None."
        )
    url, options = str(storage), {}
    name = url.removeprefix("sqlite:///")
    if "://" not in name:
        path = pathlib.Path(name).absolute()
        _check_sqlite(path)
        url, options = f"sqlite:///{path}", {"creator": functools.partial(_open_sqlite, str(path))}
    try:
        with quiet():
            connect = functools.partial(
                RDBStorage,
                url,
                engine_kwargs=options,
                heartbeat_interval=HEARTBEAT,
                grace_period=GRACE,
                heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(MAX_RETRIES),
            )
            try:
                opened = connect()
            except sqlalchemy.exc.SQLAlchemyError:
                time.sleep(1.0)  # two processes that create the tables at the same moment fail
                opened = connect()
        if options:
            _end_if_replaced(opened.engine, path)
        return opened
    except (sqlalchemy.exc.SQLAlchemyError, RuntimeError) as error:
        reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        raise ValueError(
            f"Got storage={_without_password(str(storage))!r}, which cannot be reached or "
            f"written: {reason}."
        ) from error


def _without_password(url: str) -> str:
    try:
        return sqlalchemy.engine.make_url(url).render_as_string(hide_password=True)
    except sqlalchemy.exc.ArgumentError:
        return url


def _open_sqlite(path: str) -> sqlite3.Connection:
    # Another process may lock the file for a moment. With a write-ahead log a commit does not wait
    # for the disk: a killed process loses nothing, a power cut the last transactions.
    connection = sqlite3.connect(path, timeout=LOCK_SECONDS, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    return connection


def _end_if_replaced(engine: Any, path: pathlib.Path) -> None:
    """Begin no transaction once another file has the name of the database: it would be lost."""
    found = path.stat()

    @sqlalchemy.event.listens_for(engine, "begin")
    def check(_: Any) -> None:
        if not path.exists() or not os.path.samestat(found, path.stat()):
            raise sqlalchemy.exc.InvalidRequestError("another file has taken its place")


def _check_sqlite(path: pathlib.Path) -> None:
    """Check a database file: a truncated one would fail later, with an unclear error."""
    if not path.is_file() or path.stat().st_size == 0:
        return
    connection = sqlite3.connect(path, timeout=LOCK_SECONDS)
    try:
        answer = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        connection.execute("BEGIN IMMEDIATE")
        connection.rollback()
    except sqlite3.OperationalError as error:  # locked by another program, or not writable
        raise ValueError(
            f"Got storage={str(path)!r}, which cannot be reached or written: {error}."
        ) from error
    except sqlite3.DatabaseError as error:
        answer = str(error)
    finally:
        connection.close()
    if answer != "ok":
        raise ValueError(
            f"Got storage={str(path)!r}, which is not a complete SQLite database ({answer}): "
            f"restore a copy of it, or give another file name."
        )


@contextmanager
def open_for_search(storage: Any) -> Iterator[Any]:
    """Open a storage for a search; its errors, such as a full disk, become one sentence."""
    found = open_storage(storage)
    try:
        yield found
    except TRANSIENT_ERRORS as error:
        reason: BaseException = error
        while reason.__cause__ is not None:
            reason = reason.__cause__
        is_named = isinstance(storage, (str, pathlib.Path))
        shown = _without_password(str(storage)) if is_named else type(storage).__name__
        raise OSError(
            f"Got storage={shown!r}, which failed during the search "
            f"({str(reason).strip().splitlines()[0]}), but expected one that can be reached and "
            f"has room: finished trials are safe there, and the same search resumes."
        ) from error
    finally:
        close_connections(found)


def close_connections(storage: Any) -> None:
    """Close idle connections; a storage that is used again opens new ones."""
    if isinstance(storage, RDBStorage):
        storage.remove_session()
        storage.engine.dispose()


def has_heartbeat(storage: Any) -> bool:
    """Whether workers send heartbeats, by which a dead one is detected."""
    return isinstance(storage, RDBStorage) and storage.get_heartbeat_interval() is not None


def grace_period(storage: Any) -> float:
    """Seconds without a heartbeat after which a worker counts as dead."""
    return storage.grace_period or 2 * storage.get_heartbeat_interval()
