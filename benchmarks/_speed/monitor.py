"""What a DerivativeMonitor costs.

The same training with and without the monitor runs in turns in one process with one thread. A
ratio compares the two times of one round. Data are bundled datasets, a synthetic table of 16,000
rows, and digits as images with a small convolutional network.
"""

import pathlib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks._harness.labels import present_label
from benchmarks._harness.paired_timing import Run, at_most, median, ratio_of, time_in_turns
from benchmarks._harness.report_tables import plain_markdown
from benchmarks._harness.results_file import Results
from benchmarks._vision_speech.data import load_digit_images
from benchmarks._vision_speech.networks import network_of
from mixupe_sklearn import MixupEClassifier, MixupEImageClassifier, preset
from mixupe_sklearn.datasets import load_embedded
from mixupe_sklearn.diagnostics import DerivativeMonitor

BOUND = 1.05
ROOT = pathlib.Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "monitor.json"
PAGE = ROOT / "docs" / "user_guide" / "diagnostics.md"
BLOCK_NAME = "monitor"
IMAGES, SYNTHETIC = "digits as images", "16,000 x 16"


class Size(NamedTuple):
    """What is trained, for how many epochs, and how many rounds."""

    name: str
    epochs: int
    rounds: int


FULL = (
    *(Size("iris", 500, 15), Size("digits", 50, 15), Size(SYNTHETIC, 8, 11)),
    Size(IMAGES, 2, 7),
)
QUICK = (Size("iris", 5, 2),)


def samples_of(name: str) -> tuple[Any, np.ndarray]:
    """Samples and labels by the name of a size."""
    if name == IMAGES:
        images = load_digit_images()
        return images.X, images.y
    if name == SYNTHETIC:
        rng = np.random.default_rng(0)
        return rng.normal(size=(16_000, 16)), rng.integers(26, size=16_000)
    found = load_embedded(name)
    return found.X.to_numpy(dtype=float), found.y


def estimator_of(size: Size, callbacks: list[Any] | None) -> Any:
    """The estimator, with or without the monitor."""
    params = {"max_epochs": size.epochs, "callbacks": callbacks, "n_threads": 1, "random_state": 0}
    if size.name != IMAGES:
        return MixupEClassifier(**preset("paper") | params)
    network = network_of("small-preactresnet")
    return MixupEImageClassifier(
        module=network.module,
        module_params=network.module_params,
        **params,
        lr=0.05,
        batch_size=100,
    )


def measure_size(size: Size) -> Results:
    """Seconds of both in every round, and the number of evaluated epochs."""
    X, y = samples_of(size.name)
    n_evaluated = 0

    def fit(callbacks: list[Any] | None) -> Run:
        def run() -> None:
            nonlocal n_evaluated
            fitted = estimator_of(size, callbacks).fit(X, y)
            if callbacks:
                n_evaluated = sum(not np.isnan(row["q_abs"]) for row in fitted.history_)

        return run

    runs = {"plain": fit(None), "watched": fit([DerivativeMonitor()])}
    times = time_in_turns(runs, size.rounds, digits=5)
    return {"name": size.name, "epochs": size.epochs, "looks": n_evaluated, "seconds": times}


def measurements(is_quick: bool) -> dict[str, Callable[[], Results]]:
    """What is measured, by the name of the part in the results file."""
    return {
        f"{size.name}, {size.epochs}": partial(measure_size, size)
        for size in (QUICK if is_quick else FULL)
    }


def report(results: Results) -> str:
    """The figures with their bound, in Markdown."""
    header = ["data", "epochs", "evaluated", "rounds", "an epoch, ms", "ratio (quartiles)", ""]
    rows = []
    for part in results["parts"].values():
        plain, monitored = part["seconds"]["plain"], part["seconds"]["watched"]
        ratio = ratio_of(monitored, plain)
        epoch = f"{1000 * median(plain) / part['epochs']:.3g}"
        counts = [str(part["epochs"]), str(part["looks"]), str(len(plain))]
        name = present_label(part["name"])
        rows.append([name, *counts, epoch, str(ratio), at_most(ratio, BOUND)])
    caption = "A whole fit with the monitor over one without, one thread, in turns."
    return f"{caption}\n\n{plain_markdown(header, rows)}"
