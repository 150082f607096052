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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import pandas as pd

from benchmarks._tabular.command import INTERRUPTED, end_in_order
from benchmarks._tabular.escaping import printable
from benchmarks._tabular.options import check, folder_of, parser
from benchmarks._tabular.own import OWN
from benchmarks._tabular.peers import check_peers
from benchmarks._tabular.protocol import TRAINING, params_text
from benchmarks._tabular.report import make_report
from benchmarks._tabular.report.results import choose
from benchmarks._tabular.rows import RowsFile, read_rows
from benchmarks._tabular.running import Item, Plan, run
from benchmarks._tabular.workers import LostWorkersError
from benchmarks._writing import write_text
from mixupe_sklearn.datasets import EMBEDDED, load_embedded, read_csv


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

    how = {name: getattr(options, name) for name in ("cache_dir", "offline", "timeout")}
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
    if not methods:
        raise ValueError("Got --methods without names, but expected some, or --peers.")
    training = TRAINING | {"max_epochs": options.epochs}
    return Plan(
        methods, options.grid, options.splits, options.seeds, training, options.retry_failed
    )


def run_and_report(options: argparse.Namespace, command: str) -> int:
    """Run what is open, make the report of all rows, and say where it is."""
    folder, end = folder_of(options), Ending()
    path = folder / "rows.csv"
    if not options.report_only:
        end = run_all(options, path, command)
    elif not path.exists():
        raise ValueError(f"Got --report-only, but found no {path}: run without it first.")
    rows = of_protocol(read_rows(path), options) if path.exists() else pd.DataFrame()
    if rows.empty:
        words = map(printable, end.words)
        print("There are no rows to report on.", *words, sep="\n", file=sys.stderr)
        return end.status or 1
    commands = read_commands(folder) or command
    report = make_report(rows, folder, command=commands, not_run=end.not_run)
    print(f"\n{report.terminal}\n\nRows:   {path}\nReport: {report.html}")
    failed = rows[rows["error"] != ""]
    if len(failed):
        example = printable(failed["error"].iloc[0])
        print(f"{len(failed)} of {len(rows)} fits failed, such as: {example}")
    for line in end.words:
        print(printable(line), file=sys.stderr)
    if end.status == 0 and options.publish:
        return publish_rows(options, rows, folder)
    return end.status or int(len(failed) == len(rows))


@dataclass
class Ending:
    """How a run ended: its exit status, data sets that were not run, and why it ended early."""

    status: int = 0
    not_run: dict[str, str] = field(default_factory=dict)
    reason: str = ""

    @property
    def words(self) -> list[str]:
        """What to tell of it."""
        told = [f"Not run: {name}: {reason}" for name, reason in self.not_run.items()]
        if len(told) > 2:  # most often for the same reason
            told = [f"Not run: {', '.join(self.not_run)}; the first: {told[0].split(': ', 2)[2]}"]
        return told + ([self.reason] if self.reason else [])


def run_all(options: argparse.Namespace, path: pathlib.Path, command: str) -> Ending:
    """Run what is open, and end in good order where that is cut short."""
    items, plan = items_of(options), plan_of(options)
    with RowsFile(path) as file:
        note_command(path.parent, command)
        try:
            not_run = run(items, plan, file, n_jobs=options.jobs, is_shown=not options.quiet)
            return Ending(not_run=not_run)
        except KeyboardInterrupt:
            return Ending(130, reason=INTERRUPTED)
        except LostWorkersError as error:
            return Ending(1, reason=f"Error: {error}")


def note_command(folder: pathlib.Path, command: str) -> None:
    """Keep the commands that have made the rows: the report tells them."""
    path = folder / "commands.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    if command not in lines:
        write_text(path, "\n".join([*lines, command, ""]))


def read_commands(folder: pathlib.Path) -> str:
    """The commands that have made the rows, in one line."""
    path = folder / "commands.txt"
    return "; ".join(path.read_text().splitlines()) if path.exists() else ""


def of_protocol(rows: pd.DataFrame, options: argparse.Namespace) -> pd.DataFrame:
    """Rows of the protocol that is asked for: figures of different ones are not comparable.

    Of a data set whose content has changed, the newest counts; so it is with the settings of our
    own defaults.
    """
    training = plan_of(options).training
    params = {
        method: newest_params(rows, method) if method in OWN else params_text(method, training)
        for method in rows["method"].unique()
    }
    is_wanted = rows["splits"].str.startswith(options.splits)
    is_wanted &= rows["params"] == rows["method"].map(params)
    newest = rows[is_wanted].groupby(["dataset", "splits"])["data"].last()
    names = pd.MultiIndex.from_frame(rows[["dataset", "splits"]])
    is_wanted &= newest.reindex(names).to_numpy() == rows["data"].to_numpy()
    n_others = int((~is_wanted).sum())
    if n_others:
        print(
            f"Note: {n_others} rows of other splits, numbers of epochs or contents of a data set, "
            f"or of older defaults, are not part of this report.",
            file=sys.stderr,
        )
    return rows[is_wanted].reset_index(drop=True)


def newest_params(rows: pd.DataFrame, method: str) -> str:
    """What a method of ours was run with last: a report of old rows tells of what they are."""
    return rows.loc[rows["method"] == method, "params"].iloc[-1]


def publish_rows(options: argparse.Namespace, rows: pd.DataFrame, folder: pathlib.Path) -> int:
    """Send the chosen configurations of all methods to the OpenML server."""
    from benchmarks._tabular.publish import publish

    sent = publish(choose(rows), rows, server=options.server, ledger=folder / "published.csv")
    return 0 if sent.is_complete else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, run, and end with a sentence where something is wrong."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = parser().parse_args(given)
    command = shlex.join(["python", "-m", "benchmarks.tabular", *given])

    def work() -> int:
        check(options)
        return run_and_report(options, command)

    return end_in_order(work)


if __name__ == "__main__":
    sys.exit(main())
