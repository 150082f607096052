"""Tables as plain text, as Markdown and as LaTeX. Text of users is escaped for each."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from benchmarks._tabular.escaping import escape_latex, escape_markdown, printable
from benchmarks._tabular.report.sheets import Cell, Column, Sheet, pick

TERMINAL_WIDTH = 100
# Names longer than this are cut short on the terminal.
NAME_WIDTH = 20
# What fits on a page in small print, in characters.
PAGE_WIDTH = 96


def head_of(column: Column) -> str:
    """The head of a column in one line."""
    return " ".join(part for part in (column.group, column.head) if part)


def as_markdown(sheet: Sheet) -> str:
    """A table of GitHub's Markdown, its caption above and its notes below."""
    heads = [escape_markdown(head_of(column)) for column in sheet.columns]
    rules = ["---:" if column.is_number else "---" for column in sheet.columns]
    body = []
    for row in sheet.rows:
        cells = [f"**{escape_markdown(c.text)}**" if c.is_best else _md(c) for c in row]
        cells += [""] * (len(sheet.columns) - len(cells))
        body.append(cells)
    lines = [f"| {' | '.join(cells)} |" for cells in [heads, rules, *body]]
    parts = [escape_markdown(sheet.caption), "\n".join(lines), *map(escape_markdown, sheet.notes)]
    return "\n\n".join(parts)


def _md(cell: Cell) -> str:
    return escape_markdown(cell.text)


def as_terminal(sheet: Sheet, width: int = TERMINAL_WIDTH) -> str:
    """A plain table; columns that do not fit follow below, each part with the first column."""
    parts = [_as_text(part) for part in split_columns(_shortened(_printable(sheet)), width)]
    return "\n\n".join(parts)


def _printable(sheet: Sheet) -> Sheet:
    """The same table without control characters, which a terminal would obey."""
    columns = [
        replace(column, head=printable(column.head), group=printable(column.group))
        for column in sheet.columns
    ]
    rows = [[replace(cell, text=printable(cell.text)) for cell in row] for row in sheet.rows]
    return replace(sheet, columns=columns, rows=rows)


def _shortened(sheet: Sheet) -> Sheet:
    rows = [[Cell(_cut(row[0].text)), *row[1:]] for row in sheet.rows]
    return replace(sheet, rows=rows)


def _cut(text: str) -> str:
    return text if len(text) <= NAME_WIDTH else text[: NAME_WIDTH - 1] + "…"


def _plain(cell: Cell) -> str:
    return cell.text + ("*" if cell.is_best else "")


def widths_of(sheet: Sheet) -> list[int]:
    """How many characters each column takes; remarks do not count."""
    widths = [max(map(len, (column.head, column.group))) for column in sheet.columns]
    for row in sheet.rows:
        for place, cell in enumerate(row):
            if not cell.is_remark:
                widths[place] = max(widths[place], len(_plain(cell)))
    return widths


def split_columns(sheet: Sheet, width: int) -> list[Sheet]:
    """Tables of the first column and as many others as fit, without parting a group."""
    widths = widths_of(sheet)
    places = range(1, len(sheet.columns))
    groups = [list(g) for _, g in groupby(places, key=lambda p: sheet.columns[p].group or p)]
    parts: list[list[int]] = [[]]
    for group in groups:
        taken = widths[0] + sum(2 + widths[place] for place in [*parts[-1], *group])
        if parts[-1] and taken > width:
            parts.append([])
        parts[-1].extend(group)
    return [pick(sheet, [0, *part]) for part in parts]


def _as_text(sheet: Sheet) -> str:
    widths = widths_of(sheet)
    lines = []
    if any(column.group for column in sheet.columns):
        groups = [
            column.group if place == 0 or column.group != sheet.columns[place - 1].group else ""
            for place, column in enumerate(sheet.columns)
        ]
        lines.append(_line(sheet, groups, widths))
    lines.append(_line(sheet, [column.head for column in sheet.columns], widths))
    lines.append("  ".join("-" * width for width in widths))
    for row in sheet.rows:
        texts = [_plain(cell) for cell in row]
        is_wide = row[-1].is_remark
        room = sum(widths[1:]) + 2 * (len(widths) - 2)
        wide = f"{texts[0]:<{widths[0]}}  {_fit(texts[-1], room)}"
        lines.append(wide if is_wide else _line(sheet, texts, widths))
    return "\n".join(line.rstrip() for line in lines)


def _fit(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1] + "…"


def _line(sheet: Sheet, texts: Sequence[str], widths: Sequence[int]) -> str:
    parts = zip(sheet.columns, texts, widths, strict=True)
    return "  ".join(f"{t:>{w}}" if c.is_number else f"{t:<{w}}" for c, t, w in parts)


def as_latex(sheet: Sheet) -> str:
    r"""Tables with the rules of booktabs; what does not fit on a page follows in another one."""
    parts = split_columns(sheet, PAGE_WIDTH)
    return "\n\n".join(_as_latex(part, number) for number, part in enumerate(parts))


def _as_latex(sheet: Sheet, part: int) -> str:
    caption = escape_latex(sheet.caption) + (" (Continued.)" if part else "")
    label = f"tab:tabular-{sheet.name}" + (f"-{part + 1}" if part else "")
    body = [" & ".join(_tex(cell, len(sheet.columns) - 1) for cell in row) for row in sheet.rows]
    lines = [
        r"\begin{table}[htbp]",
        r"  \centering\footnotesize",
        rf"  \caption{{{caption}}}",
        rf"  \label{{{label}}}",
        r"  \setlength{\tabcolsep}{4pt}",
        rf"  \begin{{tabular}}{{{''.join('r' if c.is_number else 'l' for c in sheet.columns)}}}",
        r"    \toprule",
        *(f"    {line}" for line in _latex_heads(sheet)),
        r"    \midrule",
        *(rf"    {line} \\" for line in body),
        r"    \bottomrule",
        r"  \end{tabular}",
        *(rf"  \par\smallskip {escape_latex(note)}" for note in sheet.notes),
        r"\end{table}",
    ]
    return "\n".join(lines)


def _latex_heads(sheet: Sheet) -> list[str]:
    heads = " & ".join(escape_latex(column.head) for column in sheet.columns) + r" \\"
    if not any(column.group for column in sheet.columns):
        return [heads]
    cells, rules, place = [], [], 1
    for group, columns in groupby(sheet.columns, key=lambda column: column.group):
        size = len(list(columns))
        cells.append(rf"\multicolumn{{{size}}}{{c}}{{{escape_latex(group)}}}")
        if group:
            rules.append(rf"\cmidrule(lr){{{place}-{place + size - 1}}}")
        place += size
    return [" & ".join(cells) + r" \\", " ".join(rules), heads]


def _tex(cell: Cell, n_rest: int) -> str:
    text = escape_latex(cell.text)
    if cell.is_remark:
        return rf"\multicolumn{{{n_rest}}}{{l}}{{{text}}}"
    return rf"\textbf{{{text}}}" if cell.is_best else text
