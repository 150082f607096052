"""A search that is killed loses nothing, and processes share a study without harm."""

import os
import random
import signal
import time

import numpy as np
import optuna
import pytest
from search_programs import load_study, make_search, run_search, wait_until

from mixupe_sklearn._search import storage as storage_module
from mixupe_sklearn._search.study import live_trials

SHARED = "ignore:Study .* has trials of other processes"


@pytest.fixture
def _quick(monkeypatch):
    monkeypatch.setattr(storage_module, "HEARTBEAT", 1)
    monkeypatch.setattr(storage_module, "GRACE", 2)


@pytest.fixture(scope="module")
def undisturbed(iris):
    return make_search(None).fit(*iris)


def complete(study):
    trials = study.get_trials() if study else []
    return {t.number: t for t in trials if t.state == optuna.trial.TrialState.COMPLETE}


def assert_equal_results(search, other):
    for name in ("params", "mean_test_score", "split3_test_score", "rank_test_score"):
        np.testing.assert_array_equal(search.cv_results_[name], other.cv_results_[name])
    assert search.best_params_ == other.best_params_


def assert_each_point_once(study):
    points = [tuple(trial.params.values()) for trial in complete(study).values()]
    assert len(points) == len(set(points)) == 30
    states = {trial.state for trial in live_trials(study)}
    assert states == {optuna.trial.TrialState.COMPLETE}


@pytest.mark.usefixtures("_quick")
@pytest.mark.filterwarnings(SHARED)
def test_ten_kills_lose_no_finished_trial(tmp_path, processes, undisturbed):
    place = str(tmp_path / "search.db")
    seen = {}
    for number in range(10):
        begun = processes.Event()
        worker = processes.Process(target=run_search, args=(place, begun))
        worker.start()
        begun.wait(300)
        if number % 2:  # every other time not before it has finished some more
            _wait_for_progress(place, worker, len(seen))
        worker.join(random.uniform(0.0, 0.5))
        worker.kill()  # SIGKILL, wherever it is
        worker.join()
        seen = complete(load_study(place))
    assert seen, "some trials were finished before a kill"
    states = [trial.state for trial in load_study(place).get_trials()]
    assert len(states) > states.count(optuna.trial.TrialState.COMPLETE), "and some were cut"
    search = run_search(place)
    kept = complete(load_study(place))
    for number, trial in seen.items():
        assert kept[number].value == trial.value
        assert kept[number].datetime_complete == trial.datetime_complete
    assert_each_point_once(load_study(place))
    assert_equal_results(search, undisturbed)


@pytest.mark.usefixtures("_quick")
@pytest.mark.filterwarnings(SHARED)
def test_two_workers_share_a_study_on_postgresql_and_one_is_killed(
    postgresql_uri, processes, undisturbed
):
    place = postgresql_uri
    workers = [processes.Process(target=run_search, args=(place,)) for _ in range(2)]
    workers[0].start()
    _wait_for_running_trials(place)
    os.kill(workers[0].pid, signal.SIGSTOP)  # so that what is running now is its own, and stays
    workers[1].start()
    workers[0].kill()
    workers[1].join(300)
    assert workers[1].exitcode == 0
    study = load_study(place)
    died = [t for t in study.get_trials() if t.state == optuna.trial.TrialState.FAIL]
    assert died, "it was killed in the middle of a trial"
    assert_each_point_once(study)
    assert_equal_results(run_search(place), undisturbed)


@pytest.mark.usefixtures("_quick")
@pytest.mark.filterwarnings(SHARED)
def test_trials_of_a_suspended_worker_are_taken_over(tmp_path, processes, undisturbed):
    place = str(tmp_path / "search.db")
    sleeper = processes.Process(target=run_search, args=(place,))
    sleeper.start()
    _wait_for_running_trials(place)
    time.sleep(0.3)  # it trains by now, and does not hold the file
    os.kill(sleeper.pid, signal.SIGSTOP)
    awake = run_search(place)
    os.kill(sleeper.pid, signal.SIGCONT)
    sleeper.join(300)
    assert sleeper.exitcode == 0
    assert_each_point_once(load_study(place))
    assert_equal_results(awake, undisturbed)


def _wait_for_progress(place, worker, n_before):
    wait_until(lambda: len(complete(load_study(place))) > n_before or not worker.is_alive())


def _wait_for_running_trials(place):
    def is_running():
        trials = load_study(place).get_trials() if load_study(place) else []
        return sum(trial.state == optuna.trial.TrialState.RUNNING for trial in trials) > 4

    wait_until(is_running)
