"""What the rows say: what was chosen, how methods compare, and the outcome in words."""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from benchmarks._tabular.report import paper, tables
from benchmarks._tabular.report.results import (
    as_printed,
    choose_from,
    clean,
    count_at_or_below,
    error_table,
    label_of,
    one_line,
    summarise,
    win_tie_loss,
)
from benchmarks._tabular.report.sheets import number, span
from benchmarks._tabular.report.statistics import RankTest, compare_pairs, compare_ranks


@dataclass(frozen=True)
class Findings:
    """All that the report is made of."""

    fits: pd.DataFrame
    configurations: pd.DataFrame
    chosen: pd.DataFrame
    errors: pd.DataFrame
    ranks: RankTest | str
    pairs: pd.DataFrame | str
    command: str
    not_run: Mapping[str, str]


def find(rows: pd.DataFrame, command: str, not_run: Mapping[str, str]) -> Findings:
    """Choose, compare and test."""
    fits = clean(rows)
    chosen = choose_from(fits)
    errors = error_table(chosen)
    return Findings(
        fits,
        summarise(fits),
        chosen,
        errors,
        compare_ranks(errors),
        compare_pairs(errors),
        one_line(command),
        not_run,
    )


def lead(found: Findings) -> list[str]:
    """The outcome in a few sentences."""
    n_sets = len(found.errors)
    if n_sets == 0:
        return [f"There is no result yet: {counts_of_fits(found.fits)}."]
    if n_sets == 1:
        return [_lead_of_one(found.chosen)]
    sentences = [_lead_of_many(found)]
    if "mixupe" in found.errors and _paper_sets(found.chosen):
        sentences.append(_paper_counts(found.chosen))
    return sentences


def counts_of_fits(fits: pd.DataFrame) -> str:
    """How many fits there are, and how many failed, within a sentence."""
    n_failed = int(fits["has_failed"].sum())
    return f"the rows hold {len(fits)} fits, of which {n_failed} failed"


def _lead_of_one(chosen: pd.DataFrame) -> str:
    printed = {label_of(row.method): as_printed(row.test_error) for row in chosen.itertuples()}
    lowest = min(printed.values())
    best = [label for label, error in printed.items() if error == lowest]
    have = "has" if len(best) == 1 else "share"
    n_splits = span([int(n) for n in chosen["n_splits"]])
    return (
        f"On {chosen['set'].iloc[0]}, {', '.join(best)} {have} the lowest test error, "
        f"{number(lowest)} % (mean over {n_splits} {'split' if n_splits == '1' else 'splits'}). "
        f"All methods: {'; '.join(f'{label} {number(e)} %' for label, e in printed.items())}."
    )


def _lead_of_many(found: Findings) -> str:
    errors = found.errors
    counts = {other: count_at_or_below(errors, "mixupe", other) for other in ("mixup", "erm")}
    parts = [
        f"at or below {label_of(other)}'s on {count} of {n_sets} "
        f"(below on {win_tie_loss(errors, 'mixupe', other)[0]})"
        for other, (count, n_sets) in counts.items()
        if n_sets
    ]
    if parts:
        return (
            f"On {len(errors)} data sets, the mean test error of MixupE is {', and '.join(parts)}."
        )
    n_best = errors.eq(errors.min(axis=1), axis=0).sum().sort_values(ascending=False, kind="stable")
    return (
        f"On {len(errors)} data sets, {label_of(n_best.index[0])} has the lowest mean test error "
        f"most often: on {n_best.iloc[0]}."
    )


def _paper_sets(chosen: pd.DataFrame) -> list[str]:
    """Data sets of the paper's for which all its methods have a result here."""
    return [
        rows["dataset"].iloc[0].lower()
        for _, rows in chosen.groupby("set", sort=False)
        if tables.is_in_paper(rows) and set(paper.METHODS) <= set(rows["method"])
    ]


def _paper_counts(chosen: pd.DataFrame) -> str:
    names = _paper_sets(chosen)
    below = [paper.count_below("mixupe", other) for other in ("mixup", "erm")]
    text = (
        f"In the paper's own table MixupE is below Mixup on {below[0]} of {len(paper.FIGURES)} "
        f"data sets and below ERM on {below[1]}"
    )
    if 0 < len(set(names)) < len(paper.FIGURES):
        here = [
            paper.count_below("mixupe", other, sorted(set(names))) for other in ("mixup", "erm")
        ]
        text += f"; of the {len(set(names))} that are here too, on {here[0]} and on {here[1]}"
    return text + "."
