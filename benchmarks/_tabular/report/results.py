"""From the rows of all fits to one configuration per data set and method, and what follows.

All functions here are pure: frames go in, frames come out. Test errors are never looked at to
choose anything.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from benchmarks._tabular.escaping import printable
from benchmarks._tabular.protocol import configs_of
from benchmarks._tabular.report import paper
from benchmarks._tabular.rows import COLUMNS, FITS, KEY

METRICS = ["valid_error", "test_error", "valid_log_loss", "test_log_loss"]
METRICS += ["test_balanced_accuracy", "test_ece", "fit_seconds", "predict_seconds"]
# What is said of a data set, the same in all its rows.
ABOUT = ["dataset", "source", "splits", "data", "task_id", "data_id"]
ABOUT += ["n_rows", "n_features", "n_classes", "in_paper"]
# What makes a configuration, and by what the lowest of equal ones is told.
CONFIG = ["set", "method", "alpha", "eta", "params"]
TIES = ["valid_log_loss", "alpha", "eta"]
# Rows hold rounded percentages: means that are this close are of the same number of wrong answers.
SAME = 1e-4
# The methods in the order of tables and figures; others follow by name.
LABELS = {
    "erm": "ERM",
    "mixup": "Mixup",
    "mixupe": "MixupE",
    "mixupe-directional": "MixupE, directional",
    "erm+penalty": "ERM + penalty",
    "manifold-mixup": "Manifold Mixup",
    "mixupe-default": "MixupEClassifier()",
    "mixupe-paper": "MixupE, preset “paper”",
    "logistic": "Logistic regression",
    "mlp-sklearn": "MLP (scikit-learn)",
    "mlp-sklearn-default": "MLPClassifier()",
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
    source where several share it), ``in_paper``, its name in the paper's table or blank, and
    ``has_failed``.
    """
    missing = [name for name in COLUMNS if name not in rows]
    if missing:
        raise ValueError(
            f"Got rows without {', '.join(missing)}, but expected all columns that a run writes."
        )
    fits = pd.DataFrame(
        {
            name: [one_line(text) for text in rows[name]]
            if name in FITS.texts
            else _numbers(rows[name])
            for name in COLUMNS
        }
    )
    fits = fits.drop_duplicates(list(KEY), keep="last", ignore_index=True)
    is_silent = fits["error"].eq("") & fits[["valid_error", "test_error"]].isna().any(axis=1)
    fits.loc[is_silent, "error"] = "the row has no error rate"
    fits["has_failed"] = fits["error"].ne("")
    fits["set"] = _names_of_sets(fits)
    about = zip(fits["source"], fits["dataset"], fits["data_id"], strict=True)
    fits["in_paper"] = pd.Series([paper.name_of(*of_row) for of_row in about], dtype=str)
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
    return printable(str(text))


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


def comparable(fits: pd.DataFrame) -> pd.DataFrame:
    """Fits that did not fail, on the splits that the methods of their data set share.

    Adds ``n_common``, the number of these splits.
    """
    good = fits[~fits["has_failed"]]
    _check_params(good)
    parts = [good.assign(n_common=0).iloc[:0]]
    for _, group in good.groupby("set", sort=False):
        pairs = pd.Series(list(zip(group["split"], group["seed"], strict=True)), group.index)
        common = common_part(
            [set(pairs[group["method"] == method]) for method in order_methods(group["method"])]
        )
        parts.append(group[pairs.isin(common)].assign(n_common=len(common)))
    return pd.concat(parts)


def common_part(parts: Sequence[set]) -> set:
    """What all have, but for those who would leave no more than half to the others.

    Examples
    --------
    >>> sorted(common_part([{1, 2, 3}, {2, 3, 4}, {4}]))
    [2, 3]
    """
    by_size = sorted(parts, key=len, reverse=True)
    common = by_size[0]
    for own in by_size:
        if len(common & own) > len(by_size[0]) / 2:
            common = common & own
    return common


def _check_params(good: pd.DataFrame) -> None:
    for (name, method), group in good.groupby(["set", "method"], sort=False):
        params = list(dict.fromkeys(group["params"]))
        if len(params) > 1:
            raise ValueError(
                f"Got {len(params)} params of {method} on {name} ({'; '.join(params)}), but "
                f"expected one: give the rows of one protocol."
            )


def summarise(used: pd.DataFrame) -> pd.DataFrame:
    """Means over the splits of each configuration: one row per data set, method, alpha, eta.

    ``is_complete`` says whether a configuration has a fit for each of the splits that are
    compared (see ``comparable``); only such ones may be chosen.
    """
    groups = used.groupby(CONFIG, dropna=False, sort=False)
    means = groups[[*METRICS, "n_together", "n_common"]].mean()
    deviations = groups[METRICS].std(ddof=1).add_suffix("_std")
    table = pd.concat([means, deviations], axis=1)
    table["n_splits"] = groups.size()
    table["is_complete"] = table["n_splits"].eq(table.pop("n_common"))
    return table.reset_index()


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
        data set, ``method``, ``alpha``, ``eta``, ``params``, ``grid`` (the one of which all
        configurations are complete, or "in part"), ``n_splits`` (fits that the means are over),
        ``n_configurations`` (complete ones), ``search_seconds`` (of all of them on one split), and
        the mean of every metric, with its deviation over the splits under the same name and
        ``_std``.
    """
    return choose_from(comparable(clean(rows)))


def choose_from(used: pd.DataFrame) -> pd.DataFrame:
    """As ``choose``, for rows that are clean and comparable."""
    table = summarise(used)
    table = table[table["is_complete"]].drop(columns="is_complete")
    groups = table.groupby(["set", "method"], sort=False)
    table["n_configurations"] = groups["alpha"].transform("size")
    table["search_seconds"] = groups["fit_seconds"].transform("sum", min_count=1)
    grids = {key: _grid_of(str(key[1]), group) for key, group in groups}
    table = _lowest(table, ["set", "method"])
    table["grid"] = [grids[key] for key in zip(table["set"], table["method"], strict=True)]
    table = table.merge(used.drop_duplicates("set", keep="last")[["set", *ABOUT]], on="set")
    order = {name: number for number, name in enumerate(order_methods(table["method"]))}
    table["line"] = table["in_paper"].map(paper.place_of)
    table["place"] = table["method"].map(order)
    table = table.sort_values(["line", "set", "place"], ignore_index=True)
    table = table.drop(columns=["line", "place"])
    front = ["set", *ABOUT, "method", "alpha", "eta", "params", "grid", "n_splits"]
    return table[[*front, *[name for name in table if name not in front]]]


def _lowest(table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Of each group the row with the lowest validation error, ties settled."""
    lowest = table.groupby(keys)["valid_error"].transform("min")
    return table[table["valid_error"] <= lowest + SAME].sort_values(TIES).drop_duplicates(keys)


def _grid_of(method: str, complete: pd.DataFrame) -> str:
    """The grid of which a method has all configurations; "in part" if there is none."""
    here = {_pair(row.alpha, row.eta) for row in complete.itertuples()}
    grids = {
        grid: {_pair(config.alpha, config.eta) for config in configs_of(method, grid)}
        for grid in ("paper", "reduced", "default")
    }
    if here >= grids["paper"]:
        return "paper"
    return next((grid for grid, pairs in grids.items() if here == pairs), "in part")


def _pair(*numbers: float | None) -> tuple[float | None, ...]:
    return tuple(None if value is None or math.isnan(value) else value for value in numbers)


def choose_per_split(rows: pd.DataFrame) -> pd.DataFrame:
    """The stricter choice: anew on each split, by the validation error of that split alone.

    Candidates and ties are those of ``choose``.

    Returns
    -------
    chosen : pandas.DataFrame
        One row per data set and method: ``set``, ``method``, ``n_splits``, and the mean
        ``test_error`` over the splits with its deviation, ``test_error_std``.
    """
    return choose_per_split_from(comparable(clean(rows)))


def choose_per_split_from(used: pd.DataFrame) -> pd.DataFrame:
    """As ``choose_per_split``, for rows that are clean and comparable."""
    size = used.groupby(CONFIG, dropna=False)["split"].transform("size")
    fits = _lowest(used[size == used["n_common"]], ["set", "method", "split", "seed"])
    errors = fits.groupby(["set", "method"])["test_error"]
    table = errors.agg(n_splits="size", test_error="mean", test_error_std="std")
    return table.reset_index()


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


def chosen_fits(used: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """The single fits of the chosen configurations."""
    return used.merge(chosen[CONFIG], on=CONFIG)


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
