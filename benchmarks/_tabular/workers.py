"""Who runs the jobs: this process, processes beside it, or the workers of a Dask cluster."""

import os
import pathlib
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from itertools import islice
from threading import Thread, current_thread, main_thread
from typing import Any

import joblib

from benchmarks._tabular.fits import Row, run_job

# A data class with a table, which is whatever has a fingerprint, and a cost; what is done with it
# is the business of a RunJob.
Job = Any
Done = tuple[int, list[Row]]
RunJob = Callable[[Job], list[Row]]
HandOut = Callable[[Iterable[tuple[Job, int]]], Iterable[Done]]


class LostWorkersError(RuntimeError):
    """The processes that ran the jobs are gone."""


class Workers:
    """Runs jobs, in any order, and gives back their rows as they are finished.

    Parameters
    ----------
    hand_out : callable
        Takes jobs and gives back what they return.
    folder : pathlib.Path or None, default=None
        Where to lay tables down for processes of this machine, which then read each of them
        once; None sends them along with each job.
    """

    def __init__(self, hand_out: HandOut, folder: pathlib.Path | None = None):
        self.hand_out = hand_out
        self.folder = folder

    def run(self, jobs: Iterable[Job]) -> Iterator[Done]:
        """The cost and the rows of each job."""
        results = iter(self.hand_out((self._light(job), job.cost) for job in jobs))
        while True:
            try:
                done = next(results)
            except StopIteration:
                return
            except Exception as error:  # a fit that fails is a row: this is none of the fits
                raise LostWorkersError(
                    f"Got {type(error).__name__}, but expected workers that stay: one was ended, "
                    f"perhaps since memory ran out (fewer --jobs need less). All rows before it "
                    f"are safe, and the same command goes on."
                ) from error
            yield done

    def _light(self, job: Job) -> Job:
        if self.folder is None:
            return job
        path = self.folder / job.table.fingerprint
        if not path.exists():
            joblib.dump(job.table, path)
        return replace(job, table=path)


@contextmanager
def workers(n_jobs: int, scheduler: str | None, run_job: RunJob = run_job) -> Iterator[Workers]:
    """Processes of this machine, one thread each, or the workers of a Dask cluster."""
    # An interrupt leaves jobs unfinished, which joblib takes for a mistake.
    warnings.filterwarnings("ignore", ".*tasks which were still being processed")
    if scheduler is not None:
        from distributed import Client

        with Client(scheduler, timeout=5) as client:
            yield Workers(partial(_through_dask, run_job, client))
    elif n_jobs == 1:
        yield Workers(partial(_through_joblib, run_job, 1))
    else:
        with (
            tempfile.TemporaryDirectory(prefix="mixupe-tables-") as folder,
            joblib.parallel_config("loky", inner_max_num_threads=1),
        ):
            yield Workers(partial(_through_joblib, run_job, n_jobs), pathlib.Path(folder))


def _through_joblib(
    run_job: RunJob, n_jobs: int, tasks: Iterable[tuple[Job, int]]
) -> Iterable[Done]:
    parallel = joblib.Parallel(
        n_jobs=n_jobs, return_as="generator_unordered", batch_size=1, pre_dispatch=2 * n_jobs
    )
    return parallel(joblib.delayed(_run)(run_job, job, cost, os.getpid()) for job, cost in tasks)


def _through_dask(run_job: RunJob, client: Any, tasks: Iterable[tuple[Job, int]]) -> Iterator[Done]:
    # Not through joblib: it runs all jobs here where the cluster has one core, or is lost.
    from distributed import as_completed

    waiting = iter(tasks)
    n_at_a_time = 2 * max(1, sum(client.ncores().values()))

    def send(n_jobs: int) -> list[Any]:
        tasks = islice(waiting, n_jobs)
        return [client.submit(_run, run_job, *task, 0, pure=False) for task in tasks]

    futures = as_completed(send(n_at_a_time))
    for future in futures:
        yield future.result()
        futures.update(send(1))


def _run(run_job: RunJob, job: Job, cost: int, owner: int) -> Done:
    if os.getppid() == owner and current_thread() is main_thread():
        _settle(owner)
    if isinstance(job.table, pathlib.Path):
        job = replace(job, table=_table_at(job.table))
    return cost, run_job(job)


@lru_cache(maxsize=1)
def _table_at(path: pathlib.Path) -> Any:
    return joblib.load(path)


@lru_cache
def _settle(owner: int) -> None:
    """Make this process one that ends with its owner, and not before."""
    # Ctrl-C reaches all processes of a terminal; the one that gave the job out ends the run.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with, args=(os.getppid, owner), daemon=True).start()


def _end_with(parent: Callable[[], int], owner: int) -> Any:
    # A killed owner tells nobody, and its processes would train on for nobody.
    while parent() == owner:
        time.sleep(1.0)
    os._exit(1)
