"""The alpha and eta of ``preset("paper")``: ``python -m benchmarks.studies.paper_grid``.

It ranks each pair of the paper's grid by validation error, from the rows of the tabular benchmark.
"""

import argparse
import json
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from benchmarks._harness.cli import run_command
from benchmarks._harness.environment import ROOT
from benchmarks._harness.report_tables import plain_markdown
from benchmarks._harness.results_file import read_rows
from benchmarks._tabular.protocol import FITS, TRAINING, configs_of

ROWS = ROOT / "benchmarks" / "results" / "tabular" / "rows.csv"
N_SPLITS = 5


def wrong_answers(rows: pd.DataFrame) -> pd.DataFrame:
    """Validation errors of MixupE as counts, by alpha and eta (rows) and dataset (columns)."""
    is_one = (rows["method"] == "mixupe") & (rows["splits"] == "holdout") & (rows["error"] == "")
    is_one &= rows["params"] == json.dumps(TRAINING, sort_keys=True)
    rows = rows[is_one & (rows["split"] < N_SPLITS)]
    n_valid = np.ceil(0.25 * (rows["n_rows"] - np.ceil(0.2 * rows["n_rows"])))
    rows = rows.assign(wrong=(rows["valid_error"] / 100 * n_valid).round())
    table = rows.pivot_table(
        index=["alpha", "eta"], columns="dataset", values="wrong", aggfunc=["sum", "count"]
    )
    is_complete = (table["count"] == N_SPLITS).sum() == len(configs_of("mixupe", "paper"))
    return table["sum"].loc[:, is_complete]


def best_pair(wrong: pd.DataFrame) -> tuple[float, float]:
    """The pair with the lowest average rank; of ties the least alpha, then the least eta."""
    return wrong.rank().mean(axis=1).idxmin()


def describe_grid(rows: pd.DataFrame) -> str:
    """Average ranks by alpha and eta, the lowest in bold, and what they mean."""
    wrong = wrong_answers(rows)
    if wrong.shape[1] < 2:
        raise ValueError(
            f"Got rows with {wrong.shape[1]} datasets that have the paper's whole grid, but "
            f"expected two at least: run benchmarks.tabular with --grid paper."
        )
    ranks, best = wrong.rank().mean(axis=1), best_pair(wrong)
    grid = ranks.unstack()
    header, lines = ["alpha", *(f"eta = {eta:g}" for eta in grid.columns)], []
    for alpha, values in grid.iterrows():
        shown = [f"**{v:.2f}**" if v == ranks.min() else f"{v:.2f}" for v in values]
        lines.append([f"{alpha:g}", *shown])
    others = {name: best_pair(wrong.drop(columns=name)) for name in wrong}
    changed = [f"{name} (then {_pair(pair)})" for name, pair in others.items() if pair != best]
    left_out = ", ".join(sorted(set(rows["dataset"]) - set(wrong)))
    left_out = f" Left out, as the grid is incomplete: {left_out}." if left_out else ""
    next_best = ranks.sort_values(kind="stable").iloc[1:4].items()
    runners_up = ", ".join(f"{_pair(pair)} ({rank:.2f})" for pair, rank in next_best)
    sentences = [
        f"Average rank of {len(ranks)} pairs by validation error over {wrong.shape[1]} datasets; "
        f"the middle is {(len(ranks) + 1) / 2:g}.{left_out}",
        f"Lowest: {_pair(best)} ({ranks.min():.2f}). Next: {runners_up}.",
        f"Without one of the datasets it would be another pair: {', '.join(changed) or 'never'}.",
    ]
    return "\n".join([plain_markdown(header, lines, len(header)), "", *sentences])


def _pair(pair: Any) -> str:
    return f"alpha={pair[0]:g}, eta={pair[1]:g}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the ranks, and return the exit status."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.studies.paper_grid", description=(__doc__ or "").splitlines()[0]
    )
    words = "rows of benchmarks.tabular"
    made.add_argument("file", nargs="?", type=pathlib.Path, default=ROWS, help=words)
    options = made.parse_args(arguments)
    return run_command(lambda: print(describe_grid(read_rows(options.file, FITS))))


if __name__ == "__main__":
    sys.exit(main())
