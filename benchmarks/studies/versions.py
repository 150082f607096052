"""Whether two versions of the package predict alike: ``python -m benchmarks.studies.versions``.

``record FILE`` fits the default classifier and that of ``preset("paper")`` on ten tables with five
seeds each; the same command resumes a run. ``compare OLD NEW`` compares two such files. To record
another version, run this file as a script with ``PYTHONPATH`` set to that checkout.
"""

import argparse
import csv
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from benchmarks._harness.cli import positive_int, run_command
from benchmarks._harness.report_tables import plain_markdown
from benchmarks._harness.results_file import ResultsFile, Schema
from mixupe_sklearn import make_mixupe_pipeline, preset
from mixupe_sklearn.datasets import EMBEDDED, Table, load_embedded, read_csv

# Read from --tables, as NAME.csv or NAME.csv.gz with the column "target".
FROM_FOLDER = ("churn", "credit-approval", "diabetes", "phoneme", "satellite")
MODELS = {"default": {}, "paper": preset("paper")}
MOST_ROWS = 2_000  # to train on
MARGIN = 0.01  # of the log loss; the interval must lie within it on either side
KEY = ("table", "seed", "model")
SCHEMA = Schema((*KEY, "log_loss", "error", "seconds"), frozenset(("table", "model")), KEY)


def load_tables(folder: pathlib.Path | None) -> list[Table]:
    """The embedded tables, and with a folder those in it."""
    tables = [load_embedded(name) for name in EMBEDDED]
    for name in FROM_FOLDER if folder is not None else ():
        found = sorted(pathlib.Path(folder or ".").glob(f"{name}.csv*"))
        if not found:
            raise ValueError(
                f"Got --tables {folder} without {name}.csv, but expected CSV files of "
                f"{', '.join(FROM_FOLDER)}, each with the column 'target'."
            )
        tables.append(read_csv(found[0], "target", name=name))
    return tables


def fit_and_score(table: Table, seed: int, model: str) -> dict[str, Any]:
    """Log loss and error on a quarter of the rows, and seconds of the fit."""
    n_test = -(-table.n_rows // 4)
    X, X_test, y, y_test = train_test_split(
        table.X,
        table.y,
        train_size=min(MOST_ROWS, table.n_rows - n_test),
        test_size=n_test,
        stratify=table.y,
        random_state=seed,
    )
    params = MODELS[model] | {"n_threads": 1, "device": "cpu", "random_state": seed}
    pipeline = make_mixupe_pipeline(**params)
    start = time.perf_counter()
    pipeline.fit(X, y)
    seconds = round(time.perf_counter() - start, 4)
    proba = pipeline.predict_proba(X_test)
    error = float(np.mean(pipeline.classes_[proba.argmax(axis=1)] != y_test))
    loss = float(log_loss(y_test, proba, labels=pipeline.classes_))
    return {"log_loss": loss, "error": error, "seconds": seconds}


def record(path: pathlib.Path, tables: Sequence[Table], n_seeds: int) -> None:
    """Append a row for each fit that the file does not have yet."""
    with ResultsFile(path, SCHEMA) as file:
        done = file.keys()
        for table in tables:
            for seed in range(n_seeds):
                for model in MODELS:
                    fit = {"table": table.name, "seed": seed, "model": model}
                    if SCHEMA.key_of(fit) not in done:
                        file.add([fit | fit_and_score(table, seed, model)])
            print(f"{table.name}: recorded", file=sys.stderr, flush=True)


def read(path: pathlib.Path) -> pd.DataFrame:
    """The rows of a file, with floats as they were written."""
    lines = ResultsFile(path, SCHEMA).lines()
    if len(lines) < 2:
        raise ValueError(f"Got {path} without rows, but expected a file that `record` wrote.")
    reader = csv.DictReader(lines)
    # Python's own float is exact to the bit, unlike that of some versions of pandas.
    rows = ({**row, **{name: float(row[name]) for name in SCHEMA.numbers}} for row in reader)
    return pd.DataFrame(rows).set_index(list(KEY))


def interval_of(values: Sequence[float], level: float = 0.9) -> tuple[float, float]:
    """The t interval of a mean; without spread it is the mean."""
    mean, error = float(np.mean(values)), float(stats.sem(values))
    half = error * float(stats.t.ppf((1 + level) / 2, len(values) - 1))
    return mean - half, mean + half


def compare(old: pd.DataFrame, new: pd.DataFrame) -> str:
    """A row for each model, in Markdown; only fits that both files have count."""
    pairs = old.add_suffix("_old").join(new.add_suffix("_new"), how="inner")
    lines = []
    for model, rows in pairs.groupby(level="model"):
        change = rows["log_loss_new"] / rows["log_loss_old"] - 1
        tables = change.groupby(level="table").mean()
        if len(tables) < 2:
            raise ValueError(f"Got {len(tables)} table(s) of {model}, but expected at least two.")
        low, high = interval_of(tables.to_numpy())
        n_equal = (
            (rows["log_loss_new"] == rows["log_loss_old"])
            & (rows["error_new"] == rows["error_old"])
        ).sum()
        counts = [int((change < 0).sum()), int((change == 0).sum()), int((change > 0).sum())]
        is_within = low > -MARGIN and high < MARGIN
        lines.append(
            [
                *(str(model), str(len(tables)), str(len(rows)), f"{100 * tables.mean():+.2f}"),
                f"{100 * low:+.2f} to {100 * high:+.2f}",
                *("/".join(map(str, counts)), str(n_equal), "yes" if is_within else "NO"),
            ]
        )
    if not lines:
        raise ValueError("Got files without a common fit, but expected the same tables and seeds.")
    header = ["model", "tables", "fits", "log loss, new / old - 1 (%)", "90 % interval (%)"]
    header += ["lower/equal/higher", "equal to the bit", f"interval within {MARGIN:.0%}"]
    alone = len(old) + len(new) - 2 * len(pairs)
    note = f"\n\n{alone} fit(s) are in one of the files only and do not count." if alone else ""
    words = "Means over tables of the means over seeds; t interval over the means of the tables."
    return f"{words}\n\n{plain_markdown(header, lines)}{note}"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.studies.versions", description=(__doc__ or "").splitlines()[0]
    )
    commands = made.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="fit, and append a row per fit")
    recording.add_argument("file", type=pathlib.Path)
    words = "folder of CSV files with five further tables (without: the embedded five)"
    recording.add_argument("--tables", type=pathlib.Path, metavar="FOLDER", help=words)
    recording.add_argument("--seeds", type=positive_int, default=5, help="per table (5)")
    comparing = commands.add_parser("compare", help="compare the rows of two versions")
    comparing.add_argument("old", type=pathlib.Path)
    comparing.add_argument("new", type=pathlib.Path)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Record or compare, and return the exit status."""
    options = parser().parse_args(arguments)

    def work() -> None:
        if options.command == "record":
            record(options.file, load_tables(options.tables), options.seeds)
        else:
            print(compare(read(options.old), read(options.new)))

    return run_command(work)


if __name__ == "__main__":
    sys.exit(main())
