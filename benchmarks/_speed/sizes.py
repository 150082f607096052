"""Sizes that are measured, synthetic tables of such a size, and how much a run measures."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

LR = 0.001
ROWS = (1_000, 10_000, 100_000)
FEATURES = (16, 200, 784)
CLASSES = (2, 26)
WIDTHS = (128, 512)
BATCHES = (32, 100, 1_000)
# Epochs of a fit by number of rows; a wide network, whose steps take ten times as long, has fewer.
EPOCHS = {1_000: 25, 10_000: 3, 100_000: 1}
EPOCHS_OF_WIDE = {1_000: 10, 10_000: 2, 100_000: 1}


class Size(NamedTuple):
    """A table, and a network with two hidden layers of equal width."""

    rows: int
    features: int
    classes: int
    width: int
    batch: int

    @property
    def name(self) -> str:
        """The five numbers as the results file names them."""
        return " ".join(f"{word}={number}" for word, number in self._asdict().items())

    @classmethod
    def named(cls, name: str) -> "Size":
        """The size of this name."""
        pairs = (part.split("=") for part in name.split())
        return cls(**{word: int(number) for word, number in pairs})

    def n_steps(self, epochs: int) -> int:
        """Training steps in so many epochs; the last batch of an epoch may be small."""
        return epochs * -(-self.rows // self.batch)

    def layers(self) -> list[tuple[int, int]]:
        """Input and output width of each layer."""
        return list(itertools.pairwise((self.features, self.width, self.width, self.classes)))

    @property
    def n_weights(self) -> int:
        """Weights of the network, without biases."""
        return sum(n_in * n_out for n_in, n_out in self.layers())

    @property
    def network(self) -> str:
        """The network and its batch size in short."""
        return f"{self.features}-{self.width}-{self.width}-{self.classes}, batch {self.batch:,}"


# The paper's network on a table of the shape of "letter", one of its datasets.
REFERENCE = Size(rows=16_000, features=16, classes=26, width=128, batch=100)


def all_sizes() -> list[Size]:
    """All combinations, in order of estimated time."""
    sizes = itertools.starmap(Size, itertools.product(ROWS, FEATURES, CLASSES, WIDTHS, BATCHES))
    return sorted(sizes, key=lambda one: one.n_steps(epochs_of(one)) * seconds_of_step(one))


def thread_sizes() -> list[Size]:
    """Networks from small to large, to compare numbers of threads; time decides on the rows."""
    shapes = ((16, 128, 26), (16, 512, 26), (784, 512, 26), (784, 1_024, 10))
    pairs = itertools.product(shapes, (100, 1_000))
    return [Size(batch, n_in, n_out, width, batch) for (n_in, width, n_out), batch in pairs]


def epochs_of(size: Size) -> int:
    """Epochs of a measured fit of this size."""
    return (EPOCHS_OF_WIDE if size.width > 128 else EPOCHS).get(size.rows, 1)


def seconds_of_step(size: Size) -> float:
    """Estimated time of a step of MixupE with one thread, for planning only."""
    # A constant, the optimizer's work per weight, and the work per sample.
    return 1e-4 + 4.5e-9 * size.n_weights + size.batch * (1.5e-6 + 5e-11 * size.n_weights)


def make_table(
    n_rows: int, n_features: int, n_classes: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Normal features in single precision, and the class with the highest noisy linear score."""
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
    y[:n_classes] = np.arange(n_classes)  # a class may be missing by chance
    return X, y


@dataclass(frozen=True)
class Scale:
    """How much a run measures."""

    name: str
    # The size of the targets, epochs of a fit there, and rounds.
    reference: Size
    epochs: int
    n_rounds: int
    # Further sizes, and the most seconds that all rounds of one may take.
    cells: Sequence[Size]
    n_cell_rounds: int
    cell_seconds: float
    # Networks trained with one thread and with two, and seconds of a fit there.
    thread_sizes: Sequence[Size]
    thread_seconds: float
    # Rows to predict at once and one by one; rows and kinds of tables whose memory is measured.
    n_predicted: int
    n_single: int
    n_large: int
    kinds: Sequence[str]
    n_imports: int
    # The most rounds of a part (--part), and whether parts leave out their largest sizes.
    n_part_rounds: int = 99
    is_short: bool = False

    def few(self, n_rounds: int) -> int:
        """So many rounds of a part, or as few as this scale has."""
        return min(n_rounds, self.n_part_rounds)


FULL = Scale(
    name="full",
    reference=REFERENCE,
    epochs=10,
    n_rounds=9,
    cells=all_sizes(),
    n_cell_rounds=3,
    cell_seconds=10.0,
    thread_sizes=thread_sizes(),
    thread_seconds=0.4,
    n_predicted=100_000,
    n_single=300,
    n_large=1_000_000,
    kinds=("float32", "float64", "int8", "float32, mapped file", "sparse"),
    n_imports=7,
)
QUICK = replace(
    FULL,
    name="quick",
    epochs=3,
    n_rounds=3,
    cells=all_sizes()[:90:15],
    cell_seconds=4.0,
    thread_sizes=[thread_sizes()[0], thread_sizes()[-1]],
    n_single=100,
    n_large=100_000,
    kinds=("float32",),
    n_imports=3,
    n_part_rounds=3,
    is_short=True,
)
