"""Read a table from a CSV file: delimiter, encoding, missing values and types are inferred."""

import csv
import difflib
import io
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype  # true for booleans, too

from mixupe_sklearn._utils.warnings import warn_user
from mixupe_sklearn.datasets._dataset import Table
from mixupe_sklearn.datasets._decompress import DAMAGED, decompressed, short_name

DELIMITERS = (",", ";", "\t", "|")
# Markers of missing values in lower case, besides those of pandas.
MISSING = ("", "na", "n/a", "nan", "null", "?", "none")
# A target with more distinct numbers is continuous. Integers often are classes.
MAX_FRACTIONS, MAX_INTEGERS = 20, 100
# Number of records used to infer the delimiter and to check for a header.
N_INSPECTED = 100
# Spreadsheets on Windows may write this above the header.
SEPARATOR = re.compile(r"""\s*"?sep=([^\r\n"])"?[ \t]*(?=[\r\n])""", re.I)
DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d*)?([eE][+-]?\d+)?")
# Only a thousands separator has another separator after three digits.
THOUSANDS = re.compile(r"\.\d{3}[.,]")
# Control characters that do not occur in text.
CONTROL = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def read_csv(path: str | os.PathLike, target: str, *, name: str | None = None) -> Table:
    r"""Read a table with classes from a text file.

    Parameters
    ----------
    path : str or path
        A file with a header line, and fields separated by commas, semicolons, tabs or bars. It may
        be compressed (``.gz``, ``.xz``, ``.bz2``, or ``.zip`` with one file in it), up to 256 MiB
        or 100 times the compressed size. The encoding is UTF-8, UTF-16 with a byte order mark, or
        else Windows-1252, with a warning. A line ``sep=;`` above the header declares the delimiter.
        Numbers may have a decimal comma if commas do not separate fields. A column with decimal
        commas and points is text, with a warning.
    target : str
        The column with the classes.
    name : str or None, default=None
        A short name. None means the name of the file.

    Returns
    -------
    table : Table
        Missing values (empty fields, ``NA``, ``N/A``, ``NaN``, ``null``, ``none``, ``?``) are NaN.
        Empty columns and rows without a class are dropped, with a warning. Classes are integers or
        text. Numbers with leading zeros (``01``) are text.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from mixupe_sklearn.datasets.files import read_csv
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "shoes.csv"
    ...     size = path.write_text("size;sold\n41,5;no\n?;no\n39;yes\n38,5;yes\n")
    ...     table = read_csv(path, target="sold")
    >>> table.name, table.X["size"].tolist(), table.y.tolist()
    ('shoes', [41.5, nan, 39.0, 38.5], ['no', 'no', 'yes', 'yes'])
    """
    path, target = Path(path), str(target).strip()
    text = _decoded(_content(path), path)
    declared = SEPARATOR.match(text)
    text = text[declared.end() :] if declared else text  # keeps the line break for line numbers
    delimiter = _delimiter(text, declared[1] if declared else DELIMITERS, target, path)
    names = _names(text, delimiter, target, path)
    written = _written(text, delimiter, names, target, path)
    frame = _read(text, delimiter, names, path)
    X, y = _split_off(frame, target, written, path)
    return Table(short_name(path) if name is None else name, X, y, "csv")


def _content(path: Path) -> bytes:
    if not path.exists():
        raise FileNotFoundError(
            f"Got path={str(path)!r}, but expected an existing file; the current folder is "
            f"{str(Path.cwd())!r}."
        )
    if path.is_dir():
        raise IsADirectoryError(f"Got path={str(path)!r}, a folder, but expected a file in it.")
    try:
        return decompressed(path)
    except DAMAGED as error:
        if (
            isinstance(error, OSError) and error.errno
        ):  # bz2 and gzip raise OSError without errno for damaged files
            raise OSError(
                f"Got path={str(path)!r}, but expected a readable file: {error.strerror}."
            ) from error
        raise ValueError(
            f"Got path={str(path)!r}, but expected an intact {path.suffix} file: {error}."
        ) from error


def _decoded(content: bytes, path: Path) -> str:
    is_utf16 = content.startswith((b"\xff\xfe", b"\xfe\xff"))
    try:
        text, is_guess = content.decode("utf-16" if is_utf16 else "utf-8-sig"), False
    except UnicodeDecodeError:
        # The encoding of spreadsheets on Windows. Its five undefined bytes are rare.
        text, is_guess = content.decode("cp1252", errors="replace"), True
    if not text.strip():
        raise ValueError(
            f"Got path={str(path)!r}, which is empty, but expected a line of column names and rows."
        )
    start = text[:100_000]
    if "\0" in text or len(CONTROL.findall(start)) > len(start) / 100:
        raise ValueError(
            f"Got path={str(path)!r}, which is not text, but expected a CSV file; a spreadsheet "
            f"program can save one."
        )
    if is_guess:
        warn_user(
            f"Got path={str(path)!r}, which is not UTF-8, so it is read as Windows-1252; save it "
            f"as UTF-8 if letters look wrong."
        )
    return text


def _records(text: str, delimiter: str, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Non-blank records, each with the number of its first line."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    line = 1
    try:
        for cells in reader:
            if len(cells) > 1 or any(cell.strip() for cell in cells):
                yield line, [cell.strip() for cell in cells]
            line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f"Got an unterminated field in line {line} of {str(path)!r}, but expected shorter "
            f"fields; is a quotation mark missing?"
        ) from error


def _first_rows(text: str, delimiter: str, path: Path) -> list[list[str]]:
    rows = []
    with suppress(ValueError):  # reported later, if this is the delimiter
        for _, cells in itertools.islice(_records(text, delimiter, path), N_INSPECTED):
            rows.append(cells)
    return rows


def _delimiter(text: str, delimiters: Sequence[str], target: str, path: Path) -> str:
    """The delimiter for which the target is a column and rows are most regular."""

    # csv.Sniffer accepts decimal commas as delimiters, and does not know the target.
    def fitness(delimiter: str) -> tuple[bool, float, int, int]:
        rows = _first_rows(text, delimiter, path)
        width = len(rows[0]) if rows else 0
        if width < 2:
            return False, 0.0, width, 0
        n_even = sum(len(row) == width for row in rows)
        n_numbers = sum(_is_number(cell) for row in rows for cell in row)
        return target in rows[0], n_even / len(rows), width, n_numbers

    found = {delimiter: fitness(delimiter) for delimiter in delimiters}
    best = max(delimiters, key=lambda delimiter: found[delimiter])
    if found[best][2] < 2:
        hint = "; delete comments above the header" if text.lstrip().startswith("#") else ""
        raise ValueError(
            f"Got path={str(path)!r} with one column in its first line, but expected at least two, "
            f"separated by commas, semicolons, tabs or bars{hint}."
        )
    return best


def _names(text: str, delimiter: str, target: str, path: Path) -> list[str]:
    rows = _first_rows(text, delimiter, path)
    names = [cell or f"Unnamed: {position}" for position, cell in enumerate(rows[0])]
    if target not in names:
        raise ValueError(_unknown_target(target, rows, path))
    if len(rows) == 1:
        raise ValueError(
            f"Got path={str(path)!r}, which ends after its first line, but expected rows below the "
            f"column names."
        )
    twice = [name for position, name in enumerate(names) if name in names[:position]]
    if twice:
        raise ValueError(
            f"Got column {twice[0]!r} more than once in {str(path)!r}, but expected different "
            f"names; rename one."
        )
    is_named = _are_consecutive(names) and not _is_repeated(rows, names.index(target))
    if _looks_like_data(rows) and not is_named:
        warn_user(
            f"Got a first line of {str(path)!r} that looks like data ({_listed(names)}), but it is "
            f"used as the header; add a line of column names if it is a row."
        )
    return names


def _looks_like_data(rows: list[list[str]]) -> bool:
    """Whether half of the first line are numbers, or values that are repeated below."""
    like_data = [_is_number(field) or _is_repeated(rows, i) for i, field in enumerate(rows[0])]
    return 2 * sum(like_data) >= len(rows[0])


def _is_repeated(rows: list[list[str]], column: int) -> bool:
    return any(row[column : column + 1] == [rows[0][column]] for row in rows[1:])


def _are_consecutive(names: list[str]) -> bool:
    """Whether the numbers among the names are consecutive, as programs write them."""
    numbers = [name for name in names if _is_number(name)]
    return any(numbers == [str(start + n) for n in range(len(numbers))] for start in (0, 1))


def _unknown_target(target: str, rows: list[list[str]], path: Path) -> str:
    names = rows[0]
    if _looks_like_data(rows):
        return (
            f"Got target={target!r}, but the first line of {str(path)!r} looks like data "
            f"({_listed(names)}); expected a line of column names: add one."
        )
    lowered = {name.lower(): name for name in names}
    close = [lowered[name] for name in difflib.get_close_matches(target.lower(), lowered)]
    hint = f"did you mean {_listed(close)}?" if close else f"it has {_listed(names)}."
    if names[0].startswith("#") and not close:
        hint = f"delete comments above the header, such as {names[0]!r}."
    return f"Got target={target!r}, but expected a column of {str(path)!r}; {hint}"


def _listed(values: list[Any], n_most: int = 10) -> str:
    more = f" and {len(values) - n_most} more" if len(values) > n_most else ""
    return ", ".join(repr(value) for value in values[:n_most]) + more


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "."))
    except ValueError:
        return False
    return True


def _written(text: str, delimiter: str, names: list[str], target: str, path: Path) -> np.ndarray:
    """The text in the target's column. Raises an error for rows of another length."""
    # pandas would fill short rows with missing values, and use extra fields as an index.
    column, width, written = names.index(target), len(names), []
    for line, cells in _records(text, delimiter, path):
        if len(cells) != width:
            raise ValueError(
                f"Got {len(cells)} fields in line {line} of {str(path)!r}, but expected {width}, "
                f"as in its first line; is a quotation mark or a separator missing?"
            )
        written.append(cells[column])
    return np.array(written[1:], dtype=object)


def _read(text: str, delimiter: str, names: list[str], path: Path) -> pd.DataFrame:
    try:
        frame = pd.read_csv(
            io.StringIO(text, newline=""),
            sep=delimiter,
            names=names,
            header=0,
            index_col=False,
            na_values=["?"],
            skipinitialspace=True,
            low_memory=False,  # infers one type per column
        )
    except pd.errors.ParserError as error:  # quotation marks that the csv module accepts
        reason = str(error).rpartition("error: ")[2].strip()
        raise ValueError(
            f"Got {str(path)!r} with an unclosed quotation mark, but expected pairs: {reason}."
        ) from error
    for column in frame.columns[[not is_numeric_dtype(kind) for kind in frame.dtypes]]:
        where = f"column {column!r} of {str(path)!r}"
        frame[column] = _numbers_or_text(frame[column], delimiter != ",", where)
    return frame


def _numbers_or_text(column: pd.Series, has_decimal_comma: bool, where: str) -> pd.Series:
    """A column as numbers if possible, without blanks and markers of missing values."""
    text = column.astype(object).map(str, na_action="ignore").str.strip()
    text = text.mask(text.str.lower().isin(MISSING))
    known = text.dropna()
    if has_decimal_comma and known.str.contains(",").any():
        has_comma_form = known.map(DECIMAL_COMMA.fullmatch).notna()
        has_point = known.str.contains(".", regex=False).any()
        if has_comma_form.all() and (not has_point or known.str.contains(THOUSANDS).any()):
            text = text.str.replace(".", "", regex=False).str.replace(",", ".", regex=False)
        elif has_point and (has_comma_form | known.map(_is_number)).all():
            warn_user(
                f"Got {where} with decimal commas and points, so it is text; use one of them."
            )
    try:
        # Otherwise, integers beyond 64 bits would stay objects.
        return pd.to_numeric(text).astype(np.float64)
    except (ValueError, TypeError):
        return text.infer_objects()  # the string type of this version of pandas


def _split_off(
    frame: pd.DataFrame, target: str, written: np.ndarray, path: Path
) -> tuple[pd.DataFrame, np.ndarray]:
    """Features and classes, without rows that have no class."""
    has_class = frame[target].notna().to_numpy()
    where = f"column {target!r} of {str(path)!r}"
    words = sorted({word for word in written[~has_class] if word})
    note = f" ({_listed(words)} read as missing)" if words else ""
    if not has_class.any():
        raise ValueError(f"Got {where} without any value{note}, but expected a class in each row.")
    if not has_class.all():
        warn_user(
            f"Got {where} with {(~has_class).sum()} missing values{note}; these rows are dropped."
        )
    classes, written = frame.loc[has_class, target], written[has_class]
    if is_numeric_dtype(classes.dtype) and any(re.match(r"[+-]?0\d", word) for word in written):
        classes = pd.Series(written)  # 01 and 1 are two classes
    y = _classes(classes, where, note)
    X = frame.loc[has_class].drop(columns=target).reset_index(drop=True)
    _refuse_infinity(X, path)
    empty = X.columns[X.isna().all()].tolist()
    if len(empty) == X.shape[1]:
        raise ValueError(f"Got no values besides {where}, but expected another column with values.")
    if empty:
        warn_user(f"Got {str(path)!r} with empty columns, which are dropped: {_listed(empty)}.")
    return X.drop(columns=empty), y


def _refuse_infinity(X: pd.DataFrame, path: Path) -> None:
    infinite = [name for name, x in X.select_dtypes("number").items() if np.isinf(x).any()]
    if infinite:
        raise ValueError(
            f"Got infinity in column {_listed(infinite)} of {str(path)!r}, but expected finite "
            f"numbers; leave such fields empty or write a number."
        )


def _classes(column: pd.Series, where: str, note: str) -> np.ndarray:
    counts = column.value_counts()
    if _is_continuous(column, len(counts)):
        raise ValueError(
            f"Got {where} with {len(counts)} distinct numbers, but expected a few classes; "
            f"use MixupERegressor for continuous targets, or text for classes, such as 'c17'."
        )
    names = counts.index.tolist()
    if len(names) == 1:
        raise ValueError(f"Got {where} with one class only, {names[0]!r}{note}, but expected two.")
    rare = [name for name, count in zip(names, counts, strict=True) if count == 1]
    if rare:
        raise ValueError(
            f"Got {where} with a single row of {_listed(rare)}, but expected at least two of each "
            f"class, one for training and one for testing; drop such rows or merge classes."
        )
    if _is_integer(column):
        return column.to_numpy().astype(np.int64)
    return np.array([str(value) for value in column], dtype=object)


def _is_integer(column: pd.Series) -> bool:
    is_number = is_numeric_dtype(column.dtype) and column.dtype != bool
    # Beyond this, all floats are integers.
    return is_number and bool((column % 1 == 0).all() and column.abs().max() < 2**53)


def _is_continuous(column: pd.Series, n_distinct: int) -> bool:
    if not is_numeric_dtype(column.dtype):
        return False
    if _is_integer(column):
        return n_distinct > max(MAX_INTEGERS, len(column) / 10)
    return n_distinct > min(MAX_FRACTIONS, max(2, len(column) / 2))
