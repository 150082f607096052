"""A search that is killed loses nothing, and processes share a study without harm."""

import os
import pathlib
import random
import signal
import tempfile
import time

import numpy as np
import optuna
import pytest
from search_programs import make_search, run_search

from mixupe_sklearn._search import study as study_module
from mixupe_sklearn._search.results import in_memory
from mixupe_sklearn._search.study import live_trials

SHARED = "ignore:Study .* has trials of other processes"


@pytest.fixture
def _quick(monkeypatch):
    monkeypatch.setattr(study_module, "HEARTBEAT", 1)
    monkeypatch.setattr(study_module, "GRACE", 2)


@pytest.fixture
def postgresql_folder():
    """A folder outside of pytest's, whose permissions every new run of pytest resets."""
    with tempfile.TemporaryDirectory(prefix="mixupe-postgresql-") as folder:
        yield pathlib.Path(folder) / "pg"


@pytest.fixture(scope="module")
def undisturbed(iris):
    return make_search(None).fit(*iris)


def load(place):
    """A copy of the study as it is now, or None."""
    storage = study_module.open_storage(place)
    try:
        if not optuna.get_all_study_names(storage):
            return None
        return in_memory(optuna.load_study(study_name="mixupe-search", storage=storage))
    finally:
        study_module.close_connections(storage)


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
        seen = complete(load(place))
    assert seen, "some trials were finished before a kill"
    states = [trial.state for trial in load(place).get_trials()]
    assert len(states) > states.count(optuna.trial.TrialState.COMPLETE), "and some were cut"
    search = run_search(place)
    kept = complete(load(place))
    for number, trial in seen.items():
        assert kept[number].value == trial.value
        assert kept[number].datetime_complete == trial.datetime_complete
    assert_each_point_once(load(place))
    assert_equal_results(search, undisturbed)


@pytest.mark.usefixtures("_quick")
@pytest.mark.filterwarnings(SHARED)
def test_two_workers_share_a_study_on_postgresql_and_one_is_killed(
    postgresql_folder, processes, undisturbed
):
    pgserver = pytest.importorskip("pgserver")
    server = pgserver.get_server(postgresql_folder)
    try:
        place = server.get_uri()
        workers = [processes.Process(target=run_search, args=(place,)) for _ in range(2)]
        workers[0].start()
        _wait_for_running_trials(place)
        os.kill(workers[0].pid, signal.SIGSTOP)  # so that what is running now is its own, and stays
        workers[1].start()
        workers[0].kill()
        workers[1].join(300)
        assert workers[1].exitcode == 0
        study = load(place)
        died = [t for t in study.get_trials() if t.state == optuna.trial.TrialState.FAIL]
        assert died, "it was killed in the middle of a trial"
        assert_each_point_once(study)
        assert_equal_results(run_search(place), undisturbed)
    finally:
        server.cleanup()


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
    assert_each_point_once(load(place))
    assert_equal_results(awake, undisturbed)


def _wait_for_progress(place, worker, n_before):
    _wait_until(lambda: len(complete(load(place))) > n_before or not worker.is_alive())


def _wait_for_running_trials(place):
    def is_running():
        trials = load(place).get_trials() if load(place) else []
        return sum(trial.state == optuna.trial.TrialState.RUNNING for trial in trials) > 4

    _wait_until(is_running)


def _wait_until(is_so):
    end = time.monotonic() + 300
    while not is_so():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
