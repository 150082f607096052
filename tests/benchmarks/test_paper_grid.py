"""The paper's grid of alpha and eta: which pair a preset may take."""

import itertools
import json

import pandas as pd
import pytest

from benchmarks._harness.environment import ROOT
from benchmarks._harness.results_file import read_rows
from benchmarks._tabular.protocol import FITS, TRAINING, configs_of
from benchmarks.studies import paper_grid as study
from mixupe_sklearn import preset

PAIRS = [(config.alpha, config.eta) for config in configs_of("mixupe", "paper")]


def grid_rows(wrong):
    """Rows of datasets, from the wrong answers (of 200) of each pair, by its place in the grid."""
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
    rows = grid_rows({name: lambda place: abs(place - 17) for name in ("iris", "wine")})
    wrong = study.wrong_answers(rows)
    assert study.best_pair(wrong) == PAIRS[17]


def test_ranks_not_sizes_of_errors_count():
    """One dataset with many errors cannot outvote two with few."""
    few = {name: lambda place: place for name in ("iris", "wine")}
    rows = grid_rows(few | {"letter": lambda place: 4 * (44 - place)})
    assert study.best_pair(study.wrong_answers(rows)) == PAIRS[0]


def test_rounded_percentages_of_equal_counts_are_tied():
    """Rows hold six digits: 33.3333 + 66.6667 and 66.6667 + 33.3333 are not the only way to 100."""
    rows = grid_rows({name: lambda place: 0 for name in ("iris", "wine")})
    rows["n_rows"] = 150  # 30 rows to choose with
    shares = [[10, 0, 0, 0, 0], [2, 2, 2, 2, 2]]
    rows["valid_error"] = [
        float(f"{100 * shares[number // 5 % 2][number % 5] / 30:.6g}")
        for number in range(len(rows))
    ]
    assert study.wrong_answers(rows).rank().mean(axis=1).nunique() == 1


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
def test_a_dataset_without_the_complete_protocol_is_left_out_and_named(lose):
    rows = lose(grid_rows({name: lambda place: place for name in ("iris", "wine", "mnist")}))
    assert list(study.wrong_answers(rows)) == ["iris", "wine"]
    assert "Left out, as the grid is incomplete: mnist." in study.describe_grid(rows)


def test_the_table_marks_the_lowest_rank():
    text = study.describe_grid(grid_rows({name: lambda place: place for name in ("iris", "wine")}))
    assert "| 0.01 | **1.00** |" in text
    assert "Lowest: alpha=0.01, eta=0.0001 (1.00)" in text
    assert "another pair: never." in text


def test_too_few_datasets_are_refused(tmp_path, capsys):
    rows = grid_rows({"iris": lambda place: place})
    with pytest.raises(ValueError, match="Got rows with 1 datasets"):
        study.describe_grid(rows)
    assert study.main([str(tmp_path / "none.csv")]) == 2
    assert "none.csv" in capsys.readouterr().err


def test_the_preset_is_what_the_committed_rows_say():
    errors = study.wrong_answers(read_rows(study.ROWS, FITS))
    params = preset("paper")
    assert (params["alpha"], params["eta"]) == study.best_pair(errors)


def test_the_page_has_the_best_pairs_of_the_committed_rows():
    page = (ROOT / "docs" / "benchmarks" / "paper_tables.md").read_text()
    _, summary = study.describe_grid(read_rows(study.ROWS, FITS)).split("\n\n")
    assert summary in page
