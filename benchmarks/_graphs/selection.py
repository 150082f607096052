"""The epoch, alpha and eta that each protocol selects, and the resulting test errors."""

from typing import NamedTuple

import numpy as np
import pandas as pd

NUMBERS = ["alpha", "eta"]


class Selected(NamedTuple):
    """Test errors (%) of a method by fold, and the epoch, alpha and eta that were selected."""

    errors: np.ndarray
    epochs: list[int]
    numbers: list[tuple[float, float]]

    @property
    def mean(self) -> float:
        """Mean over the folds."""
        return float(self.errors.mean())

    @property
    def deviation(self) -> float:
        """Deviation over the folds; NaN for a single fold."""
        return float(self.errors.std(ddof=1)) if len(self.errors) > 1 else float("nan")


def _errors(rows: pd.DataFrame) -> np.ndarray:
    """Test errors (%), (n_folds, n_epochs)."""
    return 100 * np.array(rows["test_errors"].tolist()) / rows["n_test"].to_numpy()[:, None]


def select_on_test(rows: pd.DataFrame) -> Selected:
    """The protocol of Xu et al.: the epoch, alpha and eta with the lowest mean test error."""
    found = []
    for numbers, part in rows.groupby(NUMBERS, sort=True, dropna=False):
        errors = _errors(part)
        epoch = int(errors.mean(axis=0).argmin())  # the first of equal ones
        n_folds = len(errors)
        found.append(Selected(errors[:, epoch], [epoch + 1] * n_folds, [numbers] * n_folds))
    return min(found, key=lambda one: one.mean)


def select_on_valid(rows: pd.DataFrame) -> Selected:
    """The honest protocol: in each fold the lowest validation error, ties by validation loss."""
    errors, epochs, numbers = [], [], []
    for _, part in rows.groupby("fold", sort=True):
        n_wrong = np.array(part["valid_errors"].tolist())
        losses = np.array(part["valid_losses"].tolist())
        order = np.lexsort((losses.reshape(-1), n_wrong.reshape(-1)))
        fit, epoch = divmod(int(order[0]), n_wrong.shape[1])
        errors.append(_errors(part)[fit, epoch])
        epochs.append(epoch + 1)
        numbers.append(tuple(part[NUMBERS].iloc[fit]))
    return Selected(np.array(errors), epochs, numbers)


PROTOCOLS = {"xu": select_on_test, "honest": select_on_valid}


def complete_folds(rows: pd.DataFrame) -> pd.DataFrame:
    """The largest set of rows of one protocol in which all folds have the same fits."""
    fits = list(zip(*(rows[name].fillna(-1) for name in ("method", *NUMBERS)), strict=True))
    by_fold: dict[int, set[tuple]] = {fold: set() for fold in rows["fold"]}
    for fold, fit in zip(rows["fold"], fits, strict=True):
        by_fold[fold].add(fit)
    best: tuple[set, set] = (set(), set())
    for wanted in by_fold.values():
        folds = {fold for fold, have in by_fold.items() if wanted <= have}
        if len(folds) * len(wanted) > len(best[0]) * len(best[1]):
            best = (folds, wanted)
    is_kept = [
        fold in best[0] and fit in best[1] for fold, fit in zip(rows["fold"], fits, strict=True)
    ]
    return rows[is_kept]
