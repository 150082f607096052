"""Held-out samples: validation folds of an ensemble, and the split of a single network."""

import functools
from dataclasses import dataclass

import numpy as np
from sklearn.model_selection import train_test_split

from mixupe_sklearn._data.rows import Rows


@dataclass(frozen=True, eq=False)
class ValidationFolds:
    """Validation samples of an ensemble: ``index[i]`` numbers those of member ``i`` in ``rows``."""

    rows: Rows
    index: list[np.ndarray]


def stratified_folds(
    strata: np.ndarray | None, n_samples: int, n_folds: int, seed: int
) -> list[np.ndarray]:
    """Sample numbers in folds of one size, with each class spread evenly over the folds.

    Samples that would make a fold larger than the others belong to none.

    Examples
    --------
    >>> import numpy as np
    >>> classes = np.array([0, 0, 1, 1, 0, 0, 1])
    >>> folds = stratified_folds(classes, 7, n_folds=3, seed=0)
    >>> [sorted(classes[fold].tolist()) for fold in folds]
    [[0, 0], [0, 1], [0, 1]]
    """
    order = np.random.default_rng(seed).permutation(n_samples)
    if strata is not None:
        order = order[np.argsort(strata[order], kind="stable")]
    return [np.sort(order[fold::n_folds][: n_samples // n_folds]) for fold in range(n_folds)]


def hold_out_folds(
    n_samples: int, strata: np.ndarray | None, n_folds: int, fraction: float, seed: int
) -> list[np.ndarray]:
    """Sample numbers to hold out in each fold; folds differ as long as there are enough samples.

    Parameters
    ----------
    n_samples : int
        Number of samples.
    strata : array of shape (n_samples,) or None
        Classes to spread evenly.
    n_folds : int
        Number of folds.
    fraction : float
        Fraction of the samples in each fold; less where different folds need it.
    seed : int
        Seed of the choice.
    """
    # At least two parts: a single one would hold out all samples.
    n_parts = min(n_samples, max(2, n_folds, round(min(n_samples, 1 / fraction))))
    parts = stratified_folds(strata, n_samples, n_parts, seed)
    return [parts[fold % n_parts] for fold in range(n_folds)]


def split_rows(rows: Rows, strata: np.ndarray | None, fraction: float, seed: int) -> list[Rows]:
    """Split samples into a training and a validation part, stratified where possible."""
    size = min(rows.n_rows - 1, max(1, round(fraction * rows.n_rows)))
    split = functools.partial(
        train_test_split, np.arange(rows.n_rows), test_size=size, random_state=seed
    )
    try:
        parts = split(stratify=strata)
    except ValueError:  # a class of one sample, or more classes than validation samples
        parts = split()
    return rows.parts(*(np.sort(part) for part in parts))
