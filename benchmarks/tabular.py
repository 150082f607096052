"""Reproduce the paper's table of tabular datasets: ``python -m benchmarks.tabular``.

The datasets are those of scikit-learn (default), OpenML tasks (``--source openml``: the paper's
fifteen) or your own (``--csv FILE --target COLUMN``). Each fit is a row of ``rows.csv``, from which
the report is made. With ``--tune optuna`` each study is a row of ``tuned.csv``: our search against
other libraries with the same budget. If a run ends early, the same command resumes it.
"""

import argparse
import pathlib
import shlex
import sys
from collections.abc import Callable, Sequence
from functools import partial

import pandas as pd

from benchmarks._harness.cli import INTERRUPTED, run_command
from benchmarks._harness.docs_tables import write_block
from benchmarks._harness.environment import ROOT
from benchmarks._harness.report_tables import printable
from benchmarks._harness.results_file import ResultsFile, read_rows, write_text
from benchmarks._harness.runner import Item, LostWorkersError, Plan, run
from benchmarks._tabular.baselines import check_baselines
from benchmarks._tabular.fits import TabularPlan
from benchmarks._tabular.methods import OWN
from benchmarks._tabular.options import (
    budget_of,
    check,
    folder_of,
    own_methods_of,
    parser,
    storage_of,
)
from benchmarks._tabular.protocol import FITS, TRAINING, params_text
from benchmarks._tabular.report import make_report
from benchmarks._tabular.tuning import (
    TUNED,
    TuningPlan,
    check_tunable,
    create_storage,
    without_password,
)
from mixupe_sklearn.datasets import EMBEDDED, load_embedded, read_csv

PAGE = ROOT / "docs" / "benchmarks" / "tuned.md"


def items_of(options: argparse.Namespace) -> list[Item]:
    """Return the requested datasets."""
    if options.csv is not None:
        # Read once: the file may change during a run.
        table = read_csv(options.csv, options.target, name=options.csv_name)
        return [Item(table.name, lambda: table)]
    if options.source == "embedded":
        return [Item(name, partial(load_embedded, name)) for name in options.names or EMBEDDED]
    return _openml_items(options)


def _openml_items(options: argparse.Namespace) -> list[Item]:
    """Return the requested datasets of OpenML: the paper's unless others are named."""
    from mixupe_sklearn.datasets import openml

    how = {name: getattr(options, name) for name in ("cache_dir", "offline", "timeout")}
    loaders: dict[str, Callable] = {"task": openml.load_task, "dataset": openml.load_dataset}

    def item(kind: str, number: int, name: str = "", *, is_required: bool = True) -> Item:
        return Item(name or f"{kind} {number}", partial(loaders[kind], number, **how), is_required)

    items = [item("task", number) for number in options.tasks or ()]
    items += [item("dataset", number) for number in options.datasets or ()]
    if options.suite is not None:
        numbers = openml.tasks_of_suite(options.suite, **how)
        items += [item("task", number, is_required=False) for number in numbers]
    return items or [
        item(one.kind, one.number, name, is_required=False)
        for name, one in openml.PAPER_TASKS.items()
    ]


def plan_of(options: argparse.Namespace) -> TabularPlan:
    """Return what is run on each dataset."""
    methods = list(dict.fromkeys(options.methods))
    if options.baselines is not None:
        methods += [name for name in check_baselines(options.baselines) if name not in methods]
    if not methods:
        raise ValueError("Got --methods without names, but expected some, or --baselines.")
    training = TRAINING | {"max_epochs": options.epochs}
    return TabularPlan(
        methods, options.grid, options.splits, options.seeds or 5, training, options.retry_failed
    )


def tuning_plan_of(options: argparse.Namespace) -> TuningPlan:
    """Return what is tuned on each dataset."""
    baselines = ["hist-gradient-boosting"] if options.baselines is None else options.baselines
    return TuningPlan(
        tuned=own_methods_of(options) + check_tunable(baselines),
        budget=budget_of(options),
        storage=storage_of(options),
        splits=options.splits,
        n_seeds=options.seeds or 1,
        retry_failed=options.retry_failed,
    )


def run_and_report(options: argparse.Namespace, command: str) -> int:
    """Run all open fits or studies, report on all rows, and return the exit status."""
    folder = folder_of(options)
    path = folder / ("tuned.csv" if options.tune else "rows.csv")
    if options.report_only and not path.exists():
        raise ValueError(f"Got --report-only, but found no {path}: run without it first.")
    nothing: tuple[int, dict[str, str], list[str]] = (0, {}, [])
    status, not_run, messages = nothing if options.report_only else run_all(options, path, command)
    rows, studies = read_fits(options, folder), read_studies(options, folder)
    ours = studies if options.tune else rows
    if ours.empty:
        messages.insert(0, "There are no rows to report on.")
        status = status or 1
    else:
        commands = read_commands(folder) or command
        report = make_report(rows, folder, tuned=studies, command=commands, not_run=not_run)
        print(f"\n{report.terminal}\n\nRows:   {path}\nReport: {report.html}")
        if options.docs:
            write_block(PAGE, "tuned", docs_tables(report.markdown))
        failed = ours[ours["error"] != ""]
        if len(failed):
            example = printable(failed["error"].iloc[0])
            what = "studies" if options.tune else "fits"
            print(f"{len(failed)} of {len(ours)} {what} failed, such as: {example}")
        status = status or int(len(failed) == len(ours))
    for line in messages:
        print(printable(line), file=sys.stderr)
    return status


def read_fits(options: argparse.Namespace, folder: pathlib.Path) -> pd.DataFrame:
    """Return the rows of fits by the requested protocol; none if there is no file."""
    path = folder / "rows.csv"
    if not path.exists():
        return pd.DataFrame()
    rows = read_rows(path, FITS)
    return of_protocol(rows, options) if len(rows) else rows


def read_studies(options: argparse.Namespace, folder: pathlib.Path) -> pd.DataFrame:
    """Return the newest row of each study with the requested budget, or with the last one."""
    path = folder / "tuned.csv"
    rows = read_rows(path, TUNED) if path.exists() else pd.DataFrame()
    if rows.empty:
        return rows
    budget = str(budget_of(options)) if options.tune else rows["budget"].iloc[-1]
    names = ["dataset", "splits", "split", "method"]
    found = rows[rows["budget"] == budget].drop_duplicates(names, keep="last", ignore_index=True)
    if len(found) < len(rows):
        n_others = len(rows) - len(found)
        print(
            f"Note: {n_others} rows of studies with other budgets, spaces or contents of a "
            f"dataset are not part of this report.",
            file=sys.stderr,
        )
    return found


def docs_tables(report: pathlib.Path) -> str:
    """Return what the page shows of a report: tuned errors, gains, ranks and importances."""
    text = report.read_text()
    titles = ("Tuned by Optuna", "Ranks of the tuned methods", "What mattered")
    parts = [text.split(f"## {title}\n\n")[1] for title in titles if f"## {title}\n\n" in text]
    return "\n\n".join(part.split("\n## ")[0].strip() for part in parts)


def run_all(
    options: argparse.Namespace, path: pathlib.Path, command: str
) -> tuple[int, dict[str, str], list[str]]:
    """Run all open fits; return the status, the datasets that were not run, and messages."""
    items = items_of(options)
    plan: Plan = tuning_plan_of(options) if options.tune else plan_of(options)
    settings = {"n_jobs": options.jobs, "is_shown": not options.quiet, "dask": options.dask}
    with ResultsFile(path, TUNED if options.tune else FITS) as file:
        if options.tune:
            create_storage(storage_of(options))
        record_command(path.parent, command)
        try:
            not_run = run(items, plan, file, **settings)
        except KeyboardInterrupt:
            return 130, {}, [INTERRUPTED]
        except LostWorkersError as error:
            return 1, {}, [f"Error: {error}"]
    if len(not_run) > 2:  # most often for the same reason
        first = next(iter(not_run.values()))
        return 0, not_run, [f"Not run: {', '.join(not_run)}; the first: {first}"]
    return 0, not_run, [f"Not run: {name}: {reason}" for name, reason in not_run.items()]


def record_command(folder: pathlib.Path, command: str) -> None:
    """Add a command to the list of those that made the rows, which the report prints."""
    path = folder / "commands.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    if command not in lines:
        write_text(path, "\n".join([*lines, command, ""]))


def read_commands(folder: pathlib.Path) -> str:
    """Return the commands that made the rows, in one line."""
    path = folder / "commands.txt"
    return "; ".join(path.read_text().splitlines()) if path.exists() else ""


def of_protocol(rows: pd.DataFrame, options: argparse.Namespace) -> pd.DataFrame:
    """Return rows of the requested protocol; of changed datasets and defaults the newest."""
    training = plan_of(options).training
    params = {
        method: own["params"].iloc[-1] if method in OWN else params_text(str(method), training)
        for method, own in rows.groupby("method")
    }
    is_wanted = rows["splits"].str.startswith(options.splits)
    is_wanted &= rows["params"] == rows["method"].map(params)
    newest = rows[is_wanted].groupby(["dataset", "splits"])["data"].last()
    names = pd.MultiIndex.from_frame(rows[["dataset", "splits"]])
    is_wanted &= newest.reindex(names).to_numpy() == rows["data"].to_numpy()
    n_others = int((~is_wanted).sum())
    if n_others:
        print(
            f"Note: {n_others} rows of other splits, numbers of epochs or contents of a dataset, "
            f"or of older defaults, are not part of this report.",
            file=sys.stderr,
        )
    return rows[is_wanted].reset_index(drop=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = parser().parse_args(given)
    # The command is part of the report.
    command = shlex.join(["python", "-m", "benchmarks.tabular", *map(without_password, given)])

    def work() -> int:
        check(options)
        return run_and_report(options, command)

    return run_command(work)


if __name__ == "__main__":
    sys.exit(main())
