"""The trials of a study, and which process runs which.

All processes together run no more trials than requested. A trial that was interrupted is run again.
"""

from contextlib import suppress
from typing import Any

import optuna
from optuna.samplers import GridSampler
from optuna.storages import RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial, Trial, TrialState

from mixupe_sklearn._search.space import Space
from mixupe_sklearn._search.storage import MAX_RETRIES, TRANSIENT_ERRORS, has_heartbeat, quiet

# Keys of our user attributes of trials.
RESULT, PROGRESS = "result", "progress"
SURPLUS, CLAIMED, ERROR = "surplus", "claimed", "error"  # with the number of the trial itself
HISTORY, ORIGIN = "retry_history", "failed_trial"  # Optuna's, at a retry


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
        queue_again(study, trials[number])


def queue_again(study: Any, trial: FrozenTrial) -> None:
    with quiet():
        RetryHeartbeatStaleTrialCallback(MAX_RETRIES)(study, trial)


def running_trials(study: Any, token: str) -> list[FrozenTrial]:
    """The trials that the workers of one search have claimed and not finished."""
    return [
        trial
        for trial in live_trials(study)
        if trial.state == TrialState.RUNNING
        and trial.user_attrs.get(CLAIMED) == [trial.number, token]
    ]


def requeue_all(study: Any, token: str) -> int:
    """Queue again what the workers of one search left unfinished, now that they have ended."""
    trials = running_trials(study, token)
    for trial in trials:
        with suppress(*TRANSIENT_ERRORS):
            requeue(study, trial.number)
    return len(trials)
