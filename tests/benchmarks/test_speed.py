"""The speed benchmark: what it runs, what it reports, and the page of its figures."""

import copy
import json
import pathlib
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks import speed
from benchmarks._harness import resources
from benchmarks._harness.environment import describe_machine
from benchmarks._harness.paired_timing import ratio_of, take_turns, threads
from benchmarks._harness.results_file import JsonResults, read_json_results
from benchmarks._harness.subprocesses import beside_busy_cores, run_child
from benchmarks._speed import baselines, measure, memory, report, targets
from benchmarks._speed.baselines import (
    FLOORS,
    LABELS,
    Candidates,
    floors_of,
    is_installed,
    listing_loss,
    our_classifier,
    products_of,
    run_products,
    train_listing,
)
from benchmarks._speed.measure import default_threads, extras_among, measure_threads
from benchmarks._speed.report import PALETTES, bars_of, draw
from benchmarks._speed.sizes import (
    QUICK,
    REFERENCE,
    Size,
    all_sizes,
    epochs_of,
    make_table,
    thread_sizes,
)
from mixupe_sklearn import Draw, MixupELoss
from mixupe_sklearn.modules import MLP

ROOT = pathlib.Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "speed.json"
SMALL = Size(rows=60, features=5, classes=3, width=8, batch=20)
TINY = replace(
    QUICK,
    name="tiny",
    reference=SMALL,
    epochs=1,
    n_rounds=2,
    cells=[SMALL, SMALL._replace(batch=30)],
    n_cell_rounds=2,
    thread_sizes=[SMALL],
    thread_seconds=0.0,
    n_predicted=50,
    n_single=2,
)
PARTS_IN_CHILDREN = {
    "import": {
        "seconds": {"alone": [1.0, 1.0], "with-skorch": [1.0, 1.1], "with-ours": [1.0, 1.2]},
        "extras": [],
    },
    "memory": {},
    "busy": {
        "busy_cores": 1,
        "microseconds": {
            "mixupe": [1.0, 1.0],
            "beside mixupe": [1.2, 1.4],
            "two threads": [1.0, 1.0],
            "beside two threads": [5.0, 5.0],
            "floor-twice": [1.0, 1.0],
            "beside floor-twice": [1.1, 1.1],
        },
    },
    "threads": {
        SMALL.name: {
            "default": 1,
            "microseconds": {
                "one": [10.0, 10.0],
                "two": [8.0, 10.0],
                "beside one": [10.0, 10.0],
                "beside two": [30.0, 50.0],
            },
        }
    },
}


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with threads(1):
        yield


@pytest.fixture(scope="module")
def tiny_results(tmp_path_factory):
    """A whole run on sixty rows; what needs other processes has tests of its own."""
    path = tmp_path_factory.mktemp("speed") / "speed.json"
    store = JsonResults(path, {"scale": "tiny", "versions": {}, "machine": describe_machine()})
    store.parts |= copy.deepcopy(PARTS_IN_CHILDREN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(baselines, "FLOOR_STEPS", 10)
        measure.measure_all(TINY, store)
    return read_json_results(path)


# Sizes and tables


def test_the_sizes_are_the_full_cross():
    sizes = all_sizes()
    assert len(sizes) == len(set(sizes)) == 3 * 3 * 2 * 2 * 3
    assert Size(16_000, 16, 26, 128, 100) == REFERENCE
    assert Size.named(REFERENCE.name) == REFERENCE


def test_a_small_table_is_trained_on_for_as_long_as_users_do():
    for width, epochs in ((128, [25, 3, 1]), (512, [10, 2, 1])):
        sizes = [SMALL._replace(rows=rows, width=width) for rows in (1_000, 10_000, 100_000)]
        assert [epochs_of(size) for size in sizes] == epochs


def test_a_synthetic_table_can_be_learned_but_not_perfectly():
    X, y = make_table(3_000, 16, 26)
    classifier = Candidates(SMALL, 1)  # has a table of its own, made in the same way
    assert classifier.X.shape == (60, 5)
    assert set(y) == set(range(26))
    np.testing.assert_array_equal(make_table(3_000, 16, 26)[0], X)
    weights = np.linalg.lstsq(X, np.eye(26)[y], rcond=None)[0]
    accuracy = ((X @ weights).argmax(axis=1) == y).mean()
    assert 0.3 < accuracy < 0.95


# The floor


def n_multiplications(product):
    return product.left.shape[0] * product.left.shape[1] * product.right.shape[1]


def test_the_floor_counts_the_products_of_a_step():
    size = SMALL
    first, second, last = (n_in * n_out for n_in, n_out in size.layers())
    for n_rows in (20, 40):
        count = sum(n_multiplications(product) for product in products_of(size, n_rows))
        assert count == n_rows * (2 * first + 3 * second + 3 * last)


def test_sharing_the_first_layer_saves_its_products_of_one_batch():
    counts = {
        name: sum(n_multiplications(product) for product in products)
        for name, products in floors_of(SMALL).items()
    }
    assert set(counts) == set(FLOORS)
    assert counts["floor-twice"] == 2 * counts["floor"]
    assert counts["floor-quarter"] == 1.25 * counts["floor"]
    assert counts["floor-twice"] - counts["floor-shared"] == 20 * 2 * SMALL.features * SMALL.width


def test_the_products_are_those_of_a_step_of_a_linear_network():
    """With a network's samples and gradients, the products give the gradients of autograd."""
    weights = [torch.randn(8, 5), torch.randn(8, 8), torch.randn(3, 8)]
    for weight in weights:
        weight.requires_grad_()
    forward, backward = np.split(np.arange(8), [3])
    products = products_of(SMALL, 20)
    rows = [products[0].left.clone()]
    for weight in weights:
        rows.append(rows[-1] @ weight.T)
    grads = [torch.randn(20, 3)]
    rows[-1].backward(grads[0])
    for weight in reversed(weights[1:]):
        grads.append(grads[-1] @ weight.detach())
    with torch.no_grad():
        for place, weight in zip(forward, weights, strict=True):
            products[place].left.copy_(rows[place])
            products[place].right.T.copy_(weight)
        for place, grad in zip(backward[[0, 2, 4]], grads, strict=True):
            products[place].left.T.copy_(grad)
    run_products(products, n_steps=1)
    outs = [product.out for product in products]
    wanted = [*rows[1:], weights[2].grad, grads[1], weights[1].grad, grads[2], weights[0].grad]
    for out, expected in zip(outs, wanted, strict=True):
        torch.testing.assert_close(out, expected.detach(), rtol=1e-3, atol=1e-4)


# Turns and ratios


def test_candidates_take_turns_and_every_second_round_goes_backwards():
    seen = []
    runs = {name: lambda name=name: seen.append(name) for name in "abc"}
    times = take_turns(runs, n_rounds=3)
    assert seen == list("abccbaabc")
    assert {name: len(values) for name, values in times.items()} == dict.fromkeys("abc", 3)


@pytest.mark.parametrize(("seconds_a_round", "n_rounds"), [(2.5, 1), (1.5, 2), (0.6, 3)])
def test_rounds_end_in_time_and_two_are_run_if_one_fits(monkeypatch, seconds_a_round, n_rounds):
    now = iter(np.arange(100) * seconds_a_round)
    monkeypatch.setattr(time, "perf_counter", lambda: next(now))
    runs = {"one": lambda: None}
    times = take_turns(runs, n_rounds=9, most_seconds=2.0, clock=lambda name, run: 0.0)
    assert len(times["one"]) == n_rounds


def test_a_ratio_pairs_the_times_of_a_round():
    """The machine was ten times slower in the second round: ratios do not see it."""
    ratio = ratio_of([1.0, 20.0, 3.0], [2.0, 40.0, 4.0])
    assert (ratio.median, ratio.low, ratio.high) == (0.5, 0.5, 0.625)
    with pytest.raises(ValueError, match="argument 2 is longer"):
        ratio_of([1.0], [1.0, 2.0])


def test_threads_are_limited_and_put_back():
    before = torch.get_num_threads()
    with threads(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


# Candidates


def test_the_bare_listing_has_the_loss_and_gradient_of_ours(small_digits):
    X = torch.as_tensor(small_digits[0][:50], dtype=torch.float32)
    y = torch.as_tensor(small_digits[1][:50])
    module, partner = MLP(64, 10), torch.randperm(50)
    ours = MixupELoss(alpha=0.7, eta=0.5)(module, X, y, draw=Draw(0.3, partner)).loss
    clean = X, torch.nn.functional.one_hot(y, 10).float()
    others = clean[0][partner], clean[1][partner]
    theirs, _ = listing_loss(module, clean, others, 0.3, alpha=0.7, eta=0.5)
    assert theirs.item() == pytest.approx(ours.item(), rel=1e-5)
    parameters = list(module.parameters())
    for one, other in zip(
        torch.autograd.grad(ours, parameters), torch.autograd.grad(theirs, parameters), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)


def test_the_bare_listing_learns(small_digits):
    X = torch.as_tensor(small_digits[0], dtype=torch.float32)
    y = torch.as_tensor(small_digits[1])
    module = MLP(64, 10)
    train_listing(module, X, y, SMALL, epochs=30, alpha=0.2, eta=0.1)
    assert (module(X).argmax(dim=1) == y).float().mean() > 0.9


def test_candidates_of_torch_take_the_steps_that_they_are_divided_by(monkeypatch):
    n_steps, step = [], torch.optim.Adam.step

    def counted(self, *args):
        n_steps.append(1)
        return step(self, *args)

    monkeypatch.setattr(torch.optim.Adam, "step", counted)
    made = Candidates(SMALL, epochs=2)
    for name in ("skorch", "listing", "listing-loaders", "listing-torch"):
        n_steps.clear()
        made.runs([name])[name]()
        assert len(n_steps) == made.n_steps(name) == 6, name


# The file of results


def test_a_run_that_was_cut_is_resumed_and_loses_nothing(tmp_path):
    path, run = tmp_path / "new" / "speed.json", {"scale": "tiny"}
    first = JsonResults(path, run)
    first.part("one", lambda: {"microseconds": {"mixupe": [1.5, 2.0]}})
    with pytest.raises(KeyboardInterrupt):
        first.part("two", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    second = JsonResults(path, run)
    assert second.part("one", lambda: pytest.fail("measured twice")) == first.parts["one"]
    second.part("two", lambda: {"value": 3})
    assert list(read_json_results(path)["parts"]) == ["one", "two"]


def test_single_parts_are_measured_again_and_the_file_records_it(tmp_path):
    path = tmp_path / "speed.json"
    first = JsonResults(path, {"scale": "tiny", "source": "old"})
    for name in ("one", "two"):
        first.part(name, lambda: {"value": 1})
    again = JsonResults(
        path, {"scale": "tiny", "source": "new", "machine": {"processor": "B"}}, again=["two"]
    )
    assert again.part("one", lambda: pytest.fail("measured twice")) == {"value": 1}
    assert again.part("two", lambda: {"value": 2}) == {"value": 2}
    assert read_json_results(path)["run"] == {
        "scale": "tiny",
        "source": "old",
        "again": {"two": {"source": "new", "processor": "B"}},
    }
    with pytest.raises(ValueError, match="Got --again three, but expected parts that are in the"):
        JsonResults(path, {"source": "new"}, again=["three"])


@pytest.mark.parametrize(
    ("run", "is_fresh"), [({"scale": "full"}, False), ({"scale": "tiny"}, True)]
)
def test_parts_of_another_run_or_of_one_to_forget_are_measured_anew(tmp_path, run, is_fresh):
    path = tmp_path / "speed.json"
    JsonResults(path, {"scale": "tiny"}).part("one", lambda: {"value": 1})
    assert JsonResults(path, run, is_fresh).part("one", lambda: {"value": 2}) == {"value": 2}


@pytest.mark.parametrize("text", ['{"run": 1', "[]", '{"parts": {}}'])
def test_a_file_that_holds_no_results_is_an_error(tmp_path, text, capsys):
    path = tmp_path / "speed.json"
    path.write_text(text)
    assert speed.main(["--json", str(path), "--report-only"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("Error: Got speed.json")
    assert "but expected results of an earlier run" in error


def test_the_machine_is_described_without_its_name():
    assert set(describe_machine()) == {"cores", "processor", "system", "gpu"}


# Lines and page


def test_a_whole_run_measures_every_part(tiny_results):
    parts = tiny_results["parts"]
    times = parts["reference"]["microseconds"]
    assert list(times) == [name for name in LABELS if is_installed(name)]
    assert all(value > 0 for values in times.values() for value in values)
    assert set(targets.cells_of(parts)) == set(TINY.cells)
    assert set(parts) == set(measure.parts_of(TINY))


def shown(lines):
    return [f"{line.what}: {line.shown}; {line.verdict()}" for line in lines]


def test_the_report_has_a_line_for_every_promise_and_size(tiny_results):
    text = report.targets_block(tiny_results)
    for pair in targets.PAIRS:
        assert f"\n| {pair.what} | " in text
    assert "| MixupE / MLPClassifier, worst of 2 sizes | " in text
    assert (
        "| MixupE beside 1 busy core(s) / alone | 1.30 (1.25 to 1.35) | must <= 1.5: held |" in text
    )
    assert "without | 1.10 (1.05 to 1.15) | must <= 1.1: held; aim 1.05: missed |" in text
    assert "| peak memory | not measured" in text
    header, _, *rows = report.sizes_block(tiny_results).splitlines()
    assert header == "| ratio | batch 20 | batch 30 |"
    assert len(rows) == sum(pair.is_at_all_sizes for pair in targets.PAIRS)


def test_a_candidate_that_is_not_installed_is_named(tiny_results):
    parts = copy.deepcopy(tiny_results["parts"])
    parts["reference"]["microseconds"].pop("realmlp", None)
    assert "MixupE / RealMLP: not installed; " in shown(targets.reference_lines(parts))


def test_the_worst_size_is_the_one_with_the_highest_ratio():
    times = {"erm": [1.0], "mixup": [1.0], "mixupe": [1.0], "quarter": [1.0], "mlp": [1.0]}
    times |= {name: [1.0] for name in FLOORS}
    good, bad = SMALL, SMALL._replace(batch=30)
    parts = {
        good.name: {"microseconds": times},
        bad.name: {"microseconds": times | {"mlp": [0.5]}},
    }
    assert shown(targets.worst_lines(parts))[0] == (
        f"MixupE / MLPClassifier, worst of 2 sizes: 2.00 (no spread) at {bad.name}; "
        f"1 above 1.3; must <= 1.3: missed"
    )


def test_the_large_table_of_float32_has_bounds_and_the_others_have_figures():
    figures = {"rows": 1_000_000, "features": 2, "data": 100.0, "fit": 250.0, "fit_private": 20.0}
    figures |= {"predict": 63.0, "predict_proba": 65.0}
    lines = shown(targets.memory_lines({"memory": {"float32": figures}}))
    assert [line.split(": ", 1)[1] for line in lines] == [
        "2.50 of 100 MiB; without pages of files 0.20; must <= 2: missed; aim 1.3: missed",
        "63; must <= 64: held",
        "65; must <= 64: missed",
    ]
    small = {"float32": figures | {"rows": 100_000}}
    assert not any(line.verdict() for line in targets.memory_lines({"memory": small}))


def test_the_page_has_a_line_for_each_network_and_each_table(tiny_results):
    parts = copy.deepcopy(tiny_results["parts"])
    figures = {"rows": 9, "features": 2, "data": 100.0, "fit": 110.0, "fit_private": 20.0}
    parts["memory"] = {"mapped file": figures | {"predict": 6.0, "predict_proba": 5.0}}
    crossing = report.crossing_block({"parts": parts}).splitlines()
    assert crossing[2:] == ["| 5-8-8-3, batch 20 | 10 | 0.90 | 4.00 | 1 |"]
    tables = report.memory_block({"parts": parts}).splitlines()
    assert tables[2:] == ["| 9 x 2, mapped file | 100 | 1.10 | 0.20 | 6 | 5 |"]


def test_the_page_and_its_plots_are_those_of_the_committed_figures():
    results = read_json_results(RESULTS)
    text = report.PAGE.read_text()
    assert report.fill(text, results) == text
    for name, image in report.plots(results).items():
        assert (ROOT / "docs" / "_static" / name).read_text() == image


def test_bars_are_as_long_as_the_times(tiny_results):
    times = tiny_results["parts"]["reference"]["microseconds"]
    bars = bars_of(times)
    assert bars["mixupe"] == (np.median(times["mixupe"]), np.median(times["floor-twice"]))
    for palette in PALETTES.values():
        image = draw(tiny_results["parts"], palette)
        assert all(f">{step:,.0f}</text>" in image for step, _ in bars.values())


# Other processes


def test_imports_of_core_libraries_are_no_extras():
    assert extras_among({"torch", "sklearn", "skorch", "numpy", "tqdm", "json"}) == []
    assert extras_among({"optuna", "matplotlib", "openml"}) == ["matplotlib", "openml", "optuna"]


def test_a_child_that_fails_is_reported_with_its_last_message():
    assert run_child(["-c", "print('noise'); print([1, 2])"]) == [1, 2]
    with pytest.raises(ChildProcessError, match="Got exit status 1 .* ValueError: no luck"):
        run_child(["-c", "raise ValueError('no luck')"])


def test_busy_cores_are_busy_only_beside_and_gone_afterwards(monkeypatch):
    alive, children, real = [], [], subprocess.Popen

    def start(*args, **kwargs):
        children.append(real(*args, **kwargs))
        return children[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    run = {"fit": lambda: alive.append(sum(child.poll() is None for child in children))}
    times = beside_busy_cores(run, n_rounds=2, n_cores=1)
    assert alive == [0, 1, 1, 0]  # the second round goes backwards
    assert set(times) == {"fit", "beside fit"}
    assert all(child.poll() is not None for child in children)


@pytest.mark.skipif(not resources.can_measure(), reason="needs Linux's account of memory")
def test_memory_that_was_taken_and_given_back_is_seen():
    resources.reset_peak()
    before = resources.memory_of_process()
    taken = np.ones(8_000_000)
    during = resources.memory_of_process()
    del taken
    after = resources.memory_of_process()
    assert during["now"] - before["now"] == pytest.approx(64e6, rel=0.1)
    assert after["most"] - before["now"] == pytest.approx(64e6, rel=0.1)
    assert after["now"] < during["now"] - 50e6


@pytest.mark.skipif(not resources.can_measure(), reason="needs Linux's account of memory")
def test_pages_of_a_file_count_as_memory_but_not_as_private_memory():
    # In a process of its own: what other tests have freed would be used again, and not be seen.
    program = "import json; from benchmarks._speed.memory import measure_kind as measure; "
    program += "kinds = ('float32', 'float32, mapped file'); "
    program += "print(json.dumps({kind: measure(kind, 40_000) for kind in kinds}))"
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    figures = json.loads(done.stdout)
    n_bytes = 40_000 * (100 * 4 + 8)
    for one in figures.values():
        assert one["data"] == pytest.approx(n_bytes / resources.MEGABYTE, abs=0.01)
        assert one["fit"] > 0.9 * one["data"]
    assert figures["float32"]["fit_private"] > 0.9 * figures["float32"]["data"]
    assert figures["float32, mapped file"]["fit_private"] < 0.7 * figures["float32"]["fit_private"]


@pytest.mark.parametrize("kind", memory.KINDS)
def test_tables_are_of_the_kind_that_they_are_named_after(kind):
    X = memory.KINDS[kind](100)
    assert X.shape == ((20, 5_000) if kind == "sparse" else (100, 100))
    assert X.dtype.name == ("float32" if kind == "sparse" else kind.split(",")[0])
    assert isinstance(X, np.memmap) == ("file" in kind)
    assert memory.n_bytes_of(X) >= X.size * X.dtype.itemsize or kind == "sparse"


# Threads


def test_two_threads_are_compared_with_one_and_the_default_is_recorded():
    (figures,) = measure_threads(replace(TINY, n_rounds=1)).values()
    assert figures["default"] == 1
    assert set(figures["microseconds"]) == {"one", "two", "beside one", "beside two"}


def test_the_default_counts_the_clean_rows_of_the_penalty(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    X, y = make_table(60, 5, 3)
    classifier = our_classifier(SMALL, 1, n_threads=1).fit(X, y)
    n_weights = sum(parameter.numel() for parameter in classifier.net_.module_.parameters())
    monkeypatch.setattr("mixupe_sklearn._runtime.torch_state.WORK_A_THREAD", n_weights * 20)
    assert default_threads(classifier, n_rows=60) == 2
    plain = our_classifier(SMALL, 1, n_threads=1, method="mixup").fit(X, y)
    assert default_threads(plain, n_rows=60) == 1


def test_thread_sizes_go_from_small_to_large():
    works = [size.n_weights * size.batch for size in thread_sizes()]
    assert works[0] == min(works)
    assert works[-1] == max(works)
    assert len(works) == 8


def test_the_readme_has_the_committed_ratios():
    times = read_json_results(ROOT / "benchmarks" / "results" / "speed.json")["parts"]["reference"]
    times = times["microseconds"]
    readme = (ROOT / "README.md").read_text()
    for other, words in [
        ("mlp", "{} times as long as scikit-learn"),
        ("listing", "{} times as long as the paper"),
    ]:
        pairs = zip(times["mixupe"], times[other], strict=True)
        ratio = float(np.median([mine / theirs for mine, theirs in pairs]))
        assert words.format(f"{ratio:.2f}") in readme
