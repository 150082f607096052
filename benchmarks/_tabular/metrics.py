"""How good predicted probabilities are: what one row of the results says of a fit."""

from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import log_loss, recall_score, zero_one_loss


def measure(y_true: Any, proba: Any, classes_of_model: Any, all_classes: Any) -> dict[str, float]:
    """Measure the probabilities that a model gives to rows whose classes are known.

    Parameters
    ----------
    y_true : array of shape (n_rows,)
        The class of each row.
    proba : array of shape (n_rows, n_classes_of_model)
        A probability per row and class of the model.
    classes_of_model : array of shape (n_classes_of_model,)
        What the columns of `proba` stand for.
    all_classes : array of shape (n_classes,)
        Every class of the data; those that the model has never seen get probability zero.

    Returns
    -------
    metrics : dict
        ``error`` in percent, ``log_loss`` (no probability counts as less than the precision of
        32-bit floats), ``balanced_accuracy`` (the mean recall of the classes that are in
        `y_true`), ``ece`` (:func:`expected_calibration_error`) and ``brier`` (the squared
        distance from the one-hot class, between 0 and 2).

    Examples
    --------
    >>> measure(["a", "b"], [[1.0, 0.0], [1.0, 0.0]], ["a", "b"], ["a", "b"])["error"]
    50.0
    """
    n_classes = len(all_classes)
    known = _positions(classes_of_model, all_classes, "classes_of_model")
    y = _positions(y_true, all_classes, "y_true")
    given = _checked(proba, shape=(len(y), len(known)))
    spread = np.zeros((len(y), n_classes))
    spread[:, known] = given
    predicted = known[given.argmax(axis=1)]
    return {
        "error": 100.0 * float(zero_one_loss(y, predicted, normalize=False)) / len(y),
        # In 32 bits, where scikit-learn clips at 1.2e-7: a single sure mistake costs 16, not 36.
        "log_loss": float(log_loss(y, spread.astype(np.float32), labels=range(n_classes))),
        # Balanced accuracy is this too, but warns of predicted classes that no row has.
        "balanced_accuracy": float(
            recall_score(y, predicted, labels=np.unique(y), average="macro")
        ),
        "ece": expected_calibration_error(y, spread),
        "brier": float(((spread - np.eye(n_classes)[y]) ** 2).sum(axis=1).mean()),
    }


def expected_calibration_error(y: Any, proba: Any, n_bins: int = 15) -> float:
    r"""How far confidence is from accuracy, over bins of confidence of equal width.

    Parameters
    ----------
    y : array of shape (n_rows,)
        The class of each row, as a column of `proba`.
    proba : array of shape (n_rows, n_classes)
        A probability per row and class.
    n_bins : int, default=15
        How many bins there are between 0 and 1.

    Returns
    -------
    error : float
        Between 0, where confidence and accuracy agree, and 1.

    Notes
    -----
    .. math:: \sum_{b=1}^{B} \frac{|S_b|}{n} \, |\mathrm{acc}(S_b) - \mathrm{conf}(S_b)|

    :math:`S_b` are the rows whose largest probability is above :math:`(b-1)/B` and at most
    :math:`b/B`, :math:`\mathrm{acc}` is the share of them that this probability's class is
    right for, :math:`\mathrm{conf}` its mean, :math:`n` the number of rows, and :math:`B` is
    `n_bins`. Scikit-learn (1.9) has no such function.

    Examples
    --------
    >>> expected_calibration_error([0, 1], [[0.75, 0.25], [0.75, 0.25]])
    0.25
    """
    proba = np.asarray(proba, dtype=np.float64)
    confidence = proba.max(axis=1)
    excess = (proba.argmax(axis=1) == np.asarray(y)) - confidence
    bins = np.clip(np.ceil(confidence * n_bins).astype(int) - 1, 0, n_bins - 1)
    # Counts cancel: |S_b| times the difference of two means is the difference of two sums.
    return float(np.abs(np.bincount(bins, weights=excess)).sum() / len(excess))


def _positions(values: Any, all_classes: Any, name: str) -> np.ndarray:
    """Where in all_classes each value is."""
    positions = pd.Index(np.asarray(all_classes, dtype=object)).get_indexer(
        np.asarray(values, dtype=object)
    )
    if (positions < 0).any():
        unknown = np.asarray(values, dtype=object)[positions < 0][0]
        raise ValueError(
            f"Got {unknown!r} in {name}, but expected one of all_classes={list(all_classes)}."
        )
    return positions


def _checked(proba: Any, shape: tuple[int, int]) -> np.ndarray:
    proba = np.asarray(proba, dtype=np.float64)
    if proba.shape != shape:
        raise ValueError(
            f"Got proba of shape {proba.shape}, but expected {shape}, a column per class of the "
            f"model."
        )
    if not np.isfinite(proba).all():
        raise ValueError("Got NaN or infinity in proba, but expected probabilities.")
    return proba
