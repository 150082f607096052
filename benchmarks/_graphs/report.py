"""The report on graphs: both protocols beside the paper's figures, and how the rows were made.

The paper is Y. Zou, V. Verma, S. Mittal, W. H. Tang, H. Pham, J. Kannala, Y. Bengio, A. Solin and
K. Kawaguchi, "MixupE: Understanding and Improving Mixup from Directional Derivative Perspective",
UAI 2023, table of graph datasets. It prints deviations between 0.01 and 0.09, apparently of
accuracies between 0 and 1, which are left out here. It selects epoch, alpha and eta by the best
test accuracy.
"""

import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from benchmarks._graphs import timing
from benchmarks._graphs.fits import METHODS, SCHEMA, TITLES, with_curves
from benchmarks._graphs.selection import PROTOCOLS, Selected, complete_folds
from benchmarks._harness.docs_tables import write_block
from benchmarks._harness.report_tables import (
    Cell,
    Column,
    ReportTable,
    as_markdown,
    as_terminal,
    escape_markdown,
    markdown_code,
    number,
    plus_minus,
    printable,
    short,
    span,
)
from benchmarks._harness.results_file import as_json, read_rows, write_text

# Test errors (%) of the paper, by dataset and method; means over ten folds.
PAPER_ERRORS = {
    "MUTAG": {"erm": 10.15, "mixup": 10.67, "mixupe": 10.06},
    "NCI1": {"erm": 17.79, "mixup": 18.59, "mixupe": 17.74},
    "PTC": {"erm": 38.37, "mixup": 34.87, "mixupe": 35.50},
    "PROTEINS": {"erm": 25.43, "mixup": 24.44, "mixupe": 23.72},
    "IMDBBINARY": {"erm": 25.60, "mixup": 25.30, "mixupe": 25.20},
    "IMDBMULTI": {"erm": 50.33, "mixup": 49.27, "mixupe": 48.53},
}
# Wide enough for a table in one piece.
WIDTH = 140
SAID = {"xu": "on the test folds (Xu et al.)", "honest": "on validation graphs"}
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "benchmarks" / "graphs.md"
CAUTION = (
    "To choose on the test folds leans towards low errors: compare methods within a line, and "
    "trust the lines chosen on validation graphs."
)


class Part(NamedTuple):
    """Rows of one dataset, one training and one protocol."""

    dataset: str
    protocol: str
    training: dict[str, Any]
    rows: pd.DataFrame

    def selected(self) -> dict[str, Selected]:
        """The result of each method."""
        select = PROTOCOLS[self.protocol]
        by_method = dict(iter(self.rows.groupby("method")))
        return {name: select(by_method[name]) for name in METHODS if name in by_method}


def parts_of(rows: pd.DataFrame) -> Iterator[Part]:
    """Rows that did not fail, of complete folds, by dataset, training and protocol."""
    good = with_curves(rows[rows["error"] == ""])
    for (dataset, _, params), of_set in good.groupby(["dataset", "data", "params"], sort=False):
        for protocol in PROTOCOLS:
            part = of_set[of_set["protocol"] == protocol]
            if len(part):
                yield Part(str(dataset), protocol, json.loads(str(params)), complete_folds(part))


def errors_table(parts: Sequence[Part]) -> ReportTable:
    """Test errors by dataset, protocol and method, beside the paper's."""
    body = []
    for part in parts:
        selected = part.selected()
        best = min(one.mean for one in selected.values())
        cells = [
            Cell(
                plus_minus(selected[name].mean, selected[name].deviation),
                selected[name].mean == best,
            )
            if name in selected
            else Cell()
            for name in METHODS
        ]
        # The paper selects on test folds, so only such rows compare with it.
        theirs = PAPER_ERRORS.get(part.dataset, {}) if part.protocol == "xu" else {}
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
    return ReportTable("errors", caption, columns, body)


def choices_table(parts: Sequence[Part]) -> ReportTable:
    """The selected epochs, and values of alpha and eta with the number of folds."""
    body = []
    for part in parts:
        for name, one in part.selected().items():
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
    return ReportTable("choices", caption, [Column(head, is_number=False) for head in heads], body)


def _counted(values: pd.Series) -> str:
    counts = values.dropna().value_counts().sort_index()
    if len(counts) <= 1:
        return "".join(map(short, counts.index))
    return ", ".join(f"{short(value)} ({count})" for value, count in counts.items())


def settings_lines(parts: Sequence[Part]) -> list[str]:
    """How the rows of each dataset were made."""
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


def tables_of(folder: pathlib.Path) -> tuple[list[ReportTable], list[str]]:
    """All tables of a folder, and how its rows were made."""
    path = folder / "rows.csv"
    rows = read_rows(path, SCHEMA) if path.exists() else pd.DataFrame({"error": []})
    failed = [text for text in rows["error"] if text]
    parts = list(parts_of(rows)) if len(failed) < len(rows) else []
    if not parts:
        reason = f": all {len(failed)} fits failed, such as: {failed[0]}" if failed else ""
        raise ValueError(f"Got no rows in {path}, but expected some to report on{reason}.")
    tables = [errors_table(parts), choices_table(parts)]
    if (folder / timing.FILE).exists():
        tables += timing.tables_of(folder / timing.FILE)
    lines = settings_lines(parts)
    n_left = len(rows) - len(failed) - sum(len(part.rows) for part in parts)
    if n_left:
        lines.append(f"- {n_left} fits are left out, of folds that do not have all fits yet")
    if failed:
        example = escape_markdown(failed[0])
        lines.append(f"- {len(failed)} of {len(rows)} fits failed, such as: {example}")
    return tables, lines


def make_report(folder: pathlib.Path) -> str:
    """Write the report on all rows of a folder, and return the text for the terminal."""
    tables, lines = tables_of(folder)
    parts = ["# Graphs", *map(as_markdown, tables), "How it was run:", "\n".join(lines)]
    file = folder / "report.md"
    write_text(file, "\n\n".join(parts) + "\n")
    return "\n\n".join([as_printed(tables), "\n".join(lines), f"Report: {file}"])


def as_printed(tables: Sequence[ReportTable]) -> str:
    """Tables for the terminal."""
    return "\n\n".join(f"{printable(one.caption)}\n\n{as_terminal(one, WIDTH)}" for one in tables)


def page_tables(folder: pathlib.Path) -> str:
    """The tables of the docs page: all but that of the selected values, which is long."""
    tables = [table for table in tables_of(folder)[0] if table.name != "choices"]
    return "\n\n".join(map(as_markdown, tables))


def write_page(folder: pathlib.Path) -> None:
    """Write the tables into the docs page."""
    write_block(PAGE, "graphs", page_tables(folder))
