"""ERM, Mixup and MixupE on graphs: ``python -m benchmarks.graphs [--data FOLDER]``.

The setting of Xu et al. (2019) selects the epoch on test folds, which is optimistic. Beside it, an
honest protocol selects on a tenth of the training graphs. The same command resumes a run.
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from benchmarks._graphs import data, timing
from benchmarks._graphs.fits import METHODS, SCHEMA, Study, Training, configs_of
from benchmarks._graphs.report import make_report, write_page
from benchmarks._harness.cli import add_run_options, positive_int, run_command
from benchmarks._harness.results_file import ResultsFile
from benchmarks._harness.runner import Item, run
from benchmarks._harness.single_fits import tables_text

RESULTS = pathlib.Path(__file__).parent / "results" / "graphs"
# The paper's datasets, small ones first, with a width and a batch size that Xu et al. search.
TRAININGS = {
    "MUTAG": Training(),
    "PTC": Training(),
    "IMDBBINARY": Training(d_hidden=64, batch_size=128),
    "IMDBMULTI": Training(d_hidden=64, batch_size=128),
    "PROTEINS": Training(batch_size=128),
    "NCI1": Training(batch_size=128),
}
EXAMPLES = """\
  python -m benchmarks.graphs                                   synthetic graphs, a minute
  python -m benchmarks.graphs --data graphs --sets MUTAG PTC    ten folds, both protocols
  python -m benchmarks.graphs --data graphs --timing 7          what a step costs, and epochs/s
  python -m benchmarks.graphs --report-only"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.graphs",
        description="ERM, Mixup and MixupE on graphs: the setting of Xu et al., and an honest one.",
        epilog=f"examples:\n{EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    group = made.add_argument_group("data")
    words = "has a folder for each dataset, in the text or TU format (default: synthetic graphs)"
    group.add_argument("--data", type=pathlib.Path, metavar="FOLDER", help=words)
    words = f"names of folders in --data (default: {' '.join(TRAININGS)})"
    group.add_argument("--sets", nargs="+", default=list(TRAININGS), metavar="SET", help=words)
    group = made.add_argument_group("fits")
    group.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS, metavar="METHOD")
    group.add_argument("--protocols", nargs="+", choices=data.PROTOCOLS, default=data.PROTOCOLS)
    for name, values in (("alphas", [0.2, 1.0]), ("etas", [0.01, 1.0])):
        words = f"values to try ({values[0]} {values[1]}; the paper has more)"
        group.add_argument(f"--{name}", nargs="+", type=float, default=values, help=words)
    words = "epochs of a fit (350; 20 on synthetic graphs)"
    group.add_argument("--epochs", type=positive_int, help=words)
    group.add_argument("--folds", type=positive_int, help="number of folds (all)")
    group = made.add_argument_group("running")
    output = "folder for rows and report (benchmarks/results/graphs, build/graphs without --data)"
    add_run_options(group, output=output, docs="docs/benchmarks/graphs.md")
    words = "run no fits: time MixupE and Mixup, and a plain loop of PyTorch Geometric, in turns"
    group.add_argument("--timing", type=positive_int, metavar="ROUNDS", help=words)
    return made


def training_for(name: str, epochs: int | None) -> Training:
    """The training of a dataset."""
    known = TRAININGS.get(name, Training(max_epochs=20) if name == "synthetic" else Training())
    return known if epochs is None else replace(known, max_epochs=epochs)


def run_open(options: argparse.Namespace, folder: pathlib.Path) -> None:
    """Run the fits that the file does not have yet, or time all datasets."""
    places = data.find(options.data, options.sets)
    items = [
        Item(name, data.make_synthetic if path is None else partial(data.load, path))
        for name, path in places.items()
    ]
    trainings = {name: training_for(name, options.epochs) for name in places}
    if options.timing is not None:
        pairs = [(item.load(), trainings[item.name]) for item in items]
        timing.measure(folder / timing.FILE, pairs, options.timing)
        return
    configs = configs_of(options.methods, options.alphas, options.etas)
    study = Study(configs, options.protocols, trainings, options.folds, options.retry_failed)
    with ResultsFile(folder / "rows.csv", SCHEMA) as file:
        run(items, study, file, n_jobs=options.jobs, is_shown=not options.quiet)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, report, and return the exit status."""
    options = parser().parse_args(arguments)
    # Results of synthetic graphs are not kept in the repository.
    is_kept = options.data is not None or options.report_only
    default = RESULTS if is_kept else pathlib.Path("build") / "graphs"
    folder = default if options.output is None else options.output

    def work() -> None:
        if not options.report_only:
            run_open(options, folder)
        if options.timing is not None:
            path = folder / timing.FILE
            print(f"{tables_text(timing.tables_of(path))}\n\nTimes:  {path}")
            return
        print(make_report(folder))
        if options.docs:
            write_page(folder)

    return run_command(work)


if __name__ == "__main__":
    sys.exit(main())
