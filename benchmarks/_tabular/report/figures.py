"""The figures of the report: matplotlib's SVG, for the page."""

import html
import io
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import scikit_posthocs
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from benchmarks._harness.report_tables import number
from benchmarks._tabular.report import paper
from benchmarks._tabular.report.results import LABELS, label_of, mean_curve, order_methods
from benchmarks._tabular.report.statistics import LEVEL, RankTest

# Readers with colour blindness can distinguish these.
COLOURS = "cividis_r"
_LINE_COLOURS = [
    *("#5f6872", "#0069a8", "#c24e00", "#a03a78", "#8a6300", "#00775a", "#5b45a8", "#7a4a32"),
    *("#2f6f1e", "#a81f3a", "#1f5fbf", "#4d6b00", "#8d2fb0", "#006d75", "#9c2b6e", "#3b5b7a"),
    "#6b5d00",
]
_DASHES: dict[str, Any] = {"erm": "--", "mixup": "-.", "mixupe": "-"}
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
    """A figure of the page: its title, a caption, the SVG, and the methods in it."""

    title: str
    caption: str
    svg: str
    methods: Sequence[str] = ()


def colour_of(method: str, methods: Sequence[str] = ()) -> str:
    """Return the colour of a method; known methods always have the same.

    Examples
    --------
    >>> colour_of("erm"), colour_of("mine", ["erm", "mine"])
    ('#5f6872', '#5f6872')
    """
    names = [*LABELS, *(name for name in order_methods(methods) if name not in LABELS)]
    return _LINE_COLOURS[names.index(method) % len(_LINE_COLOURS)]


def report_style() -> AbstractContextManager[None]:
    """Return a context in which figures are drawn in the style of the report."""
    return matplotlib.rc_context(_SETTINGS)


def to_svg(figure: Figure, name: str, label: str) -> str:
    """Return the figure as an ``svg`` element for a page.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        Drawn within ``report_style()``.
    name : str
        Prefix of all ids, so that the figures of a page do not share any.
    label : str
        What the figure shows, for screen readers.
    """
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


def _new(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained")


def draw_legend(methods: Sequence[str], name: str) -> str:
    """Return the legend of some figures of losses as an SVG."""
    handles = [
        Line2D([], [], color=colour_of(m), linestyle=_DASHES[m], label=label_of(m)) for m in methods
    ]
    with report_style():
        figure = Figure(figsize=(1.3 * len(handles), 0.27))
        figure.legend(handles=handles, ncols=len(handles), loc="center left", frameon=False)
        svg = to_svg(figure, name, f"Legend: {', '.join(map(label_of, methods))}.")
    return svg.replace('role="img" ', 'class="legend" ', 1)


def draw_ranks(test: RankTest, name: str) -> Plot:
    """Draw Demsar's diagram: average ranks on a line; bars join methods that do not differ."""
    methods = [str(method) for method in test.ranks.index]
    labels = {method: label_of(method) for method in methods}
    with report_style():
        figure = _new(5.6, 1.0 + 0.24 * len(labels))
        axes = figure.subplots()
        axes.grid(False)
        scikit_posthocs.critical_difference_diagram(
            test.ranks.rename(labels),
            test.pairs.rename(index=labels, columns=labels),
            alpha=LEVEL,
            ax=axes,
            color_palette={labels[m]: colour_of(m, methods) for m in methods},
            label_fmt_left="{label} ({rank:.2f})\N{NO-BREAK SPACE}",
            label_fmt_right="\N{NO-BREAK SPACE}({rank:.2f}) {label}",
            text_h_margin=0.04,
            crossbar_props={"color": "black", "linewidth": 3},
            elbow_props={"linewidth": 1.4},
        )
        axes.set_xlim(1, len(labels))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        _draw_critical_difference(axes, test)
        ranks = ", ".join(f"{labels[m]} {rank:.2f}" for m, rank in test.ranks.items())
        label = f"Average ranks: {ranks}; critical difference {test.critical_difference:.2f}."
        svg = to_svg(figure, name, label)
    return Plot(
        f"Critical-difference diagram of {len(labels)} methods",
        f"Average ranks over {test.n_sets} datasets (left is better)."
        f" Methods joined by a bar do not differ by Nemenyi's test at 5 %. CD is the smallest "
        f"difference of two ranks that is significant.",
        svg,
    )


def _draw_critical_difference(axes: Any, test: RankTest) -> None:
    end = min(1 + test.critical_difference, len(test.ranks))
    axes.plot([1, end], [1.3, 1.3], color="dimgray", linewidth=1.4, marker="|", clip_on=False)
    text = f"CD = {test.critical_difference:.2f}"
    axes.text((1 + end) / 2, 1.6, text, ha="center", va="bottom", color="dimgray")
    axes.set_ylim(axes.get_ylim()[0], 2.4)


def draw_map(table: pd.DataFrame, chosen: pd.Series, name: str) -> Plot:
    """Draw the mean validation error by alpha and eta; a circle marks the chosen pair.

    Parameters
    ----------
    table : pandas.DataFrame
        Configurations of one dataset and method, as ``summarise`` returns them.
    chosen : pandas.Series
        The chosen one.
    name : str
        Prefix of all ids of the SVG.
    """
    grid = table.pivot(index="eta", columns="alpha", values="valid_error")
    alphas, etas = list(grid.columns), list(grid.index)
    low, high = table["valid_error"].min(), table["valid_error"].max()
    with report_style():
        figure = _new(3.5, 0.95 + 0.27 * len(etas))
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
        label = (
            f"Validation error of {label_of(chosen['method'])} on {chosen['set']} by alpha and "
            f"eta, from {low:.2f} to {high:.2f} percent; chosen: alpha {chosen['alpha']:g}, "
            f"eta {chosen['eta']:g}."
        )
        svg = to_svg(figure, name, label)
    return Plot(chosen["set"], f"{number(low)} to {number(high)} %", svg)


def draw_losses(fits: pd.DataFrame, name: str) -> Plot | None:
    """Draw the training and test loss by epoch of ERM, Mixup and MixupE, means over the splits.

    Parameters
    ----------
    fits : pandas.DataFrame
        The fits of the chosen configurations of one dataset.
    name : str
        Prefix of all ids of the SVG.
    """
    curves = {
        method: [mean_curve(list(rows[column])) for column in ("train_losses", "test_losses")]
        for method, rows in fits.groupby("method")
        if method in paper.METHODS
    }
    methods = [m for m in paper.METHODS if m in curves and all(map(len, curves[m]))]
    if not methods:
        return None
    with report_style():
        figure = _new(4.8, 2.1)
        panels = figure.subplots(1, 2)
        for axes, part, title in zip(panels, (0, 1), ("training loss", "test loss"), strict=True):
            for method in reversed(methods):
                _draw_curve(axes, curves[method][part], method)
            axes.set_title(title)
            axes.set_xlabel("epoch")
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))
            axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        ends = "; ".join(
            f"{label_of(m)} {curves[m][0][-1]:.3g} and {curves[m][1][-1]:.3g}" for m in methods
        )
        data = fits["set"].iloc[0]
        label = f"Training and test loss by epoch on {data}; after the last epoch: {ends}."
        svg = to_svg(figure, name, label)
    return Plot(str(data), "", svg, methods)


def _draw_curve(axes: Any, curve: np.ndarray, method: str) -> None:
    marker = "o" if len(curve) == 1 else ""
    epochs = np.arange(1, len(curve) + 1)
    axes.plot(epochs, curve, color=colour_of(method), linestyle=_DASHES[method], marker=marker)
