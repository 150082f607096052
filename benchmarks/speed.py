"""Speed of training and prediction: ``python -m benchmarks.speed [--quick] [--part NAME]``.

Candidates run in turns, and ratios compare times of the same round. Each has one thread unless its
row has another number. A full run takes about half an hour on an idle machine; the same command
resumes a run.
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence

from benchmarks._harness.cli import run_command
from benchmarks._harness.docs_tables import write_block
from benchmarks._harness.environment import ROOT, describe_run
from benchmarks._harness.results_file import JsonResults, read_json_results
from benchmarks._speed.measure import measure_all
from benchmarks._speed.parts import PARTS
from benchmarks._speed.report import BLOCKS, write_docs
from benchmarks._speed.sizes import FULL, QUICK

LIBRARIES = ("mixupe-sklearn", "torch", "scikit-learn", "skorch", "numpy", "pytabkit")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.speed", description=(__doc__ or "").splitlines()[0]
    )
    made.add_argument("--part", choices=PARTS, help="measure this instead of the steps of training")
    made.add_argument("--quick", action="store_true", help="few rounds, few sizes")
    words = "file of results (build/speed.json; with --part and not --quick in benchmarks/results)"
    made.add_argument("--json", type=pathlib.Path, metavar="FILE", help=words)
    made.add_argument("--fresh", action="store_true", help="measure everything again")
    words = "measure only these again (reference, import, ...)"
    made.add_argument("--again", nargs="+", default=[], metavar="NAME", help=words)
    made.add_argument("--docs", action="store_true", help="write tables and plots into the docs")
    made.add_argument("--report-only", action="store_true", help="measure nothing, read the file")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write the docs if asked to."""
    options = parser().parse_args(arguments)
    part = PARTS[options.part] if options.part else None
    name = pathlib.Path(part.file).stem if part else "speed"
    build = pathlib.Path("build") / f"{name}{'-quick' if options.quick else ''}.json"
    path = options.json or (part.results if part and not options.quick else build)

    def work() -> None:
        if not options.report_only:
            scale = QUICK if options.quick else FULL
            run = describe_run(scale.name, LIBRARIES)
            store = JsonResults(path, run, options.fresh, options.again)
            if part is None:
                measure_all(scale, store)
            else:
                for name, measure in part.measurements(scale).items():
                    print(f"{name} ...", file=sys.stderr, flush=True)
                    store.part(name, measure)
        results = read_json_results(path)
        if part is None:
            print("\n\n".join(make(results) for make in BLOCKS.values()))
            print(f"\nFigures: {path}")
        else:
            print(part.report(results))
        if options.docs and part is None:
            write_docs(results)
        elif options.docs and part is not None:
            write_block(ROOT / "docs" / part.page, part.block, part.report(results))

    return run_command(work)


if __name__ == "__main__":
    sys.exit(main())
