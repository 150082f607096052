"""Run the fits that a results file does not have yet, in processes of this machine."""

import os
import pathlib
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from threading import Thread, current_thread, main_thread
from typing import Any, Protocol

import joblib
from tqdm.auto import tqdm

from benchmarks._harness.environment import commit, versions_of
from benchmarks._harness.report_tables import printable
from benchmarks._harness.results_file import Key

Row = dict[str, Any]
Job = Any  # a dataclass with a ``table``, which has a fingerprint, and a ``cost``
RunJob = Callable[[Job], list[Row]]


class LostWorkersError(RuntimeError):
    """A worker process ended before its job did."""


@dataclass(frozen=True)
class Item:
    """A dataset by name, loaded when it is needed: a suite may not fit into memory at once."""

    name: str
    load: Callable[[], Any]
    is_required: bool = True


class Plan(Protocol):
    """What a benchmark runs on each dataset."""

    @property
    def methods(self) -> Sequence[str]:
        """Methods; the versions of their libraries are recorded."""

    @property
    def retry_failed(self) -> bool:
        """Whether failed fits are run again."""

    def open_jobs(self, table: Any, done: set[Key]) -> list[Job]:
        """Return the jobs on a dataset that are not in ``done``, and add them to ``done``."""

    def run_job(self, job: Job) -> list[Row]:
        """Do a job and return its rows."""


def run(
    items: Sequence[Item],
    plan: Plan,
    file: Any,
    *,
    n_jobs: int = 1,
    is_shown: bool = True,
    dask: str | None = None,
) -> dict[str, str]:
    """Run and append the fits that the file lacks; return why datasets could not be loaded.

    ``dask`` is the address of a cluster's scheduler, whose workers then do the jobs.
    """
    note = {"run": datetime.now(UTC).isoformat(timespec="seconds"), "commit": commit()}
    note["versions"] = versions_of(plan.methods)
    done = file.keys(with_failed=not plan.retry_failed)
    costs, not_run = _open_costs(items, plan, set(done), is_shown)
    wanted = [item for item, cost in zip(items, costs, strict=True) if cost]
    jobs = _open_jobs(wanted, plan, done, not_run)
    with (
        closing(run_jobs(jobs, plan.run_job, n_jobs, dask)) as results,
        tqdm(
            total=sum(costs),
            disable=not is_shown or not any(costs),
            bar_format="{percentage:3.0f} % |{bar}| {elapsed} so far, {remaining} left{postfix}",
            smoothing=0,  # as the lengths of jobs differ
        ) as bar,
    ):
        for cost, rows in results:
            file.add(row | note for row in rows)
            method = rows[-1].get("method") or rows[-1]["candidate"]
            bar.set_postfix_str(printable(f"{rows[-1]['dataset']} {method}"), refresh=False)
            bar.update(cost)
    return not_run


def _open_costs(
    items: Sequence[Item], plan: Plan, done: set[Key], is_shown: bool
) -> tuple[list[int], dict[str, str]]:
    """Load each dataset once: return the open work on each, and why some cannot be loaded."""
    costs: list[int] = []
    not_run: dict[str, str] = {}
    for item in tqdm(items, desc="loading", leave=False, disable=not is_shown):
        try:
            costs.append(sum(job.cost for job in plan.open_jobs(item.load(), done)))
        except Exception as error:
            if item.is_required:
                raise
            costs.append(0)
            not_run[item.name] = str(error)
    return costs, not_run


def _open_jobs(
    items: Sequence[Item], plan: Plan, done: set[Key], not_run: dict[str, str]
) -> Iterator[Job]:
    for item in items:
        try:
            jobs = plan.open_jobs(item.load(), done)
        except Exception as error:  # it could be loaded before; the other datasets are still run
            not_run[item.name] = str(error)
            continue
        yield from jobs


def run_jobs(
    jobs: Iterable[Job], run_job: RunJob, n_jobs: int = 1, dask: str | None = None
) -> Generator[tuple[int, list[Row]]]:
    """Yield the cost and the rows of each job as it finishes; each process has one thread."""
    # An interrupt leaves jobs unfinished, which joblib would warn of.
    warnings.filterwarnings("ignore", ".*tasks which were still being processed")
    with ExitStack() as stack:
        folder = None
        if dask is not None:
            from distributed import Client

            stack.enter_context(Client(dask))
            stack.enter_context(joblib.parallel_config("dask"))
        elif n_jobs > 1:
            stack.enter_context(joblib.parallel_config("loky", inner_max_num_threads=1))
            temporary = tempfile.TemporaryDirectory(prefix="mixupe-tables-")
            folder = pathlib.Path(stack.enter_context(temporary))
        parallel = joblib.Parallel(
            n_jobs=n_jobs, return_as="generator_unordered", batch_size=1, pre_dispatch=2 * n_jobs
        )
        results = parallel(
            joblib.delayed(_run)(run_job, _with_stored_table(job, folder), job.cost, os.getpid())
            for job in jobs
        )
        try:
            yield from results
        except Exception as error:  # a failed fit is a row, so this is not an error of a fit
            raise LostWorkersError(
                f"Got {type(error).__name__}, but expected workers that finish their jobs: one was "
                f"ended, perhaps since memory ran out (fewer --jobs need less). All earlier rows "
                f"are safe, and the same command resumes the run."
            ) from error


def _with_stored_table(job: Job, folder: pathlib.Path | None) -> Job:
    """Return the job with the path of its table, which each process then reads once."""
    if folder is None:
        return job
    path = folder / job.table.fingerprint
    if not path.exists():
        joblib.dump(job.table, path)
    return replace(job, table=path)


def _run(run_job: RunJob, job: Job, cost: int, owner: int) -> tuple[int, list[Row]]:
    if os.getppid() == owner and current_thread() is main_thread():
        _follow(owner)
    if isinstance(job.table, pathlib.Path):
        job = replace(job, table=_load_table(job.table))
    return cost, run_job(job)


@lru_cache(maxsize=1)
def _load_table(path: pathlib.Path) -> Any:
    return joblib.load(path)


@lru_cache
def _follow(owner: int) -> None:
    """Let this process end with its owner, and not before."""
    # Ctrl-C reaches all processes of a terminal; the owner ends the run.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_exit_with, args=(os.getppid, owner), daemon=True).start()


def _exit_with(parent: Callable[[], int], owner: int) -> Any:
    # A killed owner cannot stop its workers, which would go on training.
    while parent() == owner:
        time.sleep(1.0)
    os._exit(1)
