"""Options of the tabular benchmark's command line, and which of them go together."""

import argparse
import pathlib

from benchmarks._tabular.own import OWN
from benchmarks._tabular.protocol import GRIDS, METHODS, PAPER_METHODS, TRAINING
from mixupe_sklearn.datasets import EMBEDDED

EXAMPLES = """\
examples:
  python -m benchmarks.tabular                                   embedded data, about a minute
  python -m benchmarks.tabular --csv my.csv --target label       a table of your own
  python -m benchmarks.tabular --source openml --cache-dir DIR --offline --jobs 2 --output out
  python -m benchmarks.tabular --source openml --tasks 59 11 --peers logistic random-forest
  python -m benchmarks.tabular --output out --report-only        the report anew, from the rows
"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.tabular",
        description="The paper's table of tabular data sets, made by one command.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_data(made.add_argument_group("data"))
    _add_protocol(made.add_argument_group("protocol"))
    _add_running(made.add_argument_group("running"))
    return made


def add_data(group: argparse._ArgumentGroup) -> None:
    """Options that say which data sets."""
    group.add_argument(
        "--source",
        choices=("embedded", "openml"),
        default="embedded",
        help="tables of scikit-learn and one made by rule (default), or OpenML's",
    )
    group.add_argument(
        "--names", nargs="+", metavar="NAME", help=f"embedded: some of {', '.join(EMBEDDED)}"
    )
    group.add_argument("--tasks", nargs="+", type=int, metavar="ID", help="openml: tasks")
    group.add_argument("--datasets", nargs="+", type=int, metavar="ID", help="openml: data sets")
    group.add_argument("--suite", type=int, metavar="ID", help="openml: all tasks of a suite")
    group.add_argument("--cache-dir", type=pathlib.Path, metavar="DIR", help="openml: its cache")
    group.add_argument("--offline", action="store_true", help="openml: from the cache alone")
    group.add_argument(
        "--timeout", type=positive, default=60, help="openml: seconds a download may take (60)"
    )
    group.add_argument("--csv", type=pathlib.Path, metavar="FILE", help="a table of your own")
    group.add_argument("--target", metavar="COLUMN", help="csv: the column to predict")


def _add_protocol(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--methods",
        nargs="*",
        choices=(*METHODS, *OWN),
        default=list(PAPER_METHODS),
        metavar="METHOD",
        help=f"of {', '.join((*METHODS, *OWN))} (default: {' '.join(PAPER_METHODS)}); without "
        f"names none, for --peers alone",
    )
    group.add_argument(
        "--peers",
        nargs="*",
        metavar="PEER",
        help="other classifiers on the same splits; without names, all that are installed",
    )
    group.add_argument(
        "--grid",
        choices=(*GRIDS, "default"),
        default="paper",
        help="alpha and eta: the paper's grid (default), a part of it, or the preset's one pair",
    )
    group.add_argument(
        "--splits",
        choices=("holdout", "task"),
        default="holdout",
        help="60 %% to train, 20 %% to choose, 20 %% to test (default), or the task's own folds",
    )
    group.add_argument("--seeds", type=positive, default=5, help="splits, with a seed each (5)")
    group.add_argument(
        "--epochs",
        type=positive,
        default=TRAINING["max_epochs"],
        help="epochs a fit (25), but for mixupe-default and mixupe-paper, which have their own",
    )


def _add_running(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--jobs", type=positive, default=2, help="processes, one thread each (2)")
    group.add_argument(
        "--output",
        type=pathlib.Path,
        metavar="DIR",
        help="folder for rows and report (build/tabular/ and embedded, openml or the CSV's name)",
    )
    group.add_argument("--retry-failed", action="store_true", help="run failed fits again")
    group.add_argument("--report-only", action="store_true", help="run nothing, make the report")
    group.add_argument(
        "--publish",
        action="store_true",
        help="run the chosen configurations on the tasks' folds and send them to the OpenML "
        "server, under the key of OPENML_API_KEY",
    )
    group.add_argument("--server", metavar="ADDRESS", help="publish: to this server instead")
    group.add_argument("--quiet", action="store_true", help="no progress bar")


def positive(text: str) -> int:
    """A whole number of one at least."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}, but expected a whole number >= 1")
    return int(text)


def check_data(options: argparse.Namespace) -> None:
    """Refuse options of the data that do not go together, in one sentence."""
    is_openml = options.source == "openml"
    only_openml = ("tasks", "datasets", "suite", "cache_dir", "offline", "publish", "server")
    for name in only_openml:
        if getattr(options, name, None) and not is_openml:
            flag = "--" + name.replace("_", "-")
            raise ValueError(f"Got {flag}, but expected it with --source openml only.")
    if options.names and (is_openml or options.csv):
        raise ValueError("Got --names, but expected it with --source embedded only.")
    if options.csv and is_openml:
        raise ValueError("Got --csv and --source openml, but expected one of them.")
    if (options.csv is None) != (options.target is None):
        raise ValueError(
            f"Got csv={options.csv} and target={options.target!r}, but expected both: "
            f"--csv FILE --target COLUMN."
        )


def check(options: argparse.Namespace) -> None:
    """Refuse options that do not go together, in one sentence."""
    check_data(options)
    if options.splits == "task" and options.source != "openml":
        raise ValueError("Got --splits task, but expected it with --source openml only.")
    if options.server and not options.publish:
        raise ValueError("Got --server, but expected it with --publish only.")
    if options.publish:
        if options.offline:
            raise ValueError("Got --offline and --publish, but expected one of them.")
        from benchmarks._tabular.publish import check_publishing

        check_publishing(server=options.server)


def folder_of(options: argparse.Namespace) -> pathlib.Path:
    """Where rows and report go; data sets of different kinds are not thrown together."""
    if options.output is not None:
        return options.output
    name = f"csv-{options.csv.stem}" if options.csv else options.source
    return pathlib.Path("build") / "tabular" / name
