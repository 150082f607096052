"""Run the tests that SECURITY.md and the page on faults name, and date the table of SECURITY.md.

    python .ci/claims.py

A promise names its tests as ``FILE``: ``test_name``, ``test_name``; ``FILE``: ... Without a
failure, the last column of the table becomes the date of this run and the number of tests.
"""

import datetime
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]
TABLE = ROOT / "SECURITY.md"
PAGES = (TABLE, ROOT / "docs" / "benchmarks" / "faults.md")


def named_tests(text: str) -> list[str]:
    """The tests that a text names, as pytest takes them.

    Examples
    --------
    >>> named_tests("`tests/a.py`: `test_one`, `test_two`; `tests/b.py`: `test_one`")
    ['tests/a.py::test_one', 'tests/a.py::test_two', 'tests/b.py::test_one']
    """
    file, found = "", []
    for name in re.findall(r"`(tests/[\w/]+\.py|test_\w+)`", text):
        if name.startswith("tests/"):
            file = name
        else:
            found.append(f"{file}::{name}")
    return found


def dated(page: str, date: str) -> str:
    """The page with this date in the last column of its table."""
    lines = []
    for line in page.splitlines():
        if line.startswith("| ") and (tests := named_tests(line)):
            before = line.rsplit(" | ", 1)[0]
            line = f"{before} | {date}, {len(tests)} passed |"
        lines.append(line)
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the tests; write the date and return 0 if all of them pass."""
    tests = list(dict.fromkeys(test for page in PAGES for test in named_tests(page.read_text())))
    status = subprocess.run([sys.executable, "-m", "pytest", "-q", *tests], cwd=ROOT).returncode
    if not status:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        TABLE.write_text(dated(TABLE.read_text(), today))
    return status


if __name__ == "__main__":
    sys.exit(main())
