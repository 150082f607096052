"""Learning-rate schedules, the number of steps, and presets."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone
from skorch.callbacks import Callback, LRScheduler
from torch.optim.lr_scheduler import CosineAnnealingLR, OneCycleLR

from mixupe_sklearn import MixupEClassifier, MixupERegressor, fit_many, preset
from mixupe_sklearn._estimators import base as _base
from mixupe_sklearn._net import net as _net
from mixupe_sklearn._training.config import PARAMETERS, n_epochs_for, rate_factors

SMALL = preset("paper") | {
    "alpha": 0.5,
    "eta": 0.1,
    "module_params": {"d_hidden": (7, 5)},
    "lr": 0.02,
    "max_epochs": 4,
    "batch_size": 40,
    "validation_fraction": 0.1,
    "n_iter_no_change": 10,
    "tol": 0.0,
    "random_state": 0,
}
N_STEPS = 4 * 4  # of iris, with the numbers above
# torch's schedulers of these names, for a peak rate and a number of steps.
POLICIES = {
    "cosine": (CosineAnnealingLR, lambda lr, n_steps: {"T_max": n_steps}),
    "onecycle": (
        OneCycleLR,
        lambda lr, n_steps: {"max_lr": lr, "total_steps": n_steps, "cycle_momentum": False},
    ),
}


class Listener(Callback):
    """Acts on each batch, so that skorch's own loop takes the steps, and records their rates."""

    rates = ()

    def on_batch_end(self, net, training, **kwargs):
        if training:
            self.rates = (*self.rates, net.optimizer_.param_groups[0]["lr"])


def small(**params):
    return MixupEClassifier(**SMALL | params)


def scheduled(name, **params):
    """Return the same schedule as skorch's callback with one of torch's schedulers."""
    policy, options = POLICIES[name]
    callback = LRScheduler(policy, step_every="batch", **options(SMALL["lr"], N_STEPS))
    return small(callbacks=[callback], **params)


def rates_of(estimator):
    return [group["lr"] for net in estimator.nets_ for group in net.optimizer_.param_groups]


def torch_factors(name, n_steps):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    policy, options = POLICIES[name]
    scheduler = policy(optimizer, **options(1.0, n_steps))
    factors = []
    for _ in range(n_steps):
        factors.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return factors


@pytest.mark.parametrize("n_steps", [1, 2, 3, 4, 7, 10, 33, 100, 1001])
@pytest.mark.parametrize("name", ["cosine", "onecycle"])
def test_the_factors_equal_those_of_torch(name, n_steps):
    mine = rate_factors(name, n_steps)
    np.testing.assert_allclose(mine, torch_factors(name, n_steps), rtol=0, atol=1e-12)


def test_a_constant_rate_needs_no_factors():
    assert rate_factors("constant", 10) is None


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("way", ["engine", "quiet", "skorch"])
@pytest.mark.parametrize("name", ["cosine", "onecycle"])
def test_a_schedule_equals_skorchs_callback(iris, monkeypatch, name, way, optimizer):
    X, y = iris
    expected = scheduled(name, optimizer=optimizer).fit(X, y)
    if way == "quiet":
        monkeypatch.setattr(_base, "why_not_together", lambda member, settings: "asked for")
        monkeypatch.setattr(_net, "why_not_engine", lambda net, iterator: "asked for")
    callbacks = [Listener()] if way == "skorch" else None
    mine = small(lr_schedule=name, optimizer=optimizer, callbacks=callbacks).fit(X, y)
    np.testing.assert_allclose(mine.predict_proba(X), expected.predict_proba(X), atol=1e-9)
    np.testing.assert_allclose(mine.loss_curve_, expected.loss_curve_, atol=1e-9)
    constant = small(optimizer=optimizer).fit(X, y)
    assert not np.allclose(mine.predict_proba(X), constant.predict_proba(X), atol=1e-4)
    assert rates_of(mine) == [0.02]


@pytest.mark.parametrize("n_members", [1, 2])
@pytest.mark.parametrize("name", ["cosine", "onecycle"])
def test_each_step_has_its_rate_and_the_last_leaves_the_first(iris, name, n_members):
    estimator = small(lr_schedule=name, n_members=n_members, callbacks=[Listener()]).fit(*iris)
    for net in estimator.nets_:
        (listener,) = (callback for _, callback in net.callbacks_ if type(callback) is Listener)
        np.testing.assert_allclose(listener.rates, 0.02 * np.array(rate_factors(name, N_STEPS)))
    assert rates_of(estimator) == [0.02] * n_members
    assert estimator.callbacks[0].rates == ()


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("n_members", [1, 2])
def test_a_rate_in_optimizer_params_follows_the_schedule(iris, n_members):
    params = {"lr_schedule": "cosine", "n_members": n_members}
    mine = small(**params, lr=0.5, optimizer_params={"lr": 0.02}).fit(*iris)
    expected = small(**params).fit(*iris)
    np.testing.assert_allclose(
        mine.predict_proba(iris[0]), expected.predict_proba(iris[0]), atol=1e-9
    )
    assert rates_of(mine) == [0.02] * n_members


@pytest.mark.usefixtures("double")
def test_parameter_groups_keep_their_own_rates(iris):
    groups = {"param_groups": [("stages.0*", {"lr": 0.1})]}
    expected = scheduled("cosine", optimizer_params=groups).fit(*iris)
    mine = small(lr_schedule="cosine", optimizer_params=groups).fit(*iris)
    np.testing.assert_allclose(
        mine.predict_proba(iris[0]), expected.predict_proba(iris[0]), atol=1e-9
    )
    assert rates_of(mine) == [0.1, 0.02]


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("early_stopping", [False, True])
def test_a_schedule_starts_anew_when_training_continues(iris, early_stopping):
    X, y = iris
    params = {"lr_schedule": "cosine", "early_stopping": early_stopping, "optimizer": "sgd"}
    warm = small(**params, warm_start=True).fit(X, y)
    other = small(**params, warm_start=True, callbacks=[Listener()]).fit(X, y)
    assert rates_of(warm) == [0.02]
    warm.fit(X, y)
    other.fit(X, y)
    np.testing.assert_allclose(warm.predict_proba(X), other.predict_proba(X), atol=1e-9)
    rates = dict(other.net_.callbacks_)["Listener"].rates
    assert len(rates) == 2 * N_STEPS
    assert rates[:N_STEPS] == rates[N_STEPS:]


@pytest.mark.parametrize("n_members", [1, 3])
def test_an_epoch_of_partial_fit_has_a_constant_rate(iris, n_members):
    X, y = iris
    pair = [
        small(lr_schedule=name, n_members=n_members).partial_fit(X, y, classes=[0, 1, 2])
        for name in ("onecycle", "constant")
    ]
    assert np.array_equal(pair[0].predict_proba(X), pair[1].predict_proba(X))


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("name", ["cosine", "onecycle"])
@pytest.mark.parametrize("estimator_class", [MixupEClassifier, MixupERegressor])
def test_fit_many_follows_the_schedule_as_single_fits_do(iris, estimator_class, name):
    X, y = iris
    numbers = [{"lr": 0.02}, {"lr": 0.05, "eta": 0.5}, {"lr": 0.02, "alpha": 0.0}]
    members = [estimator_class(**SMALL | own | {"lr_schedule": name}) for own in numbers]
    members.append(clone(members[0]).set_params(lr_schedule="constant"))
    singles = [clone(member).fit(X, y) for member in members]
    stopping = clone(members[1])

    def on_epoch(epoch, running):
        return [stopping] if epoch == 2 else None

    fitted = fit_many([*members, stopping], X, y, on_epoch=on_epoch)
    for member, single in zip(fitted[:-1], singles, strict=True):
        np.testing.assert_allclose(member.predict(X), single.predict(X), atol=1e-9)
        np.testing.assert_allclose(member.loss_curve_, single.loss_curve_, atol=1e-9)
        assert rates_of(member) == rates_of(single) == [member.lr]
    # An estimator that stops early keeps its weights, with the rates of the full schedule.
    assert fitted[-1].loss_curve_ == pytest.approx(singles[1].loss_curve_[:2], abs=1e-9)


@pytest.mark.parametrize("n_members", [1, 2])
def test_a_small_table_gets_at_least_min_steps(iris, n_members):
    X, y = iris
    params = {"batch_size": 100, "min_steps": 31, "n_members": n_members}
    estimator = small(**params).fit(X, y)
    assert estimator.n_iter_ == len(estimator.history_) == 16
    steps = [
        int(state["step"]) for net in estimator.nets_ for state in net.optimizer_.state.values()
    ]
    assert set(steps) == {32}
    assert small(**params | {"min_steps": 7}).fit(X, y).n_iter_ == 4
    assert estimator.partial_fit(X, y).n_iter_ == 17


@pytest.mark.parametrize("n_members", [1, 2])
@pytest.mark.parametrize("early_stopping", [False, True])
def test_held_out_samples_do_not_count_for_min_steps(iris, n_members, early_stopping):
    share = {"early_stopping": early_stopping, "validation_fraction": 0.5, "tol": 0.0}
    params = {"batch_size": 80, "min_steps": 20, "n_members": n_members, "n_iter_no_change": 100}
    estimator = small(**params, **share).fit(*iris)
    assert estimator.n_iter_ == (20 if early_stopping else 10)


def test_few_samples_give_no_warning_with_enough_steps(iris):
    X, y = iris[0][::3], iris[1][::3]
    for n_members in (1, 2):
        params = {"batch_size": 100, "n_members": n_members}
        with warnings.catch_warnings(action="error"):
            assert small(**params, min_steps=30).fit(X, y).n_iter_ == 30
        with pytest.warns(UserWarning, match="Got 50 training samples, .* so 4 epochs are 4 steps"):
            small(**params, min_steps=3).fit(X, y)


@pytest.mark.parametrize("n_rows", [1, 99, 100, 101, 450])
def test_epochs_suffice_for_the_steps_and_no_more(n_rows):
    steps = -(-n_rows // 100)
    for min_steps in (0, 1, 2599, 2600, 2601):
        epochs = n_epochs_for(25, min_steps, n_rows, 100)
        assert epochs * steps >= min_steps
        assert epochs == 25 or (epochs - 1) * steps < min_steps


def test_a_preset_is_a_new_dict():
    first = preset("paper")
    first["alpha"] = 3.0
    assert preset("paper")["alpha"] == 0.05
    # Mutable values would be shared.
    assert all(isinstance(value, (int, float, str, type(None))) for value in first.values())


@pytest.mark.parametrize("estimator_class", [MixupEClassifier, MixupERegressor])
def test_the_papers_preset_trains_as_in_the_paper(iris, estimator_class):
    estimator = estimator_class(**preset("paper"), random_state=0).fit(*iris)
    (net,) = estimator.nets_
    assert net is estimator.net_
    layers = [layer for layer in net.module_.modules() if isinstance(layer, torch.nn.Linear)]
    n_outputs = 3 if estimator_class is MixupEClassifier else 1
    assert [layer.weight.shape for layer in layers] == [(128, 4), (128, 128), (n_outputs, 128)]
    kinds = [type(layer) for layer in net.module_.modules() if not list(layer.children())]
    assert kinds == [torch.nn.Linear, torch.nn.ReLU] * 2 + [torch.nn.Linear]
    assert type(net.optimizer_) is torch.optim.Adam
    (group,) = net.optimizer_.param_groups
    assert (group["lr"], group["betas"], group["weight_decay"]) == (0.001, (0.9, 0.999), 0.0)
    assert estimator.n_iter_ == 25
    assert {int(state["step"]) for state in net.optimizer_.state.values()} == {25 * 2}
    criterion = net.criterion_
    assert (criterion.method, criterion.penalty, criterion.lam_per) == ("mixupe", "logit", "batch")
    assert (criterion.alpha, criterion.beta, criterion.eta) == (0.05, None, 1.0)
    assert "valid_loss" not in estimator.history_[0]  # all samples train
    assert estimator.member_weights_.tolist() == [1.0]


def test_every_parameter_of_a_preset_is_a_parameter_of_the_estimators():
    for estimator_class in (MixupEClassifier, MixupERegressor):
        assert set(preset("paper")) <= set(estimator_class().get_params())


def test_a_preset_takes_overrides():
    params = preset("paper", max_epochs=10, class_weight="balanced")
    assert params == preset("paper") | {"max_epochs": 10, "class_weight": "balanced"}
    assert preset("paper")["max_epochs"] == 25
    for name in MixupEClassifier().get_params():
        assert preset("paper", **{name: None})[name] is None


@pytest.mark.parametrize(
    ("name", "nearest"), [("epochs", "max_epochs"), ("batchsize", "batch_size")]
)
def test_a_preset_rejects_unknown_parameters(name, nearest):
    message = f"^Got the parameter '{name}', but expected a parameter of MixupEClassifier or "
    with pytest.raises(ValueError, match=f"{message}MixupERegressor, such as '{nearest}"):
        preset("paper", **{name: 1})


def test_presets_know_all_parameters_of_the_estimators():
    names = {*MixupEClassifier().get_params(), *MixupERegressor().get_params()}
    assert set(PARAMETERS) == names
