"""One fit of a candidate on a split, and the plan of all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks._candidates.rows import METRICS, VALID
from benchmarks._tabular.fits import (
    Row,
    few_rows_allowed,
    fit_seconds,
    measured_on,
    one_line,
    raw_rows,
    warm_up_defaults,
)
from benchmarks._tabular.own import Settings
from benchmarks._tabular.protocol import Split, splits_of
from benchmarks._tabular.rows import Key, key_of
from mixupe_sklearn.datasets import Table


@dataclass(frozen=True, eq=False)
class Trial:
    """What one process does at a time: a candidate on a split."""

    table: Table
    split: Split
    candidate: str
    settings: Settings

    @property
    def identity(self) -> dict[str, Any]:
        """The part of a row that says which fit it is."""
        return {
            "dataset": self.table.name,
            "data": self.table.fingerprint,
            "split": self.split.number,
            "candidate": self.candidate,
            "params": self.settings.unlike_paper(),
        }

    @property
    def cost(self) -> int:
        """Roughly how long it takes, in rows that are seen: for the time that is left."""
        params = self.settings.effective().classifier
        n_seen = len(self.split.train) * params["max_epochs"] * params.get("n_members", 1)
        return round(n_seen * (1 + self.table.X.shape[1] / 700))


def run_trial(trial: Trial) -> list[Row]:
    """Fit and measure: one row; a fit that fails says why."""
    try:
        with few_rows_allowed():
            warm_up_defaults()
            model = trial.settings.make(trial.split.seed)
            data = raw_rows(trial.table, trial.split)
            row: Row = {"fit_seconds": fit_seconds(model, data), "error": ""}
            for part in ("valid", "test"):
                metrics, _ = measured_on(model, data, part)
                row |= {f"{part}_{name}": metrics[name] for name in METRICS}
            return [trial.identity | row]
    except Exception as error:
        return [trial.identity | {"error": one_line(error)}]


@dataclass(frozen=True)
class Study:
    """All candidates on all holdout splits of each data set."""

    candidates: Mapping[str, Settings]
    n_seeds: int = 5
    retry_failed: bool = False
    methods: Sequence[str] = ()

    def open_jobs(self, table: Table, done: set[Key]) -> list[Trial]:
        """Fits on a table that are not done yet; from now on they count as done."""
        trials = [
            Trial(table, split, name, settings)
            for split in splits_of(table, "holdout", self.n_seeds)
            for name, settings in self.candidates.items()
        ]
        keys = [key_of(trial.identity, VALID) for trial in trials]
        found = [one for one, key in zip(trials, keys, strict=True) if key not in done]
        done |= set(keys)
        return found

    @staticmethod
    def run_job(job: Trial) -> list[Row]:
        """Do a unit of work: its rows."""
        return run_trial(job)
