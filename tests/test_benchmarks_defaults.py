"""The study behind the default alpha and eta: ranks by validation error alone."""

import itertools
import pathlib

import pandas as pd
import pytest

from benchmarks import defaults
from benchmarks._tabular.protocol import configs_of
from benchmarks._tabular.rows import read_rows
from mixupe_sklearn import MixupEClassifier

ROOT = pathlib.Path(__file__).parents[1]
PAIRS = [(config.alpha, config.eta) for config in configs_of("mixupe", "paper")]


def rows_of(errors):
    """Rows of data sets, from the validation error of each pair on each."""
    return pd.DataFrame(
        {
            "dataset": dataset,
            "method": "mixupe",
            "alpha": alpha,
            "eta": eta,
            "split": split,
            "error": "",
            "valid_error": error(alpha, eta) + split,
            "test_error": -error(alpha, eta),
        }
        for (dataset, error), (alpha, eta), split in itertools.product(
            errors.items(), PAIRS, range(2)
        )
    )


def test_the_pair_with_the_lowest_average_rank_wins_whatever_its_test_error():
    rows = rows_of({"iris": lambda a, e: abs(a - 0.5) + e, "wine": lambda a, e: abs(a - 0.5) + e})
    errors = defaults.validation_errors(rows)
    assert defaults.best_pair(errors) == (0.5, 0.0001)
    assert defaults.average_ranks(errors).min() == 1.0


def test_ranks_not_sizes_of_errors_count():
    """One data set with huge errors cannot outvote two with small ones."""
    small = {"iris": lambda a, e: a + e, "wine": lambda a, e: a + e}
    rows = rows_of(small | {"letter": lambda a, e: -1000 * (a + e)})
    assert defaults.best_pair(defaults.validation_errors(rows)) == (0.01, 0.0001)


def test_a_data_set_with_a_part_of_the_grid_is_left_out():
    rows = rows_of({name: lambda a, e: a + e for name in ("iris", "wine", "mnist")})
    is_gone = (rows["dataset"] == "mnist") & (rows["alpha"] == 5.0)
    assert list(defaults.validation_errors(rows[~is_gone])) == ["iris", "wine"]


def test_the_table_marks_the_lowest_rank():
    rows = rows_of({"iris": lambda a, e: a + e, "wine": lambda a, e: a + e})
    text = defaults.describe(rows)
    assert "| 0.01 | **1.00** |" in text
    assert "Lowest: alpha=0.01, eta=0.0001 (1.00)" in text
    assert "another pair: never." in text


def test_too_few_data_sets_are_refused(tmp_path, capsys):
    rows = rows_of({"iris": lambda a, e: a + e})
    with pytest.raises(ValueError, match="Got rows with 1 data sets"):
        defaults.describe(rows)
    assert defaults.main(["--rows", str(tmp_path / "none.csv")]) == 2
    assert "none.csv" in capsys.readouterr().err


def test_the_defaults_are_what_the_committed_rows_say():
    errors = defaults.validation_errors(read_rows(defaults.ROWS))
    classifier = MixupEClassifier()
    assert (classifier.alpha, classifier.eta) == defaults.best_pair(errors)


def test_the_page_tells_the_study_of_the_committed_rows():
    page = (ROOT / "docs" / "benchmark.md").read_text()
    assert defaults.describe(read_rows(defaults.ROWS)) in page
