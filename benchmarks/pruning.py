"""What giving up bad trials early saves, and costs: ``python -m benchmarks.pruning``.

The default space, 40 trials, three folds, several seeds of the search, on scaled rows. The same
search is run with each pruner; the first, which prunes nothing, is what the others are compared
with, seed by seed. Each search ends with a fit of its best configuration, which is scored on rows
that the search has not seen. The seed noise is the standard deviation, over seeds, of that test
score without pruning: a loss below it is no more than what another seed would have cost.

One row a search goes to a CSV file; what is printed is made from the rows of this run.
"""

import argparse
import pathlib
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.search_speed import append_rows, load_data, names_of_data, stamp
from mixupe_sklearn import MixupEClassifier, MixupESearchCV, preset

# The first is what the others are compared with.
PRUNERS = ("none", "auto", "hyperband")
# Rows to search on; those left over are for the test.
N_ROWS = 1000
# The share of the epochs that pruning is to save.
MUST_SAVE = 0.5


def default_data() -> list[str]:
    """The digits, and a table of OpenML where there is one."""
    return list(dict.fromkeys(["digits", names_of_data()[0]]))


def search_once(name: str, pruner: Any, seed: int, n_trials: int, max_epochs: int) -> dict:
    """Search, fit the best, and measure: one row."""
    X, y = load_data(name)
    X, X_test, y, y_test = train_test_split(X, y, train_size=N_ROWS, random_state=0, stratify=y)
    params = preset("paper") | {"max_epochs": max_epochs}
    search = MixupESearchCV(
        make_pipeline(StandardScaler(), MixupEClassifier(**params)),
        n_trials=n_trials,
        cv=3,
        pruner=pruner,
        random_state=seed,
    )
    start = time.perf_counter()
    search.fit(X, y)
    seconds = time.perf_counter() - start
    return {
        "data": name,
        "seed": seed,
        "pruner": str(pruner),
        "n_trials": n_trials,
        "n_complete": int(np.sum(search.cv_results_["state"] == "complete")),
        "n_epochs": int(np.sum(search.cv_results_["n_epochs"])),
        "seconds": seconds,
        "valid_score": search.best_score_,
        "test_score": search.score(X_test, y_test),
    }


def search_all(
    names: Sequence[str], pruners: Sequence[Any], n_seeds: int, n_jobs: int, **size: int
) -> Iterable[dict]:
    """Rows of all searches, as they come; the pruners take turns."""
    calls = (
        delayed(search_once)(name, pruner, seed, **size)
        for name in names
        for seed in range(n_seeds)
        for pruner in pruners
    )
    return Parallel(n_jobs=n_jobs, return_as="generator")(calls)


def compare(rows: pd.DataFrame) -> pd.DataFrame:
    """Means and deviations of each pruner on each data set, and its differences to no pruning."""
    lines = []
    for (data, pruner), part in rows.groupby(["data", "pruner"], sort=False):
        part = part.set_index("seed")
        plain = rows[(rows["data"] == data) & (rows["pruner"] == PRUNERS[0])].set_index("seed")
        loss = plain["test_score"] - part["test_score"]
        lines.append(
            {
                "data": data,
                "pruner": pruner,
                "epochs": part["n_epochs"].mean(),
                "saved": 1 - part["n_epochs"].sum() / plain["n_epochs"].sum(),
                "seconds": part["seconds"].mean(),
                "valid": part["valid_score"].mean(),
                "test": part["test_score"].mean(),
                "test_deviation": part["test_score"].std(),
                "loss": loss.mean(),
                "loss_deviation": loss.std(),
                "noise": plain["test_score"].std(),
            }
        )
    return pd.DataFrame(lines)


def make_table(comparison: pd.DataFrame) -> str:
    """The comparison as Markdown; scores are in percent."""
    lines = [
        "| data | pruner | epochs | saved | seconds | validation (%) | test (%) | test loss (%) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.data} | {row.pruner} | {row.epochs:.0f} | {row.saved:.0%} | {row.seconds:.1f} | "
        f"{100 * row.valid:.2f} | {100 * row.test:.2f} ± {100 * row.test_deviation:.2f} | "
        f"{100 * row.loss:.2f} ± {100 * row.loss_deviation:.2f} |"
        for row in comparison.itertuples()
    ]
    return "\n".join(lines)


def judge(comparison: pd.DataFrame, pruner: str) -> list[str]:
    """Say for each data set whether the saving is large enough and the loss within the noise."""
    return [
        f"{row.data}: pruner={pruner!r} saves {row.saved:.0%} of the epochs, "
        f"{'at least' if row.saved >= MUST_SAVE else 'LESS than'} {MUST_SAVE:.0%}; its test score "
        f"is {100 * abs(row.loss):.2f} points {'lower' if row.loss > 0 else 'higher or equal'}, "
        f"{'within' if row.loss <= row.noise else 'BEYOND'} the seed noise of "
        f"{100 * row.noise:.2f}."
        for row in comparison[comparison["pruner"] == pruner].itertuples()
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all searches, then print the table, the judgement, and where the rows are."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", nargs="*", default=default_data(), help="names of data sets")
    parser.add_argument("--seeds", type=int, default=10, help="seeds of the search (default: 10)")
    parser.add_argument("--trials", type=int, default=40, help="trials a search (default: 40)")
    parser.add_argument("--epochs", type=int, default=25, help="epochs a fit (default: 25)")
    parser.add_argument("--jobs", type=int, default=2, help="searches at a time (default: 2)")
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        default=pathlib.Path("build/pruning.csv"),
        help="file that rows are added to (default: build/pruning.csv)",
    )
    options = parser.parse_args(arguments)
    note = stamp()
    size = {"n_trials": options.trials, "max_epochs": options.epochs}
    found = search_all(options.data, PRUNERS, options.seeds, options.jobs, **size)
    append_rows(options.output, found, note)
    rows = pd.read_csv(options.output, keep_default_na=False)
    comparison = compare(rows[rows["run"] == note["run"]])
    print(f"\n{make_table(comparison)}\n")
    print(f"{options.seeds} seeds; mean ± deviation; the loss is paired, seed by seed.")
    for sentence in judge(comparison, PRUNERS[1]):
        print(sentence)
    print(f"Rows: {options.output}")


if __name__ == "__main__":
    main()
