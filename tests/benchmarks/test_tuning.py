"""Tuning by Optuna: what is searched and tested, budgets, interrupted runs, several machines."""

import csv
import json
import pathlib
import sqlite3
import tempfile
import time
from datetime import datetime, timedelta
from functools import partial
from types import SimpleNamespace

import numpy as np
import optuna
import pandas as pd
import pytest
import tuning_programs as programs
from sklearn.base import clone
from sklearn.metrics import accuracy_score, log_loss

from benchmarks import tabular
from benchmarks._harness.results_file import read_rows
from benchmarks._tabular.baselines import BASELINES, installed_baselines
from benchmarks._tabular.fits import few_rows_allowed
from benchmarks._tabular.methods import settings_of
from benchmarks._tabular.protocol import splits_of
from benchmarks._tabular.spaces import TUNABLE
from benchmarks._tabular.tuning import (
    COUNTS,
    SCORES,
    TUNED,
    Budget,
    Study,
    TunedBaseline,
    TuningPlan,
    busy_seconds,
    error_and_loss,
    read_trials,
    validation_score,
)
from mixupe_sklearn.datasets import Table, load_embedded

HGB = "hist-gradient-boosting"


def study_of(table, method, folder, n_trials=3, seconds=None):
    split = splits_of(table, "holdout", 1)[0]
    return Study(table, split, method, Budget(n_trials, seconds), f"sqlite:///{folder}/studies.db")


def row_of(study):
    (row,) = TuningPlan.run_job(study)
    assert row["error"] == ""
    return row


# The score


class Fixed:
    """A classifier with given probabilities."""

    classes_ = np.array(["a", "b"], dtype=object)

    def __init__(self, proba):
        self.proba = np.asarray(proba)

    def predict_proba(self, X):
        return self.proba


def test_the_score_is_the_accuracy_and_the_log_loss_decides_between_equal_ones():
    y = np.array(["a", "a", "b"], dtype=object)
    models = [Fixed([[p, 1 - p], [0.9, 0.1], [0.2, 0.8]]) for p in (0.4, 0.6, 0.9)]
    scores = [validation_score(model, None, y) for model in models]
    assert scores == sorted(scores)
    assert len(set(scores)) == 3
    # Never as much as one sample, even if a wrong answer is certain.
    certain = Fixed([[0.9, 0.1], [0.9, 0.1], [1.0, 0.0]])
    unsure = Fixed([[0.5 - 1e-9, 0.5 + 1e-9]] * 2 + [[0.5 - 1e-9, 0.5 + 1e-9]])
    assert validation_score(certain, None, y) > validation_score(unsure, None, y) + 1 / 3 - 1e-5


def test_the_error_and_the_log_loss_are_read_back_from_the_score():
    rng = np.random.default_rng(0)
    for n_rows in (7, 30, 999, 20_000):
        proba = rng.dirichlet([1.0, 1.0], size=n_rows)
        y = np.where(rng.random(n_rows) < 0.5, "a", "b").astype(object)
        error, loss = error_and_loss(validation_score(Fixed(proba), None, y), n_rows)
        predicted = Fixed.classes_[proba.argmax(axis=1)]
        assert error == pytest.approx(100 * (1 - accuracy_score(y, predicted)), abs=1e-3)
        assert loss == pytest.approx(log_loss(y, proba, labels=["a", "b"]), rel=1e-4)


# Baselines


@pytest.mark.parametrize("name", [name for name in TUNABLE if name in installed_baselines()])
def test_a_tuned_baseline_has_the_parameters_of_its_space(name):
    table = load_embedded("wine")
    space = TUNABLE[name].space
    rng = np.random.default_rng(0)
    params = {
        n: one.choices[-1]
        if hasattr(one, "choices")
        else type(one.low)(one.low + (one.high - one.low) * 0.4)
        for n, one in space.items()
    }
    model = clone(TunedBaseline(name).set_params(**params, seed=3))
    assert model.seed == 3
    assert {n: model.get_params()[n] for n in space} == params
    rows = rng.permutation(len(table.y))
    model.fit(table.X.iloc[rows], table.y[rows])
    inner = model.classifier_
    known = inner.booster_.params if name == "lightgbm" else inner.get_params()
    fixed = {n: v for n, v in TUNABLE[name].fixed.items() if n in known}
    assert {n: known[n] for n in (*params, *fixed)} == params | fixed
    assert model.score(table.X, table.y) > 0.8


def test_the_spaces_belong_to_baselines_and_defaults_are_untouched():
    assert set(TUNABLE) <= set(BASELINES)
    plain = TunedBaseline(HGB)
    plain.set_params(learning_rate=0.5)
    assert TunedBaseline(HGB).tuned is None
    assert "max_iter" not in BASELINES[HGB].params


@pytest.mark.parametrize("name", [HGB, "lightgbm"])
def test_boosting_stops_early_and_a_rare_class_does_not_fail(name):
    """A class with a single sample can be neither stratified nor left out of training."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=121), "b": rng.normal(size=121)})
    noise = rng.normal(size=121)
    y = np.where(X["a"] + noise > 0, "up", "down").astype(object)
    y[-1] = "lonely"
    model = TunedBaseline(name).set_params(learning_rate=0.1).fit(X, y)
    assert set(model.classes_) == {"up", "down", "lonely"}
    n_iter = model.classifier_.n_iter_ if name == HGB else model.classifier_.best_iteration_
    most = TUNABLE[name].fixed["max_iter" if name == HGB else "n_estimators"]
    assert 0 < n_iter < most


# A study


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    """The rows of two studies on iris, by method."""
    folder = tmp_path_factory.mktemp("studied")
    table = load_embedded("iris")
    studies = {m: study_of(table, m, folder, n) for m, n in (("mixupe-paper", 6), (HGB, 3))}
    return {method: (study, row_of(study)) for method, study in studies.items()}


@pytest.mark.parametrize("method", ["mixupe-paper", HGB])
def test_the_best_configuration_is_fitted_on_all_samples_of_the_search_and_tested(studied, method):
    study, row = studied[method]
    table, split = study.table, study.split
    train = np.concatenate([split.train, split.valid])
    best = json.loads(row["best"])
    if method == HGB:
        model = TunedBaseline(HGB, split.seed).set_params(**best) if best else study.default()
    else:
        model = settings_of(method).make(split.seed)
        model.set_params(**{f"classifier__{name}": value for name, value in best.items()})
    with few_rows_allowed():
        model.fit(table.X.iloc[train], table.y[train])
    X, y = table.X.iloc[split.test], table.y[split.test]
    assert row["test_error"] == pytest.approx(100 * (1 - model.score(X, y)), rel=1e-5)
    loss = log_loss(y, model.predict_proba(X))
    assert row["test_log_loss"] == pytest.approx(loss, rel=1e-3)
    trials = [t for t in read_trials(row["trials"]) if t["state"] == "complete"]
    candidates = [(t["valid_error"], t["valid_log_loss"]) for t in trials]
    candidates.append((row["default_valid_error"], row["default_valid_log_loss"]))
    assert (row["valid_error"], row["valid_log_loss"]) == min(candidates)
    assert sum(row[name] for name in COUNTS) == len(read_trials(row["trials"]))
    assert row["search_seconds"] > 0


def test_trials_are_scored_on_the_validation_samples(studied):
    study, row = studied["mixupe-paper"]
    trial = read_trials(row["trials"])[0]
    assert trial["state"] == "complete"
    model = study.default()
    model.set_params(**{f"classifier__{name}": v for name, v in trial["params"].items()})
    with few_rows_allowed():
        model.fit(study.data.X["train"], study.data.y["train"])
    X, y = study.data.X["valid"], study.data.y["valid"]
    assert trial["valid_error"] == pytest.approx(100 * (1 - model.score(X, y)), abs=1e-3)
    assert trial["valid_log_loss"] == pytest.approx(log_loss(y, model.predict_proba(X)), rel=1e-3)


def test_test_samples_select_nothing(studied, tmp_path):
    """With other test samples, everything before the test is the same."""
    study, row = studied["mixupe-paper"]
    X = study.table.X.copy()
    X.iloc[study.split.test] = 0.0
    other = row_of(study_of(Table("iris", X, study.table.y, "csv"), "mixupe-paper", tmp_path, 6))
    for name in ("trials", "best", "valid_error", "valid_log_loss", "default_valid_log_loss"):
        assert other[name] == row[name]
    assert other["test_log_loss"] != row["test_log_loss"]


def test_a_larger_budget_continues_the_study_and_a_time_limit_counts_earlier_seconds(tmp_path):
    table = load_embedded("iris")
    first = read_trials(row_of(study_of(table, HGB, tmp_path, 2))["trials"])
    more = read_trials(row_of(study_of(table, HGB, tmp_path, 3))["trials"])
    assert len(more) == 3
    assert more[:2] == first
    spent = row_of(study_of(table, HGB, tmp_path, 200, seconds=1e-6))
    assert read_trials(spent["trials"]) == more
    assert spent["budget"] == "1e-06 s, 200 trials"
    assert spent["default_test_error"] >= 0


def test_seconds_of_trials_that_ran_at_the_same_time_count_once():
    start = datetime(2026, 1, 1)
    spans = [(0, 4, "COMPLETE"), (1, 2, "PRUNED"), (3, 6, "COMPLETE"), (10, 11, "COMPLETE")]
    spans.append((5, 5000, "FAIL"))  # of a killed worker, found much later
    trials = [
        SimpleNamespace(
            state=optuna.trial.TrialState[state],
            datetime_start=start + timedelta(seconds=low),
            datetime_complete=start + timedelta(seconds=high),
        )
        for low, high, state in spans
    ]
    assert busy_seconds(trials) == 7
    assert busy_seconds([]) == 0


def test_failed_studies_are_rows_and_are_searched_again_on_request(tmp_path):
    table = load_embedded("iris")
    bad = Table("bad", table.X.assign(b=np.inf), table.y, "csv")
    plan = {"budget": Budget(2), "storage": f"sqlite:///{tmp_path}/studies.db"}
    (study,) = TuningPlan(tuned=["mixupe-paper"], **plan).fits(bad)
    (row,) = TuningPlan.run_job(study)
    assert "Got infinity in column 'b'" in row["error"]
    assert set(SCORES).isdisjoint(row)
    (again,) = TuningPlan(tuned=["mixupe-paper"], retry_failed=True, **plan).fits(bad)
    assert again.is_again


# The command


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--trials", "5"], "Got --trials, but expected it with --tune optuna only."),
        (["--space", "paper"], "Got --space, but expected it with --tune optuna only."),
        (["--tune", "optuna", "--grid", "reduced"], "Got --grid and --tune, but expected one"),
        (["--tune", "optuna", "--epochs", "50"], "Got --epochs and --tune, but expected one"),
        (["--tune", "optuna", "--baselines", "logistic"], "but expected one with a search space"),
        (["--tune", "optuna", "--dask", "tcp://x:1"], "but expected --storage URL, which all"),
        (["--tune", "optuna", "--report-only"], "but found no"),
    ],
)
def test_invalid_options_get_a_one_line_error(arguments, sentence, tmp_path, capsys):
    assert tabular.main([*arguments, "--quiet", "--output", str(tmp_path / "out")]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert sentence in lines[0]


def test_a_database_that_cannot_be_reached_is_named_without_its_password(tmp_path, capsys):
    storage = "postgresql+psycopg://me:secret@127.0.0.1:1/studies"
    options = ["--tune", "optuna", "--trials", "1", "--storage", storage, "--quiet"]
    assert tabular.main([*options, "--output", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("Error: Got --storage postgresql+psycopg://me:***@127.0.0.1:1/studies")
    assert not (tmp_path / "tuned.csv").exists()


def finished(storage):
    """Complete and pruned trials of all studies in a storage."""
    found = {}
    for name in optuna.get_all_study_names(storage):
        for trial in optuna.load_study(study_name=name, storage=storage).trials:
            if trial.state.name in ("COMPLETE", "PRUNED"):
                found[name, trial.number] = (trial.value, trial.datetime_complete)
    return found


def wait_until(is_true, seconds=300):
    end = time.monotonic() + seconds  # much, where the machine is busy
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.05)


def has_more_than(path, n_trials):
    """Whether the file has more finished trials; it is read while the run creates its tables."""
    query = "SELECT COUNT(*) FROM trials WHERE state IN ('COMPLETE', 'PRUNED')"
    connection = sqlite3.connect(path)
    try:
        return connection.execute(query).fetchone()[0] > n_trials
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()


def test_three_kills_lose_and_repeat_no_trial_and_no_row(tmp_path, processes):
    storage = f"sqlite:///{tmp_path}/studies.db"
    seen, n_cut = {}, 0
    for _ in range(3):
        process = processes.Process(target=programs.tune, args=(tmp_path, "--trials", "8"))
        process.start()
        wait_until(partial(has_more_than, tmp_path / "studies.db", len(seen) + 1))
        n_cut += process.is_alive()  # a busy machine may notice late
        process.kill()  # SIGKILL
        process.join()
        kept = finished(storage)
        assert seen.items() <= kept.items()
        seen = kept
    assert n_cut, "all runs were over before they were killed"
    process = processes.Process(target=programs.tune, args=(tmp_path, "--trials", "8"))
    process.start()
    process.join(300)
    assert process.exitcode == 0
    assert seen.items() <= finished(storage).items()
    lines = list(csv.DictReader((tmp_path / "tuned.csv").read_text().splitlines()))
    assert [line["method"] for line in lines] == ["mixupe-paper", HGB]
    rows = read_rows(tmp_path / "tuned.csv", TUNED)
    assert [len(read_trials(text)) for text in rows["trials"]] == [8, 8]
    assert rows[list(COUNTS)].sum(axis=1).tolist() == [8, 8]
    assert len(finished(storage)) == 16
    assert "Tuned by Optuna" in (tmp_path / "report.md").read_text()
    before = (tmp_path / "tuned.csv").read_bytes()
    report = (tmp_path / "report.md").read_bytes()
    tabular.main(["--tune", "optuna", "--trials", "8", "--output", str(tmp_path), "--report-only"])
    assert (tmp_path / "tuned.csv").read_bytes() == before
    assert (tmp_path / "report.md").read_bytes() == report


@pytest.fixture(scope="module")
def postgresql():
    """The address of a real server."""
    pgserver = pytest.importorskip("pgserver")
    with tempfile.TemporaryDirectory(prefix="mixupe-postgresql-") as folder:
        server = pgserver.get_server(pathlib.Path(folder) / "pg")
        yield server.get_uri()
        server.cleanup()


def test_two_machines_share_the_studies_of_a_database(tmp_path, processes, postgresql):
    """Two runs with folders of their own: together they run each trial once."""
    storage = postgresql.replace(":@", ":secret@")  # the server trusts without asking for it
    assert "secret" in storage
    arguments = ("--trials", "6", "--baselines", HGB, "--storage", storage)
    folders = [tmp_path / "one", tmp_path / "other"]
    runs = [processes.Process(target=programs.tune, args=(f, *arguments)) for f in folders]
    for run in runs:
        run.start()
    for run in runs:
        run.join(300)
        assert run.exitcode == 0
    one, other = (read_rows(folder / "tuned.csv", TUNED) for folder in folders)
    same = ["method", "trials", "best", "valid_error", "test_error", *COUNTS]
    pd.testing.assert_frame_equal(one[same], other[same])
    assert [len(read_trials(text)) for text in one["trials"]] == [6, 6]
    assert not (folders[0] / "studies.db").exists()
    for path in (*folders[0].iterdir(), *folders[1].iterdir()):
        assert path.suffix == ".lock" or "secret" not in path.read_text()
    assert "***@" in (folders[0] / "commands.txt").read_text()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_studies_run_on_a_dask_cluster(tmp_path, postgresql, capsys):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        where = ["--dask", cluster.scheduler_address, "--storage", postgresql]
        options = ["--names", "wine", "--tune", "optuna", "--space", "paper", "--trials", "2"]
        given = [*options, *where, "--quiet", "--output", str(tmp_path)]
        assert tabular.main(given) == 0
    rows = read_rows(tmp_path / "tuned.csv", TUNED)
    assert sorted(rows["method"]) == [HGB, "mixupe-paper"]
    assert (rows["error"] == "").all()
    assert "report.html" in capsys.readouterr().out
