"""Tables in the terminal, in Markdown and in LaTeX, with names escaped; numbers as text."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

TERMINAL_WIDTH = 100
NAME_WIDTH, CELL_WIDTH = 20, 60  # longer names and texts are shortened in the terminal

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
    """Return text in one line without control characters, which a terminal would execute."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def printable_lines(text: str) -> str:
    r"""Return text without control characters, with its lines."""
    return "\n".join(map(printable, text.splitlines()))


def escape_markdown(text: str) -> str:
    """Return text that Markdown shows as it is, anywhere in a line."""
    text = re.sub(r"([\\`*_{}\[\]<>&|#~$!])", r"\\\1", printable(text))
    text = _ADDRESS.sub(lambda match: "\\" + match[0], text)
    if _BEGIN.match(text):
        return "\\" + text
    return _NUMBERED.sub(r"\1\\\2", text, count=1) if _NUMBERED.match(text) else text


def markdown_code(text: str) -> str:
    """Return text as inline code in Markdown."""
    text = printable(text)
    longest = max(map(len, re.findall("`+", text)), default=0)
    mark = "`" * (longest + 1)
    pad = " " if text.startswith("`") or text.endswith("`") or not text else ""
    return f"{mark}{pad}{text}{pad}{mark}"


def escape_latex(text: str) -> str:
    r"""Return text that LaTeX prints as it is."""
    text = re.sub(r"(?<![\w.])-(?=\d)", "\N{MINUS SIGN}", printable(text))
    # LaTeX would join two hyphens to a dash.
    return re.sub("-(?=-)", "-{}", text.translate(_LATEX))


@dataclass(frozen=True)
class Column:
    """A column: its head, a common head of several columns, and whether it holds numbers."""

    head: str
    group: str = ""
    is_number: bool = True

    @property
    def title(self) -> str:
        """Both heads in one line."""
        return f"{self.group} {self.head}".strip()


@dataclass(frozen=True)
class Cell:
    """Text in a table."""

    text: str = ""
    is_best: bool = False


@dataclass(frozen=True)
class ReportTable:
    """A table with a caption, and notes below it; a row may lack cells at its end."""

    name: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()


def number(value: float, decimals: int = 2) -> str:
    """Format a number; blank if it is missing."""
    return "" if pd.isna(value) else f"{value:.{decimals}f}"


def signed(value: float) -> str:
    """Format a difference."""
    return "" if pd.isna(value) else f"{value:+.2f}"


def plus_minus(mean: float, deviation: float, decimals: int = 2) -> str:
    """Format a mean and its standard deviation, which may be missing."""
    shown = number(mean, decimals)
    return shown if pd.isna(deviation) else f"{shown} ± {number(deviation, decimals)}"


def short(value: float) -> str:
    """Format a value of the grid as it was given."""
    return "" if pd.isna(value) else f"{value:g}"


def p_value(value: float) -> str:
    """Format a p value."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def seconds(value: float) -> str:
    """Format seconds with two significant digits."""
    return "" if pd.isna(value) else f"{value:.2g}" if value < 10 else f"{value:.0f}"


def span(counts: Sequence[int]) -> str:
    """Format counts: one, or the lowest and the highest."""
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def plain_markdown(header: Sequence[str], rows: Iterable[Sequence[str]], n_texts: int = 1) -> str:
    """Return a Markdown table of trusted text; columns after those of text align to the right."""
    head, *lines = (f"| {' | '.join(line)} |" for line in [header, *rows])
    rule = "|" + "---|" * n_texts + "--:|" * (len(header) - n_texts)
    return "\n".join([head, rule, *lines])


def _texts_of(table: ReportTable, escape: Callable[[str], str], best: str) -> list[list[str]]:
    """Return heads and rows as escaped text; ``best`` formats the best cells."""
    lines = [[escape(column.title) for column in table.columns]]
    for row in table.rows:
        texts = [escape(cell.text) for cell in row]
        texts = [best.format(t) if c.is_best else t for c, t in zip(row, texts, strict=True)]
        lines.append(texts + [""] * (len(table.columns) - len(texts)))
    return lines


def as_markdown(table: ReportTable) -> str:
    """Return a table in GitHub's Markdown, its caption above and its notes below."""
    heads, *rows = _texts_of(table, escape_markdown, "**{}**")
    rules = ["---:" if column.is_number else "---" for column in table.columns]
    lines = [f"| {' | '.join(cells)} |" for cells in [heads, rules, *rows]]
    parts = [escape_markdown(table.caption), "\n".join(lines), *map(escape_markdown, table.notes)]
    return "\n\n".join(parts)


def as_terminal(table: ReportTable, width: int = TERMINAL_WIDTH) -> str:
    """Return a plain table; columns that do not fit follow below, with the first column again."""
    heads, *rows = _texts_of(table, printable, "{}*")
    names = [name if len(name) <= NAME_WIDTH else name[: NAME_WIDTH - 1] + "…" for name, *_ in rows]
    frame = pd.DataFrame([row[1:] for row in rows], index=names, columns=heads[1:], dtype=str)
    return frame.rename_axis(columns=heads[0]).to_string(line_width=width, max_colwidth=CELL_WIDTH)


def as_latex(table: ReportTable) -> str:
    """Return a LaTeX table for booktabs; the notes are part of its caption."""
    heads, *rows = _texts_of(table, escape_latex, r"\textbf{{{}}}")
    return (
        pd.DataFrame(rows, columns=heads)
        .style.hide(axis="index")
        .to_latex(
            column_format="".join("r" if column.is_number else "l" for column in table.columns),
            position="htbp",
            position_float="centering",
            hrules=True,
            label=f"tab:tabular-{table.name}",
            caption=escape_latex(" ".join([table.caption, *table.notes])),
        )
    )
