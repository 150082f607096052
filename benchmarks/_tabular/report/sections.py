"""The sections of the report: sentences, tables and figures, from the rows alone."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from benchmarks._harness.report_tables import ReportTable, number, p_value
from benchmarks._tabular.methods import OWN
from benchmarks._tabular.report import figures, paper, tables
from benchmarks._tabular.report.figures import Plot
from benchmarks._tabular.report.results import (
    OURS,
    choose_from,
    choose_per_split,
    clean,
    comparable,
    count_at_or_below,
    error_table,
    label_of,
    summarise,
    win_tie_loss,
)
from benchmarks._tabular.report.statistics import LEVEL, RankTest, compare_all_ranks, compare_pairs

MAPPED = ("mixupe", "mixupe-directional")  # methods with a map of alpha and eta
SOURCE = (
    "The paper's figures are those of its table of tabular datasets: Zou et al., “MixupE: "
    "Understanding and Improving Mixup from Directional Derivative Perspective”, UAI 2023."
)


@dataclass(frozen=True)
class Findings:
    """Everything that the report is generated from."""

    fits: pd.DataFrame
    used: pd.DataFrame
    chosen: pd.DataFrame
    errors: pd.DataFrame
    ranks: Sequence[RankTest | str]
    command: str
    not_run: Mapping[str, str]


@dataclass(frozen=True)
class Section:
    """A part of the report under one heading."""

    name: str
    title: str
    sentences: Sequence[str] = ()
    tables: Sequence[ReportTable | None] = ()
    plots: Sequence[Plot] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


def find(rows: pd.DataFrame, command: str, not_run: Mapping[str, str]) -> Findings:
    """Select configurations and compare methods."""
    fits = clean(rows)
    used = comparable(fits)
    chosen = choose_from(used)
    errors = error_table(chosen)
    # The paper's datasets without rows are listed if most of the paper's have rows.
    there = set(fits.loc[fits["source"] == "openml", "in_paper"])
    missing = {name: "no rows" for name in paper.FIGURES if name not in there}
    if len(missing) > len(paper.FIGURES) / 2:
        missing = {}
    ranks = compare_all_ranks(errors)
    return Findings(fits, used, chosen, errors, ranks, command, missing | dict(not_run))


def lead(found: Findings) -> list[str]:
    """Return the main results in a few sentences."""
    errors = found.errors
    if errors.empty:
        return [f"There is no result yet: {_count_fits(found.fits)}."]
    sentences = [
        standing(test) for test in found.ranks if isinstance(test, RankTest) and OURS in test.ranks
    ]
    on = f"On {len(errors)} datasets" if len(errors) > 1 else f"On {errors.index[0]}"
    compared = _compare_in_words(errors)
    if compared:
        return [*sentences, f"{on}, the mean test error of MixupE is {compared}."]
    n_best = errors.eq(errors.min(axis=1), axis=0).sum()
    best = " and ".join(label_of(method) for method in errors if n_best[method] == n_best.max())
    text = f"{on}, the lowest mean test error is most often that of {best}: on {n_best.max()}."
    return [*sentences, text]


def _count_fits(fits: pd.DataFrame) -> str:
    """Return the numbers of fits and of failed fits in words."""
    return f"the rows hold {len(fits)} fits, of which {fits['has_failed'].sum()} failed"


def _compare_in_words(errors: pd.DataFrame) -> str:
    """Return on how many datasets MixupE is at or below Mixup and ERM."""
    counts = {other: count_at_or_below(errors, "mixupe", other) for other in ("mixup", "erm")}
    return ", and ".join(
        f"at or below {label_of(other)}'s on {count} of {n_sets} "
        f"(below on {win_tie_loss(errors, 'mixupe', other)[0]})"
        for other, (count, n_sets) in counts.items()
        if n_sets
    )


def standing(test: RankTest) -> str:
    """Return our rank among the classifiers with default settings, and the result of the test."""
    others = test.ranks.drop(OURS)
    beside = ", ".join(f"{label_of(str(m))} {number(rank)}" for m, rank in others.head(3).items())
    differ = [str(name) for name in others.index if test.pairs.loc[OURS, name] < LEVEL]
    return (
        f"With default settings for all {len(test.ranks)} classifiers, the average rank of "
        f"{label_of(OURS)} on {test.n_sets} datasets is {number(test.ranks[OURS])}; the best of "
        f"the others: {beside}. By Nemenyi's test at 5 % it differs from: "
        f"{', '.join(map(label_of, differ)) or 'none of them'}."
    )


def make_sections(found: Findings) -> list[Section]:
    """Return all sections that have content."""
    if found.errors.empty:
        return [_errors(found), _making(found)]
    wins = Section("wins", "Wins, ties and losses", tables=[tables.wins_table(found.errors)])
    metrics = Section("metrics", "Other metrics", tables=[tables.metrics_table(found.chosen)])
    sections = [_errors(found), _strict(found), wins, _ranks(found), _pairs(found)]
    return [one for one in [*sections, _choice(found), metrics, _making(found)] if one]


def main_table(found: Findings) -> ReportTable:
    """Return the table of test errors, with a remark for each dataset without errors."""
    remarks = {
        str(name): f"no result: {_count_fits(rows)}"
        for name, rows in found.fits.groupby("set", sort=False)
        if name not in found.errors.index
    }
    remarks |= {name: f"not run: {reason}" for name, reason in found.not_run.items()}
    return tables.method_error_table(found.chosen, remarks)


def _errors(found: Findings) -> Section:
    sentences = [
        "For each dataset and method, alpha and eta are those with the lowest mean validation "
        "error. The table shows the test error of that configuration. Test errors select nothing."
    ]
    n_unused = len(found.fits) - int(found.fits["has_failed"].sum()) - len(found.used)
    if n_unused:
        sentences.append(
            f"Only splits that the methods of a dataset share count; the table shows how many. "
            f"Unused fits on other splits: {n_unused}."
        )
    parts = [main_table(found), tables.distance_table(found.chosen)]
    return Section("errors", "Test error", sentences, parts)


def _strict(found: Findings) -> Section | None:
    """Return the section on a choice per split, if there is something to choose."""
    if (found.chosen["n_configurations"] == 1).all() or (found.chosen["n_splits"] == 1).all():
        return None
    sentences = [
        "Above, one pair of alpha and eta is chosen by the mean over all splits, which is how we "
        "read the paper's protocol. All splits are of the same samples, so a test sample of one "
        "split may be a validation sample of another. Here alpha and eta are chosen on each split "
        "by the validation error of that split alone, which has none of its test samples."
    ]
    strict = choose_per_split(found.used)
    compared = _compare_in_words(error_table(strict))
    if compared:
        sentences.append(f"With this choice, the mean test error of MixupE is {compared}.")
    table = tables.strict_table(strict, list(found.errors.index))
    return Section("strict", "Chosen on each split", sentences, [table])


def _ranks(found: Findings) -> Section:
    sentences: list[str] = []
    parts: list[ReportTable | None] = []
    plots = []
    for place, test in enumerate(found.ranks, start=1):
        if isinstance(test, str):
            sentences.append(test)
            continue
        verdict = "the ranks differ" if test.p_value < LEVEL else "no difference is shown"
        equals = f"= {p_value(test.p_value)}".replace("= <", "<")
        sentences.append(
            f"Friedman's test of {len(test.ranks)} methods on {test.n_sets} datasets: chi-squared "
            f"= {test.statistic:.2f}, p {equals}: at 5 %, {verdict}."
        )
        parts.append(tables.ranks_table(test, f"ranks-{place}"))
        plots.append(figures.draw_ranks(test, f"ranks-{place}"))
    parts.append(tables.against_table(found.errors))
    return Section("ranks", "Average ranks", sentences, parts, plots)


def _pairs(found: Findings) -> Section:
    pairs = compare_pairs(found.errors)
    if isinstance(pairs, str):
        return Section("pairs", "Paired tests", [pairs])
    clear = pairs[pairs["p_holm"] < LEVEL]
    names = "; ".join(f"{label_of(r.method)} and {label_of(r.other)}" for r in clear.itertuples())
    sentence = f"After Holm's correction, these differ at 5 %: {names or 'none'}."
    return Section("pairs", "Paired tests", [sentence], [tables.pairs_table(pairs)])


def _choice(found: Findings) -> Section | None:
    table = tables.chosen_table(found.chosen)
    if table is None:
        return None
    configurations = summarise(found.used)
    complete = configurations[configurations["is_complete"]].dropna(subset=["alpha", "eta"])
    plots = []
    for place, row in found.chosen[found.chosen["method"].isin(MAPPED)].iterrows():
        own = complete[complete["set"].eq(row["set"]) & complete["method"].eq(row["method"])]
        if len(own) > 1:
            plots.append(figures.draw_map(own, row, f"map-{place}"))
    sentences = []
    if plots:
        sentences = [
            "The maps in report.html show the mean validation error in percent by alpha and eta. "
            "Each map has its own scale. The circle marks the chosen pair."
        ]
    return Section("choice", "Choice of alpha and eta", sentences, [table], plots)


def _making(found: Findings) -> Section:
    fits = found.fits
    runs = sorted(fits["run"])
    # The parameters of our own two methods are long, so they are named.
    named = [
        f"{method} {text}" if method in OWN else text
        for method, text in zip(fits["method"], fits["params"], strict=True)
    ]
    facts = {
        "Command": found.command,
        "Versions": "; ".join(_different(fits["versions"])),
        "Commit": ", ".join(_different(fits["commit"])),
        "Run started": " to ".join(_different([*runs[:1], *runs[-1:]])),
        "Fits": f"{len(fits)}, of which {fits['has_failed'].sum() or 'none'} failed",
        "Splits": ", ".join(_different(fits["splits"])),
        "Parameters": "; ".join(_different(named)),
        "Not run": "; ".join(f"{name} ({why})" for name, why in found.not_run.items()),
    }
    return Section(
        "making",
        "How to reproduce",
        [SOURCE] if found.chosen["in_paper"].any() else [],
        [tables.data_table(fits), tables.failures_table(fits)],
        facts={name: text for name, text in facts.items() if text},
    )


def _different(texts: Iterable[str]) -> list[str]:
    """Return the texts without repetition, blanks and empty parameters."""
    return [text for text in dict.fromkeys(texts) if text and text != "{}"]
