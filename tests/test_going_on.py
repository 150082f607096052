"""partial_fit, warm_start, and training that is interrupted."""

import numpy as np
import pytest
from skorch.callbacks import Callback

from mixupe_sklearn import MixupEClassifier, MixupERegressor


def test_partial_fit_is_an_epoch_of_fit(small_digits):
    X, y = small_digits
    once = MixupEClassifier(max_epochs=3, random_state=0).fit(X, y)
    steps = MixupEClassifier(max_epochs=3, random_state=0)
    for _ in range(3):
        steps.partial_fit(X, y, classes=np.arange(10))
    assert np.array_equal(once.predict_proba(X), steps.predict_proba(X))
    assert once.loss_curve_ == steps.loss_curve_


def test_partial_fit_learns_from_parts_that_lack_classes(digits):
    X, y = digits
    classifier = MixupEClassifier(random_state=0)
    for _ in range(10):
        for part in np.array_split(np.arange(len(X)), 10):
            rows = part[y[part] < 5] if part[0] == 0 else part
            classifier.partial_fit(X[rows], y[rows], classes=range(10))
    assert classifier.score(X, y) > 0.95
    assert classifier.n_iter_ == 100


def test_partial_fit_goes_on_after_fit_without_classes(small_digits):
    X, y = small_digits
    classifier = MixupEClassifier(max_epochs=2, random_state=0).fit(X, y)
    before = classifier.predict_proba(X)
    classifier.partial_fit(X, y)
    assert not np.array_equal(before, classifier.predict_proba(X))
    assert classifier.n_iter_ == 3


def test_partial_fit_with_weights_and_class_weights(small_digits):
    X, y = small_digits
    weight = np.where(np.arange(len(y)) % 3, 1.0, 0.0)
    kept = weight > 0
    first = MixupEClassifier(random_state=0, class_weight={1: 5.0})
    second = MixupEClassifier(random_state=0, class_weight={1: 5.0})
    first.partial_fit(X, y, classes=np.arange(10), sample_weight=weight)
    second.partial_fit(X[kept], y[kept], classes=np.arange(10))
    assert np.array_equal(first.predict_proba(X), second.predict_proba(X))


def test_partial_fit_of_several_labels_and_of_numbers(several_labels, diabetes):
    X, Y = several_labels
    classifier = MixupEClassifier(random_state=0).partial_fit(X, Y)
    assert classifier.partial_fit(X, Y).predict(X).shape == Y.shape
    X, y = diabetes
    regressor = MixupERegressor(random_state=0)
    for _ in range(25):
        regressor.partial_fit(X, y)
    assert np.array_equal(
        regressor.predict(X), MixupERegressor(random_state=0).fit(X, y).predict(X)
    )


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({}, {}, "Got classes=None, but expected all labels at the first call."),
        (
            {"classes": [0, 1, 2]},
            {},
            r"Got the labels \[3, 4, 5, 6, 7\] in y, but expected some of \[0, 1, 2\]",
        ),
        (
            {"classes": list(range(10))},
            {"classes": [0, 1]},
            r"Got classes=\[0, 1\], but expected those of the first call",
        ),
    ],
)
def test_partial_fit_explains_what_is_wrong_with_classes(small_digits, first, second, message):
    X, y = small_digits
    classifier = MixupEClassifier()
    with pytest.raises(ValueError, match=message):
        classifier.partial_fit(X, y, **first).partial_fit(X, y, **second)


def test_partial_fit_cannot_balance_what_it_has_not_seen(small_digits):
    X, y = small_digits
    with pytest.raises(ValueError, match="Got class_weight='balanced' with partial_fit"):
        MixupEClassifier(class_weight="balanced").partial_fit(X, y, classes=range(10))


def test_warm_start_goes_on_and_a_cold_start_begins_anew(small_digits):
    X, y = small_digits
    warm = MixupEClassifier(max_epochs=2, random_state=0, warm_start=True)
    warm.fit(X, y).fit(X, y)
    long = MixupEClassifier(max_epochs=4, random_state=0).fit(X, y)
    assert np.array_equal(warm.predict_proba(X), long.predict_proba(X))
    cold = MixupEClassifier(max_epochs=2, random_state=0)
    assert len(cold.fit(X, y).fit(X, y).loss_curve_) == 2


def test_warm_start_refuses_new_labels(small_digits):
    X, y = small_digits
    classifier = MixupEClassifier(max_epochs=1, warm_start=True).fit(X, y)
    with pytest.raises(ValueError, match=r"Got the labels \[10\] in y"):
        classifier.fit(X, np.where(y == 0, 10, y))


class Interrupt(Callback):
    """Stands for the user's Ctrl-C in the middle of the third epoch."""

    def on_batch_end(self, net, training, **kwargs):
        if training and len(net.history) == 3:
            raise KeyboardInterrupt


def test_an_interrupted_fit_keeps_what_was_finished(small_digits, monkeypatch):
    X, y = small_digits
    make_callbacks = "mixupe_sklearn._training._make_callbacks"
    from mixupe_sklearn import _training

    original = _training._make_callbacks
    monkeypatch.setattr(make_callbacks, lambda settings: [*original(settings), Interrupt()])
    classifier = MixupEClassifier(max_epochs=9, random_state=0)
    with pytest.warns(match="Training was interrupted after 2 epochs"):
        classifier.fit(X, y)
    assert classifier.n_iter_ == len(classifier.loss_curve_) == 2
    assert classifier.predict(X).shape == y.shape


def test_a_failed_fit_does_not_look_fitted(small_digits):
    X, y = small_digits

    class Fail(Callback):
        def on_epoch_end(self, net, **kwargs):
            raise RuntimeError("from a callback")

    classifier = MixupEClassifier(callbacks=[Fail()])
    with pytest.raises(RuntimeError, match="from a callback"):
        classifier.fit(X, y)
    assert not hasattr(classifier, "net_")
