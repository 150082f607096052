"""The parts of the speed benchmark: members, the monitor and the latency of one row."""

import pytest

from benchmarks import speed
from benchmarks._harness.docs_tables import block_of
from benchmarks._harness.environment import ROOT
from benchmarks._harness.resources import can_measure
from benchmarks._harness.results_file import read_json_results
from benchmarks._speed import parts
from benchmarks._speed.parts import N_MEMBERS, PARTS

# It takes all of torch's threads.
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """Results of a quick run."""
    path = tmp_path_factory.mktemp("members") / "members.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "MEMBER_SIZES", ((120, 2, 2, 0.4), (240, 1, 2, 0.4)))
        patch.setattr(parts, "MEMORY_ROWS", (2_000,))
        assert speed.main(["--part", "members", "--json", str(path)]) == 0
        yield path


def test_a_quick_run_times_both_in_every_round_and_measures_memory(quick, capsys):
    found = read_json_results(quick)["parts"]
    for n_rows, _, rounds, _ in parts.MEMBER_SIZES:
        seconds = found[f"{n_rows} rows"]["seconds"]
        assert [len(times) for times in seconds.values()] == [rounds, rounds]
        assert min(map(min, seconds.values())) > 0
    if can_measure():
        assert [part["rows"] for part in found.values() if "added" in part] == [2_000]
    before = quick.read_bytes()
    assert speed.main(["--part", "members", "--json", str(quick)]) == 0  # resumed
    assert quick.read_bytes() == before
    assert capsys.readouterr().out == parts.report_members(read_json_results(quick)) + "\n"


def test_what_is_compared_differs_in_members_alone():
    many, one = (parts.classifier_of(n, epochs=3).get_params() for n in (N_MEMBERS, 1))
    assert {name for name in many if many[name] != one[name]} == {"n_members"}
    assert not one["early_stopping"]
    X, y = parts.make_table(200, parts.N_FEATURES, parts.N_CLASSES)
    fitted = parts.classifier_of(N_MEMBERS, epochs=1).fit(X, y)
    assert fitted.predict_proba_members(X).shape == (N_MEMBERS, 200, 5)


@pytest.mark.parametrize(("times", "verdict"), [([0.3, 0.4], "held"), ([0.6, 0.7], "not held")])
def test_the_bound_stands_beside_the_figure(times, verdict):
    seconds = {"members": times, "singles": [1.0, 1.0]}
    part = {"rows": 500, "epochs": 50, "bound": 0.4, "seconds": seconds}
    text = parts.report_members({"parts": {"500 rows": part}})
    assert text.splitlines()[-1].startswith("| 500 | 50 | 2 | ")
    assert text.splitlines()[-1].endswith(f" | at most 0.4: {verdict} |")


def test_the_monitor_is_timed_in_turns(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(parts, "MONITOR_SIZES", (("iris", 5, 2),))
    path = tmp_path / "monitor.json"
    assert speed.main(["--part", "monitor", "--json", str(path)]) == 0
    (part,) = read_json_results(path)["parts"].values()
    assert {len(times) for times in part["seconds"].values()} == {2}
    assert part["looks"] >= 1
    assert "| iris | 5 | 2 | 2 |" in capsys.readouterr().out


def test_one_row_is_predicted_by_all_candidates_in_turns(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(parts, "LATENCY_SIZES", (("iris", 1, 2),))
    pytest.importorskip("onnxruntime")
    path = tmp_path / "one_row.json"
    assert speed.main(["--part", "latency", "--json", str(path)]) == 0
    (part,) = read_json_results(path)["parts"].values()
    assert list(part["seconds"]) == [
        *("forward", "predict_proba", "to_torch", "onnxruntime", "pipeline"),
    ]
    assert parts.report_latency(read_json_results(path)) in capsys.readouterr().out


@pytest.mark.parametrize("name", PARTS)
def test_a_file_without_results_is_an_error(name, tmp_path, capsys):
    path = tmp_path / "results.json"
    command = ["--part", name, "--report-only", "--json", str(path)]
    assert speed.main(command) == 2
    path.write_text("[]")
    assert speed.main(command) == 2
    assert "Error: Got results.json without run and parts" in capsys.readouterr().err


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_the_page_has_the_table_of_the_committed_file(part):
    made = part.report(read_json_results(part.results))
    assert block_of((ROOT / "docs" / part.page).read_text(), part.block) == made
