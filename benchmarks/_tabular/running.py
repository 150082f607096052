"""From data sets and options to rows on the disk: what is open, who runs it, how long it takes."""

import pathlib
import platform
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

from tqdm.auto import tqdm

from benchmarks._tabular.escaping import printable
from benchmarks._tabular.fits import Row, run_job
from benchmarks._tabular.protocol import TRAINING, Job, jobs_of, splits_of
from benchmarks._tabular.rows import Key, key_of
from benchmarks._tabular.workers import workers
from mixupe_sklearn.datasets import Table

ROOT = pathlib.Path(__file__).parents[2]
LIBRARIES = ("mixupe-sklearn", "torch", "scikit-learn", "skorch", "numpy", "pandas")
# Written beside the others by the rows of a peer that comes from one of these.
LIBRARY_OF = {name: name for name in ("xgboost", "lightgbm", "catboost")}
LIBRARY_OF |= {"realmlp": "pytabkit", "gin": "torch-geometric"}


class Work(Protocol):
    """What ``run`` asks of a plan."""

    @property
    def methods(self) -> Sequence[str]:
        """Methods whose libraries' versions are noted."""

    @property
    def retry_failed(self) -> bool:
        """Whether fits that have failed are run again."""

    def open_jobs(self, table: Any, done: set[Key]) -> list[Any]:
        """Units of work on a table that are not done yet; from now on they count as done.

        The table is what an item loads: it has a ``fingerprint``, and each job has it as ``table``.
        """

    def run_job(self, job: Any) -> list[Row]:
        """Do a unit of work: its rows."""


class File(Protocol):
    """What ``run`` asks of a file of rows."""

    def keys(self, *, with_failed: bool = True) -> set[Key]:
        """Keys of the fits that are there already."""

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write rows to the disk, all or none."""


@dataclass(frozen=True)
class Plan:
    """What a run is to do on each data set."""

    methods: Sequence[str]
    grid: str = "paper"
    splits: str = "holdout"
    n_seeds: int = 5
    training: dict[str, Any] = field(default_factory=lambda: dict(TRAINING))
    retry_failed: bool = False

    def open_jobs(self, table: Table, done: set[Key]) -> list[Job]:
        """Units of work on a table that are not done yet; from now on they count as done."""
        splits = splits_of(table, self.splits, self.n_seeds)
        jobs = list(
            jobs_of(
                table,
                splits,
                self.methods,
                self.grid,
                self.training,
                is_done=lambda fit: key_of(fit) in done,
            )
        )
        # A data set may be asked for twice, by its task and by a suite, say.
        done |= {key_of(job.identity(config)) for job in jobs for config in job.configs}
        return jobs

    @staticmethod
    def run_job(job: Job) -> list[Row]:
        """Do a unit of work: its rows."""
        return run_job(job)


@dataclass(frozen=True)
class Item:
    """A data set by name, loaded when it is wanted: not all of a suite fit into memory at once."""

    name: str
    load: Callable[[], Any]
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


def run(
    items: Sequence[Item],
    plan: Work,
    file: File,
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
    costs, not_run = _look_at(items, plan, set(done), is_shown)
    wanted = [item for item, cost in zip(items, costs, strict=True) if cost]
    with workers(n_jobs, scheduler, plan.run_job) as crew, _bar(sum(costs), is_shown) as bar:
        for number, (cost, rows) in enumerate(crew.run(_all_jobs(wanted, plan, done, not_run))):
            file.add(row | note for row in rows)
            what = rows[-1].get("method") or rows[-1]["candidate"]
            bar.set_postfix_str(printable(f"{rows[-1]['dataset']} {what}"), refresh=False)
            if number == 0:  # the clock begins when the processes are there
                bar.reset(total=bar.total - cost)
            else:
                bar.update(cost)
    return not_run


def _look_at(
    items: Sequence[Item], plan: Work, done: set[Key], is_shown: bool
) -> tuple[list[int], dict[str, str]]:
    """Load each data set once: the work that is open on each, and why some cannot be had."""
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


def _all_jobs(
    items: Sequence[Item], plan: Work, done: set[Key], not_run: dict[str, str]
) -> Iterator[Job]:
    for item in items:
        try:
            jobs = plan.open_jobs(item.load(), done)
        except Exception as error:  # it could be loaded a moment ago; the others go on
            not_run[item.name] = str(error)
            continue
        yield from jobs


def _bar(total: int, is_shown: bool) -> Any:
    """A progress bar in shares of the work; what was done before is not part of it."""
    layout = "{percentage:3.0f} % |{bar}| {elapsed} so far, {remaining} left{postfix}"
    # Without smoothing: jobs take turns in width and length.
    return tqdm(total=total, disable=not is_shown or not total, bar_format=layout, smoothing=0)
