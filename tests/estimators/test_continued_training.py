"""partial_fit, warm_start, and interrupted training."""

import copy
import gc
import weakref

import numpy as np
import pytest
import torch
from paper import paper_classifier, paper_regressor
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from skorch.callbacks import Callback, EarlyStopping, LRScheduler

from mixupe_sklearn import MixupERegressor


def test_partial_fit_is_an_epoch_of_fit(small_digits):
    X, y = small_digits
    once = paper_classifier(max_epochs=3, random_state=0).fit(X, y)
    steps = paper_classifier(max_epochs=3, random_state=0)
    for _ in range(3):
        steps.partial_fit(X, y, classes=np.arange(10))
    assert np.array_equal(once.predict_proba(X), steps.predict_proba(X))
    assert once.loss_curve_ == steps.loss_curve_


def test_partial_fit_learns_from_parts_that_lack_classes(digits):
    X, y = digits
    classifier = paper_classifier(random_state=0)
    for _ in range(10):
        for part in np.array_split(np.arange(len(X)), 10):
            rows = part[y[part] < 5] if part[0] == 0 else part
            classifier.partial_fit(X[rows], y[rows], classes=range(10))
    assert classifier.score(X, y) > 0.95
    assert classifier.n_iter_ == 100


def test_partial_fit_continues_after_fit_without_classes(small_digits):
    X, y = small_digits
    classifier = paper_classifier(max_epochs=2, random_state=0).fit(X, y)
    before = classifier.predict_proba(X)
    classifier.partial_fit(X, y)
    assert not np.array_equal(before, classifier.predict_proba(X))
    assert classifier.n_iter_ == 3


def test_partial_fit_with_weights_and_class_weights(small_digits):
    X, y = small_digits
    weight = np.where(np.arange(len(y)) % 3, 1.0, 0.0)
    kept = weight > 0
    first = paper_classifier(random_state=0, class_weight={1: 5.0})
    second = paper_classifier(random_state=0, class_weight={1: 5.0})
    first.partial_fit(X, y, classes=np.arange(10), sample_weight=weight)
    second.partial_fit(X[kept], y[kept], classes=np.arange(10))
    assert np.array_equal(first.predict_proba(X), second.predict_proba(X))


def test_partial_fit_of_multilabel_targets_and_of_numbers(multilabel, diabetes):
    X, Y = multilabel
    classifier = paper_classifier(random_state=0).partial_fit(X, Y)
    assert classifier.partial_fit(X, Y).predict(X).shape == Y.shape
    X, y = diabetes
    regressor = paper_regressor(random_state=0)
    for _ in range(25):
        regressor.partial_fit(X, y)
    assert np.array_equal(
        regressor.predict(X), paper_regressor(random_state=0).fit(X, y).predict(X)
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
    classifier = paper_classifier()
    with pytest.raises(ValueError, match=message):
        classifier.partial_fit(X, y, **first).partial_fit(X, y, **second)


def test_partial_fit_rejects_balanced_class_weights(small_digits):
    X, y = small_digits
    with pytest.raises(ValueError, match="Got class_weight='balanced' with partial_fit"):
        paper_classifier(class_weight="balanced").partial_fit(X, y, classes=range(10))


def test_warm_start_continues_and_a_cold_start_begins_anew(small_digits):
    X, y = small_digits
    warm = paper_classifier(max_epochs=2, random_state=0, warm_start=True)
    warm.fit(X, y).fit(X, y)
    long = paper_classifier(max_epochs=4, random_state=0).fit(X, y)
    assert np.array_equal(warm.predict_proba(X), long.predict_proba(X))
    cold = paper_classifier(max_epochs=2, random_state=0)
    assert len(cold.fit(X, y).fit(X, y).loss_curve_) == 2


@pytest.mark.parametrize("n_members", [1, 2])
def test_n_iter_counts_the_epochs_of_the_last_fit(small_digits, n_members):
    X, y = small_digits
    params = {"max_epochs": 3, "n_members": n_members, "warm_start": True}
    classifier = paper_classifier(**params).fit(X, y)
    assert classifier.n_iter_ == 3
    assert classifier.partial_fit(X, y).n_iter_ == 4
    assert classifier.set_params(max_epochs=2).fit(X, y).n_iter_ == 2
    assert classifier.partial_fit(X, y).n_iter_ == 3
    assert len(classifier.loss_curve_) == len(classifier.history_) == 3 + 1 + 2 + 1
    assert [row["epoch"] for row in classifier.history_] == list(range(1, 8))
    assert classifier.set_params(warm_start=False).fit(X, y).n_iter_ == 2
    assert len(classifier.loss_curve_) == 2


def test_warm_start_rejects_new_labels(small_digits):
    X, y = small_digits
    classifier = paper_classifier(max_epochs=1, warm_start=True).fit(X, y)
    with pytest.raises(ValueError, match=r"Got the labels \[10\] in y"):
        classifier.fit(X, np.where(y == 0, 10, y))


def test_changed_parameters_take_effect(small_digits):
    X, y = small_digits
    for go_on in (
        lambda estimator: estimator.partial_fit(X, y),
        lambda estimator: estimator.set_params(warm_start=True, max_epochs=1).fit(X, y),
    ):
        first = paper_classifier(max_epochs=2, random_state=0).fit(X, y)
        changed, kept = copy.deepcopy(first), copy.deepcopy(first)
        changed.set_params(
            lr=0.01, weight_decay=0.5, batch_size=30, alpha=2.0, eta=1.0, method="mixup"
        )
        go_on(changed), go_on(kept)
        assert not np.array_equal(changed.predict_proba(X), kept.predict_proba(X))
        net = changed.net_
        assert net.optimizer_.param_groups[0]["lr"] == 0.01
        assert net.optimizer_.param_groups[0]["weight_decay"] == 0.5
        assert net.batch_size == 30
        assert (net.criterion_.alpha, net.criterion_.eta, net.criterion_.method) == (
            2.0,
            1.0,
            "mixup",
        )


def test_an_optimizer_without_weight_decay_continues_too(small_digits):
    X, y = small_digits
    classifier = paper_classifier(optimizer=torch.optim.Rprop, max_epochs=1).fit(X, y)
    assert classifier.partial_fit(X, y).n_iter_ == 2


def test_continued_training_does_not_undo_a_schedule(small_digits):
    X, y = small_digits
    classifier = paper_classifier(
        max_epochs=3, callbacks=[LRScheduler("StepLR", step_size=1, gamma=0.5)], warm_start=True
    ).fit(X, y)
    before = classifier.net_.optimizer_.param_groups[0]["lr"]
    classifier.fit(X, y)
    assert classifier.net_.optimizer_.param_groups[0]["lr"] < before < 0.001


def test_a_changed_class_weight_takes_effect(small_digits):
    X, y = small_digits
    first = paper_classifier(max_epochs=2, random_state=0, warm_start=True).fit(X, y)
    changed, kept = copy.deepcopy(first), copy.deepcopy(first)
    changed.set_params(class_weight={3: 50.0}).fit(X, y)
    kept.fit(X, y)
    assert (changed.predict(X) == 3).sum() > (kept.predict(X) == 3).sum()


def test_early_stopping_may_be_switched_on_later(small_digits):
    X, y = small_digits
    classifier = paper_classifier(max_epochs=2, random_state=0, warm_start=True).fit(X, y)
    classifier.set_params(early_stopping=True, max_epochs=50, n_iter_no_change=2, tol=10.0)
    assert classifier.fit(X, y).n_iter_ == 3
    assert len(classifier.loss_curve_) == 2 + 3


def test_continued_training_holds_out_the_same_samples(small_digits):
    X, y = small_digits
    estimator = paper_classifier(early_stopping=True, random_state=0)
    rows = estimator._rows(X, y, None, is_new=True, learn=True)
    estimator._spawn_generators()
    (first,), (second,) = (estimator._hold_out(rows, n_groups=1).index for _ in range(2))
    assert np.array_equal(first, second)


@pytest.mark.parametrize(
    "change",
    [{"module_params": {"d_hidden": (8,)}}, {"optimizer": "sgd"}, {"callbacks": [Callback()]}],
    ids=["module_params", "optimizer", "callbacks"],
)
def test_parameters_that_a_network_cannot_change_raise(small_digits, change):
    X, y = small_digits
    classifier = paper_classifier(max_epochs=1, warm_start=True).fit(X, y).set_params(**change)
    (name,) = change
    for method in (classifier.fit, classifier.partial_fit):
        with pytest.raises(
            ValueError, match=f"Got a new value of {name}, but expected that of the"
        ):
            method(X, y)


@pytest.mark.parametrize(
    ("params", "data"),
    [
        ({"module_params": {"n_outputs": 7}}, {}),
        ({"optimizer": "sgd", "lr": 1e30}, {}),
        ({"random_state": "a"}, {}),
        ({}, {"X_val": np.zeros((2, 3)), "y_val": [0, 1]}),
        ({}, {"sample_weight": -np.ones(300)}),
    ],
    ids=["module", "explosion", "seed", "validation", "weights"],
)
@pytest.mark.parametrize("estimator_class", [paper_classifier, MixupERegressor])
def test_a_fit_that_fails_leaves_the_old_model_or_none(small_digits, estimator_class, params, data):
    X, y = small_digits
    fitted = estimator_class(random_state=0, max_epochs=3, min_steps=0).fit(X, y)
    expected = fitted.predict(X)
    for estimator in (fitted, estimator_class(random_state=0, min_steps=0)):
        estimator.set_params(**params)
        with pytest.raises((ValueError, FloatingPointError)):
            estimator.fit(X[:, ::-1] + 100, 1000 - y, **data)
    assert np.array_equal(fitted.predict(X), expected)
    with pytest.raises(NotFittedError):
        estimator.predict(X)


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_continued_training_that_fails_restores_the_model(small_digits, method):
    X, y = small_digits
    classifier = paper_classifier(random_state=0, max_epochs=3, warm_start=True).fit(X, y)
    expected = classifier.predict_proba(X)
    classifier.set_params(lr=1e30, batch_size=10)
    with pytest.raises(FloatingPointError):
        getattr(classifier, method)(X, y)
    assert np.array_equal(classifier.predict_proba(X), expected)
    assert classifier.n_iter_ == len(classifier.net_.history) == 3
    classifier.set_params(lr=0.001, batch_size=100).partial_fit(X, y)
    assert classifier.n_iter_ == 4


def test_a_modified_dict_parameter_is_detected(small_digits):
    X, y = small_digits
    classifier = paper_classifier(module_params={"d_hidden": (8,)}, max_epochs=1).fit(X, y)
    classifier.set_params(module_params={"d_hidden": (8,)}).partial_fit(X, y)
    classifier.module_params["d_hidden"] = (16,)
    with pytest.raises(ValueError, match="Got a new value of module_params"):
        classifier.partial_fit(X, y)


def test_a_fit_that_fails_does_not_keep_the_data(small_digits):
    X, y = small_digits[0].copy(), small_digits[1]
    reference = weakref.ref(X)
    classifier = paper_classifier(optimizer="sgd", lr=1e30)
    with pytest.raises(FloatingPointError):
        classifier.fit(X, y)
    del X
    gc.collect()
    assert reference() is None


class Interrupt(Callback):
    """Simulates the user's Ctrl-C in the third epoch."""

    def on_batch_end(self, net, training, **kwargs):
        if training and len(net.history) == 3:
            raise KeyboardInterrupt


@pytest.mark.parametrize("early_stopping", [False, True])
def test_an_interrupted_fit_keeps_complete_epochs(small_digits, early_stopping):
    X, y = small_digits
    classifier = paper_classifier(
        max_epochs=9, random_state=0, callbacks=[Interrupt()], early_stopping=early_stopping
    )
    with pytest.warns(
        ConvergenceWarning, match="interrupted after 2 epochs; the model keeps"
    ) as caught:
        classifier.fit(X, y)
    assert caught[0].filename == __file__
    assert classifier.n_iter_ == len(classifier.loss_curve_) == 2
    assert classifier.predict(X).shape == y.shape


def test_a_callback_that_ends_training_gives_no_warning(small_digits):
    stop = EarlyStopping(monitor="train_loss", patience=2, threshold=10.0, threshold_mode="abs")
    classifier = paper_classifier(max_epochs=50, callbacks=[stop]).fit(*small_digits)
    assert classifier.n_iter_ == 3
