"""Members trained as one against single fits: ``python -m benchmarks.members [--quick]``.

``n_members=8`` and eight fits of ``n_members=1``, all else equal and without early stopping, take
turns in one process of one thread, on tables made by rule: 20 features, 5 classes. What is compared
are the two times of the same round. Then, in a process each, the memory that ``predict_proba`` adds
to its result.
"""

import argparse
import json
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks._candidates import page
from benchmarks._speed.children import run_child
from benchmarks._speed.memory import MEGABYTE, added_by, can_measure
from benchmarks._speed.page import table
from benchmarks._speed.store import Figures, Store, describe_run, read
from benchmarks._speed.timing import Run, median, ratio_of, take_turns, threads
from mixupe_sklearn import MixupEClassifier, preset

N_MEMBERS, N_FEATURES, N_CLASSES, BLOCK = 8, 20, 5, 10_000
RESULTS = pathlib.Path(__file__).parent / "results" / "members.json"


class Size(NamedTuple):
    """Rows of a table, epochs of a fit, rounds, and the most that members may take of singles."""

    rows: int
    epochs: int
    rounds: int
    bound: float | None = None


# Fewer epochs for more rows: a step costs the same in every epoch.
FULL = (Size(500, 50, 15, 0.4), Size(5_000, 10, 11, 0.7), Size(50_000, 2, 7, 0.9))
QUICK = (Size(120, 2, 2), Size(240, 1, 2))
ROWS_OF_MEMORY = {"full": (100_000, 1_000_000), "quick": (2_000,)}


def make_table(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Normal numbers, and classes by the largest of five weighted sums.

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
    for start in range(0, n_rows, BLOCK):  # no second table is made on the way
        part = X[start : start + BLOCK]
        part[:] = rng.standard_normal(part.shape, dtype=np.float32)
        y[start : start + BLOCK] = (part @ weights).argmax(axis=1)
    return X, y


def classifier_of(n_members: int, epochs: int, seed: int = 0) -> MixupEClassifier:
    """The classifier as it comes, but for members, length and early stopping.

    One network has one alpha and one eta: the paper's, for members too.
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


def runs_of(size: Size) -> dict[str, Run]:
    """The two that are compared."""
    X, y = make_table(size.rows)

    def members() -> None:
        classifier_of(N_MEMBERS, size.epochs).fit(X, y)

    def singles() -> None:
        for seed in range(N_MEMBERS):
            classifier_of(1, size.epochs, seed).fit(X, y)

    return {"members": members, "singles": singles}


def measure_size(size: Size) -> Figures:
    """Seconds of both in every round."""
    runs = runs_of(size)
    with threads(1):
        take_turns(runs, 1)  # what is loaded on the way is not counted
        times = take_turns(runs, size.rounds)
    seconds = {name: [round(value, 5) for value in values] for name, values in times.items()}
    return {"rows": size.rows, "epochs": size.epochs, "bound": size.bound, "seconds": seconds}


def measure_memory(n_rows: int) -> Figures:
    """MiB that probabilities of so many rows add to the rows and to the result."""
    classifier = classifier_of(N_MEMBERS, 1).fit(*make_table(5_000))
    classifier.predict_proba(make_table(5_000)[0])
    X, _ = make_table(n_rows)
    found = {"data": X.nbytes, "added": added_by(classifier.predict_proba, X)}
    return {"rows": n_rows} | {name: round(n / MEGABYTE, 2) for name, n in found.items()}


def measure_all(sizes: Sequence[Size], n_rows: Sequence[int], store: Store) -> None:
    """Measure what the file does not have yet."""
    for size in sizes:
        print(f"{size.rows:,} rows, {size.rounds} rounds ...", file=sys.stderr, flush=True)
        store.part(f"{size.rows} rows", lambda size=size: measure_size(size))  # type: ignore[misc]
    for n in n_rows if can_measure() else ():
        command = ["-m", "benchmarks.members", "--memory", str(n)]
        store.part(f"memory of {n} rows", lambda command=command: run_child(command))  # type: ignore[misc]


def report(results: Figures) -> str:
    """The figures with their bounds, in Markdown."""
    parts: Mapping[str, Any] = results["parts"]
    timed = [part for part in parts.values() if "seconds" in part]
    memory = [part for part in parts.values() if "added" in part]
    header = ["rows", "epochs", "rounds", "members, s", "singles, s", "ratio (quartiles)", "bound"]
    pieces = [
        f"`n_members={N_MEMBERS}` against {N_MEMBERS} single fits, one thread: medians of the "
        "times, and the median of the ratios of the same round.",
        table(header, [_time_row(part) for part in timed]),
    ]
    if memory:
        rows = [[f"{p['rows']:,}", f"{p['data']:.1f}", f"{p['added']:.1f}"] for p in memory]
        pieces += [
            f"Memory that `predict_proba` of {N_MEMBERS} members adds to rows and result.",
            table(["rows", "data, MiB", "added, MiB"], rows),
        ]
    return "\n\n".join(pieces)


def _time_row(part: Figures) -> list[str]:
    members, singles = part["seconds"]["members"], part["seconds"]["singles"]
    ratio = ratio_of(members, singles)
    verdict = ""
    if part["bound"] is not None:
        word = "held" if ratio.median <= part["bound"] else "not held"
        verdict = f"at most {part['bound']:g}: {word}"
    shown = [f"{median(members):.3g}", f"{median(singles):.3g}", str(ratio), verdict]
    return [f"{part['rows']:,}", str(part["epochs"]), str(len(members)), *shown]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.members", description=(__doc__ or "").splitlines()[0]
    )
    made.add_argument("--quick", action="store_true", help="tiny tables, two rounds: for tests")
    made.add_argument(
        "--json",
        type=pathlib.Path,
        metavar="FILE",
        help="file of results (benchmarks/results/members.json, or build/members-quick.json)",
    )
    made.add_argument("--fresh", action="store_true", help="measure all again")
    made.add_argument("--report-only", action="store_true", help="measure nothing, read the file")
    made.add_argument("--docs", action="store_true", help="write the tables into docs/tables.md")
    made.add_argument("--memory", type=int, metavar="ROWS", help="measure this in this process")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write the page if asked to."""
    options = parser().parse_args(arguments)
    if options.memory is not None:
        print(json.dumps(measure_memory(options.memory)))
        return 0
    scale = "quick" if options.quick else "full"
    path = options.json or (pathlib.Path("build/members-quick.json") if options.quick else RESULTS)
    try:
        if not options.report_only:
            store = Store(path, describe_run(scale), options.fresh)
            measure_all(QUICK if options.quick else FULL, ROWS_OF_MEMORY[scale], store)
        results = read(path)
    except (OSError, ValueError, RuntimeError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    print(report(results))
    if options.docs:
        page.write("members", report(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
