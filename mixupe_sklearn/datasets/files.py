"""Read a table from a CSV file: delimiter, encoding, missing values and types are inferred."""

import csv
import difflib
import io
import os
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype  # true for booleans, too

from mixupe_sklearn._utils.class_folders import listed
from mixupe_sklearn._utils.warnings import warn_user
from mixupe_sklearn.datasets._dataset import Table, as_classes
from mixupe_sklearn.datasets._decompress import DAMAGED, decompressed, short_name

DELIMITERS = (",", ";", "\t", "|")
# Markers of missing values in lower case, besides those of pandas.
MISSING = ("", "na", "n/a", "nan", "null", "?", "none")
# A target with more distinct integers, and few rows of each, is continuous.
MAX_CLASSES = 100


def read_csv(path: str | os.PathLike, target: str, *, name: str | None = None) -> Table:
    r"""Read a table with classes from a text file.

    Parameters
    ----------
    path : str or path
        A file with a header line, and fields separated by commas, semicolons, tabs or bars. It may
        be compressed (``.gz``, ``.xz``, ``.bz2``, or ``.zip`` with one file in it), up to 256 MiB
        or 100 times the compressed size. The encoding is UTF-8. Numbers may have a decimal comma
        if commas do not separate fields. A column with decimal commas and points is text.
    target : str
        The column with the classes.
    name : str or None, default=None
        A short name. None means the name of the file.

    Returns
    -------
    table : Table
        Missing values (empty fields, ``NA``, ``N/A``, ``NaN``, ``null``, ``none``, ``?``) are NaN.
        Empty columns and rows without a class are dropped, with a warning. Classes are integers or
        text.

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
    text = _text(path)
    delimiter = _delimiter(text, target, path)
    names = _checked_names(text, delimiter, path)
    if target not in names:
        close = difflib.get_close_matches(target, names)
        hint = f"did you mean {close[0]!r}?" if close else f"its first line has {listed(names)}."
        raise ValueError(f"Got target={target!r}, but expected a column of {str(path)!r}; {hint}")
    X, y = _split_off(_read(text, delimiter, names), target, path)
    return Table(short_name(path) if name is None else name, X, y, "csv")


def _text(path: Path) -> str:
    if not path.is_file():
        raise FileNotFoundError(
            f"Got path={str(path)!r}, but expected an existing file; the current folder is "
            f"{str(Path.cwd())!r}."
        )
    try:
        text = decompressed(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(
            f"Got path={str(path)!r}, which is not text in UTF-8, but expected a CSV file; a "
            f"spreadsheet program can save one with this encoding."
        ) from None
    except DAMAGED as error:
        if isinstance(error, OSError) and error.errno:  # not the damage that bz2 and gzip report
            raise
        raise ValueError(
            f"Got path={str(path)!r}, but expected an intact {path.suffix} file: {error}."
        ) from error
    if not text.strip():
        raise ValueError(
            f"Got path={str(path)!r}, which is empty, but expected a line of column names and rows."
        )
    return text


def _delimiter(text: str, target: str, path: Path) -> str:
    """The delimiter for which the header has the target, or else the most columns."""
    # csv.Sniffer accepts decimal commas as delimiters, and does not know the target.
    header = re.split(r"[\r\n]", text.lstrip(), maxsplit=1)[0]
    columns = {
        delimiter: [name.strip(' "') for name in header.split(delimiter)]
        for delimiter in DELIMITERS
    }
    best = max(columns, key=lambda one: (target in columns[one], len(columns[one])))
    if len(columns[best]) < 2:
        raise ValueError(
            f"Got path={str(path)!r} with one column in its first line, but expected at least two, "
            f"separated by commas, semicolons, tabs or bars."
        )
    return best


def _checked_names(text: str, delimiter: str, path: Path) -> list[str]:
    """The names of the columns. Raises an error for rows of another length.

    pandas would fill short rows with missing values, and use extra fields as an index.
    """
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    names: list[str] = []
    line, n_records = 1, 0
    try:
        for cells in reader:
            is_blank = len(cells) < 2 and not "".join(cells).strip()
            if not is_blank:
                names = names or [cell.strip() or f"Unnamed: {i}" for i, cell in enumerate(cells)]
                n_records += 1
                if len(cells) != len(names):
                    raise ValueError(
                        f"Got {len(cells)} fields in line {line} of {str(path)!r}, but expected "
                        f"{len(names)}, as in its first line; is a quotation mark or a separator "
                        f"missing?"
                    )
            line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f"Got a field in line {line} of {str(path)!r} with more than "
            f"{csv.field_size_limit():,} characters, but expected shorter fields; is a quotation "
            f"mark missing?"
        ) from error
    if n_records == 1:
        raise ValueError(
            f"Got path={str(path)!r}, which ends after its first line, but expected rows below the "
            f"column names."
        )
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise ValueError(
            f"Got column {name!r} more than once in {str(path)!r}, but expected different "
            f"names; rename one."
        )
    return names


def _read(text: str, delimiter: str, names: list[str]) -> pd.DataFrame:
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
    # A new frame at once: replacing columns one by one takes quadratic time.
    return pd.DataFrame(
        {
            name: column if is_numeric_dtype(column) else _numbers_or_text(column, delimiter != ",")
            for name, column in frame.items()
        }
    )


def _numbers_or_text(column: pd.Series, has_decimal_comma: bool) -> pd.Series:
    """A column as numbers if possible, without blanks and markers of missing values."""
    # Not by pandas' operations on text: each takes far longer than a short column.
    text = [
        np.nan if is_missing or (cell := str(value).strip()).lower() in MISSING else cell
        for value, is_missing in zip(column.tolist(), column.isna().tolist(), strict=True)
    ]
    numbers = text
    # Points beside commas may separate thousands or decimals, so such a column stays text.
    if has_decimal_comma and not any("." in str(cell) for cell in text):
        numbers = [cell.replace(",", ".") if isinstance(cell, str) else cell for cell in text]
    try:
        values = pd.to_numeric(np.array(numbers, dtype=object))
        # Otherwise, integers beyond 64 bits would stay objects.
        return pd.Series(values.astype(np.float64), column.index)
    except (ValueError, TypeError):
        return pd.Series(text, column.index, dtype=object).infer_objects()  # pandas' string type


def _split_off(frame: pd.DataFrame, target: str, path: Path) -> tuple[pd.DataFrame, np.ndarray]:
    """Features and classes, without rows that have no class."""
    where = f"column {target!r} of {str(path)!r}"
    has_class = frame[target].notna()
    if not has_class.any():
        raise ValueError(f"Got {where} without any value, but expected a class in each row.")
    if not has_class.all():
        warn_user(
            f"Got {where} with {(~has_class).sum()} missing values, such as empty fields, 'NA' or "
            f"'none'; these rows are dropped."
        )
    frame = frame[has_class].reset_index(drop=True)
    y = as_classes(frame[target], where)
    classes, counts = np.unique(y, return_counts=True)
    if y.dtype.kind == "i" and len(classes) > max(MAX_CLASSES, len(y) / 10):
        raise ValueError(
            f"Got {where} with {len(classes)} distinct numbers, but expected a few classes; "
            f"use MixupERegressor for continuous targets, or text for classes, such as 'c17'."
        )
    if counts.min() == 1:
        raise ValueError(
            f"Got {where} with a single row of {listed(classes[counts == 1].tolist())}, but "
            f"expected at least two of each class, one for training and one for testing; drop such "
            f"rows or merge classes."
        )
    X = frame.drop(columns=target)
    empty = X.columns[X.isna().all()].tolist()
    if len(empty) == X.shape[1]:
        raise ValueError(f"Got no values besides {where}, but expected another column with values.")
    if empty:
        warn_user(f"Got {str(path)!r} with empty columns, which are dropped: {listed(empty)}.")
    return X.drop(columns=empty), y
