"""How a benchmark's command ends: its exit status, and one sentence where something is wrong."""

import sys
import warnings
from collections.abc import Callable

from benchmarks._tabular.escaping import printable_lines
from benchmarks._tabular.workers import LostWorkersError

INTERRUPTED = "Interrupted: nothing that was finished is lost; the same command goes on."


def end_in_order(work: Callable[[], int]) -> int:
    """Do the work of a command: its exit status, or that of what went wrong.

    Warnings are told as notes. An interrupt ends with 130, lost processes with 1, and options or
    files that are wrong with 2.

    Examples
    --------
    >>> end_in_order(lambda: 0)
    0
    """
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: _tell(f"Note: {message}")
        try:
            return work()
        except KeyboardInterrupt:
            _tell(INTERRUPTED)
            return 130
        except LostWorkersError as error:
            _tell(f"Error: {error}")
            return 1
        except (ValueError, OSError, ImportError) as error:
            _tell(f"Error: {error}")
            return 2


def _tell(text: str) -> None:
    print(printable_lines(text), file=sys.stderr)
