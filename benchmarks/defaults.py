"""Which alpha and eta go with the paper's other settings: ``python -m benchmarks.defaults``.

Every pair of the paper's grid is ranked on each data set by its validation error over the five
splits (ties share their ranks), and the pair with the lowest average rank over the data sets is
that of ``preset("paper")``. Test errors are not looked at. The rows are those of the tabular
benchmark.
"""

import argparse
import json
import pathlib
import sys
from collections.abc import Sequence

import numpy as np
import pandas as pd

from benchmarks._tabular.protocol import TRAINING, configs_of
from benchmarks._tabular.rows import read_rows

ROWS = pathlib.Path(__file__).parent / "results" / "tabular" / "rows.csv"
PAIR = ["alpha", "eta"]
N_SPLITS = 5


def wrong_answers(rows: pd.DataFrame) -> pd.DataFrame:
    """Wrong validation answers of MixupE: a line per alpha and eta, a column per data set.

    Counts, not percentages: those of the rows are rounded, and would part what is tied. Only
    data sets with the whole grid on all splits of the paper's protocol are there.
    """
    is_one = (rows["method"] == "mixupe") & (rows["splits"] == "holdout") & (rows["error"] == "")
    is_one &= rows["params"] == json.dumps(TRAINING, sort_keys=True)
    rows = rows[is_one & (rows["split"] < N_SPLITS)]
    n_valid = np.ceil(0.25 * (rows["n_rows"] - np.ceil(0.2 * rows["n_rows"])))
    rows = rows.assign(wrong=(rows["valid_error"] / 100 * n_valid).round())
    table = rows.pivot_table(
        index=PAIR, columns="dataset", values="wrong", aggfunc=["sum", "count"]
    )
    n_pairs = len(configs_of("mixupe", "paper"))
    is_whole = (table["count"] == N_SPLITS).sum() == n_pairs
    return table["sum"].loc[:, is_whole]


def average_ranks(wrong: pd.DataFrame) -> pd.Series:
    """Average rank of each pair over the data sets; 1 would be the best everywhere.

    Examples
    --------
    >>> wrong = pd.DataFrame({"iris": [5, 4], "wine": [2, 2]}, index=["a", "b"])
    >>> average_ranks(wrong).to_dict()
    {'a': 1.75, 'b': 1.25}
    """
    return wrong.rank().mean(axis=1)


def best_pair(wrong: pd.DataFrame) -> tuple[float, float]:
    """The pair with the lowest average rank; of several the least alpha, then the least eta."""
    return average_ranks(wrong).idxmin()


def best_without_each(wrong: pd.DataFrame) -> pd.Series:
    """The pair that would win if one data set were left out, for each of them."""
    return pd.Series({name: best_pair(wrong.drop(columns=name)) for name in wrong})


def rank_table(ranks: pd.Series) -> str:
    """Average ranks as Markdown: a line per alpha, a column per eta, the lowest in bold."""
    grid = ranks.unstack()
    lines = [
        "| alpha | " + " | ".join(f"eta = {eta:g}" for eta in grid.columns) + " |",
        "|" + "---|" * (len(grid.columns) + 1),
    ]
    for alpha, values in grid.iterrows():
        shown = [f"**{v:.2f}**" if v == ranks.min() else f"{v:.2f}" for v in values]
        lines.append(f"| {alpha:g} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def describe(rows: pd.DataFrame) -> str:
    """The study in words and a table."""
    wrong = wrong_answers(rows)
    if wrong.shape[1] < 2:
        raise ValueError(
            f"Got rows with {wrong.shape[1]} data sets that have the paper's whole grid, but "
            f"expected two at least: run benchmarks.tabular with --grid paper."
        )
    ranks, (alpha, eta) = average_ranks(wrong), best_pair(wrong)
    others = best_without_each(wrong)
    changed = [
        f"{name} (then alpha={pair[0]:g}, eta={pair[1]:g})"
        for name, pair in others.items()
        if pair != (alpha, eta)
    ]
    left_out = sorted(set(rows["dataset"]) - set(wrong))
    runners_up = ranks.sort_values(kind="stable").iloc[1:4]
    return "\n".join(
        [
            rank_table(ranks),
            "",
            f"Average rank of {len(ranks)} pairs by validation error over {wrong.shape[1]} data "
            f"sets; the middle is {(len(ranks) + 1) / 2:g}."
            + (f" Left out, as the grid is not whole: {', '.join(left_out)}." if left_out else ""),
            f"Lowest: alpha={alpha:g}, eta={eta:g} ({ranks.min():.2f}). Next: "
            + ", ".join(f"alpha={a:g}, eta={e:g} ({r:.2f})" for (a, e), r in runners_up.items())
            + ".",
            "Without one of the data sets it would be another pair: "
            + (", ".join(changed) if changed else "never")
            + ".",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the study."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=pathlib.Path, default=ROWS, help="file of the rows")
    try:
        print(describe(read_rows(parser.parse_args(arguments).rows)))
    except (OSError, ValueError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
