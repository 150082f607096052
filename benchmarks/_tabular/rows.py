"""The rows of the benchmark: one line a fit, with all that is needed to run it again."""

import csv
import io
import pathlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import pandas as pd

from benchmarks._tabular.append_only import AppendOnly, whole_lines

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
# Only numbers have holes; an empty text is an empty text.
_HOLES = {name: [""] for name in COLUMNS if name not in AS_TEXT}

Key = tuple[str, ...]


def key_of(row: Mapping[str, Any]) -> Key:
    """What makes a fit this fit, as text; a number is the same however it is written.

    Examples
    --------
    >>> row = dict.fromkeys(KEY, "x") | {"split": 0, "alpha": "1E-03", "eta": None}
    >>> key_of(row)
    ('x', 'x', 'x', '0.0', 'x', 'x', '0.001', '', 'x')
    """
    return tuple(_plain(name, row[name]) for name in KEY)


def _plain(name: str, value: Any) -> str:
    text = "" if value is None else " ".join(str(value).split())
    if name not in AS_TEXT:
        with suppress(ValueError):
            return str(float(text))
    return text


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
    lines = whole_lines(path, COLUMNS)[0] or [",".join(COLUMNS)]
    text = io.StringIO("\n".join(lines) + "\n")
    try:
        rows = pd.read_csv(text, dtype=AS_TEXT, keep_default_na=False, na_values=_HOLES)
        numbers = [name for name in COLUMNS if name not in AS_TEXT]
        rows[numbers] = rows[numbers].apply(pd.to_numeric)
    except ValueError as error:
        raise ValueError(
            f"Got {path} with a value that is no number ({error}), but expected numbers: delete "
            f"that line, and its fit is run again."
        ) from error
    return rows.drop_duplicates(list(KEY), keep="last", ignore_index=True)


class RowsFile(AppendOnly):
    """The file of rows, open for adding; use it in a ``with`` statement.

    Parameters
    ----------
    path : pathlib.Path
        The file; its folder is made if it is not there.
    """

    def __init__(self, path: pathlib.Path):
        super().__init__(path, COLUMNS)

    def keys(self, *, with_failed: bool = True) -> set[Key]:
        """Keys of the fits that are there already."""
        # The last one of a key counts.
        rows = {key_of(row): row for row in csv.DictReader(self.lines())}
        return {key for key, row in rows.items() if with_failed or not row["error"]}

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write rows to the disk, all or none."""
        self.write("".join(as_line(row) for row in rows))
