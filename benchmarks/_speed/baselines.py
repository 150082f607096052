"""The candidates, functions that train for some epochs; floors are the matrix products alone."""

import logging
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from skorch import NeuralNetClassifier
from skorch.dataset import unpack_data
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from benchmarks._harness.paired_timing import Run
from benchmarks._speed.sizes import LR, Size, make_table
from mixupe_sklearn import MixupEClassifier, preset
from mixupe_sklearn.modules import MLP

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
FLOOR_OF = {"erm": "floor", "mixup": "floor", "quarter": "floor-quarter", "mixupe": "floor-twice"}
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
# A floor runs for about a tenth of a second, which is enough for a stable figure.
FLOOR_STEPS, FLOOR_WORK = 1_000, 2_000_000_000
NEEDED = {"realmlp": "pytabkit"}  # libraries beyond those of the other candidates

PAPER_PAIR = {name: preset("paper")[name] for name in ("alpha", "eta")}
Pair = tuple[Tensor, Tensor]


def is_installed(name: str) -> bool:
    """Whether a candidate can run here."""
    return name not in NEEDED or find_spec(NEEDED[name]) is not None


def our_classifier(size: Size, epochs: int, **params: Any) -> MixupEClassifier:
    """Our estimator at a size: one network, otherwise with the paper's settings."""
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
    """The network of scikit-learn with the same shape and training, never stopped early."""
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


class Product(NamedTuple):
    """A matrix product ``left @ right`` that is written to ``out``."""

    left: Tensor
    right: Tensor
    out: Tensor


def products_of(size: Size, n_rows: int, n_first: int | None = None) -> list[Product]:
    """The products of a step; the first layer of MixupE could run on the clean samples alone."""
    forward, backward = [], []
    for place, (n_in, n_out) in enumerate(size.layers()):
        n_here = n_first if place == 0 and n_first is not None else n_rows
        weight = torch.randn(n_out, n_in) / n_in**0.5
        rows, grads = torch.randn(n_here, n_in), torch.randn(n_here, n_out)
        forward.append(Product(rows, weight.T, torch.empty(n_here, n_out)))
        pair = [Product(grads.T, rows, torch.empty(n_out, n_in))]
        if place:
            pair.append(Product(grads, weight, torch.empty(n_here, n_in)))
        backward.append(pair)
    return forward + [product for pair in reversed(backward) for product in pair]


def floors_of(size: Size) -> dict[str, list[Product]]:
    """The products of each kind of step, by name."""
    n_rows = size.batch
    return {
        "floor": products_of(size, n_rows),
        "floor-quarter": products_of(size, n_rows + max(1, n_rows // 4)),
        "floor-shared": products_of(size, 2 * n_rows, n_first=n_rows),
        "floor-twice": products_of(size, 2 * n_rows),
    }


def run_products(products: list[Product], n_steps: int) -> None:
    """Run the products so many times."""
    multiply = torch.mm
    with torch.no_grad():
        for _ in range(n_steps):
            for left, right, out in products:
                multiply(left, right, out=out)


def listing_loss(
    module: Callable[[Tensor], Tensor],
    clean: Pair,
    others: Pair,
    lam: float,
    alpha: float,
    eta: float | None,
) -> tuple[Tensor, Tensor]:
    """Loss by the listing of the paper's appendix, and mixed logits; without ``eta`` of Mixup."""
    X, y = (lam * one + (1.0 - lam) * other for one, other in zip(clean, others, strict=True))
    mixed = module(X)
    mixup_loss = cross_entropy(mixed, y)
    if eta is None:
        return mixup_loss, mixed
    logits = module(clean[0])
    q = ((clean[1] - torch.softmax(logits, dim=1)) * logits).sum(dim=1)
    share = 1.0 - (alpha + 1) / (2 * alpha + 1)
    total = mixup_loss + eta * share * q.abs().sum() / len(logits)
    return total * (mixup_loss.detach().abs() / total.detach().abs()), mixed


def train_listing(
    module: nn.Module, X: Tensor, y: Tensor, size: Size, epochs: int, *, alpha: float, eta: float
) -> None:
    """Train with the listing in a bare loop; partners permute the batch, as in Algorithm 1."""
    optimizer = torch.optim.Adam(module.parameters(), lr=LR)
    targets = one_hot(y).float()
    for _ in range(epochs):
        for rows in torch.randperm(len(X)).split(size.batch):
            clean = X[rows], targets[rows]
            partner = torch.randperm(len(rows))
            others = clean[0][partner], clean[1][partner]
            lam = np.random.beta(alpha, alpha)
            loss, _ = listing_loss(module, clean, others, lam, alpha, eta)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


class _Zipped(list):
    """Loaders whose batches come at a time, from the start in each epoch."""

    def __iter__(self):
        return zip(*super().__iter__(), strict=True)


class ListingNet(NeuralNetClassifier):
    """A skorch net that trains by the paper's listing; with one loader it permutes the batch."""

    def __init__(self, *args, method="mixupe", alpha=0.2, eta=0.01, seed=0, n_loaders=2, **kwargs):
        super().__init__(*args, **kwargs)
        self.method = method
        self.alpha = alpha
        self.eta = eta
        self.seed = seed
        self.n_loaders = n_loaders

    def get_iterator(self, dataset, training=False):
        """Iterate over two loaders at once, each in its own order."""
        if not training or self.method == "erm" or self.n_loaders == 1:
            return super().get_iterator(dataset, training)
        return _Zipped([super(ListingNet, self).get_iterator(dataset, True) for _ in range(2)])

    def fit(self, X, y, **params):
        """Fit with the given seed."""
        torch.manual_seed(self.seed)
        np.random.seed(self.seed % 2**32)
        return super().fit(X, y, **params)

    def train_step_single(self, batch, **params):
        """Mix, add the penalty, scale: as the paper prints it."""
        if self.method == "erm":
            return super().train_step_single(batch, **params)
        self._set_training(True)
        lam = np.random.beta(self.alpha, self.alpha)
        eta = self.eta if self.method == "mixupe" else None
        loss, y_pred = listing_loss(self.infer, *self._pairs(batch), lam, self.alpha, eta)
        loss.backward()
        return {"loss": loss, "y_pred": y_pred}

    def _pairs(self, batch: Any) -> tuple[Pair, Pair]:
        if self.n_loaders == 2:
            first, second = ((X, self._targets(labels)) for X, labels in batch)
            return first, second
        X, labels = unpack_data(batch)
        y = self._targets(labels)
        partner = torch.randperm(len(X))
        return (X, y), (X[partner], y[partner])

    def _targets(self, labels: Tensor) -> Tensor:
        return one_hot(labels, self.module__n_outputs).float()


def listing_net(n_features: int, n_outputs: int, max_epochs: int, **params: Any) -> ListingNet:
    """The paper's network and training, with skorch's own loader."""
    return ListingNet(
        MLP,
        module__n_features=n_features,
        module__n_outputs=n_outputs,
        criterion=nn.CrossEntropyLoss,
        optimizer=torch.optim.Adam,
        max_epochs=max_epochs,
        iterator_train__shuffle=True,
        train_split=None,
        verbose=0,
        **{"lr": LR, "batch_size": 100} | params,
    )


class Candidates:
    """All candidates on one table; ``n_threads=None`` is our estimator's own choice."""

    def __init__(self, size: Size, epochs: int, n_threads: int | None = 1):
        self.size = size
        self.epochs = epochs
        self.n_threads = n_threads
        self.X, self.y = make_table(size.rows, size.features, size.classes)
        self.n_floor_steps = max(10, min(FLOOR_STEPS, FLOOR_WORK // (size.batch * size.n_weights)))

    def runs(self, names: Sequence[str]) -> dict[str, Run]:
        """A function for each name, which trains once, from new weights."""
        return {name: self._run(name) for name in names}

    def n_steps(self, name: str) -> int:
        """Steps in a run of a candidate."""
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
            # The number of epochs is fixed on purpose.
            warnings.simplefilter("ignore", ConvergenceWarning)
            scikit_learn_classifier(self.size, self.epochs).fit(X, self.y)

    def _fit_skorch(self, X: np.ndarray, **params: Any) -> None:
        size = self.size
        listing_net(
            size.features,
            size.classes,
            self.epochs,
            module__d_hidden=(size.width, size.width),
            batch_size=size.batch,
            **PAPER_PAIR,
            **params,
        ).fit(X, self.y)

    def _fit_torch(self, X: np.ndarray) -> None:
        size = self.size
        torch.manual_seed(0)
        module = MLP(size.features, size.classes, d_hidden=(size.width, size.width))
        tensors = torch.from_numpy(X), torch.from_numpy(self.y)
        train_listing(module, *tensors, size, self.epochs, **PAPER_PAIR)

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
