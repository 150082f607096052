"""Draw mean ranks against time, for the README: ``python docs/make_rank_figure.py``."""

import pathlib
import sys

import matplotlib.pyplot as plt

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.default_settings import LABELS, page_summary  # noqa: E402

FIGURE = ROOT / "docs" / "_static" / "ranks.png"
OURS = "default"
PANELS = {
    "error": "Classification: error",
    "log_loss": "Classification: log loss",
    "rmse": "Regression: RMSE",
}


def label_of(method):
    """Return the name of a method in the figure."""
    return LABELS[method].strip("*")


def describe(found):
    """Text for the file of the figure, by which a test compares it with the results."""
    return ", ".join(
        f"{label_of(name)} {' '.join(f'{own[metric]:.2f}' for metric in PANELS)}"
        for name, own in found.iterrows()
    )


def draw_ranks(found):
    """Draw the mean rank of each method against the median time of a fit.

    Parameters
    ----------
    found : pandas.DataFrame
        Mean ranks by metric and seconds of each method.

    Returns
    -------
    figure : matplotlib.figure.Figure
        A panel for each metric; the lower left corner is best.
    """
    figure, panels = plt.subplots(1, len(PANELS), figsize=(10.5, 3.6), layout="constrained")
    for axes, (metric, title) in zip(panels, PANELS.items(), strict=True):
        axes.set_xscale("log")
        axes.set_xlim(found["seconds"].min() / 2, found["seconds"].max() * 12)
        low, high = found[metric].min(), found[metric].max()
        place = low - 1.0
        for name, own in found.sort_values(metric).iterrows():
            color = "#1f6fb4" if name == OURS else "#5f6b78"
            axes.scatter(own["seconds"], own[metric], color=color, s=70 if name == OURS else 36)
            # Labels keep a distance from each other, whatever that of the dots is.
            place = max(own[metric], place + 0.06 * (high - low))
            axes.annotate(
                label_of(name),
                (own["seconds"], own[metric]),
                (own["seconds"] * 1.3, place),
                va="center",
                fontsize=8,
                color=color,
                fontweight="bold" if name == OURS else "normal",
            )
        axes.set_ylim(low - 0.12 * (high - low), high + 0.26 * (high - low))
        axes.set_title(f"{title} ({found.attrs['n_sets'][metric]} tables)", fontsize=10, loc="left")
        axes.set_xlabel("median seconds of a fit, one thread", fontsize=9)
        axes.tick_params(labelsize=8)
        axes.grid(color="#e3e7eb")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("mean rank on test samples (1 is best)", fontsize=9)
    return figure


def main():
    """Write the figure."""
    found = page_summary()
    metadata = {"Description": describe(found), "Software": None}
    draw_ranks(found).savefig(FIGURE, dpi=160, facecolor="white", metadata=metadata)


if __name__ == "__main__":
    main()
