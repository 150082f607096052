"""What the rows say: what was chosen, how methods compare, and the outcome in words."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from benchmarks._tabular.protocol import METHODS, TRAINING
from benchmarks._tabular.report import paper
from benchmarks._tabular.report.defaults import rank_defaults, standing
from benchmarks._tabular.report.results import (
    as_printed,
    choose_from,
    choose_per_split_from,
    clean,
    comparable,
    count_at_or_below,
    error_table,
    label_of,
    one_line,
    summarise,
    win_tie_loss,
)
from benchmarks._tabular.report.sheets import number, span
from benchmarks._tabular.report.statistics import RankTest, compare_all_ranks, compare_pairs


@dataclass(frozen=True)
class Findings:
    """All that the report is made of."""

    fits: pd.DataFrame
    used: pd.DataFrame
    configurations: pd.DataFrame
    chosen: pd.DataFrame
    strict: pd.DataFrame
    errors: pd.DataFrame
    ranks: Sequence[RankTest | str]
    defaults: RankTest | str | None
    pairs: pd.DataFrame | str
    command: str
    not_run: Mapping[str, str]


def find(rows: pd.DataFrame, command: str, not_run: Mapping[str, str]) -> Findings:
    """Choose, compare and test."""
    fits = clean(rows)
    used = comparable(fits)
    chosen = choose_from(used)
    errors = error_table(chosen)
    return Findings(
        fits,
        used,
        summarise(used),
        chosen,
        choose_per_split_from(used),
        errors,
        compare_all_ranks(errors),
        rank_defaults(errors),
        compare_pairs(errors),
        one_line(command),
        _without_rows(fits) | dict(not_run),
    )


def _without_rows(fits: pd.DataFrame) -> dict[str, str]:
    """The paper's data sets that have no rows, where the rows are of most of the paper's."""
    there = set(fits.loc[fits["source"] == "openml", "in_paper"])
    missing = {name: "no rows" for name in paper.FIGURES if name not in there}
    return missing if len(missing) < len(paper.FIGURES) / 2 else {}


def lead(found: Findings) -> list[str]:
    """The outcome in a few sentences."""
    n_sets = len(found.errors)
    if n_sets == 0:
        return [f"There is no result yet: {counts_of_fits(found.fits)}."]
    sentences = [_lead_of_one(found.chosen) if n_sets == 1 else _lead_of_many(found)]
    if isinstance(found.defaults, RankTest):
        sentences.insert(0, standing(found.defaults))
    if n_sets > 1 and "mixupe" in found.errors and _paper_sets(found.chosen):
        sentences.append(_paper_counts(found.chosen))
    return [*sentences, *filter(None, [other_protocol(found.fits)])]


def other_protocol(fits: pd.DataFrame) -> str:
    """A sentence on what was done otherwise than in the paper's protocol, or none."""
    networks = fits[fits["method"].isin(METHODS)]
    params = [json.loads(text) for text in networks["params"].unique()]
    told = {
        f"{name} {value} instead of {TRAINING[name]}"
        for own in params
        for name, value in own.items()
        if name in TRAINING and value != TRAINING[name]
    }
    others = sorted(set(fits["splits"]) - {"holdout"})
    told |= {f"splits {', '.join(others)} instead of five holdouts"} if others else set()
    return f"The protocol is not the paper's: {'; '.join(sorted(told))}." if told else ""


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
    compared = compare_in_words(errors)
    if compared:
        return f"On {len(errors)} data sets, the mean test error of MixupE is {compared}."
    n_best = errors.eq(errors.min(axis=1), axis=0).sum()
    best = [label_of(method) for method in errors if n_best[method] == n_best.max()]
    how = "has the lowest mean test error most often"
    if len(best) > 1:
        how = "have the lowest mean test error equally often (a tie counts for each)"
    return f"On {len(errors)} data sets, {' and '.join(best)} {how}: on {n_best.max()}."


def compare_in_words(errors: pd.DataFrame) -> str:
    """On how many data sets MixupE is at or below Mixup and ERM, within a sentence."""
    counts = {other: count_at_or_below(errors, "mixupe", other) for other in ("mixup", "erm")}
    return ", and ".join(
        f"at or below {label_of(other)}'s on {count} of {n_sets} "
        f"(below on {win_tie_loss(errors, 'mixupe', other)[0]})"
        for other, (count, n_sets) in counts.items()
        if n_sets
    )


def _paper_sets(chosen: pd.DataFrame) -> list[str]:
    """Data sets of the paper's for which all its methods have a result here."""
    return [
        rows["in_paper"].iloc[0]
        for _, rows in chosen.groupby("set", sort=False)
        if rows["in_paper"].iloc[0] and set(paper.METHODS) <= set(rows["method"])
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
