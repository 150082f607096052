"""What benchmarks with one row per fit share: the plan of a run, and the frame of a report."""

import pathlib
from collections.abc import Sequence
from typing import Any, ClassVar

import pandas as pd

from benchmarks._harness.report_tables import (
    Column,
    ReportTable,
    as_markdown,
    escape_markdown,
    markdown_code,
)
from benchmarks._harness.results_file import Key, Schema, one_line, read_rows, write_text
from benchmarks._harness.runner import Row
from benchmarks._tabular.fits import few_rows_allowed


class SingleFits:
    """A plan whose jobs are fits with an ``identity``, a ``cost`` and a method ``measured``."""

    schema: ClassVar[Schema]
    methods: Sequence[str] = ()
    retry_failed: bool = False

    def fits(self, table: Any) -> list[Any]:
        """All fits on a dataset in their order."""
        raise NotImplementedError

    def open_jobs(self, table: Any, done: set[Key]) -> list[Any]:
        """Fits that are not done yet; they count as done from now on."""
        found = []
        for fit in self.fits(table):
            key = self.schema.key_of(fit.identity)
            if key not in done:
                found.append(fit)
                done.add(key)
        return found

    @staticmethod
    def run_job(job: Any) -> list[Row]:
        """Fit and measure: one row; that of a failed fit holds the error."""
        identity = job.identity
        try:
            with few_rows_allowed():
                return [identity | job.measured() | {"error": ""}]
        except Exception as error:
            return [identity | {"error": one_line(error)}]


def split_failed(path: pathlib.Path, schema: Schema) -> tuple[pd.DataFrame, list[str]]:
    """Rows that did not fail, and a line on those that did; an error if none is left."""
    rows = read_rows(path, schema) if path.exists() else pd.DataFrame({"error": []})
    good, failed = rows[rows["error"] == ""], [text for text in rows["error"] if text]
    if good.empty:
        reason = f": all {len(failed)} fits failed, such as: {failed[0]}" if failed else ""
        raise ValueError(f"Got no rows in {path}, but expected some to report on{reason}.")
    if not failed:
        return good, []
    line = f"- {len(failed)} of {len(rows)} fits failed, such as: {escape_markdown(failed[0])}"
    return good, [line]


def source_line(rows: pd.DataFrame) -> str:
    """The commits and versions that made some rows."""
    commits = ", ".join(map(markdown_code, rows["commit"].unique()))
    return f"- commit {commits}; {escape_markdown(rows['versions'].iloc[-1])}"


def tables_text(tables: Sequence[ReportTable]) -> str:
    """Tables in Markdown."""
    return "\n\n".join(map(as_markdown, tables))


def columns_of(texts: Sequence[str], numbers: Sequence[str] = ()) -> list[Column]:
    """Columns of text, followed by columns of numbers."""
    return [*(Column(head, is_number=False) for head in texts), *map(Column, numbers)]


def write_report(path: pathlib.Path, text: str) -> str:
    """Write a report, and return what the command prints."""
    write_text(path, text)
    return f"{text}\nReport: {path}"
