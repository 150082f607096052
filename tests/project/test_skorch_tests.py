"""The list of skorch's tests that fail with our nets: each entry has a reason and exists."""

import doctest
import importlib.util
import pathlib

PATH = pathlib.Path(__file__).parents[2] / ".ci" / "skorch_tests.py"
spec = importlib.util.spec_from_file_location("skorch_tests", PATH)
skorch_tests = importlib.util.module_from_spec(spec)
spec.loader.exec_module(skorch_tests)


def test_each_listed_test_has_a_reason_and_exists():
    listed = skorch_tests.expected_failures(skorch_tests.LIST.read_text())
    assert listed
    for name, reason in listed.items():
        assert reason.endswith(".")
        file, _, test = name.split("::")
        text = (skorch_tests.TESTS / file).read_text(encoding="utf-8")
        assert f"def {test.split('[')[0]}(" in text, name


def test_the_examples_of_the_script_hold():
    assert doctest.testmod(skorch_tests).failed == 0


def test_a_test_is_repeated_until_it_passes():
    calls = []

    @skorch_tests.flaky(max_runs=3)
    def passes_at_the_second_call():
        calls.append(1)
        assert len(calls) == 2

    passes_at_the_second_call()
    assert len(calls) == 2
