"""Heartbeats of workers, and the trials of workers whose heartbeat has stopped."""

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import sqlalchemy
from optuna.storages import fail_stale_trials
from optuna.trial import FrozenTrial, Trial, TrialState

from mixupe_sklearn._search.storage import (
    MAX_RETRIES,
    TRANSIENT_ERRORS,
    grace_period,
    has_heartbeat,
    quiet,
)
from mixupe_sklearn._search.study import (
    CLAIMED,
    ERROR,
    HISTORY,
    has_own_note,
    live_trials,
    queue_again,
)

# After a clock was set back, heartbeats would be in the future, and no worker would expire.
CAP_HEARTBEATS = sqlalchemy.text(
    "UPDATE trial_heartbeats SET heartbeat = CURRENT_TIMESTAMP WHERE heartbeat > CURRENT_TIMESTAMP"
)


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
                queue_again(self.study, trial)
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
        return time.monotonic() - first > grace_period(self.storage)
