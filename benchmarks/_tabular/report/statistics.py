"""Tests over datasets: whether methods differ by more than chance.

Both tests use test errors as printed, with two decimals: a tie in the table is a tie here. With too
few results they return a sentence that gives the reason.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
import scikit_posthocs
from scipy import stats
from statsmodels.stats.multitest import multipletests

from benchmarks._tabular.report import paper
from benchmarks._tabular.report.results import OURS, default_methods, label_of, win_tie_loss

LEVEL = 0.05
# Friedman's chi-squared is unreliable below five datasets, and with fewer than six no Wilcoxon
# test can fall below 0.05.
MIN_SETS_RANKS, MIN_SETS_PAIRS = 5, 6
# Up to this many differences, all combinations of signs are counted: at most 65536.
MAX_EXACT = 16


@dataclass(frozen=True)
class RankTest:
    """Average ranks of methods, Friedman's test of them, and Nemenyi's of each pair.

    Parameters
    ----------
    ranks : pandas.Series
        Average rank of each method, the best first; 1 is the lowest error.
    n_sets : int
        Number of datasets that all these methods have.
    statistic, p_value : float
        Of Friedman's test.
    critical_difference : float
        Average ranks further apart than this differ (Nemenyi, 5 %).
    pairs : pandas.DataFrame
        Nemenyi's p value of each pair of methods.
    left_out : tuple of str
        Methods that ran on too few datasets to be ranked.
    """

    ranks: pd.Series
    n_sets: int
    statistic: float
    p_value: float
    critical_difference: float
    pairs: pd.DataFrame
    left_out: tuple[str, ...]


def compare_all_ranks(errors: pd.DataFrame) -> list[RankTest | str]:
    """Return the ranks of the paper's methods on all their datasets, then those of all methods.

    Other methods may have run on fewer datasets; this does not affect the paper's methods.
    """
    test = compare_ranks(errors)
    ours = [method for method in paper.METHODS if method in errors]
    if len(ours) < 3 or len(ours) == errors.shape[1]:
        return [test]
    first = compare_ranks(errors[ours])
    if isinstance(test, str):
        return [first]
    is_same = isinstance(first, str) or set(test.ranks.index) == set(ours)
    return [test] if is_same else [first, test]


def compare_ranks(errors: pd.DataFrame) -> RankTest | str:
    """Rank the methods on each dataset, and test whether their average ranks differ.

    Parameters
    ----------
    errors : pandas.DataFrame
        Test errors, datasets by methods; NaN if missing.
    """
    whole, left_out = _complete_part(errors)
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
        left_out=left_out,
    )


def rank_defaults(errors: pd.DataFrame) -> RankTest | str | None:
    """Rank the classifiers with default settings; why there are no ranks, or None without ours."""
    methods = default_methods(list(errors))
    if not methods:
        return None
    test = compare_ranks(errors[methods])
    if isinstance(test, RankTest) and OURS in test.left_out:
        return f"There are no ranks: {label_of(OURS)} ran on too few datasets."
    return test


def _complete_part(errors: pd.DataFrame) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Return the methods that share enough datasets; those with the fewest are dropped first."""
    kept = errors
    while kept.shape[1] > 3 and len(kept.dropna()) < MIN_SETS_RANKS:
        kept = kept.drop(columns=kept.columns[::-1][kept.notna().sum()[::-1].argmin()])
    return kept.dropna(), tuple(name for name in errors if name not in kept)


def compare_pairs(errors: pd.DataFrame) -> pd.DataFrame | str:
    """Wilcoxon's signed-rank test over datasets, with Holm's correction for their number.

    Parameters
    ----------
    errors : pandas.DataFrame
        Test errors, datasets by methods; NaN if missing.

    Returns
    -------
    pairs : pandas.DataFrame or str
        One row per pair: ``method``, ``other``, ``n_sets``, ``wins``, ``ties``, ``losses``, the
        ``median`` of the differences, ``p_value`` and ``p_holm``; or why there are none.
    """
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
    return pairs + [pair for pair in combinations(("mixup", "erm"), 2) if {*pair} < {*methods}]


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
    """Return the two-sided p value of Wilcoxon's signed-rank test, without differences of zero.

    It is exact for few differences, also with ties.

    Examples
    --------
    >>> signed_rank_p(np.array([-1.0, -2.0, -3.0, -4.0, -5.0, -6.0]))  # 2 of 64 signs
    0.03125
    """
    differences = differences[differences != 0]
    if len(differences) < 2:  # one difference has either sign with equal probability
        return 1.0
    if len(differences) > MAX_EXACT:
        return float(stats.wilcoxon(differences, method="asymptotic").pvalue)
    # Twice the ranks are integers, also with ties. All signs are equally likely: each rank doubles
    # the ways to reach a sum, with it and without it.
    ranks = (2 * stats.rankdata(np.abs(differences))).astype(int)
    ways = np.zeros(ranks.sum() + 1)
    ways[0] = 1
    for rank in ranks:
        ways[rank:] += ways[:-rank].copy()
    found = ranks[differences > 0].sum()
    tails = ways[: found + 1].sum(), ways[found:].sum()
    return float(min(1.0, 2 * min(tails) / ways.sum()))
