"""The plot: a bar for the step of each candidate, and the floor below it, as SVG by hand.

An image in a page cannot see whether the page is light or dark, so there is one file for each.
"""

from html import escape
from typing import NamedTuple

from benchmarks._speed.candidates import FLOOR_OF, LABELS, OURS
from benchmarks._speed.store import Figures
from benchmarks._speed.timing import median


class Palette(NamedTuple):
    """Colours of text, of our bars, of the others' bars, and of the floor."""

    ink: str
    faint: str
    ours: str
    other: str
    floor: str


PALETTES = {
    "light": Palette("#1c2228", "#56616b", "#0069a8", "#a9b3bd", "#c24e00"),
    "dark": Palette("#e8ecf0", "#a5afba", "#5ab5ef", "#5f6a76", "#ff9a4d"),
}
# The floor of what each computes; one that computes in double precision has none here.
FLOORS = FLOOR_OF | {
    "mixupe-double": "floor-twice",
    "mlp": "floor",
    "skorch": "floor",
    "realmlp": "floor",
    "listing": "floor-twice",
    "listing-loaders": "floor-twice",
    "listing-torch": "floor-twice",
}
LEFT, RIGHT, WIDTH, ROW, TOP = 290, 70, 760, 26, 34


def bars_of(times: dict[str, list[float]]) -> dict[str, tuple[float, float | None]]:
    """Microseconds a step of each candidate and of its floor, where it has one."""
    names = [name for name in LABELS if name in times and not name.startswith("floor")]
    return {
        name: (median(times[name]), median(times[FLOORS[name]]) if name in FLOORS else None)
        for name in names
    }


def draw(parts: Figures, colours: Palette) -> str:
    """The plot of the reference size as a file of SVG."""
    bars = bars_of(parts["reference"]["microseconds"])
    longest = max(time for time, _ in bars.values())
    unit = (WIDTH - LEFT - RIGHT) / longest
    height = TOP + ROW * len(bars) + 8
    pieces = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" font-family="sans-serif" font-size="13">',
        f"<title>{escape(_told(bars))}</title>",
        *_legend(colours),
    ]
    for place, (name, (time, floor)) in enumerate(bars.items()):
        pieces += _bar(name, time, floor, unit, TOP + ROW * place, colours)
    return "\n".join([*pieces, "</svg>", ""])


def _legend(colours: Palette) -> list[str]:
    return [
        f'<text x="{LEFT - 10}" y="18" text-anchor="end" fill="{colours.faint}">'
        f"microseconds a step</text>",
        f'<rect x="{LEFT}" y="8" width="14" height="12" fill="{colours.floor}"/>',
        f'<text x="{LEFT + 20}" y="18" fill="{colours.faint}">the floor: its matrix products '
        f"alone</text>",
    ]


def _bar(
    name: str, time: float, floor: float | None, unit: float, y: int, colours: Palette
) -> list[str]:
    colour = colours.ours if name in OURS else colours.other
    pieces = [
        f'<text x="{LEFT - 10}" y="{y + 16}" text-anchor="end" fill="{colours.ink}">'
        f"{escape(LABELS[name])}</text>",
        f'<rect x="{LEFT}" y="{y + 3}" width="{time * unit:.1f}" height="18" fill="{colour}"/>',
    ]
    if floor is not None:
        pieces.append(
            f'<rect x="{LEFT}" y="{y + 3}" width="{floor * unit:.1f}" height="18" '
            f'fill="{colours.floor}"/>'
        )
    x = LEFT + time * unit + 6
    pieces.append(f'<text x="{x:.1f}" y="{y + 16}" fill="{colours.ink}">{time:,.0f}</text>')
    return pieces


def _told(bars: dict[str, tuple[float, float | None]]) -> str:
    told = "; ".join(f"{LABELS[name]} {time:.0f}" for name, (time, _) in bars.items())
    return f"Microseconds a step: {told}."
