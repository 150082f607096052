"""Times of candidates that run in turns, their ratios, and the number of threads meanwhile."""

import gc
import json
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from benchmarks._harness.environment import commit, versions_of
from benchmarks._harness.results_file import write_text

Run = Callable[[], object]
Times = dict[str, list[float]]


class Ratio(NamedTuple):
    """The median of some ratios, and their quartiles."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        spread = f"{self.low:.2f} to {self.high:.2f}" if self.low < self.high else "no spread"
        return f"{self.median:.2f} ({spread})"


def median(times: list[float]) -> float:
    """The median as a plain float."""
    return float(np.median(times))


def ratio_of(times: list[float], others: list[float]) -> Ratio:
    """Ratio of two candidates round by round: what slows the machine slows both of a pair."""
    ratios = [one / other for one, other in zip(times, others, strict=True)]
    low, middle, high = np.percentile(ratios, [25, 50, 75])
    return Ratio(float(middle), float(low), float(high))


def at_most(ratio: Ratio, bound: float) -> str:
    """Whether a ratio keeps its bound, in words."""
    return f"at most {bound:g}: {'held' if ratio.median <= bound else 'not held'}"


def judged(times: list[float], others: list[float], bound: float) -> list[str]:
    """Rounds, ratio, bound and verdict, as cells of a table."""
    ratio = ratio_of(times, others)
    verdict = "held" if ratio.median <= bound else "missed"
    return [str(len(times)), str(ratio), f"{bound:.2f}", verdict]


def write_times(path: pathlib.Path, about: Mapping[str, Any], seconds: Mapping[str, Times]) -> None:
    """Write the times of a benchmark as JSON, with commit and versions."""
    source = {"commit": commit(), "versions": versions_of(["gin"])}
    write_text(path, json.dumps({**about, **source, "seconds": seconds}, indent=1) + "\n")


def seconds_of(name: str, run: Run) -> float:
    """Wall-clock time of a call; garbage of earlier calls is collected first."""
    gc.collect()
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def take_turns(
    runs: Mapping[str, Run],
    n_rounds: int,
    *,
    most_seconds: float = float("inf"),
    clock: Callable[[str, Run], float] = seconds_of,
) -> Times:
    """Seconds of each candidate in each round; every second round runs them in reverse order.

    No round starts that would probably end after ``most_seconds``. The first always runs, and so
    does the second, since a ratio needs a spread, unless the first took longer.
    """
    times: Times = {name: [] for name in runs}
    start = time.perf_counter()
    # Collections visit new objects only: those of all imported libraries take a while.
    gc.collect()
    gc.freeze()
    try:
        for number in range(n_rounds):
            if number:
                seconds = time.perf_counter() - start
                if seconds * (1 if number == 1 else (number + 1) / number) > most_seconds:
                    break
            for name in list(runs)[:: 1 if number % 2 == 0 else -1]:
                times[name].append(clock(name, runs[name]))
    finally:
        gc.unfreeze()
    return times


def time_in_turns(
    runs: Mapping[str, Run],
    n_rounds: int,
    *,
    n_units: int = 1,
    digits: int | None = None,
    n_threads: int | None = 1,
) -> Times:
    """Seconds of each candidate per unit; a first round is not counted. None: default threads."""
    with nullcontext() if n_threads is None else threads(n_threads):
        take_turns(runs, 1)  # imports and first calls
        times = take_turns(runs, n_rounds)
    return {
        name: [one / n_units if digits is None else round(one / n_units, digits) for one in values]
        for name, values in times.items()
    }


def per_step(times: Times, n_steps: Mapping[str, int]) -> Times:
    """Microseconds per step, to a tenth, from seconds."""
    return {
        name: [round(1e6 * seconds / n_steps[name], 1) for seconds in values]
        for name, values in times.items()
    }


@contextmanager
def threads(n_threads: int) -> Iterator[None]:
    """Limit torch and the libraries below numpy to so many threads, and restore the setting."""
    before = torch.get_num_threads()
    with threadpool_limits(n_threads):
        torch.set_num_threads(n_threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)
