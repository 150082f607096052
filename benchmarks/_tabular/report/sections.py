"""The sections of the report: sentences, tables and figures, from the rows alone."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from benchmarks._harness.report_tables import ReportTable, number, p_value, span
from benchmarks._tabular.methods import OWN
from benchmarks._tabular.protocol import METHODS, TRAINING
from benchmarks._tabular.report import figures, paper, tables
from benchmarks._tabular.report.figures import Plot
from benchmarks._tabular.report.results import (
    OURS,
    TIMED,
    as_printed,
    choose_from,
    choose_per_split,
    chosen_fits,
    clean,
    comparable,
    count_at_or_below,
    default_methods,
    error_table,
    fit_times,
    label_of,
    one_line,
    order_methods,
    summarise,
    time_ratios,
    win_tie_loss,
)
from benchmarks._tabular.report.statistics import (
    LEVEL,
    RankTest,
    compare_all_ranks,
    compare_pairs,
    rank_defaults,
)

# Methods with a map of alpha and eta.
MAPPED = ("mixupe", "mixupe-directional")


@dataclass(frozen=True)
class Findings:
    """Everything that the report is generated from."""

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


@dataclass(frozen=True)
class Gallery:
    """Plots side by side that share a sentence and a legend."""

    sentence: str
    plots: Sequence[Plot]
    kind: str = "maps"
    legend: str = ""


@dataclass(frozen=True)
class Section:
    """A part of the report under one heading."""

    name: str
    title: str
    sentences: Sequence[str] = ()
    tables: Sequence[ReportTable] = ()
    galleries: Sequence[Gallery] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


def find(rows: pd.DataFrame, command: str, not_run: Mapping[str, str]) -> Findings:
    """Select configurations, compare methods and test the differences."""
    fits = clean(rows)
    used = comparable(fits)
    chosen = choose_from(used)
    errors = error_table(chosen)
    return Findings(
        fits,
        used,
        summarise(used),
        chosen,
        choose_per_split(used),
        errors,
        compare_all_ranks(errors),
        rank_defaults(errors),
        compare_pairs(errors),
        one_line(command),
        _without_rows(fits) | dict(not_run),
    )


def _without_rows(fits: pd.DataFrame) -> dict[str, str]:
    """Return the paper's datasets without rows, if most of the paper's have rows."""
    there = set(fits.loc[fits["source"] == "openml", "in_paper"])
    missing = {name: "no rows" for name in paper.FIGURES if name not in there}
    return missing if len(missing) < len(paper.FIGURES) / 2 else {}


def lead(found: Findings) -> list[str]:
    """Return the main results in a few sentences."""
    n_sets = len(found.errors)
    if n_sets == 0:
        return [f"There is no result yet: {_count_fits(found.fits)}."]
    sentences = [_lead_of_one(found.chosen) if n_sets == 1 else _lead_of_many(found.errors)]
    if isinstance(found.defaults, RankTest):
        sentences.insert(0, standing(found.defaults))
    if n_sets > 1 and "mixupe" in found.errors and _paper_sets(found.chosen):
        sentences.append(_paper_counts(found.chosen))
    return [*sentences, *filter(None, [_other_protocol(found.fits)])]


def _other_protocol(fits: pd.DataFrame) -> str:
    """Return a sentence on differences from the paper's protocol, or a blank."""
    networks = fits[fits["method"].isin(METHODS)]
    params = [json.loads(text) for text in networks["params"].unique()]
    changes = {
        f"{name} {value} instead of {TRAINING[name]}"
        for own in params
        for name, value in own.items()
        if name in TRAINING and value != TRAINING[name]
    }
    others = sorted(set(fits["splits"]) - {"holdout"})
    changes |= {f"splits {', '.join(others)} instead of five holdouts"} if others else set()
    return f"The protocol is not the paper's: {'; '.join(sorted(changes))}." if changes else ""


def _count_fits(fits: pd.DataFrame) -> str:
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


def _lead_of_many(errors: pd.DataFrame) -> str:
    compared = _compare_in_words(errors)
    if compared:
        return f"On {len(errors)} datasets, the mean test error of MixupE is {compared}."
    n_best = errors.eq(errors.min(axis=1), axis=0).sum()
    best = [label_of(method) for method in errors if n_best[method] == n_best.max()]
    how = "has the lowest mean test error most often"
    if len(best) > 1:
        how = "have the lowest mean test error equally often (a tie counts for each)"
    return f"On {len(errors)} datasets, {' and '.join(best)} {how}: on {n_best.max()}."


def _compare_in_words(errors: pd.DataFrame) -> str:
    """Return on how many datasets MixupE is at or below Mixup and ERM."""
    counts = {other: count_at_or_below(errors, "mixupe", other) for other in ("mixup", "erm")}
    return ", and ".join(
        f"at or below {label_of(other)}'s on {count} of {n_sets} "
        f"(below on {win_tie_loss(errors, 'mixupe', other)[0]})"
        for other, (count, n_sets) in counts.items()
        if n_sets
    )


def _paper_sets(chosen: pd.DataFrame) -> list[str]:
    """Return the paper's datasets for which all its methods have a result here."""
    return [
        rows["in_paper"].iloc[0]
        for _, rows in chosen.groupby("set", sort=False)
        if rows["in_paper"].iloc[0] and set(paper.METHODS) <= set(rows["method"])
    ]


def _paper_counts(chosen: pd.DataFrame) -> str:
    names = sorted(set(_paper_sets(chosen)))
    below = [paper.count_below("mixupe", other) for other in ("mixup", "erm")]
    text = (
        f"In the paper's own table MixupE is below Mixup on {below[0]} of {len(paper.FIGURES)} "
        f"datasets and below ERM on {below[1]}"
    )
    if 0 < len(names) < len(paper.FIGURES):
        here = [paper.count_below("mixupe", other, names) for other in ("mixup", "erm")]
        text += f"; of the {len(names)} that are also here, on {here[0]} and on {here[1]}"
    return text + "."


def standing(ranks: RankTest) -> str:
    """Return our place among the classifiers with default settings, and the result of the test."""
    order = list(ranks.ranks.index)
    own, best = ranks.ranks[OURS], ranks.ranks.iloc[0]
    others = ranks.ranks.drop(OURS)
    place = 1 + int((others < own).sum())
    if place > 1:
        beside = f"; the best is {label_of(order[0])} with {number(best)}"
    else:
        beside = f"; the next is {label_of(str(others.index[0]))} with {number(others.iloc[0])}"
    differ = [str(name) for name in others.index if ranks.pairs.loc[OURS, name] < LEVEL]
    names = ", ".join(map(label_of, differ)) or "none of them"
    return (
        f"With default settings for all {len(order)} classifiers, {label_of(OURS)} has "
        f"{_ordinal(place, int((others == own).sum()))} average rank on {ranks.n_sets} datasets, "
        f"{number(own)}{beside}. By Nemenyi's test at 5 % it differs from: {names}."
    )


def _ordinal(place: int, n_equal: int) -> str:
    names = {1: "the best", 2: "the second best", 3: "the third best"}
    shown = names.get(place, f"place {place} by")
    return f"{shown} (shared with {n_equal})" if n_equal else shown


def make_sections(found: Findings) -> list[Section]:
    """Return all sections that have content."""
    if found.errors.empty:
        return [_errors(found), _making(found)]
    sections = [_errors(found), _defaults(found), _default_times(found), _strict(found)]
    sections += [_wins(found), _ranks(found), _pairs(found)]
    sections += [_choice(found), _losses(found), _metrics(found), _making(found)]
    return [section for section in sections if section]


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
    parts = [main_table(found), tables.distance_table(found.chosen)]
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
    return Section("errors", "Test error", sentences, [part for part in parts if part])


def _defaults(found: Findings) -> Section | None:
    test, title = found.defaults, "Default settings"
    if test is None:
        return None
    against = tables.against_table(found.errors)
    if isinstance(test, str):
        return Section("defaults", title, [test], [against] if against.rows else [])
    ranks = tables.ranks_table(test, "ranks-defaults")
    gallery = Gallery("", [figures.draw_ranks(test, "ranks-defaults")], "wide")
    return Section(
        "defaults", title, [standing(test), *_rank_sentences(test)], [ranks, against], [gallery]
    )


def _default_times(found: Findings) -> Section | None:
    methods = default_methods(list(found.errors))
    times = fit_times(found.used).dropna(how="all")
    if not methods or times.empty:
        return None
    times = times.loc[[name for name in found.errors.index if name in times.index]]
    n_runs = found.used.loc[found.used["method"].isin(methods), "run"].nunique()
    table = tables.times_table(times, n_runs)
    return Section("fit-times", "Time of a fit", _times_in_words(times), [table])


def _times_in_words(times: pd.DataFrame) -> list[str]:
    """Return a paragraph on the time of our fit beside RealMLP and gradient boosting."""
    sentences = []
    for name, share in TIMED.items():
        ratios = time_ratios(times).get(name, pd.Series(dtype=float)).dropna()
        if ratios.empty:
            continue
        text = (
            f"A fit of {label_of(OURS)} takes {number(ratios.median())} of the time of "
            f"{label_of(name)}'s (median over {len(ratios)} datasets, from "
            f"{number(ratios.min())} to {number(ratios.max())}) and is below it on "
            f"{int((ratios < 1).sum())}"
        )
        if share < 1:
            text += f", at or below {share:g} of it on {int((ratios <= share).sum())}"
        sentences.append(f"{text}.")
    return [" ".join(sentences)] if sentences else []


def _strict(found: Findings) -> Section | None:
    if (found.chosen["n_configurations"] == 1).all() or (found.chosen["n_splits"] == 1).all():
        return None
    sentences = [
        "Above, one pair of alpha and eta is chosen by the mean over all splits, which is how we "
        "read the paper's protocol. All splits are of the same samples, so a test sample of one "
        "split may be a validation sample of another. Here alpha and eta are chosen on each split "
        "by the validation error of that split alone, which has none of its test samples."
    ]
    compared = _compare_in_words(error_table(found.strict))
    if compared:
        sentences.append(f"With this choice, the mean test error of MixupE is {compared}.")
    table = tables.strict_table(found.strict, list(found.errors.index))
    return Section("strict", "Chosen on each split", sentences, [table])


def _wins(found: Findings) -> Section | None:
    table = tables.wins_table(found.errors)
    return Section("wins", "Wins, ties and losses", tables=[table]) if table else None


def _ranks(found: Findings) -> Section:
    sentences: list[str] = []
    parts, plots = [], []
    for place, test in enumerate(found.ranks):
        if isinstance(test, str):
            sentences.append(test)
            continue
        if _is_same(test, found.defaults):
            sentences.append("The ranks of all methods are those with default settings.")
            continue
        name = "ranks" if place == 0 else "ranks-all"
        sentences += _rank_sentences(test)
        parts.append(tables.ranks_table(test, name))
        plots.append(figures.draw_ranks(test, name))
    galleries = [Gallery("", plots, "wide")] if plots else []
    return Section("ranks", "Average ranks", sentences, parts, galleries)


def _is_same(test: RankTest, other: RankTest | str | None) -> bool:
    return isinstance(other, RankTest) and set(test.ranks.index) == set(other.ranks.index)


def _rank_sentences(test: RankTest) -> list[str]:
    verdict = "the ranks differ" if test.p_value < LEVEL else "no difference is shown"
    sentences = [
        f"Friedman's test of {len(test.ranks)} methods on {test.n_sets} datasets: chi-squared = "
        f"{test.statistic:.2f}, p {_equals(test.p_value)}: at 5 %, {verdict}."
    ]
    if test.n_sets < 10:
        sentences.append("With fewer than ten datasets this p value is approximate.")
    if test.left_out:
        names = ", ".join(map(label_of, test.left_out))
        sentences.append(f"Left out, as they ran on too few datasets: {names}.")
    return [" ".join(sentences)]


def _equals(value: float) -> str:
    text = p_value(value)
    return text if text.startswith("<") else f"= {text}"


def _pairs(found: Findings) -> Section:
    pairs = found.pairs
    if isinstance(pairs, str):
        return Section("pairs", "Paired tests", [pairs])
    clear = pairs[pairs["p_holm"] < LEVEL]
    names = "; ".join(f"{label_of(r.method)} and {label_of(r.other)}" for r in clear.itertuples())
    sentence = f"After Holm's correction, these differ at 5 %: {names}."
    if clear.empty:
        sentence = "After Holm's correction, no pair differs at 5 %."
    return Section("pairs", "Paired tests", [sentence], [tables.pairs_table(pairs)])


def _choice(found: Findings) -> Section | None:
    table = tables.chosen_table(found.chosen)
    if table is None:
        return None
    complete = found.configurations[found.configurations["is_complete"]]
    galleries = [_maps(found.chosen, complete, method) for method in MAPPED]
    full = [gallery for gallery in galleries if gallery.plots]
    sentences = [] if full else ["There are no maps: each method has one configuration only."]
    return Section("choice", "Choice of alpha and eta", sentences, [table], full)


def _maps(chosen: pd.DataFrame, complete: pd.DataFrame, method: str) -> Gallery:
    plots = []
    for place, row in chosen[chosen["method"] == method].reset_index().iterrows():
        own = complete[(complete["set"] == row["set"]) & (complete["method"] == method)]
        own = own.dropna(subset=["alpha", "eta"])
        if len(own) > 1 and pd.notna(row["alpha"]):
            plots.append(figures.draw_map(own, row, f"map-{method}-{place}"))
    return Gallery(
        f"Mean validation error of {label_of(method)} in percent by alpha and eta. Each map has "
        f"its own scale. The circle marks the chosen pair.",
        plots,
    )


def _losses(found: Findings) -> Section:
    fits = chosen_fits(found.used, found.chosen)
    drawn = [
        figures.draw_losses(fits[fits["set"] == name], f"losses-{place}")
        for place, name in enumerate(found.errors.index)
    ]
    plots = [plot for plot in drawn if plot]
    title = "Loss by epoch"
    if not plots:
        sentence = "There are no loss curves: the rows hold none of ERM, Mixup or MixupE."
        return Section("losses", title, [sentence])
    sentence = (
        "Training loss and test loss of the chosen configurations, means over the splits. The "
        "training loss is the loss that training minimizes: with Mixup and MixupE, that of mixed "
        "samples."
    )
    methods = order_methods([method for plot in plots for method in plot.methods])
    legend = figures.draw_legend(methods, "legend-losses")
    return Section("losses", title, galleries=[Gallery(sentence, plots, "pairs", legend)])


def _metrics(found: Findings) -> Section:
    return Section("metrics", "Other metrics", tables=[tables.metrics_table(found.chosen)])


def _making(found: Findings) -> Section:
    fits = found.fits
    n_failed = int(fits["has_failed"].sum())
    facts = {
        "Command": found.command,
        "Versions": "; ".join(_different(fits["versions"])),
        "Commit": ", ".join(_different(fits["commit"])),
        "Run started": _first_and_last(fits["run"]),
        "Fits": f"{len(fits)}, of which {n_failed or 'none'} failed",
        "Splits": ", ".join(_different(fits["splits"])),
        "Parameters": "; ".join(_different(_named(fits))),
        "Not run": "; ".join(f"{name} ({why})" for name, why in found.not_run.items()),
    }
    parts: list[Any] = [tables.data_table(fits), tables.failures_table(fits)]
    return Section(
        "making",
        "How to reproduce",
        [_SOURCE] if found.chosen["in_paper"].any() else [],
        [part for part in parts if part and part.rows],
        facts={name: one_line(text) for name, text in facts.items() if text},
    )


_SOURCE = (
    "The paper's figures are those of its table of tabular datasets: Zou et al., “MixupE: "
    "Understanding and Improving Mixup from Directional Derivative Perspective”, UAI 2023."
)


def _named(fits: pd.DataFrame) -> list[str]:
    """Return the parameters; our own two methods are named, as theirs are long."""
    pairs = zip(fits["method"], fits["params"], strict=True)
    return [f"{method} {text}" if method in OWN else text for method, text in pairs]


def _different(column: Iterable[str]) -> list[str]:
    return [text for text in dict.fromkeys(column) if text and text != "{}"]


def _first_and_last(column: pd.Series) -> str:
    times = sorted(_different(column))
    return " to ".join(dict.fromkeys([times[0], times[-1]])) if times else ""
