"""Inject faults into running processes, and count finished work that is kept, doubled or lost.

Each workload has a small file system in memory, which becomes full or read-only when that is the
fault. This needs a mount namespace: the command restarts itself in one with ``unshare``.
"""

import argparse
import contextlib
import importlib
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from benchmarks._harness.cli import positive_int
from benchmarks._harness.docs_tables import write_block
from benchmarks._harness.environment import ROOT, commit, versions_of
from benchmarks._harness.results_file import write_text
from benchmarks._harness.subprocesses import CONTEXT, ReportingProcess
from benchmarks.reliability._workloads import WORKLOADS, work

RESULTS = ROOT / "benchmarks" / "results" / "faults" / "faults.csv"
PAGE = ROOT / "docs" / "benchmarks" / "faults.md"
SERVER = "MIXUPE_FAULTS_SERVER"
INSIDE = "MIXUPE_FAULTS_INSIDE"
COLUMNS = ("Fault", "During", "Times tried", "Finished work kept", "Doubled", "Lost")

# At most so many units finish, and so many seconds pass, between two faults.
N_BETWEEN, SECONDS_BETWEEN = 4, 0.06
DISK = "16m"
# What is damaged at once: a page of a database. Files without content of their own are left out.
PAGE_BYTES, NOT_DAMAGED = 4096, (".lock", ".part", ".db-wal", ".db-shm")
WORKLOAD_MODULE = "benchmarks.reliability._workloads"
CONTEXT.set_forkserver_preload(
    ["torch._dynamo", "alembic.command", "pyarrow.parquet", WORKLOAD_MODULE]
)


@dataclass
class Tally:
    """The counts of one row, and the error messages."""

    fault: str
    work: str
    n_tries: int = 0
    n_kept: int = 0
    n_doubled: int = 0
    n_lost: int = 0
    messages: set[str] = field(default_factory=set)

    def cells(self) -> list[str]:
        """The row as text."""
        numbers = (self.n_tries, self.n_kept, self.n_doubled, self.n_lost)
        return [self.fault, self.work, *map(str, numbers)]


class Trial:
    """A workload in its own folder, from start to end; the generator draws moments of faults."""

    def __init__(
        self, tally: Tally, folder: pathlib.Path, rng: np.random.Generator, server: Any = None
    ):
        self.tally = tally
        self.folder = folder
        self.rng = rng
        self.server = server
        self.work = WORKLOADS[tally.work]
        self.reported: dict[str, str] = {}
        self.lost: set[str] = set()

    def start(self, environment: str = "") -> ReportingProcess:
        """Start a process that continues the work."""
        return ReportingProcess(work, self.tally.work, self.folder, environment)

    def start_until_a_moment(self) -> tuple[ReportingProcess, bool]:
        """Start a process and wait for a random moment; return whether it still runs."""
        child = self.start()
        is_running = child.wait_for(int(self.rng.integers(0, N_BETWEEN + 1)))
        time.sleep(self.rng.uniform(0, SECONDS_BETWEEN))
        return child, is_running and child.process.is_alive()

    def record(self, *children: ReportingProcess) -> None:
        """Count a fault; units that the processes have reported must be in the files."""
        self.tally.n_tries += 1
        for child in children:
            self.reported |= child.units
            self.tally.messages |= {child.message} - {""}
        self.read_files()

    def finish(self) -> None:
        """Continue the work to its end, and count."""
        last = self.start()
        if last.join() != 0:  # then missing units count as lost
            self.tally.messages.add(last.message or "a process died while it continued")
        self.count()

    def count(self) -> None:
        """Count the units of the files that are kept, doubled and lost."""
        names = Counter(name for name, _ in self.read_files())
        self.tally.n_kept += len(self.reported.keys() - self.lost)
        self.tally.n_doubled += sum(names.values()) - len(names)
        self.tally.n_doubled += max(0, len(names) - self.work.n_units)
        self.tally.n_doubled += len(list(self.folder.rglob("*.part")))
        missing = max(0, self.work.n_units - len(names))
        self.tally.n_lost += max(len(self.lost), missing)

    def read_files(self) -> list[tuple[str, str]]:
        """Read the units of the files, and note those that have been lost."""
        try:
            found = self.work.finished(self.folder)
        except Exception as error:  # unreadable files have no units
            self.tally.messages.add(f"unreadable: {type(error).__name__}: {error}")
            found = []
        units = set(found)
        self.lost |= {name for name, value in self.reported.items() if (name, value) not in units}
        return found


def end(trial: Trial, how: signal.Signals) -> bool:
    """A signal at a random moment."""
    child, is_running = trial.start_until_a_moment()
    if is_running:
        child.signal(how)
    if child.join() == 0:
        return False
    trial.record(child)
    return True


def kill_a_worker(trial: Trial) -> bool:
    """SIGKILL of a worker process: the search goes on, or ends itself, with a message."""
    child, _ = trial.start_until_a_moment()
    found = workers_of(child.process.pid)
    for worker in found[:1]:
        os.kill(worker, signal.SIGKILL)
    status = child.join()
    if status == 0 and found:
        trial.record(child)
    return record_error(trial, child, status)


def workers_of(parent: int | None) -> list[int]:
    """The worker processes that joblib has started for a process."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            is_child = f"\nPPid:\t{parent}\n" in (folder / "status").read_text()
            if is_child and b"popen_loky_posix" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def fill_the_disk(trial: Trial) -> bool:
    """A full disk at a random moment: the process must end itself, with a message."""
    child, is_running = trial.start_until_a_moment()
    filler, size = trial.folder.parent / "filler", 0
    if is_running:
        n_left = int(trial.rng.integers(0, 8192))
        with filler.open("wb", buffering=0) as file:
            try:
                while True:
                    size += file.write(bytes(65536))
            except OSError:
                file.truncate(max(0, size - n_left))
    status = child.join()
    filler.unlink(missing_ok=True)
    return record_error(trial, child, status)


def record_error(trial: Trial, child: ReportingProcess, status: int) -> bool:
    """Count a process that had to end with a message; return whether it had to."""
    if status == 0:
        return False
    if status < 0 or not child.message:
        raise RuntimeError(
            f"Got a process that ended with {status}, but expected one that ends with a message."
        )
    trial.record(child)
    return True


def forbid_writing(trial: Trial) -> bool:
    """A read-only disk when the work is to continue: a message, and no change."""
    first, is_running = trial.start_until_a_moment()
    first.kill()
    trial.reported |= first.units
    if not is_running:
        return False
    remount = ["mount", str(trial.folder.parent), "-o"]
    subprocess.run([*remount, "remount,ro"], check=True)
    try:
        child = trial.start()
        status = child.join()
    finally:
        subprocess.run([*remount, "remount,rw"], check=True)
    return record_error(trial, child, status)


def damage(trial: Trial) -> bool:
    """Random bytes in the middle of a file: a message, or the work is done again."""
    first, is_running = trial.start_until_a_moment()
    first.kill()
    trial.reported |= first.units
    trial.read_files()  # which also ends the write-ahead log of a database
    paths = [path for path in trial.folder.rglob("*") if path.is_file() and path.stat().st_size]
    paths = sorted(path for path in paths if path.suffix not in NOT_DAMAGED)
    if not is_running or not paths:
        return is_running
    path = paths[trial.rng.integers(len(paths))]
    content = path.read_bytes()
    size = min(PAGE_BYTES, len(content) // 4 + 1)
    start = (len(content) - size) // 2 // size * size
    path.write_bytes(content[:start] + trial.rng.bytes(size) + content[start + size :])
    child = trial.start()
    status = child.join()
    if status == 0:
        trial.record(child)
    else:
        path.write_bytes(content)  # as the message advises
    return record_error(trial, child, status)


def replace_database(trial: Trial) -> bool:
    """A copy takes the place of a database during the search: a message, and all of it is kept."""
    child, is_running = trial.start_until_a_moment()
    path, copies = trial.folder / "search.db", trial.folder.parent / "copies"
    if is_running and path.exists():
        child.signal(signal.SIGSTOP)
        copies.mkdir(exist_ok=True)
        with (
            contextlib.closing(sqlite3.connect(path)) as source,
            contextlib.closing(sqlite3.connect(copies / path.name)) as copy,
        ):
            source.backup(copy)
        units = dict(trial.work.finished(copies))
        (copies / path.name).replace(path)
        child.signal(signal.SIGCONT)
        if status := child.join():
            child.units = units  # what the process wrote to the old file is done again
        return record_error(trial, child, status)
    child.kill()
    trial.reported |= child.units
    return is_running


def cut_network(trial: Trial) -> bool:
    """The server's answer to a random request breaks off."""
    share, path = trial.rng.uniform(), str(trial.rng.choice(trial.server.paths))
    trial.server.fault(
        path, lambda answer: replace(answer, n_sent=int(share * len(answer.content)))
    )
    child = trial.start()
    status = child.join()
    trial.server.reset()
    return record_error(trial, child, status)


def run_together(trial: Trial, n_processes: int = 1, environment: str = "") -> bool:
    """Processes do the same work at once; one may refuse with a message."""
    if environment == "clock" and trial.tally.work == "search":
        n_processes = 2  # they read each other's heartbeats
    children = [trial.start(environment) for _ in range(n_processes)]
    statuses = [child.join() for child in children]
    if min(statuses) < 0 or 0 not in statuses:
        messages = [child.message for child in children]
        raise RuntimeError(f"Got processes that ended with {statuses} ({messages}).")
    trial.record(*children)
    return False  # the work is done


TRAINING = ("fit with checkpoints", "search", "benchmark")
EVERY = (*TRAINING, "save", "spectrogram cache", "OpenML cache")
SEARCHES = ("search", "search with two workers")
# By fault: the function that injects it once and returns whether work is left, the workloads,
# and a divisor of the number of tries.
FAULTS: dict[str, tuple[Callable[[Trial], bool], Sequence[str], int]] = {
    "kill -9": (partial(end, how=signal.SIGKILL), EVERY, 1),
    "SIGTERM": (partial(end, how=signal.SIGTERM), EVERY, 1),
    "dying worker": (kill_a_worker, SEARCHES[1:], 2),
    "full disk": (fill_the_disk, (*EVERY, *SEARCHES[1:]), 1),
    "damaged middle": (damage, EVERY, 1),
    "replaced database": (replace_database, SEARCHES[:1], 1),
    "cut network": (cut_network, ("OpenML cache",), 1),
    "read-only folder": (forbid_writing, EVERY, 3),
    "jumping clock": (partial(run_together, environment="clock"), TRAINING, 3),
    "little memory": (partial(run_together, environment="memory"), TRAINING, 3),
    "two at once": (partial(run_together, n_processes=2), EVERY, 2),
}


@contextlib.contextmanager
def small_disk() -> Iterator[pathlib.Path]:
    """A folder that is its own file system in memory."""
    with tempfile.TemporaryDirectory(prefix="mixupe-faults-") as name:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", name]
        subprocess.run(mount, check=True)
        try:
            yield pathlib.Path(name)
        finally:
            subprocess.run(["umount", "--lazy", name], check=True)


def run_row(tally: Tally, times: int, rng: np.random.Generator, server: Any) -> Tally:
    """Inject a fault so many times, in as many folders as that takes."""
    inject = FAULTS[tally.fault][0]
    while tally.n_tries < times:
        with small_disk() as disk:
            folder = disk / "work"
            folder.mkdir()
            trial = Trial(tally, folder, rng, server)
            while tally.n_tries < times and inject(trial):
                pass
            trial.finish()
            shutil.rmtree(folder)
    return tally


@contextlib.contextmanager
def openml_server() -> Iterator[Any]:
    """The OpenML server of the tests, with the requested ``paths`` of a run without faults."""
    sys.path.insert(0, str(ROOT / "tests"))
    server_class = importlib.import_module("openml_server").OpenMLServer
    with server_class() as server:
        os.environ[SERVER] = server.url
        with tempfile.TemporaryDirectory() as folder:
            ReportingProcess(work, "OpenML cache", pathlib.Path(folder)).join()
        names = [name.split(" ", 1) for name in server.counts]
        server.paths = sorted(path for verb, path in names if verb == "GET")
        server.reset()
        yield server


def as_markdown(rows: Sequence[Sequence[str]]) -> str:
    """The table of the page."""
    lines = [COLUMNS, ("---", "---", *["---:"] * 4), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def enter_namespace() -> None:
    """Restart this command where it may mount; nobody else sees what it mounts."""
    if INSIDE not in os.environ:
        os.environ[INSIDE] = "1"
        # Python warns of locks that killed processes have left.
        os.environ.setdefault("PYTHONWARNINGS", "ignore:resource_tracker:UserWarning")
        command = ["unshare", "--user", "--map-root-user", "--mount", sys.executable]
        command += ["-m", "benchmarks.reliability.faults", *sys.argv[1:]]
        sys.exit(subprocess.run(command, check=False).returncode)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.reliability.faults", description=(__doc__ or "").splitlines()[0]
    )
    made.add_argument("--times", type=positive_int, default=10, help="tries of a row (10)")
    made.add_argument("--only", nargs="+", choices=FAULTS, default=list(FAULTS), metavar="FAULT")
    works = list(WORKLOADS)
    made.add_argument("--work", nargs="+", choices=works, default=works, metavar="WORK")
    made.add_argument("--seed", type=int, help="of the moments (random)")
    made.add_argument("--output", type=pathlib.Path, help="file of the rows (none)")
    words = f"write {RESULTS.name} and the table of the docs"
    made.add_argument("--docs", action="store_true", help=words)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Inject all faults, print the table, and return 1 if work was doubled or lost."""
    options = parser().parse_args(arguments)
    rng = np.random.default_rng(options.seed)
    tallies, start = [], time.perf_counter()
    with openml_server() as server:
        for fault, name in ((f, w) for f in options.only for w in FAULTS[f][1]):
            if name not in options.work:
                continue
            times = max(1, options.times // FAULTS[fault][2])
            tally = run_row(Tally(fault, name), times, rng, server)
            tallies.append(tally)
            seconds = time.perf_counter() - start
            print(" | ".join(tally.cells()), f"({seconds:.0f} s)", file=sys.stderr, flush=True)
            for message in sorted(tally.messages)[:1]:
                print(f"  message: {message}", file=sys.stderr, flush=True)
    table = as_markdown([tally.cells() for tally in tallies])
    print(table)
    if options.docs or options.output:
        names = ["fault", "work", "tries", "kept", "doubled", "lost"]
        rows = pd.DataFrame([tally.cells() for tally in tallies], columns=names)
        rows = rows.assign(versions=versions_of(), commit=commit())
        write_text(options.output or RESULTS, rows.to_csv(index=False))
    if options.docs:
        write_block(PAGE, "faults", table)
    return int(any(tally.n_doubled or tally.n_lost for tally in tallies))


if __name__ == "__main__":
    enter_namespace()
    sys.exit(main())
