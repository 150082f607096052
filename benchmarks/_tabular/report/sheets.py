"""A table of the report as cells of text, whatever it is written as, and numbers as text."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pandas as pd


@dataclass(frozen=True)
class Column:
    """A column: its head, the head over several columns, and whether it holds numbers."""

    head: str
    group: str = ""
    is_number: bool = True


@dataclass(frozen=True)
class Cell:
    """Text in a table; a remark goes over all columns but the first."""

    text: str = ""
    is_best: bool = False
    is_remark: bool = False


@dataclass(frozen=True)
class Sheet:
    """A table with a caption, and sentences below it."""

    name: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = field(default_factory=tuple)


def pick(sheet: Sheet, places: Sequence[int]) -> Sheet:
    """A table of some columns, the first among them."""
    rows = [row if row[-1].is_remark else [row[place] for place in places] for row in sheet.rows]
    return replace(sheet, columns=[sheet.columns[place] for place in places], rows=rows)


def without(sheet: Sheet, heads: Sequence[str]) -> Sheet:
    """A table without some columns; a group of which one column is left becomes that column."""
    places = [place for place, column in enumerate(sheet.columns) if column.head not in heads]
    part = pick(sheet, places)
    sizes = Counter(column.group for column in part.columns)
    columns = [
        replace(column, head=column.group, group="")
        if column.group and sizes[column.group] == 1
        else column
        for column in part.columns
    ]
    return replace(part, columns=columns)


def number(value: float, decimals: int = 2) -> str:
    """A number in print; blank for none.

    Examples
    --------
    >>> number(-1.234), number(float("nan"))
    ('-1.23', '')
    """
    return "" if pd.isna(value) else f"{value:.{decimals}f}"


def signed(value: float) -> str:
    """A difference in print."""
    return "" if pd.isna(value) else f"{value:+.2f}"


def plus_minus(mean: float, deviation: float, decimals: int = 2) -> str:
    """A mean and its deviation, where there is one.

    Examples
    --------
    >>> plus_minus(3.14159, 0.5), plus_minus(3.14159, float("nan"))
    ('3.14 ± 0.50', '3.14')
    """
    shown = number(mean, decimals)
    return shown if pd.isna(deviation) else f"{shown} ± {number(deviation, decimals)}"


def short(value: float) -> str:
    """A number of the grid, as it was given."""
    return "" if pd.isna(value) else f"{value:g}"


def p_value(value: float) -> str:
    """A p value in print."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def seconds(value: float) -> str:
    """Seconds in print, with two digits that count.

    Examples
    --------
    >>> seconds(0.01234), seconds(123.4)
    ('0.012', '123')
    """
    return "" if pd.isna(value) else f"{value:.2g}" if value < 10 else f"{value:.0f}"


def span(counts: Sequence[int]) -> str:
    """Counts in print: one, or the lowest and the highest.

    Examples
    --------
    >>> span([5, 5]), span([5, 3])
    ('5', '3 to 5')
    """
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"
