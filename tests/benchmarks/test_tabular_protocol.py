"""The benchmark's protocol: grids, splits, rows, and interrupted runs."""

import json
import os
import pathlib
import shutil
import signal
import threading
import time
import warnings

import numpy as np
import pandas as pd
import pytest
import tabular_programs as programs
from sklearn.metrics import log_loss

from benchmarks._harness.environment import versions_of
from benchmarks._harness.results_file import ResultsFile, read_rows
from benchmarks._harness.runner import Item, LostWorkersError, run
from benchmarks._tabular.fits import TabularPlan, estimator_of, few_rows_allowed, prepare, run_job
from benchmarks._tabular.methods import OWN, settings_of
from benchmarks._tabular.protocol import (
    FITS,
    KEY,
    METHODS,
    TRAINING,
    Config,
    Job,
    configs_of,
    jobs_of,
    params_text,
    splits_of,
)
from mixupe_sklearn import MixupEClassifier, make_mixupe_pipeline
from mixupe_sklearn.datasets import Table, load_embedded

TIMES = ["fit_seconds", "predict_seconds", "run"]
PARTS = ("train", "valid", "test")
QUICK = TRAINING | {"max_epochs": 3}
ON_LINUX = pytest.mark.skipif(
    not pathlib.Path("/proc/self/task").exists(), reason="reads Linux's /proc"
)


def table_with(y, **columns):
    X = pd.DataFrame({"a": np.arange(len(y), dtype=float)} | columns)
    return Table("made", X, np.asarray(y, dtype=object), "csv")


def sorted_rows(path):
    """Sorted rows without the columns that differ between any two runs."""
    return read_rows(path, FITS).drop(columns=TIMES).sort_values(list(KEY), ignore_index=True)


def test_the_paper_grid_has_275_fits_per_dataset():
    table = load_embedded("iris")
    jobs = jobs_of(table, splits_of(table, "holdout", 5), ("erm", "mixup", "mixupe"), "paper", {})
    assert sum(len(job.configs) for job in jobs) == 275


def test_every_configuration_of_the_reduced_grid_is_one_of_the_paper():
    for method in METHODS:
        assert set(configs_of(method, "reduced")) <= set(configs_of(method, "paper"))


@pytest.mark.parametrize("name", ["iris", "balance-scale"])
def test_holdout_splits_use_all_samples_and_are_stratified(name):
    table = load_embedded(name)
    shares = pd.Series(table.y).value_counts(normalize=True)
    splits = splits_of(table, "holdout", 3)
    assert splits[0].test.tolist() != splits[1].test.tolist()
    for split, again in zip(splits, splits_of(table, "holdout", 3), strict=True):
        assert split.test.tolist() == again.test.tolist()
        parts = [getattr(split, part) for part in PARTS]
        assert sorted(np.concatenate(parts)) == list(range(table.n_rows))
        assert [len(part) / table.n_rows for part in parts] == pytest.approx(
            [0.6, 0.2, 0.2], abs=0.01
        )
        for part in parts:
            found = pd.Series(table.y[part]).value_counts(normalize=True)
            assert (found - shares).abs().max() < 0.02


@pytest.mark.parametrize(
    "counts", [(30, 1), (30, 1, 1), (30, 2), (20, 3, 1, 1, 1), (1,) * 12, (2,) * 10]
)
def test_rare_classes_can_be_split(counts):
    y = np.repeat([f"class {number}" for number in range(len(counts))], counts)
    split = splits_of(table_with(y), "holdout", 1)[0]
    assert sum(len(getattr(split, part)) for part in PARTS) == len(y)
    assert len(split.valid) > 0


def test_task_splits_are_those_of_the_task():
    table = load_embedded("iris")
    rows = np.random.default_rng(0).permutation(150)
    folds = [(rows[50:], rows[:50]), (rows[:100], rows[100:])]
    table = Table("iris", table.X, table.y, "openml", task_id=59, folds=folds)
    for split, (train, test) in zip(splits_of(table, "task", 5), folds, strict=True):
        assert split.test.tolist() == test.tolist()
        assert sorted([*split.train, *split.valid]) == sorted(train)
        assert len(split.valid) == 20


def test_two_tasks_of_one_dataset_do_not_share_rows():
    iris = load_embedded("iris")
    folds = [(np.arange(50, 150), np.arange(50))]
    tables = [Table("iris", iris.X, iris.y, "openml", task_id=n, folds=folds) for n in (59, 289)]
    keys = {
        FITS.key_of(job.identity(job.configs[0]))
        for table in tables
        for job in jobs_of(table, splits_of(table, "task", 1), ["erm"], "paper", {})
    }
    assert len(keys) == 2


@pytest.mark.parametrize("method", OWN)
def test_our_default_classifier_is_one_configuration(method):
    for grid in ("paper", "reduced", "default"):
        assert configs_of(method, grid) == [Config(method)]
    assert params_text(method, QUICK) == params_text(method, TRAINING)


@pytest.fixture
def other_default(monkeypatch):
    """A constructor with another default number of epochs."""
    monkeypatch.setitem(MixupEClassifier.__init__.__kwdefaults__, "max_epochs", 3)


def test_rows_record_the_defaults(other_default):
    params = json.loads(params_text("mixupe-default", {}))
    assert params["set"] == {"classifier": {}, "preprocessor": {}, "is_regression": False}
    assert params["all"]["classifier"]["max_epochs"] == 3


def test_rows_of_other_defaults_have_other_keys(request):
    before = {name: params_text(name, {}) for name in (*OWN, "mixupe")}
    request.getfixturevalue("other_default")
    assert params_text("mixupe-default", {}) != before["mixupe-default"]
    # The paper's settings do not depend on the defaults.
    assert params_text("mixupe-paper", {}) == before["mixupe-paper"]
    assert params_text("mixupe", {}) == before["mixupe"]


def test_the_papers_networks_do_not_follow_the_defaults(other_default):
    for classifier in (
        estimator_of(Config("mixupe", 0.1, 0.1), 0, {}),
        settings_of("mixupe-paper").make(0)["classifier"],
    ):
        assert (classifier.max_epochs, classifier.n_members) == (25, 1)
    assert settings_of("mixupe-default").make(0)["classifier"].max_epochs == 3


def test_a_row_of_our_defaults_matches_the_default_pipeline():
    table = load_embedded("iris")
    split = splits_of(table, "holdout", 2)[1]
    row = run_job(Job(table, split, (Config("mixupe-default"),), QUICK, "paper"))[0]
    assert row.get("error", "") == ""
    pipeline = make_mixupe_pipeline(random_state=1, device="cpu", n_threads=1)
    with few_rows_allowed():
        pipeline.fit(table.X.iloc[split.train], table.y[split.train])
    X, y = table.X.iloc[split.test], table.y[split.test]
    assert row["test_error"] == pytest.approx(100 * (1 - pipeline.score(X, y)), rel=1e-5)
    assert row["test_log_loss"] == pytest.approx(log_loss(y, pipeline.predict_proba(X)), rel=1e-4)


def test_the_papers_preset_matches_the_papers_protocol():
    table = load_embedded("wine")
    split = splits_of(table, "holdout", 1)[0]
    pair = configs_of("mixupe", "default")
    ours = run_job(Job(table, split, (Config("mixupe-paper"),), TRAINING, "paper"))[0]
    theirs = run_job(Job(table, split, tuple(pair), TRAINING, "default"))[0]
    for name in ("valid_error", "test_error"):
        assert ours[name] == theirs[name]
    assert ours["test_log_loss"] == pytest.approx(theirs["test_log_loss"], rel=1e-3)


def test_a_dataset_without_folds_has_no_task_splits():
    with pytest.raises(ValueError, match="Got splits='task' for iris"):
        splits_of(load_embedded("iris"), "task", 5)


def test_preprocessing_is_fitted_on_training_samples_only():
    table = load_embedded("wine")
    split = splits_of(table, "holdout", 1)[0]
    changed = table.X.copy()
    changed.iloc[np.concatenate([split.valid, split.test])] *= 1000.0
    other = Table("wine", changed, table.y, "csv")
    assert (prepare(table, split).X["train"] == prepare(other, split).X["train"]).all()
    assert np.abs(prepare(table, split).X["train"].mean(axis=0)).max() < 1e-5


@pytest.mark.parametrize("method", METHODS)
def test_a_row_matches_the_same_fit_alone(method):
    table = load_embedded("wine")
    split = splits_of(table, "holdout", 2)[1]
    config = configs_of(method, "reduced")[-1]
    row = run_job(Job(table, split, (config, config), QUICK, "paper"))[1]
    data = prepare(table, split)
    model = estimator_of(config, split.seed, QUICK).fit(data.X["train"], data.y["train"])
    assert row["test_error"] == pytest.approx(
        100 * (1 - model.score(data.X["test"], data.y["test"])), rel=1e-5
    )
    assert row["valid_error"] == pytest.approx(
        100 * (1 - model.score(data.X["valid"], data.y["valid"])), rel=1e-5
    )
    loss = log_loss(data.y["test"], model.predict_proba(data.X["test"]))
    assert row["test_log_loss"] == pytest.approx(loss, rel=1e-4)
    assert float(row["test_losses"].split()[-1]) == pytest.approx(loss, rel=1e-2)
    assert len(row["train_losses"].split()) == len(row["test_losses"].split()) == 3
    assert row["n_together"] == (1 if method == "mixupe-directional" else 2)
    assert (row["split"], row["seed"], row["method"]) == (1, 1, method)


def test_a_failed_fit_records_its_error():
    table = table_with(np.repeat(["a", "b"], 20), b=np.full(40, np.inf))
    split = splits_of(table, "holdout", 1)[0]
    rows = run_job(Job(table, split, tuple(configs_of("mixup", "paper")), QUICK, "paper"))
    assert len(rows) == 9
    assert all("Got infinity in column 'b'" in row["error"] for row in rows)


def test_a_class_that_only_test_samples_have_counts_as_an_error():
    y = [*np.repeat(["a", "b"], 30), "lonely"]
    table = table_with(y)
    splits = [s for s in splits_of(table, "holdout", 20) if 60 in s.test]
    assert splits
    row = run_job(Job(table, splits[0], (Config("erm"),), QUICK, "paper"))[0]
    assert row["test_error"] >= 100 / len(splits[0].test) - 1e-4
    assert np.isfinite(row["test_log_loss"])


def test_the_versions_of_a_baselines_library_are_recorded():
    assert "lightgbm 4" in versions_of(["lightgbm"])
    assert "lightgbm" not in versions_of(["mixupe"])


def run_all(path, n_jobs, tables=None, plan=programs.PLAN):
    items = [Item(t.name, lambda t=t: t) for t in tables or programs.two_tables()]
    with ResultsFile(path, FITS) as file:
        return run(items, plan, file, n_jobs=n_jobs, is_shown=False)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The rows of an undisturbed run."""
    path = tmp_path_factory.mktemp("undisturbed") / "rows.csv"
    run_all(path, n_jobs=1)
    return sorted_rows(path)


@pytest.fixture(scope="module")
def orphaned(processes, tmp_path_factory):
    """A run with two workers whose main process was killed: the file, and the workers."""
    path = tmp_path_factory.mktemp("orphaned") / "rows.csv"
    process = start_program(processes, path, n_jobs=2)
    wait_until(lambda: n_lines(path) > 5)
    started = children_of(process.pid)
    process.kill()  # SIGKILL
    process.join()
    return path, started


def start_program(processes, path, n_jobs):
    process = processes.Process(target=programs.main, args=(path, n_jobs))
    process.start()
    return process


def test_five_kills_lose_and_repeat_nothing(tmp_path, processes, orphaned, undisturbed):
    path = tmp_path / "rows.csv"
    shutil.copyfile(orphaned[0], path)  # the first one
    rng = np.random.default_rng(0)
    for _ in range(4):
        n_before = n_lines(path)
        process = start_program(processes, path, n_jobs=1)
        # Wait for some more rows, then for a random time.
        wait_until(lambda n=n_before + 5: n_lines(path) >= n)
        time.sleep(rng.uniform(0, 0.15))
        assert process.is_alive(), "the run was over before it was killed five times"
        process.kill()
        process.join()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*ended in the middle of a row")
        run_all(path, n_jobs=1)
    assert len(path.read_text().splitlines()) - 1 == len(undisturbed), "a fit is there twice"
    pd.testing.assert_frame_equal(sorted_rows(path), undisturbed)


def n_lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_rows_do_not_depend_on_the_number_of_processes(tmp_path, undisturbed):
    """Two processes here; the undisturbed run has one."""
    tables = [next(iter(programs.two_tables()))]
    run_all(tmp_path / "rows.csv", n_jobs=2, tables=tables)
    alone = undisturbed[undisturbed["dataset"] == "numbers"].reset_index(drop=True)
    pd.testing.assert_frame_equal(sorted_rows(tmp_path / "rows.csv"), alone)


def test_a_finished_run_has_nothing_left_to_do(tmp_path):
    plan = TabularPlan(("erm", "logistic"), n_seeds=1, training=QUICK)
    tables = [load_embedded("iris")]
    run_all(tmp_path / "rows.csv", 1, tables, plan)
    before = (tmp_path / "rows.csv").read_bytes()
    run_all(tmp_path / "rows.csv", 1, tables, plan)
    assert (tmp_path / "rows.csv").read_bytes() == before


def test_other_data_of_the_same_name_are_another_dataset(tmp_path):
    plan = TabularPlan(("erm",), n_seeds=1, training=QUICK)
    table = load_embedded("iris")
    run_all(tmp_path / "rows.csv", 1, [table], plan)
    run_all(tmp_path / "rows.csv", 1, [Table("iris", table.X * 2, table.y, "csv")], plan)
    assert read_rows(tmp_path / "rows.csv", FITS)["data"].nunique() == 2


def test_failed_fits_are_run_again_only_on_request(tmp_path):
    bad = table_with(np.repeat(["a", "b"], 20), b=np.full(40, np.inf))
    plan = TabularPlan(("erm",), n_seeds=1, training=QUICK)
    path = tmp_path / "rows.csv"
    for _ in range(2):
        run_all(path, 1, [bad], plan)
    assert n_lines(path) == 2
    run_all(path, 1, [bad], TabularPlan(("erm",), n_seeds=1, training=QUICK, retry_failed=True))
    assert n_lines(path) == 3
    assert len(read_rows(path, FITS)) == 1


def test_a_dataset_that_cannot_be_loaded_is_reported_or_stops_the_run(tmp_path):
    def load():
        raise OSError("no network")

    plan = TabularPlan(("erm",), n_seeds=1, training=QUICK)
    iris = Item("iris", lambda: load_embedded("iris"))
    with ResultsFile(tmp_path / "rows.csv", FITS) as file:
        with pytest.raises(OSError, match="no network"):
            run([iris, Item("far", load)], plan, file, is_shown=False)
        assert n_lines(file.path) == 0
        not_run = run([iris, Item("far", load, is_required=False)], plan, file, is_shown=False)
    assert not_run == {"far": "no network"}
    assert len(read_rows(tmp_path / "rows.csv", FITS)) == 1


def test_a_dataset_that_disappears_does_not_stop_the_others(tmp_path):
    looks = []

    def load():
        looks.append(1)
        if len(looks) > 1:
            raise OSError("gone")
        return load_embedded("wine")

    plan = TabularPlan(("erm",), n_seeds=1, training=QUICK)
    items = [Item("wine", load), Item("iris", lambda: load_embedded("iris"))]
    with ResultsFile(tmp_path / "rows.csv", FITS) as file:
        assert run(items, plan, file, is_shown=False) == {"wine": "gone"}
    assert read_rows(tmp_path / "rows.csv", FITS)["dataset"].tolist() == ["iris"]


def test_a_dataset_requested_twice_is_run_once(tmp_path):
    plan = TabularPlan(("erm",), n_seeds=2, training=QUICK)
    run_all(tmp_path / "rows.csv", 1, [load_embedded("iris"), load_embedded("iris")], plan)
    assert n_lines(tmp_path / "rows.csv") == 3


def children_of(pid):
    """The child processes of a process; none without /proc."""
    path = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
    return set(map(int, path.read_text().split())) if path.exists() else set()


def is_alive(pid):
    path = pathlib.Path(f"/proc/{pid}/stat")
    return path.exists() and path.read_text().split()[2] != "Z"


@ON_LINUX
def test_workers_end_with_the_process_that_started_them(orphaned):
    started = orphaned[1]
    assert started
    wait_until(lambda: not any(map(is_alive, started)))


@ON_LINUX
def test_a_killed_worker_raises_lost_workers_error(tmp_path):
    path = tmp_path / "rows.csv"
    items = [Item(table.name, lambda table=table: table) for table in programs.two_tables()]

    def kill_one():
        wait_until(lambda: n_lines(path) > 5)
        for pid in children_of(os.getpid()):
            command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"popen_loky" in command:
                os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_one)
    killer.start()
    with (
        ResultsFile(path, FITS) as file,
        pytest.raises(LostWorkersError, match="fewer --jobs.* the same command resumes"),
    ):
        run(items, programs.PLAN, file, n_jobs=2, is_shown=False)
    killer.join()
    assert n_lines(path) > 5


def wait_until(is_so, seconds=300):
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
