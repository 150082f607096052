import numpy as np
import pytest
from paper import paper_classifier, paper_regressor
from sklearn.model_selection import train_test_split

from mixupe_sklearn._estimators.fit_monitor import HAS_CALLBACKS


def valid_losses(estimator):
    return [row["valid_loss"] for row in estimator.history_]


@pytest.mark.parametrize("tol", [0.0, 0.05])
def test_training_stops_and_the_best_weights_are_restored(digits, tol):
    X, y = digits
    X_train, X_val, y_train, y_val = train_test_split(X, y, test_size=0.3, random_state=0)
    classifier = paper_classifier(
        method="erm", lr=0.02, early_stopping=True, n_iter_no_change=3, max_epochs=200,
        tol=tol, random_state=0,
    )  # fmt: skip
    classifier.fit(X_train, y_train, X_val=X_val, y_val=y_val)
    losses = valid_losses(classifier)
    assert classifier.n_iter_ == len(losses) < 200
    # None of the last three losses is more than tol below the lowest loss before it.
    lowest = np.minimum.accumulate([np.inf, *losses])[:-1]
    has_progress = np.array(losses) < lowest - tol
    assert has_progress[-4]
    assert not has_progress[-3:].any()
    proba = classifier.predict_proba(X_val)
    now = -np.log(proba[np.arange(len(y_val)), y_val]).mean()
    assert now == pytest.approx(min(losses), rel=1e-4)
    assert tol > 0 or now < losses[-1]


@pytest.mark.parametrize("estimator_class", [paper_classifier, paper_regressor])
def test_a_fraction_is_held_out_without_validation_samples(small_digits, estimator_class):
    X, y = small_digits
    estimator = estimator_class(early_stopping=True, validation_fraction=0.2, max_epochs=3)
    estimator.fit(X, y)
    assert len(valid_losses(estimator)) == 3


def test_held_out_samples_train_nothing_and_keep_class_shares(small_digits):
    X, y = small_digits
    estimator = paper_classifier(early_stopping=True, validation_fraction=0.2, random_state=0)
    rows = estimator._rows(X, y, None, is_new=True, learn=True)
    estimator._spawn_generators()
    (fold,) = estimator._hold_out(rows, n_groups=1).index
    assert len(fold) == len(np.unique(fold)) == 60
    assert np.abs(np.bincount(y[fold]) / 60 - np.bincount(y) / 300).max() < 0.02
    fitted = paper_classifier(
        early_stopping=True, validation_fraction=0.2, random_state=0, max_epochs=1
    ).fit(X, y)
    assert np.allclose(fitted.X_mean_, np.delete(X, fold, axis=0).mean(axis=0))


def test_a_class_of_one_sample_is_accepted(small_digits):
    X, y = small_digits
    y = np.where(np.arange(len(y)) == 0, 99, y)
    classifier = paper_classifier(early_stopping=True, max_epochs=2).fit(X, y)
    assert 99 in classifier.classes_


def test_validation_samples_without_early_stopping_only_measure_the_loss(small_digits):
    X, y = small_digits
    watched = paper_classifier(max_epochs=5, random_state=0)
    watched.fit(X[:200], y[:200], X_val=X[200:], y_val=y[200:])
    plain = paper_classifier(max_epochs=5, random_state=0).fit(X[:200], y[:200])
    assert len(valid_losses(watched)) == 5
    assert np.array_equal(watched.predict_proba(X), plain.predict_proba(X))


def test_validation_loss_is_that_of_unmixed_samples(small_digits):
    X, y = small_digits
    classifier = paper_classifier(max_epochs=2, alpha=5.0, random_state=0)
    classifier.fit(X, y, X_val=X, y_val=y)
    proba = classifier.predict_proba(X)
    expected = -np.log(proba[np.arange(len(y)), y]).mean()
    assert valid_losses(classifier)[-1] == pytest.approx(expected, rel=1e-5)


def test_partial_fit_ignores_early_stopping(small_digits):
    X, y = small_digits
    classifier = paper_classifier(early_stopping=True, max_epochs=2, random_state=0).fit(X, y)
    assert classifier.partial_fit(X, y).n_iter_ == 3


@pytest.mark.skipif(not HAS_CALLBACKS, reason="this scikit-learn has no callbacks (before 1.9)")
def test_the_best_weights_are_restored_when_a_callback_of_scikit_learn_stops(digits):
    class StopAtFive:
        def setup(self, estimator, context): ...
        def teardown(self, estimator, context): ...
        def on_fit_task_begin(self, estimator, context): ...
        def on_fit_task_end(self, estimator, context):
            return context.task_name == "epoch" and context.task_id == 4

    X, y = digits
    classifier = paper_classifier(early_stopping=True, random_state=0).set_callbacks(StopAtFive())
    classifier.fit(X[:1000], y[:1000], X_val=X[1000:], y_val=y[1000:])
    proba = classifier.predict_proba(X[1000:])
    now = -np.log(proba[np.arange(len(proba)), y[1000:]]).mean()
    assert classifier.n_iter_ == 5
    assert now == pytest.approx(min(valid_losses(classifier)), rel=1e-4)
