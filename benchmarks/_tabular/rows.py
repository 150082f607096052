"""The rows of the benchmark: one line per fit, with all that is needed to run it again."""

from benchmarks._harness import results_file
from benchmarks._harness.results_file import Key, ResultsFile, Schema
from benchmarks._harness.runner import open_fits as take_open

KEY = ("dataset", "data", "splits", "split", "seed", "method", "alpha", "eta", "params")
COLUMNS = (
    *("source", "dataset", "task_id", "data_id", "data", "n_rows", "n_features", "n_classes"),
    *("splits", "split", "seed", "method", "alpha", "eta", "params", "grid"),
    *("valid_error", "test_error", "valid_log_loss", "test_log_loss"),
    *("test_balanced_accuracy", "test_ece", "fit_seconds", "predict_seconds", "n_together"),
    *("train_losses", "test_losses", "error", "versions", "commit", "run"),
)
_TEXTS = ("source", "dataset", "data", "splits", "method", "params", "grid", "train_losses")
FITS = Schema(
    COLUMNS, frozenset((*_TEXTS, "test_losses", "error", "versions", "commit", "run")), KEY
)

# Kept until all callers have followed to benchmarks._harness.
Form = Schema
__all__ = ["Form", "Key", "take_open"]


def key_of(row, form=FITS):
    return form.key_of(row)


def as_line(row, form=FITS):
    return form.as_line(row)


def read_rows(path, form=FITS):
    return results_file.read_rows(path, form)


class RowsFile(ResultsFile):
    def __init__(self, path, form=FITS):
        super().__init__(path, form)
