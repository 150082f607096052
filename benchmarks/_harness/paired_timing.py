"""Times of candidates that run in turns, their ratios, and the number of threads meanwhile."""

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

Run = Callable[[], object]
Times = dict[str, list[float]]


class Ratio(NamedTuple):
    """The median of some ratios, and their quartiles.

    Examples
    --------
    >>> print(Ratio(0.5, 0.4, 0.625))
    0.50 (0.40 to 0.62)
    >>> print(Ratio(0.5, 0.5, 0.5))  # of a single round
    0.50 (no spread)
    """

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
    """Ratio of two candidates, from the pairs of times of each round.

    A machine that slows down for a while slows both of a pair, so the ratios spread less than the
    times.

    Examples
    --------
    >>> ratio_of([1.0, 2.0, 9.0], [2.0, 4.0, 12.0])
    Ratio(median=0.5, low=0.5, high=0.625)
    """
    if len(times) != len(others):
        raise ValueError(
            f"Got {len(times)} and {len(others)} times, but expected one of each in every round."
        )
    low, middle, high = np.percentile(np.divide(times, others), [25, 50, 75])
    return Ratio(float(middle), float(low), float(high))


def at_most(ratio: Ratio, bound: float) -> str:
    """Whether a ratio keeps its bound, in words.

    Examples
    --------
    >>> at_most(Ratio(0.5, 0.4, 0.625), 0.4)
    'at most 0.4: not held'
    """
    return f"at most {bound:g}: {'held' if ratio.median <= bound else 'not held'}"


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

    Parameters
    ----------
    runs : mapping of str to callable
        The candidates.
    n_rounds : int
        Number of rounds. Each round runs every candidate once.
    most_seconds : float, default=inf
        No round starts that would probably end after so many seconds. The first round always
        runs. The second runs too, since a ratio needs a spread, unless the first took longer.
    clock : callable, default=seconds_of
        Runs a candidate, given by name and function, and returns its seconds.

    Returns
    -------
    times : dict of str to list of float
        One entry per round.
    """
    times: Times = {name: [] for name in runs}
    start = time.perf_counter()
    with _frozen_objects():
        for number in range(n_rounds):
            if number and not _has_time(time.perf_counter() - start, number, most_seconds):
                break
            for name in list(runs)[:: 1 if number % 2 == 0 else -1]:
                times[name].append(clock(name, runs[name]))
    return times


def time_in_turns(
    runs: Mapping[str, Run], n_rounds: int, *, n_units: int = 1, digits: int | None = None
) -> Times:
    """Seconds of each candidate per unit, with one thread; a first round is not counted."""
    with threads(1):
        take_turns(runs, 1)  # imports and first calls
        times = take_turns(runs, n_rounds)
    return {
        name: [one / n_units if digits is None else round(one / n_units, digits) for one in values]
        for name, values in times.items()
    }


def _has_time(seconds: float, n_done: int, most_seconds: float) -> bool:
    if n_done == 1:
        return seconds <= most_seconds
    return seconds * (n_done + 1) / n_done <= most_seconds


@contextmanager
def _frozen_objects() -> Iterator[None]:
    """Let collections visit new objects only: those of all imported libraries take a while."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def per_step(times: Times, n_steps: Mapping[str, int]) -> Times:
    """Microseconds per step, to a tenth, from seconds.

    Examples
    --------
    >>> per_step({"ours": [0.5]}, {"ours": 1000})
    {'ours': [500.0]}
    """
    return {
        name: [round(1e6 * seconds / n_steps[name], 1) for seconds in values]
        for name, values in times.items()
    }


@contextmanager
def threads(n_threads: int) -> Iterator[None]:
    """Limit torch and the libraries below numpy to so many threads, and restore the setting.

    Examples
    --------
    >>> with threads(1):
    ...     torch.get_num_threads()
    1
    """
    before = torch.get_num_threads()
    with threadpool_limits(n_threads):
        torch.set_num_threads(n_threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)
