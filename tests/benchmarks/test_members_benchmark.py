"""The benchmark of members against single fits: what it measures and what it prints."""

import json

import pytest

from benchmarks import members
from benchmarks._candidates import page
from benchmarks._speed.memory import can_measure
from benchmarks._speed.store import read
from benchmarks.members import N_MEMBERS, Size


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """Results of a quick run."""
    path = tmp_path_factory.mktemp("members") / "members.json"
    assert members.main(["--quick", "--json", str(path)]) == 0
    return path


def test_a_quick_run_times_both_in_every_round_and_measures_memory(quick, capsys):
    parts = read(quick)["parts"]
    for size in members.QUICK:
        seconds = parts[f"{size.rows} rows"]["seconds"]
        assert [len(times) for times in seconds.values()] == [size.rounds, size.rounds]
        assert min(map(min, seconds.values())) > 0
    if can_measure():
        assert [part["rows"] for part in parts.values() if "added" in part] == [2_000]
    before = quick.read_bytes()
    assert members.main(["--quick", "--json", str(quick)]) == 0  # what is there is not run again
    assert quick.read_bytes() == before
    assert capsys.readouterr().out == members.report(read(quick)) + "\n"


def test_what_is_compared_differs_in_members_alone():
    many, one = (members.classifier_of(n, epochs=3).get_params() for n in (N_MEMBERS, 1))
    assert {name for name in many if many[name] != one[name]} == {"n_members"}
    assert not one["early_stopping"]
    X, y = members.make_table(200)
    fitted = members.classifier_of(N_MEMBERS, epochs=1).fit(X, y)
    assert fitted.predict_proba_members(X).shape == (N_MEMBERS, 200, 5)


@pytest.mark.parametrize(("times", "verdict"), [([0.3, 0.4], "held"), ([0.6, 0.7], "not held")])
def test_the_bound_stands_beside_the_figure(times, verdict):
    seconds = {"members": times, "singles": [1.0, 1.0]}
    part = {"rows": 500, "epochs": 50, "bound": 0.4, "seconds": seconds}
    text = members.report({"parts": {"500 rows": part}})
    assert text.splitlines()[-1].startswith("| 500 | 50 | 2 | ")
    assert text.splitlines()[-1].endswith(f" | at most 0.4: {verdict} |")


def test_the_bounds_are_those_that_were_promised():
    assert [(size.rows, size.bound) for size in members.FULL] == [
        *((500, 0.4), (5_000, 0.7), (50_000, 0.9)),
    ]
    assert all(isinstance(size, Size) and size.rounds > 5 for size in members.FULL)


def test_a_file_that_is_no_result_is_refused(tmp_path, capsys):
    path = tmp_path / "members.json"
    path.write_text(json.dumps([]))
    assert members.main(["--report-only", "--json", str(path)]) == 2
    assert capsys.readouterr().err.startswith("Error: Got members.json without run and parts")


def test_the_page_has_the_figures_of_the_committed_file():
    there = members.RESULTS.exists()
    made = members.report(read(members.RESULTS)) if there else "There are no figures yet."
    assert page.block_of(page.PAGE.read_text(), "members") == made
