"""Tables of the study, from rows alone: the choice by validation, the ablation by test rows."""

from collections.abc import Mapping, Sequence

import pandas as pd

from benchmarks._candidates.rows import METRICS
from benchmarks._candidates.settings import CANDIDATES
from benchmarks._tabular.report.formats import as_markdown
from benchmarks._tabular.report.results import SAME, as_printed, common_part, win_tie_loss
from benchmarks._tabular.report.sheets import Cell, Column, Sheet, number, seconds, span

NONE = "There are no rows yet."


def wanted_rows(rows: pd.DataFrame, params: Mapping[str, str]) -> pd.DataFrame:
    """Rows that did not fail, of the given candidates with what they set today.

    Of a data set whose content has changed, the newest counts.
    """
    is_wanted = rows["params"] == rows["candidate"].map(params)
    if "error" in rows:
        is_wanted &= rows["error"] == ""
    newest = rows[is_wanted].groupby("dataset")["data"].last()
    return rows[is_wanted & (rows["data"] == rows["dataset"].map(newest))]


def means_of(rows: pd.DataFrame, columns: Sequence[str], n_splits: int) -> pd.DataFrame:
    """Means over the splits, a line per data set and candidate, where all have all splits.

    A candidate that has less than half of what the others have is left out, so as not to cut
    theirs.
    """
    groups = rows.groupby(["dataset", "candidate"])
    whole = groups[list(columns)].mean()[groups.size() >= n_splits]
    names = whole.reset_index()[["dataset", "candidate"]]
    by_candidate = names.groupby("candidate")["dataset"].agg(set)
    common = common_part(list(by_candidate)) if len(by_candidate) else set()
    listed = [name for name, sets in by_candidate.items() if sets >= common]
    keeps = names["dataset"].isin(common) & names["candidate"].isin(listed)
    return whole[keeps.to_numpy()]


def average_ranks(means: pd.DataFrame, column: str) -> pd.Series:
    """Average rank of each candidate over the data sets; what rounding parts is tied.

    Examples
    --------
    >>> index = pd.MultiIndex.from_product([["iris", "wine"], ["a", "b"]])
    >>> average_ranks(pd.DataFrame({"x": [1.0, 2.0, 3.0, 3.00001]}, index=index), "x").to_dict()
    {'a': 1.25, 'b': 1.75}
    """
    table = means[column].unstack()
    return (table / SAME).round().rank(axis=1).mean()


def times_of(rows: pd.DataFrame, means: pd.DataFrame) -> pd.DataFrame:
    """Median seconds of a fit over the splits, data sets that are compared by candidates."""
    times = rows.groupby(["dataset", "candidate"])["fit_seconds"].median()
    return times.reindex(means.index).unstack()


def choose_sheet(rows: pd.DataFrame, params: Mapping[str, str], n_splits: int) -> Sheet | None:
    """Candidates by average rank of their validation error; None without rows."""
    used = wanted_rows(rows, params)
    columns = [f"valid_{name}" for name in METRICS]
    means = means_of(used, columns, n_splits)
    if means.empty:
        return None
    over_sets = means.groupby("candidate").mean()
    times = times_of(used, means).median()
    ranks = {name: average_ranks(means, f"valid_{name}") for name in ("error", "log_loss")}
    order = ranks["error"].sort_values(kind="stable").index
    body = [
        [
            Cell(str(name)),
            *(
                Cell(number(rank[name]), is_best=rank[name] == rank.min())
                for rank in ranks.values()
            ),
            Cell(number(over_sets["valid_error"][name])),
            *(Cell(number(over_sets[column][name], 4)) for column in columns[1:]),
            Cell(seconds(times[name])),
            Cell(CANDIDATES[str(name)][2] if name in CANDIDATES else ""),
        ]
        for name in order
    ]
    heads = ["Rank by error", "Rank by log loss", "Error (%)", "Log loss", "ECE", "Brier"]
    heads += ["Seconds of a fit"]
    n_sets = means.index.get_level_values("dataset").nunique()
    return Sheet(
        "choose",
        f"Candidates by validation scores alone: means over {n_sets} data sets of "
        f"{n_splits} splits each; ranks are averages over the data sets, 1 is the best; seconds "
        f"are medians.",
        [Column("Candidate", is_number=False), *map(Column, heads), Column("Why", is_number=False)],
        body,
        _left_out(params, order),
    )


def _left_out(params: Mapping[str, str], listed: Sequence[str]) -> list[str]:
    missing = [name for name in params if name not in set(listed)]
    return [f"Not finished: {', '.join(missing)}."] if missing else []


def ablation_sheet(
    rows: pd.DataFrame, test: pd.DataFrame, params: Mapping[str, str], n_splits: int
) -> Sheet | None:
    """The default and the same without one ingredient, by test rows; None without the default."""
    columns = ["test_error", "test_log_loss", "test_ece", "test_brier"]
    means = means_of(wanted_rows(test, params), columns, n_splits)
    if "default" not in means.index.get_level_values("candidate"):
        return None
    errors = means["test_error"].map(as_printed).unstack()
    over_sets = means.groupby("candidate").mean()
    times = times_of(wanted_rows(rows, params), means)
    order = [name for name in params if name in errors]
    body = []
    for name in order:
        counts = (
            "·" if name == "default" else "/".join(map(str, win_tie_loss(errors, name, "default")))
        )
        figures = [counts, number(over_sets["test_error"][name])]
        figures += [number(over_sets[column][name], 4) for column in columns[1:]]
        share = (times[name] / times["default"]).median()
        body.append([Cell(name), *map(Cell, figures), Cell(number(share))])
    heads = ["Wins/ties/losses against the default", "Test error (%)", "Log loss", "ECE", "Brier"]
    return Sheet(
        "ablation",
        f"The default, and what is left of it without one ingredient: means over {len(errors)} "
        f"data sets of {span([n_splits])} splits each. A win is a lower test error than the "
        f"default's, a tie the same to two decimals.",
        [Column("Settings", is_number=False), *map(Column, [*heads, "Time / default's"])],
        body,
        _left_out(params, order),
    )


def as_text(sheet: Sheet | None) -> str:
    """A table in Markdown, or a sentence that there is none."""
    return NONE if sheet is None else as_markdown(sheet)
