"""What was sent to which server: a file that is only ever added to, by one process at a time.

Before a run is sent, a line says so; after the answer, another one says what became of it. Of the
lines about one run the last one counts. A line that says "sending" and has no successor is a run
whose answer was lost: the server may have it or not, and its ticket finds out.
"""

import csv
import io
import os
import pathlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from filelock import FileLock, Timeout

COLUMNS = (
    *("time", "server", "task_id", "dataset", "method", "params"),
    *("state", "ticket", "flow_id", "run_id", "note"),
)
# What makes a run this run.
KEY = ("server", "task_id", "params")

Entry = dict[str, str]


def key_of(values: Mapping[str, Any]) -> tuple[str, ...]:
    """What makes a run this run, as text.

    Examples
    --------
    >>> key_of({"server": "here", "task_id": 59, "params": "{}", "state": "sending"})
    ('here', '59', '{}')
    """
    return tuple(str(values[name]) for name in KEY)


class Ledger:
    """A ledger that is open for adding, and locked against other processes meanwhile.

    Use it in a ``with`` statement.

    Parameters
    ----------
    path : pathlib.Path
        The file; it and its folder are made if they are not there.
    """

    def __init__(self, path: pathlib.Path):
        self.path = path
        self._lock = FileLock(path.with_suffix(path.suffix + ".lock"))
        self._last: dict[tuple[str, ...], Entry] = {}

    def __enter__(self) -> "Ledger":
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise ValueError(
                f"Got the ledger {self.path}, which another process is writing to, but expected "
                f"to be alone: wait until that one has published."
            ) from None
        try:
            self._last = {key_of(entry): entry for entry in self._read()}
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        self._lock.release()

    def last(self, values: Mapping[str, Any]) -> Entry | None:
        """The last line about a run, or None."""
        return self._last.get(key_of(values))

    def add(self, **values: Any) -> None:
        """Write a line and wait until it is on the disk."""
        values = {"time": datetime.now(UTC).isoformat(timespec="seconds")} | values
        entry = {name: " ".join(str(values.get(name, "")).split()) for name in COLUMNS}
        self._write(list(entry.values()))
        self._last[key_of(entry)] = entry

    def _write(self, fields: list[str]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(fields)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text.getvalue())
            file.flush()
            os.fsync(file.fileno())

    def _read(self) -> list[Entry]:
        """All lines; a torn last one, which a killed process has left, is cut off."""
        data = self.path.read_bytes() if self.path.exists() else b""
        end = data.rfind(b"\n") + 1
        if end < len(data):
            os.truncate(self.path, end)
        lines = list(csv.reader(data[:end].decode("utf-8", errors="replace").splitlines()))
        if not lines:
            self._write(list(COLUMNS))
            return []
        if lines[0] != list(COLUMNS) or any(len(fields) != len(COLUMNS) for fields in lines):
            raise ValueError(
                f"Got {self.path}, which is no ledger of this program, but expected the columns "
                f"{', '.join(COLUMNS)} in each line: mend it, since without it runs would be sent "
                f"twice."
            )
        return [dict(zip(COLUMNS, fields, strict=True)) for fields in lines[1:]]
