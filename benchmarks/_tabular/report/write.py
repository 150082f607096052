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
    as_latex,
    as_markdown,
    as_terminal,
    escape_markdown,
    printable,
)
from benchmarks._harness.results_file import write_text
from benchmarks._tabular.report.sections import (
    Findings,
    Section,
    find,
    lead,
    main_table,
    make_sections,
)

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
    command: str = "",
    not_run: Mapping[str, str] = MappingProxyType({}),
) -> Report:
    """Write ``report.md``, ``report.tex`` and ``report.html`` from the rows."""
    found = find(rows, command, not_run)
    sections = make_sections(found)
    return Report(
        terminal=to_terminal(found),
        html=write_text(folder / "report.html", to_html(found, sections)),
        markdown=write_text(folder / "report.md", to_markdown(found, sections)),
        latex=write_text(folder / "report.tex", to_latex(found, sections)),
    )


def to_terminal(found: Findings) -> str:
    """Return the table of errors and the main results in words."""
    table = main_table(found)
    sentences = [table.caption.replace("in bold", "with *"), *table.notes, *lead(found)]
    lines = [textwrap.fill(printable(sentence), TERMINAL_WIDTH) for sentence in sentences]
    return "\n".join([as_terminal(table), "", *lines])


def to_markdown(found: Findings, sections: Sequence[Section]) -> str:
    """Return the report as Markdown: sentences and tables."""
    parts = [f"# {TITLE}", *map(escape_markdown, lead(found))]
    if any(section.plots for section in sections):
        parts.append("The figures are in `report.html`, generated from the same rows.")
    for section in sections:
        facts = [f"- {name}: {escape_markdown(text)}" for name, text in section.facts.items()]
        parts += [f"## {section.title}", *map(escape_markdown, section.sentences)]
        parts += ["\n".join(facts), *(as_markdown(table) for table in section.tables if table)]
    return "\n\n".join(part for part in parts if part) + "\n"


def to_latex(found: Findings, sections: Sequence[Section]) -> str:
    r"""Return the tables as LaTeX, for an ``\input``."""
    packages = r"\usepackage{booktabs} and \usepackage[T1]{fontenc}"
    parts = [f"% Tables of the benchmark; in the preamble: {packages}"]
    parts += [f"% {printable(sentence)}" for sentence in lead(found)]
    for section in sections:
        parts += [as_latex(table) for table in section.tables if table]
    return "\n\n".join(parts) + "\n"


def to_html(found: Findings, sections: Sequence[Section]) -> str:
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
    return template.render(title=TITLE, lead=lead(found), sections=sections)
