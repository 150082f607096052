"""The parts of the speed benchmark: ensembles, the monitor and the latency of one row."""

import pytest

from benchmarks import speed
from benchmarks._harness.docs_tables import block_of
from benchmarks._harness.environment import ROOT
from benchmarks._harness.resources import can_measure
from benchmarks._harness.results_file import read_json_results
from benchmarks._speed import ensembles, parts
from benchmarks._speed.ensembles import N_MEMBERS, OPTIONS, SEARCHES, THREADS
from benchmarks._speed.parts import PARTS
from benchmarks._speed.sizes import FULL, QUICK, make_table
from mixupe_sklearn import MixupEClassifier

DEFAULT_THREADS = {"threads": "default threads", "torch_threads": 2}
# It takes all of torch's threads.
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """Results of a quick run."""
    path = tmp_path_factory.mktemp("members") / "members.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ensembles, "MEMBER_SIZES", ((120, 2, 2, 0.4), (240, 1, 2, 0.4)))
        patch.setattr(ensembles, "TWO_THREADS", (120, 5, 1, 2, 0.65))
        patch.setattr(ensembles, "MEMORY_ROWS", (2_000,))
        assert speed.main(["--part", "members", "--json", str(path)]) == 0
        yield path


def test_a_quick_run_times_both_in_every_round_and_measures_memory(quick, capsys):
    found = read_json_results(quick)["parts"]
    for n_rows, _, rounds, bound in ensembles.MEMBER_SIZES:
        for name, n_threads in THREADS.items():
            part = found[f"{n_rows} rows, {name}"]
            assert {key: len(times) for key, times in part["seconds"].items()} == dict.fromkeys(
                ("members", "singles", "floor"), rounds
            )
            assert min(map(min, part["seconds"].values())) > 0
            assert part["bound"] == (bound if n_threads is None else None)
    assert {len(times) for times in found["two threads"]["seconds"].values()} == {2}
    assert {key: len(times) for key, times in found["busy core"]["seconds"].items()} == {
        "alone": 2,
        "beside alone": 2,
    }
    if can_measure():
        assert [part["rows"] for part in found.values() if "added" in part] == [2_000]
    before = quick.read_bytes()
    assert speed.main(["--part", "members", "--json", str(quick)]) == 0  # resumed
    assert quick.read_bytes() == before
    assert capsys.readouterr().out == ensembles.report_members(read_json_results(quick)) + "\n"


def test_what_is_compared_differs_in_members_alone():
    many, one = (ensembles.classifier_of(n, epochs=3).get_params() for n in (N_MEMBERS, 1))
    assert {name for name in many if many[name] != one[name]} == {"n_members"}
    assert not one["early_stopping"]
    X, y = make_table(200, ensembles.N_FEATURES, ensembles.N_CLASSES)
    fitted = ensembles.classifier_of(N_MEMBERS, epochs=1).fit(X, y)
    assert fitted.predict_proba_members(X).shape == (N_MEMBERS, 200, 5)


@pytest.mark.parametrize(("times", "verdict"), [([0.3, 0.4], "held"), ([0.6, 0.7], "not held")])
def test_bound_threads_and_floor_stand_beside_the_figure(times, verdict):
    seconds = {"members": times, "singles": [1.0, 1.0], "floor": times}
    part = {"rows": 500, "epochs": 50, "bound": 0.4} | DEFAULT_THREADS
    text = ensembles.report_members({"parts": {"500 rows": part | {"seconds": seconds}}})
    assert "Default threads are those of `n_threads=None` where torch has 2." in text
    line = text.splitlines()[-1]
    what = "8 members, default threads / 8 single fits, default threads"
    assert line.startswith(f"| 500 rows, 50 epochs: {what} | 2 | ")
    assert line.endswith(f" | at most 0.4: {verdict} | 1.00 (no spread) |")


def test_two_threads_and_one_predict_alike_to_the_bit():
    assert ensembles.time_two_threads(120, 5, 1, rounds=1, bound=0.65)["is_equal"]


@pytest.mark.parametrize("is_equal", [True, False])
def test_predictions_of_two_threads_that_differ_are_reported(is_equal):
    part = {"what": "5,000 x 50, 10 epochs", "bound": 0.65, "is_equal": is_equal}
    part["seconds"] = {"two": [0.6, 0.6], "one": [1.0, 1.0]}
    line = ensembles.report_members({"parts": {"two threads": part}}).splitlines()[-1]
    assert line == (
        "| 5,000 x 50, 10 epochs: two threads / one thread | 2 | 0.6 | 1 | 0.60 (no spread) | "
        f"at most 0.65: held | {'yes' if is_equal else 'NO'} |"
    )


@pytest.mark.parametrize(("beside", "verdict"), [(1.5, "held"), (1.6, "not held")])
def test_a_busy_core_has_a_bound(beside, verdict):
    part = {"what": "5,000 x 50, 10 epochs", "bound": ensembles.BUSY_BOUND} | DEFAULT_THREADS
    part["seconds"] = {"alone": [1.0, 1.0], "beside alone": [beside, beside]}
    line = ensembles.report_members({"parts": {"busy core": part}}).splitlines()[-1]
    assert line == (
        "| 5,000 x 50, 10 epochs: beside one busy core / alone, default threads | 2 | "
        f"{beside:g} | 1 | {beside:.2f} (no spread) | at most 1.5: {verdict} |"
    )


def test_the_floor_has_the_products_of_all_members_and_epochs(monkeypatch):
    steps = []
    monkeypatch.setattr(ensembles, "run_products", lambda products, n: steps.append((products, n)))
    ensembles.floor_of_members(500, 50)()
    ((products, n_steps),) = steps
    assert n_steps == N_MEMBERS * 50 * 5  # batches of 100 samples
    assert products[0].left.shape == (200, ensembles.N_FEATURES)


def test_a_quick_run_is_smaller_and_leaves_the_committed_results(tmp_path, monkeypatch):
    for part in PARTS.values():
        full, quick = (set(part.measurements(scale)) for scale in (FULL, QUICK))
        assert quick <= full
    assert QUICK.few(11) == 3 < FULL.few(11) == 11
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(parts, "MONITOR_SIZES", (("iris", 2, 1),))
    assert speed.main(["--part", "monitor", "--quick"]) == 0
    assert read_json_results(tmp_path / "build" / "monitor-quick.json")["run"]["scale"] == "quick"


# Options


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_is_timed_against_the_default_ensemble(option):
    found = ensembles.time_option(option, (120, 4, 3), 2, rounds=2, n_threads=1)
    assert {len(times) for times in found["seconds"].values()} == {2}
    text = ensembles.report_options({"parts": {"one": found}})
    what = f"120 x 4, 2 epochs: with {option}, one thread / without, one thread"
    assert text.splitlines()[-1].startswith(f"| {what} | 2 | ")


def test_the_ensemble_is_the_default_one_with_a_fixed_number_of_epochs():
    default, params = (
        model.get_params() for model in (MixupEClassifier(), ensembles.default_ensemble(12))
    )
    changed = {name for name in params if params[name] != default[name]}
    assert changed == {"max_epochs", "min_steps", "n_iter_no_change", "device", "random_state"}
    model = ensembles.default_ensemble(12, lr=1e-12, n_threads=1).fit(*make_table(120, 4, 3))
    assert model.n_iter_ == 12  # it never improves, and does not stop


def test_options_have_two_sizes_and_two_numbers_of_threads():
    names = list(PARTS["options"].measurements(FULL))
    assert len(names) == 2 * (len(OPTIONS) + 1)
    callback = [name for name in names if name.startswith("a callback")]
    assert [name.split(", ")[1] for name in callback] == ["5000 rows"] * 2 + ["150 rows"] * 2


def test_targets_of_an_option_stand_beside_its_figure():
    part = {"option": "dropout", "size": "9 x 2", "must": 1.3, "aim": None} | DEFAULT_THREADS
    part["seconds"] = {"with": [1.2, 1.2], "without": [1.0, 1.0]}
    text = ensembles.report_options({"parts": {"dropout": part}})
    assert text.endswith("| 2 | 1 | 1.20 (no spread) | must <= 1.3: held |")


# Search

SINGLE = {"n_members": 1, "early_stopping": False, "validation_fraction": 0.1}


@pytest.mark.parametrize("params", [{}, SINGLE], ids=["default ensemble", "single networks"])
@pytest.mark.parametrize("way", SEARCHES)
def test_a_search_as_one_finds_the_scores_of_single_fits(way, params, monkeypatch):
    small = {"max_epochs": 2, "batch_size": 20}
    monkeypatch.setattr(ensembles, "SEARCHED", ensembles.SEARCHED | small | params)
    monkeypatch.setattr(ensembles, "GRID", {"alpha": [0.1, 0.5], "eta": [0.1, 1.0], "lr": [0.01]})
    found = ensembles.time_search(way, n_rows=60, rounds=1, n_threads=1)
    assert (found["n_equal"], found["configurations"]) == (4, 4)
    text = ensembles.report_search({"parts": {"one": found}})
    what = f"60 x 20, `{way}`: as one, one thread / one by one, one thread"
    assert text.splitlines()[-1].startswith(f"| {what} | 1 | ")
    assert text.endswith(" | 4 of 4 |")


def test_a_search_has_twenty_configurations_that_stop_early():
    assert len(list(ensembles.ParameterGrid(ensembles.GRID))) == 20
    model = MixupEClassifier(**ensembles.SEARCHED)
    assert model.early_stopping
    assert model.n_members == N_MEMBERS
    names = list(PARTS["search"].measurements(FULL))
    assert len(names) == len(ensembles.SEARCH_SIZES) * len(SEARCHES) * len(THREADS)


def test_targets_of_the_search_stand_beside_its_figure():
    part = {"way": "fit_many", "rows": 500, "configurations": 20, "n_equal": 19}
    part |= {"seconds": {"as one": [0.7], "one by one": [1.0]}} | DEFAULT_THREADS
    text = ensembles.report_search({"parts": {"one": part}})
    assert text.endswith("0.70 (no spread) | must <= 0.8: held; aim 0.6: missed | 19 of 20 |")


# The monitor and one row


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
