"""One process at work on a study: claim trials, evaluate them, tell what was learned."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import optuna
import torch
from optuna.trial import Trial, TrialState

from mixupe_sklearn._base import BaseMixupE
from mixupe_sklearn._search.evaluate import run_alone, run_together, why_not_together
from mixupe_sklearn._search.space import Space
from mixupe_sklearn._search.storage import hang_up, has_heartbeat, quiet
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
from mixupe_sklearn._search.trials import Judge, Record, Task, core_of

# Networks that train as one at a time: with more, a step gets no cheaper per network, and more is
# lost if the process dies.
N_TOGETHER = 10
# Seconds between two looks at the work of others, when there is none left to claim.
PAUSE = 0.5


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
    deadline: float  # by the wall clock, which all processes of a machine share
    vectorize: bool | str
    n_threads: int | None

    @property
    def n_epochs(self) -> int | None:
        """The longest training that the space allows; None where no epochs are reported."""
        prefix, core = core_of(self.task.estimator)
        if not isinstance(core, BaseMixupE):
            return None
        kind: Any = self.space.distributions.get(f"{prefix}max_epochs")
        if kind is None:
            return core.max_epochs
        return int(max(kind.choices) if hasattr(kind, "choices") else kind.high)


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
    reason = "vectorize=False" if not job.vectorize else None
    reason = reason or why_not_together(job.task, list(job.space.distributions))
    with _threads(job.n_threads):
        while time.time() < job.deadline:
            n_wanted = 1 if reason else max(1, N_TOGETHER // len(job.task.seeds))
            trials = _claim_some(job, study, n_wanted)
            if trials:
                reason = _run(job, study, trials, reason)
            elif not (has_heartbeat(job.storage) and _is_busy(study)):
                break
            else:
                rescue.look()
                time.sleep(PAUSE)
    return reason


def _is_busy(study: Any) -> bool:
    return any(trial.state == TrialState.RUNNING for trial in live_trials(study))


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


def _claim_some(job: Job, study: Any, n_wanted: int) -> list[Trial]:
    trials: list[Trial] = []
    while len(trials) < n_wanted:
        trial = claim(study, job.storage, job.space, job.n_trials)
        if trial is None:
            break
        trials.append(trial)
    return trials


def _run(job: Job, study: Any, trials: list[Trial], reason: str | None) -> str | None:
    """Evaluate claimed trials and tell the study; trials that are interrupted are given back."""
    n_epochs, n_fits = job.n_epochs, job.task.n_fits
    records = [
        Record(
            job.space.decode(trial.params),
            job.task.metric,
            Judge(trial, job.pruner, n_epochs=n_epochs, n_fits=n_fits),
        )
        for trial in trials
    ]
    open_trials = dict(enumerate(trials))
    try:
        with heartbeats(job.storage, trials):
            if reason is None:
                reason = run_together(job.task, records)
            for number, record in enumerate(records):
                if reason is not None:
                    run_alone(job.task, record)
                _tell(job, study, open_trials.pop(number), record)
    except BaseException as error:
        for number, trial in open_trials.items():
            if number == min(open_trials) and isinstance(error, Exception):
                records[number].fail(error)
                _tell(job, study, trial, records[number])
            else:
                give_back(study, trial)
        raise
    return reason


def _tell(job: Job, study: Any, trial: Trial, record: Record) -> None:
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
