"""What the tests of the search run in processes of their own."""

import warnings

from paper import paper_classifier
from sklearn.datasets import load_iris

from mixupe_sklearn import MixupESearchCV
from mixupe_sklearn._search import study

SPACE = {"alpha": [0.05, 0.1, 0.2, 0.5, 1.0, 2.0], "eta": [1e-4, 1e-3, 1e-2, 1e-1, 1.0]}


def quick_heartbeats():
    """A dead worker is noticed after two seconds instead of thirty."""
    study.HEARTBEAT, study.GRACE = 1, 2


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
