"""The time limit of a fit, on a clock that the tests set."""

import time

import numpy as np
import pytest
from paper import paper_classifier
from sklearn.exceptions import ConvergenceWarning

from mixupe_sklearn import MixupEClassifier, MixupESearchCV
from mixupe_sklearn._engine.trainer import Trainer
from mixupe_sklearn._net.autograd import AutogradTrainer


class Clock:
    """Seconds that pass with each epoch and with each look at the clock."""

    def __init__(self, a_look=0.0):
        self.now, self.a_look = 0.0, a_look

    def __call__(self):
        self.now += self.a_look
        return self.now


@pytest.fixture
def clock(monkeypatch):
    """A clock on which every epoch takes one second."""
    clock = Clock()

    def slow(run_epoch):
        def run(*args):
            found = run_epoch(*args)
            clock.now += 1.0
            return found

        return run

    for kind in (Trainer, AutogradTrainer):
        monkeypatch.setattr(kind, "run_epoch", slow(kind.run_epoch))
    monkeypatch.setattr(time, "perf_counter", clock)
    return clock


@pytest.mark.parametrize("batch_norm", [False, True], ids=["engine", "autograd"])
@pytest.mark.parametrize("n_members", [1, 4])
def test_a_fit_ends_before_the_limit_and_says_so(iris, clock, n_members, batch_norm):
    classifier = MixupEClassifier(
        n_members=n_members, time_limit=10, max_epochs=100, min_steps=0, random_state=0,
        module_params={"batch_norm": batch_norm},
    )  # fmt: skip
    with pytest.warns(ConvergenceWarning, match=r"the time limit of 10 s after 9 epochs; the mod"):
        classifier.fit(*iris)
    assert clock.now <= 10
    assert classifier.n_iter_ == 9
    assert classifier.score(*iris) > 0.6


def test_the_best_weights_are_kept(digits, clock):
    X, y = digits
    classifier = paper_classifier(
        time_limit=8, max_epochs=100, early_stopping=True, n_iter_no_change=50, lr=0.05,
        random_state=0, method="erm",
    )  # fmt: skip
    with pytest.warns(ConvergenceWarning, match="time limit of 8 s after 7 epochs"):
        classifier.fit(X[:900], y[:900], X_val=X[900:], y_val=y[900:])
    losses = [row["valid_loss"] for row in classifier.history_]
    proba = classifier.predict_proba(X[900:])
    now = -np.log(proba[np.arange(len(proba)), y[900:]]).mean()
    assert now == pytest.approx(min(losses), rel=1e-4)


@pytest.mark.parametrize("batch_norm", [False, True], ids=["engine", "autograd"])
def test_an_epoch_that_is_longer_than_the_limit_ends_within(digits, monkeypatch, batch_norm):
    X, y = digits
    clock = Clock(a_look=1.0)  # every step looks at the clock
    monkeypatch.setattr(time, "perf_counter", clock)
    classifier = paper_classifier(
        batch_size=10, time_limit=60, random_state=0, module_params={"batch_norm": batch_norm}
    )
    with pytest.warns(ConvergenceWarning, match="time limit of 60 s after 1 epochs"):
        classifier.fit(X, y)
    assert clock.now <= 70  # without the limit: 180 steps
    assert np.isfinite(classifier.predict_proba(X)).all()


def test_a_fit_within_its_limit_is_the_fit_without(iris):
    X, y = iris
    params = {"max_epochs": 2, "random_state": 0}
    with_limit = paper_classifier(**params, time_limit=1e6).fit(X, y)
    assert np.array_equal(
        with_limit.predict_proba(X), paper_classifier(**params).fit(X, y).predict_proba(X)
    )


def test_a_search_honours_the_limit_of_each_fit(iris, clock):
    X, y = iris
    search = MixupESearchCV(
        paper_classifier(time_limit=10, max_epochs=100, random_state=0),
        {"alpha": [0.1, 0.5]},
        cv=2,
    )
    with pytest.warns(ConvergenceWarning, match="time limit of 10 s after 9 epochs"):
        search.fit(X, y)
    assert search.best_estimator_.n_iter_ == 9


@pytest.mark.parametrize("value", [0, -1, 0.0, np.nan, "10"])
def test_a_bad_limit_gets_a_sentence(iris, value):
    with pytest.raises(
        (ValueError, TypeError),
        match="Got time_limit=.*, but expected a number of seconds > 0, or None.",
    ):
        paper_classifier(time_limit=value).fit(*iris)
