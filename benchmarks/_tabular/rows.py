"""The rows of the benchmark: one line a fit, with all that is needed to run it again."""

import csv
import io
import pathlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import pandas as pd

from benchmarks._tabular.append_only import AppendOnly, whole_lines
from benchmarks._tabular.escaping import printable

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


class Form(NamedTuple):
    """What the lines of a file hold: its columns, those that are text, and what makes a fit."""

    columns: tuple[str, ...]
    texts: frozenset[str]
    key: tuple[str, ...]

    @property
    def numbers(self) -> list[str]:
        """Columns that are not text; only these have holes, an empty text is an empty text."""
        return [name for name in self.columns if name not in self.texts]


FITS = Form(COLUMNS, frozenset(AS_TEXT), KEY)


def key_of(row: Mapping[str, Any], form: Form = FITS) -> Key:
    """What makes a fit this fit, as text; a number is the same however it is written.

    Examples
    --------
    >>> row = dict.fromkeys(KEY, "x") | {"split": 0, "alpha": "1E-03", "eta": None}
    >>> key_of(row)
    ('x', 'x', 'x', '0.0', 'x', 'x', '0.001', '', 'x')
    """
    return tuple(_plain(row[name], name in form.texts) for name in form.key)


def _plain(value: Any, is_text: bool) -> str:
    text = "" if value is None else printable(str(value))
    if not is_text:
        with suppress(ValueError):
            return str(float(text))
    return text


def take_open(fits: Iterable[Any], done: set[Key], form: Form) -> list[Any]:
    """Fits, told by their ``identity``, that are not done; from now on they count as done."""
    found = []
    for fit in fits:
        key = key_of(fit.identity, form)
        if key not in done:
            found.append(fit)
            done.add(key)
    return found


def as_line(row: Mapping[str, Any], form: Form = FITS) -> str:
    """A row as a line of CSV; line breaks and control characters within a value become blanks."""
    unknown = set(row) - set(form.columns)
    if unknown:
        raise ValueError(
            f"Got a row with {sorted(unknown)}, but expected columns of {form.columns}."
        )
    values = [row.get(name) for name in form.columns]
    one_line = [printable(v) if isinstance(v, str) else v for v in values]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(one_line)
    return text.getvalue()


def read_rows(path: pathlib.Path, form: Form = FITS) -> pd.DataFrame:
    """All rows of a file; of rows with equal keys the last one, as it replaces a failed fit.

    A torn last line is left out.
    """
    lines = whole_lines(path, form.columns)[0] or [",".join(form.columns)]
    text, holes = io.StringIO("\n".join(lines) + "\n"), {name: [""] for name in form.numbers}
    types = dict.fromkeys(form.texts, str)
    try:
        rows = pd.read_csv(text, dtype=types, keep_default_na=False, na_values=holes)
        rows[form.numbers] = rows[form.numbers].apply(pd.to_numeric)
    except ValueError as error:
        raise ValueError(
            f"Got {path} with a value that is no number ({error}), but expected numbers: delete "
            f"that line, and its fit is run again."
        ) from error
    return rows.drop_duplicates(list(form.key), keep="last", ignore_index=True)


class RowsFile(AppendOnly):
    """The file of rows, open for adding; use it in a ``with`` statement.

    Parameters
    ----------
    path : pathlib.Path
        The file; its folder is made if it is not there.
    form : Form, default=FITS
        What its lines hold.
    """

    def __init__(self, path: pathlib.Path, form: Form = FITS):
        super().__init__(path, form.columns)
        self.form = form

    def keys(self, *, with_failed: bool = True) -> set[Key]:
        """Keys of the fits that are there already."""
        # The last one of a key counts.
        rows = {key_of(row, self.form): row for row in csv.DictReader(self.lines())}
        return {key for key, row in rows.items() if with_failed or not row["error"]}

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write rows to the disk, all or none."""
        self.write("".join(as_line(row, self.form) for row in rows))
