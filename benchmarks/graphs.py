"""ERM, Mixup and MixupE on graphs: ``python -m benchmarks.graphs [--data FOLDER]``.

The setting of Xu et al. (2019): GIN, Adam at 0.01 halved every 50 epochs, 350 epochs, ten folds,
the epoch with the best mean test accuracy over the folds. Since that is chosen on test graphs, it
flatters; next to it stands an honest protocol, in which epoch, alpha and eta are chosen on a tenth
of the training graphs, fold by fold. Without a folder, graphs made by rule. Each fit is a row on
the disk as soon as it is done, and the same command goes on where it was ended.
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence
from functools import partial

from benchmarks._graphs import data, timing
from benchmarks._graphs.fits import Study, Training, configs_of
from benchmarks._graphs.report import make_report, write_page
from benchmarks._graphs.rows import GRAPHS, METHODS
from benchmarks._tabular.command import end_in_order
from benchmarks._tabular.options import positive
from benchmarks._tabular.rows import RowsFile
from benchmarks._tabular.running import Item, run

RESULTS = pathlib.Path(__file__).parent / "results" / "graphs"
# The six sets of the paper, small ones first, with a width and batches that Xu et al. search among.
TRAININGS = {
    "MUTAG": Training(),
    "PTC": Training(),
    "IMDBBINARY": Training(d_hidden=64, batch_size=128),
    "IMDBMULTI": Training(d_hidden=64, batch_size=128),
    "PROTEINS": Training(batch_size=128),
    "NCI1": Training(batch_size=128),
}
EXAMPLES = """\
  python -m benchmarks.graphs                                   graphs made by rule, a minute
  python -m benchmarks.graphs --data graphs --sets MUTAG PTC    ten folds, both protocols
  python -m benchmarks.graphs --data graphs --timing 7          what a step costs, and epochs/s
  python -m benchmarks.graphs --report-only"""


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.graphs",
        description="ERM, Mixup and MixupE on graphs: the setting of Xu et al., and an honest one.",
        epilog=f"examples:\n{EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    group = made.add_argument_group("data")
    group.add_argument(
        "--data",
        type=pathlib.Path,
        metavar="FOLDER",
        help="holds a folder for each set, in the text format or the TU format (default: graphs "
        "made by rule)",
    )
    words = f"names of folders in --data (default: {' '.join(TRAININGS)})"
    group.add_argument("--sets", nargs="+", default=list(TRAININGS), metavar="SET", help=words)
    group = made.add_argument_group("fits")
    group.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS, metavar="METHOD")
    group.add_argument("--protocols", nargs="+", choices=data.PROTOCOLS, default=data.PROTOCOLS)
    for name, values in (("alphas", [0.2, 1.0]), ("etas", [0.01, 1.0])):
        told = " ".join(map(str, values))
        words = f"values to choose from ({told}; the paper has {'9' if name == 'alphas' else '5'})"
        group.add_argument(f"--{name}", nargs="+", type=float, default=values, help=words)
    group.add_argument("--epochs", type=positive, help="a fit (350; 20 of graphs made by rule)")
    group.add_argument("--folds", type=positive, help="how many of them (all)")
    group = made.add_argument_group("running")
    group.add_argument("--jobs", type=positive, default=2, help="processes, one thread each (2)")
    group.add_argument("--output", type=pathlib.Path, metavar="DIR", help="for rows and report")
    group.add_argument(
        "--timing",
        type=positive,
        metavar="ROUNDS",
        help="fit nothing: measure what a step of MixupE takes of one of Mixup, and epochs a "
        "second beside a plain loop of PyTorch Geometric, in turns",
    )
    group.add_argument("--retry-failed", action="store_true", help="run failed fits again")
    group.add_argument("--report-only", action="store_true", help="run nothing, make the report")
    group.add_argument("--docs", action="store_true", help="write the tables into docs/graphs.md")
    group.add_argument("--quiet", action="store_true", help="no progress bar")
    return made


def training_for(name: str, epochs: int | None) -> Training:
    """How a set is trained on."""
    known = TRAININGS.get(name, Training(max_epochs=20) if name == "made-by-rule" else Training())
    if epochs is None:
        return known
    return Training(known.d_hidden, known.batch_size, epochs)


def run_open(options: argparse.Namespace, folder: pathlib.Path) -> None:
    """Run the fits that the rows do not have yet."""
    places = data.find(options.data, options.sets)
    study = Study(
        configs_of(options.methods, options.alphas, options.etas),
        options.protocols,
        {name: training_for(name, options.epochs) for name in places},
        options.folds,
        options.retry_failed,
    )
    items = [
        Item(name, data.make_by_rule if path is None else partial(data.load, path))
        for name, path in places.items()
    ]
    with RowsFile(folder / "rows.csv", GRAPHS) as file:
        run(items, study, file, n_jobs=options.jobs, is_shown=not options.quiet)


def time_steps(options: argparse.Namespace, folder: pathlib.Path) -> None:
    """Measure and keep, set by set."""
    places = data.find(options.data, options.sets)
    tables = [data.make_by_rule() if path is None else data.load(path) for path in places.values()]
    trainings = [training_for(table.name, options.epochs) for table in tables]
    timing.write(timing.measure(tables, trainings, options.timing), folder / timing.FILE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, run, and end with a sentence where something is wrong."""
    options = make_parser().parse_args(arguments)
    # What is made by rule is not kept, unless it is asked for.
    is_kept = options.data is not None or options.report_only
    default = RESULTS if is_kept else pathlib.Path("build") / "graphs"
    folder = default if options.output is None else options.output

    def work() -> int:
        if options.timing is not None:
            time_steps(options, folder)
            print(timing.as_print(folder / timing.FILE))
            return 0
        if not options.report_only:
            run_open(options, folder)
        print(make_report(folder))
        if options.docs:
            write_page(folder)
        return 0

    return end_in_order(work)


if __name__ == "__main__":
    sys.exit(main())
