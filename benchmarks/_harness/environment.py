"""What a result depends on besides its parameters: code, libraries and machine."""

import hashlib
import os
import pathlib
import platform
import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

import mixupe_sklearn

ROOT = pathlib.Path(__file__).parents[2]
LIBRARIES = ("mixupe-sklearn", "torch", "scikit-learn", "skorch", "numpy", "pandas")
LIBRARY_OF = {name: name for name in ("xgboost", "lightgbm", "catboost", "optuna")}
LIBRARY_OF |= {"realmlp": "pytabkit", "tabm": "pytabkit", "gin": "torch-geometric"}


def commit() -> str:
    """Return the commit of the source, or "unknown"."""
    command = ["git", "describe", "--always", "--dirty"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    except OSError:
        return "unknown"
    return result.stdout.strip() or "unknown"


def versions(libraries: Sequence[str] = LIBRARIES) -> dict[str, str]:
    """Return the versions of Python and of some libraries."""
    found = {"Python": platform.python_version()}
    for name in libraries:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def versions_of(methods: Sequence[str] = ()) -> str:
    """Return the versions of Python and of the libraries that the methods need, in one line."""
    extra = sorted({LIBRARY_OF[name] for name in methods if name in LIBRARY_OF})
    return ", ".join(" ".join(item) for item in versions([*LIBRARIES, *extra]).items())


def n_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processor_name() -> str:
    """Return the model of the processor, where the system names it, and its vector instructions."""
    found = platform.machine()
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        found = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass  # not Linux, or a processor without the line
    return f"{found}, {torch.backends.cpu.get_cpu_capability()}"


def describe_machine() -> dict[str, Any]:
    """Describe the machine in general terms, without its name."""
    return {
        "cores": n_cores(),
        "processor": processor_name(),
        "system": platform.system(),
        "gpu": torch.cuda.is_available(),
    }


def describe_run(scale: str, libraries: Sequence[str]) -> dict[str, Any]:
    """Describe a run: parts of an older run are kept if their description is equal."""
    package = pathlib.Path(mixupe_sklearn.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode())
        digest.update(path.read_bytes())
    return {
        "scale": scale,
        "versions": versions(libraries),
        "source": digest.hexdigest()[:12],
        "machine": describe_machine(),
    }
