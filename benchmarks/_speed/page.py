"""The tables and plots of the docs page, made from the file of results."""

import pathlib
from collections.abc import Iterable, Sequence

from benchmarks._speed.candidates import FLOOR_OF, LABELS
from benchmarks._speed.plot import PALETTES, draw
from benchmarks._speed.promises import (
    PAIRS,
    Pair,
    cell_ratios,
    cells_of,
    lines_of,
    thread_ratios,
    thread_size_name,
)
from benchmarks._speed.sizes import Size
from benchmarks._speed.store import Figures
from benchmarks._speed.timing import median
from benchmarks._writing import write_text

# Ratios that have a table of all sizes.
IN_TABLES = (
    "MixupE / MLPClassifier",
    "MixupE / Mixup",
    "MixupE, penalty_fraction=0.25 / Mixup",
    "MixupE / floor",
)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown; all columns but the first are aligned to the right.

    Examples
    --------
    >>> print(table(["who", "how fast"], [["ours", "2"]]))
    | who | how fast |
    |---|--:|
    | ours | 2 |
    """
    rule = "|---|" + "--:|" * (len(header) - 1)
    return "\n".join(
        [f"| {' | '.join(header)} |", rule, *(f"| {' | '.join(row)} |" for row in rows)]
    )


def machine_block(results: Figures) -> str:
    """What was measured on, and with which versions."""
    run, parts = results["run"], results["parts"]
    machine = run["machine"]
    libraries = ", ".join(f"{name} {number}" for name, number in run["versions"].items())
    n_rounds = len(parts["reference"]["microseconds"]["mixupe"])
    return (
        f"A {run['scale']} run of {n_rounds} rounds at the reference size and of "
        f"{len(cells_of(parts))} further sizes, on a {machine['system']} machine with "
        f"{machine['cores']} cores ({machine['processor']}) and "
        f"{'a' if machine['gpu'] else 'no'} GPU. {libraries}.{_later(run)}"
    )


def _later(run: Figures) -> str:
    """Which parts are of a later source than the rest."""
    if not run.get("again"):
        return ""
    return f" Measured again after later changes of the code: {', '.join(run['again'])}."


def promises_block(results: Figures) -> str:
    """Every comparison with its bound."""
    pieces = []
    for heading, lines in lines_of(results["parts"]):
        rows = [[line.what, line.shown, line.verdict()] for line in lines]
        pieces.append(f"**{heading}**\n\n" + table(["what", "figure", "promise"], rows))
    return "\n\n".join(pieces)


def steps_block(results: Figures) -> str:
    """Microseconds a step of each candidate, and how many times its floor that is."""
    times = results["parts"]["reference"]["microseconds"]
    rows = []
    for name, label in LABELS.items():
        if name not in times:
            rows.append([label, "not installed", ""])
            continue
        step = median(times[name])
        floor = median(times[FLOOR_OF[name]]) if name in FLOOR_OF else 0.0
        rows.append([label, f"{step:,.0f}", f"{step / floor:.1f}" if floor else ""])
    return table(["candidate", "microseconds a step", "times its floor"], rows)


def sizes_block(results: Figures) -> str:
    """One table a ratio: networks and columns downwards, rows and batches across."""
    pieces = []
    for pair in PAIRS:
        if pair.what in IN_TABLES:
            bound = pair.must_everywhere
            promised = f" (promised: at most {bound:g})" if bound is not None else ""
            pieces.append(f"**{pair.what}**{promised}\n\n" + _ratio_table(results["parts"], pair))
    return "\n\n".join(pieces)


def _ratio_table(parts: Figures, pair: Pair) -> str:
    ratios = {size: ratio.median for size, ratio in cell_ratios(parts, pair).items()}
    return _pivot({size: f"{ratio:.2f}" for size, ratio in ratios.items()})


def _pivot(shown: dict[Size, str]) -> str:
    columns = sorted({(size.rows, size.batch) for size in shown})
    kinds = sorted({(size.features, size.classes, size.width) for size in shown})
    header = ["features, classes, width"]
    header += [f"{n_rows:,} rows, batch {batch:,}" for n_rows, batch in columns]
    rows = []
    for features, classes, width in kinds:
        sizes = [Size(n_rows, features, classes, width, batch) for n_rows, batch in columns]
        cells = [shown.get(size, "") for size in sizes]
        rows.append([f"{features}, {classes}, {width}", *cells])
    return table(header, rows)


def rows_block(results: Figures) -> str:
    """Microseconds that MixupE needs for each row of an epoch, by batch size."""
    times = cells_of(results["parts"])
    return _pivot({size: f"{median(t['mixupe']) / size.batch:.2f}" for size, t in times.items()})


def threads_block(results: Figures) -> str:
    """Microseconds a step with one thread, and with each candidate's own choice."""
    one = results["parts"]["reference"]["microseconds"]
    own = results["parts"]["own threads"]["microseconds"]
    rows = [
        [LABELS[name], f"{median(one[name]):,.0f}", f"{median(own[name]):,.0f}"] for name in own
    ]
    busy = results["parts"]["busy"]["microseconds"]
    crowd = [
        [label, f"{median(busy[name]):,.0f}", f"{median(busy[f'beside {name}']):,.0f}"]
        for name, label in (
            ("mixupe", LABELS["mixupe"]),
            ("floor-twice", LABELS["floor-twice"]),
            ("two threads", "paper's listing, bare torch loop, two threads"),
        )
    ]
    return (
        table(["microseconds a step", "one thread", "default threads"], rows)
        + "\n\n"
        + table(["microseconds a step", "alone", "beside busy cores"], crowd)
    )


def crossing_block(results: Figures) -> str:
    """Two threads against one, from small networks to large ones."""
    rows = []
    for name, figures in results["parts"]["threads"].items():
        times = figures["microseconds"]
        ratios = [f"{ratio.median:.2f}" for ratio in thread_ratios(times)]
        step = f"{median(times['one']):,.0f}"
        rows.append([thread_size_name(Size.named(name)), step, *ratios, str(figures["default"])])
    header = ["network", "microseconds a step, one thread", "two threads / one, cores free"]
    return table([*header, "the same, beside a busy core", "threads by default"], rows)


def memory_block(results: Figures) -> str:
    """Memory of fit and predictions, a line a kind of table."""
    rows = []
    for kind, figures in results["parts"]["memory"].items():
        fit, private = (figures[name] / figures["data"] for name in ("fit", "fit_private"))
        name = f"{figures['rows']:,} x {figures['features']:,}, {kind}"
        added = [f"{figures[method]:.0f}" for method in ("predict", "predict_proba")]
        rows.append([name, f"{figures['data']:.0f}", f"{fit:.2f}", f"{private:.2f}", *added])
    header = ["table", "data, MiB", "peak of fit / data", "the same, without pages of files"]
    return table([*header, "predict adds, MiB", "predict_proba adds, MiB"], rows)


BLOCKS = {
    "machine": machine_block,
    "promises": promises_block,
    "steps": steps_block,
    "sizes": sizes_block,
    "rows": rows_block,
    "threads": threads_block,
    "crossing": crossing_block,
    "memory": memory_block,
}


def fill(page: str, results: Figures) -> str:
    """The page with every block between its marks made anew."""
    for name, make in BLOCKS.items():
        begin, end = f"<!-- speed: {name} -->", f"<!-- end of {name} -->"
        if page.count(begin) != 1 or page.count(end) != 1:
            raise ValueError(
                f"Got a page without the marks of {name!r}, but expected one line {begin} and one "
                f"line {end}."
            )
        block = f"{begin}\n\n{make(results)}\n\n{end}"
        before, after = page.split(begin)[0], page.split(end)[1]
        page = before + block + after
    return page


def images(results: Figures) -> dict[str, str]:
    """The plots by file name."""
    return {
        f"speed-{name}.svg": draw(results["parts"], palette) for name, palette in PALETTES.items()
    }


def write_docs(results: Figures, folder: pathlib.Path) -> None:
    """Write tables and plots into the docs."""
    page = folder / "speed.md"
    write_text(page, fill(page.read_text(), results))
    for name, text in images(results).items():
        write_text(folder / "_static" / name, text)
