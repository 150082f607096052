"""What was sent to which server: a file that is only ever added to, by one process at a time.

Before a run is sent, a line says so; after the answer, another one says what became of it. Of the
lines about one run the last one counts. A line that says "sending" and has no successor is a run
whose answer was lost: the server may have it or not, and its ticket finds out.
"""

import csv
import io
import pathlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from benchmarks._tabular.append_only import AppendOnly

COLUMNS = (
    *("time", "server", "task_id", "dataset", "method", "version", "params"),
    *("state", "ticket", "flow_id", "run_id", "note"),
)
# What makes a run this run; a new version of the package makes a new one.
KEY = ("server", "task_id", "version", "params")

Entry = dict[str, str]


class LedgerError(OSError):
    """A line could not be written, so that nothing more may be sent."""


def key_of(values: Mapping[str, Any]) -> tuple[str, ...]:
    """What makes a run this run, as text.

    Examples
    --------
    >>> key_of({"server": "here", "task_id": 59, "version": "1.0", "params": "{}", "note": ""})
    ('here', '59', '1.0', '{}')
    """
    return tuple(str(values[name]) for name in KEY)


class Ledger(AppendOnly):
    """A ledger that is open for adding; use it in a ``with`` statement.

    Parameters
    ----------
    path : pathlib.Path
        The file; its folder is made if it is not there.
    """

    def __init__(self, path: pathlib.Path):
        super().__init__(path, COLUMNS)

    def last(self, values: Mapping[str, Any]) -> Entry | None:
        """The last line about a run, or None."""
        entries = {key_of(entry): entry for entry in csv.DictReader(self.lines())}
        return entries.get(key_of(values))

    def add(self, **values: Any) -> None:
        """Write a line and wait until it is on the disk."""
        values = {"time": datetime.now(UTC).isoformat(timespec="seconds")} | values
        text = io.StringIO()
        fields = [" ".join(str(values.get(name, "")).split()) for name in COLUMNS]
        csv.writer(text, lineterminator="\n").writerow(fields)
        try:
            self.write(text.getvalue())
        except OSError as error:
            raise LedgerError(str(error)) from error
