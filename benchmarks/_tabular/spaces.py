"""Search spaces of the baselines, as their authors or TabArena published them.

LightGBM, XGBoost, CatBoost, RealMLP: TabArena (Erickson et al., "TabArena: A Living Benchmark for
Machine Learning on Tabular Data", NeurIPS 2025). HistGradientBoosting, which TabArena lacks:
auto-sklearn (Feurer et al., "Auto-Sklearn 2.0", JMLR 2022). Boosting stops early on a tenth of the
training samples; TabArena stops on its validation samples, after at most 10,000 iterations.
"""

from dataclasses import dataclass, field
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.distributions import FloatDistribution as Float
from optuna.distributions import IntDistribution as Int

MOST_TREES = 2000
PATIENCE = 50  # boosting iterations without improvement
STOPPING_FRACTION = 0.1  # of the training samples, held out to stop early


@dataclass(frozen=True)
class Tunable:
    """How a baseline is tuned: what is searched, what is fixed, and how it stops early."""

    source: str
    space: dict[str, BaseDistribution]
    fixed: dict[str, Any] = field(default_factory=dict)
    # The arguments of ``fit`` for held-out samples; none if the library holds out its own.
    held_out: tuple[str, ...] = ()
    fit_params: dict[str, Any] = field(default_factory=dict)


def _log(low: float, high: float) -> Float:
    return Float(low, high, log=True)


def _log_int(low: int, high: int) -> Int:
    return Int(low, high, log=True)


TUNABLE: dict[str, Tunable] = {
    "hist-gradient-boosting": Tunable(
        "auto-sklearn",
        {
            "learning_rate": _log(0.01, 1.0),
            "min_samples_leaf": _log_int(1, 200),
            "max_leaf_nodes": _log_int(3, 2047),
            "l2_regularization": _log(1e-10, 1.0),
        },
        {"max_iter": 512, "early_stopping": True, "n_iter_no_change": 20},
        held_out=("X_val", "y_val"),
    ),
    "lightgbm": Tunable(
        "TabArena",
        {
            "learning_rate": _log(5e-3, 0.1),
            "feature_fraction": Float(0.4, 1.0),
            "bagging_fraction": Float(0.7, 1.0),
            "num_leaves": _log_int(2, 200),
            "min_data_in_leaf": _log_int(1, 64),
            "extra_trees": CategoricalDistribution([False, True]),
            "min_data_per_group": _log_int(2, 100),
            "cat_l2": _log(5e-3, 2.0),
            "cat_smooth": _log(1e-3, 100.0),
            "max_cat_to_onehot": _log_int(8, 100),
            "lambda_l1": Float(1e-4, 1.0),
            "lambda_l2": Float(1e-4, 2.0),
        },
        {"bagging_freq": 1, "n_estimators": MOST_TREES, "early_stopping_round": PATIENCE},
        held_out=("eval_X", "eval_y"),
    ),
    "xgboost": Tunable(
        "TabArena",
        {
            "learning_rate": _log(5e-3, 0.1),
            "max_depth": _log_int(4, 10),
            "min_child_weight": _log(1e-3, 5.0),
            "subsample": Float(0.6, 1.0),
            "colsample_bylevel": Float(0.6, 1.0),
            "colsample_bynode": Float(0.6, 1.0),
            "reg_alpha": Float(1e-4, 5.0),
            "reg_lambda": Float(1e-4, 5.0),
            "grow_policy": CategoricalDistribution(["depthwise", "lossguide"]),
            "max_cat_to_onehot": _log_int(8, 100),
            "max_leaves": _log_int(8, 1024),
        },
        {"n_estimators": MOST_TREES, "early_stopping_rounds": PATIENCE},
        held_out=("eval_set",),
        fit_params={"verbose": False},
    ),
    "catboost": Tunable(
        "TabArena",
        {
            "learning_rate": _log(5e-3, 0.1),
            "subsample": Float(0.7, 1.0),
            "grow_policy": CategoricalDistribution(["SymmetricTree", "Depthwise"]),
            "depth": Int(4, 8),
            "colsample_bylevel": Float(0.85, 1.0),
            "l2_leaf_reg": _log(1e-4, 5.0),
            "leaf_estimation_iterations": _log_int(1, 20),
            "one_hot_max_size": _log_int(8, 100),
            "model_size_reg": _log(0.1, 1.5),
            "max_ctr_complexity": Int(2, 5),
        },
        {
            **{"bootstrap_type": "Bernoulli", "boosting_type": "Plain", "max_bin": 254},
            **{"iterations": MOST_TREES, "early_stopping_rounds": PATIENCE},
        },
        held_out=("eval_set",),
    ),
    # Without TabArena's ensemble of eight, its wider embeddings and its longer trainings.
    "realmlp": Tunable(
        "TabArena",
        {
            "n_hidden_layers": Int(2, 4),
            "hidden_width": CategoricalDistribution([256, 384, 512]),
            "p_drop": Float(0.0, 0.5),
            "plr_sigma": _log(1e-2, 50.0),
            "sq_mom": Float(0.95, 0.995),
            "plr_lr_factor": _log(5e-2, 0.3),
            "scale_lr_factor": _log(2.0, 10.0),
            "first_layer_lr_factor": _log(0.3, 1.5),
            "ls_eps": _log(5e-3, 0.1),
            "lr": _log(2e-2, 0.3),
            "wd": _log(1e-3, 5e-2),
            "use_ls": CategoricalDistribution([False, True]),
            "max_one_hot_cat_size": _log_int(4, 33),
            "embedding_size": CategoricalDistribution([4, 8, 16]),
        },
        {"hidden_sizes": "rectangular", "ls_eps_sched": "coslog4", "p_drop_sched": "flat_cos"},
    ),
}
