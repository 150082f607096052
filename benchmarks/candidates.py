"""The study behind the defaults: ``python -m benchmarks.candidates [--phase ablation]``.

Every candidate of ``benchmarks/_candidates/settings.py`` is fitted on every data set and split, by
the splits, the rows and the processes of the tabular benchmark. The phase ``choose`` prints
validation scores and nothing else: test scores go to a file of their own, ``test.csv``, which this
phase never reads. When the defaults are settled, the phase ``ablation`` runs them, and the same
without one ingredient each time, and prints test scores.
"""

import argparse
import pathlib
import sys
from collections.abc import Mapping, Sequence

from benchmarks._candidates import page
from benchmarks._candidates.fits import Study
from benchmarks._candidates.rows import TEST, VALID, TwoFiles
from benchmarks._candidates.settings import CANDIDATES, ablation_settings, candidate_settings
from benchmarks._candidates.tables import ablation_sheet, as_text, choose_sheet
from benchmarks._tabular.command import end_in_order
from benchmarks._tabular.options import add_data, check_data, positive
from benchmarks._tabular.own import Settings
from benchmarks._tabular.rows import read_rows
from benchmarks._tabular.running import run
from benchmarks.tabular import items_of

RESULTS = pathlib.Path(__file__).parent / "results" / "tables"
# Of the paper's fifteen, those with more than 50,000 rows: hours for each candidate.
LARGE = ("mnist_784", "volkert")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.candidates", description=(__doc__ or "").splitlines()[0]
    )
    add_data(made.add_argument_group("data"))
    group = made.add_argument_group("study")
    group.add_argument(
        "--phase",
        choices=("choose", "ablation"),
        default="choose",
        help="candidates by validation scores (default), or the defaults by test scores",
    )
    group.add_argument(
        "--candidates",
        nargs="+",
        metavar="NAME",
        help=f"choose: some of {', '.join(CANDIDATES)} (default: all)",
    )
    group.add_argument("--seeds", type=positive, default=5, help="splits, with a seed each (5)")
    group = made.add_argument_group("running")
    group.add_argument("--jobs", type=positive, default=2, help="processes, one thread each (2)")
    group.add_argument(
        "--output",
        type=pathlib.Path,
        metavar="DIR",
        help="folder of the rows (openml: benchmarks/results/tables, else build/candidates)",
    )
    group.add_argument("--retry-failed", action="store_true", help="run failed fits again")
    group.add_argument("--report-only", action="store_true", help="run nothing, print the table")
    group.add_argument("--docs", action="store_true", help="write the table into docs/tables.md")
    group.add_argument("--quiet", action="store_true", help="no progress bar")
    return made


def settings_of(options: argparse.Namespace) -> dict[str, Settings]:
    """What is to be run, by name."""
    if options.phase == "ablation":
        if options.candidates:
            raise ValueError("Got --candidates, but expected it with --phase choose only.")
        return ablation_settings()
    known = candidate_settings()
    for name in options.candidates or ():
        if name not in known:
            raise ValueError(f"Got candidate {name!r}, but expected one of {', '.join(known)}.")
    return {name: known[name] for name in options.candidates or known}


def folder_of(options: argparse.Namespace) -> pathlib.Path:
    """Where the rows are; those of the paper's data sets are kept, others are not."""
    if options.output is not None:
        return options.output
    if options.source == "openml" and not options.csv:
        return RESULTS
    return pathlib.Path("build") / "candidates" / (options.csv.stem if options.csv else "embedded")


def run_open(options: argparse.Namespace, settings: Mapping[str, Settings]) -> dict[str, str]:
    """Run the fits that the rows do not have yet: data sets that could not be loaded, and why."""
    items = [item for item in items_of(options) if item.name not in LARGE]
    study = Study(settings, options.seeds, options.retry_failed)
    with TwoFiles(folder_of(options)) as files:
        return run(items, study, files, n_jobs=options.jobs, is_shown=not options.quiet)


def make_table(
    folder: pathlib.Path, phase: str, settings: Mapping[str, Settings], n_splits: int
) -> str:
    """The table of a phase in Markdown; only that of the ablation reads test scores."""
    params = {name: one.unlike_paper() for name, one in settings.items()}
    if not (folder / "rows.csv").exists():
        return as_text(None)
    rows = read_rows(folder / "rows.csv", VALID)
    if phase == "choose":
        return as_text(choose_sheet(rows, params, n_splits))
    test = read_rows(folder / "test.csv", TEST)
    return as_text(ablation_sheet(rows, test, params, n_splits))


def run_and_print(options: argparse.Namespace) -> int:
    """Run what is open, print the table, and write it into the page if that is asked for."""
    settings, folder = settings_of(options), folder_of(options)
    not_run = {} if options.report_only else run_open(options, settings)
    table = make_table(folder, options.phase, settings, options.seeds)
    print(table)
    for name, reason in not_run.items():
        print(f"Not run: {name}: {reason}", file=sys.stderr)
    _tell_failed(folder)
    if options.docs:
        page.write(options.phase, table)
    return 0


def _tell_failed(folder: pathlib.Path) -> None:
    path = folder / "rows.csv"
    errors = read_rows(path, VALID)["error"] if path.exists() else []
    failed = [text for text in errors if text]
    if failed:
        print(f"{len(failed)} of {len(errors)} fits failed, such as: {failed[0]}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, run, and end with a sentence where something is wrong."""
    options = parser().parse_args(arguments)

    def work() -> int:
        check_data(options)
        return run_and_print(options)

    return end_in_order(work)


if __name__ == "__main__":
    sys.exit(main())
