"""Times of fits in turns: ``python -m benchmarks.fit_times --tables FOLDER``.

The default settings against other libraries, one thread each, in one process, with a warm-up. The
times of ``benchmarks.default_settings`` come from runs beside other work; use these on a quiet
machine for ratios. Each table is measured once, and the same command resumes a run.
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import pandas as pd

from benchmarks._harness.cli import positive_int, run_command
from benchmarks._harness.docs_tables import write_block
from benchmarks._harness.environment import commit, processor_name, versions_of
from benchmarks._harness.paired_timing import Run, take_turns, threads
from benchmarks._harness.report_tables import plain_markdown
from benchmarks._harness.results_file import ResultsFile, Schema, read_rows, rounded
from benchmarks._tabular import baselines
from benchmarks._tabular.collection import is_regression
from benchmarks._tabular.fits import few_rows_allowed, raw_rows
from benchmarks._tabular.options import add_data, check_data
from benchmarks.default_settings import LADDER, MOST_ROWS, PAGE, RESULTS, items_for, split_of
from mixupe_sklearn.datasets import Table

FILE = RESULTS / "times.csv"
METHODS = ("default", "fast", "realmlp", "hist-gradient-boosting", "mlp-sklearn-default")
KEY = ("dataset", "data", "most_rows", "method", "round")
SCHEMA = Schema(
    (
        *("dataset", "data", "task", "n_train", "n_features", "most_rows", "method", "round"),
        *("seconds", "processor", "versions", "commit", "run"),
    ),
    frozenset(("dataset", "data", "task", "method", "processor", "versions", "commit", "run")),
    KEY,
)


class Pair(NamedTuple):
    """Two methods whose ratio is reported, with its bound and its goal."""

    what: str
    one: str
    other: str
    must: float | None = None
    aim: float | None = None


PAIRS = (
    Pair("default / RealMLP-TD", "default", "realmlp", 0.2, 0.1),
    Pair("default / histogram boosting", "default", "hist-gradient-boosting", aim=3.0),
    Pair('`preset("fast")` / scikit-learn\'s MLP', "fast", "mlp-sklearn-default", must=1.0),
    Pair("default / scikit-learn's MLP", "default", "mlp-sklearn-default"),
)


def fit_of(method: str, table: Table, data: Any) -> Run:
    """Return a call that fits a new model of a method on the training samples."""
    has_numbers = is_regression(table)

    def run() -> None:
        if method in LADDER:
            model: Any = LADDER[method].settings(has_numbers).make(0)
        else:
            model = baselines.make_baseline(method, 0, is_regression=has_numbers)
        with few_rows_allowed():
            model.fit(data.X["train"], data.y["train"])

    return run


def measure(table: Table, most_rows: int, n_rounds: int) -> list[dict[str, Any]]:
    """Return a row for each method and round."""
    split = split_of(table, 0, most_rows)
    data = raw_rows(table, split)
    runs = {method: fit_of(method, table, data) for method in METHODS}
    with threads(1):
        warm_up(table)
        times = take_turns(runs, n_rounds)
    about = {
        "dataset": table.name,
        "data": table.fingerprint,
        "task": "regression" if is_regression(table) else "classification",
        "n_train": len(split.train),
        "n_features": table.X.shape[1],
        "most_rows": most_rows,
        "processor": processor_name(),
        "versions": versions_of(METHODS),
        "commit": commit(),
        "run": pd.Timestamp.now("UTC").isoformat(timespec="seconds"),
    }
    return [
        about | {"method": method, "round": number, "seconds": rounded(seconds, 4)}
        for method, own in times.items()
        for number, seconds in enumerate(own)
    ]


def warm_up(table: Table) -> None:
    """Fit each method once on a few samples: first fits load libraries."""
    data = raw_rows(table, split_of(table, 0, 200))
    for method in METHODS:
        fit_of(method, table, data)()


def ratios(rows: pd.DataFrame, pair: Pair) -> pd.Series:
    """Return the ratio of the median times of a pair on each table, the smallest first."""
    times = rows.pivot_table("seconds", "dataset", "method", aggfunc="median")
    return (times[pair.one] / times[pair.other]).dropna().sort_values()


def describe(rows: pd.DataFrame) -> str:
    """Return the ratios in Markdown."""
    head = ["fit time", "tables", "median (quartiles)", "smallest", "largest", "target"]
    lines = []
    for pair in PAIRS:
        found = ratios(rows, pair)
        low, middle, high = found.quantile([0.25, 0.5, 0.75])
        bounds = (("at most", pair.must), ("aim", pair.aim))
        targets = [
            f"{word} {bound:g}: {'held' if middle <= bound else 'missed'}"
            for word, bound in bounds
            if bound is not None
        ]
        ends = [f"{found.iloc[at]:.2f} ({found.index[at]})" for at in (0, -1)]
        shown = f"{middle:.2f} ({low:.2f} to {high:.2f})"
        lines.append([pair.what, str(len(found)), shown, *ends, "; ".join(targets)])
    return plain_markdown(head, lines)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.fit_times", description=(__doc__ or "").splitlines()[0]
    )
    group = made.add_argument_group("data")
    add_data(group)
    words = "folder with tables.json and CSV files, besides --source openml or alone"
    group.add_argument("--tables", type=pathlib.Path, metavar="FOLDER", help=words)
    words = "only every N-th of the tables (1)"
    group.add_argument("--every", type=positive_int, default=1, metavar="N", help=words)
    words = f"largest number of training samples ({MOST_ROWS:,})"
    made.add_argument("--most-rows", type=positive_int, default=MOST_ROWS, help=words)
    made.add_argument("--rounds", type=positive_int, default=1, help="fits of each method (1)")
    made.add_argument("--output", type=pathlib.Path, metavar="FILE", help="file of the rows")
    made.add_argument("--report-only", action="store_true", help="run nothing, print the table")
    made.add_argument("--docs", action="store_true", help=f"write the table into {PAGE.name}")
    return made


def run_and_print(options: argparse.Namespace) -> None:
    """Measure the tables that have no rows yet, and print the ratios of all."""
    check_data(options)
    path = options.output or FILE
    if not options.report_only:
        baselines.check_baselines([name for name in METHODS if name not in LADDER])
        with ResultsFile(path, SCHEMA) as file:
            known = file.keys()
            done = {(data, float(most_rows)) for _, data, most_rows, *_ in known}
            for item in items_for(options)[:: options.every]:
                table = item.load()
                if (table.fingerprint, float(options.most_rows)) not in done:
                    print(f"{table.name} ...", file=sys.stderr, flush=True)
                    file.add(measure(table, options.most_rows, options.rounds))
    rows = read_rows(path, SCHEMA)
    rows = rows[rows["most_rows"] == options.most_rows]
    if rows.empty:
        raise ValueError(f"Got {path} without rows, but expected some: run without --report-only.")
    text = describe(rows)
    print(text)
    if options.docs:
        write_block(PAGE, "times", text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return the exit status."""
    options = parser().parse_args(arguments)
    return run_command(partial(run_and_print, options))


if __name__ == "__main__":
    sys.exit(main())
