"""The study behind a search: whose it is, and which process runs which trial.

Optuna keeps the trials. Added here: a study belongs to one search; no more trials are run than
were asked for, however many processes share it; and a trial whose worker died is run again.
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
    bring_to_now,
    grace_of,
    has_heartbeat,
    meanwhile,
    quiet,
)

# How long a process that finds a study without an owner waits for the one that is just making it.
PATIENCE = 5.0
# Names under which we note things at studies and trials.
IDENTITY, RESULT = "mixupe_search", "result"
SURPLUS, CLAIMED, ERROR = "surplus", "claimed", "error"  # with the number of the trial itself
HISTORY, ORIGIN = "retry_history", "failed_trial"  # Optuna's, at a retry


class Grid(GridSampler):
    """Optuna's grid sampler for a loop of one's own, which knows by itself when to stop.

    The order is fixed: every worker on a study must mean the same point by the same number.
    """

    def __init__(self, grid: dict[str, list[Any]]):
        super().__init__(grid, seed=0)

    def after_trial(self, study: Any, trial: Any, state: Any, values: Any) -> None:
        """Stop nothing: that only works within ``Study.optimize``."""


def open_study(
    storage: Any, name: str, identity: dict[str, Any], **sampler_and_pruner: Any
) -> tuple[Any, bool]:
    """Create the study, or load it if it is this search's; return it and whether it is new."""
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
                f"Got study_name={name!r}, which holds trials that no MixupESearchCV has made; "
                f"give another study_name."
            )
        time.sleep(0.2)
    if IDENTITY not in study.user_attrs:  # its maker died right after making it
        study.set_user_attr(IDENTITY, identity)
    _check_identity(study, identity)
    return study, False


def _check_identity(study: Any, identity: dict[str, Any]) -> None:
    kept = study.user_attrs[IDENTITY]
    for part, mine in identity.items():
        theirs = kept.get(part)
        # The study's own seeds are used, and no random_state of one's own agrees with any.
        is_free = part == "seeds" and len(theirs or []) == len(mine)
        if is_free or (part == "random_state" and mine is None) or theirs == mine:
            continue
        raise ValueError(
            f"Got study_name={study.study_name!r}, which was made by a search with another {part}"
            f"{_difference(theirs, mine)}; give another study_name or storage"
            + (" (a splitter that shuffles needs a random_state)." if part == "cv" else ".")
        )


def _difference(theirs: Any, mine: Any) -> str:
    if isinstance(theirs, dict) and isinstance(mine, dict):
        names = [n for n in sorted({*theirs, *mine}) if theirs.get(n) != mine.get(n)]
        here = [f"{n} is {theirs.get(n)!r} there and {mine.get(n)!r} here" for n in names[:2]]
        return f" ({'; '.join(here)})"
    return f" ({theirs!r} there, {mine!r} here)"


def live_trials(study: Any) -> list[FrozenTrial]:
    """All trials but those that were run again, and those that were one too many."""
    trials = study.get_trials(deepcopy=False)
    retried = {number for t in trials for number in t.system_attrs.get("retry_history", [])}
    return [t for t in trials if t.number not in retried and not has_own(t, SURPLUS)]


def has_own(trial: FrozenTrial, name: str) -> bool:
    """Whether this was noted at the trial itself: a retry inherits the notes of the one before."""
    note = trial.user_attrs.get(name)
    return (note[0] if isinstance(note, list) else note) == trial.number


def claim(study: Any, storage: Any, space: Space, n_trials: float, token: str) -> Trial | None:
    """Start a trial that no one else has, or return None where all that were asked for have begun.

    Two processes may start one at the same moment. Numbers are unique, so afterwards both can see
    which of them has to stand back.
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
            if not _stands_back(study, trial.number, n_trials):
                return trial
            finish(study, trial, TrialState.FAIL, None, {SURPLUS: trial.number})
        except optuna.exceptions.UpdateFinishedTrialError:
            continue  # this process slept, and was taken for dead


def _stands_back(study: Any, number: int, n_trials: float) -> bool:
    trials = {trial.number: trial for trial in live_trials(study)}
    if number not in trials:  # taken over by another process meanwhile
        return True
    mine = trials.pop(number)
    before = [trial for trial in trials.values() if trial.number < number]
    origin = mine.system_attrs.get(ORIGIN)
    is_grid = isinstance(study.sampler, GridSampler)  # others may well come to a point again
    return (
        len(before) >= n_trials
        or (is_grid and any(trial.params == mine.params for trial in before))
        or (origin is not None and any(t.system_attrs.get(ORIGIN) == origin for t in before))
    )


def finish(study: Any, trial: Trial, state: TrialState, value: float | None, notes: dict) -> bool:
    """End a trial with what was learned; return False if it was taken over meanwhile."""
    try:
        for name, note in notes.items():
            trial.set_user_attr(name, note)
        study.tell(trial, value, state=state, skip_if_finished=True)
    except optuna.exceptions.UpdateFinishedTrialError:
        return False  # this worker was taken for dead (a laptop asleep), another runs the trial
    except RuntimeError as error:  # a sampler that has run out wants to stop Optuna's own loop
        if "Study.stop" not in str(error):
            raise
    return True


def give_back(study: Any, trial: Trial | int) -> None:
    """End a trial that was interrupted, so that it is run again at the next call."""
    told = study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)
    if not any(told.number in t.system_attrs.get(HISTORY, []) for t in study.get_trials()):
        _retry(study, told)


def _retry(study: Any, trial: FrozenTrial) -> None:
    with quiet():
        RetryHeartbeatStaleTrialCallback(MAX_RETRIES)(study, trial)


@contextmanager
def heartbeats(storage: Any, trials: Sequence[Trial]) -> Iterator[None]:
    """Give signs of life for trials while a block runs, which may add to them."""
    if not has_heartbeat(storage):
        yield
        return

    def beat() -> None:
        for trial in list(trials):
            storage.record_heartbeat(trial._trial_id)
        storage.remove_session()  # that of the thread which beats

    with meanwhile(storage.get_heartbeat_interval(), beat):
        yield


def give_back_all(study: Any, token: str) -> None:
    """Give back what the workers of one search have left undone, now that they have ended."""
    for trial in live_trials(study):
        claimed = trial.user_attrs.get(CLAIMED, [None, None])
        if trial.state == TrialState.RUNNING and claimed == [trial.number, token]:
            with suppress(*TRANSIENT_ERRORS):
                give_back(study, trial.number)


class Rescue:
    """Find trials of dead workers and put them back into the queue; for a worker with none left."""

    def __init__(self, study: Any, storage: Any):
        self.study = study
        self.storage = storage
        self.first_seen: dict[tuple[int, TrialState], float] = {}

    def look(self) -> bool:
        """Look once; return whether there is still something to do or to wait for."""
        if has_heartbeat(self.storage):
            bring_to_now(self.storage)
            with quiet():
                fail_stale_trials(self.study)
        live = live_trials(self.study)
        running = [trial for trial in live if trial.state == TrialState.RUNNING]
        lost = [trial for trial in live if _was_lost(trial)]
        for trial in lost:
            # Someone died between failing a trial and queueing it again, or is just about to.
            if not running or self._is_old(trial):
                _retry(self.study, trial)
        for trial in running:
            # Its worker died before the first sign of life, and Optuna waits for one for ever.
            if not has_own(trial, CLAIMED) and self._is_old(trial):
                self.storage.record_heartbeat(trial._trial_id)
                self.first_seen[trial.number, trial.state] = math.inf  # one sign, and no more
        has_waiting = any(trial.state == TrialState.WAITING for trial in live)
        is_waited_for = bool(running) and has_heartbeat(self.storage)
        return has_waiting or bool(lost) or is_waited_for

    def _is_old(self, trial: FrozenTrial) -> bool:
        if not has_heartbeat(self.storage):
            return False
        first = self.first_seen.setdefault((trial.number, trial.state), time.monotonic())
        return time.monotonic() - first > grace_of(self.storage)


def _was_lost(trial: FrozenTrial) -> bool:
    has_retries = len(trial.system_attrs.get(HISTORY, [])) < MAX_RETRIES
    return trial.state == TrialState.FAIL and not has_own(trial, ERROR) and has_retries
