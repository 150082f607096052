"""From data sets and options to rows on the disk: what is open, who runs it, how long it takes."""

import os
import pathlib
import platform
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from threading import current_thread, main_thread
from typing import Any

import joblib
from tqdm.auto import tqdm

from benchmarks._tabular.fits import Row, run_job
from benchmarks._tabular.protocol import TRAINING, Job, jobs_of, splits_of
from benchmarks._tabular.rows import Key, RowsFile, key_of
from mixupe_sklearn.datasets import Table

ROOT = pathlib.Path(__file__).parents[2]
LIBRARIES = ("mixupe-sklearn", "torch", "scikit-learn", "skorch", "numpy", "pandas")
# Written beside the others by the rows of a peer that comes from one of these.
LIBRARY_OF = {name: name for name in ("xgboost", "lightgbm", "catboost")} | {"realmlp": "pytabkit"}


@dataclass(frozen=True)
class Plan:
    """What a run is to do on each data set."""

    methods: Sequence[str]
    grid: str = "paper"
    splits: str = "holdout"
    n_seeds: int = 5
    training: dict[str, Any] = field(default_factory=lambda: dict(TRAINING))
    retry_failed: bool = False


@dataclass(frozen=True)
class Item:
    """A data set by name, loaded when it is wanted: not all of a suite fit into memory at once."""

    name: str
    load: Callable[[], Table]
    is_required: bool = True


def commit() -> str:
    """The commit that is run, or a word that there is none."""
    command = ["git", "describe", "--always", "--dirty"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    except OSError:
        return "unknown"
    return result.stdout.strip() or "unknown"


def versions_of(methods: Sequence[str] = ()) -> str:
    """Versions of Python and of the libraries that the given methods run on, in one line."""
    names = [*LIBRARIES, *sorted({LIBRARY_OF[name] for name in methods if name in LIBRARY_OF})]
    found = [f"Python {platform.python_version()}"]
    for name in names:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} unknown")
    return ", ".join(found)


def open_jobs(table: Table, plan: Plan, done: set[Key]) -> list[Job]:
    """Units of work on a table that the rows do not have yet."""
    splits = splits_of(table, plan.splits, plan.n_seeds)
    return list(
        jobs_of(
            table,
            splits,
            plan.methods,
            plan.grid,
            plan.training,
            is_done=lambda fit: key_of(fit) in done,
        )
    )


@contextmanager
def workers(n_jobs: int, scheduler: str | None) -> Iterator[joblib.Parallel]:
    """Processes of this machine, one thread each, or the workers of a Dask cluster."""
    arguments = {"return_as": "generator_unordered", "batch_size": 1}
    if scheduler is not None:
        from distributed import Client

        with Client(scheduler, timeout=10) as client, joblib.parallel_config("dask"):
            n_jobs = sum(client.ncores().values()) or 1
            yield joblib.Parallel(n_jobs=n_jobs, pre_dispatch=2 * n_jobs, **arguments)
    elif n_jobs == 1:
        yield joblib.Parallel(n_jobs=1, **arguments)
    else:
        with joblib.parallel_config("loky", inner_max_num_threads=1):
            yield joblib.Parallel(n_jobs=n_jobs, pre_dispatch=2 * n_jobs, **arguments)


def run(
    items: Sequence[Item],
    plan: Plan,
    file: RowsFile,
    *,
    n_jobs: int = 1,
    scheduler: str | None = None,
    is_shown: bool = True,
) -> dict[str, str]:
    """Run all fits that the file does not have yet, and add a row for each.

    Returns
    -------
    not_run : dict
        Data sets that could not be loaded, and why.
    """
    note = {"run": datetime.now(UTC).isoformat(timespec="seconds"), "commit": commit()}
    note["versions"] = versions_of(plan.methods)
    done = file.keys(with_failed=not plan.retry_failed)
    found, not_run = _look_at(items, plan, done)
    wanted = [item for item in items if found.get(item.name)]
    with workers(n_jobs, scheduler) as parallel, _bar(sum(found.values()), is_shown) as bar:
        jobs = (job for item in wanted for job in open_jobs(item.load(), plan, done))
        owner = os.getpid()
        for cost, rows in parallel(joblib.delayed(_run_in_worker)(job, owner) for job in jobs):
            file.add(row | note for row in rows)
            bar.set_postfix_str(f"{rows[-1]['dataset']} {rows[-1]['method']}", refresh=False)
            bar.update(cost)
    return not_run


def _look_at(
    items: Sequence[Item], plan: Plan, done: set[Key]
) -> tuple[dict[str, int], dict[str, str]]:
    """Load each data set once: the work that is open on it, or why it cannot be had."""
    found: dict[str, int] = {}
    not_run: dict[str, str] = {}
    for item in items:
        try:
            found[item.name] = sum(job.cost for job in open_jobs(item.load(), plan, done))
        except (OSError, ValueError, ImportError) as error:
            if item.is_required:
                raise
            not_run[item.name] = str(error)
    return found, not_run


def _bar(total: int, is_shown: bool) -> Any:
    """A progress bar in shares of the work; what was done before is not part of it."""
    layout = "{percentage:3.0f} % |{bar}| {elapsed} so far, {remaining} left{postfix}"
    # Without smoothing: jobs take turns in width and length.
    return tqdm(total=total, disable=not is_shown or not total, bar_format=layout, smoothing=0)


def _run_in_worker(job: Job, owner: int) -> tuple[int, list[Row]]:
    is_process_of_its_own = os.getpid() != owner and current_thread() is main_thread()
    if is_process_of_its_own:
        # Ctrl-C reaches all processes of a terminal; the one that gave the job out ends the run.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return job.cost, run_job(job)
