"""The report on graphs: both protocols beside the paper's figures, and how the rows were made."""

import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from benchmarks._graphs import timing
from benchmarks._graphs.fits import CURVES, METHODS, SCHEMA, TITLES
from benchmarks._graphs.selection import PROTOCOLS, Selected, complete_folds
from benchmarks._harness.docs_tables import write_block
from benchmarks._harness.report_tables import (
    Cell,
    Column,
    ReportTable,
    escape_markdown,
    markdown_code,
    number,
    plus_minus,
    short,
    span,
)
from benchmarks._harness.results_file import as_json
from benchmarks._harness.single_fits import (
    columns_of,
    source_line,
    split_failed,
    tables_text,
    write_report,
)

# Test errors (%) of the paper, by dataset and method; means over ten folds.
PAPER_ERRORS = {
    "MUTAG": {"erm": 10.15, "mixup": 10.67, "mixupe": 10.06},
    "NCI1": {"erm": 17.79, "mixup": 18.59, "mixupe": 17.74},
    "PTC": {"erm": 38.37, "mixup": 34.87, "mixupe": 35.50},
    "PROTEINS": {"erm": 25.43, "mixup": 24.44, "mixupe": 23.72},
    "IMDBBINARY": {"erm": 25.60, "mixup": 25.30, "mixupe": 25.20},
    "IMDBMULTI": {"erm": 50.33, "mixup": 49.27, "mixupe": 48.53},
}
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
    """Rows of complete folds, by dataset, training and protocol, with curves as lists."""
    read = {name: rows[name].map(lambda text: [*map(float, text.split())]) for name in CURVES}
    rows = rows.assign(**read)
    for (dataset, _, params), of_set in rows.groupby(["dataset", "data", "params"], sort=False):
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
        found = [selected.get(name) for name in METHODS]
        cells = [
            Cell(plus_minus(one.mean, one.deviation), one.mean == best) if one else Cell()
            for one in found
        ]
        # The paper selects on test folds, so only such rows compare with it.
        theirs = PAPER_ERRORS.get(part.dataset, {}) if part.protocol == "xu" else {}
        figures = [Cell(number(theirs.get(name, float("nan")))) for name in METHODS]
        words = [part.dataset, SAID[part.protocol], str(part.rows["fold"].nunique())]
        body.append([*map(Cell, words), *cells, *figures])
    columns = columns_of(["Set", "Epoch, alpha and eta chosen"], ["Folds"])
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
    return ReportTable("choices", caption, columns_of(heads), body)


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
    return [*lines, source_line(pd.concat([part.rows for part in parts]))]


def tables_of(folder: pathlib.Path) -> tuple[list[ReportTable], list[str]]:
    """All tables of a folder, and how its rows were made."""
    rows, failed = split_failed(folder / "rows.csv", SCHEMA)
    parts = list(parts_of(rows))
    tables = [errors_table(parts), choices_table(parts)]
    if (folder / timing.FILE).exists():
        tables += timing.tables_of(folder / timing.FILE)
    lines = settings_lines(parts)
    n_left = len(rows) - sum(len(part.rows) for part in parts)
    if n_left:
        lines.append(f"- {n_left} fits are left out, of folds that do not have all fits yet")
    return tables, [*lines, *failed]


def make_report(folder: pathlib.Path) -> str:
    """Write the report on all rows of a folder, and return the text for the terminal."""
    tables, lines = tables_of(folder)
    parts = ["# Graphs", tables_text(tables), "How it was run:", "\n".join(lines)]
    return write_report(folder / "report.md", "\n\n".join(parts) + "\n")


def page_tables(folder: pathlib.Path) -> str:
    """The tables of the docs page: all but that of the selected values, which is long."""
    return tables_text([table for table in tables_of(folder)[0] if table.name != "choices"])


def write_page(folder: pathlib.Path) -> None:
    """Write the tables into the docs page."""
    write_block(PAGE, "graphs", page_tables(folder))
