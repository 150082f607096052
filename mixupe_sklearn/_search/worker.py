"""One process at work on a study: claim trials, evaluate them, tell what was learned."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
import torch
from optuna.samplers import GridSampler, RandomSampler
from optuna.trial import Trial, TrialState

from mixupe_sklearn._search.evaluate import run_alone, run_together, why_not_together
from mixupe_sklearn._search.space import Space
from mixupe_sklearn._search.storage import TRANSIENT_ERRORS, hang_up, quiet
from mixupe_sklearn._search.study import (
    ERROR,
    RESULT,
    Rescue,
    claim,
    finish,
    give_back,
    heartbeats,
    live_trials,
)
from mixupe_sklearn._search.trial import Judge, Record, Task

# Networks that train as one at a time. With more than ten a step gets no cheaper per network. With
# five it is little dearer, and a sampler that learns from finished trials waits for fewer.
N_TOGETHER, N_LEARNING = 10, 5
# Seconds between two looks at the work of others, when there is none left to claim: at first, and
# after a while.
PAUSES = 0.02, 0.5


@dataclass(frozen=True)
class Job:
    """All that a worker needs to know; it travels to other processes."""

    task: Task
    space: Space
    storage: Any
    study_name: str
    sampler: Any
    pruner: Any
    n_trials: float
    n_jobs: int
    deadline: float  # by the wall clock, which processes share
    vectorize: bool | str
    n_threads: int | None
    n_epochs: int | None  # the longest training of a fit; None where no epochs are reported
    token: str  # by which the trials of this search's workers are known


def work_elsewhere(job: Job, number: int) -> str | None:
    """Work in a process of its own: load the study, and leave no connection open."""
    with quiet():
        study = optuna.load_study(
            study_name=job.study_name, storage=job.storage, sampler=job.sampler, pruner=job.pruner
        )
    if number:  # else all workers would draw the same configurations
        study.sampler.reseed_rng()
    try:
        return work(job, study)
    finally:
        hang_up(job.storage)


def work(job: Job, study: Any) -> str | None:
    """Take trials until all that were asked for are done; return why none were run together."""
    rescue = Rescue(study, job.storage)
    reason = None if job.vectorize else "vectorize=False"
    reason = reason or why_not_together(job.task, list(job.space.distributions))
    pause = PAUSES[0]
    # From here on by a clock that nobody sets.
    deadline = time.monotonic() + job.deadline - time.time()
    with _threads(job.n_threads):
        while time.monotonic() < deadline:
            trials: list[Trial] = []
            with heartbeats(job.storage, trials):
                n_wanted = 1 if reason else _n_wanted(job, study)
                _claim_some(job, study, trials, n_wanted, deadline)
                reason = _run(job, study, trials, reason) if trials else reason
            if not trials:
                if not rescue.look():
                    break
                time.sleep(pause)  # others are at work, or have just given something back
                pause = min(2 * pause, PAUSES[1])
    return reason


@contextmanager
def _threads(n_threads: int | None) -> Iterator[None]:
    """Give this process its share of the cores: not every estimator limits itself."""
    before = torch.get_num_threads()
    if n_threads is not None:
        torch.set_num_threads(n_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _n_wanted(job: Job, study: Any) -> int:
    """How many trials to run side by side: no more than this process's share of what is left."""
    is_learning = not isinstance(job.sampler, (GridSampler, RandomSampler))
    n_networks = N_LEARNING if is_learning else N_TOGETHER
    n_begun = sum(trial.state != TrialState.WAITING for trial in live_trials(study))
    n_left = job.n_trials - n_begun
    share = math.ceil(n_left / job.n_jobs) if n_left < math.inf else n_networks
    return max(1, min(n_networks // len(job.task.seeds), share))


def _claim_some(job: Job, study: Any, trials: list[Trial], n_wanted: int, deadline: float) -> None:
    """Add trials to the list, as they are claimed."""
    while len(trials) < n_wanted and time.monotonic() < deadline:
        trial = claim(study, job.storage, job.space, job.n_trials, job.token)
        if trial is None:
            break
        trials.append(trial)


def _run(job: Job, study: Any, trials: list[Trial], reason: str | None) -> str | None:
    """Evaluate claimed trials and tell the study; trials that are interrupted are given back."""
    records = [_open_record(job, trial) for trial in trials]
    untold = dict(enumerate(trials))
    try:
        if reason is None:
            reason = run_together(job.task, records)
        if reason is not None and job.vectorize is True:
            raise ValueError(f"Got vectorize=True, but networks cannot train as one: {reason}.")
        for number, record in enumerate(records):
            if reason is not None:
                run_alone(job.task, record)
            _tell(study, untold[number], record)
            del untold[number]
    except BaseException:
        for number, trial in untold.items():
            with suppress(*TRANSIENT_ERRORS):
                if records[number].error is not None:
                    _tell(study, trial, records[number])
                else:
                    give_back(study, trial)
        raise
    return reason


def _open_record(job: Job, trial: Trial) -> Record:
    judge = Judge(trial, job.pruner, n_epochs=job.n_epochs, n_fits=job.task.n_fits)
    error_score = job.task.error_score
    fill = np.nan if isinstance(error_score, str) else float(error_score)
    return Record(job.space.decode(trial.params), job.task.metric, judge, fill)


def _tell(study: Any, trial: Trial, record: Record) -> None:
    value = record.close()
    result = {
        "scores": record.scores,
        "fit_time": record.fit_time,
        "score_time": record.score_time,
        "n_epochs": record.n_epochs,
    }
    notes: dict[str, Any] = {RESULT: result}
    if record.error is not None:
        notes[ERROR] = [trial.number, record.error]
    finish(study, trial, record.state, value, notes)
