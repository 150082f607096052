"""Files of results: an append-only CSV file with one row per fit, and a JSON file of named parts.

Readers skip the incomplete last line of a killed process, and the next writer removes it.
"""

import csv
import io
import json
import os
import pathlib
import warnings
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Self

import pandas as pd
from filelock import FileLock, Timeout

from benchmarks._harness.report_tables import printable
from mixupe_sklearn._utils.atomic_files import replacing, sync_folder

Key = tuple[str, ...]
Results = dict[str, Any]
# The last column of a file, with a checksum of the rest of the line. Files of older versions have
# none, and stay as they are.
CHECKSUM = "checksum"


def write_text(path: pathlib.Path, text: str) -> pathlib.Path:
    """Replace a file atomically; create its folder if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(text.encode())
    return path


class Schema(NamedTuple):
    """The columns of a CSV results file: all, those of text, and those that identify a fit."""

    columns: tuple[str, ...]
    texts: frozenset[str]
    key: tuple[str, ...] = ()

    @property
    def numbers(self) -> list[str]:
        """Columns that hold numbers."""
        return [name for name in self.columns if name not in self.texts]

    def key_of(self, row: Mapping[str, Any]) -> Key:
        """Return what identifies a fit, as text; equal numbers give equal text."""
        return tuple(_normalized(row[name], name in self.texts) for name in self.key)

    def as_line(self, row: Mapping[str, Any]) -> str:
        """Return a row as a line of CSV; control characters and line breaks become blanks."""
        unknown = set(row) - set(self.columns)
        if unknown:
            raise ValueError(
                f"Got a row with {sorted(unknown)}, but expected columns of {self.columns}."
            )
        values = [row.get(name) for name in self.columns]
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(
            [printable(value) if isinstance(value, str) else value for value in values]
        )
        return text.getvalue()


def _normalized(value: Any, is_text: bool) -> str:
    text = "" if value is None else printable(str(value))
    if not is_text:
        with suppress(ValueError):
            return str(float(text))
    return text


def _checksum(line: str) -> str:
    return f"{zlib.crc32(line.encode()):08x}"


def complete_lines(path: pathlib.Path, columns: Sequence[str]) -> tuple[list[str], int]:
    """Return the checked lines of a file, without an incomplete last one, and their bytes.

    The checksums of rows are checked and left out.
    """
    data = path.read_bytes()
    end = data.rfind(b"\n") + 1
    lines = data[:end].decode(errors="replace").splitlines()
    if lines and lines[0].split(",") not in ([*columns], [*columns, CHECKSUM]):
        raise ValueError(
            f"Got {path} with the columns {lines[0][:60]!r}..., but expected those of this "
            f"version, separated by commas: restore the file as the benchmark wrote it, or choose "
            f"another folder for the output."
        )
    if lines and len(lines[0].split(",")) > len(columns):
        pairs = [line.rpartition(",") for line in lines]
        lines = [line for line, _, _ in pairs]
        for number, (line, _, checksum) in enumerate(pairs[1:], start=2):
            if checksum != _checksum(line):
                raise ValueError(
                    f"Got line {number} of {path}, which does not match its checksum, but expected "
                    f"it as the benchmark wrote it: delete that line, and its fit is run again."
                )
    for number, line in enumerate(lines, start=1):
        try:
            fields = next(csv.reader([line], strict=True), [])
        except csv.Error as error:  # a long field, or a quotation mark without its partner
            raise ValueError(
                f"Got line {number} of {path} with a damaged field ({error}), but expected it as "
                f"the benchmark wrote it: delete that line, and its fit is run again."
            ) from error
        if len(fields) != len(columns):
            raise ValueError(
                f"Got line {number} of {path} with {len(fields)} values, but expected "
                f"{len(columns)}: delete that line, and its fit is run again."
            )
    return lines, end


def read_rows(path: pathlib.Path, schema: Schema) -> pd.DataFrame:
    """Return all complete rows; of rows with equal keys the last, which replaces a failed fit."""
    lines = complete_lines(path, schema.columns)[0] or [",".join(schema.columns)]
    text = io.StringIO("\n".join(lines) + "\n")
    missing = {name: [""] for name in schema.numbers}
    types = dict.fromkeys(schema.texts, str)
    try:
        rows = pd.read_csv(text, dtype=types, keep_default_na=False, na_values=missing)
        rows[schema.numbers] = rows[schema.numbers].apply(pd.to_numeric)
    except ValueError as error:
        raise ValueError(
            f"Got {path} with a value that is not a number ({error}), but expected numbers: "
            f"delete that line, and its fit is run again."
        ) from error
    if not schema.key:
        return rows
    return rows.drop_duplicates(list(schema.key), keep="last", ignore_index=True)


class ResultsFile:
    """A CSV file open for appending and, in ``with``, locked against other processes."""

    def __init__(self, path: pathlib.Path, schema: Schema, timeout: float = 0):
        self.path = path
        self.schema = schema
        self.timeout = timeout
        self._lock = FileLock(path.with_suffix(".lock"))

    def __enter__(self) -> Self:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=self.timeout)
        except Timeout:
            raise ValueError(
                f"Got the output folder {self.path.parent}, to which another run is writing, but "
                f"expected one of its own: wait for that run, or choose another folder."
            ) from None
        except OSError as error:
            raise OSError(
                f"Got the output folder {self.path.parent}, but expected one that can be written "
                f"to ({error.strerror})."
            ) from error
        try:
            self._remove_incomplete_line()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        self._lock.release()

    def _remove_incomplete_line(self) -> None:
        if not self.path.exists():
            return
        _, end = complete_lines(self.path, self.schema.columns)
        n_bytes = self.path.stat().st_size - end
        if n_bytes:
            warnings.warn(
                f"{self.path} ended in the middle of a row: {n_bytes} bytes are removed, and their "
                f"fit is run again.",
                stacklevel=4,
            )
            os.truncate(self.path, end)

    def _has_checksums(self) -> bool:
        """Whether the rows of this file end with a checksum."""
        with self.path.open("rb") as file:
            return file.readline().rstrip().endswith(f",{CHECKSUM}".encode())

    def lines(self) -> list[str]:
        """Return all complete lines with the header; none before the first write."""
        if not self.path.exists():
            return []
        return complete_lines(self.path, self.schema.columns)[0]

    def keys(self, *, with_failed: bool = True) -> set[Key]:
        """Return the keys of the fits in the file; the last row of a key counts."""
        rows = {self.schema.key_of(row): row for row in csv.DictReader(self.lines())}
        return {key for key, row in rows.items() if with_failed or not row["error"]}

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append rows, all or none, and wait until they are on the disk."""
        lines = [self.schema.as_line(row).rstrip("\n") for row in rows]
        with self.path.open("ab", buffering=0) as file:
            size = file.tell()
            # If somebody removed the file during the run, the new one starts with a header.
            head = [] if size else [",".join((*self.schema.columns, CHECKSUM))]
            if head or self._has_checksums():
                lines = [f"{line},{_checksum(line)}" for line in lines]
            data = "".join(f"{line}\n" for line in head + lines).encode()
            try:
                if file.write(data) != len(data):
                    raise OSError("the disk took only a part of it")
                os.fsync(file.fileno())
                if not size:  # the name of a new file needs a sync of its own
                    sync_folder(self.path.parent)
            except OSError as error:
                file.truncate(size)
                raise OSError(
                    f"Got no room for a row in {self.path} ({error}), but expected a disk with "
                    f"space: all earlier rows are safe, and the same command resumes the run."
                ) from error


class JsonResults:
    """A JSON file with a run and its parts, which an equal run measures only ``again`` if named."""

    def __init__(
        self, path: pathlib.Path, run: Results, is_fresh: bool = False, again: Sequence[str] = ()
    ):
        self.path = path
        self.run = run
        kept = read_json_results(path) if path.exists() and not is_fresh else {}
        known: Results = kept.get("parts", {})
        unknown = [name for name in again if name not in known]
        if unknown:
            raise ValueError(
                f"Got --again {unknown[0]}, but expected parts that are in the file: "
                f"{', '.join(known) or 'it has none'}."
            )
        if again:
            # The code or the processor may have changed since.
            now = {"source": run["source"], "processor": run["machine"]["processor"]}
            later = {**kept["run"].get("again", {}), **dict.fromkeys(again, now)}
            self.run = {**kept["run"], "again": later}
            self.parts = {name: part for name, part in known.items() if name not in again}
        else:
            self.parts = known if kept.get("run") == run else {}

    def part(self, name: str, measure: Callable[[], Results]) -> Results:
        """Return a part by name; measure and write it if the file does not have it."""
        if name not in self.parts:
            self.parts[name] = measure()
            # One line per part, so that a person can compare two files.
            lines = (f"{json.dumps(own)}: {json.dumps(part)}" for own, part in self.parts.items())
            parts = ",\n".join(lines)
            write_text(self.path, f'{{"run": {json.dumps(self.run)},\n"parts": {{\n{parts}}}}}\n')
        return self.parts[name]


def read_json_results(path: pathlib.Path) -> Results:
    """Return the run and the parts of a JSON results file."""
    try:
        results = json.loads(path.read_text())
    except ValueError:
        results = None
    if not isinstance(results, dict) or not {"run", "parts"} <= set(results):
        raise ValueError(
            f"Got {path.name} without run and parts, but expected results of an earlier run; "
            f"--fresh measures again."
        )
    return results


def as_json(value: Any) -> str:
    """Return JSON in one line, equal for equal values; a sequence is a list, a class its name."""
    return json.dumps(
        value, sort_keys=True, default=lambda one: getattr(one, "__name__", repr(one))
    )


def rounded(value: float, digits: int = 6) -> float:
    """Round to some significant digits, so that rows stay small."""
    return float(f"{value:.{digits}g}")


def one_line(error: BaseException) -> str:
    """Return an error as a row records it."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:500]
