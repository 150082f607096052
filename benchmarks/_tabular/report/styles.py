"""The look of figures and page: one colour and one marker per method, for light and dark.

The colours follow the palette of Okabe and Ito, which colour-blind people can tell apart, made
darker or brighter for contrast. Markers tell methods apart too.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks._tabular.report.results import LABELS, order_methods


class Style(NamedTuple):
    """How a method is drawn; ``light`` and ``dark`` are its colours on either background."""

    variable: str
    light: str
    dark: str
    marker: Any
    dashes: str


_COLOURS = [
    ("#5f6872", "#aab4bf"),
    ("#0069a8", "#5ab5ef"),
    ("#c24e00", "#ff9a4d"),
    ("#a03a78", "#e79bc8"),
    ("#8a6300", "#e8bd3f"),
    ("#00775a", "#3bc79f"),
    ("#5b45a8", "#ad9df5"),
    ("#7a4a32", "#d3a184"),
    ("#2f6f1e", "#8acb72"),
    ("#a81f3a", "#ff8a9a"),
    ("#1f5fbf", "#86b1ff"),
    ("#4d6b00", "#b5d14a"),
    ("#8d2fb0", "#d891f2"),
    ("#006d75", "#4fc9d1"),
    ("#9c2b6e", "#f3a0d3"),
    ("#3b5b7a", "#9cbfe0"),
    ("#6b5d00", "#d9c84a"),
]
# The last ones are stars of four, six and three points, as matplotlib writes them.
_MARKERS: list[Any] = [*"osDv^<>PXp*hd", (4, 1, 0), "8", (6, 1, 0), (3, 1, 0)]
_DASHES = {"erm": "--", "mixup": "-.", "mixupe": "-"}
# Names of what is no method: text, faint text, lines of the grid, and the page itself.
INK, FAINT, RULE, PAPER = "#1c2228", "#56616b", "#d5dae0", "#fefefe"
ROLES = {
    INK: ("ink", "#e8ecf0"),
    FAINT: ("faint", "#a5afba"),
    RULE: ("rule", "#39424c"),
    PAPER: ("paper", "#14181d"),
}


def styles_of(methods: Sequence[str]) -> dict[str, Style]:
    """The style of each method: always the same for those that are known.

    Examples
    --------
    >>> styles_of(["mixupe"])["mixupe"].variable == styles_of(["erm", "mixupe"])["mixupe"].variable
    True
    """
    known = list(LABELS)
    unknown = [name for name in order_methods(methods) if name not in known]
    names = [*known, *unknown]
    return {name: _style(names.index(name), name) for name in order_methods(methods)}


def _style(place: int, name: str) -> Style:
    light, dark = _COLOURS[place % len(_COLOURS)]
    marker = _MARKERS[place % len(_MARKERS)]
    return Style(f"method-{place}", light, dark, marker, _DASHES.get(name, ":"))


def variables(styles: dict[str, Style]) -> tuple[dict[str, str], dict[str, str]]:
    """CSS variables and their colours, for a light and for a dark page."""
    light = {name: colour for colour, (name, _) in ROLES.items()}
    dark = {name: colour for _, (name, colour) in ROLES.items()}
    light |= {style.variable: style.light for style in styles.values()}
    dark |= {style.variable: style.dark for style in styles.values()}
    return light, dark
