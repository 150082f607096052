"""The tuned part of the report: default against tuned, ranks, best pairs, what mattered."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import optuna
import pandas as pd
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from benchmarks._harness.report_tables import (
    Cell,
    Column,
    ReportTable,
    number,
    plus_minus,
    seconds,
    signed,
    span,
)
from benchmarks._tabular.methods import OWN
from benchmarks._tabular.report import figures, tables
from benchmarks._tabular.report.results import (
    as_printed,
    common_part,
    error_table,
    label_of,
    order_methods,
    win_tie_loss,
)
from benchmarks._tabular.report.sections import Section
from benchmarks._tabular.report.statistics import LEVEL, RankTest, compare_pairs, compare_ranks
from benchmarks._tabular.tuning import read_trials

MIN_TRIALS = 10  # complete trials with different errors, below which no importance is estimated
MOST_PARAMS = 5  # parameters of a method in the table of importances


@dataclass(frozen=True)
class Tuned:
    """What the tuned part is generated from: all rows, those compared, their means and errors."""

    rows: pd.DataFrame
    used: pd.DataFrame
    means: pd.DataFrame
    errors: pd.DataFrame
    ranks: RankTest | str
    command: str


def find_tuned(rows: pd.DataFrame, command: str = "") -> Tuned:
    """Compare the tuned methods on the splits that all methods of a dataset share."""
    good = rows[rows["error"].eq("") & rows["test_error"].notna()]
    good = good.assign(set=_names(good))
    parts = [good.iloc[:0]]
    for _, group in good.groupby("set", sort=False):
        by_method = [set(own["split"]) for _, own in group.groupby("method")]
        parts.append(group[group["split"].isin(common_part(by_method))])
    used = pd.concat(parts)
    groups = used.groupby(["set", "method"], sort=False)
    names = ["test_error", "default_test_error", "fit_seconds", "search_seconds"]
    means = groups[names].mean()
    means["test_error_std"] = groups["test_error"].std(ddof=1)
    means["n_splits"] = groups.size()
    means = means.reset_index()
    errors = error_table(means) if len(means) else pd.DataFrame()
    return Tuned(rows, used, means, errors, compare_ranks(errors), command)


def _names(rows: pd.DataFrame) -> pd.Series:
    """The dataset, and its splits and content where it has several."""
    one = rows["splits"] + ", " + rows["data"]
    is_shared = one.groupby(rows["dataset"]).transform("nunique") > 1
    return rows["dataset"].mask(is_shared, rows["dataset"] + " (" + one + ")")


def lead_tuned(found: Tuned) -> list[str]:
    """Return the main result in a sentence."""
    if found.errors.empty:
        return [f"No study has a result yet: {len(found.rows)} rows, all failed."]
    on = (
        f"on {len(found.errors)} datasets"
        if len(found.errors) > 1
        else f"on {found.errors.index[0]}"
    )
    if isinstance(found.ranks, RankTest):
        ranks = ", ".join(f"{label_of(str(m))} {number(r)}" for m, r in found.ranks.ranks.items())
        return [f"Tuned by Optuna {on} ({_budgets(found)}), the average ranks are: {ranks}."]
    best = found.errors.eq(found.errors.min(axis=1), axis=0).sum()
    counts = ", ".join(f"{label_of(str(m))} on {n}" for m, n in best.items())
    return [f"Tuned by Optuna {on} ({_budgets(found)}), the lowest test error has: {counts}."]


def _budgets(found: Tuned) -> str:
    return " or ".join(dict.fromkeys(found.rows["budget"])) + " each"


def tuned_sections(found: Tuned) -> list[Section]:
    """Return all sections that have content."""
    if found.errors.empty:
        return [_making(found)]
    return [
        one for one in (_errors(found), _ranks(found), _pairs(found), _importance(found)) if one
    ] + [_making(found)]


def _errors(found: Tuned) -> Section:
    sentences = [
        f"Each method has a study of its own on each split: {_budgets(found)}. A study sees the "
        f"training and validation samples only. The best configuration by validation error (of "
        f"equal ones by log loss) is fitted on both and tested. The default settings are a "
        f"candidate, too."
    ]
    return Section(
        "tuned", "Tuned by Optuna", sentences, [tuned_table(found), gains_table(found.used)]
    )


def tuned_table(found: Tuned) -> ReportTable:
    """Return test errors with default settings and tuned, by dataset and method."""
    methods = list(found.errors)
    columns = [Column("Dataset", is_number=False)]
    columns += [Column(head, label_of(m)) for m in methods for head in ("default", "tuned")]
    is_one = (found.means["n_splits"] == 1).all()
    rows = []
    for name, own in found.means.groupby("set", sort=False):
        by_method, lowest = own.set_index("method"), found.errors.loc[str(name)].min()
        cells = [Cell(str(name))]
        for method in methods:
            if method not in by_method.index:
                cells += [Cell("n/a"), Cell("n/a")]
                continue
            one = by_method.loc[method]
            text = plus_minus(one["test_error"], one["test_error_std"])
            is_best = as_printed(one["test_error"]) == lowest
            cells += [Cell(number(one["default_test_error"])), Cell(text, is_best=is_best)]
        rows.append(cells if is_one else [*cells, Cell(span([int(n) for n in own["n_splits"]]))])
    columns += [] if is_one else [Column("Splits")]
    caption = "Test error in percent, default settings and tuned; the lowest tuned one in bold."
    return ReportTable("tuned", caption, columns, rows)


def gains_table(used: pd.DataFrame) -> ReportTable:
    """Return what tuning brings each method, and what it costs."""
    rows = []
    for method in order_methods(used["method"]):
        own = used[used["method"] == method]
        means = own.groupby("set")[["test_error", "default_test_error"]].mean().map(as_printed)
        means.columns = pd.Index(["tuned", "default"])
        counts = own[["n_complete", "n_pruned", "n_failed"]].sum().astype(int)
        rows.append(
            [
                label_of(method),
                number(means["default"].mean()),
                number(means["tuned"].mean()),
                signed((means["tuned"] - means["default"]).median()),
                "/".join(map(str, win_tie_loss(means, "tuned", "default"))),
                f"{int(own['best'].eq('{}').sum())} of {len(own)}",
                "/".join(map(str, counts)),
                seconds(own["search_seconds"].median()),
                seconds(own["search_seconds"].max()),
                seconds(own["fit_seconds"].median()),
            ]
        )
    heads = ["Method", "Mean error, default", "tuned", "Median difference", "Wins/ties/losses"]
    heads += ["Default kept", "Trials complete/pruned/failed"]
    heads += ["Search (s), median", "longest", "Fit (s), median"]
    columns = [Column(head, is_number=place > 0) for place, head in enumerate(heads)]
    return ReportTable(
        "gains",
        "What tuning brings: means over the datasets, and tuned against default.",
        columns,
        [[Cell(text) for text in row] for row in rows],
        ["Search: seconds in which trials ran; the last trial may end after the time limit."],
    )


def _ranks(found: Tuned) -> Section | None:
    if found.errors.shape[1] < 2:
        return None
    sentences: list[str] = []
    parts: list[ReportTable | None] = []
    plots = []
    if isinstance(found.ranks, str):
        sentences.append(found.ranks)
    else:
        parts.append(tables.ranks_table(found.ranks, "tuned-ranks"))
        plots.append(figures.draw_ranks(found.ranks, "tuned-ranks"))
    parts.append(replace(tables.wins_table(found.errors), name="tuned-wins"))
    pairs = compare_pairs(found.errors)
    if isinstance(pairs, str):
        sentences.append(pairs)
    else:
        clear = pairs[pairs["p_holm"] < LEVEL]
        names = "; ".join(
            f"{label_of(r.method)} and {label_of(r.other)}" for r in clear.itertuples()
        )
        sentences.append(f"After Holm's correction, these differ at 5 %: {names or 'none'}.")
        parts.append(replace(tables.pairs_table(pairs), name="tuned-tests"))
    return Section("tuned-ranks", "Ranks of the tuned methods", sentences, parts, plots)


def _pairs(found: Tuned) -> Section | None:
    ours = found.used[found.used["method"].isin(OWN)]
    if ours.empty:
        return None
    cells, plots = [], []
    for place, row in enumerate(ours.sort_values(["method", "split"], kind="stable").itertuples()):
        best = json.loads(row.best)
        others = {name: value for name, value in best.items() if name not in ("alpha", "eta")}
        text = ", ".join(f"{name}={value:.2g}" for name, value in others.items())
        pair = [f"{best[name]:.3g}" if name in best else "" for name in ("alpha", "eta")]
        text = text or ("default settings" if not best else "")
        errors = [number(row.valid_error), number(row.test_error)]
        cells.append([row.set, label_of(row.method), str(int(row.split)), *pair, text, *errors])
        trials = read_trials(row.trials)
        if row.split == ours["split"].min() and any(t["state"] == "complete" for t in trials):
            title = f"{label_of(row.method)} on {row.set}"
            plots.append(figures.draw_trials(trials, title, f"trials-{place}"))
    heads = [
        "Dataset",
        "Method",
        "Split",
        "alpha",
        "eta",
        "Others",
        "Validation error",
        "Test error",
    ]
    texts = ("Dataset", "Method", "Others")
    table = ReportTable(
        "best",
        "The best alpha and eta of each study, and its other parameters; errors in percent.",
        [Column(head, is_number=head not in texts) for head in heads],
        [[Cell(text) for text in row] for row in cells],
    )
    sentences = [
        "The maps in report.html show the trials of a study: validation error in percent by alpha "
        "and eta. Each map has its own scale. A circle marks the best trial, a cross a pruned one."
    ]
    return Section("tuned-pairs", "Best alpha and eta", sentences, [table], plots)


def _importance(found: Tuned) -> Section | None:
    by_method = importances(found.used)
    if not by_method:
        return None
    rows = []
    for method in order_methods(list(by_method)):
        shares = by_method[method]
        means = shares.mean().sort_values(ascending=False, kind="stable")
        for name in means.index[:MOST_PARAMS]:
            low_high = f"{number(shares[name].min())} to {number(shares[name].max())}"
            cells = [label_of(method), str(name), number(means[name]), low_high, str(len(shares))]
            rows.append([Cell(text) for text in cells])
    heads = ["Method", "Parameter", "Mean share", "Lowest to highest", "Studies"]
    table = ReportTable(
        "importance",
        "Importance of parameters: share of the variance of the validation error that a parameter "
        "explains alone (fANOVA), over the studies.",
        [Column(head, is_number=place > 1) for place, head in enumerate(heads)],
        rows,
        [
            f"Studies with at least {MIN_TRIALS} complete trials of different errors; at most "
            f"{MOST_PARAMS} parameters of a method."
        ],
    )
    plots = [
        figures.draw_importances(by_method[method], label_of(method), f"importance-{method}")
        for method in OWN
        if method in by_method
    ]
    return Section("tuned-importance", "What mattered", [], [table], plots)


def importances(used: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the importance of each parameter in each study, by method."""
    found: dict[str, list[dict[str, float]]] = {}
    for row in used.itertuples():
        trials = [trial for trial in read_trials(row.trials) if trial["state"] == "complete"]
        shares = importance_of(trials)
        if shares:
            found.setdefault(row.method, []).append({"set": row.set, **shares})
    return {method: pd.DataFrame(rows).set_index("set") for method, rows in found.items()}


def importance_of(trials: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the share of each parameter by fANOVA; nothing if there are too few trials."""
    if len(trials) < MIN_TRIALS or len({trial["valid_error"] for trial in trials}) < 2:
        return {}
    values = {name: [trial["params"][name] for trial in trials] for name in trials[0]["params"]}
    distributions = {name: _range_of(own) for name, own in values.items() if len(set(own)) > 1}
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        study = optuna.create_study()
        for trial in trials:
            params = {name: trial["params"][name] for name in distributions}
            study.add_trial(
                optuna.trial.create_trial(
                    params=params, distributions=distributions, value=trial["valid_error"]
                )
            )
        evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
        shares = optuna.importance.get_param_importances(study, evaluator=evaluator)
    finally:
        optuna.logging.set_verbosity(before)
    return {name: float(shares.get(name, 0.0)) for name in values}


def _range_of(values: Sequence[Any]) -> Any:
    if any(isinstance(value, (str, bool)) for value in values):
        return CategoricalDistribution(sorted(set(values), key=str))
    low, high = min(values), max(values)
    is_log = low > 0 and high / low > 10
    kind = IntDistribution if all(isinstance(v, int) for v in values) else FloatDistribution
    return kind(low, high, log=is_log)


def _making(found: Tuned) -> Section:
    rows = found.rows
    failed = rows[rows["error"] != ""]
    reasons = "; ".join(f"{r.dataset}, {r.method}: {r.error}" for r in failed.head(5).itertuples())
    spaces = {
        label_of(str(method)): own["space"].iloc[-1] for method, own in rows.groupby("method")
    }
    facts = {
        "Command": found.command,
        "Versions": "; ".join(dict.fromkeys(rows["versions"])),
        "Commit": ", ".join(dict.fromkeys(rows["commit"])),
        "Budget": "; ".join(dict.fromkeys(rows["budget"])),
        "Studies": f"{len(rows)}, of which {len(failed) or 'none'} failed",
        "Failed": reasons,
        **{f"Space of {name}": text for name, text in spaces.items()},
    }
    return Section(
        "tuned-making",
        "How the studies were run",
        facts={name: text for name, text in facts.items() if text},
    )
