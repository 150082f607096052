"""From the rows of all fits to one configuration per data set and method, and what follows.

All functions here are pure: frames go in, frames come out. Test errors are never looked at to
choose anything.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from benchmarks._tabular.report import paper

KEY = ["dataset", "data", "splits", "split", "seed", "method", "alpha", "eta", "params"]
TEXTS = ["source", "dataset", "data", "splits", "method", "params", "grid"]
TEXTS += ["train_losses", "test_losses", "error", "versions", "commit", "run"]
METRICS = ["valid_error", "test_error", "valid_log_loss", "test_log_loss"]
METRICS += ["test_balanced_accuracy", "test_ece", "fit_seconds", "predict_seconds"]
NUMBERS = ["task_id", "data_id", "n_rows", "n_features", "n_classes", "split", "seed"]
NUMBERS += ["alpha", "eta", "n_together", *METRICS]
# What is said of a data set, the same in all its rows.
ABOUT = ["dataset", "source", "splits", "data", "task_id", "data_id"]
ABOUT += ["n_rows", "n_features", "n_classes"]
# Rows hold rounded percentages: means that are this close are of the same number of wrong answers.
SAME = 1e-4
GRIDS = ["paper", "reduced", "default"]
# The methods in the order of tables and figures; others follow by name.
LABELS = {
    "erm": "ERM",
    "mixup": "Mixup",
    "mixupe": "MixupE",
    "mixupe-directional": "MixupE, directional",
    "erm+penalty": "ERM + penalty",
    "manifold-mixup": "Manifold Mixup",
    "logistic": "Logistic regression",
    "mlp-sklearn": "MLP (scikit-learn)",
    "random-forest": "Random forest",
    "hist-gradient-boosting": "Hist. gradient boosting",
    "realmlp": "RealMLP",
    "xgboost": "XGBoost",
    "lightgbm": "LightGBM",
    "catboost": "CatBoost",
}


def label_of(method: str) -> str:
    """How a method is called in print.

    Examples
    --------
    >>> label_of("mixupe"), label_of("mine")
    ('MixupE', 'mine')
    """
    return LABELS.get(method, method)


def order_methods(methods: Sequence[str]) -> list[str]:
    """Methods without repetition, ours first, then the peers, then unknown ones by name."""
    known = list(LABELS)
    return sorted(set(methods), key=lambda m: (known.index(m) if m in known else len(known), m))


def clean(rows: pd.DataFrame) -> pd.DataFrame:
    """Check the rows, keep the last of each key, name the data sets, and mark what failed.

    Adds ``set``, the name of a data set in the report (that of the data set, with its splits or
    source where several share it), and ``has_failed``.
    """
    missing = [name for name in [*TEXTS, *NUMBERS] if name not in rows]
    if missing:
        raise ValueError(
            f"Got rows without {', '.join(missing)}, but expected all columns that a run writes."
        )
    fits = pd.DataFrame({name: [one_line(text) for text in rows[name]] for name in TEXTS})
    for name in NUMBERS:
        fits[name] = _numbers(rows[name])
    fits = fits.drop_duplicates(KEY, keep="last").reset_index(drop=True)
    is_silent = fits["error"].eq("") & fits[["valid_error", "test_error"]].isna().any(axis=1)
    fits.loc[is_silent, "error"] = "the row has no error rate"
    fits["has_failed"] = fits["error"].ne("")
    fits["set"] = _names_of_sets(fits)
    return fits


def one_line(text: Any) -> str:
    r"""Text in one line without control characters; blank where there is none.

    Examples
    --------
    >>> one_line("two\nlines"), one_line(float("nan"))
    ('two lines', '')
    """
    if text is None or text is pd.NA or (isinstance(text, float) and math.isnan(text)):
        return ""
    return " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())


def _numbers(column: pd.Series) -> np.ndarray:
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(dtype=float)
    for value, is_hole in zip(column, np.isnan(numbers), strict=True):
        if is_hole and one_line(value).lower() not in ("", "nan"):
            raise ValueError(f"Got {column.name}={value!r}, but expected a number or a blank.")
    return numbers


def _names_of_sets(fits: pd.DataFrame) -> pd.Series:
    """Names of data sets; where several share one, with what tells them apart."""
    names = fits["dataset"].copy()
    for _, group in fits.groupby("dataset"):
        n_sets = len(group[["data", "splits"]].drop_duplicates())
        for column in ("splits", "source", "data"):
            if names[group.index].nunique() == n_sets:
                break
            if group[column].nunique() > 1:
                names[group.index] += " (" + group[column] + ")"
    return names


def summarise(fits: pd.DataFrame) -> pd.DataFrame:
    """Means over the splits of each configuration: one row per data set, method, alpha, eta.

    ``is_complete`` says whether a configuration has a fit for every split of the data set, with
    every seed that its method has there; only such ones may be chosen.
    """
    good = fits[~fits["has_failed"]]
    keys = ["set", "method", "alpha", "eta", "params"]
    groups = good.groupby(keys, dropna=False, sort=False)
    means = groups[[*METRICS, "n_together"]].mean()
    deviations = groups[METRICS].std(ddof=1).add_suffix("_std")
    table = pd.concat([means, deviations], axis=1)
    table["n_splits"] = groups.size()
    table["n_different_splits"] = groups["split"].nunique()
    table = table.reset_index()
    pairs = good.drop_duplicates(["set", "method", "split", "seed"])
    n_pairs = pairs.groupby(["set", "method"]).size().rename("n_needed")
    n_different = good.groupby("set")["split"].nunique().rename("n_different_needed")
    table = table.merge(n_pairs.reset_index(), on=["set", "method"])
    table = table.merge(n_different.reset_index(), on="set")
    table["is_complete"] = table["n_splits"].eq(table["n_needed"]) & table["n_different_splits"].eq(
        table["n_different_needed"]
    )
    return table.drop(columns=["n_needed", "n_different_needed", "n_different_splits"])


def choose(rows: pd.DataFrame) -> pd.DataFrame:
    """The configuration of each data set and method with the lowest mean validation error.

    Ties go to the lower validation log loss, then to the smaller alpha, then to the smaller eta.
    Only configurations that have all splits count.

    Parameters
    ----------
    rows : pandas.DataFrame
        One row per fit, as a run writes them. Of rows with the same key the last one counts.

    Returns
    -------
    chosen : pandas.DataFrame
        One row per data set and method: ``set`` (its name in the report), what is known of the
        data set, ``method``, ``alpha``, ``eta``, ``params``, ``grid``, ``n_splits`` (fits that
        the means are over), ``n_configurations`` (complete ones), and the mean of every metric,
        with its deviation over the splits under the same name and ``_std``.
    """
    return choose_from(clean(rows))


def choose_from(fits: pd.DataFrame) -> pd.DataFrame:
    """As ``choose``, for rows that are clean."""
    table = summarise(fits)
    table = table[table["is_complete"]].drop(columns="is_complete")
    groups = table.groupby(["set", "method"], sort=False)
    table["n_configurations"] = groups["alpha"].transform("size")
    table = table[table["valid_error"] <= groups["valid_error"].transform("min") + SAME]
    table = table.sort_values(["valid_log_loss", "alpha", "eta", "params"])
    table = table.drop_duplicates(["set", "method"])
    about = fits.drop_duplicates("set", keep="last")[["set", *ABOUT]]
    grids = fits.groupby(["set", "method"])["grid"].agg(_largest).reset_index()
    table = table.merge(about, on="set").merge(grids, on=["set", "method"])
    order = {name: number for number, name in enumerate(order_methods(table["method"]))}
    table["line"] = table["dataset"].map(paper.place_of)
    table["place"] = table["method"].map(order)
    table = table.sort_values(["line", "set", "place"], ignore_index=True)
    table = table.drop(columns=["line", "place"])
    front = ["set", *ABOUT, "method", "alpha", "eta", "params", "grid", "n_splits"]
    return table[[*front, *[name for name in table if name not in front]]]


def _largest(grids: pd.Series) -> str:
    return next((name for name in GRIDS if (grids == name).any()), grids.iloc[0])


def as_printed(value: float) -> float:
    """A percentage with the two decimals it is printed with: what ties are judged by."""
    return float(f"{value:.2f}")


def error_table(chosen: pd.DataFrame) -> pd.DataFrame:
    """Test errors as printed, data sets by methods; missing ones are NaN."""
    table = chosen.pivot(index="set", columns="method", values="test_error").map(as_printed)
    table.index.name = table.columns.name = None
    return table.loc[list(dict.fromkeys(chosen["set"])), order_methods(list(table.columns))]


def count_at_or_below(errors: pd.DataFrame, method: str, other: str) -> tuple[int, int]:
    """On how many data sets a method is at or below another, and how many have both."""
    if method not in errors or other not in errors:
        return 0, 0
    both = errors[[method, other]].dropna()
    return int((both[method] <= both[other]).sum()), len(both)


def win_tie_loss(errors: pd.DataFrame, method: str, other: str) -> tuple[int, int, int]:
    """On how many data sets a method is below, equal to and above another, as printed."""
    both = errors[[method, other]].dropna()
    difference = both[method] - both[other]
    return int((difference < 0).sum()), int((difference == 0).sum()), int((difference > 0).sum())


def chosen_fits(fits: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """The single fits of the chosen configurations."""
    keys = ["set", "method", "alpha", "eta", "params"]
    return fits[~fits["has_failed"]].merge(chosen[keys], on=keys)


def mean_curve(texts: Sequence[str]) -> np.ndarray:
    """The mean of losses by epoch, as far as all have them.

    Examples
    --------
    >>> mean_curve(["1 0.5 0.2", "2 1.5"]).tolist()
    [1.5, 1.0]
    """
    curves = [np.array(text.split(), dtype=float) for text in texts if text]
    if not curves:
        return np.empty(0)
    length = min(len(curve) for curve in curves)
    return np.mean([curve[:length] for curve in curves], axis=0)
