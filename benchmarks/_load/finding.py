"""What a case has found, and what the process had meanwhile: memory, threads, open files."""

import ctypes
import gc
import os
import pathlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from benchmarks._speed.memory import MEGABYTE, forget_peak, memory_of_process, watched
from mixupe_sklearn import MixupEClassifier, preset


class State(NamedTuple):
    """Memory in MiB, with pages of files and without, threads and open files of this process."""

    memory: float
    private: float
    threads: int
    files: int

    @classmethod
    def now(cls) -> "State":
        """Look, after what nobody holds any more is gone."""
        gc.collect()
        found = memory_of_process()
        return cls(
            round(found["now"] / MEGABYTE, 1),
            round(found["private"] / MEGABYTE, 1),
            _n_entries("task"),
            _n_open_files(),
        )


def _n_entries(name: str) -> int:
    return len(os.listdir(pathlib.Path("/proc/self") / name))


def _n_open_files() -> int:
    """Files that stay open: the thread that looks at the memory has one open now and then."""
    counts = []
    for _ in range(20):
        counts.append(_n_entries("fd"))
        time.sleep(0.003)
    return min(counts)


@dataclass
class Finding:
    """How large a case was, what was set, and what was checked.

    Parameters
    ----------
    size : str
        How large it was.
    settings : dict
        Parameters of the estimator.
    checks : dict
        What must be so, in words, and whether it is.
    start : State or None, default=None
        What the process had when it began to count, where that was later than the case's begin.
    """

    size: str
    settings: dict[str, Any]
    checks: dict[str, bool]
    start: State | None = field(default=None)


def _trim() -> None:
    """Ask the C library for what is free: it keeps pieces for the next use, where it is glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        gc.collect()
        trim(0)


def _warm_up() -> None:
    """Fit and predict a little, so that what is imported on the way is not counted."""
    X = np.zeros((20, 2), dtype=np.float32)
    params = preset("paper") | {"max_epochs": 1, "batch_size": 10, "early_stopping": True}
    MixupEClassifier(**params).fit(X, np.arange(20) % 2).predict_proba(X)


def measured(run: Callable[[], Finding]) -> dict[str, Any]:
    """Run a case in this process: its row of the table.

    One of the threads is the one that looks at the memory.
    """
    _warm_up()
    with watched() as seen:
        before = State.now()
        forget_peak()
        clock = time.perf_counter()
        finding = run()
        seconds = time.perf_counter() - clock
        most = memory_of_process()["most"]
        _trim()
        end = State.now()
    start = finding.start or before
    return {
        "size": finding.size,
        "settings": finding.settings,
        "checked": list(finding.checks),
        "wrong": [name for name, is_so in finding.checks.items() if not is_so],
        "seconds": round(seconds, 1),
        "memory_start": start.memory,
        "memory_end": end.memory,
        "memory_peak": round(most / MEGABYTE, 1),
        "private_peak": round(max(seen) / MEGABYTE, 1),
        "threads_start": start.threads,
        "threads_end": end.threads,
        "files_start": start.files,
        "files_end": end.files,
    }
