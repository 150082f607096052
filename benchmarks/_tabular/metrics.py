"""Metrics of predicted probabilities."""

from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import log_loss, recall_score, zero_one_loss


def measure(y_true: Any, proba: Any, classes_of_model: Any, all_classes: Any) -> dict[str, float]:
    """Measure predicted probabilities against the true classes.

    ``classes_of_model`` are those of the columns; other classes of ``all_classes`` get probability
    zero. Returns ``error`` in percent, ``log_loss``, ``balanced_accuracy``, ``ece`` and ``brier``,
    the squared distance from the one-hot class.
    """
    n_classes = len(all_classes)
    columns = _positions(classes_of_model, all_classes, "classes_of_model")
    y = _positions(y_true, all_classes, "y_true")
    if np.shape(proba) != (len(y), len(columns)):
        raise ValueError(
            f"Got proba of shape {np.shape(proba)}, but expected {(len(y), len(columns))}, a "
            f"column per class of the model."
        )
    full = np.zeros((len(y), n_classes))
    full[:, columns] = proba
    predicted = columns[np.argmax(proba, axis=1)]
    return {
        "error": 100.0 * float(zero_one_loss(y, predicted, normalize=False)) / len(y),
        # In 32 bits scikit-learn clips at 1.2e-7: a single sure mistake costs 16, not 36.
        "log_loss": float(log_loss(y, full.astype(np.float32), labels=range(n_classes))),
        # As balanced_accuracy_score, which warns of predicted classes that no sample has.
        "balanced_accuracy": float(
            recall_score(y, predicted, labels=np.unique(y), average="macro")
        ),
        "ece": expected_calibration_error(y, full),
        "brier": float(((full - np.eye(n_classes)[y]) ** 2).sum(axis=1).mean()),
    }


def expected_calibration_error(y: Any, proba: Any, n_bins: int = 15) -> float:
    """Return the mean distance of confidence from accuracy, over bins of equal width."""
    proba = np.asarray(proba, dtype=np.float64)
    confidence = proba.max(axis=1)
    excess = (proba.argmax(axis=1) == np.asarray(y)) - confidence
    bins = np.clip(np.ceil(confidence * n_bins).astype(int) - 1, 0, n_bins - 1)
    # Counts cancel: |S_b| times the difference of two means is the difference of two sums.
    return float(np.abs(np.bincount(bins, weights=excess)).sum() / len(excess))


def log_loss_of(proba: np.ndarray, y: np.ndarray, classes: np.ndarray) -> float:
    """Return the log loss as ``measure`` does, but faster; a class may be unknown."""
    own = (proba * (y[:, None] == classes)).sum(axis=1)
    return float(-np.log(np.clip(own, np.finfo(np.float32).eps, 1.0)).mean())


def _positions(values: Any, all_classes: Any, name: str) -> np.ndarray:
    values = np.asarray(values, dtype=object)
    positions = pd.Index(np.asarray(all_classes, dtype=object)).get_indexer(values)
    if (positions < 0).any():
        raise ValueError(
            f"Got {values[positions < 0][0]!r} in {name}, but expected one of "
            f"all_classes={list(all_classes)}."
        )
    return positions
