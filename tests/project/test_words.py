"""The words that the project does not use: none of them remains."""

import doctest
import importlib.util
import pathlib

import pytest

PATH = pathlib.Path(__file__).parents[2] / ".ci" / "words.py"
spec = importlib.util.spec_from_file_location("words", PATH)
words = importlib.util.module_from_spec(spec)
spec.loader.exec_module(words)


def test_no_file_holds_a_word_of_the_list():
    assert words.find() == []


def test_the_examples_of_the_script_hold():
    assert doctest.testmod(words).failed == 0


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("class PictureFolder:", ["picture"]),
        ("n_holes = 3", ["hole"]),
        ("two Teams, one CREW", ["crew", "team"]),
        ("Got 1.5, but expected a whole number.", ["whole number"]),
        ("signs of life", ["signs of life"]),
        ("the data-sets", ["data set"]),
        ("portions", ["portion"]),
    ],
)
def test_parts_of_identifiers_and_plurals_are_found(line, expected):
    assert words.words_in(line) == expected


@pytest.mark.parametrize(
    "line", ["whole", "proportion", "for example", "examine", "dataset", "data = set()", "steamer"]
)
def test_longer_words_do_not_match(line):
    assert words.words_in(line) == []


def test_an_exception_needs_its_file_and_its_line():
    assert words.is_excepted(
        "docs/development/changelog.md", "hole", "`to_onnx(hole=)` is now `missing=`"
    )
    assert not words.is_excepted("docs/serving.md", "hole", "`to_onnx(hole=)` is now `missing=`")
    assert not words.is_excepted("docs/development/changelog.md", "hole", "a hole in a column")
