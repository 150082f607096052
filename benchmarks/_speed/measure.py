"""The parts of a run, each a function that returns plain figures."""

import re
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from importlib.metadata import packages_distributions, requires
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks._harness.environment import n_cores
from benchmarks._harness.paired_timing import Run, per_step, take_turns, threads, time_in_turns
from benchmarks._harness.results_file import JsonResults, Results
from benchmarks._harness.subprocesses import beside_busy_cores, run_child
from benchmarks._speed.baselines import (
    FLOORS_IN_EVERY_CELL,
    IN_EVERY_CELL,
    LABELS,
    Candidates,
    is_installed,
    our_classifier,
    scikit_learn_classifier,
)
from benchmarks._speed.memory import measure_memory
from benchmarks._speed.sizes import Scale, Size, epochs_of, make_table, seconds_of_fit
from benchmarks._speed.threads import measure_threads

# Candidates that threads make a difference to. Each runs with its default number.
WITH_OWN_THREADS = ("mixupe", "mixup", "mlp", "skorch", "listing", "listing-torch")
PREDICTED_FEATURES = (16, 200)
# Where threads compete for cores, a step may take a hundred times as long: then rounds are few.
MOST_SECONDS = 45.0
# A program that imports, and prints the seconds and the imported modules.
IMPORTING = """
import json, sys, time
start = time.perf_counter()
{statement}
seconds = time.perf_counter() - start
modules = sorted({{name.split(".")[0] for name in sys.modules}})
print(json.dumps({{"seconds": seconds, "modules": modules}}))
"""
IMPORTS = {
    "alone": "import torch, sklearn",
    "with-skorch": "import torch, sklearn, skorch",
    "with-ours": "import torch, sklearn\nfrom mixupe_sklearn import MixupEClassifier",
}


def measure_steps(
    candidates: Candidates, names: list[str], n_rounds: int, most_seconds: float = float("inf")
) -> Results:
    """Microseconds per step of each candidate, round by round."""
    times = take_turns(candidates.runs(names), n_rounds, most_seconds=most_seconds)
    return {
        "epochs": candidates.epochs,
        "microseconds": per_step(times, {name: candidates.n_steps(name) for name in names}),
    }


def measure_reference(scale: Scale) -> Results:
    """All candidates at the size of the targets, one thread each."""
    names = [name for name in LABELS if is_installed(name)]
    with threads(1):
        take_turns(Candidates(scale.reference, 1).runs(names), 1)  # imports and first calls
        return measure_steps(Candidates(scale.reference, scale.epochs), names, scale.n_rounds)


def measure_own_threads(scale: Scale) -> Results:
    """Some candidates with their default number of threads."""
    names = list(WITH_OWN_THREADS)
    figures = measure_steps(_few_epochs(scale), names, scale.n_rounds, MOST_SECONDS)
    return {"torch_threads": torch.get_num_threads(), **figures}


def measure_cell(size: Size, scale: Scale) -> Results:
    """Our methods, scikit-learn's network and the floors at a size, one thread each."""
    names = [*IN_EVERY_CELL, *FLOORS_IN_EVERY_CELL]
    with threads(1):
        few_rows = size._replace(rows=min(size.rows, max(size.batch, 500)))
        take_turns(Candidates(few_rows, 1).runs(IN_EVERY_CELL), 1)  # first calls
        candidates = Candidates(size, epochs_of(size))
        return measure_steps(candidates, names, scale.n_cell_rounds, scale.cell_seconds)


def measure_prediction(scale: Scale) -> Results:
    """Seconds of predict_proba on many rows, and on one row, ours and scikit-learn's."""
    figures: Results = {"rows": scale.n_predicted}
    for n_features in PREDICTED_FEATURES:
        for name, times in time_in_turns(_predictions(scale, n_features), scale.n_rounds).items():
            calls = scale.n_single if name.startswith("single") else 1
            kept = [float(f"{seconds / calls:.4g}") for seconds in times]
            figures.setdefault(str(n_features), {})[name] = kept
    return figures


def _predictions(scale: Scale, n_features: int) -> dict[str, Run]:
    size = scale.reference._replace(features=n_features)
    X, y = make_table(scale.n_predicted, n_features, size.classes)
    few = slice(0, 2_000)
    with threads(1):
        ours = our_classifier(size, 1, n_threads=1).fit(X[few], y[few])
        mlp = scikit_learn_classifier(size, 1)
        mlp.partial_fit(X[few], y[few], classes=np.arange(size.classes))
    return {
        "ours": partial(ours.predict_proba, X),
        "mlp": partial(mlp.predict_proba, X),
        "single ours": partial(_predict_singly, ours, X, scale.n_single),
        "single mlp": partial(_predict_singly, mlp, X, scale.n_single),
    }


def _predict_singly(classifier: Any, X: np.ndarray, n_rows: int) -> None:
    for row in range(n_rows):
        classifier.predict_proba(X[row : row + 1])


def measure_busy(scale: Scale) -> Results:
    """Our fit with its default threads, its floor, and two threads, alone and beside busy cores."""
    n_busy = max(1, n_cores() - 1)
    long, few = Candidates(scale.reference, scale.epochs, n_threads=None), _few_epochs(scale)
    figures: Results = {"busy_cores": n_busy, "microseconds": {}}
    for name, candidates, source, n_threads in (
        ("mixupe", long, "mixupe", None),
        ("floor-twice", long, "floor-twice", 1),
        ("two threads", few, "listing-torch", 2),
    ):
        # One after the other, as idle threads of the last one keep spinning for a while.
        run = partial(_with_threads, n_threads, candidates.runs([source])[source])
        run()
        times = beside_busy_cores({name: run}, scale.n_rounds, n_busy, MOST_SECONDS)
        figures["microseconds"] |= per_step(times, dict.fromkeys(times, candidates.n_steps(source)))
    return figures


def _with_threads(n_threads: int | None, run: Run) -> None:
    with nullcontext() if n_threads is None else threads(n_threads):
        run()


def measure_all_threads(scale: Scale) -> Results:
    """Two threads against one at each size of that comparison."""
    n_rounds = min(3, scale.n_rounds)
    return {
        size.name: measure_threads(size, n_rounds, scale.thread_seconds)
        for size in scale.thread_sizes
    }


def _few_epochs(scale: Scale) -> Candidates:
    """The reference with default threads; those that compete for cores are slow."""
    return Candidates(scale.reference, max(1, scale.epochs // 5), n_threads=None)


def measure_imports(n_rounds: int) -> Results:
    """Seconds of each import in new processes, in turns, and the extras that ours imported."""
    modules: dict[str, set[str]] = {}

    def clock(name: str, run: Run) -> float:
        found: Any = run()
        modules[name] = set(found["modules"])
        return found["seconds"]  # without the start of the process

    runs: dict[str, Run] = {
        name: partial(run_child, ["-c", IMPORTING.format(statement=statement)])
        for name, statement in IMPORTS.items()
    }
    take_turns(runs, 1, clock=clock)  # reads the files from the disk
    times = take_turns(runs, n_rounds, clock=clock)
    seconds = {name: [round(value, 4) for value in values] for name, values in times.items()}
    # What scikit-learn and skorch import where it is installed does not count.
    extras = extras_among(modules["with-ours"] - modules["with-skorch"])
    return {"seconds": seconds, "extras": extras}


def extras_among(modules: set[str]) -> list[str]:
    """The modules of libraries that only an extra of ours requires.

    Examples
    --------
    >>> extras_among({"skorch", "optuna"})
    ['optuna']
    """
    wanted = requires("mixupe-sklearn") or []
    # "optuna>=5.0; extra == 'search'" belongs to an extra; a line without a condition does not.
    extras = {_name_of(line) for line in wanted if "extra ==" in line}
    extras -= {_name_of(line) for line in wanted if "extra ==" not in line}
    owners = packages_distributions()
    return sorted(
        m for m in modules if any(_normalized(owner) in extras for owner in owners.get(m, []))
    )


def _name_of(requirement: str) -> str:
    return _normalized(re.split(r"[^\w.-]", requirement, maxsplit=1)[0])


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


class Part(NamedTuple):
    """A part of a run, and its estimated seconds on an idle machine."""

    measure: Callable[[], Results]
    seconds: float


def parts_of(scale: Scale) -> dict[str, Part]:
    """All parts in the order of measurement; sizes come last, the cheap ones first."""
    steps = scale.n_rounds * scale.reference.n_steps(scale.epochs)
    # Four figures per round, a first fit of each kind, and one for the default.
    n_thread_fits = len(scale.thread_sizes) * (4 * min(3, scale.n_rounds) + 3)
    parts = {
        "reference": Part(partial(measure_reference, scale), 0.011 * steps),
        "busy": Part(partial(measure_busy, scale), 0.005 * steps),
        "memory": Part(
            partial(measure_memory, scale.n_large, scale.kinds),
            len(scale.kinds) * (5 + 1e-5 * scale.n_large),
        ),
        "import": Part(partial(measure_imports, scale.n_imports), 9.0 * (scale.n_imports + 1)),
        "prediction": Part(partial(measure_prediction, scale), 4.0 * scale.n_rounds),
        "threads": Part(
            partial(measure_all_threads, scale), n_thread_fits * (scale.thread_seconds + 0.1)
        ),
        "own threads": Part(partial(measure_own_threads, scale), 0.003 * steps),
    }
    for size in scale.cells:
        parts[size.name] = Part(partial(measure_cell, size, scale), _cell_seconds(size, scale))
    return parts


def _cell_seconds(size: Size, scale: Scale) -> float:
    """Estimated time of all rounds of a size; some candidates are faster than MixupE."""
    a_round = 4.0 * seconds_of_fit(size) + 0.5
    if a_round > scale.cell_seconds:
        return a_round
    return min(scale.n_cell_rounds, max(2, int(scale.cell_seconds / a_round))) * a_round


def measure_all(scale: Scale, store: JsonResults, report: Callable[[str], object] = print) -> None:
    """Measure every part that the file does not have yet."""
    parts = parts_of(scale)
    missing = {name: part.seconds for name, part in parts.items() if name not in store.parts}
    planned = sum(missing.values())
    start = time.perf_counter()
    for number, (name, part) in enumerate(parts.items(), start=1):
        word = "measured" if name in missing else "kept"
        store.part(name, part.measure)
        missing.pop(name, None)
        left = seconds_left(planned, sum(missing.values()), time.perf_counter() - start)
        report(f"{number} of {len(parts)}: {name} {word}; about {left / 60:.0f} minutes left")


def seconds_left(planned: float, unmeasured: float, took: float) -> float:
    """Estimated time of the remaining parts, at the speed so far.

    Examples
    --------
    >>> seconds_left(planned=100.0, unmeasured=60.0, took=80.0)
    120.0
    """
    is_begun = planned > unmeasured
    return unmeasured * took / (planned - unmeasured) if is_begun else unmeasured
