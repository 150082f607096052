"""The report on graphs: both protocols beside the paper's figures, and how the rows were made."""

import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from benchmarks._candidates import page
from benchmarks._graphs import paper, timing
from benchmarks._graphs.chosen import PROTOCOLS, Chosen, whole_folds
from benchmarks._graphs.rows import GRAPHS, METHODS, TITLES, WIDTH, with_curves
from benchmarks._tabular.escaping import escape_markdown, markdown_code, printable
from benchmarks._tabular.own import as_json
from benchmarks._tabular.report.formats import as_markdown, as_terminal
from benchmarks._tabular.report.sheets import Cell, Column, Sheet, number, plus_minus, short, span
from benchmarks._tabular.rows import read_rows
from benchmarks._writing import write_text

SAID = {"xu": "on the test folds (Xu et al.)", "honest": "on validation graphs"}
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "graphs.md"
NAME = "graphs"
CAUTION = (
    "To choose on the test folds leans towards low errors: compare methods within a line, and "
    "trust the lines chosen on validation graphs."
)


class Part(NamedTuple):
    """Rows of one set, one way of training and one protocol."""

    dataset: str
    protocol: str
    training: dict[str, Any]
    rows: pd.DataFrame

    def chosen(self) -> dict[str, Chosen]:
        """What each method comes to."""
        choose = PROTOCOLS[self.protocol]
        by_method = dict(iter(self.rows.groupby("method")))
        return {name: choose(by_method[name]) for name in METHODS if name in by_method}


def parts_of(rows: pd.DataFrame) -> Iterator[Part]:
    """Rows that did not fail, of whole folds, by set, training and protocol."""
    good = with_curves(rows[rows["error"] == ""])
    for (dataset, _, params), of_set in good.groupby(["dataset", "data", "params"], sort=False):
        for protocol in PROTOCOLS:
            part = of_set[of_set["protocol"] == protocol]
            if len(part):
                yield Part(str(dataset), protocol, json.loads(str(params)), whole_folds(part))


def errors_sheet(parts: Sequence[Part]) -> Sheet:
    """Test errors by set, protocol and method, beside the paper's."""
    body = []
    for part in parts:
        chosen = part.chosen()
        best = min(one.mean for one in chosen.values())
        cells = [
            Cell(plus_minus(chosen[name].mean, chosen[name].deviation), chosen[name].mean == best)
            if name in chosen
            else Cell()
            for name in METHODS
        ]
        # The paper chooses on test folds: only such lines can be laid beside it.
        theirs = paper.ERRORS.get(part.dataset, {}) if part.protocol == "xu" else {}
        figures = [Cell(number(theirs.get(name, float("nan")))) for name in METHODS]
        words = [part.dataset, SAID[part.protocol], str(part.rows["fold"].nunique())]
        body.append([*map(Cell, words), *cells, *figures])
    columns = [Column(head, is_number=False) for head in ("Set", "Epoch, alpha and eta chosen")]
    columns.append(Column("Folds"))
    columns += [Column(TITLES[name], group) for group in ("Ours", "Paper") for name in METHODS]
    caption = (
        "Test error (%), mean and deviation over folds, the lowest mean of a line in bold. "
        + CAUTION
    )
    return Sheet("errors", caption, columns, body)


def choices_sheet(parts: Sequence[Part]) -> Sheet:
    """What was chosen: epochs, and values of alpha and eta with the number of folds."""
    body = []
    for part in parts:
        for name, one in part.chosen().items():
            middle = f"{np.median(one.epochs):.0f} ({span(one.epochs)})"
            shown = middle if len(set(one.epochs)) > 1 else str(one.epochs[0])
            values = [_counted(pd.Series(column)) for column in zip(*one.numbers, strict=True)]
            words = [part.dataset, SAID[part.protocol], TITLES[name], shown, *values]
            body.append([*map(Cell, words)])
    heads = ("Set", "Chosen", "Method", "Epoch", "alpha", "eta")
    caption = (
        "What was chosen. On the test folds: one epoch, alpha and eta for all folds. On validation "
        "graphs: the median of the epochs and their span, and the number of folds with each value."
    )
    return Sheet("choices", caption, [Column(head, is_number=False) for head in heads], body)


def _counted(values: pd.Series) -> str:
    counts = values.dropna().value_counts().sort_index()
    if len(counts) <= 1:
        return "".join(map(short, counts.index))
    return ", ".join(f"{short(value)} ({count})" for value, count in counts.items())


def settings_lines(parts: Sequence[Part]) -> list[str]:
    """How the rows of each set were made."""
    lines = []
    for part in parts:
        rows = part.rows
        grid = {name: sorted(rows[name].dropna().unique().tolist()) for name in ("alpha", "eta")}
        sizes = [span([int(n) for n in rows[name]]) for name in ("n_train", "n_valid", "n_test")]
        lines.append(
            f"- {escape_markdown(part.dataset)}, {SAID[part.protocol]}: {len(rows)} fits; "
            f"{sizes[0]} graphs to train, {sizes[1]} to choose by and {sizes[2]} to test; "
            f"{rows['n_parameters'].iloc[0]:,.0f} parameters; grid {markdown_code(as_json(grid))}; "
            f"training {markdown_code(as_json(part.training))}"
        )
    every = pd.concat([part.rows for part in parts])
    commits = ", ".join(map(markdown_code, every["commit"].unique()))
    return [*lines, f"- commit {commits}; {escape_markdown(every['versions'].iloc[-1])}"]


def sheets_of(folder: pathlib.Path) -> tuple[list[Sheet], list[str]]:
    """All tables of a folder, and how its rows were made."""
    path = folder / "rows.csv"
    rows = read_rows(path, GRAPHS) if path.exists() else pd.DataFrame({"error": []})
    failed = [text for text in rows["error"] if text]
    parts = list(parts_of(rows)) if len(failed) < len(rows) else []
    if not parts:
        reason = f": all {len(failed)} fits failed, such as: {failed[0]}" if failed else ""
        raise ValueError(f"Got no rows in {path}, but expected some to report on{reason}.")
    sheets = [errors_sheet(parts), choices_sheet(parts)]
    if (folder / timing.FILE).exists():
        sheets += timing.sheets_of(folder / timing.FILE)
    lines = settings_lines(parts)
    n_left = len(rows) - len(failed) - sum(len(part.rows) for part in parts)
    if n_left:
        lines.append(f"- {n_left} fits are left out, of folds that do not have all fits yet")
    if failed:
        example = escape_markdown(failed[0])
        lines.append(f"- {len(failed)} of {len(rows)} fits failed, such as: {example}")
    return sheets, lines


def make_report(folder: pathlib.Path) -> str:
    """Write the report of all rows of a folder, and give back what is printed."""
    sheets, lines = sheets_of(folder)
    told = ["# Graphs", *map(as_markdown, sheets), "How it was run:", "\n".join(lines)]
    file = folder / "report.md"
    write_text(file, "\n\n".join(told) + "\n")
    printed = [f"{printable(sheet.caption)}\n\n{as_terminal(sheet, WIDTH)}" for sheet in sheets]
    return "\n\n".join([*printed, "\n".join(lines), f"Report: {file}"])


def write_page(folder: pathlib.Path) -> None:
    """Write the tables into the page about graphs."""
    page.write(NAME, "\n\n".join(map(as_markdown, sheets_of(folder)[0])), PAGE)
