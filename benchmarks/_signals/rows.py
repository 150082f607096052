"""The rows of the benchmarks for images and speech: one line a fit."""

from benchmarks._signals.deforming import COLUMNS as DEFORMED
from benchmarks._tabular.rows import Form

KEY = (
    *("dataset", "data", "seed", "network", "method"),
    *("alpha", "eta", "penalty_fraction", "params"),
)
METRICS = ("test_error", "test_log_loss", "test_ece")
_TEXTS = ("dataset", "data", "network", "method", "params", "error", "versions", "commit", "run")
SIGNALS = Form(
    (
        *KEY,
        *("n_train", "n_test", "n_classes", "n_parameters"),
        *METRICS,
        *DEFORMED,
        *("seconds_per_epoch", "fit_seconds", "error", "versions", "commit", "run"),
    ),
    frozenset(_TEXTS),
    KEY,
)
