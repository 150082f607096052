"""The workers of a study: each claims trials, evaluates them and reports the results.

One worker runs in this process, several in processes of their own. A progress bar shows the trials
of all of them.
"""

import math
import time
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
from joblib import Parallel, delayed
from optuna.samplers import GridSampler, RandomSampler
from optuna.trial import Trial, TrialState
from tqdm.auto import tqdm

from mixupe_sklearn._search.evaluate import evaluate_batched, evaluate_sequential, why_not_batched
from mixupe_sklearn._search.space import Space
from mixupe_sklearn._search.study import (
    ERROR,
    RESULT,
    TRANSIENT_ERRORS,
    LostTrials,
    claim,
    close_connections,
    finish,
    heartbeats,
    live_trials,
    quiet,
    repeat_while,
    requeue,
    requeue_all,
)
from mixupe_sklearn._search.trial import PruningReporter, Task, TrialResult

# Networks in one batch. Beyond ten, a step gets no cheaper per network. With five it costs little
# more, and a sampler that learns from finished trials waits for fewer of them.
N_BATCHED, N_LEARNING = 10, 5
# First and longest pause in seconds between two queries, while only other workers have trials.
PAUSES = 0.02, 0.5
# What a study stores of a trial's result.
RESULT_FIELDS = ("scores", "fit_time", "score_time", "n_epochs")


@dataclass(frozen=True)
class Job:
    """Everything that a worker needs; it is sent to other processes."""

    task: Task
    space: Space
    storage: Any
    study_name: str
    sampler: Any
    pruner: Any
    n_trials: float
    n_jobs: int
    deadline: float  # wall-clock time, which processes share
    vectorize: bool | str
    n_epochs: int | None  # the longest training of a fit; None where no epochs are reported
    token: str  # identifies the trials of this search's workers


def run(job: Job, study: Any, *, is_shown: bool, is_resumable: bool) -> str | None:
    """Run a study to its end; return why networks were not batched, or None.

    If worker processes end early, their trials are queued again.
    """
    with _progress_bar(study, job.n_trials) if is_shown else nullcontext():
        if job.n_jobs == 1:
            return work(job, study)
        try:
            processes = Parallel(n_jobs=job.n_jobs)
            reasons = processes(delayed(work_in_process)(job, n) for n in range(job.n_jobs))
        except BaseException as error:
            requeue_all(study, job.token)
            if not isinstance(error, BrokenExecutor):
                raise
            hint = "Fit again to resume" if is_resumable else "Set storage to resume"
            raise RuntimeError(
                f"A worker process died (killed, or out of memory?). {hint} where it stopped."
            ) from error
        return next(filter(None, reasons), None)


@contextmanager
def _progress_bar(study: Any, n_trials: float) -> Iterator[None]:
    """Show finished trials, the best score and the time left while a block runs.

    It queries the study twice a second, since other processes may run the trials.
    """

    def finished() -> list[Any]:
        return [trial for trial in live_trials(study) if trial.state.is_finished()]

    def update() -> None:
        trials = finished()
        scores = [trial.value for trial in trials if trial.state == TrialState.COMPLETE]
        bar.set_postfix({"best": f"{max(scores):.4f}"} if scores else {}, refresh=False)
        bar.n = len(trials)
        bar.refresh()

    total = int(n_trials) if n_trials < math.inf else None
    bar = tqdm(total=total, unit="trial", initial=len(finished()))
    try:
        with repeat_while(0.5, update):
            yield
    finally:
        with suppress(*TRANSIENT_ERRORS):
            update()
        bar.close()


def work_in_process(job: Job, number: int) -> str | None:
    """Work in a separate process: load the study, and leave no connection open."""
    with quiet():
        study = optuna.load_study(
            study_name=job.study_name, storage=job.storage, sampler=job.sampler, pruner=job.pruner
        )
    if number:  # otherwise all workers would draw the same configurations
        study.sampler.reseed_rng()
    try:
        return work(job, study)
    finally:
        close_connections(job.storage)


def work(job: Job, study: Any) -> str | None:
    """Run trials until all requested ones are done; return why they were not batched."""
    lost_trials = LostTrials(study, job.storage)
    reason = None if job.vectorize else "vectorize=False"
    reason = reason or why_not_batched(job.task, list(job.space.distributions))
    pause = PAUSES[0]
    # From here on by a clock that cannot be set.
    deadline = time.monotonic() + job.deadline - time.time()
    while time.monotonic() < deadline:
        trials: list[Trial] = []
        with heartbeats(job.storage, trials):
            n_wanted = 1 if reason else _n_wanted(job, study)
            while len(trials) < n_wanted and time.monotonic() < deadline:
                trial = claim(study, job.storage, job.space, job.n_trials, job.token)
                if trial is None:
                    break
                trials.append(trial)
            reason = _run(job, study, trials, reason) if trials else reason
        if not trials:
            if not lost_trials.requeue():
                break
            time.sleep(pause)  # other workers have trials, or have just requeued one
            pause = min(2 * pause, PAUSES[1])
    return reason


def _n_wanted(job: Job, study: Any) -> int:
    """Number of trials to batch: at most this worker's share of the remaining ones."""
    is_learning = not isinstance(job.sampler, (GridSampler, RandomSampler))
    n_networks = N_LEARNING if is_learning else N_BATCHED
    n_begun = sum(trial.state != TrialState.WAITING for trial in live_trials(study))
    n_left = job.n_trials - n_begun
    share = math.ceil(n_left / job.n_jobs) if n_left < math.inf else n_networks
    return max(1, min(n_networks // len(job.task.seeds), share))


def _run(job: Job, study: Any, trials: list[Trial], reason: str | None) -> str | None:
    """Evaluate claimed trials and report to the study; interrupted trials are queued again."""
    error_score = job.task.error_score
    fill = np.nan if isinstance(error_score, str) else float(error_score)
    records = []
    for trial in trials:
        reporter = PruningReporter(trial, job.pruner, n_epochs=job.n_epochs, n_fits=job.task.n_fits)
        params = job.space.decode(trial.params)
        records.append(TrialResult(params, job.task.metric, reporter, fill))
    unfinished = dict(enumerate(trials))
    try:
        if reason is None:
            reason = evaluate_batched(job.task, records)
        if reason is not None and job.vectorize is True:
            raise ValueError(f"Got vectorize=True, but networks cannot train as one: {reason}.")
        for number, record in enumerate(records):
            if reason is not None:
                evaluate_sequential(job.task, record)
            _tell(study, unfinished[number], record)
            del unfinished[number]
    except BaseException:
        for number, trial in unfinished.items():
            with suppress(*TRANSIENT_ERRORS):
                if records[number].error is not None:
                    _tell(study, trial, records[number])
                else:
                    requeue(study, trial)
        raise
    return reason


def _tell(study: Any, trial: Trial, record: TrialResult) -> None:
    value = record.close()
    result = {name: getattr(record, name) for name in RESULT_FIELDS}
    notes: dict[str, Any] = {RESULT: result}
    if record.error is not None:
        notes[ERROR] = [trial.number, record.error]
    finish(study, trial, record.state, value, notes)
