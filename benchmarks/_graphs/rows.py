"""The rows of the benchmark for graphs: one line a fit, with its curves over the epochs."""

import pandas as pd

from benchmarks._tabular.rows import Form

TITLES = {"erm": "ERM", "mixup": "Mixup", "mixupe": "MixupE"}
METHODS = tuple(TITLES)
# Wide enough for a table in one piece.
WIDTH = 140
KEY = ("dataset", "data", "protocol", "fold", "method", "alpha", "eta", "params")
CURVES = ("valid_errors", "valid_losses", "test_errors")
_TEXTS = ("dataset", "data", "protocol", "method", "params", *CURVES)
GRAPHS = Form(
    (
        *KEY,
        *("n_train", "n_valid", "n_test", "n_classes", "n_parameters"),
        *CURVES,
        *("seconds_per_epoch", "fit_seconds", "error", "versions", "commit", "run"),
    ),
    frozenset((*_TEXTS, "error", "versions", "commit", "run")),
    KEY,
)


def as_text(values: list[int] | list[float]) -> str:
    """A curve in a cell: a number for each epoch.

    Examples
    --------
    >>> as_text([3, 2]), as_text([0.51234567, 10.0])
    ('3 2', '0.5123 10')
    """
    return " ".join(f"{value:.4g}" for value in values)


def as_curve(text: str) -> list[float]:
    """A curve as it was, up to its digits.

    Examples
    --------
    >>> as_curve("3 2")
    [3.0, 2.0]
    """
    return [float(word) for word in text.split()]


def with_curves(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows whose curves are lists of numbers."""
    return rows.assign(**{name: rows[name].map(as_curve) for name in CURVES})
