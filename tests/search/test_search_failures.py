"""What ends a trial, a worker or the search: nothing that is finished is lost, nothing is left."""

import os
import pathlib
import signal
import time

import numpy as np
import optuna
import psutil
import pytest
from search_programs import action_search, load_study, run_actions, wait_until
from sklearn.exceptions import FitFailedWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold

from mixupe_sklearn import MixupESearchCV
from mixupe_sklearn._search import storage as storage_module

COMPLETE = optuna.trial.TrialState.COMPLETE
SHARED = "ignore:Study .* has trials of other processes"


@pytest.fixture
def _quick(monkeypatch):
    monkeypatch.setattr(storage_module, "HEARTBEAT", 1)
    monkeypatch.setattr(storage_module, "GRACE", 2)


@pytest.fixture
def _interruptible():
    """SIGINT raises KeyboardInterrupt, even if the tests run in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def states(found):
    return found.cv_results_["state"].tolist()


# A trial that kills its worker.


@pytest.mark.usefixtures("_quick")
@pytest.mark.filterwarnings(SHARED)
def test_a_trial_that_always_segfaults_is_failed_and_all_others_are_done(iris, tmp_path):
    with pytest.warns(FitFailedWarning, match="1 of 6 trials failed, .* killed its worker twice"):
        found = action_search("segfault", tmp_path, n_jobs=2).fit(*iris)
    assert states(found) == ["complete"] * 3 + ["failed"] + ["complete"] * 2
    assert len(list(tmp_path.glob("3-*"))) == 2, "it was tried twice"


# A trial that fails.


def test_a_trial_that_calls_exit_is_a_failed_trial(iris, tmp_path):
    with pytest.warns(
        FitFailedWarning, match="1 of 6 trials failed, the first with: SystemExit: 7"
    ):
        found = action_search("exit", tmp_path).fit(*iris)
    assert states(found) == ["complete"] * 3 + ["failed"] + ["complete"] * 2


def test_a_numeric_error_score_warns_with_the_number_of_fits(iris, tmp_path):
    with pytest.warns(
        FitFailedWarning, match="2 fits failed out of a total of 12, .*SystemExit: 7"
    ):
        found = action_search("exit", tmp_path, error_score=-1.0).fit(*iris)
    assert found.cv_results_["mean_test_score"][3] == -1.0
    assert states(found) == ["complete"] * 6


# The search itself.


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_workers_end_with_the_process_that_started_them(tmp_path, processes, number):
    parent = processes.Process(
        target=run_actions, args=("sleep always", tmp_path), kwargs={"n_jobs": 2}
    )
    parent.start()
    wait_until(lambda: len(list(tmp_path.glob("*-*"))) >= 2)
    workers = [psutil.Process(int(path.name.split("-")[1])) for path in tmp_path.glob("*-*")]
    assert all(worker.ppid() == parent.pid for worker in workers)
    os.kill(parent.pid, number)
    parent.join(300)
    start = time.monotonic()
    wait_until(lambda: not any(map(is_alive, workers)))
    print(f"workers ended after {time.monotonic() - start:.1f} s")


def is_alive(process):
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.usefixtures("_interruptible")
def test_an_interrupt_keeps_finished_trials_without_a_storage(iris, tmp_path):
    found = action_search("interrupt", tmp_path)
    with pytest.raises(KeyboardInterrupt):
        found.fit(*iris)
    done = [t.params["number"] for t in found.study_.trials if t.state == COMPLETE]
    assert 3 not in done
    assert 0 < len(done) < 6, "the grid is walked in a shuffled order"
    assert states(found) == ["complete"] * len(done)
    assert found.best_params_ == {"number": max(done)}


@pytest.mark.usefixtures("_interruptible")
def test_an_interrupt_before_the_first_trial_is_over_is_an_interrupt(iris, tmp_path):
    found = action_search("interrupt", tmp_path).set_params(space={"number": [3]})
    with pytest.raises(KeyboardInterrupt):
        found.fit(*iris)
    assert not hasattr(found, "cv_results_")


@pytest.mark.filterwarnings(SHARED)
def test_an_interrupt_of_two_workers_keeps_finished_trials(tmp_path, processes):
    place = tmp_path / "search.db"
    params = {"n_jobs": 2, "storage": str(place)}
    parent = processes.Process(target=run_actions, args=("sleep", tmp_path), kwargs=params)
    parent.start()
    wait_until(lambda: len(complete(place)) == 5)
    before = complete(place)
    os.kill(parent.pid, signal.SIGINT)
    parent.join(300)
    assert parent.exitcode == 3, "it ended with KeyboardInterrupt"
    assert complete(place) == before
    found = run_actions("none", tmp_path, storage=str(place))
    assert states(found) == ["complete"] * 6
    assert {n: t for n, t in complete(place).items() if n in before} == before


def complete(place):
    study = load_study(place) if pathlib.Path(place).exists() else None
    trials = study.get_trials() if study else []
    return {t.number: t.datetime_complete for t in trials if t.state == COMPLETE}


def test_a_generator_of_folds_that_is_used_up_gets_a_sentence(iris):
    folds = KFold(3, shuffle=True, random_state=0).split(*iris)
    found = MixupESearchCV(
        LogisticRegression(max_iter=1000), {"C": [1.0]}, cv=folds, pruner="none", refit=False
    ).fit(*iris)
    assert np.isfinite(found.cv_results_["mean_test_score"]).all()
    with pytest.raises(
        ValueError, match="Got cv without folds, but expected at least one. .*list."
    ):
        found.fit(*iris)
