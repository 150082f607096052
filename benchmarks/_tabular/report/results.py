"""Select a configuration per dataset and method; test errors never select anything."""

from collections.abc import Sequence

import pandas as pd

from benchmarks._harness.report_tables import printable
from benchmarks._tabular.baselines import BASELINES
from benchmarks._tabular.protocol import COLUMNS, FITS, KEY, configs_of
from benchmarks._tabular.report import paper

METRICS = ["valid_error", "test_error", "valid_log_loss", "test_log_loss"]
METRICS += ["test_balanced_accuracy", "test_ece", "fit_seconds", "predict_seconds"]
ABOUT = ["dataset", "source", "splits", "data", "task_id", "data_id"]
ABOUT += ["n_rows", "n_features", "n_classes", "in_paper"]
CONFIG = ["set", "method", "alpha", "eta", "params"]
TIES = ["valid_log_loss", "alpha", "eta"]
SAME = 1e-4  # rows hold rounded percentages: means this close come from the same number of errors
OURS, EARLIER = "mixupe-default", "mixupe-paper"
_NOT_DEFAULT = "mlp-sklearn"  # it has the paper's network and training instead of its defaults
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
    """Return the name of a method in print."""
    return LABELS.get(method, method)


def order_methods(methods: Sequence[str]) -> list[str]:
    """Return methods without repetition: ours, then the baselines, then unknown ones by name."""
    known = list(LABELS)
    return sorted(set(methods), key=lambda m: (known.index(m) if m in known else len(known), m))


def default_methods(methods: Sequence[str]) -> list[str]:
    """Return ours and the baselines with default settings; none if ours is not there."""
    others = [name for name in methods if name in BASELINES and name != _NOT_DEFAULT]
    return order_methods([OURS, *others]) if OURS in methods else []


def clean(rows: pd.DataFrame) -> pd.DataFrame:
    """Keep the last row of each key; add ``set`` (its name), ``in_paper`` and ``has_failed``."""
    texts = list(FITS.texts)
    fits = rows[list(COLUMNS)].drop_duplicates(list(KEY), keep="last", ignore_index=True)
    fits[texts] = fits[texts].astype(object).map(printable).astype(str)
    fits[FITS.numbers] = fits[FITS.numbers].apply(pd.to_numeric).astype(float)
    is_silent = fits["error"].eq("") & fits[["valid_error", "test_error"]].isna().any(axis=1)
    fits.loc[is_silent, "error"] = "the row has no error rate"
    fits["has_failed"] = fits["error"].ne("")
    one = fits["splits"] + ", " + fits["data"]
    is_shared = one.groupby(fits["dataset"]).transform("nunique") > 1
    fits["set"] = fits["dataset"].mask(is_shared, fits["dataset"] + " (" + one + ")")
    about = zip(fits["source"], fits["dataset"], fits["data_id"], strict=True)
    fits["in_paper"] = pd.Series([paper.name_of(*of_row) for of_row in about], dtype=str)
    return fits


def comparable(fits: pd.DataFrame) -> pd.DataFrame:
    """Return fits that did not fail, on the ``n_common`` splits that all methods share."""
    good = fits[~fits["has_failed"]]
    n_params = good.groupby(["set", "method"])["params"].nunique()
    if (n_params > 1).any():
        name, method = n_params.idxmax()
        raise ValueError(
            f"Got several params of {method} on {name}, but expected one: use the rows of one "
            f"protocol."
        )
    parts = [good.assign(n_common=0).iloc[:0]]
    for _, group in good.groupby("set", sort=False):
        pairs = pd.Series(list(zip(group["split"], group["seed"], strict=True)), group.index)
        common = common_part(
            [set(pairs[group["method"] == method]) for method in order_methods(group["method"])]
        )
        parts.append(group[pairs.isin(common)].assign(n_common=len(common)))
    return pd.concat(parts)


def common_part(parts: Sequence[set]) -> set:
    """Return the intersection, without the sets that would leave at most half to the others."""
    by_size = sorted(parts, key=len, reverse=True)
    common = by_size[0]
    for own in by_size:
        if len(common & own) > len(by_size[0]) / 2:
            common = common & own
    return common


def summarise(used: pd.DataFrame) -> pd.DataFrame:
    """Average each configuration over the splits; only complete ones may be selected."""
    groups = used.groupby(CONFIG, dropna=False, sort=False)
    means = groups[[*METRICS, "n_together", "n_common"]].mean()
    deviations = groups[METRICS].std(ddof=1).add_suffix("_std")
    table = pd.concat([means, deviations], axis=1)
    table["n_splits"] = groups.size()
    table["is_complete"] = table["n_splits"].eq(table.pop("n_common"))
    return table.reset_index()


def choose(rows: pd.DataFrame) -> pd.DataFrame:
    """Select the configuration with the lowest mean validation error per dataset and method."""
    return choose_from(comparable(clean(rows)))


def choose_from(used: pd.DataFrame) -> pd.DataFrame:
    """As ``choose``, for clean and comparable rows."""
    table = summarise(used)
    table = table[table["is_complete"]].drop(columns="is_complete")
    groups = table.groupby(["set", "method"], sort=False)
    table["n_configurations"] = groups["alpha"].transform("size")
    table["search_seconds"] = groups["fit_seconds"].transform("sum", min_count=1)
    grids = {key: _grid_of(str(key[1]), group) for key, group in groups}
    table = _lowest(table, ["set", "method"])
    table["grid"] = [grids[key] for key in zip(table["set"], table["method"], strict=True)]
    table = table.merge(used.drop_duplicates("set", keep="last")[["set", *ABOUT]], on="set")
    order = order_methods(table["method"])
    table["line"] = table["in_paper"].map(paper.place_of)
    table["place"] = table["method"].map(order.index)
    table = table.sort_values(["line", "set", "place"], ignore_index=True)
    return table.drop(columns=["line", "place"])


def _lowest(table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return the row of each group with the lowest validation error, after ties."""
    lowest = table.groupby(keys)["valid_error"].transform("min")
    return table[table["valid_error"] <= lowest + SAME].sort_values(TIES).drop_duplicates(keys)


def _grid_of(method: str, complete: pd.DataFrame) -> str:
    """Return the grid of which a method has all configurations, or "in part"."""
    here = set(zip(complete["alpha"].fillna(-1), complete["eta"].fillna(-1), strict=True))
    for grid in ("paper", "reduced", "default"):
        pairs = [(config.alpha, config.eta) for config in configs_of(method, grid)]
        wanted = {tuple(-1 if value is None else value for value in pair) for pair in pairs}
        if here == wanted or (grid == "paper" and here > wanted):
            return grid
    return "in part"


def choose_per_split(used: pd.DataFrame) -> pd.DataFrame:
    """Select on each split separately, by the validation error of that split alone."""
    size = used.groupby(CONFIG, dropna=False)["split"].transform("size")
    fits = _lowest(used[size == used["n_common"]], ["set", "method", "split", "seed"])
    errors = fits.groupby(["set", "method"])["test_error"]
    table = errors.agg(n_splits="size", test_error="mean", test_error_std="std")
    return table.reset_index()


def as_printed(value: float) -> float:
    """Round a percentage to its two printed decimals, by which ties are decided."""
    return float(f"{value:.2f}")


def error_table(chosen: pd.DataFrame) -> pd.DataFrame:
    """Return test errors as printed, datasets by methods; missing ones are NaN."""
    table = chosen.pivot(index="set", columns="method", values="test_error").map(as_printed)
    table.index.name = table.columns.name = None
    return table.loc[list(dict.fromkeys(chosen["set"])), order_methods(list(table.columns))]


def win_tie_loss(errors: pd.DataFrame, method: str, other: str) -> tuple[int, int, int]:
    """Count the datasets on which a method is below, equal to and above another, as printed."""
    both = errors.reindex(columns=[method, other]).dropna()
    difference = both[method] - both[other]
    return int((difference < 0).sum()), int((difference == 0).sum()), int((difference > 0).sum())


def count_at_or_below(errors: pd.DataFrame, method: str, other: str) -> tuple[int, int]:
    """Count the datasets on which a method is at or below another, and those that have both."""
    wins, ties, losses = win_tie_loss(errors, method, other)
    return wins + ties, wins + ties + losses
