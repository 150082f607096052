"""What was promised, and what the figures of a run say: one line a comparison."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from benchmarks._speed.candidates import FLOOR_OF
from benchmarks._speed.sizes import Size
from benchmarks._speed.store import Figures
from benchmarks._speed.timing import Ratio, median, ratio_of


class Line(NamedTuple):
    """A comparison: a figure with its spread, what it must be at most, and what we aim at.

    Examples
    --------
    >>> print(Line("MixupE / Mixup", "1.60 (1.50 to 1.70)", 1.6, must=2.0, aim=1.5))
    MixupE / Mixup: 1.60 (1.50 to 1.70); must <= 2: held; aim 1.5: missed
    >>> print(Line("MixupE / skorch", "0.30", 0.3))
    MixupE / skorch: 0.30
    """

    what: str
    shown: str
    value: float
    must: float | None = None
    aim: float | None = None

    def verdict(self) -> str:
        """Whether bound and aim are kept, in words; nothing where there is neither."""
        said = []
        if self.must is not None:
            said.append(f"must <= {self.must:g}: {_held(self.value, self.must)}")
        if self.aim is not None:
            said.append(f"aim {self.aim:g}: {_held(self.value, self.aim)}")
        return "; ".join(said)

    def __str__(self) -> str:
        return "; ".join(filter(None, [f"{self.what}: {self.shown}", self.verdict()]))


def _held(value: float, bound: float) -> str:
    return "held" if value <= bound else "missed"


class Pair(NamedTuple):
    """Two candidates whose ratio is promised: at the reference size, and at every other."""

    what: str
    one: str
    other: str
    must: float | None = None
    aim: float | None = None
    must_everywhere: float | None = None


PAIRS = [
    Pair("MixupE / MLPClassifier", "mixupe", "mlp", 1.0, 0.6, 1.3),
    Pair("MixupE / MLPClassifier, float64 rows", "mixupe-double", "mlp-double", 1.0, 0.6),
    Pair("ERM / MLPClassifier", "erm", "mlp"),
    Pair("MixupE / plain skorch net (ERM)", "mixupe", "skorch"),
    Pair("MixupE / paper's listing, skorch net", "mixupe", "listing", 0.35, 0.25),
    Pair("MixupE / the same, two loaders", "mixupe", "listing-loaders"),
    Pair("MixupE / paper's listing, bare torch loop", "mixupe", "listing-torch"),
    Pair("MixupE / RealMLP", "mixupe", "realmlp"),
    Pair("MixupE / Mixup", "mixupe", "mixup", 2.0, 1.5, 2.0),
    Pair("MixupE, penalty_fraction=0.25 / Mixup", "quarter", "mixup", 1.3, 1.2),
    Pair("MixupE, directional penalty / Mixup", "directional", "mixup"),
    Pair("ERM / floor", "erm", FLOOR_OF["erm"], aim=2.5),
    Pair("Mixup / floor", "mixup", FLOOR_OF["mixup"], aim=2.5),
    Pair("MixupE, penalty_fraction=0.25 / floor", "quarter", FLOOR_OF["quarter"], aim=2.5),
    Pair("MixupE / floor", "mixupe", FLOOR_OF["mixupe"], aim=2.5),
    Pair("MixupE / floor with the first layer shared", "mixupe", "floor-shared"),
]
MISSING = "not installed"
# Rows of the table whose memory is promised.
LARGE = 1_000_000


def cells_of(parts: Figures) -> dict[Size, dict[str, list[float]]]:
    """The times of every size that was measured."""
    return {
        Size.named(name): part["microseconds"]
        for name, part in parts.items()
        if name.startswith("rows=")
    }


def reference_lines(parts: Figures) -> list[Line]:
    """Candidates at the reference size, one thread each."""
    times = parts["reference"]["microseconds"]
    lines = []
    for pair in PAIRS:
        if {pair.one, pair.other} <= set(times):
            ratio = ratio_of(times[pair.one], times[pair.other])
            lines.append(Line(pair.what, str(ratio), ratio.median, pair.must, pair.aim))
        else:
            lines.append(Line(pair.what, MISSING, 0.0))
    return lines


def cell_ratios(parts: Figures, pair: Pair) -> dict[Size, Ratio]:
    """A pair's ratio at every size that was measured."""
    return {
        size: ratio_of(times[pair.one], times[pair.other])
        for size, times in cells_of(parts).items()
        if {pair.one, pair.other} <= set(times)
    }


def worst_lines(parts: Figures) -> list[Line]:
    """The worst size of every pair that was run at all sizes."""
    lines = []
    for pair in PAIRS:
        ratios = cell_ratios(parts, pair)
        if ratios:
            size, ratio = max(ratios.items(), key=lambda item: item[1].median)
            what = f"{pair.what}, worst of {len(ratios)} sizes"
            shown = f"{ratio} at {size.name}{_above(ratios, pair.must_everywhere)}"
            lines.append(Line(what, shown, ratio.median, pair.must_everywhere))
    return lines


def _above(ratios: dict[Size, Ratio], bound: float | None) -> str:
    n_above = 0 if bound is None else sum(ratio.median > bound for ratio in ratios.values())
    return f"; {n_above} above {bound:g}" if n_above else ""


def thread_lines(parts: Figures) -> list[Line]:
    """What threads of one's own choice, and a busy core, do to a fit."""
    times, busy = parts["own threads"]["microseconds"], parts["busy"]["microseconds"]
    ratio = ratio_of(times["mixupe"], times["mlp"])
    beside = ratio_of(busy["beside mixupe"], busy["mixupe"])
    other = ratio_of(busy["beside two threads"], busy["two threads"])
    floor = ratio_of(busy["beside floor-twice"], busy["floor-twice"])
    what = f"beside {parts['busy']['busy_cores']} busy core(s) / alone"
    return [
        Line("MixupE / MLPClassifier, each with its default threads", str(ratio), ratio.median),
        Line(f"MixupE {what}", str(beside), beside.median, 1.5),
        Line(f"floor of MixupE, one thread, {what}", str(floor), floor.median),
        Line(f"listing in torch with two threads {what}", str(other), other.median),
        *crossing_lines(parts),
    ]


def crossing_lines(parts: Figures) -> list[Line]:
    """Two threads against one at each size of the table of threads."""
    lines = []
    for name, figures in parts["threads"].items():
        alone, beside = thread_ratios(figures["microseconds"])
        what = f"MixupE with two threads / one, {thread_size_name(Size.named(name))}"
        shown = f"{alone}; beside a busy core {beside}; by default {figures['default']}"
        lines.append(Line(what, shown, alone.median))
    return lines


def thread_ratios(times: dict[str, list[float]]) -> tuple[Ratio, Ratio]:
    """Two threads against one: with free cores, and beside a busy one."""
    return (
        ratio_of(times["two"], times["one"]),
        ratio_of(times["beside two"], times["beside one"]),
    )


def thread_size_name(size: Size) -> str:
    """A network and its batch in few words.

    Examples
    --------
    >>> thread_size_name(Size(rows=10, features=16, classes=26, width=128, batch=100))
    '16-128-128-26, batch 100'
    """
    return f"{size.features}-{size.width}-{size.width}-{size.classes}, batch {size.batch:,}"


def prediction_lines(parts: Figures) -> list[Line]:
    """Rows a second, and the time for one row."""
    figures = parts["prediction"]
    lines = []
    for n_features in (key for key in figures if key.isdecimal()):
        times = figures[n_features]
        for prefix, unit, scale in (("", "million rows a second", 0.0), ("single ", "ms", 1e3)):
            ours, mlp = times[f"{prefix}ours"], times[f"{prefix}mlp"]
            ratio = ratio_of(ours, mlp)
            both = [
                scale * median(values) or figures["rows"] / median(values) / 1e6
                for values in (ours, mlp)
            ]
            task = "one row" if prefix else f"{figures['rows']:,} rows"
            what = f"predict_proba of {task} x {n_features}, time / MLPClassifier's"
            shown = f"{ratio}; {both[0]:.3g} and {both[1]:.3g} {unit}"
            lines.append(Line(what, shown, ratio.median))
    return lines


def import_lines(parts: Figures) -> list[Line]:
    """What importing us adds."""
    times, extras = parts["import"]["seconds"], parts["import"]["extras"]
    base = "import of torch and scikit-learn"
    ours = ratio_of(times["with-ours"], times["alone"])
    skorch = ratio_of(times["with-skorch"], times["alone"])
    found = ", ".join(extras) or "none"
    return [
        Line(f"{base}, with mixupe_sklearn / without", str(ours), ours.median, 1.1, 1.05),
        Line(f"{base}, with skorch / without", str(skorch), skorch.median),
        Line("extras imported before they are used", found, len(extras), 0),
    ]


def memory_lines(parts: Figures) -> list[Line]:
    """Peak memory of fit in units of the data, and of predict in MiB."""
    figures = parts["memory"]
    if not figures:
        return [Line("peak memory", "not measured: the system does not tell", 0.0)]
    return [line for kind, one in figures.items() for line in _table_lines(kind, one)]


def _table_lines(kind: str, figures: Figures) -> list[Line]:
    table = f"{figures['rows']:,} x {figures['features']:,} {kind}"
    # What is promised is a large table of float32: a small one may be copied.
    is_promised = kind == "float32" and figures["rows"] >= LARGE
    fit = figures["fit"] / figures["data"]
    private = figures["fit_private"] / figures["data"]
    shown = f"{fit:.2f} of {figures['data']:.0f} MiB; without pages of files {private:.2f}"
    bounds = {"must": 2.0, "aim": 1.3} if is_promised else {}
    lines = [Line(f"peak memory of fit / data, {table}", shown, fit, **bounds)]
    for name in ("predict", "predict_proba"):
        what = f"memory that {name} adds to data and result, {table}, MiB"
        must = 64 if is_promised else None
        lines.append(Line(what, f"{figures[name]:.0f}", figures[name], must))
    return lines


def growth_lines(parts: Figures) -> list[Line]:
    """The power of rows and of features that the time of fit grows with."""
    lines = []
    for name, figures in parts["growth"].items():
        sizes = list(figures["seconds"])
        what = f"time of fit grows with {name} ({sizes[0]} to {sizes[-1]}) to the power"
        lines.append(Line(what, f"{figures['power']:.2f}", figures["power"]))
    return lines


GROUPS: dict[str, Callable[[Figures], list[Line]]] = {
    "Reference size, one thread each": reference_lines,
    "All sizes, one thread each": worst_lines,
    "Threads": thread_lines,
    "Prediction, one thread each": prediction_lines,
    "Import": import_lines,
    "Memory": memory_lines,
    "Growth": growth_lines,
}


def lines_of(parts: Figures) -> Iterator[tuple[str, list[Line]]]:
    """All comparisons, in groups with a heading."""
    for heading, make in GROUPS.items():
        yield heading, make(parts)


def cell_lines(parts: Figures) -> list[str]:
    """One line a size: our ratios there."""
    shown = {
        "/ MLPClassifier": ("mixupe", "mlp"),
        "/ Mixup": ("mixupe", "mixup"),
        "quarter / Mixup": ("quarter", "mixup"),
        "/ floor": ("mixupe", FLOOR_OF["mixupe"]),
    }
    return [
        f"{size.name}: MixupE "
        + ", ".join(f"{what} {ratio_of(times[a], times[b])}" for what, (a, b) in shown.items())
        for size, times in cells_of(parts).items()
    ]
