"""Targets and what the figures of a run say about them: one line per comparison."""

from collections.abc import Callable
from typing import NamedTuple

from benchmarks._harness.paired_timing import Ratio, median, ratio_of
from benchmarks._harness.results_file import Results
from benchmarks._speed.baselines import FLOOR_OF
from benchmarks._speed.sizes import Size


class Line(NamedTuple):
    """A comparison: a figure with its spread, the most that it must be, and the goal."""

    what: str
    shown: str
    value: float
    must: float | None = None
    aim: float | None = None

    @classmethod
    def of(cls, what: str, ratio: Ratio, must: float | None = None, aim: float | None = None):
        """The line of a ratio."""
        return cls(what, str(ratio), ratio.median, must, aim)

    def verdict(self) -> str:
        """Whether bound and goal are kept; empty where there is neither."""
        bounds = ((f"must <= {self.must or 0:g}", self.must), (f"aim {self.aim or 0:g}", self.aim))
        return "; ".join(
            f"{text}: {'held' if self.value <= bound else 'missed'}"
            for text, bound in bounds
            if bound is not None
        )


class Pair(NamedTuple):
    """Two candidates whose ratio has a target: at the reference size, and at every other."""

    what: str
    one: str
    other: str
    must: float | None = None
    aim: float | None = None
    must_everywhere: float | None = None
    is_at_all_sizes: bool = False


PAIRS = [
    Pair("MixupE / MLPClassifier", "mixupe", "mlp", 0.75, 0.6, 1.3, True),
    Pair("MixupE / MLPClassifier, float64 rows", "mixupe-double", "mlp-double", 0.75, 0.6),
    Pair("ERM / MLPClassifier", "erm", "mlp"),
    Pair("MixupE / plain skorch net (ERM)", "mixupe", "skorch"),
    Pair("MixupE / paper's listing, skorch net", "mixupe", "listing", 0.25, 0.18),
    Pair("MixupE / the same, two loaders", "mixupe", "listing-loaders"),
    Pair("MixupE / paper's listing, bare torch loop", "mixupe", "listing-torch"),
    Pair("MixupE / RealMLP", "mixupe", "realmlp"),
    Pair("MixupE / Mixup", "mixupe", "mixup", 2.0, 1.5, 2.0, True),
    Pair("MixupE, penalty_fraction=0.25 / Mixup", "quarter", "mixup", 1.3, 1.2, None, True),
    Pair("MixupE, directional penalty / Mixup", "directional", "mixup"),
    Pair("ERM / floor", "erm", FLOOR_OF["erm"], aim=2.5),
    Pair("Mixup / floor", "mixup", FLOOR_OF["mixup"], aim=2.5),
    Pair("MixupE, penalty_fraction=0.25 / floor", "quarter", FLOOR_OF["quarter"], aim=2.5),
    Pair("MixupE / floor", "mixupe", FLOOR_OF["mixupe"], must=2.5, is_at_all_sizes=True),
    Pair("MixupE / floor with the first layer shared", "mixupe", "floor-shared"),
]
LARGE = 1_000_000  # float32 tables of so many rows have targets: a smaller one may be copied


def cells_of(parts: Results) -> dict[Size, dict[str, list[float]]]:
    """The times of every measured size."""
    return {
        Size.named(name): part["microseconds"]
        for name, part in parts.items()
        if name.startswith("rows=")
    }


def cell_ratios(parts: Results, pair: Pair) -> dict[Size, Ratio]:
    """The ratio of a pair at every measured size."""
    return {
        size: ratio_of(times[pair.one], times[pair.other])
        for size, times in cells_of(parts).items()
        if {pair.one, pair.other} <= set(times)
    }


def reference_lines(parts: Results) -> list[Line]:
    """Candidates at the reference size, one thread each."""
    times = parts["reference"]["microseconds"]
    return [
        Line.of(pair.what, ratio_of(times[pair.one], times[pair.other]), pair.must, pair.aim)
        if {pair.one, pair.other} <= set(times)
        else Line(pair.what, "not installed", 0.0)
        for pair in PAIRS
    ]


def worst_lines(parts: Results) -> list[Line]:
    """The worst size of every pair with a target at all sizes."""
    lines = []
    for pair in PAIRS:
        ratios, must = cell_ratios(parts, pair), pair.must_everywhere
        if ratios and must is not None:
            size, ratio = max(ratios.items(), key=lambda item: item[1].median)
            n_above = sum(one.median > must for one in ratios.values())
            above = f"; {n_above} above {must:g}" if n_above else ""
            what = f"{pair.what}, worst of {len(ratios)} sizes"
            lines.append(Line(what, f"{ratio} at {size.name}{above}", ratio.median, must))
    return lines


def thread_lines(parts: Results) -> list[Line]:
    """What default threads, and a busy core, do to a fit."""
    times, busy = parts["own threads"]["microseconds"], parts["busy"]["microseconds"]
    what = f"beside {parts['busy']['busy_cores']} busy core(s) / alone"

    def beside(name: str) -> Ratio:
        return ratio_of(busy[f"beside {name}"], busy[name])

    own = ratio_of(times["mixupe"], times["mlp"])
    return [
        Line.of("MixupE / MLPClassifier, each with its default threads", own),
        Line.of(f"MixupE {what}", beside("mixupe"), 1.5),
        Line.of(f"floor of MixupE, one thread, {what}", beside("floor-twice")),
        Line.of(f"listing in torch with two threads {what}", beside("two threads")),
    ]


def thread_ratios(times: dict[str, list[float]]) -> tuple[Ratio, Ratio]:
    """Two threads against one: with free cores, and beside a busy one."""
    free, busy = (ratio_of(times[f"{one}two"], times[f"{one}one"]) for one in ("", "beside "))
    return free, busy


def prediction_lines(parts: Results) -> list[Line]:
    """Rows per second, and the time of one row."""
    figures = parts["prediction"]
    n_rows, lines = figures["rows"], []
    for n_features in (key for key in figures if key.isdecimal()):
        times = figures[n_features]
        medians = {name: median(values) for name, values in times.items()}
        rates = [n_rows / medians[name] / 1e6 for name in ("ours", "mlp")]
        seconds = [1e3 * medians[f"single {name}"] for name in ("ours", "mlp")]
        for prefix, task, both, unit in (
            ("", f"{n_rows:,} rows", rates, "million rows a second"),
            ("single ", "one row", seconds, "ms"),
        ):
            ratio = ratio_of(times[f"{prefix}ours"], times[f"{prefix}mlp"])
            what = f"predict_proba of {task} x {n_features}, time / MLPClassifier's"
            shown = f"{ratio}; {both[0]:.3g} and {both[1]:.3g} {unit}"
            lines.append(Line(what, shown, ratio.median))
    return lines


def import_lines(parts: Results) -> list[Line]:
    """What importing the package adds."""
    times, extras = parts["import"]["seconds"], parts["import"]["extras"]
    base = "import of torch and scikit-learn"
    ours, skorch = (ratio_of(times[f"with-{one}"], times["alone"]) for one in ("ours", "skorch"))
    return [
        Line.of(f"{base}, with mixupe_sklearn / without", ours, 1.1, 1.05),
        Line.of(f"{base}, with skorch / without", skorch),
        Line("extras imported before they are used", ", ".join(extras) or "none", len(extras), 0),
    ]


def memory_lines(parts: Results) -> list[Line]:
    """Peak memory of fit in units of the data, and of predictions in MiB, for float32."""
    if "float32" not in parts["memory"]:
        return [Line("peak memory", "not measured: the system does not report it", 0.0)]
    figures = parts["memory"]["float32"]
    table = f"{figures['rows']:,} x {figures['features']:,} float32"
    is_large = figures["rows"] >= LARGE
    fit, private = (figures[name] / figures["data"] for name in ("fit", "fit_private"))
    shown = f"{fit:.2f} of {figures['data']:.0f} MiB; without pages of files {private:.2f}"
    bounds = {"must": 2.0, "aim": 1.3} if is_large else {}
    lines = [Line(f"peak memory of fit / data, {table}", shown, fit, **bounds)]
    for name in ("predict", "predict_proba"):
        what = f"memory that {name} adds to data and result, {table}, MiB"
        must = 64 if is_large else None
        lines.append(Line(what, f"{figures[name]:.0f}", figures[name], must))
    return lines


GROUPS: dict[str, Callable[[Results], list[Line]]] = {
    "Reference size, one thread each": reference_lines,
    "All sizes, one thread each": worst_lines,
    "Threads": thread_lines,
    "Prediction, one thread each": prediction_lines,
    "Import": import_lines,
    "Memory": memory_lines,
}
