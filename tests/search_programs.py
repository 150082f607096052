"""What the tests of the search run in processes of their own."""

import os
import pathlib
import signal
import sys
import time
import warnings

import numpy as np
import optuna
from paper import paper_classifier
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from mixupe_sklearn import MixupESearchCV
from mixupe_sklearn._search import storage
from mixupe_sklearn._search.results import in_memory

SPACE = {"alpha": [0.05, 0.1, 0.2, 0.5, 1.0, 2.0], "eta": [1e-4, 1e-3, 1e-2, 1e-1, 1.0]}


def quick_heartbeats():
    """A dead worker is noticed after two seconds instead of thirty."""
    storage.HEARTBEAT, storage.GRACE = 1, 2


def make_search(place, **params):
    params = {"cv": 3, "n_repeats": 2, "random_state": 0, "refit": False, **params}
    classifier = paper_classifier(max_epochs=12, batch_size=20)
    return MixupESearchCV(classifier, SPACE, storage=place, **params)


def run_search(place, begun=None):
    quick_heartbeats()
    if begun is not None:
        begun.set()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Study .* has trials of other processes")
        return make_search(place).fit(*load_iris(return_X_y=True))


def load_study(place):
    """A copy of the study as it is now, or None."""
    opened = storage.open_storage(place)
    try:
        name = "mixupe-search"
        if name not in optuna.get_all_study_names(opened):  # others may be in the database
            return None
        return in_memory(optuna.load_study(study_name=name, storage=opened))
    finally:
        storage.close_connections(opened)


def wait_until(is_so):
    end = time.monotonic() + 300
    while not is_so():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def run_labelled_search(place, label, queue):
    """Search on iris with one changed label; put "complete" or the error into the queue."""
    X, y = load_iris(return_X_y=True)
    y[7] = label
    params = {"cv": 2, "pruner": "none", "study_name": "labelled", "storage": place}
    try:
        MixupESearchCV(LogisticRegression(max_iter=1000), {"C": [1.0]}, **params).fit(X, y)
        queue.put("complete")
    except ValueError as error:
        queue.put(str(error))


class Action(ClassifierMixin, BaseEstimator):
    """A classifier that does to its process what the file ``action`` says, for number 3."""

    def __init__(self, number=0, folder="."):
        self.number = number
        self.folder = folder

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        folder = pathlib.Path(self.folder)
        action = (folder / "action").read_text()
        if self.number == 3 or action == "sleep always":
            n_before = len(list(folder.glob("3-*")))
            (folder / f"{self.number}-{os.getpid()}-{time.time_ns()}").touch()
            if action == "segfault":
                os.kill(os.getpid(), signal.SIGSEGV)
            if action == "kill once" and n_before == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            if action == "exit":
                sys.exit(7)
            if action == "interrupt":
                os.kill(os.getpid(), signal.SIGINT)
            if action.startswith("sleep"):
                time.sleep(600)
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[0])

    def score(self, X, y):
        return self.number / 10


def action_search(action, folder, **params):
    (folder / "action").write_text(action)
    params = {"cv": 2, "pruner": "none", "refit": False} | params
    return MixupESearchCV(Action(folder=str(folder)), {"number": [0, 1, 2, 3, 4, 5]}, **params)


def run_actions(action, folder, **params):
    """Search over actions; exit with 3 after an interrupt."""
    quick_heartbeats()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return action_search(action, folder, **params).fit(*load_iris(return_X_y=True))
    except KeyboardInterrupt:
        sys.exit(3)
