"""Tables that need no download: four of scikit-learn's, and one made by its rule."""

import itertools
from collections.abc import Callable

import numpy as np
import pandas as pd
from sklearn import datasets

from mixupe_sklearn.datasets._dataset import Table

_LOADERS: dict[str, Callable] = {
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
    "breast-cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
}

EMBEDDED = (*_LOADERS, "balance-scale")


def load_embedded(name: str) -> Table:
    """Load a table that needs no download.

    Parameters
    ----------
    name : {"iris", "wine", "breast-cancer", "digits", "balance-scale"}
        The first four come with scikit-learn. The last is made by its rule: all 625 ways to put
        a weight of 1 to 5 at a distance of 1 to 5 on either side of a balance, and the side that
        goes down, ``"L"`` or ``"R"``, or ``"B"`` where they balance.

    Returns
    -------
    table : Table
        Classes are text, and integers for the digits.

    Examples
    --------
    >>> from mixupe_sklearn.datasets.embedded import load_embedded
    >>> table = load_embedded("iris")
    >>> table.n_rows, table.n_classes, table.y[0]
    (150, 3, 'setosa')
    """
    if name not in EMBEDDED:
        raise ValueError(f"Got name={name!r}, but expected one of {', '.join(EMBEDDED)}.")
    X, y = _balance_scale() if name == "balance-scale" else _from_sklearn(name)
    return Table(name, X, y, "embedded")


def _from_sklearn(name: str) -> tuple[pd.DataFrame, np.ndarray]:
    # Not as_frame: the way it makes frames may change with pandas, and fingerprints with it.
    bunch = _LOADERS[name]()
    X = pd.DataFrame(bunch.data, columns=[str(name) for name in bunch.feature_names])
    if name == "digits":
        return X.astype(np.int64), bunch.target.astype(np.int64)
    return X, np.asarray(bunch.target_names, dtype=object)[bunch.target].astype(object)


def _balance_scale() -> tuple[pd.DataFrame, np.ndarray]:
    names = ["left_weight", "left_distance", "right_weight", "right_distance"]
    X = pd.DataFrame(itertools.product(range(1, 6), repeat=4), columns=names, dtype=np.int64)
    torque = X["left_weight"] * X["left_distance"] - X["right_weight"] * X["right_distance"]
    # A sign of -1 picks the last.
    return X, np.array(["B", "L", "R"], dtype=object)[np.sign(torque.to_numpy())]
