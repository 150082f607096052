"""Two files of rows: what a choice may look at, and what it may not.

``rows.csv`` has the validation columns and all that tells how a row was made; ``test.csv`` has the
test columns, and nothing that a choice is made with is ever read from it.
"""

import pathlib
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Any

from benchmarks._tabular.rows import Form, Key, RowsFile

KEY = ("dataset", "data", "split", "candidate", "params")
METRICS = ("error", "log_loss", "ece", "brier")
TEXTS = frozenset(KEY) - {"split"}
VALID = Form(
    (*KEY, *(f"valid_{name}" for name in METRICS), "fit_seconds", "error", "versions", "commit"),
    TEXTS | {"error", "versions", "commit"},
    KEY,
)
TEST = Form((*KEY, *(f"test_{name}" for name in METRICS)), TEXTS, KEY)


class TwoFiles:
    """Both files in one folder, open for adding; use it in a ``with`` statement.

    Parameters
    ----------
    folder : pathlib.Path
        It is made if it is not there.
    """

    def __init__(self, folder: pathlib.Path):
        self.valid = RowsFile(folder / "rows.csv", VALID)
        self.test = RowsFile(folder / "test.csv", TEST)

    def __enter__(self) -> "TwoFiles":
        with ExitStack() as stack:
            stack.enter_context(self.valid)
            stack.enter_context(self.test)
            self._close = stack.pop_all().close
        return self

    def __exit__(self, *_: Any) -> None:
        self._close()

    def keys(self, *, with_failed: bool = True) -> set[Key]:
        """Keys of the fits that are there already."""
        return self.valid.keys(with_failed=with_failed)

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write rows to the disk, each to both files."""
        rows = list(rows)
        good = [row for row in rows if not row["error"]]
        # In this order: a run that is killed in between does the fit again, and loses nothing.
        if good:
            self.test.add(_part(row, TEST) for row in good)
        self.valid.add(_part(row, VALID) for row in rows)


def _part(row: Mapping[str, Any], form: Form) -> dict[str, Any]:
    return {name: row[name] for name in form.columns if name in row}
