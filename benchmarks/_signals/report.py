"""Reports in Markdown and for the terminal: tables, and how their rows were made."""

import json
import pathlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pandas as pd

from benchmarks._candidates import page
from benchmarks._signals import timing
from benchmarks._signals.rows import SIGNALS
from benchmarks._signals.sections import Section, sections_of
from benchmarks._signals.tables import methods_sheet, paper_sheet
from benchmarks._tabular.escaping import escape_markdown, markdown_code, printable
from benchmarks._tabular.own import as_json
from benchmarks._tabular.report.formats import as_markdown, as_terminal
from benchmarks._tabular.report.sheets import Sheet
from benchmarks._tabular.rows import read_rows
from benchmarks._writing import write_text

CAUTION = (
    "Subsets, small networks and short trainings: these figures compare methods within one run. "
    "They do not compare with figures of other runs, nor with the paper's."
)
PAGES = pathlib.Path(__file__).parents[2] / "docs"
# Wide enough for a table in one piece.
WIDTH = 140
MakeSheets = Callable[[Section], Sequence[Sheet | None]]


class Report(NamedTuple):
    """What a command reports: its name, a title, and the tables of a section."""

    name: str
    title: str
    sheets: MakeSheets

    @property
    def file(self) -> str:
        """The file that it is written to."""
        return "report.md" if self.sheets is all_methods else f"{self.name}.md"


def all_methods(section: Section) -> list[Sheet | None]:
    """The tables of ``benchmarks.images`` and ``benchmarks.speech``."""
    return [methods_sheet(section), paper_sheet(section.dataset)]


def settings_lines(section: Section) -> list[str]:
    """How the rows of a section were made."""
    rows = section.rows
    first = rows.iloc[0]
    lines = [
        f"- runs: {len(rows)}, seeds: {section.n_seeds}; {first['n_train']:,.0f} rows to train and "
        f"{first['n_test']:,.0f} to test in {first['n_classes']:.0f} classes (data "
        f"{markdown_code(first['data'])})",
        f"- training: {markdown_code(as_json(section.training))}",
    ]
    for name, params in section.networks.items():
        n_parameters = rows.loc[rows["network"] == name, "n_parameters"].iloc[0]
        code = markdown_code(as_json(params))
        lines.append(f"- {escape_markdown(name)}: {n_parameters:,.0f} parameters, {code}")
    commits = ", ".join(map(markdown_code, rows["commit"].unique()))
    return [*lines, f"- commit {commits}; {escape_markdown(rows['versions'].iloc[-1])}"]


def as_page(report: Report, sections: Sequence[Section]) -> str:
    """A report in Markdown."""
    parts = [f"# {report.title}", CAUTION]
    for section in sections:
        parts.append(f"## {escape_markdown(section.dataset)}")
        parts += [as_markdown(sheet) for sheet in _sheets(report, section)]
        parts.append("How it was run:")
        parts.append("\n".join(settings_lines(section)))
    return "\n\n".join(parts) + "\n"


def as_print(report: Report, sections: Sequence[Section]) -> str:
    """A report for the terminal."""
    parts = [CAUTION]
    for section in sections:
        for sheet in _sheets(report, section):
            parts.append(_printed(sheet))
        parts.append("\n".join(settings_lines(section)))
    return "\n\n".join(parts)


def tables_of(report: Report, folder: pathlib.Path) -> str:
    """All tables of a report in Markdown, for a page of the documentation."""
    sections = sections_of(read_rows(folder / "rows.csv", SIGNALS))
    sheets = [sheet for section in sections for sheet in _sheets(report, section)]
    ratios = _ratios(report, folder)
    return "\n\n".join(map(as_markdown, sheets if ratios is None else [*sheets, ratios]))


def write_page(report: Report, folder: pathlib.Path, kind: str) -> None:
    """Write the tables into the page about this kind of data."""
    path = PAGES / ("speech.md" if kind == "speech" else "images.md")
    page.write(report.name, tables_of(report, folder), path)


def _printed(sheet: Sheet) -> str:
    return f"{printable(sheet.caption)}\n\n{as_terminal(sheet, WIDTH)}"


def _ratios(report: Report, folder: pathlib.Path) -> Sheet | None:
    """What the penalty costs, where it was measured and the report is about all methods."""
    path = folder / "timing.json"
    if report.sheets is not all_methods or not path.exists():
        return None
    return timing.sheet_of(json.loads(path.read_text()))


def _sheets(report: Report, section: Section) -> list[Sheet]:
    return [sheet for sheet in report.sheets(section) if sheet is not None and sheet.rows]


def make_report(report: Report, folder: pathlib.Path) -> str:
    """Write the report of all rows of a folder, and give back what is printed."""
    path = folder / "rows.csv"
    rows = read_rows(path, SIGNALS) if path.exists() else pd.DataFrame({"error": []})
    failed = [text for text in rows["error"] if text]
    sections = list(sections_of(rows)) if len(failed) < len(rows) else []
    if not sections:
        reason = f": all {len(failed)} fits failed, such as: {failed[0]}" if failed else ""
        raise ValueError(f"Got no rows in {path}, but expected some to report on{reason}.")
    file, ratios = folder / report.file, _ratios(report, folder)
    whole = as_page(report, sections)
    write_text(file, whole if ratios is None else f"{whole}\n{as_markdown(ratios)}\n")
    told = [as_print(report, sections), f"Rows:   {path}\nReport: {file}"]
    if ratios is not None:
        told.insert(1, _printed(ratios))
    if failed:
        told.append(f"{len(failed)} of {len(rows)} fits failed, such as: {printable(failed[0])}")
    return "\n\n".join(told)
