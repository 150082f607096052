"""The tables of the docs page, and its plot as SVG text, for light and for dark pages."""

import pathlib
from html import escape
from typing import NamedTuple

import numpy as np

from benchmarks._harness.docs_tables import fill_block
from benchmarks._harness.paired_timing import median
from benchmarks._harness.report_tables import plain_markdown
from benchmarks._harness.results_file import Results, write_text
from benchmarks._speed.baselines import FLOOR_OF, LABELS, OURS
from benchmarks._speed.sizes import Size
from benchmarks._speed.targets import GROUPS, PAIRS, cell_ratios, cells_of, thread_ratios

DOCS = pathlib.Path(__file__).parents[2] / "docs"
PAGE = DOCS / "benchmarks" / "speed.md"


def machine_block(results: Results) -> str:
    """The machine and the versions."""
    run, parts = results["run"], results["parts"]
    machine = run["machine"]
    libraries = ", ".join(f"{name} {number}" for name, number in run["versions"].items())
    n_rounds = len(parts["reference"]["microseconds"]["mixupe"])
    again = ", ".join(f"{own} ({at['processor']})" for own, at in run.get("again", {}).items())
    later = f" Measured again after later changes of the code: {again}." if again else ""
    return (
        f"A {run['scale']} run of {n_rounds} rounds at the reference size and of "
        f"{len(cells_of(parts))} further sizes, on a {machine['system']} machine with "
        f"{machine['cores']} cores ({machine['processor']}) and "
        f"{'a' if machine['gpu'] else 'no'} GPU. {libraries}.{later}"
    )


def targets_block(results: Results) -> str:
    """Every comparison with its target."""
    pieces = []
    for heading, make in GROUPS.items():
        rows = [[line.what, line.shown, line.verdict()] for line in make(results["parts"])]
        table = plain_markdown(["what", "figure", "target"], rows)
        pieces.append(f"**{heading}**\n\n{table}")
    return "\n\n".join(pieces)


def steps_block(results: Results) -> str:
    """Microseconds per step of each candidate, also as a multiple of its floor."""
    times = results["parts"]["reference"]["microseconds"]
    rows = []
    for name, label in LABELS.items():
        if name not in times:
            rows.append([label, "not installed", ""])
            continue
        step = median(times[name])
        floor = median(times[FLOOR_OF[name]]) if name in FLOOR_OF else 0.0
        rows.append([label, f"{step:,.0f}", f"{step / floor:.1f}" if floor else ""])
    return plain_markdown(["candidate", "microseconds a step", "times its floor"], rows)


def sizes_block(results: Results) -> str:
    """Ratios by batch size: the median over all other sizes, and their range."""
    rows, batches = [], sorted({size.batch for size in cells_of(results["parts"])})
    for pair in (pair for pair in PAIRS if pair.is_at_all_sizes):
        ratios = cell_ratios(results["parts"], pair)
        cells = []
        for batch in batches:
            found = [ratio.median for size, ratio in ratios.items() if size.batch == batch]
            cells.append(f"{np.median(found):.2f} ({min(found):.2f} to {max(found):.2f})")
        rows.append([pair.what, *cells])
    return plain_markdown(["ratio", *(f"batch {batch:,}" for batch in batches)], rows)


def crossing_block(results: Results) -> str:
    """Two threads against one, from small networks to large ones."""
    rows = []
    for name, figures in results["parts"]["threads"].items():
        times = figures["microseconds"]
        ratios = [f"{ratio.median:.2f}" for ratio in thread_ratios(times)]
        step = f"{median(times['one']):,.0f}"
        rows.append([Size.named(name).network, step, *ratios, str(figures["default"])])
    header = ["network", "microseconds a step, one thread", "two threads / one, cores free"]
    return plain_markdown([*header, "the same, beside a busy core", "threads by default"], rows)


def memory_block(results: Results) -> str:
    """Memory of fit and predictions, a row per kind of table."""
    rows = []
    for kind, figures in results["parts"]["memory"].items():
        fit, private = (figures[name] / figures["data"] for name in ("fit", "fit_private"))
        name = f"{figures['rows']:,} x {figures['features']:,}, {kind}"
        added = [f"{figures[method]:.0f}" for method in ("predict", "predict_proba")]
        rows.append([name, f"{figures['data']:.0f}", f"{fit:.2f}", f"{private:.2f}", *added])
    header = ["table", "data, MiB", "peak of fit / data", "the same, without pages of files"]
    return plain_markdown([*header, "predict adds, MiB", "predict_proba adds, MiB"], rows)


BLOCKS = {
    "machine": machine_block,
    "steps": steps_block,
    "targets": targets_block,
    "sizes": sizes_block,
    "crossing": crossing_block,
    "memory": memory_block,
}


def fill(page: str, results: Results) -> str:
    """The page with every block between its markers replaced."""
    for name, make in BLOCKS.items():
        page = fill_block(page, name, make(results), kind="speed")
    return page


def write_docs(results: Results) -> None:
    """Write tables and plots into the docs."""
    write_text(PAGE, fill(PAGE.read_text(), results))
    for name, text in plots(results).items():
        write_text(DOCS / "_static" / name, text)


class Palette(NamedTuple):
    """Colours of text, of our bars, of the other bars, and of the floor."""

    ink: str
    faint: str
    ours: str
    other: str
    floor: str


PALETTES = {
    "light": Palette("#1c2228", "#56616b", "#0069a8", "#a9b3bd", "#c24e00"),
    "dark": Palette("#e8ecf0", "#a5afba", "#5ab5ef", "#5f6a76", "#ff9a4d"),
}
# The floor of each candidate's arithmetic; there is none for double precision.
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


def plots(results: Results) -> dict[str, str]:
    """The plots by file name."""
    return {
        f"speed-{name}.svg": draw(results["parts"], palette) for name, palette in PALETTES.items()
    }


def bars_of(times: dict[str, list[float]]) -> dict[str, tuple[float, float | None]]:
    """Microseconds per step of each candidate and of its floor, where it has one."""
    names = [name for name in LABELS if name in times and not name.startswith("floor")]
    return {
        name: (median(times[name]), median(times[FLOORS[name]]) if name in FLOORS else None)
        for name in names
    }


def draw(parts: Results, colours: Palette) -> str:
    """The plot of the reference size as SVG."""
    bars = bars_of(parts["reference"]["microseconds"])
    unit = (WIDTH - LEFT - RIGHT) / max(time for time, _ in bars.values())
    height = TOP + ROW * len(bars) + 8
    title = "; ".join(f"{LABELS[name]} {time:.0f}" for name, (time, _) in bars.items())
    pieces = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" font-family="sans-serif" font-size="13">',
        f"<title>{escape(f'Microseconds a step: {title}.')}</title>",
        _text(LEFT - 10, 18, "microseconds a step", colours.faint, ' text-anchor="end"'),
        f'<rect x="{LEFT}" y="8" width="14" height="12" fill="{colours.floor}"/>',
        _text(LEFT + 20, 18, "the floor: its matrix products alone", colours.faint),
    ]
    for place, (name, (time, floor)) in enumerate(bars.items()):
        y = TOP + ROW * place
        colour = colours.ours if name in OURS else colours.other
        pieces.append(_text(LEFT - 10, y + 16, LABELS[name], colours.ink, ' text-anchor="end"'))
        pieces.append(_bar(y + 3, time * unit, colour))
        if floor is not None:
            pieces.append(_bar(y + 3, floor * unit, colours.floor))
        pieces.append(_text(f"{LEFT + time * unit + 6:.1f}", y + 16, f"{time:,.0f}", colours.ink))
    return "\n".join([*pieces, "</svg>", ""])


def _text(x: float | str, y: float, text: str, colour: str, anchor: str = "") -> str:
    return f'<text x="{x}" y="{y}"{anchor} fill="{colour}">{escape(text)}</text>'


def _bar(y: float, width: float, colour: str) -> str:
    return f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="18" fill="{colour}"/>'
