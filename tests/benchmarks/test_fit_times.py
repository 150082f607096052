"""Times of fits in turns: rows, resuming, and the table of ratios."""

import pandas as pd
import pytest

from benchmarks import fit_times
from benchmarks._harness.results_file import read_rows
from benchmarks.default_settings import LADDER, Candidate
from benchmarks.fit_times import METHODS, PAIRS, SCHEMA, Pair, describe, ratios

QUICK = {"max_epochs": 1, "min_steps": 0, "n_members": 2}


@pytest.fixture
def quick(monkeypatch):
    """Methods that run here, with short trainings of ours."""
    monkeypatch.setitem(LADDER, "default", Candidate("quick", QUICK))
    monkeypatch.setitem(LADDER, "fast", Candidate("quick", QUICK))
    monkeypatch.setattr(fit_times, "METHODS", ("default", "fast", "hist-gradient-boosting"))
    pair = Pair("default / boosting", "default", "hist-gradient-boosting", 1e9)
    monkeypatch.setattr(fit_times, "PAIRS", (pair,))


def test_each_table_is_measured_once(quick, tmp_path, capsys):
    path = tmp_path / "times.csv"
    command = ["--names", "iris", "--most-rows", "60", "--rounds", "2", "--output", str(path)]
    assert fit_times.main(command) == 0
    assert "| default / boosting | 1 |" in capsys.readouterr().out
    rows = read_rows(path, SCHEMA)
    assert len(rows) == 3 * 2
    assert (rows["seconds"] > 0).all()
    assert (rows["n_train"] == 60).all()
    before = path.read_bytes()
    assert fit_times.main(command) == 0
    assert path.read_bytes() == before


def test_ratios_are_those_of_the_medians_of_a_table():
    seconds = {"default": (2.0, 4.0, 9.0), "realmlp": (10.0, 10.0, 40.0)}
    rows = pd.DataFrame(
        {"dataset": "a", "method": method, "round": number, "seconds": one}
        for method, own in seconds.items()
        for number, one in enumerate(own)
    )
    assert ratios(rows, PAIRS[0]).to_dict() == {"a": 0.4}


def test_the_table_says_whether_a_target_is_held(monkeypatch):
    rows = pd.DataFrame(
        {"dataset": name, "method": method, "seconds": one}
        for name, factor in (("a", 1.0), ("b", 3.0))
        for method, one in zip(METHODS, (factor, 1.0, 10.0, 1.0, 1.0), strict=True)
    )
    text = describe(rows)
    assert (
        "| 2 | 0.20 (0.15 to 0.25) | 0.10 (a) | 0.30 (b) | at most 0.2: held; aim 0.1: missed"
        in text
    )


def test_no_rows_are_an_error(tmp_path, capsys):
    path = tmp_path / "times.csv"
    path.write_text(",".join(SCHEMA.columns) + "\n")
    assert fit_times.main(["--report-only", "--output", str(path)]) == 2
    assert "without rows, but expected some" in capsys.readouterr().err
