"""What both commands do: run open fits, write the report and print it."""

import argparse
from collections.abc import Callable, Sequence

from benchmarks._harness.cli import run_command
from benchmarks._harness.report_tables import as_terminal
from benchmarks._harness.results_file import ResultsFile
from benchmarks._harness.runner import Item, run
from benchmarks._vision_speech import timing
from benchmarks._vision_speech.data import Dataset, load_audio, load_images
from benchmarks._vision_speech.fits import SCHEMA, Config, Study
from benchmarks._vision_speech.options import check, folder_of, resolve, training_of
from benchmarks._vision_speech.report import WIDTH, Report, make_report, write_page


def load(options: argparse.Namespace) -> Dataset:
    """The data of the command line."""
    if options.kind == "speech":
        return load_audio(options.data)
    return load_images(options.data, options.layout)


def run_open(options: argparse.Namespace, configs: Sequence[Config]) -> None:
    """Run the fits that the file does not have yet."""
    training = training_of(options)
    study = Study(options.networks, configs, training, options.seeds, options.retry_failed)
    table = load(options)
    with ResultsFile(folder_of(options) / "rows.csv", SCHEMA) as file:
        items = [Item(table.name, lambda: table)]
        run(items, study, file, n_jobs=options.jobs, is_shown=not options.quiet)


def time_epochs(options: argparse.Namespace) -> None:
    """Time epochs of MixupE and Mixup in turns, write the times and print their ratios."""
    path = folder_of(options) / "timing.json"
    results = timing.measure(
        load(options),
        options.networks,
        training_of(options),
        options.timing,
        alpha=options.alpha,
        eta=options.eta,
    )
    timing.write(results, path)
    table = timing.table_of(results)
    print(f"{table.caption}\n\n{as_terminal(table, WIDTH)}\n\nTimes:  {path}")


def run_and_report(
    options: argparse.Namespace,
    configs: Callable[[argparse.Namespace], Sequence[Config]],
    report: Report,
) -> int:
    """Run open fits, report on all rows, and return the exit status."""

    def work() -> int:
        check(options)
        resolve(options)
        if options.timing is not None:
            time_epochs(options)
            return 0
        if not options.report_only:
            run_open(options, configs(options))
        print(make_report(report, folder_of(options)))
        if options.docs:
            write_page(report, folder_of(options), options.kind)
        return 0

    return run_command(work)
