"""The load table, made from the rows alone, and the docs page that shows it."""

import json
import pathlib

import pandas as pd

from benchmarks._speed.page import table

HEADER = [
    *("case", "size", "right", "seconds"),
    *("MiB at start", "at end", "peak", "peak without pages of files"),
    *("threads at start", "at end", "open files at start", "at end"),
]
BEGIN, END = "<!-- load: table -->", "<!-- end of table -->"
CHECKS_BEGIN, CHECKS_END = "<!-- load: checks -->", "<!-- end of checks -->"


def load_table(rows: pd.DataFrame) -> str:
    """One line a case: size, whether all was right, seconds, memory, threads and open files."""
    return table(HEADER, [_line(row) for _, row in rows.iterrows()])


def _line(row: pd.Series) -> list[str]:
    checked, wrong = json.loads(row["checked"]), json.loads(row["wrong"])
    pairs = ("threads_start", "threads_end", "files_start", "files_end")
    memory = ("memory_start", "memory_end", "memory_peak", "private_peak")
    return [
        row["case"],
        row["size"],
        f"{len(checked) - len(wrong)} of {len(checked)}",
        f"{row['seconds']:.0f}",
        *(f"{row[name]:,.0f}" for name in memory),
        *(str(int(row[name])) for name in pairs),
    ]


def checks_list(rows: pd.DataFrame) -> str:
    """What was checked in each case, in words; what was wrong says so."""
    lines = []
    for _, row in rows.iterrows():
        wrong = json.loads(row["wrong"])
        told = [
            f"**wrong**: {name}" if name in wrong else name for name in json.loads(row["checked"])
        ]
        lines.append(f"- *{row['case']}*: {'; '.join(told)}.")
    return "\n".join(lines)


def fill(page: str, rows: pd.DataFrame) -> str:
    """The page with table and list between their marks made anew."""
    for begin, end, block in (
        (BEGIN, END, load_table(rows)),
        (CHECKS_BEGIN, CHECKS_END, checks_list(rows)),
    ):
        if page.count(begin) != 1 or page.count(end) != 1:
            raise ValueError(
                f"Got a page without its marks, but expected one line {begin} and one line {end}."
            )
        page = f"{page.split(begin)[0]}{begin}\n\n{block}\n\n{end}{page.split(end)[1]}"
    return page


def write_docs(rows: pd.DataFrame, page: pathlib.Path) -> None:
    """Write the table into the docs."""
    page.write_text(fill(page.read_text(), rows))
