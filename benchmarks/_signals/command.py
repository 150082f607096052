"""What the commands for images and speech do: run what is open, make the report, print it."""

import argparse
from collections.abc import Callable, Sequence

from benchmarks._signals import timing
from benchmarks._signals.data import Signals, load_pictures, load_sounds
from benchmarks._signals.fits import Config
from benchmarks._signals.options import check, folder_of, resolve, study_of, training_of
from benchmarks._signals.report import WIDTH, Report, make_report, write_page
from benchmarks._signals.rows import SIGNALS
from benchmarks._tabular.command import end_in_order
from benchmarks._tabular.report.formats import as_terminal
from benchmarks._tabular.rows import RowsFile
from benchmarks._tabular.running import Item, run


def load(options: argparse.Namespace) -> Signals:
    """The data that are asked for."""
    if options.kind == "speech":
        return load_sounds(options.data)
    return load_pictures(options.data, options.layout)


def run_open(options: argparse.Namespace, configs: Sequence[Config]) -> None:
    """Run the fits that the rows do not have yet."""
    study, table = study_of(options, configs), load(options)
    with RowsFile(folder_of(options) / "rows.csv", SIGNALS) as file:
        items = [Item(table.name, lambda: table)]
        run(items, study, file, n_jobs=options.jobs, is_shown=not options.quiet)


def time_epochs(options: argparse.Namespace) -> int:
    """Measure what an epoch of MixupE takes of one of Mixup, keep it, and print it."""
    results = timing.measure(
        load(options),
        options.networks,
        training_of(options),
        options.timing,
        alpha=options.alpha,
        eta=options.eta,
    )
    path = folder_of(options) / "timing.json"
    timing.write(results, path)
    sheet = timing.sheet_of(results)
    print(f"{sheet.caption}\n\n{as_terminal(sheet, WIDTH)}\n\nTimes:  {path}")
    return 0


def run_and_report(
    options: argparse.Namespace,
    configs: Callable[[argparse.Namespace], Sequence[Config]],
    report: Report,
) -> int:
    """Run what is open, make the report of all rows and print it: the exit status."""

    def work() -> int:
        check(options)
        resolve(options)
        if options.timing is not None:
            return time_epochs(options)
        if not options.report_only:
            run_open(options, configs(options))
        print(make_report(report, folder_of(options)))
        if options.docs:
            write_page(report, folder_of(options), options.kind)
        return 0

    return end_in_order(work)
