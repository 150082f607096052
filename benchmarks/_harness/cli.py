"""What the command lines share: option types, common options and exit status."""

import argparse
import pathlib
import sys
import warnings
from collections.abc import Callable

from benchmarks._harness.report_tables import printable_lines
from benchmarks._harness.runner import LostWorkersError

INTERRUPTED = "Interrupted: all finished fits are saved; the same command resumes the run."


def positive_int(text: str) -> int:
    """Read an integer of at least one: a type for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}, but expected an integer >= 1")
    return int(text)


def add_run_options(
    group: argparse._ActionsContainer, *, output: str, docs: str | None = None
) -> None:
    """Add the options of every command that runs fits and reports on their rows."""
    words = "processes, one thread each (2)"
    group.add_argument("--jobs", type=positive_int, default=2, help=words)
    group.add_argument("--output", type=pathlib.Path, metavar="DIR", help=output)
    group.add_argument("--retry-failed", action="store_true", help="run failed fits again")
    words = "run nothing, report on existing rows"
    group.add_argument("--report-only", action="store_true", help=words)
    if docs is not None:
        group.add_argument("--docs", action="store_true", help=f"write the tables into {docs}")
    group.add_argument("--quiet", action="store_true", help="no progress bar")


def run_command(work: Callable[[], int | None]) -> int:
    """Do the work of a command and return its exit status; warnings are printed as notes."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: _print_error(f"Note: {message}")
        try:
            return work() or 0
        except KeyboardInterrupt:
            _print_error(INTERRUPTED)
            return 130
        except LostWorkersError as error:
            _print_error(f"Error: {error}")
            return 1
        except (ValueError, OSError, ImportError) as error:
            _print_error(f"Error: {error}")
            return 2


def _print_error(text: str) -> None:
    print(printable_lines(text), file=sys.stderr)
