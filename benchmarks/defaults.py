"""Which alpha and eta to start with: ``python -m benchmarks.defaults``.

Every pair of the paper's grid is ranked on each data set by its mean validation error over the
splits (ties share their ranks), and the pair with the lowest average rank over the data sets is
the default of ``MixupEClassifier``. Test errors are not looked at. The rows are those of the
tabular benchmark.
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence

import pandas as pd

from benchmarks._tabular.protocol import configs_of
from benchmarks._tabular.rows import read_rows

ROWS = pathlib.Path(__file__).parent / "results" / "tabular" / "rows.csv"
PAIR = ["alpha", "eta"]


def validation_errors(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean validation error of MixupE: a line per pair of alpha and eta, a column per data set.

    Data sets on which not all pairs of the grid were run, on all splits, are left out.
    """
    rows = rows[(rows["method"] == "mixupe") & (rows["error"] == "")]
    errors = rows.pivot_table(
        index=PAIR, columns="dataset", values="valid_error", aggfunc=["mean", "count"]
    )
    n_pairs = len(configs_of("mixupe", "paper"))
    counts = errors["count"]
    is_whole = (counts.notna().sum() == n_pairs) & (counts.min() == counts.max())
    return errors["mean"].loc[:, is_whole]


def average_ranks(errors: pd.DataFrame) -> pd.Series:
    """Average rank of each pair over the data sets; 1 would be the best everywhere.

    Examples
    --------
    >>> errors = pd.DataFrame({"iris": [5.0, 4.0], "wine": [2.0, 2.0]}, index=["a", "b"])
    >>> average_ranks(errors).to_dict()
    {'a': 1.75, 'b': 1.25}
    """
    return errors.rank().mean(axis=1)


def best_pair(errors: pd.DataFrame) -> tuple[float, float]:
    """The pair with the lowest average rank; of several the least alpha, then the least eta."""
    return average_ranks(errors).idxmin()


def best_without_each(errors: pd.DataFrame) -> pd.Series:
    """The pair that would win if one data set were left out, for each of them."""
    return pd.Series({name: best_pair(errors.drop(columns=name)) for name in errors})


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
    errors = validation_errors(rows)
    if errors.shape[1] < 2:
        raise ValueError(
            f"Got rows with {errors.shape[1]} data sets that have the paper's whole grid, but "
            f"expected two at least: run benchmarks.tabular with --grid paper."
        )
    ranks, (alpha, eta) = average_ranks(errors), best_pair(errors)
    others = best_without_each(errors)
    changed = [
        f"{name} (then alpha={pair[0]:g}, eta={pair[1]:g})"
        for name, pair in others.items()
        if pair != (alpha, eta)
    ]
    runners_up = ranks.sort_values(kind="stable").iloc[1:4]
    return "\n".join(
        [
            rank_table(ranks),
            "",
            f"Average rank of {len(ranks)} pairs by validation error over {errors.shape[1]} data "
            f"sets; the middle is {(len(ranks) + 1) / 2:g}.",
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
