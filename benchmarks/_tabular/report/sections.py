"""What the report says: its sections, with sentences, tables and figures, in their order."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from benchmarks._tabular.own import OWN
from benchmarks._tabular.report import defaults, figures, paper, tables
from benchmarks._tabular.report.figures import Picture
from benchmarks._tabular.report.findings import Findings, compare_in_words, counts_of_fits
from benchmarks._tabular.report.results import (
    chosen_fits,
    error_table,
    label_of,
    one_line,
    order_methods,
)
from benchmarks._tabular.report.sheets import Sheet, p_value
from benchmarks._tabular.report.statistics import LEVEL, RankTest

# Methods of which a map is drawn.
MAPPED = ("mixupe", "mixupe-directional")


@dataclass(frozen=True)
class Section:
    """A part of the report under one heading."""

    name: str
    title: str
    sentences: Sequence[str] = ()
    sheets: Sequence[Sheet] = ()
    galleries: Sequence["Gallery"] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Gallery:
    """Pictures side by side that share a sentence; ``kind`` says which key they need."""

    sentence: str
    pictures: Sequence[Picture]
    kind: str = "lines"

    @property
    def methods(self) -> list[str]:
        """Methods that the pictures show."""
        return order_methods([method for picture in self.pictures for method in picture.methods])


def make_sections(found: Findings) -> list[Section]:
    """All sections; those that have nothing to say are left out, or say why."""
    if found.errors.empty:
        return [_errors(found), _making(found)]
    sections = [_errors(found), _defaults(found), _default_times(found), _strict(found)]
    sections += [_wins(found), _ranks(found), _pairs(found)]
    sections += [_choice(found), _losses(found), _times(found), _metrics(found), _making(found)]
    return [section for section in sections if section]


def error_sheet(found: Findings) -> Sheet:
    """The table of test errors, with a line for each data set that has none."""
    remarks = {
        str(name): f"no result: {counts_of_fits(rows)}"
        for name, rows in found.fits.groupby("set", sort=False)
        if name not in found.errors.index
    }
    remarks |= {name: f"not run: {reason}" for name, reason in found.not_run.items()}
    return tables.error_sheet(found.chosen, remarks)


def _errors(found: Findings) -> Section:
    sheets = [error_sheet(found), tables.distance_sheet(found.chosen)]
    sentences = [
        "For each data set and method, alpha and eta are those with the lowest mean validation "
        "error; the table shows the test error of that configuration. Test errors choose nothing."
    ]
    n_aside = len(found.fits) - int(found.fits["has_failed"].sum()) - len(found.used)
    if n_aside:
        sentences.append(
            f"Only the splits that the methods of a data set share count; the table says how many. "
            f"Fits on other splits, which are left aside: {n_aside}."
        )
    return Section("errors", "Test error", sentences, [sheet for sheet in sheets if sheet])


def _defaults(found: Findings) -> Section | None:
    """Ours as it comes among others as they come."""
    test, title = found.defaults, "As they come"
    if test is None:
        return None
    sheets = [defaults.against_sheet(found.errors)]
    if isinstance(test, str):
        return Section("defaults", title, [test], [sheet for sheet in sheets if sheet.rows])
    sheets.insert(0, tables.ranks_sheet(test, "ranks-defaults"))
    gallery = Gallery("", [figures.draw_ranks(test, "ranks-defaults")], "wide")
    sentences = [defaults.standing(test), *_rank_sentences(test)]
    return Section("defaults", title, sentences, sheets, [gallery])


def _default_times(found: Findings) -> Section | None:
    """How long a fit takes with default settings."""
    methods = defaults.default_methods(list(found.errors))
    times = defaults.fit_times(found.used).dropna(how="all")
    if not methods or times.empty:
        return None
    times = times.loc[[name for name in found.errors.index if name in times.index]]
    n_runs = found.used.loc[found.used["method"].isin(methods), "run"].nunique()
    words = defaults.times_in_words(times)
    sheet = defaults.times_sheet(times, n_runs)
    return Section("fit-times", "Time of a fit", [words] if words else [], [sheet])


def _strict(found: Findings) -> Section | None:
    """What comes of a choice that sees no row that is tested in the same choice."""
    if (found.chosen["n_configurations"] == 1).all() or (found.chosen["n_splits"] == 1).all():
        return None
    sentences = [
        "Above, one pair of alpha and eta is chosen by the mean over all splits, which is the "
        "paper's protocol as we read it. The splits are of the same rows, so a row that is tested "
        "in one split may help to choose in another. Here the choice is stricter: on each split "
        "by the validation error of that split alone, which has none of the rows tested there."
    ]
    compared = compare_in_words(error_table(found.strict))
    if compared:
        sentences.append(f"Chosen so, the mean test error of MixupE is {compared}.")
    sheet = tables.strict_sheet(found.strict, list(found.errors.index))
    return Section("strict", "Chosen anew on each split", sentences, [sheet])


def _wins(found: Findings) -> Section | None:
    sheet = tables.wins_sheet(found.errors)
    return Section("wins", "Wins, ties and losses", sheets=[sheet]) if sheet else None


def _ranks(found: Findings) -> Section:
    sentences: list[str] = []
    sheets, pictures = [], []
    for place, test in enumerate(found.ranks):
        if isinstance(test, str):
            sentences.append(test)
            continue
        if _is_same(test, found.defaults):
            sentences.append("The ranks of all methods are those of the methods as they come.")
            continue
        name = "ranks" if place == 0 else "ranks-all"
        sentences += _rank_sentences(test)
        sheets.append(tables.ranks_sheet(test, name))
        pictures.append(figures.draw_ranks(test, name))
    galleries = [Gallery("", pictures, "wide")] if pictures else []
    return Section("ranks", "Average ranks", sentences, sheets, galleries)


def _is_same(test: RankTest, other: RankTest | str | None) -> bool:
    return isinstance(other, RankTest) and set(test.ranks.index) == set(other.ranks.index)


def _rank_sentences(test: RankTest) -> list[str]:
    verdict = "the ranks differ" if test.p_value < LEVEL else "no difference is shown"
    sentences = [
        f"Friedman's test of {len(test.ranks)} methods on {test.n_sets} data sets: chi-squared = "
        f"{test.statistic:.2f}, p {_equals(test.p_value)}: at 5 %, {verdict}."
    ]
    if test.n_sets < 10:
        sentences.append("With fewer than ten data sets this p value is a rough one.")
    if test.left_out:
        names = ", ".join(map(label_of, test.left_out))
        sentences.append(f"Left out, as they ran on too few of the data sets: {names}.")
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
    return Section("pairs", "Paired tests", [sentence], [tables.pairs_sheet(pairs)])


def _choice(found: Findings) -> Section | None:
    sheet = tables.chosen_sheet(found.chosen)
    if sheet is None:
        return None
    complete = found.configurations[found.configurations["is_complete"]]
    galleries = [_maps(found.chosen, complete, method) for method in MAPPED]
    galleries.append(_alphas(found.chosen, complete))
    full = [gallery for gallery in galleries if gallery.pictures]
    sentences = [] if full else ["Maps are left out: each method has one configuration only."]
    return Section("choice", "Choice of alpha and eta", sentences, [sheet], full)


def _maps(chosen: pd.DataFrame, complete: pd.DataFrame, method: str) -> Gallery:
    pictures = []
    for place, row in chosen[chosen["method"] == method].reset_index().iterrows():
        table = complete[(complete["set"] == row["set"]) & (complete["method"] == method)]
        table = table.dropna(subset=["alpha", "eta"])
        if len(table) > 1 and pd.notna(row["alpha"]):
            pictures.append(figures.draw_map(table, row, f"map-{method}-{place}"))
    return Gallery(
        f"Mean validation error of {label_of(method)} by alpha and eta. Each map has its own "
        f"scale, which its caption names; the circle is what was chosen.",
        pictures,
        "map",
    )


def _alphas(chosen: pd.DataFrame, complete: pd.DataFrame) -> Gallery:
    pictures = []
    for place, name in enumerate(dict.fromkeys(chosen["set"])):
        table = complete[(complete["set"] == name) & complete["method"].isin(paper.METHODS)]
        if table["alpha"].nunique() > 1:
            pictures.append(figures.draw_alphas(table, f"alphas-{place}"))
    return Gallery(
        "Mean validation error by alpha: Mixup, MixupE with the best eta for each alpha, and ERM, "
        "which has no alpha, as a level.",
        pictures,
    )


def _losses(found: Findings) -> Section:
    fits = chosen_fits(found.used, found.chosen)
    drawn = [
        figures.draw_losses(fits[fits["set"] == name], f"losses-{place}")
        for place, name in enumerate(found.errors.index)
    ]
    pictures = [picture for picture in drawn if picture]
    title = "Loss by epoch"
    if not pictures:
        sentence = "Loss curves are left out: the rows hold none of ERM, Mixup or MixupE."
        return Section("losses", title, [sentence])
    sentence = (
        "Training loss and test loss of the chosen configurations, means over the splits. The "
        "training loss is what was made small: with Mixup and MixupE, that of mixed rows."
    )
    return Section("losses", title, galleries=[Gallery(sentence, pictures, "pairs")])


def _times(found: Findings) -> Section | None:
    timed = found.chosen[found.chosen["search_seconds"] > 0]
    if timed.empty:
        return None
    pictures = [
        figures.draw_times(rows, f"times-{place}")
        for place, (_, rows) in enumerate(timed.groupby("set", sort=False))
    ]
    sentences = [
        "Test error against the seconds of the whole search of a method on one split, all its "
        f"configurations together, a mean over the splits: left and low is best. Fits of one "
        f"search: {tables.count_fits(timed)}."
    ]
    test = found.ranks[-1]
    if isinstance(test, RankTest):
        shared = found.errors[list(test.ranks.index)].dropna().index
        pictures.insert(0, figures.draw_mean_times(timed[timed["set"].isin(shared)], test.ranks))
        sentences.append(
            f"The first figure has the average rank over {test.n_sets} data sets instead, and the "
            f"geometric mean of the seconds."
        )
    gallery = Gallery(" ".join(sentences), pictures, "markers")
    return Section("times", "Time against error", galleries=[gallery])


def _metrics(found: Findings) -> Section:
    return Section("metrics", "Other metrics", sheets=[tables.metrics_sheet(found.chosen)])


def _making(found: Findings) -> Section:
    fits = found.fits
    n_failed = int(fits["has_failed"].sum())
    facts = {
        "Command": found.command,
        "Versions": "; ".join(_different(fits["versions"])),
        "Commit": ", ".join(_different(fits["commit"])),
        "Run begun": _first_and_last(fits["run"]),
        "Fits": f"{len(fits)}, of which {n_failed or 'none'} failed",
        "Splits": ", ".join(_different(fits["splits"])),
        "Parameters": "; ".join(_different(_named(fits))),
        "Not run": "; ".join(f"{name} ({why})" for name, why in found.not_run.items()),
    }
    sheets: list[Any] = [tables.data_sheet(fits), tables.failures_sheet(fits)]
    return Section(
        "making",
        "How this was made",
        [_SOURCE] if found.chosen["in_paper"].any() else [],
        [sheet for sheet in sheets if sheet and sheet.rows],
        facts={name: one_line(text) for name, text in facts.items() if text},
    )


_SOURCE = (
    "The paper's figures are those of its table of tabular data sets: Zou et al., “MixupE: "
    "Understanding and Improving Mixup from Directional Derivative Perspective”, UAI 2023."
)


def _named(fits: pd.DataFrame) -> list[str]:
    """What was set; with a name where it is long and not the same for several methods."""
    pairs = zip(fits["method"], fits["params"], strict=True)
    return [f"{method} {text}" if method in OWN else text for method, text in pairs]


def _different(column: Iterable[str]) -> list[str]:
    return [text for text in dict.fromkeys(column) if text and text != "{}"]


def _first_and_last(column: pd.Series) -> str:
    times = sorted(_different(column))
    return " to ".join(dict.fromkeys([times[0], times[-1]])) if times else ""
