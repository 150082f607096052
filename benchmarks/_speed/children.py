"""What needs a process of its own: imports, memory, and a core kept busy."""

import json
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import packages_distributions, requires
from typing import Any

from benchmarks._speed import memory
from benchmarks._speed.timing import Run, Times, seconds_of, take_turns

ROOT = pathlib.Path(__file__).parents[2]
# A program that imports, and prints how long it took and which modules it has then.
IMPORTING = """
import json, sys, time
start = time.perf_counter()
{statement}
seconds = time.perf_counter() - start
modules = sorted({{name.split(".")[0] for name in sys.modules}})
print(json.dumps({{"seconds": seconds, "modules": modules}}))
"""
IMPORTS = {
    "alone": "import torch, sklearn",
    "with-skorch": "import torch, sklearn, skorch",
    "with-ours": "import torch, sklearn\nfrom mixupe_sklearn import MixupEClassifier",
}
SPINNING = """
print("on", flush=True)
while True:
    sum(range(1000))
"""


def run_child(arguments: Sequence[str]) -> Any:
    """Run Python with some arguments, and read the JSON that it prints last."""
    command = [sys.executable, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if result.returncode:
        last_words = (result.stderr.strip().splitlines() or ["none"])[-1]
        raise RuntimeError(
            f"Got exit status {result.returncode} of a child process, but expected 0; its last "
            f"words: {last_words}."
        )
    return json.loads(result.stdout.splitlines()[-1])


def measure_imports(n_rounds: int) -> dict[str, Any]:
    """Seconds of each import in new processes that take turns, and extras that ours brought."""
    modules: dict[str, set[str]] = {}

    def clock(name: str, run: Run) -> float:
        found: Any = run()
        modules[name] = set(found["modules"])
        return found["seconds"]  # not those of starting a process

    runs = {name: _importing(statement) for name, statement in IMPORTS.items()}
    take_turns(runs, 1, clock=clock)  # the files come from the disk once
    times = take_turns(runs, n_rounds, clock=clock)
    seconds = {name: [round(value, 4) for value in values] for name, values in times.items()}
    # What scikit-learn and skorch bring along where it is installed is not of our asking.
    extras = extras_among(modules["with-ours"] - modules["with-skorch"])
    return {"seconds": seconds, "extras": extras}


def _importing(statement: str) -> Run:
    return lambda: run_child(["-c", IMPORTING.format(statement=statement)])


def extras_among(modules: set[str]) -> list[str]:
    """Those modules that belong to a library which is no more than an extra of ours.

    Examples
    --------
    >>> extras_among({"skorch", "optuna"})
    ['optuna']
    """
    wanted = requires("mixupe-sklearn") or []
    # "optuna>=5.0; extra == 'search'" is an extra's; a line without a condition is not.
    extras = {_name_of(line) for line in wanted if "extra ==" in line}
    extras -= {_name_of(line) for line in wanted if "extra ==" not in line}
    owners = packages_distributions()
    return sorted(m for m in modules if any(_plain(owner) in extras for owner in owners.get(m, [])))


def _name_of(requirement: str) -> str:
    return _plain(re.split(r"[^\w.-]", requirement, maxsplit=1)[0])


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def measure_memory(n_rows: int, kinds: Sequence[str]) -> dict[str, Any]:
    """Memory of fit and predict on tables of some kinds; empty where it cannot be had."""
    if not memory.can_measure():
        return {}
    command = ["-m", "benchmarks._speed.memory", "--rows", str(n_rows), "--kind"]
    return {kind: run_child([*command, kind]) for kind in kinds}


@contextmanager
def busy_cores(n_cores: int) -> Iterator[None]:
    """Keep so many cores busy with processes that never rest."""
    command = [sys.executable, "-c", SPINNING]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(n_cores)]
    try:
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()
        time.sleep(0.1)  # until the scheduler has given each its place
        yield
    finally:
        for child in children:
            child.kill()
            child.communicate()


def beside_busy_cores(
    runs: Mapping[str, Run], n_rounds: int, n_cores: int, most_seconds: float = float("inf")
) -> Times:
    """Seconds of each run alone, and, as ``beside NAME``, with so many cores busy, in turns."""

    def clock(name: str, run: Run) -> float:
        with busy_cores(n_cores if name.startswith("beside ") else 0):
            return seconds_of(name, run)

    pairs = ((name, f"beside {name}") for name in runs)
    both = {one: runs[name] for name, pair in zip(runs, pairs, strict=True) for one in pair}
    return take_turns(both, n_rounds, most_seconds=most_seconds, clock=clock)
