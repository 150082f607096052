"""The parts of a run, each a function that returns plain figures."""

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks._speed.candidates import (
    FLOORS_IN_EVERY_CELL,
    IN_EVERY_CELL,
    LABELS,
    Candidates,
    is_installed,
    our_classifier,
    scikit_learn_classifier,
)
from benchmarks._speed.children import beside_busy_cores, measure_imports, measure_memory
from benchmarks._speed.crossing import measure_crossing
from benchmarks._speed.scales import Scale
from benchmarks._speed.sizes import Size, epochs_of, make_table, seconds_of_fit
from benchmarks._speed.store import Figures, Store, n_cores
from benchmarks._speed.timing import Run, median, per_step, take_turns, threads

# Threads make a difference to these; each is run with as many as it takes by itself.
WITH_OWN_THREADS = ("mixupe", "mixup", "mlp", "skorch", "listing", "listing-torch")
PREDICTED_FEATURES = (16, 200)
# Where threads fight over cores, a step may take a hundred times as long: then rounds are few.
MOST_SECONDS = 45.0


def measure_steps(
    candidates: Candidates, names: list[str], n_rounds: int, most_seconds: float = float("inf")
) -> Figures:
    """Microseconds a step of each candidate, round by round."""
    times = take_turns(candidates.runs(names), n_rounds, most_seconds=most_seconds)
    return {
        "epochs": candidates.epochs,
        "microseconds": per_step(times, {name: candidates.n_steps(name) for name in names}),
    }


def measure_reference(scale: Scale) -> Figures:
    """All candidates at the size of the promises, one thread each."""
    names = [name for name in LABELS if is_installed(name)]
    with threads(1):
        take_turns(Candidates(scale.reference, 1).runs(names), 1)  # imports and first calls
        return measure_steps(Candidates(scale.reference, scale.epochs), names, scale.n_rounds)


def measure_own_threads(scale: Scale) -> Figures:
    """Some candidates with as many threads as they take by themselves."""
    names = list(WITH_OWN_THREADS)
    figures = measure_steps(_few_epochs(scale), names, scale.n_rounds, MOST_SECONDS)
    return {"torch_threads": torch.get_num_threads(), **figures}


def measure_cell(size: Size, scale: Scale) -> Figures:
    """Our methods, scikit-learn's network and the floors at a size, one thread each."""
    names = [*IN_EVERY_CELL, *FLOORS_IN_EVERY_CELL]
    with threads(1):
        few_rows = size._replace(rows=min(size.rows, max(size.batch, 500)))
        take_turns(Candidates(few_rows, 1).runs(IN_EVERY_CELL), 1)  # first calls
        candidates = Candidates(size, epochs_of(size))
        return measure_steps(candidates, names, scale.n_cell_rounds, scale.cell_seconds)


def measure_prediction(scale: Scale) -> Figures:
    """Seconds of predict_proba on many rows, and on one row, ours and scikit-learn's."""
    figures: Figures = {"rows": scale.n_predicted}
    with threads(1):
        for n_features in PREDICTED_FEATURES:
            runs = _predicting(scale, n_features)
            take_turns(runs, 1)
            for name, times in take_turns(runs, scale.n_rounds).items():
                calls = scale.n_single if name.startswith("single") else 1
                kept = [float(f"{seconds / calls:.4g}") for seconds in times]
                figures.setdefault(str(n_features), {})[name] = kept
    return figures


def _predicting(scale: Scale, n_features: int) -> dict[str, Run]:
    size = scale.reference._replace(features=n_features)
    X, y = make_table(scale.n_predicted, n_features, size.classes)
    few = slice(0, 2_000)
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


def measure_growth(scale: Scale) -> Figures:
    """Seconds of a fit as rows grow, and as features grow, and the power that they grow with."""
    by_rows = [scale.reference._replace(rows=n_rows) for n_rows in scale.rows]
    by_features = [
        scale.reference._replace(rows=scale.n_growth_rows, features=n) for n in scale.features
    ]
    with threads(1):
        return {
            "rows": _growth(by_rows, scale.rows, scale),
            "features": _growth(by_features, scale.features, scale),
        }


def _growth(sizes: Sequence[Size], numbers: Sequence[int], scale: Scale) -> Figures:
    # Few epochs: what a fit does once is part of what grows.
    fits = [Candidates(size, 2).runs(["mixupe"])["mixupe"] for size in sizes]
    runs = dict(zip(map(str, numbers), fits, strict=True))
    times = take_turns(runs, min(3, scale.n_rounds))
    seconds = {name: float(f"{median(values):.4g}") for name, values in times.items()}
    return {"seconds": seconds, "power": round(power_of(seconds), 3)}


def power_of(seconds: dict[str, float]) -> float:
    """The power of size that time grows with: the slope of its logarithm.

    Examples
    --------
    >>> round(power_of({"10": 1.0, "100": 10.0, "1000": 100.0}), 3)
    1.0
    """
    sizes = [float(size) for size in seconds]
    return float(np.polyfit(np.log(sizes), np.log(list(seconds.values())), deg=1)[0])


def measure_busy(scale: Scale) -> Figures:
    """Our fit with its default threads, its floor, and two threads, alone and beside busy cores."""
    n_busy = max(1, n_cores() - 1)
    long, few = Candidates(scale.reference, scale.epochs, n_threads=None), _few_epochs(scale)
    figures: Figures = {"busy_cores": n_busy, "microseconds": {}}
    for name, candidates, source, n_threads in (
        ("mixupe", long, "mixupe", None),
        ("floor-twice", long, "floor-twice", 1),
        ("two threads", few, "listing-torch", 2),
    ):
        # One after the other: threads that the last one needs do not sleep at once when it ends.
        run = partial(_with_threads, n_threads, candidates.runs([source])[source])
        run()
        times = beside_busy_cores({name: run}, scale.n_rounds, n_busy, MOST_SECONDS)
        n_steps = dict.fromkeys(times, candidates.n_steps(source))
        figures["microseconds"] |= per_step(times, n_steps)
    return figures


def _with_threads(n_threads: int | None, run: Run) -> None:
    with nullcontext() if n_threads is None else threads(n_threads):
        run()


def measure_threads(scale: Scale) -> Figures:
    """Two threads against one at each size that is to be compared."""
    n_rounds = min(3, scale.n_rounds)
    return {
        size.name: measure_crossing(size, n_rounds, scale.thread_seconds)
        for size in scale.thread_sizes
    }


def _few_epochs(scale: Scale) -> Candidates:
    """The reference with threads as they come; those that fight over cores take their time."""
    return Candidates(scale.reference, max(1, scale.epochs // 5), n_threads=None)


class Part(NamedTuple):
    """A part of a run, and about how many seconds it takes on a quiet machine."""

    measure: Callable[[], Figures]
    seconds: float


def parts_of(scale: Scale) -> dict[str, Part]:
    """All parts in the order in which they are measured: sizes come last, the cheap ones first."""
    steps = scale.n_rounds * scale.reference.n_steps(scale.epochs)
    parts = {
        "reference": Part(partial(measure_reference, scale), 0.011 * steps),
        "busy": Part(partial(measure_busy, scale), 0.005 * steps),
        "memory": Part(partial(measure_memory, scale.n_large, scale.kinds), _memory_seconds(scale)),
        "import": Part(partial(measure_imports, scale.n_imports), 9.0 * (scale.n_imports + 1)),
        "prediction": Part(partial(measure_prediction, scale), 4.0 * scale.n_rounds),
        "threads": Part(partial(measure_threads, scale), _threads_seconds(scale)),
        "own threads": Part(partial(measure_own_threads, scale), 0.003 * steps),
        "growth": Part(partial(measure_growth, scale), 12.0),
    }
    for size in scale.cells:
        parts[size.name] = Part(partial(measure_cell, size, scale), _cell_seconds(size, scale))
    return parts


def _memory_seconds(scale: Scale) -> float:
    return len(scale.kinds) * (5 + 1e-5 * scale.n_large)


def _threads_seconds(scale: Scale) -> float:
    # Four figures a round, a first fit of each kind, and one for the default.
    n_fits = 4 * min(3, scale.n_rounds) + 3
    return len(scale.thread_sizes) * n_fits * (scale.thread_seconds + 0.1)


def _cell_seconds(size: Size, scale: Scale) -> float:
    """Rounds that have time, of all candidates, some of which are faster than MixupE."""
    a_round = 4.0 * seconds_of_fit(size) + 0.5
    if a_round > scale.cell_seconds:
        return a_round
    n_rounds = min(scale.n_cell_rounds, max(2, int(scale.cell_seconds / a_round)))
    return n_rounds * a_round


def measure_all(scale: Scale, store: Store, say: Callable[[str], object] = print) -> None:
    """Measure every part that the store does not have yet."""
    parts = parts_of(scale)
    missing = {name: part.seconds for name, part in parts.items() if name not in store.parts}
    planned = sum(missing.values())
    start = time.perf_counter()
    for number, (name, part) in enumerate(parts.items(), start=1):
        word = "measured" if name in missing else "kept"
        store.part(name, part.measure)
        missing.pop(name, None)
        left = seconds_left(planned, sum(missing.values()), time.perf_counter() - start)
        say(f"{number} of {len(parts)}: {name} {word}; about {left / 60:.0f} minutes left")


def seconds_left(planned: float, unmeasured: float, took: float) -> float:
    """Seconds of the parts that are left, if the machine stays as slow as it has been.

    Examples
    --------
    >>> seconds_left(planned=100.0, unmeasured=60.0, took=80.0)
    120.0
    """
    is_begun = planned > unmeasured
    return unmeasured * took / (planned - unmeasured) if is_begun else unmeasured
