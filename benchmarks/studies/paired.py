"""Paired comparisons with a reference: ``python -m benchmarks.studies.paired NAME``.

Candidates are compared with the reference split by split. The difference of the reference to
itself, with another seed, is the noise. The same command resumes a run.
"""

import argparse
import itertools
import json
import pathlib
import sys
import textwrap
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import StratifiedKFold

from benchmarks._harness.cli import positive_int, run_command
from benchmarks._harness.environment import commit, versions_of
from benchmarks._harness.paired_timing import Run, ratio_of, take_turns, threads
from benchmarks._harness.report_tables import plain_markdown
from benchmarks._harness.results_file import ResultsFile, Schema, read_rows, rounded, write_text
from benchmarks._harness.runner import Item, Row, run
from benchmarks._harness.single_fits import SingleFits
from benchmarks._tabular.fits import few_rows_allowed, prepare
from benchmarks._tabular.metrics import measure
from benchmarks._tabular.protocol import Split, splits_of
from mixupe_sklearn import MixupEClassifier, make_mixupe_pipeline, make_preprocessor, preset
from mixupe_sklearn.datasets import EMBEDDED, Table, load_embedded

RESULTS = pathlib.Path(__file__).parents[1] / "results"
DATA = ("digits", "breast-cancer", "wine")  # bundled datasets, the largest first
AGAIN = "another seed"  # the reference once more, with other initial weights and draws
SCHEMA = Schema(
    (
        *("dataset", "data", "n_rows", "n_features", "n_classes", "setting", "seed", "candidate"),
        *("params", "test_error", "test_log_loss", "versions", "commit", "run"),
    ),
    frozenset(("dataset", "data", "setting", "candidate", "params", "versions", "commit", "run")),
    ("dataset", "data", "setting", "seed", "candidate", "params"),
)
N_ERRORS = 2  # a difference counts where zero is more standard errors away


def load(name: str, cache_dir: pathlib.Path | None = None) -> Table:
    """A bundled dataset by its name, or one of the paper's from the cache of OpenML."""
    if name in EMBEDDED:
        return load_embedded(name)
    from mixupe_sklearn.datasets import openml

    item = openml.PAPER_TASKS.get(name)
    if cache_dir is None or item is None:
        raise ValueError(
            f"Got data={name!r} and cache_dir={cache_dir}, but expected one of "
            f"{', '.join(EMBEDDED)}, or with --cache-dir one of {', '.join(openml.PAPER_TASKS)}."
        )
    read = openml.load_task if item.kind == "task" else openml.load_dataset
    return read(item.number, cache_dir=cache_dir, offline=True)


@dataclass(frozen=True, eq=False)
class Fit:
    """The job of a process: a candidate of a study on a split."""

    study: "Study"
    table: Table
    split: Split
    setting: str
    candidate: str

    @property
    def identity(self) -> Row:
        """The part of a row that identifies the fit."""
        return {
            "dataset": self.table.name,
            "data": self.table.fingerprint,
            "n_rows": self.table.n_rows,
            "n_features": self.table.X.shape[1],
            "n_classes": self.table.n_classes,
            "setting": self.setting,
            "seed": self.split.seed,
            "candidate": self.candidate,
            "params": self.study.params_of(self.setting, self.candidate),
        }

    @property
    def cost(self) -> int:
        """Training samples, for the estimate of the remaining time."""
        return len(self.split.train)

    def measured(self) -> Row:
        """Fit and test."""
        data = prepare(self.table, self.split)
        seed = self.split.seed + (1000 if self.candidate == AGAIN else 0)
        params = {"random_state": seed, "device": "cpu"}
        model = self.study.model(self.setting, self.candidate, **params)
        model.fit(data.X["train"], data.y["train"])
        proba = model.predict_proba(data.X["test"])
        found = measure(data.y["test"], proba, model.classes_, data.classes)
        return {f"test_{name}": rounded(found[name]) for name in ("error", "log_loss")}


@dataclass(frozen=True)
class Study(SingleFits):
    """A comparison of changes of ``preset("paper")`` with the first; ``AGAIN`` has other seeds."""

    name: str
    settings: dict[str, dict[str, Any]]
    candidates: dict[str, dict[str, Any]]
    recorded: tuple[str, ...]
    n_seeds: int = 5
    schema = SCHEMA

    @property
    def reference(self) -> str:
        """The candidate that the others are compared with."""
        return next(iter(self.candidates))

    @property
    def rows(self) -> pathlib.Path:
        """The committed rows."""
        return RESULTS / f"{self.name}.csv"

    def model(self, setting: str, candidate: str, **params: Any) -> MixupEClassifier:
        """A candidate, not fitted."""
        changed = self.settings[setting] | self.candidates[candidate] | params
        return MixupEClassifier(**preset("paper") | changed)

    def params_of(self, setting: str, candidate: str) -> str:
        """The recorded parameters: a fit with other defaults is another fit."""
        model = self.model(setting, candidate)
        return json.dumps({name: getattr(model, name) for name in self.recorded})

    def fits(self, table: Table) -> list[Fit]:
        """All fits on a table; candidates of one split follow each other."""
        return [
            Fit(self, table, split, setting, candidate)
            for split in splits_of(table, "holdout", self.n_seeds)
            for setting, candidate in itertools.product(self.settings, self.candidates)
        ]

    @staticmethod
    def run_job(job: Fit) -> list[Row]:
        """Fit and test: one row. A fit that fails ends the run."""
        with few_rows_allowed():
            return [job.identity | job.measured()]

    def current_rows(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Rows with the present parameters, in an order that does not depend on the file."""
        pairs = list(itertools.product(self.settings, self.candidates))
        params = {pair: self.params_of(*pair) for pair in pairs}
        of_rows = pd.Series(list(zip(rows["setting"], rows["candidate"], strict=True)), rows.index)
        rows = rows[rows["params"] == of_rows.map(params)]
        newest = rows.groupby("dataset")["data"].transform("last")
        rows = rows[rows["data"] == newest]
        by = ["setting", "n_rows", "dataset", "seed"]
        return rows.sort_values(by, ascending=[True, False, True, True])

    def compare(self, rows: pd.DataFrame, value: str) -> pd.DataFrame:
        """Mean and deviation by candidate and dataset, and the paired difference to the first."""
        lines = []
        for (setting, dataset), part in rows.groupby(["setting", "dataset"], sort=False):
            table = part.pivot(index="seed", columns="candidate", values=value)
            for candidate in (name for name in self.candidates if name in table):
                own, difference = table[candidate], table[candidate] - table[self.reference]
                figures = [own.mean(), own.std(), difference.mean(), difference.sem()]
                lines.append([setting, dataset, candidate, *figures])
        columns = ["setting", "dataset", "candidate", "mean", "deviation", "difference"]
        table = pd.DataFrame(lines, columns=[*columns, "standard_error"])
        far = N_ERRORS * table["standard_error"]
        return table.assign(is_within=table["difference"].abs() <= far + 1e-12)

    def describe(self, rows: pd.DataFrame) -> str:
        """The study in two tables: test errors on each dataset, and a summary of log losses."""
        rows = self.current_rows(rows)
        seeds = rows.groupby(["setting", "dataset", "candidate"])["seed"].nunique().unstack()
        if rows.empty or seeds.reindex(columns=list(self.candidates)).isna().to_numpy().any():
            raise ValueError(
                f"Got {len(rows)} rows with the settings of the study, but expected all of "
                f"{', '.join(self.candidates)} on each dataset: run without --report-only."
            )
        errors, losses = self.compare(rows, "test_error"), self.compare(rows, "test_log_loss")
        n_seeds = " to ".join(map(str, sorted({int(seeds.min().min()), int(seeds.max().max())})))
        first = (
            f"Test error in percent: mean ± deviation over {n_seeds} splits for the "
            f"{self.reference}; for the others the mean difference to it, split by split, ± its "
            f"standard error, in bold where zero is more than {N_ERRORS} standard errors away."
        )
        second = (
            f"Log loss: on how many datasets the difference is within {N_ERRORS} standard errors, "
            f"and its mean over all:"
        )
        others = [name for name in self.candidates if name != self.reference]
        table: list[list[str]] = []
        summary: list[list[str]] = []
        for (setting, dataset), part in errors.groupby(["setting", "dataset"], sort=False):
            by_name = part.set_index("candidate").to_dict("index")
            full = by_name[self.reference]
            differences = [_difference(by_name[name]) for name in others]
            cells = [f"{full['mean']:.2f} ± {full['deviation']:.2f}", *differences]
            table.append([str(setting), str(dataset), *cells])
        for setting, part in losses.groupby("setting", sort=False):
            groups = part.groupby("candidate")
            within, size = groups["is_within"].sum(), groups.size()
            mean = groups["difference"].mean()
            counts = [f"{within[one]} of {size[one]} ({mean[one]:+.4f})" for one in others]
            summary.append([str(setting), *counts])
        first, second = textwrap.fill(first, 120), textwrap.fill(second, 120)
        shown = plain_markdown(["setting", "data", self.reference, *others], table, n_texts=2)
        return "\n\n".join([first, shown, second, plain_markdown(["setting", *others], summary)])

    def time_fits(self, data: str, n_rounds: int) -> str:
        """Time of a fit of each candidate over one of the reference, in turns."""
        table = load(data)
        X, y = table.X.to_numpy(dtype="float32"), table.y
        params = {"max_epochs": 5, "n_threads": 1, "random_state": 0, "device": "cpu"}
        runs: dict[str, Run] = {
            name: partial(self.model("default", name, **params).fit, X, y)
            for name in self.candidates
            if name != AGAIN
        }
        with threads(1):
            times = take_turns(runs, n_rounds)
        lines = [f"{name}: {ratio_of(times[name], times[self.reference])}" for name in runs]
        head = f"Time of a fit on {data} over that of the {self.reference}, {n_rounds} rounds:"
        return "\n".join([head, *lines])

    def main(self, options: argparse.Namespace) -> None:
        """Run open fits, then print the tables of all rows."""
        if options.timing is not None:
            print(self.time_fits("digits", options.timing))
            return
        path = options.output or pathlib.Path(f"build/{self.name}.csv")
        if not options.report_only:
            items = [Item(name, partial(load, name, options.cache_dir)) for name in options.data]
            with ResultsFile(path, SCHEMA) as file:
                run(items, self, file, n_jobs=options.jobs, is_shown=not options.quiet)
        print(f"\n{self.describe(read_rows(path, SCHEMA))}\n\nRows: {path}")


def _difference(one: Mapping[Hashable, Any]) -> str:
    shown = f"{one['difference']:+.2f} ± {one['standard_error']:.2f}"
    return shown if one["is_within"] else f"**{shown}**"


# In the second, E[1-lam], the weight of the penalty, is 1/3: seven times that of the preset.
SETTINGS: dict[str, dict[str, Any]] = {"default": {}, "strong": {"alpha": 1.0, "eta": 1.0}}
_TRAINING = ("alpha", "eta", "lr", "max_epochs", "batch_size")
PENALTY_FRACTION = Study(
    "penalty_fraction",
    SETTINGS,
    {
        "full penalty": {"penalty_fraction": 1.0},
        "fraction 0.5": {"penalty_fraction": 0.5},
        "fraction 0.25": {"penalty_fraction": 0.25},
        "fraction 0.1": {"penalty_fraction": 0.1},
        "Mixup": {"method": "mixup"},
        AGAIN: {"penalty_fraction": 1.0},
    },
    ("method", "alpha", "eta", "penalty_fraction", "lr", "max_epochs", "batch_size"),
)
SECOND_ORDER = Study(
    "second_order",
    SETTINGS,
    {
        "first order": {},
        "second order": {"penalty_order": 2},
        "exact first": {"penalty": "directional"},
        "exact first and second": {"penalty": "directional", "penalty_order": 2},
        "Mixup": {"method": "mixup"},
        AGAIN: {},
    },
    ("method", "penalty", "penalty_order", *_TRAINING),
)


@dataclass(frozen=True)
class ScalingStudy:
    """Each scaling of numbers, on datasets as they are and with outliers, on the same folds."""

    data: Sequence[str] = ("iris", "wine", "breast-cancer", "digits")
    scalings: Sequence[str] = ("standard", "robust", "quantile")
    n_folds: int = 5
    n_repeats: int = 2
    max_epochs: int = preset("paper")["max_epochs"]
    rows = RESULTS / "scaling.csv"

    @property
    def params(self) -> dict[str, Any]:
        """Parameters of the classifier."""
        return preset("paper") | {"batch_size": 32, "max_epochs": self.max_epochs}

    def fits(self, name: str, is_spoiled: bool, repeat: int) -> Iterator[Row]:
        """Test errors (%) of all scalings on the folds of one repeat."""
        table = load_embedded(name)
        X = spoil(table.X, repeat) if is_spoiled else table.X
        folds = StratifiedKFold(self.n_folds, shuffle=True, random_state=repeat)
        for fold, (train, test) in enumerate(folds.split(X, table.y)):
            for scaling in self.scalings:
                pipeline = make_mixupe_pipeline(
                    preprocessor=make_preprocessor(scaling=scaling, n_bins=0),
                    random_state=repeat,
                    n_threads=1,
                    **self.params,
                ).fit(X.iloc[train], table.y[train])
                error = 100 * (1 - pipeline.score(X.iloc[test], table.y[test]))
                yield {
                    "table": f"{name}, spoiled" if is_spoiled else name,
                    "repeat": repeat,
                    "fold": fold,
                    "scaling": scaling,
                    "test_error": round(error, 4),
                }

    def measure(self) -> pd.DataFrame:
        """Rows of all fits."""
        rows: list[Row] = []
        for is_spoiled, name in itertools.product((False, True), self.data):
            print(f"{name}{', spoiled' * is_spoiled} ...", flush=True)
            for repeat in range(self.n_repeats):
                rows += self.fits(name, is_spoiled, repeat)
        return pd.DataFrame(rows).assign(
            params=json.dumps(self.params, sort_keys=True),
            versions=versions_of(),
            commit=commit(),
            run=pd.Timestamp.now("UTC").isoformat(timespec="seconds"),
        )

    def describe(self, rows: pd.DataFrame) -> str:
        """Mean error of each scaling, and the deviation between repeats, as Markdown."""
        of_repeats = rows.groupby(["table", "scaling", "repeat"], sort=False)["test_error"].mean()
        found = of_repeats.groupby(["table", "scaling"], sort=False).agg(["mean", "std"])
        header, lines = ["table", *(f'`"{scaling}"`' for scaling in self.scalings)], []
        for table in rows["table"].unique():
            cells = (found.loc[(table, scaling)] for scaling in self.scalings)
            lines.append([table, *(f"{cell['mean']:.2f} ± {cell['std']:.2f}" for cell in cells)])
        return plain_markdown(header, lines, n_texts=len(header))

    def main(self, options: argparse.Namespace) -> None:
        """Run all fits, write their rows, and print the table."""
        path = options.output or pathlib.Path("build/scaling.csv")
        if not options.report_only:
            write_text(path, self.measure().to_csv(index=False))
        print(f"\n{self.describe(pd.read_csv(path))}\n\nRows: {path}")


def spoil(X: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Multiply one entry in a hundred by 10,000."""
    drawn = np.random.default_rng(seed).permutation(X.size) < round(0.01 * X.size)
    return X.where(~drawn.reshape(X.shape), X * 10_000)


STUDIES: dict[str, Study | ScalingStudy] = {
    "penalty_fraction": PENALTY_FRACTION,
    "second_order": SECOND_ORDER,
    "scaling": ScalingStudy(),
}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.studies.paired", description=(__doc__ or "").splitlines()[0]
    )
    made.add_argument("name", choices=STUDIES, help="the study")
    made.add_argument("--data", nargs="+", default=DATA, metavar="NAME", help="names of datasets")
    made.add_argument("--cache-dir", type=pathlib.Path, metavar="DIR", help="a cache of OpenML")
    made.add_argument("--seeds", type=positive_int, default=5, help="splits, with a seed each (5)")
    words = "processes, one thread each (2)"
    made.add_argument("--jobs", type=positive_int, default=2, help=words)
    words = "run no fits: time the candidates in turns"
    made.add_argument("--timing", type=positive_int, metavar="ROUNDS", help=words)
    made.add_argument("--report-only", action="store_true", help="run nothing, print the tables")
    words = "file of the rows (build/NAME.csv)"
    made.add_argument("--output", type=pathlib.Path, metavar="FILE", help=words)
    made.add_argument("--quiet", action="store_true", help="no progress bar")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a study, print its tables, and return the exit status."""
    options = parser().parse_args(arguments)
    study = STUDIES[options.name]
    if isinstance(study, Study):
        study = replace(study, n_seeds=options.seeds)
    return run_command(partial(study.main, options))


if __name__ == "__main__":
    sys.exit(main())
