"""The study behind the alpha and eta of the paper's preset: ranks by validation error alone."""

import itertools
import json
import pathlib

import pandas as pd
import pytest

from benchmarks import defaults
from benchmarks._tabular.protocol import TRAINING, configs_of
from benchmarks._tabular.rows import read_rows
from mixupe_sklearn import preset

ROOT = pathlib.Path(__file__).parents[2]
PAIRS = [(config.alpha, config.eta) for config in configs_of("mixupe", "paper")]


def rows_of(wrong):
    """Rows of data sets, from the wrong answers (of 200) of each pair, by its place in the grid."""
    return pd.DataFrame(
        {
            "dataset": dataset,
            "method": "mixupe",
            "alpha": pair[0],
            "eta": pair[1],
            "split": split,
            "splits": "holdout",
            "params": json.dumps(TRAINING, sort_keys=True),
            "n_rows": 1000,
            "error": "",
            "valid_error": count(place) / 2,
            "test_error": -float(count(place)),
        }
        for (dataset, count), (place, pair), split in itertools.product(
            wrong.items(), enumerate(PAIRS), range(5)
        )
    )


def test_the_pair_with_the_lowest_average_rank_wins_whatever_its_test_error():
    rows = rows_of({name: lambda place: abs(place - 17) for name in ("iris", "wine")})
    wrong = defaults.wrong_answers(rows)
    assert defaults.best_pair(wrong) == PAIRS[17]
    assert defaults.average_ranks(wrong).min() == 1.0


def test_ranks_not_sizes_of_errors_count():
    """One data set with many errors cannot outvote two with few."""
    few = {name: lambda place: place for name in ("iris", "wine")}
    rows = rows_of(few | {"letter": lambda place: 4 * (44 - place)})
    assert defaults.best_pair(defaults.wrong_answers(rows)) == PAIRS[0]


def test_rounded_percentages_of_equal_counts_are_tied():
    """Rows hold six digits: 33.3333 + 66.6667 and 66.6667 + 33.3333 are not the only way to 100."""
    rows = rows_of({name: lambda place: 0 for name in ("iris", "wine")})
    rows["n_rows"] = 150  # 30 rows to choose with
    shares = [[10, 0, 0, 0, 0], [2, 2, 2, 2, 2]]
    rows["valid_error"] = [
        float(f"{100 * shares[number // 5 % 2][number % 5] / 30:.6g}")
        for number in range(len(rows))
    ]
    assert defaults.average_ranks(defaults.wrong_answers(rows)).nunique() == 1


@pytest.mark.parametrize(
    "lose",
    [
        lambda rows: rows[~((rows["dataset"] == "mnist") & (rows["alpha"] == 5.0))],
        lambda rows: rows[~((rows["dataset"] == "mnist") & (rows["split"] == 3))],
        lambda rows: rows.assign(params=rows["params"].mask(rows["dataset"] == "mnist", "{}")),
        lambda rows: rows.assign(splits=rows["splits"].mask(rows["dataset"] == "mnist", "task 3")),
    ],
    ids=["part of the grid", "part of the splits", "other epochs", "other splits"],
)
def test_a_data_set_without_the_whole_protocol_is_left_out_and_named(lose):
    rows = lose(rows_of({name: lambda place: place for name in ("iris", "wine", "mnist")}))
    assert list(defaults.wrong_answers(rows)) == ["iris", "wine"]
    assert "Left out, as the grid is not whole: mnist." in defaults.describe(rows)


def test_the_table_marks_the_lowest_rank():
    text = defaults.describe(rows_of({name: lambda place: place for name in ("iris", "wine")}))
    assert "| 0.01 | **1.00** |" in text
    assert "Lowest: alpha=0.01, eta=0.0001 (1.00)" in text
    assert "another pair: never." in text


def test_too_few_data_sets_are_refused(tmp_path, capsys):
    rows = rows_of({"iris": lambda place: place})
    with pytest.raises(ValueError, match="Got rows with 1 data sets"):
        defaults.describe(rows)
    assert defaults.main(["--rows", str(tmp_path / "none.csv")]) == 2
    assert "none.csv" in capsys.readouterr().err


def test_the_preset_is_what_the_committed_rows_say():
    errors = defaults.wrong_answers(read_rows(defaults.ROWS))
    params = preset("paper")
    assert (params["alpha"], params["eta"]) == defaults.best_pair(errors)


def test_the_page_tells_the_study_of_the_committed_rows():
    page = (ROOT / "docs" / "benchmark.md").read_text()
    assert defaults.describe(read_rows(defaults.ROWS)) in page
