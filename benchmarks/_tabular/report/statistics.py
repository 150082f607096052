"""Tests over datasets, on errors as printed; with too few, a sentence gives the reason."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import scikit_posthocs
from scipy import stats
from statsmodels.stats.multitest import multipletests

from benchmarks._tabular.report import paper
from benchmarks._tabular.report.results import default_methods, win_tie_loss

LEVEL = 0.05
# Friedman's chi-squared is unreliable below five datasets, and with fewer than six no Wilcoxon
# test can fall below 0.05.
MIN_SETS_RANKS, MIN_SETS_PAIRS = 5, 6
MAX_EXACT = 16  # up to this many differences, all combinations of signs are counted: at most 65536


@dataclass(frozen=True)
class RankTest:
    """Average ranks of methods, the best first, Friedman's test of them, and Nemenyi's of pairs."""

    ranks: pd.Series
    n_sets: int
    statistic: float
    p_value: float
    critical_difference: float
    pairs: pd.DataFrame


def compare_all_ranks(errors: pd.DataFrame) -> list[RankTest | str]:
    """Rank the paper's methods, and the classifiers with default settings (or all methods)."""
    groups = [default_methods(list(errors)) or list(errors)]
    if set(paper.METHODS) < set(errors):
        groups.insert(0, list(paper.METHODS))
    return [compare_ranks(errors[group]) for group in groups]


def compare_ranks(errors: pd.DataFrame) -> RankTest | str:
    """Rank the methods on each dataset, and test whether their average ranks differ."""
    whole = errors
    while whole.shape[1] > 3 and len(whole.dropna()) < MIN_SETS_RANKS:
        whole = whole.drop(columns=whole.columns[::-1][whole.notna().sum()[::-1].argmin()])
    whole = whole.dropna()
    n_sets, n_methods = whole.shape
    if n_methods < 3 or n_sets < MIN_SETS_RANKS:
        return (
            f"There are no ranks: they need three methods on the same {MIN_SETS_RANKS} datasets, "
            f"and there are {errors.shape[1]} on {len(errors)}."
        )
    ranks = whole.rank(axis=1)
    if (ranks.nunique(axis=1) == 1).all():
        return "There are no ranks: all methods have the same errors."
    statistic, p_value = stats.friedmanchisquare(*(whole[name] for name in whole))
    quantile = stats.studentized_range.ppf(1 - LEVEL, n_methods, np.inf) / np.sqrt(2)
    return RankTest(
        ranks=ranks.mean().sort_values(kind="stable"),
        n_sets=n_sets,
        statistic=float(statistic),
        p_value=float(p_value),
        critical_difference=float(quantile * np.sqrt(n_methods * (n_methods + 1) / (6 * n_sets))),
        pairs=scikit_posthocs.posthoc_nemenyi_friedman(whole),
    )


def compare_pairs(errors: pd.DataFrame) -> pd.DataFrame | str:
    """Wilcoxon's signed-rank test over datasets, with Holm's correction for their number."""
    rows = [_compare(errors, *pair) for pair in _pairs(list(errors))]
    table = pd.DataFrame([row for row in rows if row["n_sets"] >= MIN_SETS_PAIRS])
    if table.empty:
        return (
            f"There are no paired tests: they need two methods on the same {MIN_SETS_PAIRS} "
            f"datasets. With fewer, no difference could fall below p = {LEVEL}."
        )
    table["p_holm"] = multipletests(table["p_value"], alpha=LEVEL, method="holm")[1]
    return table


def _pairs(methods: list[str]) -> list[tuple[str, str]]:
    """Return MixupE (or our default, or the first) with each other method, and Mixup with ERM."""
    if len(methods) < 2:
        return []
    ours = [name for name in ("mixupe", "mixupe-default") if name in methods]
    first = (ours or methods)[0]
    pairs = [(first, other) for other in methods if other != first]
    return pairs + ([("mixup", "erm")] if {"mixup", "erm"} < set(methods) else [])


def _compare(errors: pd.DataFrame, method: str, other: str) -> dict:
    both = errors[[method, other]].dropna()
    # Integer hundredths: equal differences compare equal despite rounding.
    differences = ((both[method] - both[other]) * 100).round().to_numpy()
    wins, ties, losses = win_tie_loss(errors, method, other)
    return {
        "method": method,
        "other": other,
        "n_sets": len(both),
        "wins": wins,
        "ties": ties,
        "losses": losses,
        "median": float(np.median(differences)) / 100 if len(both) else np.nan,
        "p_value": signed_rank_p(differences),
    }


def signed_rank_p(differences: np.ndarray) -> float:
    """Return Wilcoxon's two-sided p value, without zeros; exact up to 16 differences."""
    differences = differences[differences != 0]
    if len(differences) < 2:  # one difference has either sign with equal probability
        return 1.0
    exact = stats.PermutationMethod(n_resamples=2**MAX_EXACT)
    method = exact if len(differences) <= MAX_EXACT else "asymptotic"
    return float(stats.wilcoxon(differences, method=method).pvalue)
