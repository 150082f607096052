"""The tables of the report, from the selected configurations and the tests."""

from collections.abc import Iterable, Mapping, Sequence

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
    order_methods,
    win_tie_loss,
)
from benchmarks._tabular.report.statistics import RankTest

MAX_FAILURES = 30  # number of listed reasons of failures
GRIDS = {
    "in part": "only some of the paper's values of alpha and eta are finished.",
    "reduced": "fewer values of alpha and eta than in the paper.",
    "default": "one configuration, with the estimator's defaults.",
}


def _plain_table(
    name: str,
    caption: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    n_texts: int = 1,
    notes: Sequence[str] = (),
) -> ReportTable:
    """Return a table of plain cells; its first ``n_texts`` columns are text, the others numbers."""
    columns = [Column(head, is_number=place >= n_texts) for place, head in enumerate(heads)]
    return ReportTable(
        name, caption, columns, [[Cell(text) for text in row] for row in rows], notes
    )


def method_error_table(chosen: pd.DataFrame, remarks: Mapping[str, str]) -> ReportTable:
    """Return test errors by dataset and method, with the paper's beside them."""
    methods = list(error_table(chosen))
    beside = [m for m in methods if m in paper.METHODS and chosen["in_paper"].any()]
    columns = [Column("Dataset", is_number=False)]
    for method in methods:
        heads = ("ours", "paper", "diff.") if method in beside else ("",)
        columns += [Column(head, label_of(method)) for head in heads]
    columns += [Column("Splits"), Column("Grid", is_number=False)]
    rows = [_error_row(own, methods, beside) for _, own in chosen.groupby("set", sort=False)]
    grids = "/".join(row[-1].text for row in rows).split("/")
    if not any(grids):  # baselines have no alpha and eta
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    notes = [f"Grid “{name}”: {text}" for name, text in GRIDS.items() if name in grids]
    if error_table(chosen).isna().any(axis=None):
        notes.append(
            "n/a: the method was not run, or none of its configurations has a fit for every "
            "counted split."
        )
    rows += [[Cell(name), Cell(remark)] for name, remark in remarks.items()]
    caption = (
        "Test error in percent: mean ± sample standard deviation over the splits; the lowest in "
        "bold."
    )
    if beside:
        caption += " Beside ours: the paper's figures, and the difference ours - paper."
    return ReportTable("errors", caption, columns, rows, notes)


def _error_row(own: pd.DataFrame, methods: Sequence[str], beside: Sequence[str]) -> list[Cell]:
    by_method = own.set_index("method")
    lowest = own["test_error"].map(as_printed).min()
    theirs = paper.FIGURES.get(own["in_paper"].iloc[0], {})
    cells = [Cell(own["set"].iloc[0])]
    for method in methods:
        difference = ""
        if method in by_method.index:
            ours = by_method.loc[method]
            error = as_printed(ours["test_error"])
            text = plus_minus(ours["test_error"], ours["test_error_std"])
            cells.append(Cell(text, is_best=error == lowest))
            difference = signed(error - theirs[method].mean) if method in theirs else ""
        else:
            cells.append(Cell("n/a"))
        if method in beside:
            figure = plus_minus(*theirs[method]) if theirs else ""
            cells += [Cell(figure), Cell(difference)]
    return [*cells, Cell(span([int(n) for n in own["n_splits"]])), Cell(_grid_of(own))]


def _grid_of(rows: pd.DataFrame) -> str:
    """Return the grid of a dataset's methods; blank if none has alpha or eta."""
    grids = [row.grid for row in rows.itertuples() if len(configs_of(row.method, "paper")) > 1]
    return "in part" if "in part" in grids else "/".join(dict.fromkeys(grids))


def distance_table(chosen: pd.DataFrame) -> ReportTable | None:
    """Return the mean distance of our errors from the paper's, by method."""
    own = chosen[chosen["in_paper"].ne("") & chosen["method"].isin(paper.METHODS)]
    if own.empty:
        return None
    pairs = zip(own["in_paper"], own["method"], strict=True)
    theirs = pd.Series([paper.FIGURES[name][method].mean for name, method in pairs], own.index)
    distances = (own["test_error"].map(as_printed) - theirs).abs().groupby(own["method"])
    return _plain_table(
        "distances",
        "Mean distance of our test errors from the paper's, |ours - paper|, in percentage points.",
        ["Method", "Mean |ours - paper|", "Datasets"],
        [
            [label_of(method), number(distances.mean()[method]), str(distances.size()[method])]
            for method in order_methods(own["method"])
        ],
    )


def strict_table(strict: pd.DataFrame, names: Sequence[str]) -> ReportTable:
    """Return test errors with alpha and eta chosen on each split separately."""
    methods = order_methods(list(strict["method"]))
    by_pair = strict.set_index(["set", "method"])
    rows = []
    for name in names:
        own = {m: by_pair.loc[(name, m)] for m in methods if (name, m) in by_pair.index}
        lowest = min(as_printed(one["test_error"]) for one in own.values())
        cells = [Cell(name)]
        for method in methods:
            error = own[method]["test_error"] if method in own else float("nan")
            text = plus_minus(error, own[method]["test_error_std"]) if method in own else "n/a"
            cells.append(Cell(text, is_best=as_printed(error) == lowest))
        rows.append(cells)
    return ReportTable(
        "strict",
        "Test error in percent with alpha and eta chosen on each split: mean ± deviation over the "
        "splits; the lowest in bold.",
        [Column("Dataset", is_number=False), *(Column(label_of(m)) for m in methods)],
        rows,
    )


def wins_table(errors: pd.DataFrame) -> ReportTable:
    """Return wins, ties and losses of each pair of methods."""
    rows = []
    for method in errors:
        counts = [() if m == method else win_tie_loss(errors, method, m) for m in errors]
        cells = ["/".join(map(str, one)) or "·" for one in counts]
        rows.append([label_of(method), *cells])
    return _plain_table(
        "wins",
        "Wins/ties/losses of the method of the row against that of the column, over datasets.",
        ["Method", *map(label_of, errors)],
        rows,
        notes=["A win is a lower test error; a tie is the same to two decimals, as printed."],
    )


def ranks_table(test: RankTest, name: str) -> ReportTable:
    """Return average ranks, and Nemenyi's p value of each pair."""
    methods = list(test.ranks.index)
    rows = []
    for method in methods:
        pairs = ["·" if m == method else p_value(test.pairs.loc[method, m]) for m in methods]
        rows.append([label_of(method), number(test.ranks[method]), *pairs])
    return _plain_table(
        name,
        f"Average ranks of {len(methods)} methods over {test.n_sets} datasets (1 is the lowest "
        f"error; ties share).",
        ["Method", "Average rank", *(f"Nemenyi p against {label_of(m)}" for m in methods)],
        rows,
    )


def pairs_table(pairs: pd.DataFrame) -> ReportTable:
    """Return Wilcoxon's test of pairs of methods."""
    return _plain_table(
        "pairs",
        "Wilcoxon's signed-rank test, two-sided, of test errors paired by dataset; Holm's "
        f"correction for {len(pairs)} {'test' if len(pairs) == 1 else 'tests'}.",
        ["Pair", "Datasets", "Wins/ties/losses", "Median difference", "p", "p (Holm)"],
        [
            [
                f"{label_of(row.method)} against {label_of(row.other)}",
                str(row.n_sets),
                f"{row.wins}/{row.ties}/{row.losses}",
                signed(row.median),
                p_value(row.p_value),
                p_value(row.p_holm),
            ]
            for row in pairs.itertuples()
        ],
    )


def chosen_table(chosen: pd.DataFrame) -> ReportTable | None:
    """Return the chosen alpha and eta of each dataset."""
    reads = chosen[chosen["alpha"].notna() | chosen["eta"].notna()]
    if reads.empty:
        return None
    return _plain_table(
        "chosen",
        "Chosen alpha and eta: those with the lowest mean validation error, in percent.",
        ["Dataset", "Method", "alpha", "eta", "out of", "Validation error", "Test error"],
        [
            [
                row.set,
                label_of(row.method),
                short(row.alpha),
                short(row.eta),
                str(row.n_configurations),
                plus_minus(row.valid_error, row.valid_error_std),
                plus_minus(row.test_error, row.test_error_std),
            ]
            for row in reads.itertuples()
        ],
        n_texts=2,
        notes=[
            "Ties go to the lower validation log loss, then to smaller alpha, then to smaller eta."
        ],
    )


def metrics_table(chosen: pd.DataFrame) -> ReportTable:
    """Return the other metrics of the chosen configurations."""
    notes = [
        "ECE: expected calibration error. Balanced accuracy and ECE are between 0 and 1.",
        "Search: seconds of all fits of a method on one split.",
    ]
    if (chosen["n_together"] > 1).any():
        together = order_methods(list(chosen.loc[chosen["n_together"] > 1, "method"]))
        names = ", ".join(map(label_of, together))
        notes.append(
            f"Fit: if networks train as one ({names}), it is the share of a single network. "
            f"Compare searches, not shares."
        )
    return _plain_table(
        "metrics",
        "Other metrics on the test samples: mean ± deviation; seconds are means over the splits.",
        [
            *("Dataset", "Method", "Log loss", "Balanced accuracy", "ECE"),
            *("Fit (s)", "Search (s)", "Predict (s)"),
        ],
        [
            [
                row.set,
                label_of(row.method),
                plus_minus(row.test_log_loss, row.test_log_loss_std, 3),
                plus_minus(row.test_balanced_accuracy, row.test_balanced_accuracy_std, 3),
                plus_minus(row.test_ece, row.test_ece_std, 3),
                seconds(row.fit_seconds),
                seconds(row.search_seconds),
                seconds(row.predict_seconds),
            ]
            for row in chosen.itertuples()
        ],
        n_texts=2,
        notes=notes,
    )


def data_table(fits: pd.DataFrame) -> ReportTable:
    """Return the size of each dataset, and the number of its fits."""
    heads = {"task_id": "OpenML task", "data_id": "OpenML data"}
    heads |= {"n_rows": "Samples", "n_features": "Columns", "n_classes": "Classes"}
    ordered = fits.iloc[fits["in_paper"].map(paper.place_of).argsort(kind="stable")]
    rows = []
    for name, group in ordered.groupby("set", sort=False):
        last = group.iloc[-1]
        sizes = [number(last[column], 0) for column in heads]
        counts = [str(len(group)), str(group["has_failed"].sum())]
        rows.append([str(name), last["source"], *sizes, *counts])
    return _plain_table(
        "data",
        "Datasets, and the number of fits of each.",
        ["Dataset", "Source", *heads.values(), "Fits", "Failed"],
        rows,
        n_texts=2,
    )


def failures_table(fits: pd.DataFrame) -> ReportTable | None:
    """Return failed fits and their errors, the most frequent first."""
    failed = fits[fits["has_failed"]]
    if failed.empty:
        return None
    counts = failed.value_counts(["set", "method", "error"]).head(MAX_FAILURES)
    return _plain_table(
        "failures",
        f"Failed fits: {len(failed)} of {len(fits)}.",
        ["Dataset", "Method", "Error", "Fits"],
        [
            [name, label_of(method), error, str(count)]
            for (name, method, error), count in counts.items()
        ],
        n_texts=3,
    )


def against_table(errors: pd.DataFrame) -> ReportTable | None:
    """Return ours against each classifier with default settings: errors, wins and losses."""
    names = [name for name in default_methods(list(errors)) if name != OURS]
    names += [EARLIER] if {OURS, EARLIER} <= set(errors) else []
    if not names:
        return None
    rows = []
    for name in names:
        both = errors[[OURS, name]].dropna()
        rows.append(
            [
                label_of(name),
                number(both[OURS].mean()),
                number(both[name].mean()),
                signed((both[OURS] - both[name]).median()),
                "/".join(map(str, win_tie_loss(errors, OURS, name))),
                str(len(both)),
            ]
        )
    return _plain_table(
        "against",
        f"{label_of(OURS)} against each of the others: test errors in percent over the datasets "
        "that both have, and the median of ours - other.",
        [
            *("Against", "Mean error, ours", "Mean error, other", "Median difference"),
            *("Wins/ties/losses", "Datasets"),
        ],
        rows,
    )
