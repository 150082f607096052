"""Who is compared: each candidate is a function that trains for some epochs."""

import logging
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from benchmarks._speed.floor import floors_of, run_products
from benchmarks._speed.listing import train_listing
from benchmarks._speed.sizes import LR, Size, make_table
from benchmarks._speed.timing import Run
from benchmarks.search_speed import Problem, listing_net
from mixupe_sklearn import MixupEClassifier, preset
from mixupe_sklearn.modules import MLP

# In the order of the table and of the plot.
LABELS = {
    "erm": "MixupEClassifier, method=erm",
    "mixup": "MixupEClassifier, method=mixup",
    "quarter": "MixupEClassifier, penalty_fraction=0.25",
    "mixupe": "MixupEClassifier (MixupE)",
    "mixupe-double": "MixupEClassifier, float64 rows",
    "directional": "MixupEClassifier, penalty=directional",
    "mlp": "MLPClassifier (ERM)",
    "mlp-double": "MLPClassifier (ERM), float64 rows",
    "skorch": "plain skorch net (ERM)",
    "listing-torch": "paper's listing, bare torch loop",
    "listing": "paper's listing, skorch net",
    "listing-loaders": "paper's listing, skorch net, two loaders",
    "realmlp": "RealMLP, same shape (ERM)",
    "floor": "floor: matrix products, batch",
    "floor-quarter": "floor: matrix products, 1.25 x batch",
    "floor-shared": "floor: 2 x batch, first layer 1 x",
    "floor-twice": "floor: matrix products, 2 x batch",
}
# The least arithmetic of each of our methods.
FLOOR_OF = {
    "erm": "floor",
    "mixup": "floor",
    "quarter": "floor-quarter",
    "mixupe": "floor-twice",
}
OURS: dict[str, dict[str, Any]] = {
    "erm": {"method": "erm"},
    "mixup": {"method": "mixup"},
    "quarter": {"penalty_fraction": 0.25},
    "mixupe": {},
    "mixupe-double": {},
    "directional": {"penalty": "directional"},
}
IN_EVERY_CELL = ("erm", "mixup", "quarter", "mixupe", "mlp")
FLOORS = ("floor", "floor-quarter", "floor-shared", "floor-twice")
FLOORS_IN_EVERY_CELL = ("floor", "floor-twice")
# A floor runs for a tenth of a second or so, which is enough for a stable figure.
FLOOR_STEPS, FLOOR_WORK = 1_000, 2_000_000_000
# Libraries beyond those of the other candidates.
NEEDED = {"realmlp": "pytabkit"}


def is_installed(name: str) -> bool:
    """Whether a candidate can run here."""
    return name not in NEEDED or find_spec(NEEDED[name]) is not None


def our_classifier(size: Size, epochs: int, **params: Any) -> MixupEClassifier:
    """Our estimator at a size: one network, with the paper's settings for all else."""
    given = {
        "module_params": {"d_hidden": (size.width, size.width)},
        "lr": LR,
        "batch_size": size.batch,
        "max_epochs": epochs,
        "device": "cpu",
        "random_state": 0,
    }
    return MixupEClassifier(**(preset("paper") | given | params))


def scikit_learn_classifier(size: Size, epochs: int) -> MLPClassifier:
    """scikit-learn's network of the same shape, trained alike and never stopped early."""
    return MLPClassifier(
        (size.width, size.width),
        solver="adam",
        alpha=0.0,
        batch_size=size.batch,
        learning_rate_init=LR,
        max_iter=epochs,
        tol=0.0,
        n_iter_no_change=epochs + 1,
        random_state=0,
    )


class Candidates:
    """All candidates on one table.

    Parameters
    ----------
    size : Size
        The table and the network.
    epochs : int
        Epochs of a fit.
    n_threads : int or None, default=1
        Threads of our own fits; None is the estimator's choice.
    """

    def __init__(self, size: Size, epochs: int, n_threads: int | None = 1):
        self.size = size
        self.epochs = epochs
        self.n_threads = n_threads
        self.X, self.y = make_table(size.rows, size.features, size.classes)
        self.n_floor_steps = max(10, min(FLOOR_STEPS, FLOOR_WORK // (size.batch * size.n_weights)))

    def runs(self, names: Sequence[str]) -> dict[str, Run]:
        """A function for each name: it trains once, from new weights."""
        return {name: self._run(name) for name in names}

    def n_steps(self, name: str) -> int:
        """Steps that a run of a candidate takes."""
        return self.n_floor_steps if name in FLOORS else self.size.n_steps(self.epochs)

    def _run(self, name: str) -> Run:
        if name in FLOORS:
            products = floors_of(self.size)[name]
            return lambda: run_products(products, self.n_floor_steps)
        X = self.X.astype(np.float64) if name.endswith("-double") else self.X
        if name in OURS:
            params = OURS[name] | {"n_threads": self.n_threads}
            return lambda: our_classifier(self.size, self.epochs, **params).fit(X, self.y)
        others: dict[str, Callable[[np.ndarray], None]] = {
            "mlp": self._fit_scikit_learn,
            "mlp-double": self._fit_scikit_learn,
            "skorch": lambda X: self._fit_skorch(X, method="erm"),
            "listing": lambda X: self._fit_skorch(X, method="mixupe", n_loaders=1),
            "listing-loaders": lambda X: self._fit_skorch(X, method="mixupe", n_loaders=2),
            "listing-torch": self._fit_torch,
            "realmlp": self._fit_realmlp,
        }
        return lambda: others[name](X)

    def _fit_scikit_learn(self, X: np.ndarray) -> None:
        with warnings.catch_warnings():
            # So many epochs and no more, on purpose.
            warnings.simplefilter("ignore", ConvergenceWarning)
            scikit_learn_classifier(self.size, self.epochs).fit(X, self.y)

    def _fit_skorch(self, X: np.ndarray, **params: Any) -> None:
        # All rows are for training: the net has no split.
        problem = Problem(X, self.y, (self.y, self.y), self.epochs, n_seeds=1, n_jobs=1)
        net = listing_net(problem).set_params(
            module__d_hidden=(self.size.width, self.size.width),
            batch_size=self.size.batch,
            lr=LR,
            alpha=preset("paper")["alpha"],
            eta=preset("paper")["eta"],
            **params,
        )
        net.fit(X, self.y)

    def _fit_torch(self, X: np.ndarray) -> None:
        torch.manual_seed(0)
        train_listing(
            MLP(self.size.features, self.size.classes, d_hidden=(self.size.width, self.size.width)),
            torch.from_numpy(X),
            torch.from_numpy(self.y),
            batch=self.size.batch,
            epochs=self.epochs,
            lr=LR,
            alpha=preset("paper")["alpha"],
            eta=preset("paper")["eta"],
        )

    def _fit_realmlp(self, X: np.ndarray) -> None:
        # It reports each fit through Lightning's logger.
        logging.getLogger("pytorch_lightning.utilities.rank_zero").setLevel(logging.ERROR)
        import_module("pytabkit").RealMLP_TD_Classifier(
            hidden_sizes=[self.size.width, self.size.width],
            batch_size=self.size.batch,
            n_epochs=self.epochs,
            val_fraction=0.0,
            n_cv=1,
            device="cpu",
            n_threads=1,
            verbosity=0,
            random_state=0,
        ).fit(X, self.y)
