"""The workers of a study: each claims trials, evaluates them and reports the results.

One worker runs in this process, several in processes of their own. A progress bar shows the trials
of all of them.
"""

import math
import os
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import optuna
from joblib import Parallel, delayed
from optuna.samplers import GridSampler, RandomSampler
from optuna.trial import Trial, TrialState
from tqdm.auto import tqdm

from mixupe_sklearn._search.evaluate import evaluate_batched, evaluate_sequential, why_not_batched
from mixupe_sklearn._search.heartbeats import LostTrials, heartbeats, repeat_while
from mixupe_sklearn._search.space import Space
from mixupe_sklearn._search.storage import TRANSIENT_ERRORS, close_connections, quiet
from mixupe_sklearn._search.study import (
    ERROR,
    PROGRESS,
    RESULT,
    claim,
    finish,
    live_trials,
    requeue,
    requeue_all,
    running_trials,
)
from mixupe_sklearn._search.trial import PruningReporter, Task, TrialResult

# Networks in one batch. Beyond ten, a step gets no cheaper per network. With five it costs little
# more, and a sampler that learns from finished trials waits for fewer of them.
N_BATCHED, N_LEARNING = 10, 5
# First and longest pause in seconds between two queries, while only other workers have trials.
PAUSES = 0.02, 0.5
# Seconds between two checks of a worker whether the process that started it lives.
PARENT_SECONDS = 1.0
# Workers may die so often in sequence without a trial before the search gives up.
MOST_DEATHS = 3
# Seconds between two notes of a running trial's progress, which the progress bar shows.
PROGRESS_SECONDS = 0.5
# What a study stores of a trial's result.
RESULT_FIELDS = (
    "scores", "train_scores", "fit_time", "score_time", "n_epochs", "fit_errors"
)  # fmt: skip


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
    parent: int  # process that started the search
    is_shown: bool  # whether there is a progress bar
    is_cautious: bool = False  # whether a worker claims one trial at a time


def run(job: Job, study: Any) -> str | None:
    """Run a study to its end; return why networks were not batched, or None."""
    with _progress_bar(study, job.n_trials) if job.is_shown else nullcontext():
        return work(job, study) if job.n_jobs == 1 else _run_processes(job, study)


def _run_processes(job: Job, study: Any) -> str | None:
    """Run workers in processes of their own, and start them again after one has died.

    The trials that ran at that moment are then run one at a time, since joblib ends all workers
    when one dies, and nobody knows which trial was to blame.
    """
    n_deaths = 0
    while True:
        try:
            return _start_workers(job, job.n_jobs)
        except BrokenExecutor as error:
            suspects = requeue_all(study, job.token)
            n_deaths = 0 if suspects else n_deaths + 1
            _check_deaths(n_deaths, error)
        except BaseException:
            requeue_all(study, job.token)
            raise
        _run_one_by_one(job, study)


def _run_one_by_one(job: Job, study: Any) -> None:
    """Run all waiting trials in one process, one at a time; fail those that kill it."""
    n_deaths = 0
    while any(trial.state == TrialState.WAITING for trial in live_trials(study)):
        n_trials = min(job.n_trials, len(live_trials(study)))
        try:
            _start_workers(replace(job, n_trials=n_trials, is_cautious=True), 1)
            return
        except BrokenExecutor as error:
            killers = running_trials(study, job.token)
            n_deaths = 0 if killers else n_deaths + 1
            _check_deaths(n_deaths, error)
            for trial in killers:
                text = f"The trial killed its worker twice (params: {trial.params})."
                notes = {ERROR: [trial.number, text]}
                finish(study, Trial(study, trial._trial_id), TrialState.FAIL, None, notes)
                if isinstance(job.task.error_score, str):
                    raise RuntimeError(text) from error
        except BaseException:
            requeue_all(study, job.token)
            raise


def _check_deaths(n_deaths: int, error: BaseException) -> None:
    """Give up if workers die again and again without a trial."""
    if n_deaths == MOST_DEATHS:
        raise RuntimeError(
            f"Worker processes died {n_deaths} times without a trial (killed, or out of memory?). "
            f"Finished trials are safe if storage is set."
        ) from error


def _start_workers(job: Job, n_workers: int) -> str | None:
    # With n_jobs=1, joblib would start no process.
    processes = Parallel(n_jobs=max(2, n_workers))
    reasons = processes(delayed(work_in_process)(job, number) for number in range(n_workers))
    return next(filter(None, reasons), None)


@contextmanager
def _progress_bar(study: Any, n_trials: float) -> Iterator[None]:
    """Show finished trials and parts of running ones, the best score and the time left.

    It queries the study twice a second, since other processes may run the trials.
    """

    def update() -> None:
        trials = live_trials(study)
        scores: list[Any] = [t.value for t in trials if t.state == TrialState.COMPLETE]
        bar.set_postfix({"best": f"{max(scores):.4f}"} if scores else {}, refresh=False)
        bar.n = round(sum(map(_part_done, trials)), 1)
        bar.n = int(bar.n) if bar.n == int(bar.n) else bar.n
        bar.refresh()

    total = int(n_trials) if n_trials < math.inf else None
    bar = tqdm(total=total, unit="trial", initial=int(sum(map(_part_done, live_trials(study)))))
    try:
        with repeat_while(0.5, update):
            yield
    finally:
        with suppress(*TRANSIENT_ERRORS):
            update()
        bar.close()


def _part_done(trial: Any) -> float:
    if trial.state.is_finished():
        return 1.0
    number, part = trial.user_attrs.get(PROGRESS, [None, 0.0])
    return part if number == trial.number and trial.state == TrialState.RUNNING else 0.0


def work_in_process(job: Job, number: int) -> str | None:
    """Work in a separate process: load the study, and leave no connection open."""
    _end_with(job.parent)
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


def _end_with(parent: int) -> None:
    """End this process soon after the one that started it: a killed search leaves no workers.

    Of clusters, such as Dask's, a worker is the child of another process, and stays.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_SECONDS)
        os._exit(1)

    is_watched = any(thread.name == watch.__qualname__ for thread in threading.enumerate())
    if os.getppid() == parent and not is_watched:
        threading.Thread(target=watch, name=watch.__qualname__, daemon=True).start()


def work(job: Job, study: Any) -> str | None:
    """Run trials until all requested ones are done; return why they were not batched."""
    lost_trials = LostTrials(study, job.storage)
    reason = None if job.vectorize else "vectorize=False"
    reason = reason or why_not_batched(job.task, job.space.names)
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
    if job.is_cautious:
        return 1
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
        records.append(TrialResult(trial.number, params, job.task.metric, reporter, fill))
    if job.is_shown:
        shown = _Progress(trials)
        for record in records:
            record.on_progress = shown.note
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


class _Progress:
    """Notes now and then how far the trials of a batch are, for the progress bar."""

    def __init__(self, trials: Sequence[Trial]):
        self.trials = {trial.number: trial for trial in trials}
        self.parts = dict.fromkeys(self.trials, 0.0)
        self.next = time.monotonic() + PROGRESS_SECONDS

    def note(self, number: int, part: float) -> None:
        """Note the part of a trial that is done, and store those of all trials if it is time."""
        self.parts[number] = max(part, self.parts[number])
        if time.monotonic() < self.next:
            return
        for other, trial in self.trials.items():
            with suppress(optuna.exceptions.UpdateFinishedTrialError, *TRANSIENT_ERRORS):
                trial.set_user_attr(PROGRESS, [other, round(self.parts[other], 3)])
        self.next = time.monotonic() + PROGRESS_SECONDS


def _tell(study: Any, trial: Trial, record: TrialResult) -> None:
    value = record.close()
    result = {name: getattr(record, name) for name in RESULT_FIELDS}
    notes: dict[str, Any] = {RESULT: result}
    if record.error is not None:
        notes[ERROR] = [trial.number, record.error]
    finish(study, trial, record.state, value, notes)
