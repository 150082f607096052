"""Draw the mean ranks in the README: ``python docs/make_rank_figure.py``."""

import pathlib
import sys

import matplotlib.pyplot as plt

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks._harness.results_file import read_rows  # noqa: E402
from benchmarks._tabular.protocol import FITS  # noqa: E402
from benchmarks._tabular.report.results import choose, error_table  # noqa: E402
from benchmarks._tabular.report.statistics import compare_ranks  # noqa: E402

ROWS = ROOT / "benchmarks" / "results" / "baselines" / "rows.csv"
FIGURE = ROOT / "docs" / "_static" / "ranks.png"
OURS = "mixupe-default"
LABELS = {
    "realmlp": "RealMLP",
    OURS: "MixupEClassifier()",
    "catboost": "CatBoost",
    "mlp-sklearn-default": "MLPClassifier",
    "logistic": "logistic regression",
    "random-forest": "random forest",
    "lightgbm": "LightGBM",
    "hist-gradient-boosting": "histogram boosting",
    "xgboost": "XGBoost",
}


def read_errors():
    """Test errors with default settings, datasets by methods."""
    return error_table(choose(read_rows(ROWS, FITS))).drop(columns="mixupe-paper")


def describe(ranks):
    """Text for the file of the figure, by which a test compares it with the results."""
    return ", ".join(f"{LABELS[name]} {rank:.2f}" for name, rank in ranks.items())


def draw_ranks(ranks, n_datasets):
    """Draw the mean rank of each method, the best one at the top.

    Parameters
    ----------
    ranks : pandas.Series
        Mean rank of each method, the best one first.
    n_datasets : int
        Number of datasets that the ranks are averaged over.

    Returns
    -------
    figure : matplotlib.figure.Figure
        A dot for each method, with its value.
    """
    names = [LABELS[name] for name in ranks.index]
    colors = ["#1f6fb4" if name == OURS else "#7b8794" for name in ranks.index]
    figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
    # A rank begins at 1, so a bar from 0 would have no meaning.
    axes.hlines(names, 1, ranks, color="#dde3e8", linewidth=2, zorder=1)
    axes.scatter(ranks, names, color=colors, s=70, zorder=2)
    for name, rank in zip(names, ranks, strict=True):
        axes.annotate(f"{rank:.2f}", (rank, name), (9, -4), textcoords="offset points", fontsize=11)
    axes.invert_yaxis()
    axes.get_yticklabels()[names.index(LABELS[OURS])].set_fontweight("bold")
    axes.set_xlim(1, len(ranks))
    axes.set_title(f"Default settings on {n_datasets} datasets", fontsize=11, loc="left")
    axes.set_xlabel("mean rank by test error (1 is best)", fontsize=11)
    axes.tick_params(axis="y", length=0, labelsize=11)
    axes.tick_params(axis="x", labelsize=10)
    axes.spines[["top", "right", "left"]].set_visible(False)
    return figure


def main():
    """Write the figure."""
    errors = read_errors()
    ranks = compare_ranks(errors).ranks
    figure = draw_ranks(ranks, len(errors))
    metadata = {"Description": describe(ranks), "Software": None}
    figure.savefig(FIGURE, dpi=200, facecolor="white", metadata=metadata)


if __name__ == "__main__":
    main()
