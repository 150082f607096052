"""Run skorch's own tests with our nets in the place of skorch's.

    python .ci/skorch_tests.py [options of pytest]

``MixupENet`` takes the place of ``NeuralNetClassifier``, ``MixupENetRegressor`` that of
``NeuralNetRegressor``. The modules of the tests return logits, as our nets expect. The tests are
those of the installed skorch. ``skorch_expected_failures.txt`` lists the failures that remain, each
with its reason. A listed test that passes, or that skorch no longer has, is a failure too, so that
the list stays true.
"""

import functools
import os
import pathlib
import sys
import tempfile
import types
from collections.abc import Callable
from typing import Any

import pytest
import skorch
import skorch.toy

from mixupe_sklearn import MixupENet, MixupENetRegressor

HERE = pathlib.Path(__file__).resolve().parent
LIST = HERE / "skorch_expected_failures.txt"
TESTS = pathlib.Path(skorch.__file__).parent / "tests"
NAMES = ("test_net.py", "test_classifier.py", "test_regressor.py", "callbacks")


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


def flaky(max_runs: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Repeat a test until it passes: the part of the package ``flaky`` that skorch's tests use."""

    def repeated(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(*args: Any, **kwargs: Any) -> None:
            for _ in range(max_runs - 1):
                try:
                    return test(*args, **kwargs)
                except AssertionError:
                    continue
            return test(*args, **kwargs)

        return run

    return repeated


def pytest_configure() -> None:
    """Replace skorch's nets before its tests import them."""
    skorch.NeuralNetClassifier = MixupENet
    skorch.NeuralNetRegressor = MixupENetRegressor
    skorch.toy.make_classifier = functools.partial(skorch.toy.make_classifier, output_nonlin=None)
    sys.modules["flaky"] = types.ModuleType("flaky")
    sys.modules["flaky"].flaky = flaky


@pytest.hookimpl(tryfirst=True)  # before an option such as -k removes tests
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the listed tests; a name without parameters stands for all of them."""
    reasons = expected_failures(LIST.read_text())
    used = set()
    for item in items:
        file = pathlib.Path(item.path).relative_to(TESTS).as_posix()
        name = "::".join([file, *item.nodeid.split("::")[1:]])
        for listed in {name, name.split("[")[0]} & set(reasons):
            used.add(listed)
            item.add_marker(pytest.mark.xfail(reason=reasons[listed], strict=True))
    if unknown := sorted(set(reasons) - used):
        raise pytest.UsageError(f"{LIST.name} lists unknown tests: {', '.join(unknown)}")


def main(options: list[str]) -> int:
    """Run the tests in a temporary folder, into which some of them write."""
    if not TESTS.is_dir():
        sys.exit(f"skorch {skorch.__version__} is installed without its tests.")
    sys.path.insert(0, str(HERE))  # the processes of pytest-xdist load this file as a plugin
    # Without the settings of a pyproject.toml above the environment.
    how = ["-c", os.devnull, "--rootdir", str(TESTS)]
    how += ["-p", "skorch_tests", "-p", "no:cacheprovider", "--disable-warnings"]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        return pytest.main([*how, *options, *(str(TESTS / name) for name in NAMES)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
