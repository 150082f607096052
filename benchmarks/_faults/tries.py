"""One row of the table: a fault happens to a work, time after time, and the files are counted."""

import pathlib
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from benchmarks._faults.children import Child
from benchmarks._faults.works import WORKS, pieces_of

# Units that are finished at most between two faults, and seconds that pass then at most.
N_BETWEEN, SECONDS_BETWEEN = 4, 0.06
DISK = "16m"


@dataclass
class Tally:
    """What is counted in one row, and sentences that were told."""

    fault: str
    work: str
    n_tries: int = 0
    n_kept: int = 0
    n_doubled: int = 0
    n_lost: int = 0
    sentences: set[str] = field(default_factory=set)


@contextmanager
def small_disk() -> Iterator[pathlib.Path]:
    """A folder that is a file system of its own, in memory."""
    with tempfile.TemporaryDirectory(prefix="mixupe-faults-") as name:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", name]
        subprocess.run(mount, check=True)
        try:
            yield pathlib.Path(name)
        finally:
            subprocess.run(["umount", "--lazy", name], check=True)


class Trial:
    """A work in a folder of its own, from its beginning to its end, and what happens to it.

    Parameters
    ----------
    tally : Tally
        What is counted.
    folder : pathlib.Path
        Where the work's files are.
    rng : numpy.random.Generator
        Draws the moments.
    """

    def __init__(self, tally: Tally, folder: pathlib.Path, rng: np.random.Generator):
        self.tally = tally
        self.folder = folder
        self.rng = rng
        self.work = WORKS[tally.work]
        self.told: dict[str, str] = {}
        self.lost: set[str] = set()

    def begin(self, setting: str = "") -> Child:
        """A process that goes on with the work."""
        return Child(self.tally.work, self.folder, setting)

    def until_a_moment(self) -> tuple[Child, bool]:
        """A process at work at some moment; and whether it is still at work."""
        child = self.begin()
        is_at_work = child.listen(int(self.rng.integers(0, N_BETWEEN + 1)))
        time.sleep(self.rng.uniform(0, SECONDS_BETWEEN))
        return child, is_at_work and child.process.is_alive()

    def note(self, child: Child) -> None:
        """A fault has happened to a process that has ended: what it told must be in the files."""
        self.tally.n_tries += 1
        self.told |= child.units
        self._look()
        if child.sentence:
            self.tally.sentences.add(child.sentence)

    def settle(self) -> None:
        """Go on to the end, and count."""
        last = self.begin()
        if last.end() != 0:  # then what is missing counts as lost
            self.tally.sentences.add(last.sentence or "a process died in going on")
        self.count()

    def count(self) -> None:
        """Count, from the files, what of the work is kept, doubled and lost."""
        found = self._look()
        names = Counter(name for name, _ in found)
        self.tally.n_kept += len(self.told.keys() - self.lost)
        self.tally.n_doubled += sum(names.values()) - len(names)
        self.tally.n_doubled += max(0, len(names) - self.work.n_units)
        self.tally.n_doubled += len(list(pieces_of(self.folder)))
        missing = max(0, self.work.n_units - len(names))
        self.tally.n_lost += max(len(self.lost), missing)

    def _look(self) -> list[tuple[str, str]]:
        try:
            found = self.work.finished(self.folder)
        except Exception as error:  # files that cannot be read hold nothing
            self.tally.sentences.add(f"unreadable: {type(error).__name__}: {error}")
            found = []
        units = set(found)
        self.lost |= {name for name, value in self.told.items() if (name, value) not in units}
        return found


# Lets a fault happen once; returns whether there is work left for it to happen to again.
Strike = Callable[[Trial], bool]


def kill(trial: Trial) -> bool:
    """SIGKILL at some moment; return whether the work has not ended before."""
    child, is_at_work = trial.until_a_moment()
    if not is_at_work:
        child.end()
        return False
    child.kill()
    trial.note(child)
    return True


def fill_the_disk(trial: Trial) -> bool:
    """No room at some moment: the process must end by itself, with a sentence."""
    child, is_at_work = trial.until_a_moment()
    filler = trial.folder.parent / "filler"
    if is_at_work:
        fill(filler, n_left=int(trial.rng.integers(0, 8192)))
    status = child.end()
    filler.unlink(missing_ok=True)
    return noted_by_sentence(trial, child, status)


def fill(path: pathlib.Path, n_left: int) -> None:
    """Write a file until the disk is full, and cut off some bytes for others."""
    size = 0
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                size += file.write(bytes(65536))
        except OSError:
            file.truncate(max(0, size - n_left))


def noted_by_sentence(trial: Trial, child: Child, status: int) -> bool:
    """Take note of a process that had to give up; return whether it had to."""
    if status == 0:
        return False
    if status < 0 or not child.sentence:
        raise RuntimeError(
            f"Got a process that ended with {status}, but expected one that ends by itself with a "
            f"sentence."
        )
    trial.note(child)
    return True


def forbid_writing(trial: Trial) -> bool:
    """A disk that can only be read when the work is to go on: a sentence, and nothing changed."""
    first, is_at_work = trial.until_a_moment()
    first.kill()
    trial.told |= first.units
    if not is_at_work:
        return False
    remount(trial.folder.parent, "ro")
    try:
        child = trial.begin()
        status = child.end()
    finally:
        remount(trial.folder.parent, "rw")
    return noted_by_sentence(trial, child, status)


def remount(folder: pathlib.Path, how: str) -> None:
    """Make a disk read-only, or not."""
    subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=True)


def at_once(trial: Trial) -> bool:
    """Two processes do the same work at once; one may be refused with a sentence."""
    return _together(trial, [trial.begin(), trial.begin()])


def with_clock(trial: Trial) -> bool:
    """The clock jumps; a search is shared by two processes, which look at each other's signs."""
    n_processes = 2 if trial.tally.work == "search" else 1
    return _together(trial, [trial.begin("clock") for _ in range(n_processes)])


def with_little_memory(trial: Trial) -> bool:
    """What is too large is refused, and the same process goes on with its work."""
    return _together(trial, [trial.begin("memory")])


def _together(trial: Trial, children: list[Child]) -> bool:
    statuses = [child.end() for child in children]
    if min(statuses) < 0 or 0 not in statuses:
        told = [child.sentence for child in children]
        raise RuntimeError(f"Got processes that ended with {statuses} ({told}).")
    for child in children:
        trial.told |= child.units
        trial.tally.sentences |= {child.sentence} - {""}
    trial.tally.n_tries += 1
    trial._look()
    return False  # the work is done


def cut_network(server: Any, paths: Sequence[str]) -> Strike:
    """A server whose answer to one of some requests breaks off somewhere in its middle."""

    def strike(trial: Trial) -> bool:
        share = trial.rng.uniform()
        path = str(trial.rng.choice(paths))
        server.fault(path, lambda answer: replace(answer, n_sent=int(share * len(answer.content))))
        child = trial.begin()
        status = child.end()
        server.mend()
        return noted_by_sentence(trial, child, status)

    return strike


def run_row(tally: Tally, strike: Strike, times: int, rng: np.random.Generator) -> Tally:
    """Let a fault happen so many times, in as many folders as that takes."""
    while tally.n_tries < times:
        with small_disk() as disk:
            folder = disk / "work"
            folder.mkdir()
            trial = Trial(tally, folder, rng)
            while tally.n_tries < times and strike(trial):
                pass
            trial.settle()
            shutil.rmtree(folder)
    return tally
