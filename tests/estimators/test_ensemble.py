"""Ensembles: several networks in one estimator."""

import copy
import pickle
import threading
from types import SimpleNamespace

import numpy as np
import optuna
import pandas as pd
import pytest
import torch
from joblib import parallel_config
from scipy import sparse
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from skorch.callbacks import Callback, EarlyStopping, EpochScoring, LRScheduler

from mixupe_sklearn import (
    MixupEClassifier,
    MixupERegressor,
    MixupESearchCV,
    make_mixupe_pipeline,
    preset,
)
from mixupe_sklearn._data import rows as _rows
from mixupe_sklearn._data.rows import hold_out_folds, stratified_folds
from mixupe_sklearn._engine import trainer as _trainer
from mixupe_sklearn._engine.network import Network
from mixupe_sklearn._engine.trainer import Group, Stepper, Trainer
from mixupe_sklearn._estimators import base as _base
from mixupe_sklearn._estimators.fit_monitor import HAS_CALLBACKS
from mixupe_sklearn._method.formulas import LANE
from mixupe_sklearn._net import net as _net
from mixupe_sklearn._net.autograd import AutogradTrainer
from mixupe_sklearn._training import loop as _loop
from mixupe_sklearn._training.loop import stacking_weights

SMALL = preset("paper") | {
    "alpha": 0.5,
    "eta": 0.1,
    "n_members": 4,
    "module_params": {"d_hidden": (7, 5)},
    "lr": 0.01,
    "max_epochs": 3,
    "batch_size": 40,
    "validation_fraction": 0.2,
    "n_iter_no_change": 10,
    "tol": 0.0,
    "random_state": 0,
}
FOLDS = {"early_stopping": True}
GROUPS = {"alpha": (0.0, 2.0), "early_stopping": True}
# With these parameters, members train in turn.
APART = {"penalty": "directional"}


def small(estimator_class=MixupEClassifier, **params):
    return estimator_class(**SMALL | params)


def by_members(estimator, X):
    if isinstance(estimator, MixupEClassifier):
        return estimator.predict_proba_members(X)
    return estimator.predict_members(X)


def without_time(history):
    return [{name: value for name, value in row.items() if name != "dur"} for row in history]


def column(history, name):
    return [row[name] for row in history if name in row]


@pytest.fixture
def trainers(monkeypatch):
    """Record the class of each trainer, and the numbers of each member's training samples."""
    made, train = [], _base.train

    def recorded(fits, trainer, *args, **kwargs):
        members = [member for fit in fits for member in fit.members]
        whole = np.arange(members[0].n_rows)
        own = [whole if member.rows is None else member.rows for member in members]
        made.append(SimpleNamespace(kind=type(trainer), own=own))
        return train(fits, trainer, *args, **kwargs)

    monkeypatch.setattr(_base, "train", recorded)
    return made


@pytest.fixture
def one_by_one(monkeypatch):
    """Return a function that makes members train in turn, by autograd in the loop of skorch."""

    def force():
        monkeypatch.setattr(_base, "why_not_together", lambda member, settings: "forced")
        monkeypatch.setattr(_net, "listens", lambda net: True)

    return force


@pytest.fixture
def targets_of(iris, cancer, multilabel, diabetes):
    """Samples and targets by the name of a head: 130 samples, so that the last batch is small."""
    named = {
        "softmax": (MixupEClassifier, iris, {}),
        "labels": (MixupEClassifier, multilabel, {}),
        "single logit": (MixupEClassifier, cancer, {"n_outputs": 1}),
        "number": (MixupERegressor, diabetes, {}),
        "numbers": (MixupERegressor, (diabetes[0], np.column_stack([diabetes[1]] * 2)), {}),
    }

    def get(name, **params):
        estimator_class, (X, y), module_params = named[name]
        rows = np.random.default_rng(0).permutation(len(y))[:130]
        params = {"module_params": {"d_hidden": (7, 5), **module_params}, **params}
        return small(estimator_class, **params), X[rows], y[rows]

    return get


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("head", ["softmax", "number"])
def test_the_first_member_is_the_network_of_a_single_fit(targets_of, head):
    # At this rate no weight changes.
    single, X, y = targets_of(head, n_members=1, optimizer="sgd", lr=1e-300)
    first = clone(single).set_params(n_members=3).fit(X, y)
    for mine, own in zip(
        first.nets_[0].module_.parameters(), single.fit(X, y).net_.module_.parameters(), strict=True
    ):
        assert torch.equal(mine, own)
    single.set_params(optimizer="adam", lr=0.01).fit(X, y)
    together = clone(single).set_params(n_members=3).fit(X, y)
    assert together.net_ is together.nets_[0]
    predicted = by_members(together, X)
    np.testing.assert_allclose(predicted[0], by_members(single, X)[0], rtol=1e-9, atol=1e-9)
    assert not np.allclose(predicted[1], predicted[0], atol=1e-3)
    assert not np.allclose(predicted[1], predicted[2], atol=1e-3)


CASES = {
    "plain": ("softmax", {}),
    "folds": ("softmax", FOLDS),
    "groups": ("softmax", GROUPS),
    "etas": ("softmax", {"eta": (0.0, 1.0), **FOLDS}),
    "rates": ("softmax", {"lr_schedule": "cosine", "optimizer": "sgd", "lr": 0.5}),
    "one cycle": ("softmax", {"lr_schedule": "onecycle", **GROUPS}),
    "momentum": ("softmax", {"optimizer": "sgd", "optimizer_params": {"momentum": 0.9}}),
    "hidden": ("softmax", {"mix_at": "hidden", **FOLDS}),
    "scaled": ("softmax", {"module_params": {"d_hidden": (7, 5), "input_scale": True}, **FOLDS}),
    "average": ("softmax", {"ema_decay": 0.9, **FOLDS}),
    "a share": ("softmax", {"penalty_fraction": 0.4, "lam_per": "sample"}),
    "no mixing": ("softmax", {"method": "erm", **FOLDS}),
    "classes": ("softmax", {"class_weight": {0: 0.5, 1: 3.0}, **FOLDS}),
    "labels": ("labels", GROUPS),
    "single logit": ("single logit", FOLDS),
    "number": ("number", GROUPS),
    "numbers": ("numbers", {"mix_at": "hidden", **FOLDS}),
}


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(
    ("case", "kind"),
    [
        *((case, "plain") for case in CASES),
        *((case, "weighted") for case in ("plain", "groups", "hidden", "labels", "number")),
        *((case, "sparse") for case in ("plain", "groups", "hidden", "number")),
    ],
)
def test_members_trained_together_equal_members_trained_in_turn(
    targets_of, trainers, one_by_one, case, kind
):
    head, params = CASES[case]
    together, X, y = targets_of(head, warm_start=True, **params)
    apart = clone(together)
    weight = np.random.default_rng(1).integers(0, 4, size=len(y)) if kind == "weighted" else None
    rows = sparse.csr_array(X) if kind == "sparse" else X
    together.fit(rows, y, weight).partial_fit(rows, y)
    one_by_one()
    apart.fit(rows, y, weight).partial_fit(rows, y)
    assert [trainer.kind for trainer in trainers] == [Trainer] * 2 + [AutogradTrainer] * 2
    close = {"rtol": 1e-9, "atol": 1e-9}
    np.testing.assert_allclose(by_members(together, X), by_members(apart, X), **close)
    np.testing.assert_allclose(together.member_weights_, apart.member_weights_, **close)
    assert together.n_iter_ == apart.n_iter_ == 4
    for mine, expected in zip(
        without_time(together.history_), without_time(apart.history_), strict=True
    ):
        assert set(mine) == set(expected)
        assert mine == pytest.approx(expected, rel=1e-9, abs=1e-9)
    for mine, expected in zip(together.nets_, apart.nets_, strict=True):
        assert_same_optimizers(mine.optimizer_.state_dict(), expected.optimizer_.state_dict())
    for mine, expected in zip(together._streams, apart._streams, strict=True):
        assert [rng.bit_generator.state for rng in mine] == [
            rng.bit_generator.state for rng in expected
        ]


def assert_same_optimizers(mine, expected):
    assert mine["param_groups"] == expected["param_groups"]
    assert mine["state"].keys() == expected["state"].keys()
    for number, state in expected["state"].items():
        torch.testing.assert_close(mine["state"][number], state, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("head", ["softmax", "labels", "single logit", "number", "numbers"])
@pytest.mark.parametrize("params", [{}, GROUPS, APART], ids=["one group", "two groups", "in turn"])
def test_the_prediction_is_the_weighted_mean_of_members(targets_of, head, params):
    estimator, X, y = targets_of(head, **params)
    estimator.fit(X, y)
    predicted, weights = by_members(estimator, X), estimator.member_weights_
    assert weights.shape == (4,)
    assert weights.sum() == pytest.approx(1)
    assert (weights == 0.25).all() == (params is not GROUPS)
    mean = np.tensordot(weights, predicted, axes=1)
    assert predicted.std(axis=0).max() > 0
    if isinstance(estimator, MixupERegressor):
        assert predicted.shape == (4, *y.shape)
        np.testing.assert_allclose(estimator.predict(X), mean, rtol=1e-12)
        return
    assert predicted.shape == (4, len(y), y.shape[1] if y.ndim == 2 else len(np.unique(y)))
    np.testing.assert_allclose(estimator.predict_proba(X), mean, rtol=1e-12)
    expected = mean > 0.5 if y.ndim == 2 else estimator.classes_[mean.argmax(axis=1)]
    assert np.array_equal(estimator.predict(X), expected)
    if y.ndim == 1:
        np.testing.assert_allclose(predicted.sum(axis=2), 1)


def test_a_single_network_has_one_member(iris):
    X, y = iris
    classifier = small(n_members=1).fit(X, y)
    assert np.array_equal(classifier.predict_proba_members(X)[0], classifier.predict_proba(X))
    assert classifier.nets_ == [classifier.net_]
    assert classifier.member_weights_.tolist() == [1.0]


@pytest.mark.parametrize("n_parts", [2, 3, 7, 10])
@pytest.mark.parametrize("n_rows", [10, 11, 150])
def test_folds_are_disjoint_of_one_size_and_have_all_classes(n_rows, n_parts):
    classes = np.random.default_rng(1).permutation(np.arange(n_rows) % 3)
    parts = stratified_folds(classes, n_rows, n_parts, seed=0)
    rows = np.concatenate(parts)
    assert len(np.unique(rows)) == len(rows) == n_parts * (n_rows // n_parts)
    assert {len(part) for part in parts} == {n_rows // n_parts}
    counts = np.array([np.bincount(classes[part], minlength=3) for part in parts])
    # The remaining samples are of the last class, at most one per fold.
    assert (np.ptp(counts, axis=0) <= 2).all()
    others = stratified_folds(classes, n_rows, n_parts, seed=1)
    assert not np.array_equal(np.concatenate(others), rows)
    assert len(np.concatenate(stratified_folds(None, n_rows, n_parts, seed=0))) == len(rows)


@pytest.mark.parametrize(
    ("n_rows", "n_folds", "share", "size"),
    [
        *((150, 4, 0.1, 15), (150, 4, 0.5, 37), (3, 4, 0.1, 1)),
        *((150, 1, 0.1, 15), (150, 1, 0.9, 135), (2, 1, 0.1, 1), (2, 1, 0.9, 1)),
    ],
)
def test_each_fold_holds_out_a_fraction_of_the_samples(n_rows, n_folds, share, size):
    parts = hold_out_folds(n_rows, None, n_folds, share, seed=0)
    assert [len(part) for part in parts] == [size] * n_folds
    assert len({tuple(part) for part in parts}) == min(n_folds, max(1, n_rows // size))
    for part in parts:
        assert len(np.unique(part)) == size


@pytest.mark.parametrize("params", [{}, {"alpha": (0.1, 0.5)}, {"alpha": (0.1, 0.2, 0.3, 0.4)}])
def test_a_sample_trains_all_of_a_group_but_one_and_groups_share_the_folds(
    trainers, small_digits, params
):
    small(**params, **FOLDS, max_epochs=1).fit(*small_digits)
    (trainer,) = trainers
    n_groups = len(params.get("alpha", [0]))
    has_trained = np.zeros((4, 300), dtype=bool)
    for number, own in enumerate(trainer.own):
        has_trained[number, own] = True
        assert np.array_equal(own, trainer.own[number // n_groups * n_groups])
    assert (has_trained.sum(axis=1) == 240).all()
    for group in range(n_groups):
        own = has_trained[group::n_groups]
        assert ((~own).sum(axis=0) <= 1).all()
    y = small_digits[1]
    shares = np.bincount(y[~has_trained[0]]) / 60 - np.bincount(y) / 300
    assert np.abs(shares).max() < 0.02


@pytest.mark.parametrize("n_members", [1, 2, 5])
def test_groups_may_differ_in_size(targets_of, trainers, n_members):
    for head in ("softmax", "number"):
        estimator, X, y = targets_of(head, **GROUPS, n_members=n_members)
        estimator.fit(X, y)
        weights = estimator.member_weights_
        assert weights.sum() == pytest.approx(1)
        for group in (weights[::2], weights[1::2]):
            assert np.ptp(group) == 0 if len(group) else n_members == 1
        mean = np.tensordot(weights, by_members(estimator, X), axes=1)
        both = (estimator.predict_proba(X) if head == "softmax" else estimator.predict(X), mean)
        np.testing.assert_allclose(*both, rtol=1e-12)
        alphas = [net.criterion_.alpha for net in estimator.nets_]
        assert alphas == [0.0, 2.0, 0.0, 2.0, 0.0][:n_members]
    for trainer in trainers:  # two members for each fold, and the last one alone
        folds = [tuple(own) for own in trainer.own]
        assert [folds.index(fold) for fold in folds] == [0, 0, 2, 2, 4][:n_members]


@pytest.mark.parametrize("params", [{}, APART], ids=["together", "in turn"])
def test_held_out_samples_train_nothing(iris, monkeypatch, params):
    run_fits = _base.run_fits

    def poisoned(estimators, fits, **how):
        members = fits[0].members
        X = members[0].tensors[0].clone()
        X[np.setdiff1d(np.arange(len(X)), members[0].rows)] = torch.nan
        assert int(X.isnan().any(dim=1).sum()) == 30
        tensors = X, *members[0].tensors[1:]
        for member in members:
            member.tensors = tensors  # the clean samples are still evaluated
        return run_fits(estimators, fits, **how)

    monkeypatch.setattr(_base, "run_fits", poisoned)
    # Members of four groups hold out the same samples.
    classifier = small(eta=(0.0, 0.1, 0.2, 0.3), **FOLDS, **params).fit(*iris)
    for name in ("train_loss", "valid_loss"):
        assert np.isfinite(column(classifier.history_, name)).all()


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("is_weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("alpha", [0.0, (0.0, 5.0)], ids=["one group", "two groups"])
def test_the_weights_of_each_groups_best_epoch_are_kept(
    iris, trainers, monkeypatch, alpha, is_weighted
):
    X, y = iris
    y = np.where(np.arange(150) % 5 == 0, (y + 1) % 3, y)  # label noise, to overfit
    weight = 1.0 + np.arange(150) % 3 if is_weighted else np.ones(150)
    evaluations, update = [], _loop.EarlyStopping.update

    def recorded(stopping, losses, trainer):
        evaluations.append(losses.copy())
        return update(stopping, losses, trainer)

    monkeypatch.setattr(_loop.EarlyStopping, "update", recorded)
    classifier = small(alpha=alpha, lr=0.1, max_epochs=60, n_iter_no_change=5, **FOLDS)
    classifier.fit(X, y, weight)
    aside = [np.setdiff1d(np.arange(150), own) for own in trainers[0].own]
    proba = classifier.predict_proba_members(X)
    now = [-np.log(own[rows, y[rows]]) for own, rows in zip(proba, aside, strict=True)]
    n_groups = len(np.atleast_1d(alpha))

    def pooled(losses, members):
        rows = [weight[part] for part in aside[members]]
        return np.average(np.concatenate(losses[members]), weights=np.concatenate(rows))

    groups = [slice(group, None, n_groups) for group in range(n_groups)]
    by_evaluation = np.array(
        [[pooled(losses, group) for group in groups] for losses in evaluations]
    )
    for group, losses in zip(groups, by_evaluation.T, strict=True):
        assert pooled(now, group) == pytest.approx(losses.min(), rel=1e-9)
        assert losses.argmin() < len(evaluations) - 1
    recorded = column(classifier.history_, "valid_loss")
    everyone = slice(None)
    np.testing.assert_allclose(
        recorded, [pooled(losses, everyone) for losses in evaluations], rtol=1e-9
    )
    # Training ends after five epochs without progress of any group.
    assert classifier.n_iter_ == len(recorded) < 60
    assert by_evaluation.argmin(axis=0).max() == classifier.n_iter_ - 1 - 5
    losses = np.array(now).reshape(4 // n_groups, n_groups, -1).swapaxes(0, 1).reshape(n_groups, -1)
    row_weight = np.concatenate([weight[rows] for rows in aside[::n_groups]])
    expected = np.tile(stacking_weights(losses, row_weight), 4 // n_groups) * n_groups / 4
    np.testing.assert_allclose(classifier.member_weights_, expected, rtol=1e-9)


@pytest.mark.usefixtures("double")
def test_given_validation_samples_choose_the_epoch_and_all_others_train(iris, trainers):
    X, y = iris
    noisy = np.where(np.arange(150) % 5 == 0, (y + 1) % 3, y)
    classifier = small(lr=0.1, max_epochs=50, n_iter_no_change=3, **FOLDS)
    weight = 1.0 + np.arange(50) % 2
    validation = {"X_val": X[1::3], "y_val": y[1::3], "sample_weight_val": weight}
    classifier.fit(X[::3], noisy[::3], **validation)
    assert [own.tolist() for own in trainers[0].own] == [list(range(50))] * 4
    proba = classifier.predict_proba_members(X[1::3])
    now = -np.log(proba[:, np.arange(50), y[1::3]])
    losses = column(classifier.history_, "valid_loss")
    assert np.average(now.mean(axis=0), weights=weight) == pytest.approx(min(losses), rel=1e-9)
    assert classifier.n_iter_ == len(losses) == 1 + np.argmin(losses) + 3 < 50


def test_given_validation_samples_without_early_stopping_only_measure_the_loss(iris):
    X, y = iris
    plain = small(warm_start=True).fit(X, y)
    watched = small(warm_start=True).fit(X, y, X_val=X[::2], y_val=y[::2])
    assert len(column(watched.history_, "valid_loss")) == 3
    proba = plain.predict_proba(X)
    assert np.array_equal(watched.predict_proba(X), proba)
    now = -np.log(watched.predict_proba_members(X)[:, np.arange(0, 150, 2), y[::2]]).mean()
    assert watched.history_[-1]["valid_loss"] == pytest.approx(now, rel=1e-5)


@pytest.mark.parametrize("is_watched", [False, True])
def test_member_weights_stay_in_partial_fit(iris, is_watched):
    X, y = iris
    classifier = small(**GROUPS, warm_start=True).fit(X, y)
    weights = classifier.member_weights_
    assert weights[0] != weights[1]
    validation = {"X_val": X, "y_val": y} if is_watched else {}
    classifier.set_params(early_stopping=False).fit(X, y, **validation).partial_fit(X, y)
    assert np.array_equal(classifier.member_weights_, weights)


def test_a_long_training_is_evaluated_at_intervals(iris, monkeypatch):
    monkeypatch.setattr(_base, "n_epochs_per_evaluation", lambda n_epochs, n_members: 3)
    classifier = small(max_epochs=10, **FOLDS).fit(*iris)
    seen = [row["epoch"] for row in classifier.history_ if "valid_loss" in row]
    assert seen == [3, 6, 9, 10]


def test_without_early_stopping_there_is_no_patience(iris):
    X, y = iris
    classifier = small(lr=1e-8, tol=1.0, n_iter_no_change=1, max_epochs=5)
    assert classifier.fit(X, y, X_val=X, y_val=y).n_iter_ == 5
    assert classifier.set_params(early_stopping=True).fit(X, y, X_val=X, y_val=y).n_iter_ == 2


@pytest.mark.parametrize("n_groups", [2, 3, 5])
def test_every_round_of_stacking_raises_the_likelihood(n_groups):
    rng = np.random.default_rng(n_groups)
    losses, weight = rng.gamma(1.0, size=(n_groups, 60)), rng.gamma(2.0, size=60)

    def likelihood(n_rounds):
        weights = stacking_weights(losses, weight, n_rounds)
        assert weights.sum() == pytest.approx(1)
        assert (weights >= 0).all()
        return np.average(np.log(weights @ np.exp(-losses)), weights=weight)

    values = [likelihood(n_rounds) for n_rounds in range(30)]
    assert (np.diff(values) >= -1e-15).all()
    assert values[-1] > values[0]


def test_a_group_that_is_never_better_gets_less_weight():
    losses = np.random.default_rng(0).gamma(1.0, size=60)
    for worse in (losses + 0.1, losses * 1.5, losses + 1000):
        good, bad = stacking_weights(np.stack([losses, worse]))
        assert good > bad >= 0
    np.testing.assert_allclose(stacking_weights(np.stack([losses, losses])), 0.5)
    assert stacking_weights(losses[None]).tolist() == [1.0]


def test_a_sample_of_weight_three_counts_as_three_samples():
    losses = np.random.default_rng(0).gamma(1.0, size=(2, 40))
    times = np.arange(40) % 4
    repeated = stacking_weights(np.repeat(losses, times, axis=1))
    np.testing.assert_allclose(stacking_weights(losses, times), repeated, rtol=1e-12)


def test_strong_mixing_gets_no_weight_where_it_hurts(iris):
    X, y = iris
    classifier = small(alpha=(0.0, 50.0), eta=0.0, max_epochs=30, **FOLDS).fit(X, y)
    without, strong = classifier.member_weights_[:2]
    assert without > 2 * strong


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("params", [{}, {"alpha": (0.1, 0.9)}, APART], ids=str)
@pytest.mark.parametrize("estimator_class", [MixupEClassifier, MixupERegressor])
def test_continued_training_equals_an_uninterrupted_run(iris, estimator_class, params):
    X, y = iris
    once = small(estimator_class, **params, max_epochs=4).fit(X, y)
    warm = small(estimator_class, **params, max_epochs=2, warm_start=True).fit(X, y).fit(X, y)
    steps = small(estimator_class, **params)
    first = {"classes": [0, 1, 2]} if estimator_class is MixupEClassifier else {}
    steps.partial_fit(X, y, **first)
    for _ in range(3):
        steps.partial_fit(X, y)
    for estimator in (warm, steps):
        np.testing.assert_allclose(by_members(estimator, X), by_members(once, X), atol=1e-9)
        np.testing.assert_allclose(estimator.loss_curve_, once.loss_curve_, rtol=1e-9)
        assert column(estimator.history_, "epoch") == [1, 2, 3, 4]


def test_a_changed_number_of_members_raises(iris):
    classifier = small(warm_start=True).fit(*iris)
    for n_members in (1, 8):
        classifier.set_params(n_members=n_members)
        for go_on in (classifier.fit, classifier.partial_fit):
            with pytest.raises(ValueError, match="Got a new value of n_members, but expected that"):
                go_on(*iris)
    assert classifier.predict_proba_members(iris[0]).shape == (4, 150, 3)


def test_changed_alphas_take_effect_in_each_member(iris):
    classifier = small(warm_start=True).fit(*iris)
    classifier.set_params(alpha=(0.1, 0.2), eta=[0.3, 0.4, 0.5, 0.6]).fit(*iris)
    assert [net.criterion_.alpha for net in classifier.nets_] == [0.1, 0.2, 0.1, 0.2]
    assert [net.criterion_.eta for net in classifier.nets_] == [0.3, 0.4, 0.5, 0.6]


@pytest.mark.parametrize("params", [GROUPS, APART], ids=["together", "in turn"])
def test_copies_predict_the_same_and_a_clone_learns_the_same(iris, params):
    X, y = iris
    classifier = small(**params).fit(X, y)
    proba = classifier.predict_proba_members(X)
    for twin in (
        pickle.loads(pickle.dumps(classifier)),
        copy.deepcopy(classifier),
        clone(classifier).fit(X, y),
    ):
        assert np.array_equal(twin.predict_proba_members(X), proba)
        assert np.array_equal(twin.predict_proba(X), classifier.predict_proba(X))
        assert twin.net_ is twin.nets_[0]
        twin.partial_fit(X, y)
    assert np.array_equal(classifier.predict_proba_members(X), proba)


def test_a_pickle_holds_neither_data_nor_the_stack(iris):
    classifier = small(**FOLDS).fit(*iris)
    for net in classifier.nets_:
        for tensor in net.module_.parameters():
            assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    size = len(pickle.dumps(small(n_members=1).fit(*iris)))
    assert len(pickle.dumps(classifier)) < 5 * size


@pytest.mark.parametrize("early_stopping", [False, True])
def test_an_interrupt_keeps_complete_epochs(iris, monkeypatch, early_stopping):
    X, y = iris
    params = {"early_stopping": early_stopping, "lr_schedule": "cosine", "max_epochs": 9}
    step, calls = Stepper.__call__, []
    # Four batches of 40: the tenth step is in the third epoch (with folds, three batches).
    n_steps = 8 if early_stopping else 10

    def interrupted(self, number=0):
        calls.append(number)
        if len(calls) == n_steps:
            raise KeyboardInterrupt
        step(self, number)

    monkeypatch.setattr(Stepper, "__call__", interrupted)
    classifier = small(**params)
    with pytest.warns(
        ConvergenceWarning, match="interrupted after 2 epochs; the model keeps"
    ) as caught:
        classifier.fit(X, y)
    assert caught[0].filename == __file__
    assert classifier.n_iter_ == len(classifier.history_) == 2
    assert np.isfinite(classifier.predict_proba(X)).all()
    assert classifier.score(X, y) > 0.3
    assert {net.optimizer_.param_groups[0]["lr"] for net in classifier.nets_} == {0.01}
    assert classifier.partial_fit(X, y).n_iter_ == 3


class Interrupt(Callback):
    """Simulates the user's Ctrl-C in the third epoch."""

    def on_batch_end(self, net, training, **kwargs):
        if training and len(net.history) == 3:
            raise KeyboardInterrupt


def test_an_interrupt_of_members_that_train_in_turn(iris):
    X, y = iris
    params = {"callbacks": [Interrupt()], "lr_schedule": "cosine", "max_epochs": 9}
    classifier = small(**params)
    with pytest.warns(ConvergenceWarning, match="interrupted after 2 epochs"):
        classifier.fit(X, y)
    assert classifier.n_iter_ == 2
    assert [len(net.history) for net in classifier.nets_] == [2, 2, 2, 2]
    assert {net.optimizer_.param_groups[0]["lr"] for net in classifier.nets_} == {0.01}


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("params", [{}, GROUPS, APART], ids=["together", "groups", "in turn"])
def test_a_loss_that_becomes_non_finite_leaves_the_old_model_or_none(iris, params, optimizer):
    X, y = iris
    fitted = small(**params, optimizer=optimizer, warm_start=True).fit(X, y)
    proba, history = fitted.predict_proba_members(X), fitted.history_
    for estimator in (fitted, small(**params, optimizer=optimizer)):
        estimator.set_params(lr=1e30, batch_size=10, lr_schedule="onecycle")
        with pytest.raises(FloatingPointError, match="The loss became non-finite in epoch .*: mix"):
            estimator.fit(X, y)
    with pytest.raises(NotFittedError):
        estimator.predict(X)
    assert np.array_equal(fitted.predict_proba_members(X), proba)
    assert fitted.history_ == history
    fitted.set_params(lr=0.01, batch_size=40, lr_schedule="constant").fit(X, y)
    expected = small(**params, optimizer=optimizer, warm_start=True).fit(X, y).fit(X, y)
    assert fitted.n_iter_ == expected.n_iter_ == 3
    assert len(fitted.history_) == len(expected.history_) == 6
    assert {net.optimizer_.param_groups[0]["lr"] for net in fitted.nets_} == {0.01}


def test_weights_that_become_non_finite_in_the_last_step(iris):
    classifier = small(optimizer="sgd", lr=1e38, max_epochs=1, batch_size=150, module_params=None)
    with pytest.raises(FloatingPointError, match="The weights of .* became non-finite in the last"):
        classifier.fit(iris[0] * 1e3, iris[1])
    assert not hasattr(classifier, "nets_")


@pytest.mark.skipif(not HAS_CALLBACKS, reason="this scikit-learn has no callbacks (before 1.9)")
def test_callbacks_of_scikit_learn_see_each_epoch_and_may_stop(iris):
    from sklearn.callback import ScoringMonitor

    class StopAtTwo:
        def setup(self, estimator, context): ...
        def teardown(self, estimator, context): ...
        def on_fit_task_begin(self, estimator, context): ...
        def on_fit_task_end(self, estimator, context):
            return context.task_name == "epoch" and context.task_id == 1

    X, y = iris
    monitor = ScoringMonitor(scoring="accuracy")
    classifier = small().set_callbacks(monitor).fit(X, y)
    rows = [row for row in monitor.get_logs().data if row["task_name"] == "epoch"]
    assert [row["task_id"] for row in rows] == [0, 1, 2]
    assert rows[-1]["accuracy"] == classifier.score(X, y)
    assert np.array_equal(classifier.predict_proba(X), small().fit(X, y).predict_proba(X))
    assert small(**FOLDS).set_callbacks(StopAtTwo()).fit(X, y).n_iter_ == 2


class Counter(Callback):
    """Counts events."""

    n_epochs = n_trainings = 0

    def on_train_begin(self, net, X, y, **kwargs):
        self.n_trainings += 1
        self.n_rows = len(X)

    def on_epoch_end(self, net, **kwargs):
        self.n_epochs += 1


@pytest.mark.usefixtures("double")
def test_each_member_has_copies_of_skorchs_callbacks(iris):
    X, y = iris
    counter = Counter()
    classifier = small(callbacks=[counter], **FOLDS).fit(X, y)
    counters = [dict(net.callbacks_)["Counter"] for net in classifier.nets_]
    assert len({id(one) for one in [*counters, counter]}) == 5
    assert [(one.n_epochs, one.n_trainings, one.n_rows) for one in counters] == [(3, 1, 120)] * 4
    assert counter.n_epochs == counter.n_trainings == 0
    np.testing.assert_allclose(
        classifier.predict_proba(X), small(**FOLDS).fit(X, y).predict_proba(X), atol=1e-9
    )


def test_callbacks_of_a_member_see_its_validation_fold(iris):
    X, y = iris
    scoring = EpochScoring("accuracy", lower_is_better=False, on_train=False, name="accuracy")
    classifier = small(callbacks=[scoring, EarlyStopping(patience=9)], **FOLDS).fit(X, y)
    recorded = [column(net.history, "valid_loss") for net in classifier.nets_]
    expected = column(classifier.history_, "valid_loss")
    np.testing.assert_allclose(np.mean(recorded, axis=0), expected, rtol=1e-5)
    assert all(0 <= net.history[-1, "accuracy"] <= 1 for net in classifier.nets_)


class StopAt(Callback):
    """Ends the training of a net with eta=0 after two epochs, of others after four."""

    def on_epoch_end(self, net, **kwargs):
        if len(net.history) == (2 if net.criterion_.eta == 0 else 4):
            raise KeyboardInterrupt


class BatchCounter(Callback):
    """Acts on each batch."""

    n_batches = 0

    def on_batch_end(self, net, training, **kwargs):
        self.n_batches += training


@pytest.mark.parametrize("n_members", [1, 4])
@pytest.mark.parametrize(
    ("callback", "kind"),
    [
        (Counter(), Trainer),
        (LRScheduler("StepLR", step_size=1, gamma=0.5), Trainer),
        (EpochScoring("accuracy", name="acc"), Trainer),
        (EarlyStopping(monitor="valid_acc", lower_is_better=False), Trainer),
        (BatchCounter(), AutogradTrainer),
        (LRScheduler("StepLR", step_size=1, step_every="batch"), AutogradTrainer),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Callback) else value.__name__,
)
def test_callbacks_at_the_end_of_an_epoch_keep_members_together(
    iris, trainers, n_members, callback, kind
):
    classifier = small(callbacks=[callback], n_members=n_members, **FOLDS).fit(*iris)
    assert [trainer.kind for trainer in trainers] == [kind]
    for net in classifier.nets_:
        assert {"train_loss", "valid_loss", "valid_acc", "dur"} <= set(net.history[-1])


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("head", ["softmax", "labels", "single logit", "number"])
def test_callbacks_find_the_records_of_skorch(targets_of, one_by_one, head):
    together, X, y = targets_of(head, callbacks=[Counter()], **FOLDS)
    apart = clone(together)
    together.fit(X, y)
    one_by_one()
    apart.fit(X, y)
    names = ["train_loss", "valid_loss", "train_loss_best", "valid_loss_best"]
    names += [] if head == "number" else ["valid_acc", "valid_acc_best"]
    for mine, expected in zip(together.nets_, apart.nets_, strict=True):
        for name in names:
            found, wanted = mine.history[:, name], expected.history[:, name]
            assert found == pytest.approx(wanted, rel=1e-9)


def test_callbacks_find_the_validation_loss_of_every_epoch(iris, monkeypatch):
    monkeypatch.setattr(_base, "n_epochs_per_evaluation", lambda n_epochs, n_members: 3)
    params = {"max_epochs": 7, "lr": 0.1, "n_iter_no_change": 1, **FOLDS}
    plain = small(**params).fit(*iris)
    heard = small(**params, callbacks=[EarlyStopping(patience=99)]).fit(*iris)
    for net in heard.nets_:
        assert len(net.history[:, "valid_loss"]) == heard.n_iter_
    # The estimator itself still evaluates every third epoch.
    assert without_time(plain.history_) == without_time(heard.history_)
    assert np.array_equal(plain.predict_proba(iris[0]), heard.predict_proba(iris[0]))


@pytest.mark.parametrize("n_members", [1, 4])
@pytest.mark.parametrize("params", [{}, {"module_params": {"batch_norm": True}}], ids=str)
def test_members_in_turn_stop_early_without_callbacks(iris, trainers, n_members, params):
    X, y = iris
    classifier = small(**APART, **FOLDS, **params, n_members=n_members).fit(X, y)
    assert trainers[0].kind is AutogradTrainer
    assert len(column(classifier.history_, "valid_loss")) == 3


@pytest.mark.parametrize("early_stopping", [False, True])
def test_an_interrupt_of_two_threads_keeps_complete_epochs(iris, monkeypatch, early_stopping):
    monkeypatch.setattr(_trainer, "GROUP_MEMBERS", 1)  # four groups
    X, y = iris
    params = {"early_stopping": early_stopping, "max_epochs": 9, "n_threads": 2}
    run_epoch, epochs, is_interrupted = Group.run_epoch, set(), threading.Event()

    def interrupted(self, epoch, *args):
        epochs.add(epoch)
        if epoch == 3 and threading.current_thread() is threading.main_thread():
            is_interrupted.set()
            raise KeyboardInterrupt
        if epoch == 3:  # the other thread runs while the main thread gets it
            assert is_interrupted.wait(timeout=60)
        return run_epoch(self, epoch, *args)

    monkeypatch.setattr(Group, "run_epoch", interrupted)
    with pytest.warns(ConvergenceWarning, match="interrupted after 2 epochs"):
        classifier = small(**params).fit(X, y)
    assert epochs == {1, 2, 3}
    assert classifier.n_iter_ == len(classifier.history_) == 2
    assert [len(net.history) for net in classifier.nets_] == [2] * 4
    assert np.isfinite(classifier.predict_proba_members(X)).all()
    for net in classifier.nets_:
        for weight in net.module_.parameters():
            assert weight.untyped_storage().nbytes() == weight.numel() * 4
    if early_stopping:
        assert min(column(classifier.history_, "valid_loss")) > 0
    assert classifier.partial_fit(X, y).n_iter_ == 3


def test_a_callback_may_end_one_member_while_others_continue(iris):
    X, y = iris
    classifier = small(eta=(0.0, 0.1), max_epochs=9, callbacks=[StopAt()]).fit(X, y)
    assert [len(net.history) for net in classifier.nets_] == [2, 4, 2, 4]
    assert classifier.n_iter_ == len(classifier.loss_curve_) == 4
    stop = EarlyStopping(monitor="train_loss", patience=2, threshold=10.0, threshold_mode="abs")
    assert small(max_epochs=9, callbacks=[stop]).fit(X, y).n_iter_ == 3


def test_verbose_shows_nothing_a_bar_or_a_line_per_epoch(iris, capsys):
    small().fit(*iris)
    output = capsys.readouterr()
    assert output.out == output.err == ""
    small(verbose=1, **FOLDS).fit(*iris)
    output = capsys.readouterr()
    assert "3/3" in output.err
    assert "valid_loss" in output.err
    assert output.out == ""
    small(verbose=2, **FOLDS).fit(*iris)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[2].startswith("epoch 3: train_loss ")
    small(verbose=2, **APART).fit(*iris)
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_global_generators_and_threads_are_restored(iris):
    before = np.random.get_state()[1].copy(), torch.get_rng_state(), torch.get_num_threads()
    for params in (GROUPS, APART):
        with torch.inference_mode():
            small(**params, module_params=None).fit(*iris).predict_proba_members(iris[0])
    assert np.array_equal(np.random.get_state()[1], before[0])
    assert torch.equal(torch.get_rng_state(), before[1])
    assert torch.get_num_threads() == before[2]


def test_equal_seeds_give_equal_members_and_others_do_not(iris):
    X, y = iris
    for params in (GROUPS, APART):
        one, two = (small(**params).fit(X, y).predict_proba_members(X) for _ in range(2))
        assert np.array_equal(one, two)
        other = small(**params, random_state=1).fit(X, y).predict_proba_members(X)
        assert not np.allclose(one, other, atol=1e-3)


def test_two_threads_give_the_results_of_one(iris):
    grid = [{"n_members": [1, 2]}, {"n_members": [2], "eta": [(0.0, 1.0)]}]
    searches = []
    for n_jobs in (1, 2):
        with parallel_config("threading", n_jobs=n_jobs):
            searches.append(GridSearchCV(small(**FOLDS), grid, cv=3).fit(*iris))
    one, two = (search.cv_results_["mean_test_score"] for search in searches)
    assert np.array_equal(one, two)
    X = iris[0]
    assert np.array_equal(searches[0].predict_proba(X), searches[1].predict_proba(X))


@pytest.mark.parametrize("params", [{}, GROUPS], ids=["one group", "two groups"])
def test_a_search_trains_ensembles_and_prunes_poor_ones(iris, params):
    order = np.random.default_rng(0).permutation(150)
    X, y = iris[0][order], iris[1][order]
    space = {"lr": [1e-6, 0.02], "n_members": [2, 4]}
    pruner = optuna.pruners.ThresholdPruner(lower=0.5, n_warmup_steps=4)
    classifier = small(max_epochs=8, batch_size=10, **params)
    search = MixupESearchCV(classifier, space, cv=2, pruner=pruner, random_state=0).fit(X, y)
    rates = [params["lr"] for params in search.cv_results_["params"]]
    states = {1e-6: "pruned", 0.02: "complete"}
    assert search.cv_results_["state"].tolist() == [states[rate] for rate in rates]
    assert sorted(rates) == [1e-6, 1e-6, 0.02, 0.02]
    n_members = search.best_params_["n_members"]
    assert search.best_estimator_.predict_proba_members(X).shape == (n_members, 150, 3)


def test_members_score_in_cross_validation_and_are_calibrated(cancer):
    X, y = cancer
    classifier = small(**FOLDS, max_epochs=5)
    assert cross_val_score(classifier, X, y, cv=3).min() > 0.85
    calibrated = CalibratedClassifierCV(classifier, cv=2).fit(X, y)
    assert calibrated.score(X, y) > 0.9
    assert set(calibrated.predict(X)) == {"benign", "malignant"}


def test_ensembles_accept_frames_in_a_pipeline(iris):
    X, y = iris
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"]).assign(city=np.array(["x", "y"])[y % 2])
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    pipeline = make_mixupe_pipeline(**SMALL | GROUPS | {"max_epochs": 15}).fit(frame, names)
    assert pipeline.score(frame, names) > 0.8
    assert set(pipeline.predict(frame)) <= set(names)
    rows = pipeline[:-1].transform(frame)
    mean = np.tensordot(
        pipeline[-1].member_weights_, pipeline[-1].predict_proba_members(rows), axes=1
    )
    np.testing.assert_allclose(pipeline.predict_proba(frame), mean)


@pytest.mark.parametrize("head", ["softmax", "number"])
def test_samples_of_weight_zero_equal_removed_ones(targets_of, head):
    first, X, y = targets_of(head, **GROUPS)
    second = clone(first)
    weight = np.arange(len(y)) % 4 * 1.0
    kept = weight > 0
    first.fit(X, y, weight)
    second.fit(X[kept], y[kept], weight[kept])
    assert np.array_equal(by_members(first, X), by_members(second, X))
    assert np.array_equal(first.member_weights_, second.member_weights_)


def test_balanced_weights_raise_the_probability_of_rare_classes(iris):
    kept = np.flatnonzero((iris[1] != 2) | (np.arange(150) % 10 == 0))
    X, y = iris[0][kept], iris[1][kept]
    params = {**FOLDS, "max_epochs": 10}
    plain, balanced = (
        small(class_weight=how, **params).fit(X, y).predict_proba(X)[:, 2].mean()
        for how in (None, "balanced")
    )
    assert balanced > plain


@pytest.mark.filterwarnings("ignore:Got y with the single class:UserWarning")
@pytest.mark.parametrize("rows", [[0], [0, 100], [0, 70, 100]], ids=["one", "two", "three"])
@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("alpha", [0.5, (0.1, 0.5), (0.1, 0.2, 0.3, 0.4)], ids=str)
def test_a_handful_of_samples_is_enough(iris, rows, early_stopping, alpha):
    X, y = iris[0][rows], np.array(["a", "b", "c"])[iris[1][rows]]
    classifier = small(early_stopping=early_stopping, alpha=alpha, min_steps=5)
    if early_stopping and len(rows) == 1:
        with pytest.raises(ValueError, match="Got n_samples=1 with early_stopping=True, but"):
            classifier.fit(X, y)
        return
    proba = classifier.fit(X, y).predict_proba(iris[0])
    assert proba.shape == (150, len(rows))
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    assert classifier.member_weights_.sum() == pytest.approx(1)


def test_a_class_of_one_sample_is_accepted(iris):
    y = np.where(np.arange(150) == 7, 99, iris[1])
    classifier = small(**FOLDS).fit(iris[0], y)
    assert classifier.classes_.tolist() == [0, 1, 2, 99]
    assert np.isfinite(column(classifier.history_, "valid_loss")).all()


@pytest.mark.parametrize("params", [{}, APART], ids=["together", "in turn"])
def test_chunks_at_predict_are_smaller_with_more_members(iris, monkeypatch, params):
    X, y = iris
    passes, forward_all = [], _net.forward_all

    def noted(nets, rows):
        passes.append((len(nets), len(rows)))
        return forward_all(nets, rows)

    monkeypatch.setattr(_net, "forward_all", noted)
    many = np.tile(X, (100, 1))
    for n_members in (1, 2, 8):
        classifier = small(n_members=n_members, max_epochs=1, **params).fit(X, y)
        passes.clear()
        proba = classifier.predict_proba(many)
        assert {n for n, _ in passes} == {n_members}
        assert max(n * n_rows for n, n_rows in passes) <= _rows.MAX_ROWS
        assert len(passes) >= len(many) * n_members / _rows.MAX_ROWS
        # Other samples change a prediction by rounding only, on some CPUs.
        np.testing.assert_allclose(proba[-150:], classifier.predict_proba(X), rtol=1e-5)


def test_wide_validation_samples_are_evaluated_in_chunks(iris, monkeypatch):
    X, y = np.tile(iris[0], (5, 1)), np.tile(iris[1], 5)
    sizes, predict = [], Network.predict

    def noted(network, rows):
        sizes.append(rows.numel())
        return predict(network, rows)

    expected = small(**GROUPS).fit(X, y)
    monkeypatch.setattr(Network, "predict", noted)
    # As few samples as possible, of four features, for each of the two members of a group.
    monkeypatch.setattr(_trainer, "CHUNK", 1)
    classifier = small(**GROUPS).fit(X, y)
    assert set(sizes) == {LANE * 4 * 2}
    # A fold of 150 samples is padded to three blocks: three epochs, four members.
    assert sum(sizes) == 3 * 4 * 3 * LANE * 4
    np.testing.assert_allclose(classifier.member_weights_, expected.member_weights_, rtol=1e-6)
    assert classifier.history_[-1]["valid_loss"] == pytest.approx(
        expected.history_[-1]["valid_loss"], rel=1e-6
    )
