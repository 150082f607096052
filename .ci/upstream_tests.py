"""Run the tests of an installed library with our classes in the place of its own.

Used by ``skorch_tests.py`` and ``sklearn_tests.py``. A text file lists the failures that remain,
each with its reason. A listed test that passes, or that the library no longer has, is a failure
too, so that the list stays true.
"""

import os
import pathlib
import sys
import tempfile
from collections.abc import Sequence

import pytest

HERE = pathlib.Path(__file__).resolve().parent


def expected_failures(text: str) -> dict[str, str]:
    r"""Return the reason for each listed test: indented lines follow the line of their reason.

    >>> expected_failures("It is slow.\n  a.py::test_b\n  a.py::test_c[1]\n")
    {'a.py::test_b': 'It is slow.', 'a.py::test_c[1]': 'It is slow.'}
    """
    found, reason = {}, ""
    for line in filter(str.strip, text.splitlines()):
        if line.startswith(" "):
            found[line.strip()] = reason
        else:
            reason = line
    return found


def mark_listed(items: Sequence[pytest.Item], tests: pathlib.Path, listed: pathlib.Path) -> None:
    """Mark the listed tests; a name without parameters stands for all of them."""
    reasons = expected_failures(listed.read_text())
    used = set()
    for item in items:
        file = pathlib.Path(item.path).relative_to(tests).as_posix()
        name = "::".join([file, *item.nodeid.split("::")[1:]])
        for found in {name, name.split("[")[0]} & set(reasons):
            used.add(found)
            item.add_marker(pytest.mark.xfail(reason=reasons[found], strict=True))
    if unknown := sorted(set(reasons) - used):
        raise pytest.UsageError(f"{listed.name} lists unknown tests: {', '.join(unknown)}")


def run(plugin: str, tests: pathlib.Path, names: Sequence[str], options: Sequence[str]) -> int:
    """Run the tests in a temporary folder, into which some of them write."""
    if not tests.is_dir():
        sys.exit(f"{tests.parent.name} is installed without its tests.")
    sys.path.insert(0, str(HERE))  # the processes of pytest-xdist load the plugin
    # Without the settings of a pyproject.toml above the environment.
    how = ["-c", os.devnull, "--rootdir", str(tests), "-p", plugin]
    how += ["-p", "no:cacheprovider", "--disable-warnings"]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        return pytest.main([*how, *options, *(str(tests / name) for name in names)])
