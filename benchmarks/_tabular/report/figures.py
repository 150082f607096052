"""The figures of the report: matplotlib's SVG, for the page."""

import html
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import scikit_posthocs
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from benchmarks._tabular.report.results import label_of
from benchmarks._tabular.report.statistics import LEVEL, RankTest

COLOURS = "cividis_r"  # readers with colour blindness can distinguish these
_SETTINGS: Any = {
    "svg.fonttype": "none",  # text stays text, for screen readers and for searching
    "svg.hashsalt": "mixupe",  # equal rows give equal bytes
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#d5dae0",
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
}


@dataclass(frozen=True)
class Plot:
    """A figure of the page: its title, a caption and the SVG."""

    title: str
    caption: str
    svg: str


def to_svg(figure: Figure, name: str, label: str) -> str:
    """Return the figure as an ``svg`` element; ``name`` begins all ids, ``label`` describes it."""
    file = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(file, format="svg", metadata=nothing)
    text = file.getvalue()
    text = text[text.index("<svg") :]
    box = re.findall(r'viewBox="([^"]*)"', text)[0]
    text = re.sub(r'( id="|href="#|url\(#)', rf"\g<1>{name}-", text).replace("xlink:href", "href")
    # The browser knows the namespaces of a page's own SVG.
    opening = f'<svg viewBox="{box}" role="img" aria-label="{html.escape(label)}">'
    return opening + text[text.index(">") + 1 :].strip()


def draw_ranks(test: RankTest, name: str) -> Plot:
    """Draw Demsar's diagram: average ranks on a line; bars join methods that do not differ."""
    methods = [str(method) for method in test.ranks.index]
    labels = {method: label_of(method) for method in methods}
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(5.6, 1.0 + 0.24 * len(labels)), layout="constrained")
        axes = figure.subplots()
        axes.grid(False)
        scikit_posthocs.critical_difference_diagram(
            test.ranks.rename(labels),
            test.pairs.rename(index=labels, columns=labels),
            alpha=LEVEL,
            ax=axes,
            color_palette=dict.fromkeys(labels.values(), "black"),
            label_fmt_left="{label} ({rank:.2f})\N{NO-BREAK SPACE}",
            label_fmt_right="\N{NO-BREAK SPACE}({rank:.2f}) {label}",
            text_h_margin=0.04,
        )
        axes.set_xlim(1, len(labels))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        end = min(1 + test.critical_difference, len(labels))
        text = f"CD = {test.critical_difference:.2f}"
        axes.plot([1, end], [1.3, 1.3], color="dimgray", marker="|", clip_on=False)
        axes.text((1 + end) / 2, 1.6, text, ha="center", va="bottom", color="dimgray")
        axes.set_ylim(axes.get_ylim()[0], 2.4)
        ranks = ", ".join(f"{labels[m]} {rank:.2f}" for m, rank in test.ranks.items())
        svg = to_svg(figure, name, f"Average ranks: {ranks}; critical difference {text[5:]}.")
    return Plot(
        f"Critical-difference diagram of {len(labels)} methods",
        f"Average ranks over {test.n_sets} datasets (left is better)."
        f" Methods joined by a bar do not differ by Nemenyi's test at 5 %. CD is the smallest "
        f"difference of two ranks that is significant.",
        svg,
    )


def draw_map(table: pd.DataFrame, chosen: pd.Series, name: str) -> Plot:
    """Draw the mean validation error by alpha and eta; a circle marks the chosen pair."""
    grid = table.pivot(index="eta", columns="alpha", values="valid_error")
    alphas, etas = list(grid.columns), list(grid.index)
    low, high = table["valid_error"].min(), table["valid_error"].max()
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(3.5, 0.95 + 0.27 * len(etas)), layout="constrained")
        axes = figure.subplots()
        axes.grid(False)
        mesh = axes.pcolormesh(grid.to_numpy(), cmap=COLOURS)
        bar = figure.colorbar(mesh, ax=axes, ticks=MaxNLocator(4))
        bar.outline.set_visible(False)
        spot = (alphas.index(chosen["alpha"]) + 0.5, etas.index(chosen["eta"]) + 0.5)
        axes.plot(*spot, "o", markersize=9, color="#ffffff", markeredgecolor="#000000")
        step = 1 + len(alphas) // 8  # so that labels do not overlap
        shown = range(0, len(alphas), step)
        axes.set_xticks([place + 0.5 for place in shown], [f"{alphas[place]:g}" for place in shown])
        axes.set_yticks(np.arange(len(etas)) + 0.5, [f"{eta:g}" for eta in etas])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_xlabel("alpha")
        axes.set_ylabel("eta")
        title = f"{label_of(chosen['method'])} on {chosen['set']}"
        label = (
            f"Validation error of {title} by alpha and eta, from {low:.2f} to {high:.2f} percent; "
            f"chosen: alpha {chosen['alpha']:g}, eta {chosen['eta']:g}."
        )
        svg = to_svg(figure, name, label)
    return Plot(title, f"{low:.2f} to {high:.2f} %", svg)


def draw_trials(trials: Sequence[Mapping[str, Any]], title: str, name: str) -> Plot:
    """Draw the trials of a study by alpha and eta, coloured by their validation error."""
    complete = [trial for trial in trials if trial["state"] == "complete"]
    pruned = [trial for trial in trials if trial["state"] == "pruned"]
    best = min(complete, key=lambda trial: (trial["valid_error"], trial["valid_log_loss"]))
    errors = [trial["valid_error"] for trial in complete]
    low, high = min(errors), max(errors)
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(3.5, 2.5), layout="constrained")
        axes = figure.subplots()
        axes.set(xscale="log", yscale="log", xlim=(0.007, 7.0), ylim=(6e-5, 1.7))
        axes.set(xlabel="alpha", ylabel="eta")
        axes.plot(*_places(pruned), "x", color="#7a838c", markersize=4.5)
        dots = axes.scatter(*_places(complete), c=errors, cmap=COLOURS, s=30, zorder=3)
        axes.plot(*_places([best]), "o", markersize=11, fillstyle="none", color="#c0392b", zorder=4)
        bar = figure.colorbar(dots, ax=axes, ticks=MaxNLocator(4))
        bar.outline.set_visible(False)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
        pair = f"alpha {best['params']['alpha']:g}, eta {best['params']['eta']:g}"
        label = (
            f"Validation error of {title} by alpha and eta: {len(complete)} complete trials from "
            f"{low:.2f} to {high:.2f} percent, {len(pruned)} pruned; best: {pair}."
        )
        svg = to_svg(figure, name, label)
    return Plot(title, f"{low:.2f} to {high:.2f} %", svg)


def _places(trials: Sequence[Mapping[str, Any]]) -> tuple[list[float], list[float]]:
    params = [trial["params"] for trial in trials]
    return [one["alpha"] for one in params], [one["eta"] for one in params]


def draw_importances(shares: pd.DataFrame, title: str, name: str) -> Plot:
    """Draw the importance of each parameter: a bar for the mean, a dot for each study."""
    means = shares.mean().sort_values(kind="stable")
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(5.6, 0.9 + 0.32 * len(means)), layout="constrained")
        axes = figure.subplots()
        axes.grid(axis="y", visible=False)
        axes.barh(list(means.index), means, color="#8fb4d4", height=0.62)
        for place, parameter in enumerate(means.index):
            own = shares[parameter]
            axes.plot(own, [place] * len(own), "o", color="#0b3d66", markersize=3.2, alpha=0.7)
        axes.set_xlim(0, 1)
        axes.set_xlabel("share of the variance of the validation error")
        text = ", ".join(f"{parameter} {mean:.2f}" for parameter, mean in means[::-1].items())
        svg = to_svg(figure, name, f"Importance of the parameters of {title}: {text}.")
    return Plot(title, f"Mean (bar) and each of {len(shares)} studies (dots).", svg)
