"""A CSV file that is only ever added to, by one process at a time.

A line is there whole or not at all, as far as a reader can tell: a process that was killed in the
middle of one leaves a torn last line, which the next one cuts off.
"""

import csv
import os
import pathlib
import warnings
from collections.abc import Sequence
from typing import Any

from filelock import FileLock, Timeout

from mixupe_sklearn._utils.atomic_files import sync_folder


def whole_lines(path: pathlib.Path, columns: Sequence[str]) -> tuple[list[str], int]:
    """Lines of a file that end, without their ends, checked; and how many bytes they are."""
    data = path.read_bytes()
    end = data.rfind(b"\n") + 1
    lines = data[:end].decode(errors="replace").splitlines()
    if lines and lines[0].split(",") != list(columns):
        raise ValueError(
            f"Got {path} with the columns {lines[0][:60]!r}..., but expected those of this "
            f"version, separated by commas: put back the file as the benchmark wrote it, or choose "
            f"another folder for the output."
        )
    for number, fields in enumerate(csv.reader(lines), start=1):
        if len(fields) != len(columns):
            raise ValueError(
                f"Got line {number} of {path} with {len(fields)} values, but expected "
                f"{len(columns)}: delete that line, and what it stood for is done again."
            )
    return lines, end


class AppendOnly:
    """A file that is open for adding, and locked against other processes meanwhile.

    Use it in a ``with`` statement. The lock is the operating system's: it ends with the process,
    however that ends.

    Parameters
    ----------
    path : pathlib.Path
        The file; its folder is made if it is not there.
    columns : sequence of str
        Its first line.
    patience : float, default=0
        Seconds to wait for another process that writes.
    """

    def __init__(self, path: pathlib.Path, columns: Sequence[str], patience: float = 0):
        self.path = path
        self.columns = list(columns)
        self.patience = patience
        self._lock = FileLock(path.with_suffix(".lock"))

    def __enter__(self) -> Any:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=self.patience)
        except Timeout:
            raise ValueError(
                f"Got the output folder {self.path.parent}, in which another run is writing, but "
                f"expected one of its own: wait for that run, or choose another folder."
            ) from None
        except OSError as error:
            raise OSError(
                f"Got the output folder {self.path.parent}, but expected one that can be written "
                f"to ({error.strerror})."
            ) from error
        try:
            self._mend()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        self._lock.release()

    def _mend(self) -> None:
        """Cut off a line that was never finished."""
        if not self.path.exists():
            return
        _, end = whole_lines(self.path, self.columns)
        n_torn = self.path.stat().st_size - end
        if n_torn:
            warnings.warn(
                f"{self.path} ended in the middle of a row: {n_torn} bytes are cut off, and what "
                f"they stood for is done again.",
                stacklevel=4,
            )
            os.truncate(self.path, end)

    def lines(self) -> list[str]:
        """All whole lines, the first one with the columns included; none before the first write."""
        return whole_lines(self.path, self.columns)[0] if self.path.exists() else []

    def write(self, text: str) -> None:
        """Add text and wait until it is on the disk; on failure leave the file as it was."""
        with self.path.open("ab", buffering=0) as file:
            size = file.tell()
            # Also where somebody has removed the file meanwhile: what comes now is readable.
            data = (("" if size else ",".join(self.columns) + "\n") + text).encode()
            try:
                if file.write(data) != len(data):
                    raise OSError("the disk took only a part of it")
                os.fsync(file.fileno())
                if not size:  # the name of a new file is on the disk only now
                    sync_folder(self.path.parent)
            except OSError as error:
                file.truncate(size)
                raise OSError(
                    f"Got no room for a row in {self.path} ({error}), but expected a disk with "
                    f"space: all rows before it are safe, and the same command goes on."
                ) from error
