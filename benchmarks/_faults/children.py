"""Processes at work: begun, watched by what they tell, and ended by themselves or by a signal."""

import itertools
import multiprocessing
import os
import pathlib
import resource
import sqlite3
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks._faults.works import SMALL, run_quietly
from mixupe_sklearn import MixupEClassifier
from mixupe_sklearn._search import storage

# Seconds after which a process that neither ends nor tells anything hangs.
PATIENCE = 120.0
# Processes start at once from a server that has imported all and has run nothing.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch._dynamo", "alembic.command", "pyarrow.parquet", __name__])
DAY = 24 * 3600


def set_the_clock() -> None:
    """From now on the wall clock jumps by days, ahead and back, with each look at it."""
    clock, jumps = time.time, itertools.cycle([0.0, 3 * DAY, -2 * DAY, 7 * DAY, -5 * DAY])
    time.time = lambda: clock() + next(jumps)
    time.time_ns = lambda: int(time.time() * 1e9)
    connect = storage._open_sqlite

    def connect_with_clock(path: str) -> sqlite3.Connection:
        connection = connect(path)

        def now() -> str:  # SQLite has a clock of its own
            return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time.time()))

        connection.create_function("current_timestamp", 0, now)
        return connection

    storage._open_sqlite = connect_with_clock


def limit_memory() -> None:
    """Allow little memory (as ``ulimit -v`` does), and try what is too large for it."""
    used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
    limit = used + 400 * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    X, y = np.zeros((40, 1000)), np.arange(40) % 2
    params = SMALL | {"batch_size": 20, "max_epochs": 1}
    large = MixupEClassifier(**params | {"module_params": {"d_hidden": (400_000,)}})
    refused(lambda: large.fit(X, y))
    fitted = MixupEClassifier(**params).fit(X, y)
    refused(lambda: fitted.predict_proba(np.ones((200_000, 1000))))


def refused(call: Callable[[], Any]) -> None:
    """Call what is too large: the answer must be an error that has a sentence."""
    try:
        call()
    except (MemoryError, RuntimeError) as error:
        if "alloc" not in str(error):
            raise
        return
    raise AssertionError("what is too large for the memory went through")


SETTINGS: dict[str, Callable[[], None]] = {
    "": lambda: None,
    "clock": set_the_clock,
    "memory": limit_memory,
}


def work(name: str, folder: pathlib.Path, told: Any, setting: str) -> None:
    """In a process of its own: work, and end with a sentence where that cannot go on."""
    try:
        SETTINGS[setting]()
        run_quietly(name, folder, lambda *unit: told.send(unit))
    except (OSError, ValueError, RuntimeError) as error:
        told.send(f"{type(error).__name__}: {error}")
        sys.exit(2)


class Child:
    """A process at work, and what it has told.

    Parameters
    ----------
    name : str
        The work.
    folder : pathlib.Path
        Where its files are.
    setting : {"", "clock", "memory"}, default=""
        What is changed before it begins.
    """

    def __init__(self, name: str, folder: pathlib.Path, setting: str = ""):
        self.units: dict[str, str] = {}
        self.sentence = ""
        self._told, other = CONTEXT.Pipe(duplex=False)
        self.process = CONTEXT.Process(target=work, args=(name, folder, other, setting))
        self.process.start()
        other.close()

    def listen(self, n_more: int) -> bool:
        """Wait until so many units more are finished; return whether it still is at work."""
        for _ in range(n_more):
            if not self._told.poll(PATIENCE):
                self.process.kill()
                raise RuntimeError("Got a process that does nothing, but expected it to go on.")
            try:
                told = self._told.recv()
            except EOFError:  # it has ended
                return False
            if isinstance(told, str):
                self.sentence = told
            else:
                self.units[told[0]] = told[1]
        return True

    def end(self) -> int:
        """Hear all that it tells, wait for its end, and return how it ended."""
        while self.listen(1):
            pass
        self.process.join()
        return self.process.exitcode or 0

    def kill(self) -> None:
        """End it at once (SIGKILL), wherever it is."""
        self.process.kill()
        self.end()
