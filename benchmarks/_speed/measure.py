"""The parts of a run, each a function that returns plain figures."""

import re
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from importlib.metadata import packages_distributions, requires
from typing import Any

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
from benchmarks._speed.sizes import Scale, Size, epochs_of, make_table, seconds_of_step
from mixupe_sklearn import MixupEClassifier
from mixupe_sklearn._net.net import rows_a_pass
from mixupe_sklearn._runtime.torch_state import n_threads_for

WITH_OWN_THREADS = ("mixupe", "mixup", "mlp", "skorch", "listing", "listing-torch")
PREDICTED_FEATURES = (16, 200)
# Where threads compete for cores, a step may take a hundred times as long: then rounds are few.
MOST_SECONDS = 45.0
MOST_STEPS = 1_000
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


def measure_threads(scale: Scale) -> Results:
    """Microseconds per step of MixupE with one and two threads, alone and beside a busy core."""
    return {size.name: _measure_threads(size, scale) for size in scale.thread_sizes}


def _measure_threads(size: Size, scale: Scale) -> Results:
    n_steps = max(3, min(MOST_STEPS, round(scale.thread_seconds / seconds_of_step(size))))
    size = size._replace(rows=n_steps * size.batch)
    table = make_table(size.rows, size.features, size.classes)
    runs: dict[str, Run] = {
        name: partial(our_classifier(size, 1, n_threads=n_threads).fit, *table)
        for name, n_threads in (("one", 1), ("two", 2))
    }
    take_turns(runs, 1)  # first calls
    times = beside_busy_cores(runs, min(3, scale.n_rounds), 1, MOST_SECONDS / 3)
    return {
        "default": default_threads(our_classifier(size, 1).fit(*table), size.rows),
        "microseconds": per_step(times, dict.fromkeys(times, n_steps)),
    }


def default_threads(classifier: MixupEClassifier, n_rows: int) -> int:
    """The default number of threads of a fitted classifier for a fit of so many rows."""
    net = classifier.net_
    return n_threads_for(net.module_, rows_a_pass(net, n_rows), torch.get_num_threads())


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
    """The modules of libraries that only an extra of ours requires."""
    names: dict[bool, set[str]] = {True: set(), False: set()}
    for line in requires("mixupe-sklearn") or []:  # such as "optuna>=5.0; extra == 'search'"
        names["extra ==" in line].add(_normalized(re.split(r"[^\w.-]", line, maxsplit=1)[0]))
    extras, owners = names[True] - names[False], packages_distributions()
    return sorted(m for m in modules if extras & set(map(_normalized, owners.get(m, []))))


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def parts_of(scale: Scale) -> dict[str, Callable[[], Results]]:
    """All parts in the order of measurement; sizes come last, the cheap ones first."""
    return {
        "reference": partial(measure_reference, scale),
        "busy": partial(measure_busy, scale),
        "memory": partial(measure_memory, scale.n_large, scale.kinds),
        "import": partial(measure_imports, scale.n_imports),
        "prediction": partial(measure_prediction, scale),
        "threads": partial(measure_threads, scale),
        "own threads": partial(measure_own_threads, scale),
        **{size.name: partial(measure_cell, size, scale) for size in scale.cells},
    }


def measure_all(scale: Scale, store: JsonResults) -> None:
    """Measure every part that the file does not have yet."""
    parts = parts_of(scale)
    for number, (name, measure) in enumerate(parts.items(), start=1):
        store.part(name, measure)
        print(f"{number} of {len(parts)}: {name}", file=sys.stderr, flush=True)
