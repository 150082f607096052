"""The file of results: one line a fit, only ever added to, by one run at a time.

A line is written whole or not at all as far as a reader can tell: a run that was killed in the
middle of one leaves a torn last line, which the next run cuts off.
"""

import csv
import io
import os
import pathlib
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd
from filelock import FileLock, Timeout

KEY = ("dataset", "data", "splits", "split", "seed", "method", "alpha", "eta", "params")
COLUMNS = (
    *("source", "dataset", "task_id", "data_id", "data", "n_rows", "n_features", "n_classes"),
    *("splits", "split", "seed", "method", "alpha", "eta", "params", "grid"),
    *("valid_error", "test_error", "valid_log_loss", "test_log_loss"),
    *("test_balanced_accuracy", "test_ece", "fit_seconds", "predict_seconds", "n_together"),
    *("train_losses", "test_losses", "error", "versions", "commit", "run"),
)
# Read as they are: a name such as "NA" or "7" stays what it is.
AS_TEXT = dict.fromkeys(
    ("source", "dataset", "data", "splits", "method", "params", "grid", "train_losses"), str
) | dict.fromkeys(("test_losses", "error", "versions", "commit", "run"), str)

Key = tuple[str, ...]


def key_of(row: Mapping[str, Any]) -> Key:
    """What makes a fit this fit, as text.

    Examples
    --------
    >>> row = dict.fromkeys(KEY, "x") | {"split": 0, "alpha": 0.5, "eta": None}
    >>> key_of(row)
    ('x', 'x', 'x', '0', 'x', 'x', '0.5', '', 'x')
    """
    return tuple("" if row[name] is None else " ".join(str(row[name]).split()) for name in KEY)


def as_line(row: Mapping[str, Any]) -> str:
    """A row as a line of CSV; line breaks within a value become blanks."""
    unknown = set(row) - set(COLUMNS)
    if unknown:
        raise ValueError(f"Got a row with {sorted(unknown)}, but expected columns of {COLUMNS}.")
    values = [row.get(name) for name in COLUMNS]
    one_line = [" ".join(v.split()) if isinstance(v, str) else v for v in values]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(one_line)
    return text.getvalue()


def read_rows(path: pathlib.Path) -> pd.DataFrame:
    """All rows of a file; of rows with equal keys the last one, as it replaces a failed fit.

    A torn last line is left out.
    """
    lines, _ = _whole_lines(path)
    text = "\n".join(lines) + "\n"
    frame = pd.read_csv(io.StringIO(text), dtype=AS_TEXT, keep_default_na=False, na_values=_HOLES)
    return frame.drop_duplicates(list(KEY), keep="last", ignore_index=True)


# Only numbers have holes; an empty text is an empty text.
_HOLES = {name: [""] for name in COLUMNS if name not in AS_TEXT}


def _whole_lines(path: pathlib.Path) -> tuple[list[str], int]:
    """Lines of a file that end, checked, and how many bytes they are."""
    data = path.read_bytes()
    end = data.rfind(b"\n") + 1
    lines = data[:end].decode(errors="replace").splitlines()
    if lines and lines[0].split(",") != list(COLUMNS):
        raise ValueError(
            f"Got {path} with the columns {lines[0][:60]!r}..., but expected those of this "
            f"version's rows: choose another folder for the output."
        )
    for number, fields in enumerate(csv.reader(lines), start=1):
        if len(fields) != len(COLUMNS):
            raise ValueError(
                f"Got line {number} of {path} with {len(fields)} values, but expected "
                f"{len(COLUMNS)}: delete that line, and its fit is run again."
            )
    return lines, end


class RowsFile:
    """A file of rows that is open for adding, and locked against other runs meanwhile.

    Use it in a ``with`` statement. The lock is the operating system's: it ends with the process,
    however that ends.

    Parameters
    ----------
    path : pathlib.Path
        The file; its folder is made if it is not there.
    """

    def __init__(self, path: pathlib.Path):
        self.path = path
        self._lock = FileLock(path.with_suffix(".lock"))

    def __enter__(self) -> "RowsFile":
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise ValueError(
                f"Got the output folder {self.path.parent}, in which another run is writing, but "
                f"expected one of its own: wait for that run, or choose another folder."
            ) from None
        try:
            self._mend()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        self._lock.release()

    def _mend(self) -> None:
        """Begin the file, or cut off a line that was never finished."""
        if not self.path.exists():
            self._write(",".join(COLUMNS) + "\n")
            return
        lines, end = _whole_lines(self.path)
        n_torn = self.path.stat().st_size - end
        if n_torn:
            warnings.warn(
                f"{self.path} ended in the middle of a row: {n_torn} bytes are cut off, and that "
                f"fit is run again.",
                stacklevel=3,
            )
            os.truncate(self.path, end)
        if not lines:
            self._write(",".join(COLUMNS) + "\n")

    def keys(self, *, with_failed: bool = True) -> set[Key]:
        """Keys of the fits that are there already."""
        lines, _ = _whole_lines(self.path)
        rows = {key_of(row): row for row in csv.DictReader(lines)}  # the last one of a key counts
        return {key for key, row in rows.items() if with_failed or not row["error"]}

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write rows to the disk, all or none."""
        self._write("".join(as_line(row) for row in rows))

    def _write(self, text: str) -> None:
        """Add text and wait until it is on the disk; on failure leave the file as it was."""
        with self.path.open("ab", buffering=0) as file:
            size, data = file.tell(), text.encode()
            try:
                if file.write(data) != len(data):
                    raise OSError("the disk took only a part of it")
                os.fsync(file.fileno())
            except OSError as error:
                file.truncate(size)
                raise OSError(
                    f"Got no room for a row in {self.path} ({error}), but expected a disk with "
                    f"space: all rows before it are safe, and the same command goes on."
                ) from error
