"""Write the report of the tabular benchmark: terminal, Markdown, LaTeX and an HTML page."""

import pathlib
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import jinja2
import pandas as pd

from benchmarks._harness.report_tables import (
    TERMINAL_WIDTH,
    ReportTable,
    as_latex,
    as_markdown,
    as_terminal,
    escape_markdown,
    printable,
)
from benchmarks._harness.results_file import write_text
from benchmarks._tabular.report.sections import Section, find, lead, main_table, make_sections
from benchmarks._tabular.report.tuned import find_tuned, lead_tuned, tuned_sections, tuned_table

TITLE = "MixupE on tabular data: benchmark report"


@dataclass(frozen=True)
class Report:
    """The files of a report, and a summary for the terminal."""

    terminal: str
    html: pathlib.Path
    markdown: pathlib.Path
    latex: pathlib.Path


def make_report(
    rows: pd.DataFrame,
    folder: pathlib.Path,
    *,
    tuned: pd.DataFrame | None = None,
    command: str = "",
    not_run: Mapping[str, str] = MappingProxyType({}),
) -> Report:
    """Write ``report.md``, ``report.tex`` and ``report.html`` from the rows of fits and studies."""
    sentences: list[str] = []
    sections: list[Section] = []
    terminal: list[str] = []
    has_studies = tuned is not None and len(tuned) > 0
    if len(rows) or not has_studies:
        found = find(rows, command, not_run)
        sections += make_sections(found)
        sentences += lead(found)
        terminal.append(to_terminal(main_table(found), lead(found)))
    if tuned is not None and has_studies:
        studies = find_tuned(tuned, command)
        sections += tuned_sections(studies)
        sentences += lead_tuned(studies)
        shown = [] if studies.errors.empty else [tuned_table(studies)]
        terminal += [to_terminal(table, lead_tuned(studies)) for table in shown]
    return Report(
        terminal="\n\n".join(terminal),
        html=write_text(folder / "report.html", to_html(sentences, sections)),
        markdown=write_text(folder / "report.md", to_markdown(sentences, sections)),
        latex=write_text(folder / "report.tex", to_latex(sentences, sections)),
    )


def to_terminal(table: ReportTable, results: Sequence[str]) -> str:
    """Return the table of errors and the main results in words."""
    sentences = [table.caption.replace("in bold", "with *"), *table.notes, *results]
    lines = [textwrap.fill(printable(sentence), TERMINAL_WIDTH) for sentence in sentences]
    return "\n".join([as_terminal(table), "", *lines])


def to_markdown(results: Sequence[str], sections: Sequence[Section]) -> str:
    """Return the report as Markdown: sentences and tables."""
    parts = [f"# {TITLE}", *map(escape_markdown, results)]
    if any(section.plots for section in sections):
        parts.append("The figures are in `report.html`, generated from the same rows.")
    for section in sections:
        facts = [f"- {name}: {escape_markdown(text)}" for name, text in section.facts.items()]
        parts += [f"## {section.title}", *map(escape_markdown, section.sentences)]
        parts += ["\n".join(facts), *(as_markdown(table) for table in section.tables if table)]
    return "\n\n".join(part for part in parts if part) + "\n"


def to_latex(results: Sequence[str], sections: Sequence[Section]) -> str:
    r"""Return the tables as LaTeX, for an ``\input``."""
    packages = r"\usepackage{booktabs} and \usepackage[T1]{fontenc}"
    parts = [f"% Tables of the benchmark; in the preamble: {packages}"]
    parts += [f"% {printable(sentence)}" for sentence in results]
    for section in sections:
        parts += [as_latex(table) for table in section.tables if table]
    return "\n\n".join(parts) + "\n"


def to_html(results: Sequence[str], sections: Sequence[Section]) -> str:
    """Return the report as one self-contained page."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        # Text is without control characters; the page's own markup is not of type str.
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    template = environment.get_template("page.html.jinja")
    return template.render(title=TITLE, lead=results, sections=sections)
