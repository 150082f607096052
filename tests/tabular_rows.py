"""Rows of the tabular benchmark with invented numbers."""

import json

import numpy as np
import pandas as pd

from benchmarks._tabular.protocol import TRAINING
from benchmarks._tabular.report.paper import DATA_IDS

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
