"""The figures of the report, each a piece of SVG for the page."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import scikit_posthocs
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from benchmarks._tabular.report import paper
from benchmarks._tabular.report.results import label_of, mean_curve, order_methods
from benchmarks._tabular.report.sheets import number, seconds
from benchmarks._tabular.report.statistics import LEVEL, RankTest
from benchmarks._tabular.report.styles import FAINT, INK, PAPER, Style, styles_of
from benchmarks._tabular.report.svg import look, to_svg

# From the lowest error of a map to its highest; told apart by colour-blind people too.
COLOURS = matplotlib.colormaps["cividis_r"]


@dataclass(frozen=True)
class Picture:
    """A figure of the page: its title, a caption, the SVG, and the methods in it."""

    title: str
    caption: str
    svg: str
    methods: Sequence[str] = ()


def _new(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained")


def _log_axis(axis: Any, values: Sequence[float]) -> None:
    """Ticks at 1, 2 and 5 times powers of ten, in plain numbers, as many as there is room for."""
    low, high = min(values), max(values)
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    few = [10.0**d for d in decades if low <= 10.0**d <= high]
    many = [m * 10.0**d for d in decades for m in (1, 2, 5) if low <= m * 10.0**d <= high]
    axis.set_ticks(few if len(few) >= 2 else many[:: max(1, len(many) // 4)])
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def draw_ranks(test: RankTest, name: str) -> Picture:
    """Demsar's diagram: average ranks on a line; bars join methods that do not differ."""
    styles = styles_of(list(test.ranks.index))
    labels = {name: label_of(name) for name in test.ranks.index}
    with look():
        figure = _new(5.6, 1.0 + 0.24 * len(labels))
        axes = figure.subplots()
        axes.grid(False)
        scikit_posthocs.critical_difference_diagram(
            test.ranks.rename(labels),
            test.pairs.rename(index=labels, columns=labels),
            alpha=LEVEL,
            ax=axes,
            color_palette={labels[name]: style.light for name, style in styles.items()},
            label_fmt_left="{label} ({rank:.2f})\N{NO-BREAK SPACE}",
            label_fmt_right="\N{NO-BREAK SPACE}({rank:.2f}) {label}",
            text_h_margin=0.04,
            crossbar_props={"color": INK, "linewidth": 3},
            elbow_props={"linewidth": 1.4},
        )
        axes.set_xlim(1, len(labels))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        _draw_critical_difference(axes, test)
        svg = to_svg(figure, name, _ranks_text(test), styles.values())
    return Picture(
        f"Critical-difference diagram of {len(labels)} methods",
        f"Average ranks over {test.n_sets} data sets (left is better)."
        f" Methods joined by a bar do not differ by Nemenyi's test at 5 %; CD is how far apart two "
        f"ranks must be.",
        svg,
    )


def _draw_critical_difference(axes: Any, test: RankTest) -> None:
    end = min(1 + test.critical_difference, len(test.ranks))
    axes.plot([1, end], [1.3, 1.3], color=FAINT, linewidth=1.4, marker="|", clip_on=False)
    text = f"CD = {test.critical_difference:.2f}"
    axes.text((1 + end) / 2, 1.6, text, ha="center", va="bottom", color=FAINT)
    axes.set_ylim(axes.get_ylim()[0], 2.4)


def _ranks_text(test: RankTest) -> str:
    ranks = ", ".join(f"{label_of(name)} {rank:.2f}" for name, rank in test.ranks.items())
    return f"Average ranks: {ranks}; critical difference {test.critical_difference:.2f}."


def draw_map(table: pd.DataFrame, chosen: pd.Series, name: str) -> Picture:
    """Mean validation error by alpha and eta; a circle marks what was chosen.

    Parameters
    ----------
    table : pandas.DataFrame
        Configurations of one data set and method, as ``summarise`` makes them.
    chosen : pandas.Series
        The one that was chosen.
    name : str
        Begins all ids of the SVG.
    """
    alphas, etas = (sorted(table[column].unique()) for column in ("alpha", "eta"))
    low, high = table["valid_error"].min(), table["valid_error"].max()
    titles = {}
    with look():
        figure = _new(3.5, 0.95 + 0.27 * len(etas))
        axes = figure.subplots()
        axes.grid(False)
        for place, cell in enumerate(table.itertuples()):
            colour = COLOURS(0.0 if high == low else (cell.valid_error - low) / (high - low))
            corner = (alphas.index(cell.alpha), etas.index(cell.eta))
            axes.add_patch(Rectangle(corner, 1, 1, color=colour, linewidth=0, gid=f"cell{place}"))
            titles[f"cell{place}"] = _cell_text(cell)
        spot = (alphas.index(chosen["alpha"]) + 0.5, etas.index(chosen["eta"]) + 0.5)
        axes.plot(*spot, "o", markersize=9, color="#ffffff", markeredgecolor="#000000")
        _label_cells(axes, alphas, etas)
        svg = to_svg(figure, name, _map_text(chosen, low, high), titles=titles)
    return Picture(chosen["set"], f"{number(low)} to {number(high)} %", svg)


def _cell_text(cell: Any) -> str:
    return f"alpha {cell.alpha:g}, eta {cell.eta:g}: {cell.valid_error:.2f} %"


def _map_text(chosen: pd.Series, low: float, high: float) -> str:
    return (
        f"Validation error of {label_of(chosen['method'])} on {chosen['set']} by alpha and eta, "
        f"from {low:.2f} to {high:.2f} percent; chosen: alpha {chosen['alpha']:g}, "
        f"eta {chosen['eta']:g}."
    )


def _label_cells(axes: Any, alphas: Sequence[float], etas: Sequence[float]) -> None:
    axes.set_xlim(0, len(alphas))
    axes.set_ylim(0, len(etas))
    axes.set_xticks(np.arange(len(alphas)) + 0.5, [f"{alpha:g}" for alpha in alphas])
    axes.set_yticks(np.arange(len(etas)) + 0.5, [f"{eta:g}" for eta in etas])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("alpha")
    axes.set_ylabel("eta")


def draw_alphas(table: pd.DataFrame, name: str) -> Picture:
    """Mean validation error by alpha: Mixup, MixupE with its best eta, and ERM as a level.

    Parameters
    ----------
    table : pandas.DataFrame
        Complete configurations of one data set, as ``summarise`` makes them.
    name : str
        Begins all ids of the SVG.
    """
    methods = [m for m in paper.METHODS if m in set(table["method"])]
    styles = styles_of(methods)
    with look():
        figure = _new(3.5, 2.2)
        axes = figure.subplots()
        for method in reversed(methods):  # a dashed line shows on a solid one, not below it
            style, rows = styles[method], table[table["method"] == method]
            by_alpha = rows.groupby("alpha")["valid_error"].min()
            drawn: Any = {"color": style.light, "linestyle": style.dashes}
            if by_alpha.empty:
                axes.axhline(rows["valid_error"].iloc[0], **drawn)
            else:
                axes.plot(by_alpha.index, by_alpha, marker=style.marker, markersize=4, **drawn)
        axes.set_xscale("log")
        _log_axis(axes.xaxis, list(table["alpha"].dropna()))
        axes.set_xlabel("alpha")
        axes.set_ylabel("validation error (%)")
        names = ", ".join(map(label_of, methods))
        label = f"Validation error by alpha on {table['set'].iloc[0]}: {names}."
        svg = to_svg(figure, name, label, styles.values())
    return Picture(str(table["set"].iloc[0]), "", svg, methods)


def draw_losses(fits: pd.DataFrame, name: str) -> Picture | None:
    """Training and test loss by epoch of ERM, Mixup and MixupE, means over the splits.

    Parameters
    ----------
    fits : pandas.DataFrame
        The fits of the chosen configurations of one data set.
    name : str
        Begins all ids of the SVG.
    """
    curves = {
        method: [mean_curve(list(rows[column])) for column in ("train_losses", "test_losses")]
        for method, rows in fits.groupby("method")
        if method in paper.METHODS
    }
    methods = [m for m in paper.METHODS if m in curves and all(map(len, curves[m]))]
    if not methods:
        return None
    styles = styles_of(methods)
    with look():
        figure = _new(4.8, 2.1)
        panels = figure.subplots(1, 2)
        for axes, part, title in zip(panels, (0, 1), ("training loss", "test loss"), strict=True):
            for method in reversed(methods):
                _draw_curve(axes, curves[method][part], styles[method])
            axes.set_title(title, color=FAINT)
            axes.set_xlabel("epoch")
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))
            axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        svg = to_svg(figure, name, _losses_text(fits, curves, methods), styles.values())
    return Picture(str(fits["set"].iloc[0]), "", svg, methods)


def _draw_curve(axes: Any, curve: np.ndarray, style: Style) -> None:
    marker = style.marker if len(curve) == 1 else ""
    epochs = np.arange(1, len(curve) + 1)
    axes.plot(epochs, curve, color=style.light, linestyle=style.dashes, marker=marker)


def _losses_text(fits: pd.DataFrame, curves: dict, methods: Sequence[str]) -> str:
    ends = "; ".join(
        f"{label_of(m)} {curves[m][0][-1]:.3g} and {curves[m][1][-1]:.3g}" for m in methods
    )
    return f"Training and test loss by epoch on {fits['set'].iloc[0]}; at the end: {ends}."


def draw_times(chosen: pd.DataFrame, name: str) -> Picture:
    """Test error against the seconds of the whole search, for each method on one data set."""
    methods = order_methods(list(chosen["method"]))
    text = ", ".join(
        f"{label_of(row.method)} {seconds(row.search_seconds)} s and {row.test_error:.2f} %"
        for row in chosen.itertuples()
    )
    label = f"Seconds of the search and test error on {chosen['set'].iloc[0]}: {text}."
    svg = _scatter(chosen.set_index("method"), "test_error", "test error (%)", name, label)
    return Picture(str(chosen["set"].iloc[0]), "", svg, methods)


def draw_mean_times(chosen: pd.DataFrame, ranks: pd.Series) -> Picture:
    """Average rank against seconds (geometric mean over data sets), for each method."""
    logs = np.log(chosen["search_seconds"])
    points = pd.DataFrame({"search_seconds": np.exp(logs.groupby(chosen["method"]).mean())})
    points = points.reindex(ranks.index).assign(rank=ranks).dropna()
    label = "Average rank and seconds: " + ", ".join(
        f"{label_of(str(row.Index))} {row.rank:.2f} and {seconds(row.search_seconds)} s"
        for row in points.itertuples()
    )
    svg = _scatter(points, "rank", "average rank", "times-all", label)
    return Picture("Over data sets", "average rank, mean seconds", svg, list(points.index))


def _scatter(points: pd.DataFrame, column: str, title: str, name: str, label: str) -> str:
    styles = styles_of(list(points.index))
    with look():
        figure = _new(3.5, 2.2)
        axes = figure.subplots()
        for row in points.itertuples():
            style = styles[row.Index]
            axes.errorbar(
                row.search_seconds,
                getattr(row, column),
                yerr=_deviation(row, column),
                marker=style.marker,
                markersize=11 if style.marker == "*" or isinstance(style.marker, tuple) else 8,
                color=style.light,
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
        return to_svg(figure, name, label, styles.values())


def _deviation(row: Any, column: str) -> list[list[float]] | None:
    """How far a bar goes down and up: an error is never below zero."""
    deviation = getattr(row, f"{column}_std", np.nan)
    if np.isnan(deviation):
        return None
    return [[min(deviation, getattr(row, column))], [deviation]]
