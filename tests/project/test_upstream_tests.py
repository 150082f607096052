"""The lists of other libraries' tests that fail with our classes: each entry has a reason."""

import doctest
import importlib
import pathlib

import pytest

CI = pathlib.Path(__file__).parents[2] / ".ci"


@pytest.fixture
def load(monkeypatch):
    """Import a script of the folder by its name."""
    monkeypatch.syspath_prepend(str(CI))
    return importlib.import_module


@pytest.mark.parametrize("name", ["skorch_tests", "sklearn_tests"])
def test_each_listed_test_has_a_reason_and_exists(load, name):
    script = load(name)
    listed = load("upstream_tests").expected_failures(script.LIST.read_text())
    assert listed
    for test, reason in listed.items():
        assert reason.endswith(".")
        file, *_, function = test.split("::")
        text = (script.TESTS / file).read_text(encoding="utf-8")
        assert f"def {function.split('[')[0]}(" in text, test


def test_the_examples_of_the_script_hold(load):
    assert doctest.testmod(load("upstream_tests")).failed == 0


def test_a_test_is_repeated_until_it_passes(load):
    calls = []

    @load("skorch_tests").flaky(max_runs=3)
    def passes_at_the_second_call():
        calls.append(1)
        assert len(calls) == 2

    passes_at_the_second_call()
    assert len(calls) == 2


def test_the_searches_keep_the_parameters_of_scikit_learn(load):
    from sklearn.model_selection import GridSearchCV, RandomizedSearchCV

    for name, theirs in (
        ("GridSearchCV", GridSearchCV),
        ("RandomizedSearchCV", RandomizedSearchCV),
    ):
        ours = getattr(load("sklearn_tests"), name)
        assert set(ours._get_param_names()) == set(theirs._get_param_names())
