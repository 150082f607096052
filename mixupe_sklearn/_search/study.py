"""The study of a search: its storage, its owner, and which process runs which trial.

Optuna stores the trials, in memory, in a SQLite file or in a database. This module adds three
rules. A study belongs to one search, known by its fingerprint. All processes together run no more
trials than requested. A trial whose worker died is run again.
"""

import functools
import hashlib
import math
import os
import pathlib
import sqlite3
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import optuna
import sqlalchemy
from optuna.samplers import GridSampler
from optuna.storages import (
    InMemoryStorage,
    RDBStorage,
    RetryHeartbeatStaleTrialCallback,
    fail_stale_trials,
)
from optuna.trial import FrozenTrial, Trial, TrialState
from scipy import sparse

from mixupe_sklearn._search.space import PLAIN, Space
from mixupe_sklearn._utils.warnings import warn_user

# Seconds between two heartbeats of a worker, and without one until it counts as dead.
HEARTBEAT, GRACE = 5, 30
# Seconds to wait for another process that locks the file.
LOCK_SECONDS = 60
# Seconds that a process waits for the owner of a study that is just being created.
PATIENCE = 5.0
# Raised by a database that cannot be reached for a moment.
TRANSIENT_ERRORS = (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.StorageInternalError)
# A trial that has killed this many workers is not run again.
MAX_RETRIES = 20
# Parameters that change speed or place, not the result.
FREE = ("verbose", "n_jobs", "device", "memory")
# Keys of our user attributes of studies and trials.
IDENTITY, RESULT = "mixupe_search", "result"
SURPLUS, CLAIMED, ERROR = "surplus", "claimed", "error"  # with the number of the trial itself
HISTORY, ORIGIN = "retry_history", "failed_trial"  # Optuna's, at a retry
# After a clock was set back, heartbeats would be in the future, and no worker would expire.
CAP_HEARTBEATS = sqlalchemy.text(
    "UPDATE trial_heartbeats SET heartbeat = CURRENT_TIMESTAMP WHERE heartbeat > CURRENT_TIMESTAMP"
)


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


# The storage.


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


# The owner: the search whose fingerprint the study keeps.


def open_study(storage: Any, name: str, identity: dict[str, Any], **sampler_and_pruner: Any) -> Any:
    """Create the study, or load it if this search owns it."""
    with quiet():
        try:
            study = optuna.create_study(
                storage=storage, study_name=name, direction="maximize", **sampler_and_pruner
            )
            study.set_user_attr(IDENTITY, identity)
            return study
        except optuna.exceptions.DuplicatedStudyError:
            study = optuna.load_study(study_name=name, storage=storage, **sampler_and_pruner)
    end = time.monotonic() + PATIENCE
    while IDENTITY not in study.user_attrs and time.monotonic() < end:
        if study.get_trials(deepcopy=False):
            raise ValueError(
                f"Got study_name={name!r}, which holds trials that no MixupESearchCV created; "
                f"give another study_name."
            )
        time.sleep(0.2)
    if IDENTITY not in study.user_attrs:  # its owner died right after creating it
        study.set_user_attr(IDENTITY, identity)
    _check_identity(study, identity)
    study.sampler.reseed_rng()  # the first draws of this seed have been tried
    n_running = sum(trial.state == TrialState.RUNNING for trial in live_trials(study))
    if n_running and has_heartbeat(storage):
        warn_user(
            f"Study {name!r} has trials of other processes ({n_running} running or dead): this "
            f"search shares the study with them, and takes over unfinished trials "
            f"{_grace_period(storage):g} seconds after their last heartbeat."
        )
    return study


def _check_identity(study: Any, identity: dict[str, Any]) -> None:
    kept = study.user_attrs[IDENTITY]
    for part, mine in identity.items():
        theirs = kept.get(part)
        # The study's seeds are used, and random_state=None agrees with any.
        is_free = part == "seeds" and len(theirs or []) == len(mine)
        if is_free or (part == "random_state" and mine is None) or theirs == mine:
            continue
        difference = f"{theirs!r} there, {mine!r} here"
        if isinstance(theirs, dict) and isinstance(mine, dict):
            names = [n for n in sorted({*theirs, *mine}) if theirs.get(n) != mine.get(n)]
            difference = "; ".join(
                f"{n} is {theirs.get(n)!r} there and {mine.get(n)!r} here" for n in names[:2]
            )
        raise ValueError(
            f"Got study_name={study.study_name!r}, which was created by a search with another "
            f"{part} ({difference}); give another study_name or storage"
            + (" (a splitter that shuffles needs a random_state)." if part == "cv" else ".")
        )


def fingerprint(task: Any, space: Any, scoring: Any, random_state: Any) -> dict[str, Any]:
    """Describe a search by plain values, part by part, to be stored with its study."""
    is_number = isinstance(random_state, (int, np.integer))
    rows = np.concatenate([part for fold in task.folds for part in fold])
    params = {"class": type(task.estimator).__name__, **task.estimator.get_params(deep=True)}
    passed = {**task.fit_params, **task.score_params}
    shape = getattr(task.X, "shape", None) or (len(task.X),)
    return {
        "space": {name: str(kind) for name, kind in sorted(space.distributions.items())},
        "estimator": _describe_params(params, without=space.distributions),
        "table": f"{' x '.join(map(str, shape))} {_digest(task.X)} {_digest(task.y)}",
        "cv": f"{len(task.folds)} folds {_digest(rows)}",
        "scoring": _describe_scoring(scoring),
        "metric": task.metric,
        "error_score": str(task.error_score),
        "fit_params": {name: _digest(value) for name, value in sorted(passed.items())},
        "n_repeats": len(task.seeds),
        "random_state": int(random_state) if is_number else None,
        "seeds": list(task.seeds),
    }


def _describe_params(params: Mapping[str, Any], without: Collection[str] = ()) -> dict[str, Any]:
    """Parameters as plain values; objects by their type, since a repr may hold an address."""
    return {
        name: _describe(value)
        for name, value in sorted(params.items())
        if name not in without and name.split("__")[-1] not in FREE
    }


def _describe(value: Any) -> Any:
    if isinstance(value, PLAIN):
        return value if value == value else "nan"  # NaN differs from itself
    if isinstance(value, (list, tuple)):
        return str([_describe(item) for item in value])
    if isinstance(value, Mapping):
        return str(_describe_params(value))
    return getattr(value, "__qualname__", type(value).__qualname__)


def _describe_scoring(scoring: Any) -> Any:
    if isinstance(scoring, (list, tuple, set)):
        return sorted(map(str, scoring))
    if isinstance(scoring, Mapping):
        return {name: _describe_scoring(one) for name, one in sorted(scoring.items())}
    # The repr of scikit-learn's scorers describes them.
    return repr(scoring) if hasattr(scoring, "_score_func") else _describe(scoring)


def _digest(data: Any) -> str:
    """A short hash of the values, the same in every process."""
    found = hashlib.sha256()
    for part in _parts(data):
        found.update(np.ascontiguousarray(part).view(np.uint8).data)
    return found.hexdigest()[:12]


def _parts(data: Any) -> list[np.ndarray]:
    if data is None:
        return []
    if sparse.issparse(data):
        data = sparse.csr_array(data)
        return [data.data, data.indices, data.indptr]
    names = [str(name) for name in getattr(data, "columns", [])]
    if hasattr(data, "hash_rows"):  # polars
        return [data.hash_rows().to_numpy(), *_parts(names)]
    try:
        if hasattr(data, "iloc"):
            from pandas.util import hash_pandas_object

            return [hash_pandas_object(data, index=False).to_numpy(), *_parts(names)]
        values = np.asarray(data)
        if values.dtype.kind in "biufc":
            return [values]
    except (TypeError, ValueError):  # lists in cells, lists of different length
        pass
    return [np.frombuffer(repr(data).encode(), dtype=np.uint8)]


# The trials, and which process runs them.


def live_trials(study: Any) -> list[FrozenTrial]:
    """All trials except those that were run again and those beyond the requested number."""
    trials = study.get_trials(deepcopy=False)
    retried = {number for t in trials for number in t.system_attrs.get(HISTORY, [])}
    return [t for t in trials if t.number not in retried and not has_own_note(t, SURPLUS)]


def has_own_note(trial: FrozenTrial, name: str) -> bool:
    """Whether the trial itself has this attribute: a retry inherits those of its predecessor."""
    note = trial.user_attrs.get(name)
    return (note[0] if isinstance(note, list) else note) == trial.number


def claim(study: Any, storage: Any, space: Space, n_trials: float, token: str) -> Trial | None:
    """Start a trial that no other process has, or return None if all requested trials have begun.

    Two processes may start one at the same moment. Numbers are unique, so both can see afterwards
    which of them must withdraw.
    """
    while True:
        live = live_trials(study)
        has_waiting = any(trial.state == TrialState.WAITING for trial in live)
        if len(live) >= n_trials and not has_waiting:
            return None
        with quiet():
            trial = study.ask(space.distributions)
        try:
            if has_heartbeat(storage):
                storage.record_heartbeat(trial._trial_id)
            trial.set_user_attr(CLAIMED, [trial.number, token])
            if not _must_withdraw(study, trial.number, n_trials):
                return trial
            finish(study, trial, TrialState.FAIL, None, {SURPLUS: trial.number})
        except optuna.exceptions.UpdateFinishedTrialError:
            continue  # this process was suspended and declared dead


def _must_withdraw(study: Any, number: int, n_trials: float) -> bool:
    trials = {trial.number: trial for trial in live_trials(study)}
    if number not in trials:  # another process took it over
        return True
    mine = trials.pop(number)
    before = [trial for trial in trials.values() if trial.number < number]
    origin = mine.system_attrs.get(ORIGIN)
    is_grid = isinstance(study.sampler, GridSampler)  # other samplers may repeat a point
    return (
        len(before) >= n_trials
        or (is_grid and any(trial.params == mine.params for trial in before))
        or (origin is not None and any(t.system_attrs.get(ORIGIN) == origin for t in before))
    )


def finish(study: Any, trial: Any, state: TrialState, value: float | None, notes: dict) -> bool:
    """Finish a trial with its result; return False if another process took it over."""
    try:
        for name, note in notes.items():
            trial.set_user_attr(name, note)
        study.tell(trial, value, state=state, skip_if_finished=True)
    except optuna.exceptions.UpdateFinishedTrialError:
        return False  # this worker was declared dead (a suspended laptop); another runs the trial
    except RuntimeError as error:  # an exhausted sampler tries to stop Optuna's loop
        if "Study.stop" not in str(error):
            raise
    return True


def requeue(study: Any, trial: Trial | int) -> None:
    """Fail an interrupted trial and queue it again for the next call."""
    finish(study, trial, TrialState.FAIL, None, {})
    number = trial if isinstance(trial, int) else trial.number
    trials = study.get_trials(deepcopy=False)
    if not any(number in t.system_attrs.get(HISTORY, []) for t in trials):
        _retry(study, trials[number])


def _retry(study: Any, trial: FrozenTrial) -> None:
    with quiet():
        RetryHeartbeatStaleTrialCallback(MAX_RETRIES)(study, trial)


def requeue_all(study: Any, token: str) -> None:
    """Queue again what the workers of one search left unfinished, now that they have ended."""
    for trial in live_trials(study):
        is_ours = trial.user_attrs.get(CLAIMED) == [trial.number, token]
        if trial.state == TrialState.RUNNING and is_ours:
            with suppress(*TRANSIENT_ERRORS):
                requeue(study, trial.number)


# Heartbeats, by which a dead worker is detected.


def has_heartbeat(storage: Any) -> bool:
    """Whether workers send heartbeats, by which a dead one is detected."""
    return isinstance(storage, RDBStorage) and storage.get_heartbeat_interval() is not None


def _grace_period(storage: Any) -> float:
    """Seconds without a heartbeat after which a worker counts as dead."""
    return storage.grace_period or 2 * storage.get_heartbeat_interval()


@contextmanager
def repeat_while(seconds: float, call: Callable[[], Any]) -> Iterator[None]:
    """Call a function at intervals while a block runs; transient storage errors are ignored."""
    is_over = threading.Event()

    def repeat() -> None:
        while not is_over.wait(seconds):
            with suppress(*TRANSIENT_ERRORS):
                call()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@contextmanager
def heartbeats(storage: Any, trials: Sequence[Trial]) -> Iterator[None]:
    """Send heartbeats for trials while a block runs, which may add trials."""
    if not has_heartbeat(storage):
        yield
        return

    def beat() -> None:
        for trial in list(trials):
            storage.record_heartbeat(trial._trial_id)
        storage.remove_session()  # of the heartbeat thread

    with repeat_while(storage.get_heartbeat_interval(), beat):
        yield


class LostTrials:
    """Finds trials of dead workers and queues them again; used by a worker without trials."""

    def __init__(self, study: Any, storage: Any):
        self.study = study
        self.storage = storage
        self.first_seen: dict[tuple[int, TrialState], float] = {}

    def requeue(self) -> bool:
        """Queue lost trials again; return whether there is anything left to do or to wait for."""
        if has_heartbeat(self.storage):
            with self.storage.engine.begin() as connection:
                connection.execute(CAP_HEARTBEATS)
            with quiet():
                fail_stale_trials(self.study)
        live = live_trials(self.study)
        running = [trial for trial in live if trial.state == TrialState.RUNNING]
        lost = [
            trial
            for trial in live
            if trial.state == TrialState.FAIL
            and not has_own_note(trial, ERROR)
            and len(trial.system_attrs.get(HISTORY, [])) < MAX_RETRIES
        ]
        for trial in lost:
            # A worker died between failing a trial and queueing it, or is about to queue it.
            if not running or self._is_old(trial):
                _retry(self.study, trial)
        for trial in running:
            # Its worker died before the first heartbeat, for which Optuna would wait for ever.
            if not has_own_note(trial, CLAIMED) and self._is_old(trial):
                self.storage.record_heartbeat(trial._trial_id)
                self.first_seen[trial.number, trial.state] = math.inf  # one heartbeat, and no more
        has_waiting = any(trial.state == TrialState.WAITING for trial in live)
        is_waited_for = bool(running) and has_heartbeat(self.storage)
        return has_waiting or bool(lost) or is_waited_for

    def _is_old(self, trial: FrozenTrial) -> bool:
        if not has_heartbeat(self.storage):
            return False
        first = self.first_seen.setdefault((trial.number, trial.state), time.monotonic())
        return time.monotonic() - first > _grace_period(self.storage)
