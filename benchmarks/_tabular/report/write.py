"""Write the report of the tabular benchmark: terminal, Markdown, LaTeX and an HTML page."""

import pathlib
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType

import jinja2
import pandas as pd
from markupsafe import Markup

from benchmarks._harness.report_tables import (
    TERMINAL_WIDTH,
    Column,
    as_latex,
    as_markdown,
    as_terminal,
    escape_markdown,
    printable,
    without,
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
    """The files of a report, and its summary.

    Parameters
    ----------
    terminal : str
        A plain table of at most 100 characters per line, and the main results in words.
    html, markdown, latex : pathlib.Path
        The files.
    """

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
    """Write ``report.md``, ``report.tex`` and ``report.html`` from the rows.

    Parameters
    ----------
    rows : pandas.DataFrame
        One row per fit; a run need not be complete.
    folder : pathlib.Path
        The output folder, created if needed.
    command : str, default=""
        The command that made the rows.
    not_run : mapping of str to str, default={}
        Datasets without a run, and why.
    """
    found = find(rows, command, not_run)
    sections = make_sections(found)
    folder = pathlib.Path(folder)
    return Report(
        terminal=to_terminal(found),
        html=write_text(folder / "report.html", to_html(found, sections)),
        markdown=write_text(folder / "report.md", to_markdown(found, sections)),
        latex=write_text(folder / "report.tex", to_latex(found, sections)),
    )


def to_terminal(found: Findings) -> str:
    """Return the table of errors and the main results in words."""
    table = without(main_table(found), ["paper", "Splits"])
    has_paper = any(column.head == "diff." for column in table.columns)
    legend = "Test error in percent, mean ± deviation; * is the lowest."
    legend += " diff. = ours - paper." if has_paper else ""
    sentences = [legend, *table.notes, *lead(found)]
    lines = [textwrap.fill(sentence, TERMINAL_WIDTH) for sentence in sentences]
    return "\n".join([as_terminal(table), "", *lines])


def to_markdown(found: Findings, sections: Sequence[Section]) -> str:
    """Return the report as Markdown: sentences and tables."""
    parts = [f"# {TITLE}", *map(escape_markdown, lead(found))]
    if any(section.galleries for section in sections):
        parts.append("The figures are in `report.html`, generated from the same rows.")
    for section in sections:
        if not (section.sentences or section.tables or section.facts):
            continue
        facts = [f"- {name}: {escape_markdown(text)}" for name, text in section.facts.items()]
        parts += [f"## {section.title}", *map(escape_markdown, section.sentences)]
        parts += ["\n".join(facts), *map(as_markdown, section.tables)]
    return "\n\n".join(part for part in parts if part) + "\n"


def to_latex(found: Findings, sections: Sequence[Section]) -> str:
    r"""Return the tables as LaTeX, for an ``\input``."""
    parts = [_LATEX_HEAD, *(f"% {printable(sentence)}" for sentence in lead(found))]
    for section in sections:
        parts += map(as_latex, section.tables)
    return "\n\n".join(parts) + "\n"


_LATEX_HEAD = r"""% Tables of the benchmark; in the preamble: \usepackage{booktabs}
% and \usepackage[T1]{fontenc}"""


def to_html(found: Findings, sections: Sequence[Section]) -> str:
    """Return the report as one self-contained page."""
    return _template().render(title=TITLE, lead=lead(found), sections=sections)


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["groups"] = _groups
    environment.filters["numeric"] = _numeric
    return environment.get_template("page.html.jinja")


def _groups(columns: Sequence[Column]) -> list[tuple[str, int]]:
    """Return the heads of groups of columns, and the size of each group."""
    parts = groupby(columns, key=lambda column: column.group)
    return [(group, len(list(members))) for group, members in parts]


def _numeric(text: str) -> Markup:
    """Return a number for the page: with a minus sign, and a faint deviation."""
    mean, sign, deviation = re.sub(r"^-(?=\d)", "\N{MINUS SIGN}", text).partition(" ± ")
    faint = Markup('<span class="deviation"> ± {}</span>').format(deviation) if sign else ""
    return Markup("{}{}").format(mean, faint)
