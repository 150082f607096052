"""Candidates that are compared with a reference on the same splits of real tables.

Each seed has a split of its own, as in the tabular benchmark: 60 % of the rows to train and 20 % to
test; nothing is chosen, so the other 20 % are left alone. Candidates are compared with the
reference split by split. What that differs by from itself, with another seed on the same splits, is
the noise.

Each fit is a line of a CSV file, and what is printed is made from these lines alone. A run that
ends early goes on where it was when the same command is given again. Data sets are tables that
come with scikit-learn, and those of the paper where ``--cache-dir`` names a cache of OpenML.
"""

import argparse
import csv
import io
import itertools
import json
import pathlib
import sys
import textwrap
import warnings
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pandas as pd
from joblib import Parallel, delayed, parallel_config

from benchmarks._tabular.append_only import AppendOnly, whole_lines
from benchmarks._tabular.fits import prepare
from benchmarks._tabular.metrics import measure
from benchmarks._tabular.protocol import Split, splits_of
from benchmarks._tabular.running import commit, versions_of
from mixupe_sklearn import MixupEClassifier, preset
from mixupe_sklearn.datasets import EMBEDDED, Table, load_embedded

# Real tables that need no download, the largest first.
DATA = ("digits", "breast-cancer", "wine")
# The reference once more, with other initial weights and draws.
AGAIN = "another seed"
KEY = ["dataset", "data", "setting", "seed", "candidate", "params"]
COLUMNS = [
    *("dataset", "data", "n_rows", "n_features", "n_classes", "setting", "seed", "candidate"),
    *("params", "test_error", "test_log_loss", "versions", "commit", "run"),
]
TEXT = ["dataset", "data", "setting", "candidate", "params", "versions", "commit", "run"]
# A difference counts where zero is further away than so many standard errors.
N_ERRORS = 2

Row = dict[str, Any]
Job = tuple[Table, Split, str, str]


def load(name: str, cache_dir: pathlib.Path | None = None) -> Table:
    """A table by its name: one of scikit-learn's, or of the paper's from the cache of OpenML."""
    if name in EMBEDDED:
        return load_embedded(name)
    from mixupe_sklearn.datasets import openml

    if cache_dir is None or name not in openml.PAPER_TASKS:
        names = ", ".join([*EMBEDDED, *(n for n in openml.PAPER_TASKS if n not in EMBEDDED)])
        raise ValueError(
            f"Got data={name!r} and cache_dir={cache_dir}, but expected one of {names}; those "
            f"after {EMBEDDED[-1]} need --cache-dir."
        )
    item = openml.PAPER_TASKS[name]
    read = openml.load_task if item.kind == "task" else openml.load_dataset
    return read(item.number, cache_dir=cache_dir, offline=True)


def key_of(row: Row) -> tuple[str, ...]:
    """What makes a fit this fit, as text."""
    return tuple(str(row[name]) for name in KEY)


def as_line(row: Row) -> str:
    """A row as a line of CSV."""
    text = io.StringIO()
    csv.DictWriter(text, COLUMNS, lineterminator="\n").writerow(row)
    return text.getvalue()


def read_rows(path: pathlib.Path) -> pd.DataFrame:
    """All rows of a file; a torn last line is left out."""
    if not path.exists():
        raise ValueError(f"Got output={path}, which is not there, but expected a file with rows.")
    text = "\n".join([*whole_lines(path, COLUMNS)[0], ""])
    return pd.read_csv(io.StringIO(text), dtype=dict.fromkeys(TEXT, str), keep_default_na=False)


@dataclass(frozen=True)
class Study:
    """What is compared with what.

    Parameters
    ----------
    name : str
        The program, ``benchmarks.<name>``, and its file of rows.
    settings : dict
        What each setting changes of ``preset("paper")``.
    candidates : dict
        What each candidate changes of that, by its name in the tables. All are compared with the
        first; one of the name ``AGAIN`` has other seeds.
    told : tuple of str
        Parameters that a row tells.
    description : str
        What the program is for.
    """

    name: str
    settings: dict[str, dict[str, Any]]
    candidates: dict[str, dict[str, Any]]
    told: tuple[str, ...]
    description: str

    @property
    def reference(self) -> str:
        """What all are compared with."""
        return next(iter(self.candidates))

    @property
    def rows(self) -> pathlib.Path:
        """The committed rows."""
        return pathlib.Path(__file__).parent / "results" / f"{self.name}.csv"

    def model(self, setting: str, candidate: str, **params: Any) -> MixupEClassifier:
        """A candidate, not fitted."""
        changed = self.settings[setting] | self.candidates[candidate] | params
        return MixupEClassifier(**preset("paper") | changed)

    def params_of(self, setting: str, candidate: str) -> str:
        """What a candidate trains with, as rows hold it: a fit with other defaults is another."""
        model = self.model(setting, candidate)
        return json.dumps({name: getattr(model, name) for name in self.told})

    def identity(self, job: Job) -> Row:
        """The part of a row that says which fit it is."""
        table, split, setting, candidate = job
        return {
            "dataset": table.name,
            "data": table.fingerprint,
            "n_rows": table.n_rows,
            "n_features": table.X.shape[1],
            "n_classes": table.n_classes,
            "setting": setting,
            "seed": split.seed,
            "candidate": candidate,
            "params": self.params_of(setting, candidate),
        }

    def run_job(self, job: Job) -> Row:
        """Fit one candidate on one split, and test it."""
        table, split, setting, candidate = job
        data = prepare(table, split)
        seed = split.seed + (1000 if candidate == AGAIN else 0)
        model = self.model(setting, candidate, random_state=seed, device="cpu")
        with warnings.catch_warnings():
            # The paper's batch is 100 rows, however few there are.
            warnings.filterwarnings("ignore", "Got .* training rows, fewer than batch_size")
            model.fit(data.X["train"], data.y["train"])
        proba = model.predict_proba(data.X["test"])
        found = measure(data.y["test"], proba, model.classes_, data.classes)
        measured = {f"test_{name}": float(f"{found[name]:.6g}") for name in ("error", "log_loss")}
        return self.identity(job) | measured

    def jobs_of(self, table: Table, n_seeds: int) -> Iterator[Job]:
        """All fits on one table; candidates of one split follow each other."""
        for split in splits_of(table, "holdout", n_seeds):
            for setting, candidate in itertools.product(self.settings, self.candidates):
                yield table, split, setting, candidate

    def run(self, path: pathlib.Path, tables: Sequence[Table], n_seeds: int, n_jobs: int) -> None:
        """Run the fits that the file does not have, and add each to it as it comes."""
        note = {
            "versions": versions_of(),
            "commit": commit(),
            "run": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        with AppendOnly(path, COLUMNS) as file:
            done = {key_of(row) for row in csv.DictReader(file.lines())}
            jobs = [job for table in tables for job in self.jobs_of(table, n_seeds)]
            jobs = [job for job in jobs if key_of(self.identity(job)) not in done]
            with parallel_config("loky", inner_max_num_threads=1):
                rows = Parallel(n_jobs=n_jobs, return_as="generator_unordered")(
                    delayed(self.run_job)(job) for job in jobs
                )
                for number, row in enumerate(rows, start=1):
                    file.write(as_line(row | note))
                    print(
                        f"{number} of {len(jobs)}: {row['dataset']}, {row['setting']}, seed "
                        f"{row['seed']}, {row['candidate']}: {row['test_error']:.2f} % wrong",
                        flush=True,
                    )

    def of_study(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Rows of the settings of today, in a fixed order whatever order they came in."""
        params = {
            pair: self.params_of(*pair)
            for pair in itertools.product(self.settings, self.candidates)
        }
        pairs = pd.Series(list(zip(rows["setting"], rows["candidate"], strict=True)), rows.index)
        rows = rows[rows["params"] == pairs.map(params)]
        newest = rows.groupby("dataset")["data"].transform("last")
        rows = rows[rows["data"] == newest]
        by = ["setting", "n_rows", "dataset", "seed"]
        return rows.sort_values(by, ascending=[True, False, True, True])

    def compare(self, rows: pd.DataFrame, value: str) -> pd.DataFrame:
        """Mean and deviation of each candidate on each data set, and its difference to the first.

        The difference is paired: its standard error is that of the mean over the seeds that both
        have.
        """
        lines = []
        for (setting, dataset), part in rows.groupby(["setting", "dataset"], sort=False):
            table = part.pivot(index="seed", columns="candidate", values=value)
            for candidate in (name for name in self.candidates if name in table):
                difference = (table[candidate] - table[self.reference]).dropna()
                lines.append(
                    {
                        "setting": setting,
                        "dataset": dataset,
                        "candidate": candidate,
                        "mean": table[candidate].mean(),
                        "deviation": table[candidate].std(),
                        "difference": difference.mean(),
                        "standard_error": difference.sem(),
                    }
                )
        table = pd.DataFrame(lines)
        far = N_ERRORS * table["standard_error"]
        return table.assign(is_within=table["difference"].abs() <= far + 1e-12)

    def make_table(self, errors: pd.DataFrame) -> str:
        """The reference's error and paired differences to it as Markdown; in bold those that count.

        Each setting has its own lines.
        """
        others = [name for name in self.candidates if name != self.reference]
        lines = [f"| setting | data | {' | '.join([self.reference, *others])} |"]
        lines.append("|---|---|" + "--:|" * len(self.candidates))
        for (setting, dataset), part in errors.groupby(["setting", "dataset"], sort=False):
            one_by_name = part.set_index("candidate").to_dict("index")
            full = one_by_name[self.reference]
            cells = [f"{full['mean']:.2f} ± {full['deviation']:.2f}"]
            cells += [_difference(one_by_name[name]) for name in others]
            lines.append(f"| {setting} | {dataset} | {' | '.join(cells)} |")
        return "\n".join(lines)

    def make_summary(self, losses: pd.DataFrame) -> str:
        """A line for each setting: on how many data sets a difference is noise, and its mean."""
        others = [name for name in self.candidates if name != self.reference]
        lines = [f"| setting | {' | '.join(others)} |", "|---|" + "--:|" * len(others)]
        for setting, part in losses.groupby("setting", sort=False):
            of = (part[part["candidate"] == name] for name in others)
            cells = [
                f"{one['is_within'].sum()} of {len(one)} ({one['difference'].mean():+.4f})"
                for one in of
            ]
            lines.append(f"| {setting} | {' | '.join(cells)} |")
        return "\n".join(lines)

    def describe(self, rows: pd.DataFrame) -> str:
        """The study in two tables: test errors on each data set, and a summary of log losses."""
        rows = self.of_study(rows)
        seeds = rows.groupby(["setting", "dataset", "candidate"])["seed"].nunique().unstack()
        if rows.empty or seeds.reindex(columns=list(self.candidates)).isna().to_numpy().any():
            raise ValueError(
                f"Got {len(rows)} rows with the settings of the study, but expected all of "
                f"{', '.join(self.candidates)} on each data set: run without --report-only."
            )
        errors, losses = self.compare(rows, "test_error"), self.compare(rows, "test_log_loss")
        n_seeds = " to ".join(map(str, sorted({int(seeds.min().min()), int(seeds.max().max())})))
        notes = (
            f"Test error in percent: mean ± deviation over {n_seeds} splits for the "
            f"{self.reference}; for the others the mean difference to it, split by split, ± its "
            f"standard error, in bold where zero is more than {N_ERRORS} standard errors away.",
            f"Log loss: on how many data sets the difference is within {N_ERRORS} standard errors, "
            f"and its mean over all:",
        )
        first, second = (textwrap.fill(note, 120) for note in notes)
        return "\n\n".join([first, self.make_table(errors), second, self.make_summary(losses)])

    def parser(self) -> argparse.ArgumentParser:
        """The command line."""
        output = pathlib.Path(f"build/{self.name}.csv")
        made = argparse.ArgumentParser(
            prog=f"python -m benchmarks.{self.name}", description=self.description
        )
        made.add_argument(
            "--data", nargs="+", default=DATA, metavar="NAME", help="names of data sets"
        )
        made.add_argument("--cache-dir", type=pathlib.Path, metavar="DIR", help="a cache of OpenML")
        made.add_argument("--seeds", type=int, default=5, help="splits, with a seed each (5)")
        made.add_argument("--jobs", type=int, default=2, help="processes, one thread each (2)")
        made.add_argument("--report-only", action="store_true", help="run nothing, print tables")
        told = f"file that rows are added to ({output})"
        made.add_argument("--output", type=pathlib.Path, default=output, metavar="FILE", help=told)
        return made

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Run what is open, then print the tables of all rows."""
        options = self.parser().parse_args(arguments)
        try:
            if not options.report_only:
                tables = [load(name, options.cache_dir) for name in options.data]
                self.run(options.output, tables, options.seeds, options.jobs)
            print(f"\n{self.describe(read_rows(options.output))}\n\nRows: {options.output}")
        except KeyboardInterrupt:
            print("Interrupted: the same command goes on.", file=sys.stderr)
            return 130
        except (ValueError, OSError, ImportError) as error:
            print(f"Error: {error}", file=sys.stderr)
            return 2
        return 0


def _difference(one: Mapping[Hashable, Any]) -> str:
    shown = f"{one['difference']:+.2f} ± {one['standard_error']:.2f}"
    return shown if one["is_within"] else f"**{shown}**"
