"""Rows of the tabular benchmark with invented numbers."""

import json

import numpy as np
import pandas as pd

from benchmarks._tabular.protocol import TRAINING
from benchmarks._tabular.report.paper import DATA_IDS
from benchmarks._tabular.tuning import COLUMNS as TUNED_COLUMNS
from benchmarks._tabular.tuning import DEFAULTS, SCORES

PARAMS = json.dumps(TRAINING, sort_keys=True)
ALPHAS, ETAS = (0.1, 0.5, 1.0), (0.001, 0.1)
GRID = {
    "erm": [(None, None)],
    "mixup": [(alpha, None) for alpha in ALPHAS],
    "mixupe": [(alpha, eta) for alpha in ALPHAS for eta in ETAS],
}


def make_row(dataset="iris", method="erm", alpha=None, eta=None, split=0, **changes):
    """Return a row of one fit; its errors are 10 % by default."""
    row = {
        **{"source": "openml", "dataset": dataset, "task_id": 59},
        **{
            "data_id": DATA_IDS.get(dataset, 1),
            "data": f"{dataset}-fingerprint",
            "n_rows": 150,
            "n_features": 4,
            "n_classes": 3,
        },
        **{"splits": "holdout", "split": split, "seed": split, "method": method},
        **{"alpha": alpha, "eta": eta, "params": PARAMS, "grid": "reduced"},
        **{"valid_error": 10.0, "test_error": 10.0, "valid_log_loss": 0.3, "test_log_loss": 0.3},
        **{"test_balanced_accuracy": 0.9, "test_ece": 0.05, "fit_seconds": 0.5},
        **{"predict_seconds": 0.001, "n_together": 1, "train_losses": "1.1 0.8 0.6"},
        **{"test_losses": "1.2 0.9 0.8", "error": "", "versions": "python 3.11, torch 2.13"},
        **{"commit": "abc1234", "run": "2026-01-02T03:04:05+00:00"},
    }
    assert set(changes) <= set(row)
    return row | changes


def make_rows(datasets=("iris",), methods=("erm", "mixup", "mixupe"), n_splits=2, **changes):
    """Return all fits of a small grid, with reproducible errors."""
    rng = np.random.default_rng(0)
    rows = []
    for dataset in datasets:
        for method in methods:
            for alpha, eta in GRID.get(method, [(None, None)]):
                for split in range(n_splits):
                    valid, test = rng.uniform(5, 15, size=2).round(4)
                    own = {"valid_error": valid, "test_error": test} | changes
                    rows.append(make_row(dataset, method, alpha, eta, split, **own))
    return pd.DataFrame(rows)


def make_trials(rng, n_trials, names=("alpha", "eta", "lr")):
    """Return trials whose error depends on the first parameter alone; every fourth is pruned."""
    trials = []
    for number in range(n_trials):
        params = {name: float(f"{10 ** rng.uniform(-2, 0.5):.6g}") for name in names}
        error = round(10 + 5 * np.log10(params[names[0]]) ** 2, 4)
        is_pruned = number % 4 == 3
        scores = [None, None] if is_pruned else [float(error), 0.3]
        trials.append(["pruned" if is_pruned else "complete", *scores, 25, params])
    return trials


def make_tuned_rows(
    datasets=("iris",), methods=("mixupe-default", "lightgbm"), n_trials=24, n_splits=1, **changes
):
    """Return rows of studies: the best trial is chosen, the others are invented."""
    rng = np.random.default_rng(0)
    rows = []
    for dataset in datasets:
        for method in methods:
            for split in range(n_splits):
                names = ("alpha", "eta", "lr") if "mixupe" in method else ("learning_rate", "depth")
                trials = make_trials(rng, n_trials, names)
                best = min((one for one in trials if one[1] is not None), key=lambda one: one[1])
                row = {name: round(rng.uniform(5, 15), 4) for name in (*SCORES, *DEFAULTS)}
                kept = make_row(dataset, method, split=split)
                row |= {name: kept[name] for name in TUNED_COLUMNS if name in kept} | row
                row |= {"space": '"default"', "budget": f"{n_trials} trials"}
                row |= {"valid_error": best[1], "best": json.dumps(best[4])}
                row |= {"n_complete": n_trials - n_trials // 4, "n_pruned": n_trials // 4}
                row |= {"n_failed": 0, "search_seconds": 12.5, "trials": json.dumps(trials)}
                assert set(row) == set(TUNED_COLUMNS)
                rows.append(row | changes)
    return pd.DataFrame(rows)
