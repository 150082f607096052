"""Times of candidates that take turns, their ratios, and the number of threads meanwhile."""

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
    """A median of ratios, and the quartiles around it.

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
    """The middle one of some times."""
    return float(np.median(times))


def ratio_of(times: list[float], others: list[float]) -> Ratio:
    """Ratio of two candidates, from pairs of times of the same round.

    A machine that slows down for a while slows both of a pair, so that the pairs' ratios spread
    less than the times do.

    Examples
    --------
    >>> ratio_of([1.0, 2.0, 9.0], [2.0, 4.0, 12.0])
    Ratio(median=0.5, low=0.5, high=0.625)
    """
    if len(times) != len(others):
        raise ValueError(
            f"Got {len(times)} and {len(others)} times, but expected one of each in every round."
        )
    shares = np.divide(times, others)
    low, middle, high = np.percentile(shares, [25, 50, 75])
    return Ratio(float(middle), float(low), float(high))


def seconds_of(name: str, run: Run) -> float:
    """Wall time of a candidate's call, without the rubbish of those before it."""
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
    """Seconds of each candidate in each round; every second round goes through them backwards.

    Parameters
    ----------
    runs : mapping of str to callable
        The candidates.
    n_rounds : int
        Rounds; each has all candidates once.
    most_seconds : float, default=inf
        No round is begun that would probably end after so many seconds. The first always is; so is
        the second, since a ratio needs a spread, unless the first one took longer than all may.
    clock : callable, default=seconds_of
        Gets a candidate's name and function, runs it, and returns its seconds.

    Returns
    -------
    times : dict of str to list of float
        Round by round.
    """
    times: Times = {name: [] for name in runs}
    start = time.perf_counter()
    with _old_objects_aside():
        for number in range(n_rounds):
            if number and not _has_time(time.perf_counter() - start, number, most_seconds):
                break
            for name in list(runs)[:: 1 if number % 2 == 0 else -1]:
                times[name].append(clock(name, runs[name]))
    return times


def _has_time(seconds: float, n_done: int, most_seconds: float) -> bool:
    if n_done == 1:
        return seconds <= most_seconds
    return seconds * (n_done + 1) / n_done <= most_seconds


@contextmanager
def _old_objects_aside() -> Iterator[None]:
    """Let collections look at new objects only: the modules of all libraries take a while."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def per_step(times: Times, n_steps: Mapping[str, int]) -> Times:
    """Microseconds a step, to a tenth, from seconds.

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
    """Let torch and the libraries below numpy use so many threads, and put back what was found.

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
