"""Let things go wrong, for real, and count what of the finished work is kept, doubled or lost.

    python -m benchmarks.faults                       # all rows of the table: some minutes
    python -m benchmarks.faults --times 2 --only "kill -9" --work save search

Each fault happens to processes at work, in folders of their own on a small file system in memory,
which is full or read-only when that is the fault. That takes a mount namespace: the command
starts itself anew in one, by ``unshare``.
"""

import argparse
import contextlib
import csv
import importlib
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks._candidates import page
from benchmarks._faults import tries
from benchmarks._faults.children import Child
from benchmarks._faults.tries import Strike, Tally
from benchmarks._faults.works import WORKS
from benchmarks._tabular.running import commit, versions_of
from benchmarks._writing import write_text

ROOT = pathlib.Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "faults" / "faults.csv"
PAGE = ROOT / "docs" / "faults.md"
SERVER = "MIXUPE_FAULTS_SERVER"
INSIDE = "MIXUPE_FAULTS_INSIDE"

TRAINING = ("fit with checkpoints", "search", "benchmark")
# Faults by name: to what they happen, and how many times less than asked for. A fault that does
# not depend on the moment need not be tried as often.
FAULTS: dict[str, tuple[Sequence[str], int]] = {
    "kill -9": (tuple(WORKS), 1),
    "full disk": (tuple(WORKS), 1),
    "cut network": (("OpenML cache",), 1),
    "read-only folder": (tuple(WORKS), 3),
    "jumping clock": (TRAINING, 3),
    "little memory": (TRAINING, 3),
    "two at once": (tuple(WORKS), 2),
}
HEADS = ("Fault", "During", "Times tried", "Finished work kept", "Doubled", "Lost")


@contextlib.contextmanager
def strikes() -> Iterator[dict[str, Strike]]:
    """What lets each fault happen, while a server like OpenML's runs on this machine."""
    sys.path.insert(0, str(ROOT / "tests"))  # the server is that of the tests
    server_class = importlib.import_module("openml_server").OpenMLServer
    with server_class() as server:
        os.environ[SERVER] = server.url
        yield {
            "kill -9": tries.kill,
            "full disk": tries.fill_the_disk,
            "cut network": tries.cut_network(server, _paths_of(server)),
            "read-only folder": tries.forbid_writing,
            "jumping clock": tries.with_clock,
            "little memory": tries.with_little_memory,
            "two at once": tries.at_once,
        }


def _paths_of(server: Any) -> list[str]:
    """What is asked for when nothing goes wrong."""
    with tempfile.TemporaryDirectory() as folder:
        Child("OpenML cache", pathlib.Path(folder)).end()
    paths = [name.removeprefix("GET ") for name in server.counts if name.startswith("GET ")]
    server.mend()
    return sorted(paths)


def rows_of(faults: Sequence[str], works: Sequence[str]) -> Iterator[tuple[str, str, int]]:
    """Rows of the table: the fault, the work, and how many times less than asked it is tried."""
    for fault in faults:
        happens_to, share = FAULTS[fault]
        yield from ((fault, work, share) for work in happens_to if work in works)


def cells(tally: Tally) -> list[str]:
    """A row of the table."""
    numbers = (tally.n_tries, tally.n_kept, tally.n_doubled, tally.n_lost)
    return [tally.fault, tally.work, *map(str, numbers)]


def as_csv(tallies: Sequence[Tally]) -> str:
    """All rows, with what they were run on."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["fault", "work", "tries", "kept", "doubled", "lost", "versions", "commit"])
    note = [versions_of(), commit()]
    writer.writerows([*cells(tally), *note] for tally in tallies)
    return text.getvalue()


def as_markdown(rows: Sequence[Sequence[str]]) -> str:
    """The table for the page."""
    lines = [HEADS, ("---", "---", *["---:"] * 4), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def enter_namespace() -> None:
    """Start this command anew where it may mount; nobody else sees what it mounts."""
    if INSIDE not in os.environ:
        os.environ[INSIDE] = "1"
        # Python tells of locks that killed processes have left, at the end.
        os.environ.setdefault("PYTHONWARNINGS", "ignore:resource_tracker:UserWarning")
        command = ["unshare", "--user", "--map-root-user", "--mount", sys.executable]
        command += ["-m", "benchmarks.faults", *sys.argv[1:]]
        sys.exit(subprocess.run(command, check=False).returncode)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.faults", description=(__doc__ or "").splitlines()[0]
    )
    made.add_argument("--times", type=int, default=10, help="times a row is tried (default: 10)")
    made.add_argument("--only", nargs="+", choices=FAULTS, default=list(FAULTS), metavar="FAULT")
    made.add_argument("--work", nargs="+", choices=WORKS, default=list(WORKS), metavar="WORK")
    made.add_argument("--seed", type=int, default=None, help="of the moments (default: any)")
    made.add_argument(
        "--output", type=pathlib.Path, default=None, help="file of the rows (default: none)"
    )
    made.add_argument(
        "--docs", action="store_true", help=f"write {RESULTS.name} and the table of the docs"
    )
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Try all that was asked for, print the table, and end with 1 where something is not zero."""
    options = parser().parse_args(arguments)
    rng = np.random.default_rng(options.seed)
    tallies, start = [], time.perf_counter()
    with strikes() as strike_of:
        for fault, work, share in rows_of(options.only, options.work):
            times = max(1, options.times // share)
            tally = tries.run_row(Tally(fault, work), strike_of[fault], times, rng)
            tallies.append(tally)
            seconds = time.perf_counter() - start
            print(" | ".join(cells(tally)), f"({seconds:.0f} s)", file=sys.stderr, flush=True)
            for sentence in sorted(tally.sentences)[:1]:
                print(f"  told: {sentence}", file=sys.stderr, flush=True)
    rows = [cells(tally) for tally in tallies]
    print(as_markdown(rows))
    if options.docs or options.output:
        write_text(options.output or RESULTS, as_csv(tallies))
    if options.docs:
        page.write("faults", as_markdown(rows), PAGE)
    return int(any(tally.n_doubled or tally.n_lost for tally in tallies))


if __name__ == "__main__":
    enter_namespace()
    sys.exit(main())
