"""The comparison of two versions: what is recorded, and what the table says."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from benchmarks.studies import versions
from benchmarks.studies.versions import KEY, MODELS
from mixupe_sklearn.datasets import load_embedded


def rows_of(losses):
    """Rows from the log loss of each seed by table; the error is a tenth."""
    return pd.DataFrame(
        {"table": table, "seed": seed, "model": "paper", "log_loss": loss, "error": loss / 10}
        for table, values in losses.items()
        for seed, loss in enumerate(values)
    ).set_index(list(KEY))


def cells(text):
    return [cell.strip() for cell in text.splitlines()[4].strip("|").split("|")]


def test_a_record_has_a_row_per_fit_and_is_resumed_and_equal_to_itself(
    tmp_path, monkeypatch, capsys
):
    for params in MODELS:
        monkeypatch.setitem(MODELS, params, MODELS[params] | {"max_epochs": 1, "min_steps": 0})
    monkeypatch.setattr(versions, "EMBEDDED", ("iris", "wine"))
    path, again = tmp_path / "new" / "one.csv", tmp_path / "two.csv"
    assert versions.main(["record", str(path), "--seeds", "2"]) == 0
    rows = versions.read(path)
    assert len(rows) == 2 * 2 * len(MODELS)
    assert rows.index.is_unique
    assert rows["error"].between(0, 1).all()
    before = path.read_bytes()
    assert versions.main(["record", str(path), "--seeds", "2"]) == 0
    assert path.read_bytes() == before
    assert versions.main(["record", str(again), "--seeds", "1"]) == 0
    capsys.readouterr()
    assert versions.main(["compare", str(path), str(again)]) == 0
    printed = capsys.readouterr().out
    for model in MODELS:
        line = f"| {model} | 2 | 2 | +0.00 | +0.00 to +0.00 | 0/2/0 | 2 | yes |"
        assert line in printed
    assert "4 fit(s) are in one of the files only" in printed


def test_the_interval_is_that_of_the_means_of_tables():
    old = rows_of({"a": [1.0, 1.0], "b": [2.0, 2.0], "c": [4.0, 4.0]})
    new = rows_of({"a": [1.02, 1.0], "b": [2.0, 1.96], "c": [4.0, 4.24]})
    means = [1.0, -1.0, 3.0]
    low, high = stats.t.interval(0.9, 2, np.mean(means), stats.sem(means))
    shown = [f"{np.mean(means):+.2f}", f"{low:+.2f} to {high:+.2f}"]
    assert cells(versions.compare(old, new)) == ["paper", "3", "6", *shown, "1/3/2", "3", "NO"]


def test_the_margin_holds_on_either_side():
    old = rows_of({"a": [1.0], "b": [2.0]})
    for factor, verdict in ((1.009, "yes"), (0.991, "yes"), (1.011, "NO"), (0.989, "NO")):
        assert cells(versions.compare(old, old * factor))[-1] == verdict


def test_the_last_bit_counts():
    old = rows_of({"a": [0.1], "b": [0.2]})
    new = rows_of({"a": [np.nextafter(0.1, 1)], "b": [0.2]})
    assert cells(versions.compare(old, new))[-3:] == ["0/1/1", "1", "yes"]


def test_rows_to_train_on_are_few_and_test_rows_a_quarter(monkeypatch):
    seen = []

    class Spy:
        classes_ = np.arange(10)

        def fit(self, X, y):
            seen.append(len(y))

        def predict_proba(self, X):
            seen.append(len(X))
            return np.full((len(X), 10), 0.1)

    monkeypatch.setattr(versions, "make_mixupe_pipeline", lambda **params: Spy())
    monkeypatch.setattr(versions, "MOST_ROWS", 100)
    row = versions.fit_and_score(load_embedded("digits"), 0, "paper")
    assert seen == [100, 450]
    assert row["log_loss"] == pytest.approx(np.log(10))


def test_files_that_cannot_be_compared_are_named(tmp_path, capsys):
    path = tmp_path / "none.csv"
    assert versions.main(["compare", str(path), str(path)]) == 2
    assert "none.csv without rows" in capsys.readouterr().err
    assert versions.main(["record", str(path), "--tables", str(tmp_path)]) == 2
    assert "without churn.csv" in capsys.readouterr().err
    with pytest.raises(ValueError, match="without a common fit"):
        versions.compare(rows_of({"a": [1.0]}), rows_of({"b": [1.0]}))
    with pytest.raises(ValueError, match="Got 1 table"):
        versions.compare(rows_of({"a": [1.0]}), rows_of({"a": [1.0]}))
