"""Known weaknesses of the packages that are pinned, asked of OSV by pip-audit.

It needs a network. Where the service cannot be reached, one line says that nothing was asked, and
the exit status is 0; a weakness, or an audit that breaks for another reason, gives 1.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import threading

import requests

ROOT = pathlib.Path(__file__).parents[1]
SERVICE = "https://api.osv.dev/v1/query"
NOT_RUN = "pip-audit: not run, the service cannot be reached"
# Seconds for the first question, and for all of them.
FIRST, ALL = 5.0, 600.0
# What pip-audit's last words name where the service was lost on the way.
LOST = ("ConnectionError", "Timeout", "ServiceError", "HTTPError")


def is_reached(service: str, seconds: float) -> bool:
    """Whether the service answers a first question in time."""
    answers: list[bool] = []

    def ask() -> None:
        question = {"package": {"name": "pip", "ecosystem": "PyPI"}, "version": "26.0"}
        try:
            answers.append(requests.post(service, json=question, timeout=seconds).ok)
        except requests.RequestException:
            answers.append(False)

    # A thread, as looking up a name has no time limit of its own.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    return answers == [True]


def audit(requirements: pathlib.Path, service: str, seconds: float) -> int:
    """Ask of each package, print the weak ones, and give an exit status."""
    with tempfile.TemporaryDirectory() as folder:
        found = pathlib.Path(folder, "found.json")
        command = [sys.executable, "-m", "pip_audit", "--no-deps", "--disable-pip", "-s", "osv"]
        command += ["--osv-url", service, "-r", str(requirements), "-f", "json", "-o", str(found)]
        command += ["--progress-spinner", "off", "--timeout", f"{FIRST:.0f}"]
        try:
            result = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=seconds
            )
        except subprocess.TimeoutExpired:
            print(f"pip-audit: not run to its end, it took more than {seconds:g} s")
            return 0
        if not found.exists():
            return _tell_failure(result.stderr.strip().splitlines() or ["no word of it"])
        return _tell(json.loads(found.read_text())["dependencies"])


def _tell_failure(lines: list[str]) -> int:
    is_lost = any(name in lines[-1] for name in LOST)
    print(f"pip-audit: not run to its end, {'the service was lost: ' * is_lost}{lines[-1]}")
    return 0 if is_lost else 1


def _tell(packages: list[dict]) -> int:
    weak = [package for package in packages if package.get("vulns")]
    for package in weak:
        names = ", ".join(vulnerability["id"] for vulnerability in package["vulns"])
        print(f"pip-audit: {package['name']} {package['version']} has known weaknesses: {names}")
    if not weak:
        print(f"pip-audit: no known weakness in {len(packages)} packages")
    return 1 if weak else 0


def main(arguments: list[str] | None = None) -> int:
    """Read the command line, and audit where the service answers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requirements", type=pathlib.Path, default=ROOT / "constraints.txt")
    parser.add_argument("--service", default=SERVICE)
    parser.add_argument("--first", type=float, default=FIRST, help="seconds for a first answer")
    options = parser.parse_args(arguments)
    if not is_reached(options.service, options.first):
        print(NOT_RUN)
        return 0
    return audit(options.requirements, options.service, ALL)


if __name__ == "__main__":
    sys.exit(main())
