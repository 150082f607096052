"""Which epoch, alpha and eta each protocol takes, and the test errors that follow."""

from typing import NamedTuple

import numpy as np
import pandas as pd

NUMBERS = ["alpha", "eta"]


class Chosen(NamedTuple):
    """Test errors (%) of a method, one a fold, and what they were chosen at.

    ``epochs`` and ``numbers`` hold one entry a fold; Xu's protocol has the same in all of them.
    """

    errors: np.ndarray
    epochs: list[int]
    numbers: list[tuple[float, float]]

    @property
    def mean(self) -> float:
        """Over the folds."""
        return float(self.errors.mean())

    @property
    def deviation(self) -> float:
        """Over the folds; none of a single one."""
        return float(self.errors.std(ddof=1)) if len(self.errors) > 1 else float("nan")


def _errors(rows: pd.DataFrame) -> np.ndarray:
    """Test errors (%), (n_folds, n_epochs)."""
    return 100 * np.array(rows["test_errors"].tolist()) / rows["n_test"].to_numpy()[:, None]


def choose_on_test(rows: pd.DataFrame) -> Chosen:
    """The setting of Xu et al.: the epoch, and the numbers, with the lowest mean error over folds.

    It is the test folds' error, so it flatters: the more so, the more epochs and numbers there are.
    """
    found = []
    for numbers, part in rows.groupby(NUMBERS, sort=True, dropna=False):
        errors = _errors(part)
        epoch = int(errors.mean(axis=0).argmin())  # the first of equal ones
        n_folds = len(errors)
        found.append(Chosen(errors[:, epoch], [epoch + 1] * n_folds, [numbers] * n_folds))
    return min(found, key=lambda one: one.mean)


def choose_on_valid(rows: pd.DataFrame) -> Chosen:
    """The honest protocol: in each fold, what does best on its validation graphs.

    By their errors; of equal ones, by their loss.
    """
    errors, epochs, numbers = [], [], []
    for _, part in rows.groupby("fold", sort=True):
        n_wrong = np.array(part["valid_errors"].tolist())
        losses = np.array(part["valid_losses"].tolist())
        order = np.lexsort((losses.reshape(-1), n_wrong.reshape(-1)))
        fit, epoch = divmod(int(order[0]), n_wrong.shape[1])
        errors.append(_errors(part)[fit, epoch])
        epochs.append(epoch + 1)
        numbers.append(tuple(part[NUMBERS].iloc[fit]))
    return Chosen(np.array(errors), epochs, numbers)


PROTOCOLS = {"xu": choose_on_test, "honest": choose_on_valid}


def whole_folds(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of one protocol in folds that have the same fits, as many rows as can be had so.

    Where a fold is not done, or some values were tried in some folds only, means over folds would
    compare different folds.
    """
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
