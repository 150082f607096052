"""What each scaling of numbers gives, with and without outliers: ``python -m benchmarks.scaling``.

The paper's settings, in batches of 32 rows, behind ``make_preprocessor`` with each of its scalings,
on scikit-learn's embedded tables as they are and spoiled: one entry in a hundred, drawn at random,
is multiplied by 10,000. Five folds, repeated; each repeat has its own folds, outliers and seed, and
they are the same for all scalings.

Each fit is a line of a CSV file, and the table that is printed is made from these lines alone.
"""

import argparse
import json
import pathlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import StratifiedKFold

from benchmarks._tabular.running import commit, versions_of
from benchmarks._writing import write_text
from mixupe_sklearn import make_mixupe_pipeline, make_preprocessor, preset
from mixupe_sklearn.datasets import load_embedded

ROWS = pathlib.Path(__file__).parent / "results" / "scaling.csv"
DATA = ("iris", "wine", "breast-cancer", "digits")
SCALINGS = ("standard", "robust", "quantile", "splines")
PARAMS: dict[str, Any] = preset("paper") | {"batch_size": 32}
N_FOLDS, N_REPEATS = 5, 2
SHARE, FACTOR = 0.01, 10_000


def spoil(X: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Multiply one entry in a hundred by 10,000.

    Examples
    --------
    >>> spoil(pd.DataFrame({"size": [1.0] * 200}), seed=0)["size"].value_counts().to_dict()
    {1.0: 198, 10000.0: 2}
    """
    chosen = np.random.default_rng(seed).permutation(X.size) < round(SHARE * X.size)
    return X.where(~chosen.reshape(X.shape), X * FACTOR)


def rows_of(
    name: str, is_spoiled: bool, repeat: int, n_folds: int, params: dict[str, Any]
) -> Iterator[dict]:
    """Test errors (%) of all scalings on the folds of one repeat."""
    table = load_embedded(name)
    X = spoil(table.X, repeat) if is_spoiled else table.X
    folds = StratifiedKFold(n_folds, shuffle=True, random_state=repeat)
    for fold, (train, test) in enumerate(folds.split(X, table.y)):
        for scaling in SCALINGS:
            preprocessor = make_preprocessor(scaling=scaling)
            pipeline = make_mixupe_pipeline(
                preprocessor=preprocessor, random_state=repeat, n_threads=1, **params
            )
            pipeline.fit(X.iloc[train], table.y[train])
            error = 100 * (1 - pipeline.score(X.iloc[test], table.y[test]))
            yield {
                "table": f"{name}, spoiled" if is_spoiled else name,
                "repeat": repeat,
                "fold": fold,
                "scaling": scaling,
                "test_error": round(error, 4),
            }


def measure(
    names: Sequence[str], n_folds: int, n_repeats: int, params: dict[str, Any]
) -> pd.DataFrame:
    """Rows of all fits, with what they were made by."""
    rows: list[dict] = []
    for is_spoiled in (False, True):
        for name in names:
            print(f"{name}{', spoiled' * is_spoiled} ...", flush=True)
            for repeat in range(n_repeats):
                rows += rows_of(name, is_spoiled, repeat, n_folds, params)
    return pd.DataFrame(rows).assign(
        params=json.dumps(params, sort_keys=True),
        versions=versions_of(),
        commit=commit(),
        run=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def make_table(rows: pd.DataFrame) -> str:
    """Mean error of each scaling, and the deviation between repeats, as Markdown."""
    of_repeats = rows.groupby(["table", "scaling", "repeat"], sort=False)["test_error"].mean()
    found = of_repeats.groupby(["table", "scaling"], sort=False).agg(["mean", "std"])
    lines = [
        "| table | " + " | ".join(f'`"{scaling}"`' for scaling in SCALINGS) + " |",
        "|" + "---|" * (len(SCALINGS) + 1),
    ]
    for table in rows["table"].unique():
        cells = (found.loc[(table, scaling)] for scaling in SCALINGS)
        shown = [f"{cell['mean']:.2f} ± {cell['std']:.2f}" for cell in cells]
        lines.append(f"| {table} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all fits, write their rows, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="iris, 2 folds, 2 epochs: for tests")
    parser.add_argument("--output", type=pathlib.Path, help=f"file of the rows ({ROWS.name})")
    options = parser.parse_args(arguments)
    names, n_folds = (DATA[:1], 2) if options.quick else (DATA, N_FOLDS)
    path = options.output or (pathlib.Path("build/scaling.csv") if options.quick else ROWS)
    params = PARAMS | ({"max_epochs": 2} if options.quick else {})
    rows = measure(names, n_folds, N_REPEATS, params)
    write_text(path, rows.to_csv(index=False))
    print(f"\n{make_table(pd.read_csv(path))}\n\nRows: {path}")


if __name__ == "__main__":
    main()
