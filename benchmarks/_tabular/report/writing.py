"""The report of the tabular benchmark: terminal, Markdown, LaTeX and one page of HTML."""

import pathlib
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from types import MappingProxyType

import jinja2
import pandas as pd
from markupsafe import Markup
from matplotlib.colors import to_hex

from benchmarks._tabular.escaping import escape_markdown, printable
from benchmarks._tabular.report import tables
from benchmarks._tabular.report.figures import COLOURS
from benchmarks._tabular.report.findings import Findings, find, lead
from benchmarks._tabular.report.formats import (
    TERMINAL_WIDTH,
    as_latex,
    as_markdown,
    as_terminal,
)
from benchmarks._tabular.report.results import label_of
from benchmarks._tabular.report.sections import Section, error_sheet, make_sections
from benchmarks._tabular.report.sheets import Column, Sheet, pick, without
from benchmarks._tabular.report.styles import styles_of, variables
from benchmarks._tabular.report.svg import key_svg
from benchmarks._writing import write_text

TITLE = "MixupE on tables: benchmark report"


@dataclass(frozen=True)
class Report:
    """Where a report is, and what to print of it.

    Parameters
    ----------
    terminal : str
        A plain table of at most 100 columns, and the outcome in words.
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
    """Write ``report.md``, ``report.tex`` and ``report.html``, from the rows alone.

    Parameters
    ----------
    rows : pandas.DataFrame
        One row per fit, as a run writes them; a run need not be complete.
    folder : pathlib.Path
        Where to write; it is made if it is not there.
    command : str, default=""
        The command that made the rows, to be shown.
    not_run : mapping of str to str, default={}
        Data sets that were left out on purpose, and why.
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
    """The table of errors and the outcome in words."""
    sheet = without(error_sheet(found), ["paper", "Splits"])
    has_paper = any(column.head == "diff." for column in sheet.columns)
    legend = "Test error in percent, mean ± deviation; * is the lowest."
    legend += " diff. = ours - paper." if has_paper else ""
    sentences = [legend, *sheet.notes, *lead(found)]
    lines = [textwrap.fill(sentence, TERMINAL_WIDTH) for sentence in sentences]
    return "\n".join([as_terminal(sheet), "", *lines])


def to_markdown(found: Findings, sections: Sequence[Section]) -> str:
    """The report as Markdown: sentences and tables."""
    parts = [f"# {TITLE}", *map(escape_markdown, lead(found))]
    if any(section.galleries for section in sections):
        parts.append("The figures are in `report.html`, which the same rows make.")
    for section in sections:
        if not (section.sentences or section.sheets or section.facts):
            continue
        facts = [f"- {name}: {escape_markdown(text)}" for name, text in section.facts.items()]
        parts += [f"## {section.title}", *map(escape_markdown, section.sentences)]
        parts += ["\n".join(facts), *map(as_markdown, section.sheets)]
    return "\n\n".join(part for part in parts if part) + "\n"


def to_latex(found: Findings, sections: Sequence[Section]) -> str:
    r"""The tables as LaTeX, for an ``\input``."""
    parts = [_LATEX_HEAD, *(f"% {printable(sentence)}" for sentence in lead(found))]
    for section in sections:
        for sheet in section.sheets:
            parts += map(as_latex, _apart(sheet) if sheet.name == "errors" else [sheet])
    return "\n\n".join(parts) + "\n"


_LATEX_HEAD = r"""% Tables of the benchmark; in the preamble: \usepackage{booktabs}
% and, for other letters than those of English, \usepackage[T1]{fontenc}"""


def _apart(sheet: Sheet) -> list[Sheet]:
    """The errors as two tables, as a page is narrow: ours, and the paper's with the difference."""
    ours = replace(without(sheet, ["paper", "diff."]), caption=tables.CAPTION)
    if not any(column.head == "paper" for column in sheet.columns):
        return [ours]
    places = [p for p, column in enumerate(sheet.columns) if p == 0 or column.group]
    theirs = without(pick(sheet, places), ["ours"])
    caption = "The paper's test errors in percent, and the difference ours - paper."
    rows = [row for row in theirs.rows if any(cell.text for cell in row[1:])]
    return [ours, replace(theirs, name="paper", caption=caption, rows=rows, notes=())]


def to_html(found: Findings, sections: Sequence[Section]) -> str:
    """The report as one page that needs nothing else."""
    styles = styles_of(list(found.fits["method"]))
    light, dark = variables(styles)
    return _template().render(
        title=TITLE,
        lead=lead(found),
        sections=sections,
        light=light,
        dark=dark,
        keys={name: key_svg(style) for name, style in styles.items()},
        label_of=label_of,
        colours=[to_hex(COLOURS(share)) for share in (0.0, 0.25, 0.5, 0.75, 1.0)],
    )


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
    """Heads over several columns, and over how many."""
    parts = groupby(columns, key=lambda column: column.group)
    return [(group, len(list(members))) for group, members in parts]


def _numeric(text: str) -> Markup:
    """A number for the page: a true minus sign, and a faint deviation."""
    mean, sign, deviation = re.sub(r"^-(?=\d)", "\N{MINUS SIGN}", text).partition(" ± ")
    faint = Markup('<span class="deviation"> ± {}</span>').format(deviation) if sign else ""
    return Markup("{}{}").format(mean, faint)
