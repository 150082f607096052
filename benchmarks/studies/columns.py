"""Columns as they come, on real tables: ``python -m benchmarks.studies.columns --tables FOLDER``.

Each treatment of the preprocessing is compared with the table without it: missing categories as a
level, features that mark missing numbers, parts of dates, mean targets of many levels. The dates
are those of the weekly CO2 at Mauna Loa, which statsmodels ships. The same command resumes a run.
"""

import argparse
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from benchmarks._harness.cli import positive_int, run_command
from benchmarks._harness.docs_tables import write_block
from benchmarks._harness.environment import ROOT, commit, versions_of
from benchmarks._harness.report_tables import plain_markdown
from benchmarks._harness.results_file import ResultsFile, Schema, read_rows, rounded
from benchmarks._tabular.collection import is_regression, items_of_folder
from benchmarks._tabular.fits import few_rows_allowed, raw_rows
from benchmarks._tabular.methods import Settings
from benchmarks.default_settings import split_of
from mixupe_sklearn.datasets import Table

FILE = ROOT / "benchmarks" / "results" / "columns.csv"
PAGE = ROOT / "docs" / "user_guide" / "preprocessing.md"
MOST_ROWS = 2000
SCHEMA = Schema(
    (
        *("treatment", "dataset", "data", "seed", "with", "without", "params"),
        *("versions", "commit", "run"),
    ),
    frozenset(("treatment", "dataset", "data", "params", "versions", "commit", "run")),
    ("treatment", "dataset", "data", "seed", "params"),
)


def fill_categories(frame: pd.DataFrame, train: np.ndarray) -> pd.DataFrame:
    """Replace missing categories by the most frequent one of the training samples."""
    texts = frame.select_dtypes(["object", "str", "category"])
    modes = texts.iloc[train].mode().iloc[0]
    return frame.assign(**{name: texts[name].fillna(modes[name]) for name in texts})


def fill_numbers(frame: pd.DataFrame, train: np.ndarray) -> pd.DataFrame:
    """Replace missing numbers by the mean of the training samples."""
    numbers = frame.select_dtypes("number")
    return frame.fillna(numbers.iloc[train].mean())


def as_seconds(frame: pd.DataFrame, train: np.ndarray) -> pd.DataFrame:
    """Replace dates by seconds since 1970."""
    dates = frame.select_dtypes("datetime")
    epoch = pd.Timestamp(0)
    return frame.assign(**{name: (dates[name] - epoch).dt.total_seconds() for name in dates})


def unchanged(frame: pd.DataFrame, train: np.ndarray) -> pd.DataFrame:
    """Return the table as it is."""
    return frame


class Treatment(NamedTuple):
    """A treatment of columns: its tables, and how a table or the preprocessor goes without it."""

    datasets: tuple[str, ...]
    without: Callable[[pd.DataFrame, np.ndarray], pd.DataFrame] = unchanged
    inputs_without: dict[str, Any] | None = None


TREATMENTS = {
    "a missing category is a level": Treatment(
        ("credit-approval", "cylinder-bands", "adult"), fill_categories
    ),
    "missing numbers are marked": Treatment(
        ("credit-approval", "cylinder-bands", "eucalyptus"), fill_numbers
    ),
    "year, month and day of the week": Treatment(("co2",), as_seconds),
    "mean targets of many levels": Treatment(
        ("cylinder-bands", "adult"), inputs_without={"max_categories": None}
    ),
}
# With fewer levels than this in a one-hot encoding, the column of adult has too few for a mean.
FEW_LEVELS = {"adult": {"max_categories": 20}}


def load_co2() -> Table:
    """The weekly CO2 concentration at Mauna Loa, to be predicted from its date."""
    from statsmodels.datasets import co2

    found = co2.load_pandas().data["co2"].dropna()
    return Table("co2", pd.DataFrame({"date": found.index}), found.to_numpy(float), "statsmodels")


@dataclass(frozen=True)
class ColumnStudy:
    """Fits with and without each treatment, on the same splits and seeds."""

    tables: dict[str, Callable[[], Table]]
    n_seeds: int = 5
    params: dict[str, Any] = field(default_factory=dict)

    def rows(self, done: set[tuple[str, ...]]) -> Iterator[dict[str, Any]]:
        """Yield the row of each comparison that is not in ``done``."""
        for name, treatment in TREATMENTS.items():
            for dataset in treatment.datasets:
                table = self.tables[dataset]()
                for seed in range(self.n_seeds):
                    identity = {
                        "treatment": name,
                        "dataset": dataset,
                        "data": table.fingerprint,
                        "seed": seed,
                        "params": self.recorded(dataset, is_regression(table)),
                    }
                    if SCHEMA.key_of(identity) not in done:
                        yield identity | self.measured(table, treatment, dataset, seed)

    def recorded(self, dataset: str, has_numbers: bool) -> str:
        """Return the parameters as a row records them."""
        return Settings(self.params, FEW_LEVELS.get(dataset, {}), has_numbers).unlike_paper()

    def measured(
        self, table: Table, treatment: Treatment, dataset: str, seed: int
    ) -> dict[str, Any]:
        """Return test errors (%), or root mean squared errors, with and without the treatment."""
        split = split_of(table, seed, MOST_ROWS)
        inputs = FEW_LEVELS.get(dataset, {})
        changed = replace(table, X=treatment.without(table.X, split.train))
        return {
            "with": self.test_error(table, split, seed, inputs),
            "without": self.test_error(
                changed, split, seed, inputs | (treatment.inputs_without or {})
            ),
            "versions": versions_of(),
            "commit": commit(),
            "run": pd.Timestamp.now("UTC").isoformat(timespec="seconds"),
        }

    def test_error(self, table: Table, split: Any, seed: int, inputs: dict[str, Any]) -> float:
        """Fit the default pipeline, and return its test error."""
        data, has_numbers = raw_rows(table, split), is_regression(table)
        with few_rows_allowed():
            model = Settings(self.params, inputs, has_numbers).make(seed)
            model.fit(data.X["train"], data.y["train"])
        away = model.predict(data.X["test"])
        if has_numbers:
            return rounded(float(np.sqrt(np.mean((away - data.y["test"]) ** 2))))
        return rounded(100 * float(np.mean(away != data.y["test"])))


def describe(rows: pd.DataFrame) -> str:
    """Return the comparison in Markdown: means, and the mean paired difference."""
    head = ["treatment", "table", "splits", "with", "without", "difference"]
    lines = []
    for (treatment, dataset), own in rows.groupby(["treatment", "dataset"], sort=False):
        difference = own["with"] - own["without"]
        shown = f"{difference.mean():+.2f} ± {difference.sem():.2f}"
        means = [f"{own[name].mean():.2f}" for name in ("with", "without")]
        lines.append([str(treatment), str(dataset), str(len(own)), *means, shown])
    return plain_markdown(head, lines, n_texts=2)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.studies.columns", description=(__doc__ or "").splitlines()[0]
    )
    words = "folder with tables.json and CSV files"
    made.add_argument("--tables", type=pathlib.Path, metavar="FOLDER", help=words)
    made.add_argument("--seeds", type=positive_int, default=5, help="splits, with a seed each (5)")
    made.add_argument("--output", type=pathlib.Path, metavar="FILE", help="file of the rows")
    made.add_argument("--report-only", action="store_true", help="run nothing, print the table")
    made.add_argument("--docs", action="store_true", help=f"write the table into {PAGE.name}")
    return made


def run_and_print(options: argparse.Namespace) -> None:
    """Run what is left, and print the table."""
    path = options.output or FILE
    if not options.report_only:
        if options.tables is None:
            raise ValueError("Got no --tables, but expected the folder of the tables.")
        tables = {item.name: item.load for item in items_of_folder(options.tables)}
        study = ColumnStudy(tables | {"co2": load_co2}, options.seeds)
        with ResultsFile(path, SCHEMA) as file:
            for row in study.rows(file.keys()):
                file.add([row])
    text = describe(read_rows(path, SCHEMA))
    print(text)
    if options.docs:
        write_block(PAGE, "columns", text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the study, print its table, and return the exit status."""
    return run_command(partial(run_and_print, parser().parse_args(arguments)))


if __name__ == "__main__":
    sys.exit(main())
