"""The tables of the report, from the selected configurations and the tests."""

from collections.abc import Mapping, Sequence

import pandas as pd

from benchmarks._harness.report_tables import (
    Cell,
    Column,
    ReportTable,
    number,
    p_value,
    plus_minus,
    seconds,
    short,
    signed,
    span,
)
from benchmarks._tabular.protocol import configs_of
from benchmarks._tabular.report import paper
from benchmarks._tabular.report.results import (
    EARLIER,
    OURS,
    as_printed,
    default_methods,
    error_table,
    label_of,
    one_line,
    order_methods,
    time_ratios,
    win_tie_loss,
)
from benchmarks._tabular.report.statistics import RankTest

CAPTION = (
    "Test error in percent: mean ± sample standard deviation over the splits; the lowest in bold."
)
# Number of listed reasons of failures.
MAX_FAILURES = 30


def method_error_table(chosen: pd.DataFrame, remarks: Mapping[str, str]) -> ReportTable:
    """Return test errors by dataset and method, with the paper's beside them.

    ``remarks`` give the reason for each dataset without errors.
    """
    methods = list(error_table(chosen))
    beside = [m for m in methods if m in paper.METHODS and chosen["in_paper"].any()]
    columns = [Column("Dataset", is_number=False)]
    for method in methods:
        group = [Column(head, label_of(method)) for head in ("ours", "paper", "diff.")]
        columns += group if method in beside else [Column(label_of(method))]
    columns += [Column("Splits"), Column("Grid", is_number=False)]
    rows = [_error_row(chosen[chosen["set"] == n], methods, beside) for n in _sets(chosen)]
    if not any(row[-1].text for row in rows):  # baselines have no alpha and eta
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    rows += [
        [Cell(one_line(name)), Cell(one_line(remark), is_remark=True)]
        for name, remark in remarks.items()
    ]
    return ReportTable("errors", _error_caption(beside), columns, rows, _error_notes(chosen))


def _sets(chosen: pd.DataFrame) -> list[str]:
    return list(dict.fromkeys(chosen["set"]))


def _error_caption(beside: Sequence[str]) -> str:
    return CAPTION + (
        " Beside ours: the paper's figures, and the difference ours - paper." if beside else ""
    )


def _error_notes(chosen: pd.DataFrame) -> list[str]:
    meanings = {
        "in part": "only some of the paper's values of alpha and eta are finished.",
        "reduced": "fewer values of alpha and eta than in the paper.",
        "default": "one configuration, with the estimator's defaults.",
    }
    grids = "/".join(grid_of(rows) for _, rows in chosen.groupby("set")).split("/")
    notes = [f"Grid “{name}”: {text}" for name, text in meanings.items() if name in grids]
    if error_table(chosen).isna().any(axis=None):
        notes.append(
            "n/a: the method was not run, or none of its configurations has a fit for every "
            "counted split."
        )
    return notes


def _error_row(rows: pd.DataFrame, methods: Sequence[str], beside: Sequence[str]) -> list[Cell]:
    by_method = rows.set_index("method")
    lowest = rows["test_error"].map(as_printed).min()
    counts = [int(n) for n in rows["n_splits"]]
    cells = [Cell(rows["set"].iloc[0])]
    for method in methods:
        figure = paper.figure_of(rows["in_paper"].iloc[0], method)
        ours = by_method.loc[method] if method in by_method.index else None
        cells.append(_our_cell(ours, lowest))
        if method in beside:
            cells.append(Cell(plus_minus(*figure) if figure else ""))
            cells.append(Cell(_difference(ours, figure)))
    return [*cells, Cell(span(counts)), Cell(grid_of(rows))]


def _difference(ours: pd.Series | None, figure: paper.Figure | None) -> str:
    if ours is None or figure is None:
        return ""
    return signed(as_printed(ours["test_error"]) - figure.mean)


def _our_cell(ours: pd.Series | None, lowest: float) -> Cell:
    if ours is None:
        return Cell("n/a")
    text = plus_minus(ours["test_error"], ours["test_error_std"])
    return Cell(text, is_best=as_printed(ours["test_error"]) == lowest)


def grid_of(rows: pd.DataFrame) -> str:
    """Return the grid of a dataset's methods; blank if none has alpha or eta."""
    grids = [row.grid for row in rows.itertuples() if len(configs_of(row.method, "paper")) > 1]
    return "in part" if "in part" in grids else "/".join(dict.fromkeys(grids))


def paper_differences(chosen: pd.DataFrame) -> dict[str, tuple[float, int]]:
    """Return the mean distance of our test errors from the paper's, and the number of datasets."""
    found: dict[str, list[float]] = {}
    for row in chosen.itertuples():
        figure = paper.figure_of(row.in_paper, row.method)
        if figure:
            distance = abs(as_printed(row.test_error) - figure.mean)
            found.setdefault(row.method, []).append(distance)
    return {
        method: (sum(found[method]) / len(found[method]), len(found[method]))
        for method in paper.METHODS
        if method in found
    }


def distance_table(chosen: pd.DataFrame) -> ReportTable | None:
    """Return the distance of our errors from the paper's, by method."""
    distances = paper_differences(chosen)
    if not distances:
        return None
    return ReportTable(
        "distances",
        "Mean distance of our test errors from the paper's, |ours - paper|, in percentage points.",
        [Column("Method", is_number=False), Column("Mean |ours - paper|"), Column("Datasets")],
        [
            [Cell(label_of(m)), Cell(number(mean)), Cell(str(n))]
            for m, (mean, n) in distances.items()
        ],
    )


def strict_table(strict: pd.DataFrame, sets: Sequence[str]) -> ReportTable:
    """Return test errors with a selection per split, the datasets in the order of ``sets``."""
    methods = list(error_table(strict))
    rows = []
    for name in sets:
        part = strict[strict["set"] == name]
        ours, lowest = part.set_index("method"), part["test_error"].map(as_printed).min()
        cells = [_our_cell(ours.loc[m] if m in ours.index else None, lowest) for m in methods]
        rows.append([Cell(name), *cells])
    return ReportTable(
        "strict",
        "Test error in percent with alpha and eta chosen on each split: mean ± deviation over the "
        "splits; the lowest in bold.",
        [Column("Dataset", is_number=False), *(Column(label_of(m)) for m in methods)],
        rows,
    )


def wins_table(errors: pd.DataFrame) -> ReportTable | None:
    """Return wins, ties and losses of each pair of methods."""
    methods = list(errors)
    if len(methods) < 2:
        return None
    rows = []
    for method in methods:
        cells = [Cell(label_of(method))]
        for other in methods:
            counts = () if other == method else win_tie_loss(errors, method, other)
            cells.append(Cell("/".join(map(str, counts)) or "·"))
        rows.append(cells)
    return ReportTable(
        "wins",
        "Wins/ties/losses of the method of the row against that of the column, over datasets.",
        [Column("Method", is_number=False), *(Column(label_of(m)) for m in methods)],
        rows,
        ["A win is a lower test error; a tie is the same to two decimals, as printed."],
    )


def ranks_table(ranks: RankTest, name: str) -> ReportTable:
    """Return average ranks, and Nemenyi's p value of each pair."""
    methods = list(ranks.ranks.index)
    columns = [Column("Method", is_number=False), Column("Average rank")]
    columns += [Column(label_of(m), "Nemenyi p against") for m in methods]
    rows = []
    for method in methods:
        pairs = ["·" if m == method else p_value(ranks.pairs.loc[method, m]) for m in methods]
        rows.append([Cell(label_of(method)), Cell(number(ranks.ranks[method])), *map(Cell, pairs)])
    caption = (
        f"Average ranks of {len(methods)} methods over {ranks.n_sets} datasets (1 is the lowest "
        f"error; ties share)."
    )
    return ReportTable(name, caption, columns, rows)


def pairs_table(pairs: pd.DataFrame) -> ReportTable:
    """Return Wilcoxon's test of pairs of methods."""
    heads = ["Datasets", "Wins/ties/losses", "Median difference", "p", "p (Holm)"]
    rows = [
        [
            Cell(f"{label_of(row.method)} against {label_of(row.other)}"),
            Cell(str(row.n_sets)),
            Cell(f"{row.wins}/{row.ties}/{row.losses}"),
            Cell(signed(row.median)),
            Cell(p_value(row.p_value)),
            Cell(p_value(row.p_holm)),
        ]
        for row in pairs.itertuples()
    ]
    return ReportTable(
        "pairs",
        "Wilcoxon's signed-rank test, two-sided, of test errors paired by dataset; Holm's "
        f"correction for {len(pairs)} {'test' if len(pairs) == 1 else 'tests'}.",
        [Column("Pair", is_number=False), *map(Column, heads)],
        rows,
    )


def chosen_table(chosen: pd.DataFrame) -> ReportTable | None:
    """Return the chosen alpha and eta of each dataset."""
    reads = chosen[chosen["alpha"].notna() | chosen["eta"].notna()]
    if reads.empty:
        return None
    rows = [
        [
            Cell(row.set),
            Cell(label_of(row.method)),
            Cell(short(row.alpha)),
            Cell(short(row.eta)),
            Cell(str(row.n_configurations)),
            Cell(plus_minus(row.valid_error, row.valid_error_std)),
            Cell(plus_minus(row.test_error, row.test_error_std)),
        ]
        for row in reads.itertuples()
    ]
    heads = ["alpha", "eta", "out of", "Validation error", "Test error"]
    columns = [Column("Dataset", is_number=False), Column("Method", is_number=False)]
    return ReportTable(
        "chosen",
        "Chosen alpha and eta: those with the lowest mean validation error, in percent.",
        [*columns, *map(Column, heads)],
        rows,
        ["Ties go to the lower validation log loss, then to smaller alpha, then to smaller eta."],
    )


def metrics_table(chosen: pd.DataFrame) -> ReportTable:
    """Return the other metrics of the chosen configurations."""
    heads = ["Log loss", "Balanced accuracy", "ECE", "Fit (s)", "Search (s)", "Predict (s)"]
    columns = [Column("Dataset", is_number=False), Column("Method", is_number=False)]
    rows = [
        [
            Cell(row.set),
            Cell(label_of(row.method)),
            Cell(plus_minus(row.test_log_loss, row.test_log_loss_std, 3)),
            Cell(plus_minus(row.test_balanced_accuracy, row.test_balanced_accuracy_std, 3)),
            Cell(plus_minus(row.test_ece, row.test_ece_std, 3)),
            Cell(seconds(row.fit_seconds)),
            Cell(seconds(row.search_seconds)),
            Cell(seconds(row.predict_seconds)),
        ]
        for row in chosen.itertuples()
    ]
    notes = ["ECE: expected calibration error. Balanced accuracy and ECE are between 0 and 1."]
    notes.append(f"Search: seconds of all fits of a method on one split ({count_fits(chosen)}).")
    if (chosen["n_together"] > 1).any():
        together = order_methods(list(chosen.loc[chosen["n_together"] > 1, "method"]))
        names = ", ".join(map(label_of, together))
        notes.append(
            f"Fit: if networks train as one ({names}), it is the share of a single network. "
            f"Compare searches, not shares."
        )
    return ReportTable(
        "metrics",
        "Other metrics on the test samples: mean ± deviation; seconds are means over the splits.",
        [*columns, *map(Column, heads)],
        rows,
        notes,
    )


def count_fits(chosen: pd.DataFrame) -> str:
    """Return the number of fits of a search on one split, by method, as part of a sentence."""
    counts = {
        label_of(method): span(
            [int(n) for n in chosen.loc[chosen["method"] == method, "n_configurations"]]
        )
        for method in order_methods(list(chosen["method"]))
    }
    return ", ".join(f"{label} {count}" for label, count in counts.items())


def data_table(fits: pd.DataFrame) -> ReportTable:
    """Return the size of each dataset, and the number of its fits."""
    heads = {"task_id": "OpenML task", "data_id": "OpenML data"}
    heads = {name: head for name, head in heads.items() if fits[name].notna().any()}
    heads |= {"n_rows": "Samples", "n_features": "Columns", "n_classes": "Classes"}
    rows = []
    places = fits["in_paper"].map(paper.place_of)
    ordered = fits.iloc[places.argsort(kind="stable")]
    for name, group in ordered.groupby("set", sort=False):
        last = group.iloc[-1]
        about = [str(name), last["source"], *(number(last[column], 0) for column in heads)]
        counts = [len(group), int(group["has_failed"].sum())]
        rows.append([Cell(text) for text in [*about, *map(str, counts)]])
    texts = [Column("Dataset", is_number=False), Column("Source", is_number=False)]
    return ReportTable(
        "data",
        "Datasets, and the number of fits of each.",
        [*texts, *map(Column, [*heads.values(), "Fits", "Failed"])],
        rows,
    )


def failures_table(fits: pd.DataFrame) -> ReportTable | None:
    """Return failed fits and their errors, the most frequent first."""
    failed = fits[fits["has_failed"]]
    if failed.empty:
        return None
    counts = failed.value_counts(["set", "method", "error"], sort=False).reset_index()
    counts = counts.sort_values("count", ascending=False, kind="stable").head(MAX_FAILURES)
    texts = ["Dataset", "Method", "Error"]
    return ReportTable(
        "failures",
        f"Failed fits: {len(failed)} of {len(fits)}.",
        [*(Column(text, is_number=False) for text in texts), Column("Fits")],
        [
            [Cell(row.set), Cell(label_of(row.method)), Cell(row.error), Cell(str(row.count))]
            for row in counts.itertuples(index=False)
        ],
    )


def against_table(errors: pd.DataFrame) -> ReportTable:
    """Return ours against each classifier with default settings: errors, wins and losses."""
    names = [name for name in default_methods(list(errors)) if name != OURS]
    names += [EARLIER] if EARLIER in errors else []
    rows = []
    for name in names:
        both = errors[[OURS, name]].dropna()
        differences = both[OURS] - both[name]
        counts = "/".join(map(str, win_tie_loss(errors, OURS, name)))
        figures = [number(both[OURS].mean()), number(both[name].mean())]
        figures += [signed(differences.median()), counts, str(len(both))]
        rows.append([Cell(label_of(name)), *map(Cell, figures)])
    heads = ["Mean error, ours", "Mean error, other", "Median difference", "Wins/ties/losses"]
    return ReportTable(
        "against",
        f"{label_of(OURS)} against each of the others: test errors in percent over the datasets "
        "that both have, and the median of ours - other.",
        [Column("Against", is_number=False), *map(Column, [*heads, "Datasets"])],
        rows,
    )


def times_table(times: pd.DataFrame, n_runs: int) -> ReportTable:
    """Return the seconds of a fit by dataset and method, and ours as a share of some others."""
    ratios = time_ratios(times)
    columns = [Column("Dataset", is_number=False)]
    columns += [Column(label_of(name), f"{label_of(OURS)} /") for name in ratios]
    columns += [Column(label_of(name), "Seconds of a fit") for name in times]
    rows = [
        [
            Cell(str(name)),
            *(Cell(number(ratios[other].get(name))) for other in ratios),
            *(Cell(seconds(value)) for value in times.loc[name]),
        ]
        for name in times.index
    ]
    if not ratios.empty:
        medians = [Cell(number(ratios[name].median())) for name in ratios]
        rows.append([Cell("Median over datasets"), *medians, *(Cell() for _ in times)])
    notes = ["One thread each. The time includes preprocessing and fit."]
    if n_runs > 1:
        notes.append(
            f"The fits were timed in {n_runs} runs; the load of the machine may have differed."
        )
    return ReportTable(
        "fit-times",
        "Seconds of one fit with default settings, median over the splits, and ours as a share of "
        "others.",
        columns,
        rows,
        notes,
    )
