"""Run skorch's own tests with our nets in the place of skorch's.

    python .ci/skorch_tests.py [options of pytest]

``MixupENet`` takes the place of ``NeuralNetClassifier``, ``MixupENetRegressor`` that of
``NeuralNetRegressor``. The modules of the tests return logits, as our nets expect. The tests are
those of the installed skorch. ``skorch_expected_failures.txt`` lists the failures that remain, each
with its reason.
"""

import functools
import pathlib
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import skorch
import skorch.toy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from upstream_tests import HERE, mark_listed, run

from mixupe_sklearn import MixupENet, MixupENetRegressor

LIST = HERE / "skorch_expected_failures.txt"
TESTS = pathlib.Path(skorch.__file__).parent / "tests"
NAMES = ("test_net.py", "test_classifier.py", "test_regressor.py", "callbacks")


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
    """Mark the listed tests."""
    mark_listed(items, TESTS, LIST)


if __name__ == "__main__":
    sys.exit(run("skorch_tests", TESTS, NAMES, sys.argv[1:]))
