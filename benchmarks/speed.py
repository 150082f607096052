"""How fast, and against what: ``python -m benchmarks.speed [--quick] [--json FILE]``.

At the reference size (16,000 x 16, 26 classes, two hidden layers of 128, batch 100) all candidates
take turns, with one thread each, and what is compared are pairs of the same round: our ERM, Mixup
and MixupE, scikit-learn's network of the same shape, a plain skorch net, the paper's listing in
skorch and in a bare torch loop, RealMLP where it is installed, and the floor: the matrix products
of a step alone. A time is that of a whole ``fit``, divided by its steps.

Then come a busy core, memory, imports, prediction, threads, growth, and the other sizes: rows,
features, classes, widths and batches crossed. Each part is kept as soon as it is measured, so that
a run that was cut goes on where it was. A full run takes about half an hour on a quiet machine, a
quick one some minutes.
"""

import argparse
import pathlib
import sys
from collections.abc import Iterator, Sequence

from benchmarks._speed.measure import measure_all
from benchmarks._speed.page import images, write_docs
from benchmarks._speed.promises import cell_lines, lines_of
from benchmarks._speed.scales import FULL, QUICK, Scale
from benchmarks._speed.store import Figures, Store, describe_run, read
from benchmarks._writing import write_text

ROOT = pathlib.Path(__file__).parents[1]


def report(results: Figures) -> Iterator[str]:
    """What is printed at the end: a line a size, then a line a comparison."""
    yield "Every size, one thread each: median (quartiles) of ratios within a round."
    yield from cell_lines(results["parts"])
    for heading, lines in lines_of(results["parts"]):
        yield f"\n{heading}"
        yield from map(str, lines)


def run(
    scale: Scale, path: pathlib.Path, is_fresh: bool = False, again: Sequence[str] = ()
) -> Figures:
    """Measure what the file does not have yet, draw the plots beside it, and return all figures."""
    store = Store(path, describe_run(scale.name), is_fresh, again)
    measure_all(scale, store, lambda text: print(text, flush=True))
    results = read(path)
    for name, text in images(results).items():
        write_text(path.with_name(f"{path.stem}-{name.removeprefix('speed-')}"), text)
    return results


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.speed", description=(__doc__ or "").splitlines()[0]
    )
    made.add_argument("--quick", action="store_true", help="few rounds, few sizes: some minutes")
    made.add_argument(
        "--json",
        type=pathlib.Path,
        metavar="FILE",
        help="file of results (default: build/speed.json, or build/speed-quick.json)",
    )
    made.add_argument("--fresh", action="store_true", help="measure all parts again")
    made.add_argument(
        "--again",
        nargs="+",
        default=[],
        metavar="PART",
        help="measure these parts again (reference, import, ...), and keep the others",
    )
    made.add_argument("--docs", action="store_true", help="write tables and plots into the docs")
    made.add_argument(
        "--report-only", action="store_true", help="measure nothing, read the file of results"
    )
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write the docs if asked to."""
    options = parser().parse_args(arguments)
    scale = QUICK if options.quick else FULL
    name = "speed-quick.json" if options.quick else "speed.json"
    path = options.json or pathlib.Path("build") / name
    try:
        if options.report_only:
            results = read(path)
        else:
            results = run(scale, path, options.fresh, options.again)
        print("\n" + "\n".join(report(results)))
        if options.docs:
            write_docs(results, ROOT / "docs")
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"\nFigures: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
