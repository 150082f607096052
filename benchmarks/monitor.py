"""What a DerivativeMonitor costs: ``python -m benchmarks.monitor [--quick]``.

The same training with and without the monitor takes turns in one process of one thread. What is
compared are the two times of the same round. Tables that come with scikit-learn, one of 16,000 rows
made by rule, and digits as pictures with a small convolutional network.
"""

import pathlib
import sys
from typing import Any, NamedTuple

import numpy as np

from benchmarks._signals.data import load_digits_as_pictures
from benchmarks._signals.networks import network_of
from benchmarks._speed.by_size import Command
from benchmarks._speed.page import table
from benchmarks._speed.store import Figures
from benchmarks._speed.timing import Run, median, ratio_of, take_turns, threads
from mixupe_sklearn import MixupEClassifier, MixupEImageClassifier, preset
from mixupe_sklearn.datasets import load_embedded
from mixupe_sklearn.diagnostics import DerivativeMonitor

BOUND = 1.05
RESULTS = pathlib.Path(__file__).parent / "results" / "monitor.json"
PAGE = pathlib.Path(__file__).parents[1] / "docs" / "diagnostics.md"


class Size(NamedTuple):
    """What is trained, for how many epochs, and how many rounds."""

    name: str
    epochs: int
    rounds: int


FULL = (
    *(Size("iris", 500, 15), Size("digits", 50, 15), Size("16,000 x 16", 8, 11)),
    Size("digits as pictures", 2, 7),
)
QUICK = (Size("iris", 5, 2),)


def rows_of(name: str) -> tuple[Any, np.ndarray]:
    """Rows and labels by the name of a size."""
    if name == "digits as pictures":
        pictures = load_digits_as_pictures()
        return pictures.X, pictures.y
    if name == "16,000 x 16":
        rng = np.random.default_rng(0)
        return rng.normal(size=(16_000, 16)), rng.integers(26, size=16_000)
    found = load_embedded(name)
    return found.X.to_numpy(dtype=float), found.y


def estimator_of(size: Size, callbacks: list[Any] | None) -> Any:
    """What is trained, with or without the monitor."""
    how = {"max_epochs": size.epochs, "callbacks": callbacks, "n_threads": 1, "random_state": 0}
    if size.name != "digits as pictures":
        return MixupEClassifier(**preset("paper") | how)
    network = network_of("small-preactresnet")
    of_network = {"module": network.module, "module_params": network.module_params}
    return MixupEImageClassifier(**of_network, **how, lr=0.05, batch_size=100)


def measure_size(size: Size) -> Figures:
    """Seconds of both in every round, and how many epochs were looked at."""
    X, y = rows_of(size.name)
    looks = 0

    def fit(callbacks: list[Any] | None) -> Run:
        def run() -> None:
            nonlocal looks
            fitted = estimator_of(size, callbacks).fit(X, y)
            if callbacks:
                looks = sum(not np.isnan(row["q_abs"]) for row in fitted.history_)

        return run

    runs = {"plain": fit(None), "watched": fit([DerivativeMonitor()])}
    with threads(1):
        take_turns(runs, 1)  # what is loaded on the way is not counted
        times = take_turns(runs, size.rounds)
    seconds = {name: [round(value, 5) for value in values] for name, values in times.items()}
    return {"name": size.name, "epochs": size.epochs, "looks": looks, "seconds": seconds}


def report(results: Figures) -> str:
    """The figures with their bound, in Markdown."""
    header = ["data", "epochs", "looked at", "rounds", "an epoch, ms", "ratio (quartiles)", ""]
    rows = []
    for part in results["parts"].values():
        plain, watched = part["seconds"]["plain"], part["seconds"]["watched"]
        ratio = ratio_of(watched, plain)
        epoch = f"{1000 * median(plain) / part['epochs']:.3g}"
        held = f"at most {BOUND:g}: {'held' if ratio.median <= BOUND else 'not held'}"
        counts = [str(part["epochs"]), str(part["looks"]), str(len(plain))]
        rows.append([part["name"], *counts, epoch, str(ratio), held])
    told = "A whole fit with the monitor over one without, one thread, in turns."
    return f"{told}\n\n{table(header, rows)}"


COMMAND = Command(
    name="monitor",
    told=(__doc__ or "").splitlines()[0],
    sizes=FULL,
    quick=QUICK,
    measure=measure_size,
    report=report,
    results=RESULTS,
    page=PAGE,
)
main = COMMAND.run

if __name__ == "__main__":
    sys.exit(main())
