"""Child processes: one that prints JSON, one that reports finished units, and busy cores."""

import json
import multiprocessing
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks._harness.paired_timing import Run, Times, seconds_of, take_turns

ROOT = pathlib.Path(__file__).parents[2]
BUSY = "print(flush=True)\nwhile True: sum(range(1000))"
PATIENCE = 120.0  # seconds without an end or a report after which a process counts as hanging
# The server has imported what the processes need, so that they start at once.
CONTEXT = multiprocessing.get_context("forkserver")


def run_child(arguments: Sequence[str]) -> Any:
    """Run Python with some arguments, and read the JSON in the last line of its output."""
    command = [sys.executable, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if result.returncode:
        message = (result.stderr.strip().splitlines() or ["none"])[-1]
        raise ChildProcessError(
            f"Got exit status {result.returncode} of a child process, but expected 0; its last "
            f"message: {message}."
        )
    return json.loads(result.stdout.splitlines()[-1])


def call_in_child(module: str, function: str, *args: Any) -> Any:
    """Call a function of a module in a new process; arguments and result go through JSON."""
    program = (
        f"import json, sys; from {module} import {function}; "
        f"print(json.dumps({function}(*json.loads(sys.argv[1]))))"
    )
    return run_child(["-c", program, json.dumps(args)])


@contextmanager
def busy_cores(n_cores: int) -> Iterator[None]:
    """Keep so many cores busy with processes that never rest."""
    command = [sys.executable, "-c", BUSY]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(n_cores)]
    try:
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()
        time.sleep(0.1)  # until the scheduler has placed them
        yield
    finally:
        for child in children:
            child.kill()
            child.communicate()


def beside_busy_cores(
    runs: Mapping[str, Run], n_rounds: int, n_cores: int, most_seconds: float = float("inf")
) -> Times:
    """Seconds of each run alone and, as ``beside NAME``, with so many busy cores, in turns."""

    def clock(name: str, run: Run) -> float:
        with busy_cores(n_cores if name.startswith("beside ") else 0):
            return seconds_of(name, run)

    both = {prefix + name: run for name, run in runs.items() for prefix in ("", "beside ")}
    return take_turns(both, n_rounds, most_seconds=most_seconds, clock=clock)


class ReportingProcess:
    """A process that reports each unit of work, by name and value, when it is finished."""

    def __init__(self, target: Callable[..., None], *args: Any):
        self.units: dict[str, str] = {}
        self.message = ""
        self._reports, sender = CONTEXT.Pipe(duplex=False)
        self.process = CONTEXT.Process(target=_run_and_report, args=(target, sender, args))
        self.process.start()
        sender.close()

    def wait_for(self, n_more: int) -> bool:
        """Wait until so many more units are finished; return whether the process still runs."""
        for _ in range(n_more):
            if not self._reports.poll(PATIENCE):
                self.process.kill()
                raise RuntimeError("Got a process that hangs, but expected it to report or end.")
            try:
                report = self._reports.recv()
            except EOFError:  # it has ended
                return False
            if isinstance(report, str):
                self.message = report
            else:
                self.units[report[0]] = report[1]
        return True

    def join(self) -> int:
        """Receive all reports, wait for the end, and return the exit status."""
        while self.wait_for(1):
            pass
        self.process.join()
        return self.process.exitcode or 0

    def signal(self, number: int) -> None:
        """Send a signal."""
        assert self.process.pid is not None  # it has been started
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        """End the process at once (SIGKILL)."""
        self.process.kill()
        self.join()


def _run_and_report(target: Callable[..., None], sender: Any, args: tuple[Any, ...]) -> None:
    try:
        target(lambda *unit: sender.send(unit), *args)
    except (OSError, ValueError, RuntimeError) as error:
        sender.send(f"{type(error).__name__}: {error}")
        sys.exit(2)
