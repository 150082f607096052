"""The study of columns as they come: what is removed, what a row records, and the table."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from benchmarks._harness.results_file import read_rows
from benchmarks.studies import columns
from benchmarks.studies.columns import SCHEMA, TREATMENTS, ColumnStudy, load_co2
from mixupe_sklearn.datasets import Table

FRAME = pd.DataFrame(
    {
        "city": ["Oslo", "Oslo", "Bonn", None],
        "size": [1.0, 3.0, np.nan, 100.0],
        "sold": pd.to_datetime(["1970-01-01", "1970-01-02", "1970-01-03", "1970-01-04"]),
    }
)
TRAIN = np.array([0, 1, 2])


def test_what_is_filled_comes_from_the_training_samples():
    filled = columns.fill_categories(FRAME, TRAIN)
    assert list(filled["city"]) == ["Oslo", "Oslo", "Bonn", "Oslo"]
    assert filled["size"].isna().sum() == 1
    assert list(columns.fill_numbers(FRAME, TRAIN)["size"]) == [1.0, 3.0, 2.0, 100.0]
    assert columns.fill_numbers(FRAME, TRAIN)["city"].isna().sum() == 1


def test_dates_become_seconds():
    seconds = columns.as_seconds(FRAME, TRAIN)
    assert list(seconds["sold"]) == [0.0, 86_400.0, 172_800.0, 259_200.0]
    assert seconds["city"].equals(FRAME["city"])


def table_of(name, rng=None):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=60), "b": rng.choice(["x", "y", None], 60)})
    return Table(name, X, np.where(X["a"] > 0, "yes", "no"), "csv")


def test_each_comparison_is_a_row_once(tmp_path, monkeypatch):
    names = {name for one in TREATMENTS.values() for name in one.datasets} - {"co2"}
    for name, one in list(TREATMENTS.items()):
        kept = tuple(dataset for dataset in one.datasets if dataset != "co2")
        monkeypatch.setitem(TREATMENTS, name, one._replace(datasets=kept))
    loaders = {name: lambda name=name: table_of(name) for name in names}
    study = ColumnStudy(loaders, 1, {"max_epochs": 1, "min_steps": 0, "n_members": 2})
    rows = list(study.rows(set()))
    assert len(rows) == sum(len(one.datasets) for one in TREATMENTS.values())
    assert all(0 <= row[name] <= 100 for row in rows for name in ("with", "without"))
    done = {SCHEMA.key_of(row) for row in rows}
    assert list(study.rows(done)) == []
    again = dataclasses.replace(study, n_seeds=2)
    assert len(list(again.rows(done))) == len(rows)


def test_the_table_has_paired_differences():
    rows = pd.DataFrame(
        {"treatment": "t", "dataset": "d", "with": [1.0, 2.0], "without": [2.0, 5.0]}
    )
    assert "| t | d | 2 | 1.50 | 3.50 | -2.00 ± 1.00 |" in columns.describe(rows)


def test_the_dates_are_those_of_mauna_loa():
    table = load_co2()
    assert table.X["date"].dtype.kind == "M"
    assert table.X["date"].is_monotonic_increasing
    assert 310 < table.y.min() < table.y.max() < 380


def test_the_folder_of_tables_must_be_given(capsys):
    assert columns.main([]) == 2
    assert "Got no --tables" in capsys.readouterr().err


def test_committed_rows_have_every_treatment():
    rows = read_rows(columns.FILE, SCHEMA)
    pairs = {(name, dataset) for name, one in TREATMENTS.items() for dataset in one.datasets}
    assert set(zip(rows["treatment"], rows["dataset"], strict=True)) == pairs
    assert rows[["with", "without"]].notna().all(axis=None)


@pytest.mark.parametrize("name", TREATMENTS)
def test_a_treatment_can_be_removed(name):
    one = TREATMENTS[name]
    assert one.without is not columns.unchanged or one.inputs_without
