"""What the tabular benchmark runs on each dataset."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks._harness.environment import commit, versions_of
from benchmarks._harness.results_file import Key
from benchmarks._harness.runner import Item, Row, run
from benchmarks._tabular.fits import run_job
from benchmarks._tabular.protocol import TRAINING, Job, jobs_of, splits_of
from benchmarks._tabular.rows import key_of
from mixupe_sklearn.datasets import Table

# Kept until all callers have followed to benchmarks._harness.
__all__ = ["Item", "Plan", "commit", "run", "versions_of"]


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
