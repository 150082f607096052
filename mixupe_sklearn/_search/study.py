"""The study of a search: its owner, and which process runs which trial.

Optuna stores the trials. This module adds three rules. A study belongs to one search. All processes
together run no more trials than requested. A trial whose worker died is run again.
"""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import optuna
from optuna.samplers import GridSampler
from optuna.storages import RetryHeartbeatStaleTrialCallback, fail_stale_trials
from optuna.trial import FrozenTrial, Trial, TrialState

from mixupe_sklearn._search.space import Space
from mixupe_sklearn._search.storage import (
    MAX_RETRIES,
    TRANSIENT_ERRORS,
    cap_heartbeats,
    grace_period_of,
    has_heartbeat,
    quiet,
    repeat_while,
)

# Seconds that a process waits for the owner of a study that is just being created.
PATIENCE = 5.0
# Keys of our user attributes of studies and trials.
IDENTITY, RESULT = "mixupe_search", "result"
SURPLUS, CLAIMED, ERROR = "surplus", "claimed", "error"  # with the number of the trial itself
HISTORY, ORIGIN = "retry_history", "failed_trial"  # Optuna's, at a retry


def open_study(
    storage: Any, name: str, identity: dict[str, Any], **sampler_and_pruner: Any
) -> tuple[Any, bool]:
    """Create the study, or load it if this search owns it; return it and whether it is new."""
    with quiet():
        try:
            study = optuna.create_study(
                storage=storage, study_name=name, direction="maximize", **sampler_and_pruner
            )
            study.set_user_attr(IDENTITY, identity)
            return study, True
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
    return study, False


def _check_identity(study: Any, identity: dict[str, Any]) -> None:
    kept = study.user_attrs[IDENTITY]
    for part, mine in identity.items():
        theirs = kept.get(part)
        # The study's seeds are used, and random_state=None agrees with any.
        is_free = part == "seeds" and len(theirs or []) == len(mine)
        if is_free or (part == "random_state" and mine is None) or theirs == mine:
            continue
        raise ValueError(
            f"Got study_name={study.study_name!r}, which was created by a search with another "
            f"{part} ({_difference(theirs, mine)}); give another study_name or storage"
            + (" (a splitter that shuffles needs a random_state)." if part == "cv" else ".")
        )


def _difference(theirs: Any, mine: Any) -> str:
    if not (isinstance(theirs, dict) and isinstance(mine, dict)):
        return f"{theirs!r} there, {mine!r} here"
    names = [n for n in sorted({*theirs, *mine}) if theirs.get(n) != mine.get(n)]
    here = [f"{n} is {theirs.get(n)!r} there and {mine.get(n)!r} here" for n in names[:2]]
    return "; ".join(here)


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


def requeue_all(study: Any, token: str) -> None:
    """Queue again what the workers of one search left unfinished, now that they have ended."""
    for trial in live_trials(study):
        is_ours = trial.user_attrs.get(CLAIMED) == [trial.number, token]
        if trial.state == TrialState.RUNNING and is_ours:
            with suppress(*TRANSIENT_ERRORS):
                requeue(study, trial.number)


class LostTrials:
    """Finds trials of dead workers and queues them again; used by a worker without trials."""

    def __init__(self, study: Any, storage: Any):
        self.study = study
        self.storage = storage
        self.first_seen: dict[tuple[int, TrialState], float] = {}

    def requeue(self) -> bool:
        """Queue lost trials again; return whether there is anything left to do or to wait for."""
        if has_heartbeat(self.storage):
            cap_heartbeats(self.storage)
            with quiet():
                fail_stale_trials(self.study)
        live = live_trials(self.study)
        running = [trial for trial in live if trial.state == TrialState.RUNNING]
        lost = [trial for trial in live if _was_lost(trial)]
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
        return time.monotonic() - first > grace_period_of(self.storage)


def _was_lost(trial: FrozenTrial) -> bool:
    has_retries = len(trial.system_attrs.get(HISTORY, [])) < MAX_RETRIES
    return trial.state == TrialState.FAIL and not has_own_note(trial, ERROR) and has_retries
