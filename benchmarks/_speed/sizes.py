"""Sizes that are measured, and tables of such a size made by rule."""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

LR = 0.001
ROWS = (1_000, 10_000, 100_000)
FEATURES = (16, 200, 784)
CLASSES = (2, 26)
WIDTHS = (128, 512)
BATCHES = (32, 100, 1_000)
# Epochs of a fit at a size: several for a small table, as users train on it. A wide network, whose
# steps take ten times as long, has fewer: what a fit does once is little beside them.
EPOCHS = {1_000: 25, 10_000: 3, 100_000: 1}
EPOCHS_OF_WIDE = {1_000: 10, 10_000: 2, 100_000: 1}


class Size(NamedTuple):
    """A table and a network with two hidden layers of equal width.

    Examples
    --------
    >>> size = Size(rows=1000, features=4, classes=3, width=8, batch=300)
    >>> size.n_steps(epochs=2)
    8
    >>> size.layers()
    [(4, 8), (8, 8), (8, 3)]
    >>> Size.named(size.name) == size
    True
    """

    rows: int
    features: int
    classes: int
    width: int
    batch: int

    @property
    def name(self) -> str:
        """The five numbers in words, as the file of results has them."""
        return " ".join(f"{word}={number}" for word, number in self._asdict().items())

    @classmethod
    def named(cls, name: str) -> "Size":
        """The size that has this name."""
        return cls(**{word: int(number) for word, number in _words(name)})

    def n_steps(self, epochs: int) -> int:
        """Steps of training in so many epochs; the last batch of an epoch may be small."""
        return epochs * -(-self.rows // self.batch)

    def layers(self) -> list[tuple[int, int]]:
        """Width in and width out of each layer."""
        widths = (self.features, self.width, self.width, self.classes)
        return list(itertools.pairwise(widths))

    @property
    def n_weights(self) -> int:
        """Weights of the network, without biases."""
        return sum(n_in * n_out for n_in, n_out in self.layers())


def _words(name: str) -> Iterator[tuple[str, str]]:
    for part in name.split():
        word, _, number = part.partition("=")
        yield word, number


# The paper's network on a table of the shape of "letter", one of its data sets.
REFERENCE = Size(rows=16_000, features=16, classes=26, width=128, batch=100)


def all_sizes() -> list[Size]:
    """Every listed size, the cheap ones first."""
    numbers = itertools.product(ROWS, FEATURES, CLASSES, WIDTHS, BATCHES)
    return sorted((Size(*five) for five in numbers), key=seconds_of_fit)


def some_sizes() -> list[Size]:
    """A few of them: corners, for a quick look."""
    return [
        Size(1_000, 16, 2, 128, 32),
        Size(1_000, 784, 26, 128, 1_000),
        Size(10_000, 200, 26, 128, 100),
        Size(10_000, 16, 2, 512, 1_000),
        Size(10_000, 784, 26, 512, 32),
        Size(100_000, 16, 26, 128, 1_000),
    ]


def thread_sizes() -> list[Size]:
    """Networks from small to large, to compare numbers of threads; rows are chosen by time."""
    shapes = [(16, 128, 26), (16, 512, 26), (784, 512, 26), (784, 1_024, 10)]
    return [
        Size(rows=batch, features=features, classes=classes, width=width, batch=batch)
        for features, width, classes in shapes
        for batch in (100, 1_000)
    ]


def epochs_of(size: Size) -> int:
    """How many epochs a fit of this size is measured for."""
    return (EPOCHS_OF_WIDE if size.width > 128 else EPOCHS).get(size.rows, 1)


def seconds_of_step(size: Size) -> float:
    """About what a step of MixupE takes with one thread: to plan with, never to report.

    A step has a part of its own, one for each weight (the optimizer), and one for each row.
    """
    return 1e-4 + 4.5e-9 * size.n_weights + size.batch * (1.5e-6 + 5e-11 * size.n_weights)


def seconds_of_fit(size: Size) -> float:
    """About what a fit of MixupE takes at a size, with the epochs that it is measured for."""
    return size.n_steps(epochs_of(size)) * seconds_of_step(size)


def make_table(
    n_rows: int, n_features: int, n_classes: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of normal numbers, and the class that a linear map and some noise give the most to.

    The rows are written in place, and labelled in pieces: little memory beyond the result is used.

    Parameters
    ----------
    n_rows, n_features, n_classes : int
        The size of the table.
    seed : int, default=0
        Equal seeds give equal tables.

    Returns
    -------
    X : ndarray of shape (n_rows, n_features)
        In single precision.
    y : ndarray of shape (n_rows,)
        Whole numbers; each class is there.

    Examples
    --------
    >>> X, y = make_table(1000, 16, 26)
    >>> X.shape, X.dtype.name, len(np.unique(y))
    ((1000, 16), 'float32', 26)
    """
    rng = np.random.default_rng(seed)
    X = np.empty((n_rows, n_features), dtype=np.float32)
    rng.standard_normal(dtype=np.float32, out=X)
    map_to_classes = rng.standard_normal((n_features, n_classes), dtype=np.float32)
    y = np.empty(n_rows, dtype=np.int64)
    for start in range(0, n_rows, 10_000):
        part = slice(start, start + 10_000)
        scores = X[part] @ map_to_classes
        noise = rng.standard_normal(scores.shape, dtype=np.float32)
        y[part] = np.argmax(scores + 0.3 * n_features**0.5 * noise, axis=1)
    y[:n_classes] = np.arange(n_classes)  # chance may have left one out
    return X, y
