"""Two threads against one, from small networks to large ones."""

from functools import partial

import torch

from benchmarks._harness.paired_timing import Run, per_step, take_turns
from benchmarks._harness.results_file import Results
from benchmarks._harness.subprocesses import beside_busy_cores
from benchmarks._speed.baselines import our_classifier
from benchmarks._speed.sizes import Size, make_table, seconds_of_step
from mixupe_sklearn import MixupEClassifier
from mixupe_sklearn._net.build import rows_a_pass
from mixupe_sklearn._runtime.hardware import n_threads_for

MOST_STEPS = 1_000
# Small steps on two threads may take a hundred times as long beside a busy core.
MOST_SECONDS = 15.0


def n_steps_of(size: Size, seconds: float) -> int:
    """Steps that take about so long with one thread; at least three.

    Examples
    --------
    >>> size = Size(rows=10, features=784, classes=10, width=1024, batch=1000)
    >>> n_steps_of(size, 0.4) < n_steps_of(size._replace(batch=100), 0.4) < MOST_STEPS
    True
    """
    return max(3, min(MOST_STEPS, round(seconds / seconds_of_step(size))))


def measure_threads(size: Size, n_rounds: int, seconds: float) -> Results:
    """Microseconds per step of MixupE with one and two threads, alone and beside a busy core."""
    n_steps = n_steps_of(size, seconds)
    size = size._replace(rows=n_steps * size.batch)
    table = make_table(size.rows, size.features, size.classes)
    runs: dict[str, Run] = {
        name: partial(our_classifier(size, 1, n_threads=n_threads).fit, *table)
        for name, n_threads in (("one", 1), ("two", 2))
    }
    take_turns(runs, 1)  # first calls
    times = beside_busy_cores(runs, n_rounds, n_cores=1, most_seconds=MOST_SECONDS)
    return {
        "default": default_threads(our_classifier(size, 1).fit(*table), size.rows),
        "microseconds": per_step(times, dict.fromkeys(times, n_steps)),
    }


def default_threads(classifier: MixupEClassifier, n_rows: int) -> int:
    """The default number of threads of a fitted classifier for a fit of so many rows."""
    net = classifier.net_
    return n_threads_for(net.module_, rows_a_pass(net, n_rows), torch.get_num_threads())
