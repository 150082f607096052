"""The paper's table of tabular data sets, made by one command: ``python -m benchmarks.tabular``.

ERM, Mixup and MixupE by the paper's protocol on tables that come with scikit-learn (the default),
on OpenML tasks (``--source openml``: the paper's fifteen, unless others are named) or on a table
of your own (``--csv FILE --target COLUMN``). Each fit is a line of ``rows.csv`` in the output
folder; the report is made from these lines alone. A run that ends early, for whatever reason, goes
on where it was when the same command is given again.
"""

import argparse
import pathlib
import shlex
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial

import pandas as pd

from benchmarks._tabular.peers import check_peers
from benchmarks._tabular.protocol import GRIDS, METHODS, PAPER_METHODS, TRAINING
from benchmarks._tabular.report import make_report
from benchmarks._tabular.report.results import choose
from benchmarks._tabular.rows import RowsFile, read_rows
from benchmarks._tabular.running import Item, Plan, run
from mixupe_sklearn.datasets import EMBEDDED, load_embedded, read_csv

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
        description=(__doc__ or "").splitlines()[0].split(":")[0] + ".",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_data(made.add_argument_group("data"))
    _add_protocol(made.add_argument_group("protocol"))
    _add_running(made.add_argument_group("running"))
    return made


def _add_data(group: argparse._ArgumentGroup) -> None:
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
    group.add_argument("--csv", type=pathlib.Path, metavar="FILE", help="a table of your own")
    group.add_argument("--target", metavar="COLUMN", help="csv: the column to predict")


def _add_protocol(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--methods",
        nargs="+",
        choices=tuple(METHODS),
        default=list(PAPER_METHODS),
        metavar="METHOD",
        help=f"of {', '.join(METHODS)} (default: {' '.join(PAPER_METHODS)})",
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
        help="alpha and eta: the paper's grid (default), a part of it, or the estimator's own",
    )
    group.add_argument(
        "--splits",
        choices=("holdout", "task"),
        default="holdout",
        help="60 %% to train, 20 %% to choose, 20 %% to test (default), or the task's own folds",
    )
    group.add_argument("--seeds", type=_positive, default=5, help="splits, with a seed each (5)")
    group.add_argument(
        "--epochs", type=_positive, default=TRAINING["max_epochs"], help="epochs a fit (25)"
    )


def _add_running(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--jobs", type=_positive, default=2, help="processes, one thread each (2)")
    group.add_argument("--scheduler", metavar="ADDRESS", help="run on this Dask cluster instead")
    group.add_argument(
        "--output",
        type=pathlib.Path,
        default=pathlib.Path("build/tabular"),
        metavar="DIR",
        help="folder for rows and report (build/tabular)",
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


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}, but expected a whole number >= 1")
    return int(text)


def check(options: argparse.Namespace) -> None:
    """Refuse options that do not go together, in one sentence."""
    is_openml = options.source == "openml"
    only_openml = ("tasks", "datasets", "suite", "cache_dir", "offline", "publish", "server")
    for name in only_openml:
        if getattr(options, name) and not is_openml:
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
    if options.splits == "task" and (not is_openml or options.datasets):
        raise ValueError("Got --splits task, but expected it with OpenML tasks only.")


def items_of(options: argparse.Namespace) -> list[Item]:
    """The data sets that are asked for."""
    if options.csv is not None:
        # Read once: a file that changes during a run would give rows of two tables.
        table = read_csv(options.csv, options.target)
        return [Item(table.name, lambda: table)]
    if options.source == "embedded":
        return [Item(name, partial(load_embedded, name)) for name in options.names or EMBEDDED]
    return _openml_items(options)


def _openml_items(options: argparse.Namespace) -> list[Item]:
    from mixupe_sklearn.datasets import openml

    how = {"cache_dir": options.cache_dir, "offline": options.offline}
    task, dataset = partial(openml.load_task, **how), partial(openml.load_dataset, **how)
    items = [Item(f"task {number}", partial(task, number)) for number in options.tasks or ()]
    items += [
        Item(f"data set {number}", partial(dataset, number)) for number in options.datasets or ()
    ]
    if options.suite is not None:
        numbers = openml.tasks_of_suite(options.suite, **how)
        items += [Item(f"task {n}", partial(task, n), is_required=False) for n in numbers]
    return items or _paper_items(task, dataset)


def _paper_items(task: Callable, dataset: Callable) -> list[Item]:
    from mixupe_sklearn.datasets import openml

    loaders = {"task": task, "dataset": dataset}
    return [
        Item(name, partial(loaders[item.kind], item.number), is_required=False)
        for name, item in openml.PAPER_TASKS.items()
    ]


def plan_of(options: argparse.Namespace) -> Plan:
    """What is to be run on each data set."""
    methods = list(dict.fromkeys(options.methods))
    if options.peers is not None:
        methods += [name for name in check_peers(options.peers) if name not in methods]
    training = TRAINING | {"max_epochs": options.epochs}
    return Plan(
        methods, options.grid, options.splits, options.seeds, training, options.retry_failed
    )


def run_and_report(options: argparse.Namespace, command: str) -> int:
    """Run what is open, make the report of all rows, and say where it is."""
    path, not_run, is_interrupted = options.output / "rows.csv", {}, False
    if not options.report_only:
        items, plan = items_of(options), plan_of(options)
        with RowsFile(path) as file:
            how = {"n_jobs": options.jobs, "scheduler": options.scheduler}
            try:
                not_run = run(items, plan, file, **how, is_shown=not options.quiet)
            except KeyboardInterrupt:
                is_interrupted = True
    elif not path.exists():
        raise ValueError(f"Got --report-only, but found no {path}: run without it first.")
    rows = read_rows(path)
    if rows.empty:
        print(f"No fit was finished. {_reasons(not_run)}".rstrip(), file=sys.stderr)
        return 130 if is_interrupted else 1
    report = make_report(rows, options.output, command=command, not_run=not_run)
    print(f"\n{report.terminal}\n\nRows:   {path}\nReport: {report.html}")
    if not_run:
        print(_reasons(not_run), file=sys.stderr)
    if is_interrupted:
        print("Interrupted: nothing that was finished is lost; the same command goes on.")
        return 130
    if options.publish:
        return publish_rows(options, rows)
    return 0


def publish_rows(options: argparse.Namespace, rows: pd.DataFrame) -> int:
    """Send the chosen configurations of all methods to the OpenML server."""
    from benchmarks._tabular.publish import plan_of, publish

    chosen, ledger = choose(rows), options.output / "published.csv"
    run_ids = publish(chosen, rows, server=options.server, ledger=ledger)
    return 0 if len(run_ids) == len(plan_of(chosen, rows).submissions) else 1


def _reasons(not_run: dict[str, str]) -> str:
    return "\n".join(f"Not run: {name}: {reason}" for name, reason in not_run.items())


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, run, and end with a sentence where something is wrong."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = parser().parse_args(given)
    command = shlex.join(["python", "-m", "benchmarks.tabular", *given])
    warnings.showwarning = lambda message, *_, **__: print(f"Note: {message}", file=sys.stderr)
    try:
        check(options)
        return run_and_report(options, command)
    except (ValueError, OSError, ImportError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
