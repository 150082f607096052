"""What the report says of classifiers as they come: ours among those that a user may take instead.

There is such a part where the rows have ``mixupe-default``. The other networks, which have the
paper's protocol and not their defaults, are no part of it.
"""

from collections.abc import Sequence

import pandas as pd

from benchmarks._tabular.peers import PEERS
from benchmarks._tabular.report.results import label_of, order_methods, win_tie_loss
from benchmarks._tabular.report.sheets import Cell, Column, Sheet, number, seconds, signed
from benchmarks._tabular.report.statistics import LEVEL, RankTest, compare_ranks

OURS, EARLIER = "mixupe-default", "mixupe-paper"
# Those whose time ours is compared with, and the share that it may take (issue 6).
TIMED = {"realmlp": 0.2, "hist-gradient-boosting": 1.0}
# This one has the paper's network and training.
_NOT_DEFAULT = "mlp-sklearn"


def default_methods(methods: Sequence[str]) -> list[str]:
    """Ours as it comes and its peers; none where ours is not there.

    Examples
    --------
    >>> default_methods(["erm", "mixupe-default", "mlp-sklearn", "logistic"])
    ['mixupe-default', 'logistic']
    """
    peers = [name for name in methods if name in PEERS and name != _NOT_DEFAULT]
    return order_methods([OURS, *peers]) if OURS in methods else []


def rank_defaults(errors: pd.DataFrame) -> RankTest | str | None:
    """Average ranks of the classifiers as they come; why there are none, or None without ours."""
    methods = default_methods(list(errors))
    if not methods:
        return None
    test = compare_ranks(errors[methods])
    if isinstance(test, RankTest) and OURS in test.left_out:
        return f"Ranks are left out: {label_of(OURS)} ran on too few of the data sets."
    return test


def standing(ranks: RankTest) -> str:
    """Where ours is among the others, by how much, and what the test says of it."""
    order = list(ranks.ranks.index)
    own, best = ranks.ranks[OURS], ranks.ranks.iloc[0]
    others = ranks.ranks.drop(OURS)
    next_one = str(others.index[0])
    place = 1 + int((others < own).sum())
    head = (
        f"As all {len(order)} come, with their own defaults, {label_of(OURS)} has "
        f"{_placed(place, int((others == own).sum()))} average rank on {ranks.n_sets} data sets, "
        f"{number(own)}"
    )
    if place > 1:
        how = f"; the best is {label_of(order[0])} with {number(best)}"
    else:
        how = f"; the next is {label_of(next_one)} with {number(others.iloc[0])}"
    differ = [str(name) for name in others.index if ranks.pairs.loc[OURS, name] < LEVEL]
    names = ", ".join(map(label_of, differ)) or "none of them"
    return f"{head}{how}. By Nemenyi's test at 5 % it differs from: {names}."


def _placed(place: int, n_equal: int) -> str:
    words = {1: "the best", 2: "the second best", 3: "the third best"}
    shown = words.get(place, f"place {place} by")
    return f"{shown} (shared with {n_equal})" if n_equal else shown


def against_sheet(errors: pd.DataFrame) -> Sheet:
    """Ours against each of the others: wins, ties and losses, and how far apart they are."""
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
    heads = ["Mean error, ours", "Mean error, its", "Median difference", "Wins/ties/losses"]
    return Sheet(
        "against",
        f"{label_of(OURS)} against each of the others: test errors in percent over the data sets "
        "that both have, and the median of ours - its.",
        [Column("Against", is_number=False), *map(Column, [*heads, "Data sets"])],
        rows,
    )


def fit_times(used: pd.DataFrame) -> pd.DataFrame:
    """Median seconds of a fit over the splits, data sets by methods that are as they come."""
    methods = default_methods(list(used["method"].unique()))
    methods += [EARLIER] if methods and EARLIER in set(used["method"]) else []
    rows = used[used["method"].isin(methods)]
    table = rows.pivot_table(
        index="set", columns="method", values="fit_seconds", aggfunc="median", sort=False
    )
    return table.reindex(columns=[name for name in methods if name in table])


def time_ratios(times: pd.DataFrame) -> pd.DataFrame:
    """Times of ours as a share of those that it is compared with, data sets by these."""
    return pd.DataFrame(
        {name: times[OURS] / times[name] for name in TIMED if name in times}
    ).dropna(how="all")


def times_in_words(times: pd.DataFrame) -> str:
    """How long a fit of ours takes beside RealMLP and gradient boosting, in a sentence each."""
    parts = []
    for name, share in TIMED.items():
        ratios = time_ratios(times).get(name, pd.Series(dtype=float)).dropna()
        if ratios.empty:
            continue
        text = (
            f"a fit of {label_of(OURS)} takes {number(ratios.median())} of the time of "
            f"{label_of(name)}'s (median over {len(ratios)} data sets, from "
            f"{number(ratios.min())} to {number(ratios.max())}) and is below it on "
            f"{int((ratios < 1).sum())}"
        )
        if share < 1:
            text += f", at or below {share:g} of it on {int((ratios <= share).sum())}"
        parts.append(text)
    return ". ".join(text[0].upper() + text[1:] for text in parts) + "." if parts else ""


def times_sheet(times: pd.DataFrame, n_runs: int) -> Sheet:
    """Seconds of a fit by data set and method, and the share of those that ours is timed with."""
    ratios = time_ratios(times)
    columns = [Column("Data set", is_number=False)]
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
        rows.append([Cell("Median over data sets"), *medians, *(Cell() for _ in times)])
    notes = ["One thread each; the time is that of the preprocessing and of the fit."]
    if n_runs > 1:
        notes.append(
            f"The fits were timed in {n_runs} runs, the machine may have been busier in some."
        )
    return Sheet(
        "fit-times",
        "Seconds of one fit with default settings, median over the splits, and ours as a share of "
        "theirs.",
        columns,
        rows,
        notes,
    )
