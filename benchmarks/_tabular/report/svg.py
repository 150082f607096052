"""Figures of matplotlib as SVG that lives within a page: small, and with the page's colours."""

import html
import io
import re
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.markers import MarkerStyle

from benchmarks._tabular.report.styles import FAINT, INK, ROLES, RULE, Style

# Text stays text, so that the page's font and a screen reader can have it.
_SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "mixupe",
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
    "axes.unicode_minus": True,
    "text.parse_math": False,
}


def look() -> AbstractContextManager[None]:
    """Within it, figures are drawn and saved in the look of the report."""
    return matplotlib.rc_context(_SETTINGS)


def to_svg(
    figure: Figure,
    name: str,
    label: str,
    styles: Iterable[Style] = (),
    titles: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """The figure as an ``svg`` element.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        Drawn within ``look()``.
    name : str
        Begins all ids within, so that no two figures of a page share one.
    label : str
        What the figure shows, for those who do not see it.
    styles : iterable of Style, default=()
        Methods whose colours are to follow the page.
    titles : mapping of str to str, default={}
        What is said when the pointer rests on a part, by the part's ``gid``.
    """
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    for waste in (r"<metadata>.*?</metadata>", r"<style.*?</style>", r"<defs>\s*</defs>"):
        text = re.sub(waste, "", text, flags=re.DOTALL)
    for part, title in titles.items():
        text = text.replace(f'<g id="{part}">', f"<g><title>{html.escape(title)}</title>", 1)
    text = _own_ids(_short_numbers(text), name)
    text = _follow_page(text, styles)
    return _open_tag(text, label) + text[text.index(">") + 1 :].strip()


def _open_tag(text: str, label: str) -> str:
    box = re.findall(r'viewBox="([^"]*)"', text)[0]
    width = float(box.split()[2])
    return (
        f'<svg viewBox="{box}" width="{width:.0f}pt" role="img" '
        f'aria-label="{html.escape(label)}">\n'
    )


def _short_numbers(text: str) -> str:
    """Coordinates to a hundredth of a point are more than a screen can show."""

    def rounded(match: re.Match) -> str:
        return re.sub(r"(\.\d\d)\d+", r"\1", " ".join(match[0].split()))

    text = re.sub(r' transform="rotate\(-0 [^"]*"', "", text)
    text = re.sub(r'\b(?:d|x|y|transform)="[^"]*"', rounded, text)
    return re.sub(r"\s*\n\s*", "\n", text)


def _own_ids(text: str, name: str) -> str:
    """Prefix ids that are used; drop the others, which only name parts of a figure."""
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', text))

    def prefixed(match: re.Match) -> str:
        return f' id="{name}-{match[1]}"' if match[1] in used else ""

    text = re.sub(r' id="([^"]*)"', prefixed, text)
    return re.sub(r'(?:xlink:)?(href="#|url\(#)', rf"\g<1>{name}-", text)


def _follow_page(text: str, styles: Iterable[Style]) -> str:
    """Let colours be variables of the page, and letters be of its font."""
    names = {colour: variable for colour, (variable, _) in ROLES.items()}
    names |= {style.light: style.variable for style in styles}
    text = re.sub(
        r"#[0-9a-f]{6}\b",
        lambda match: f"var(--{names[match[0]]})" if match[0] in names else match[0],
        text,
    )
    return re.sub(r"font-family: [^;\"]*;? ?", "", text)


def key_svg(style: Style) -> str:
    """A method's line and marker, to stand before its name."""
    marker = MarkerStyle(style.marker)
    outline = marker.get_path().transformed(marker.get_transform()).to_polygons()[0]
    corners = np.asarray(outline)
    scale = 3.6 / abs(corners).max()
    points = " ".join(f"{14 + scale * x:.1f},{6 - scale * y:.1f}" for x, y in corners)
    dashes = {"-": "none", "--": "5 2.5", "-.": "6 2 1.5 2", ":": "1.5 2"}[style.dashes]
    colour = f"var(--{style.variable})"
    return (
        f'<svg class="key" viewBox="0 0 28 12" aria-hidden="true">'
        f'<path class="key-line" d="M0 6H28" style="stroke: {colour}; stroke-width: 2; '
        f'stroke-dasharray: {dashes}"/>'
        f'<polygon class="key-marker" points="{points}" style="fill: {colour}"/></svg>'
    )
