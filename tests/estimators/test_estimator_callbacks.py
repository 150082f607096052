"""Callbacks of scikit-learn and skorch in the estimator, and the display of progress."""

import numpy as np
import pytest
from paper import paper_classifier, paper_regressor
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch.callbacks import EarlyStopping, EpochScoring, LRScheduler

from mixupe_sklearn._estimators.fit_monitor import HAS_CALLBACKS

needs_callbacks = pytest.mark.skipif(
    not HAS_CALLBACKS, reason="this scikit-learn has no callbacks (before 1.9)"
)


@needs_callbacks
def test_scoring_monitor_scores_every_epoch(small_digits):
    from sklearn.callback import ScoringMonitor

    X, y = small_digits
    monitor = ScoringMonitor(scoring="accuracy")
    classifier = paper_classifier(max_epochs=4, random_state=0).set_callbacks(monitor)
    classifier.fit(X, y)
    rows = [row for row in monitor.get_logs().data if row["task_name"] == "epoch"]
    assert [row["task_id"] for row in rows] == [0, 1, 2, 3]
    assert rows[-1]["accuracy"] == classifier.score(X, y)
    # A monitor changes nothing.
    plain = paper_classifier(max_epochs=4, random_state=0).fit(X, y)
    assert np.array_equal(plain.predict_proba(X), classifier.predict_proba(X))


@needs_callbacks
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_callbacks_pass_through_a_grid_search(small_digits, n_jobs):
    from sklearn.callback import ProgressBar, ScoringMonitor

    X, y = small_digits
    monitor = ScoringMonitor(scoring="accuracy")
    classifier = paper_classifier(max_epochs=2, random_state=0).set_callbacks(monitor)
    search = GridSearchCV(classifier, {"alpha": [0.1, 1.0]}, cv=2, n_jobs=n_jobs)
    search.set_callbacks(ProgressBar())
    search.fit(X, y)
    names = [row["task_name"] for row in monitor.get_logs().data]
    assert names.count("epoch") == (2 * 2 + 1) * 2


@needs_callbacks
def test_a_callback_can_stop_training(small_digits):
    class StopAfterTwo:
        def setup(self, estimator, context):
            pass

        def teardown(self, estimator, context):
            self.was_torn_down = True

        def on_fit_task_begin(self, estimator, context):
            pass

        def on_fit_task_end(self, estimator, context):
            return context.task_name == "epoch" and context.task_id == 1

    callback = StopAfterTwo()
    estimator = paper_regressor(max_epochs=9).set_callbacks(callback).fit(*small_digits)
    assert estimator.n_iter_ == 2
    assert callback.was_torn_down


@needs_callbacks
def test_callbacks_reach_the_classifier_in_a_pipeline(small_digits, capsys):
    from sklearn.callback import ProgressBar

    pipeline = make_pipeline(StandardScaler(), paper_classifier(max_epochs=2))
    pipeline.set_callbacks(ProgressBar()).fit(*small_digits)
    assert "MixupEClassifier" in capsys.readouterr().out


def test_skorch_callbacks_work_in_the_estimator_and_stay_untouched(digits):
    X, y = digits
    callbacks = [
        LRScheduler("CosineAnnealingLR", T_max=10),
        EpochScoring("accuracy", name="train_acc", on_train=True),
        EarlyStopping(monitor="train_loss", patience=50),
    ]
    classifier = paper_classifier(callbacks=callbacks, max_epochs=10, random_state=0).fit(X, y)
    rates = [row["event_lr"] for row in classifier.history_]
    assert rates[0] == 0.001
    assert rates == sorted(rates, reverse=True)
    assert classifier.history_[-1]["train_acc"] > 0.8
    assert not hasattr(callbacks[0], "lr_scheduler_")
    assert classifier.score(X, y) > 0.95


def test_history_and_loss_curve(small_digits):
    classifier = paper_classifier(max_epochs=5, random_state=0).fit(*small_digits)
    assert classifier.n_iter_ == len(classifier.history_) == len(classifier.loss_curve_) == 5
    assert classifier.loss_curve_[-1] < classifier.loss_curve_[0]
    names = {"train_loss", "train_mixup_loss", "train_penalty", "loss_scale", "dur", "epoch"}
    assert names <= set(classifier.history_[0])
    assert all(
        isinstance(value, (int, float)) for row in classifier.history_ for value in row.values()
    )


def test_verbose_shows_nothing_a_bar_or_a_line_per_epoch(small_digits, capsys):
    paper_classifier(max_epochs=2).fit(*small_digits)
    output = capsys.readouterr()
    assert output.out == output.err == ""
    paper_classifier(max_epochs=2, verbose=1).fit(*small_digits)
    output = capsys.readouterr()
    assert "2/2" in output.err
    assert "train_loss" in output.err
    assert output.out == ""
    paper_classifier(max_epochs=2, verbose=2).fit(*small_digits)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("epoch 2: train_loss ")
