"""The file of results: each part is kept as soon as it is measured."""

import hashlib
import json
import os
import pathlib
import platform
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

import mixupe_sklearn
from benchmarks._writing import write_text

LIBRARIES = ("mixupe-sklearn", "torch", "scikit-learn", "skorch", "numpy", "pytabkit")

Figures = dict[str, Any]


def n_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def describe_machine() -> dict[str, Any]:
    """The machine in general terms: nothing that names it."""
    return {
        "cores": n_cores(),
        "processor": f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}",
        "system": platform.system(),
        "gpu": torch.cuda.is_available(),
    }


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that are there."""
    found = {"Python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def fingerprint(folder: pathlib.Path) -> str:
    """A short text that changes with any source file of a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def describe_run(scale: str) -> Figures:
    """What must be equal for a run to go on from an older one's parts."""
    package = pathlib.Path(mixupe_sklearn.__file__).parent
    return {
        "scale": scale,
        "versions": versions(),
        "source": fingerprint(package),
        "machine": describe_machine(),
    }


class Store:
    """A JSON file with the description of a run and its parts.

    Parameters
    ----------
    path : path
        The file. Parts of an equal run that are in it are not measured again; those of another
        run are written over.
    run : dict
        What describes this run.
    is_fresh : bool, default=False
        Whether all is measured again.
    again : sequence of str, default=()
        Parts that alone are measured again, with the source of today. The others stay, and the
        file says which were measured with which source.
    """

    def __init__(
        self,
        path: pathlib.Path,
        run: Figures,
        is_fresh: bool = False,
        again: Sequence[str] = (),
    ):
        self.path = path
        self.run = run
        kept = read(path) if path.exists() and not is_fresh else {}
        if again:
            _check_parts(again, kept)
            later = {**kept["run"].get("again", {}), **dict.fromkeys(again, run["source"])}
            self.run = {**kept["run"], "again": later}
            self.parts: Figures = {
                name: part for name, part in kept["parts"].items() if name not in again
            }
        else:
            self.parts = kept["parts"] if kept.get("run") == run else {}

    def part(self, name: str, measure: Callable[[], Figures]) -> Figures:
        """A part by name: kept from before, or measured and kept now."""
        if name not in self.parts:
            self.parts[name] = measure()
            self._write()
        return self.parts[name]

    def _write(self) -> None:
        text = json.dumps({"run": self.run, "parts": self.parts}, indent=1)
        write_text(self.path, _join_numbers(text) + "\n")


def _check_parts(names: Sequence[str], kept: Figures) -> None:
    known = list(kept.get("parts", {}))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(
            f"Got --again {unknown[0]}, but expected parts that are in the file: "
            f"{', '.join(known) or 'it has none'}."
        )


def _join_numbers(text: str) -> str:
    """Lists of numbers on one line each: a file to be read, and to be compared."""
    lines: list[str] = []
    for line in text.splitlines():
        bare = line.strip()
        if lines and lines[-1].endswith(("[", ", ")) and bare[:1] in "-0123456789":
            lines[-1] += bare + (" " if bare.endswith(",") else "")
        elif lines and bare in ("]", "],") and lines[-1][-1:] in "0123456789":
            lines[-1] += bare
        else:
            lines.append(line)
    return "\n".join(lines)


def read(path: pathlib.Path) -> Figures:
    """The results in a file, or one sentence why they cannot be had."""
    try:
        results = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(
            f"Got {path.name}, which is no JSON ({error}), but expected results of an earlier run; "
            f"--fresh measures anew."
        ) from None
    if not isinstance(results, dict) or not {"run", "parts"} <= set(results):
        raise ValueError(
            f"Got {path.name} without run and parts, but expected results of an earlier run; "
            f"--fresh measures anew."
        )
    return results
