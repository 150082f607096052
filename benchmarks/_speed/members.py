"""Members trained as one against single fits.

``n_members=8`` and eight fits of ``n_members=1``, otherwise equal and without early stopping, run
in turns in one process with one thread, on synthetic tables with 20 features and 5 classes. A
ratio compares the two times of one round. A new process for each size then measures the memory
that ``predict_proba`` adds to its result.
"""

import pathlib
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from benchmarks._harness.paired_timing import at_most, median, ratio_of, time_in_turns
from benchmarks._harness.report_tables import plain_markdown
from benchmarks._harness.resources import MEGABYTE, added_by, can_measure
from benchmarks._harness.results_file import Results
from benchmarks._harness.subprocesses import call_in_child
from mixupe_sklearn import MixupEClassifier, preset

N_MEMBERS, N_FEATURES, N_CLASSES, BLOCK = 8, 20, 5, 10_000
ROOT = pathlib.Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "members.json"
PAGE = ROOT / "docs" / "benchmarks" / "defaults.md"
BLOCK_NAME = "members"


class Size(NamedTuple):
    """Rows of a table, epochs of a fit, rounds, and the most that members may take of singles."""

    rows: int
    epochs: int
    rounds: int
    bound: float | None = None


# Fewer epochs for more rows, as a step costs the same in every epoch.
FULL = (Size(500, 50, 15, 0.4), Size(5_000, 10, 11, 0.7), Size(50_000, 2, 7, 0.9))
QUICK = (Size(120, 2, 2), Size(240, 1, 2))


def make_table(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Normal features, and the class with the largest of five weighted sums.

    Examples
    --------
    >>> X, y = make_table(300)
    >>> X.shape, len(np.unique(y))
    ((300, 20), 5)
    """
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((N_FEATURES, N_CLASSES), dtype=np.float32)
    X = np.empty((n_rows, N_FEATURES), dtype=np.float32)
    y = np.empty(n_rows, dtype=int)
    for start in range(0, n_rows, BLOCK):  # so that no second table is allocated
        part = X[start : start + BLOCK]
        part[:] = rng.standard_normal(part.shape, dtype=np.float32)
        y[start : start + BLOCK] = (part @ weights).argmax(axis=1)
    return X, y


def classifier_of(n_members: int, epochs: int, seed: int = 0) -> MixupEClassifier:
    """The default classifier but for members, length, early stopping, and the paper's alpha, eta.

    One network has one alpha and one eta.
    """
    pair = {name: preset("paper")[name] for name in ("alpha", "eta")}
    return MixupEClassifier(
        **pair,
        n_members=n_members,
        max_epochs=epochs,
        min_steps=0,
        early_stopping=False,
        n_threads=1,
        device="cpu",
        random_state=seed,
    )


def measure_size(size: Size) -> Results:
    """Seconds of both in every round."""
    X, y = make_table(size.rows)

    def members() -> None:
        classifier_of(N_MEMBERS, size.epochs).fit(X, y)

    def singles() -> None:
        for seed in range(N_MEMBERS):
            classifier_of(1, size.epochs, seed).fit(X, y)

    times = time_in_turns({"members": members, "singles": singles}, size.rounds, digits=5)
    return {"rows": size.rows, "epochs": size.epochs, "bound": size.bound, "seconds": times}


def measure_memory(n_rows: int) -> Results:
    """MiB that probabilities of so many rows add to the rows and to the result."""
    classifier = classifier_of(N_MEMBERS, 1).fit(*make_table(5_000))
    classifier.predict_proba(make_table(5_000)[0])
    X, _ = make_table(n_rows)
    found = {"data": X.nbytes, "added": added_by(classifier.predict_proba, X)}
    return {"rows": n_rows} | {name: round(n / MEGABYTE, 2) for name, n in found.items()}


def measurements(is_quick: bool) -> dict[str, Callable[[], Results]]:
    """What is measured, by the name of the part in the results file."""
    sizes = QUICK if is_quick else FULL
    found: dict[str, Callable[[], Results]] = {
        f"{size.rows} rows": partial(measure_size, size) for size in sizes
    }
    for n_rows in ((2_000,) if is_quick else (100_000, 1_000_000)) if can_measure() else ():
        measure = partial(call_in_child, __name__, "measure_memory", n_rows)
        found[f"memory of {n_rows} rows"] = measure
    return found


def report(results: Results) -> str:
    """The figures with their bounds, in Markdown."""
    timed = [part for part in results["parts"].values() if "seconds" in part]
    memory = [part for part in results["parts"].values() if "added" in part]
    header = ["rows", "epochs", "rounds", "members, s", "singles, s", "ratio (quartiles)", "bound"]
    pieces = [
        f"`n_members={N_MEMBERS}` against {N_MEMBERS} single fits, one thread: medians of the "
        "times, and the median of the ratios of the same round.",
        plain_markdown(header, [_time_row(part) for part in timed]),
    ]
    if memory:
        rows = [[f"{p['rows']:,}", f"{p['data']:.1f}", f"{p['added']:.1f}"] for p in memory]
        pieces += [
            f"Memory that `predict_proba` of {N_MEMBERS} members adds to rows and result.",
            plain_markdown(["rows", "data, MiB", "added, MiB"], rows),
        ]
    return "\n\n".join(pieces)


def _time_row(part: Results) -> list[str]:
    members, singles = part["seconds"]["members"], part["seconds"]["singles"]
    ratio = ratio_of(members, singles)
    verdict = "" if part["bound"] is None else at_most(ratio, part["bound"])
    shown = [f"{median(members):.3g}", f"{median(singles):.3g}", str(ratio), verdict]
    return [f"{part['rows']:,}", str(part["epochs"]), str(len(members)), *shown]
