"""The figures of the report: matplotlib's SVG, for the page."""

import html
import io
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import pandas as pd
import scikit_posthocs
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from benchmarks._harness.report_tables import number, seconds
from benchmarks._tabular.report import paper
from benchmarks._tabular.report.results import LABELS, label_of, mean_curve, order_methods
from benchmarks._tabular.report.statistics import LEVEL, RankTest

INK, FAINT, RULE, PAPER = "#1c2228", "#56616b", "#d5dae0", "#fefefe"
# Readers with colour blindness can distinguish these.
COLOURS = "cividis_r"
_LINE_COLOURS = [
    *("#5f6872", "#0069a8", "#c24e00", "#a03a78", "#8a6300", "#00775a", "#5b45a8", "#7a4a32"),
    *("#2f6f1e", "#a81f3a", "#1f5fbf", "#4d6b00", "#8d2fb0", "#006d75", "#9c2b6e", "#3b5b7a"),
    "#6b5d00",
]
# The tuples are stars with four, six and three points.
_MARKERS: list[Any] = [*"osDv^<>PXp*hd", (4, 1, 0), "8", (6, 1, 0), (3, 1, 0)]
_DASHES = {"erm": "--", "mixup": "-.", "mixupe": "-"}
_SETTINGS: Any = {
    "svg.fonttype": "none",  # text stays text, for screen readers and for searching
    "svg.hashsalt": "mixupe",  # equal rows give equal bytes
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9.0,
    "text.color": INK,
    "axes.labelcolor": FAINT,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.8,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "lines.linewidth": 1.6,
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


class Style(NamedTuple):
    """How a method is drawn."""

    colour: str
    marker: Any
    dashes: str


def style_of(method: str, methods: Sequence[str] = ()) -> Style:
    """Return the style of a method; known methods always have the same.

    Examples
    --------
    >>> style_of("mixupe").dashes, style_of("mine", ["erm", "mine"]).dashes
    ('-', ':')
    """
    names = [*LABELS, *(name for name in order_methods(methods) if name not in LABELS)]
    place = names.index(method)
    return Style(
        _LINE_COLOURS[place % len(_LINE_COLOURS)],
        _MARKERS[place % len(_MARKERS)],
        _DASHES.get(method, ":"),
    )


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
    text = re.sub(r'( id="|(?<=")#|url\(#)', rf"\g<1>{name}-", text).replace("xlink:href", "href")
    # The browser knows the namespaces of a page's own SVG.
    opening = f'<svg viewBox="{box}" role="img" aria-label="{html.escape(label)}">'
    return opening + text[text.index(">") + 1 :].strip()


def _new(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained")


def draw_legend(methods: Sequence[str], kind: str) -> str:
    """Return the legend of a gallery: lines, or markers where ``kind`` is "markers"."""
    handles = []
    for method in methods:
        style = style_of(method, methods)
        shown: Any = {"linestyle": style.dashes}
        if kind == "markers":
            shown = {"linestyle": "none", "marker": style.marker, "markersize": 7}
        handles.append(Line2D([], [], color=style.colour, label=label_of(method), **shown))
    n_columns = min(4, len(handles))
    with report_style():
        figure = Figure(figsize=(1.7 * n_columns, 0.22 * -(-len(handles) // n_columns) + 0.05))
        figure.legend(handles=handles, ncols=n_columns, loc="center left", frameon=False)
        names = ", ".join(map(label_of, methods))
        svg = to_svg(figure, f"legend-{kind}", f"Legend: {names}.")
    return svg.replace('role="img" ', 'class="legend" ', 1)


def _log_axis(axis: Any, values: Sequence[float]) -> None:
    """Set ticks at 1, 2 and 5 times powers of ten, in plain numbers, as many as fit."""
    low, high = min(values), max(values)
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    few = [10.0**d for d in decades if low <= 10.0**d <= high]
    many = [m * 10.0**d for d in decades for m in (1, 2, 5) if low <= m * 10.0**d <= high]
    axis.set_ticks(few if len(few) >= 2 else many[:: max(1, len(many) // 4)])
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


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
            color_palette={labels[m]: style_of(m, methods).colour for m in methods},
            label_fmt_left="{label} ({rank:.2f})\N{NO-BREAK SPACE}",
            label_fmt_right="\N{NO-BREAK SPACE}({rank:.2f}) {label}",
            text_h_margin=0.04,
            crossbar_props={"color": INK, "linewidth": 3},
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
    axes.plot([1, end], [1.3, 1.3], color=FAINT, linewidth=1.4, marker="|", clip_on=False)
    text = f"CD = {test.critical_difference:.2f}"
    axes.text((1 + end) / 2, 1.6, text, ha="center", va="bottom", color=FAINT)
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
                _draw_curve(axes, curves[method][part], style_of(method))
            axes.set_title(title, color=FAINT)
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


def _draw_curve(axes: Any, curve: np.ndarray, style: Style) -> None:
    marker = style.marker if len(curve) == 1 else ""
    epochs = np.arange(1, len(curve) + 1)
    axes.plot(epochs, curve, color=style.colour, linestyle=style.dashes, marker=marker)


def draw_times(chosen: pd.DataFrame, name: str) -> Plot:
    """Draw the test error against the seconds of the search, for each method on one dataset."""
    methods = order_methods(list(chosen["method"]))
    text = ", ".join(
        f"{label_of(row.method)} {seconds(row.search_seconds)} s and {row.test_error:.2f} %"
        for row in chosen.itertuples()
    )
    label = f"Seconds of the search and test error on {chosen['set'].iloc[0]}: {text}."
    svg = _scatter(chosen.set_index("method"), "test_error", "test error (%)", name, label)
    return Plot(str(chosen["set"].iloc[0]), "", svg, methods)


def draw_mean_times(chosen: pd.DataFrame, ranks: pd.Series) -> Plot:
    """Draw the average rank against seconds (geometric mean over datasets), for each method."""
    logs = np.log(chosen["search_seconds"])
    points = pd.DataFrame({"search_seconds": np.exp(logs.groupby(chosen["method"]).mean())})
    points = points.reindex(ranks.index).assign(rank=ranks).dropna()
    label = "Average rank and seconds: " + ", ".join(
        f"{label_of(str(row.Index))} {row.rank:.2f} and {seconds(row.search_seconds)} s"
        for row in points.itertuples()
    )
    svg = _scatter(points, "rank", "average rank", "times-all", label)
    return Plot("Over datasets", "average rank, mean seconds", svg, list(points.index))


def _scatter(points: pd.DataFrame, column: str, title: str, name: str, label: str) -> str:
    methods = list(points.index)
    with report_style():
        figure = _new(3.5, 2.2)
        axes = figure.subplots()
        for row in points.itertuples():
            style = style_of(str(row.Index), methods)
            axes.errorbar(
                row.search_seconds,
                getattr(row, column),
                yerr=_deviation(row, column),
                marker=style.marker,
                markersize=11 if style.marker == "*" or isinstance(style.marker, tuple) else 8,
                color=style.colour,
                markeredgecolor=PAPER,
                markeredgewidth=0.4,
                elinewidth=1.0,
            )
        axes.set_xscale("log")
        low, high = points["search_seconds"].min() / 1.6, points["search_seconds"].max() * 1.6
        axes.set_xlim(low, high)
        _log_axis(axes.xaxis, [low, high])
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        axes.margins(y=0.15)
        axes.set_xlabel("seconds of the search (log scale)")
        axes.set_ylabel(title)
        return to_svg(figure, name, label)


def _deviation(row: Any, column: str) -> list[list[float]] | None:
    """Return the lengths of an error bar, which does not extend below zero."""
    deviation = getattr(row, f"{column}_std", np.nan)
    if np.isnan(deviation):
        return None
    return [[min(deviation, getattr(row, column))], [deviation]]
