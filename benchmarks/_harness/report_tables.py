"""Tables of a report in the terminal, in Markdown and in LaTeX, and numbers as text.

Names of datasets, columns, classes and methods, and error messages, may hold any characters: each
format escapes them. CSV files are for programs and hold names as they are.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import pandas as pd

TERMINAL_WIDTH = 100
# Longer names are shortened in the terminal.
NAME_WIDTH = 20
# Characters that fit on a LaTeX page in small print.
PAGE_WIDTH = 96

# What begins a list, a rule, a heading, a comment, a fence or a target at the start of a line.
_BEGIN = re.compile(r"[-+](?=[-+\s]|$)|[=%:]|\((?=[^)]*\)=)")
_NUMBERED = re.compile(r"(\d+)([.)])(?=\s|$)")
# Renderers turn these into links.
_ADDRESS = re.compile(r"(?<=\w)(:)(?=//)|(?<=\bwww)(\.)", re.IGNORECASE)
# The last entries would be an option at the start of a row.
_LATEX = str.maketrans(
    {char: "\\" + char for char in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}"}
    | {"`": r"\textasciigrave{}", "\N{MINUS SIGN}": "$-$", "[": "{[}", "*": "{*}"}
)


def printable(text: str) -> str:
    r"""Return text in one line without control characters, which a terminal would execute.

    Examples
    --------
    >>> printable("two\nlines"), printable("\x1b[31mred")
    ('two lines', '[31mred')
    """
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def printable_lines(text: str) -> str:
    r"""Return text without control characters, with its lines.

    Examples
    --------
    >>> printable_lines("two\nlines\x07")
    'two\nlines'
    """
    return "\n".join(map(printable, text.splitlines()))


def escape_markdown(text: str) -> str:
    r"""Return text that Markdown shows as it is, anywhere in a line.

    Examples
    --------
    >>> print(escape_markdown("<b>&_|"))
    \<b\>\&\_\|
    >>> print(escape_markdown("1. https://x"))
    1\. https\://x
    """
    text = re.sub(r"([\\`*_{}\[\]<>&|#~$!])", r"\\\1", printable(text))
    text = _ADDRESS.sub(lambda match: "\\" + match[0], text)
    if _BEGIN.match(text):
        return "\\" + text
    return _NUMBERED.sub(r"\1\\\2", text, count=1) if _NUMBERED.match(text) else text


def markdown_code(text: str) -> str:
    """Return text as inline code in Markdown.

    Examples
    --------
    >>> markdown_code("a`b"), markdown_code("ab")
    ('``a`b``', '`ab`')
    """
    text = printable(text)
    longest = max(map(len, re.findall("`+", text)), default=0)
    mark = "`" * (longest + 1)
    pad = " " if text.startswith("`") or text.endswith("`") or not text else ""
    return f"{mark}{pad}{text}{pad}{mark}"


def escape_latex(text: str) -> str:
    r"""Return text that LaTeX prints as it is.

    Examples
    --------
    >>> print(escape_latex("50 % of a_b"))
    50 \% of a\_b
    """
    text = re.sub(r"(?<![\w.])-(?=\d)", "\N{MINUS SIGN}", printable(text))
    # LaTeX would join two hyphens to a dash.
    return re.sub("-(?=-)", "-{}", text.translate(_LATEX))


@dataclass(frozen=True)
class Column:
    """A column: its head, the head of its group, and whether it holds numbers."""

    head: str
    group: str = ""
    is_number: bool = True


@dataclass(frozen=True)
class Cell:
    """Text in a table; a remark spans all columns but the first."""

    text: str = ""
    is_best: bool = False
    is_remark: bool = False


@dataclass(frozen=True)
class ReportTable:
    """A table with a caption, and notes below it."""

    name: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = field(default_factory=tuple)


def pick(table: ReportTable, places: Sequence[int]) -> ReportTable:
    """Return a table of some columns, which include the first."""
    rows = [row if row[-1].is_remark else [row[place] for place in places] for row in table.rows]
    return replace(table, columns=[table.columns[place] for place in places], rows=rows)


def without(table: ReportTable, heads: Sequence[str]) -> ReportTable:
    """Return a table without some columns; a group with one column left becomes that column."""
    places = [place for place, column in enumerate(table.columns) if column.head not in heads]
    part = pick(table, places)
    sizes = Counter(column.group for column in part.columns)
    columns = [
        replace(column, head=column.group, group="")
        if column.group and sizes[column.group] == 1
        else column
        for column in part.columns
    ]
    return replace(part, columns=columns)


def number(value: float, decimals: int = 2) -> str:
    """Format a number; blank if it is missing.

    Examples
    --------
    >>> number(-1.234), number(float("nan"))
    ('-1.23', '')
    """
    return "" if pd.isna(value) else f"{value:.{decimals}f}"


def signed(value: float) -> str:
    """Format a difference."""
    return "" if pd.isna(value) else f"{value:+.2f}"


def plus_minus(mean: float, deviation: float, decimals: int = 2) -> str:
    """Format a mean and its standard deviation, which may be missing.

    Examples
    --------
    >>> plus_minus(3.14159, 0.5), plus_minus(3.14159, float("nan"))
    ('3.14 ± 0.50', '3.14')
    """
    shown = number(mean, decimals)
    return shown if pd.isna(deviation) else f"{shown} ± {number(deviation, decimals)}"


def short(value: float) -> str:
    """Format a value of the grid as it was given."""
    return "" if pd.isna(value) else f"{value:g}"


def p_value(value: float) -> str:
    """Format a p value."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def seconds(value: float) -> str:
    """Format seconds with two significant digits.

    Examples
    --------
    >>> seconds(0.01234), seconds(123.4)
    ('0.012', '123')
    """
    return "" if pd.isna(value) else f"{value:.2g}" if value < 10 else f"{value:.0f}"


def span(counts: Sequence[int]) -> str:
    """Format counts: one, or the lowest and the highest.

    Examples
    --------
    >>> span([5, 5]), span([5, 3])
    ('5', '3 to 5')
    """
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def plain_markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table of trusted text; all columns but the first align to the right.

    Examples
    --------
    >>> print(plain_markdown(["method", "seconds"], [["MixupE", "2"]]))
    | method | seconds |
    |---|--:|
    | MixupE | 2 |
    """
    rule = "|---|" + "--:|" * (len(header) - 1)
    return "\n".join(
        [f"| {' | '.join(header)} |", rule, *(f"| {' | '.join(row)} |" for row in rows)]
    )


def head_of(column: Column) -> str:
    """Return the head of a column in one line."""
    return " ".join(part for part in (column.group, column.head) if part)


def as_markdown(table: ReportTable) -> str:
    """Return a table in GitHub's Markdown, its caption above and its notes below."""
    heads = [escape_markdown(head_of(column)) for column in table.columns]
    rules = ["---:" if column.is_number else "---" for column in table.columns]
    body = []
    for row in table.rows:
        texts = [escape_markdown(cell.text) for cell in row]
        cells = [f"**{t}**" if c.is_best else t for c, t in zip(row, texts, strict=True)]
        body.append(cells + [""] * (len(table.columns) - len(cells)))
    lines = [f"| {' | '.join(cells)} |" for cells in [heads, rules, *body]]
    parts = [escape_markdown(table.caption), "\n".join(lines), *map(escape_markdown, table.notes)]
    return "\n\n".join(parts)


def as_terminal(table: ReportTable, width: int = TERMINAL_WIDTH) -> str:
    """Return a plain table; columns that do not fit follow below, with the first column again."""
    return "\n\n".join(_as_text(part) for part in split_columns(_for_terminal(table), width))


def _for_terminal(table: ReportTable) -> ReportTable:
    """Return the table without control characters, with short names in the first column."""
    columns = [
        replace(column, head=printable(column.head), group=printable(column.group))
        for column in table.columns
    ]
    rows = [[replace(cell, text=printable(cell.text)) for cell in row] for row in table.rows]
    rows = [[Cell(_fit(row[0].text, NAME_WIDTH)), *row[1:]] for row in rows]
    return replace(table, columns=columns, rows=rows)


def _fit(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _plain(cell: Cell) -> str:
    return cell.text + ("*" if cell.is_best else "")


def widths_of(table: ReportTable) -> list[int]:
    """Return the width of each column in characters, without remarks."""
    widths = [max(map(len, (column.head, column.group))) for column in table.columns]
    for row in table.rows:
        for place, cell in enumerate(row):
            if not cell.is_remark:
                widths[place] = max(widths[place], len(_plain(cell)))
    return widths


def split_columns(table: ReportTable, width: int) -> list[ReportTable]:
    """Return tables of the first column and as many others as fit; groups stay together."""
    widths = widths_of(table)
    places = range(1, len(table.columns))
    groups = [list(g) for _, g in groupby(places, key=lambda p: table.columns[p].group or p)]
    parts: list[list[int]] = [[]]
    for group in groups:
        taken = widths[0] + sum(2 + widths[place] for place in [*parts[-1], *group])
        if parts[-1] and taken > width:
            parts.append([])
        parts[-1].extend(group)
    return [pick(table, [0, *part]) for part in parts]


def _as_text(table: ReportTable) -> str:
    widths = widths_of(table)
    lines = []
    if any(column.group for column in table.columns):
        groups = [
            column.group if place == 0 or column.group != table.columns[place - 1].group else ""
            for place, column in enumerate(table.columns)
        ]
        lines.append(_line(table, groups, widths))
    lines.append(_line(table, [column.head for column in table.columns], widths))
    lines.append("  ".join("-" * width for width in widths))
    for row in table.rows:
        texts = [_plain(cell) for cell in row]
        rest = sum(widths[1:]) + 2 * (len(widths) - 2)
        remark = f"{texts[0]:<{widths[0]}}  {_fit(texts[-1], rest)}"
        lines.append(remark if row[-1].is_remark else _line(table, texts, widths))
    return "\n".join(line.rstrip() for line in lines)


def _line(table: ReportTable, texts: Sequence[str], widths: Sequence[int]) -> str:
    parts = zip(table.columns, texts, widths, strict=True)
    return "  ".join(f"{t:>{w}}" if c.is_number else f"{t:<{w}}" for c, t, w in parts)


def as_latex(table: ReportTable) -> str:
    """Return LaTeX tables for booktabs; columns that do not fit on a page follow in another one."""
    parts = split_columns(table, PAGE_WIDTH)
    return "\n".join(_as_latex(part, number) for number, part in enumerate(parts))


def _as_latex(table: ReportTable, part: int) -> str:
    """Return one LaTeX table, with remarks and notes below it."""
    heads = [(escape_latex(column.group), escape_latex(column.head)) for column in table.columns]
    remarks = [f"{row[0].text}: {row[-1].text}" for row in table.rows if row[-1].is_remark]
    rows = [row for row in table.rows if not row[-1].is_remark]
    has_groups = any(group for group, _ in heads)
    frame = pd.DataFrame(
        [[_latex_cell(cell) for cell in row] for row in rows],
        columns=pd.MultiIndex.from_tuples(heads) if has_groups else [head for _, head in heads],
    )
    text = frame.style.hide(axis="index").to_latex(
        column_format="".join("r" if column.is_number else "l" for column in table.columns),
        position="htbp",
        position_float="centering",
        hrules=True,
        label=f"tab:tabular-{table.name}" + (f"-{part + 1}" if part else ""),
        caption=escape_latex(table.caption) + (" (Continued.)" if part else ""),
        multicol_align="c",
    )
    notes = "".join(
        rf"\par\smallskip {escape_latex(note)}" + "\n" for note in [*remarks, *table.notes]
    )
    return text.replace("\\end{table}", notes + "\\end{table}")


def _latex_cell(cell: Cell) -> str:
    text = escape_latex(cell.text)
    return rf"\textbf{{{text}}}" if cell.is_best else text
