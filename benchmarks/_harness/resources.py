"""What the running process uses: memory, threads and open files, as Linux counts them."""

import contextlib
import gc
import os
import pathlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

STATUS = pathlib.Path("/proc/self/status")
MEGABYTE = 2**20
PAUSE = 0.005  # seconds between two samples of the private memory


def can_measure() -> bool:
    """Whether the system reports the memory of a process."""
    return STATUS.exists()


def memory_of_process() -> dict[str, int]:
    """Bytes in use now, at most since the last ``reset_peak``, and now without pages of files."""
    text = STATUS.read_text()
    names = {"now": "VmRSS", "most": "VmHWM", "private": "RssAnon"}
    return {
        word: 1024 * int(re.findall(rf"{name}:\s+(\d+) kB", text)[0])
        for word, name in names.items()
    }


def reset_peak() -> None:
    """Set the recorded peak to the present use; where that is forbidden the old peak stays."""
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/self/clear_refs").write_text("5")


@contextlib.contextmanager
def private_memory_samples() -> Iterator[list[int]]:
    """Sample the memory without pages of files, which has no recorded peak, while a block runs."""
    samples, is_over = [memory_of_process()["private"]], threading.Event()

    def sample() -> None:
        while not is_over.wait(PAUSE):
            samples.append(memory_of_process()["private"])

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        is_over.set()
        thread.join()


def added_by(predict: Callable[[Any], np.ndarray], X: Any) -> int:
    """Bytes that a prediction uses at its peak, beyond its result."""
    reset_peak()
    before = memory_of_process()["now"]
    result = predict(X)
    # A result may reuse memory that fit has freed.
    return max(0, memory_of_process()["most"] - before - result.nbytes)


class Usage(NamedTuple):
    """Memory in MiB, with pages of files and without, threads and open files of this process."""

    memory: float
    private: float
    threads: int
    files: int

    @classmethod
    def now(cls) -> "Usage":
        """The present use, after a garbage collection."""
        gc.collect()
        found = memory_of_process()
        return cls(
            round(found["now"] / MEGABYTE, 1),
            round(found["private"] / MEGABYTE, 1),
            len(os.listdir("/proc/self/task")),
            min(_n_open_files() for _ in range(20)),
        )


def _n_open_files() -> int:
    """Open files at a moment; the sampling thread opens one now and then."""
    time.sleep(0.003)
    return len(os.listdir("/proc/self/fd"))
