"""The callbacks for any skorch net: a moving average of weights, and warm-up with a cosine."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from paper import paper_classifier
from sklearn.base import clone
from skorch import NeuralNetClassifier
from skorch.callbacks import Callback
from skorch.dataset import Dataset
from skorch.helper import predefined_split
from torch import nn

from mixupe_sklearn import MixupENet
from mixupe_sklearn._net.callbacks import hears_batches, is_schedule
from mixupe_sklearn.callbacks import PolyakAverage, WarmupCosine, warmup_cosine

# A net without an estimator uses all of torch's threads.
pytestmark = pytest.mark.usefixtures("one_thread")

RATE = 0.9


def make_module():
    return nn.Sequential(nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 10))


def make_net(callbacks, net_class=NeuralNetClassifier, **settings):
    torch.manual_seed(0)
    defaults = {"lr": 0.1, "max_epochs": 2, "batch_size": 50, "verbose": 0, "train_split": None}
    if net_class is NeuralNetClassifier:
        defaults["criterion"] = nn.CrossEntropyLoss
    return net_class(make_module, callbacks=callbacks, **{**defaults, **settings})


@pytest.fixture
def rows(small_digits):
    X, y = small_digits
    return X.astype(np.dtype(str(torch.get_default_dtype()).removeprefix("torch."))), y


def states(module):
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def assert_equal(first, second):
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def average_by_hand(rows, n_epochs):
    """A plain loop over batches of 50; returns the raw weights and their average."""
    torch.manual_seed(0)
    module = make_module()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    average = states(module)
    X, y = map(torch.from_numpy, rows)
    for _ in range(n_epochs):
        for start in range(0, len(X), 50):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(module(X[start : start + 50]), y[start : start + 50])
            loss.backward()
            optimizer.step()
            for name, value in module.state_dict().items():
                is_mean = value.is_floating_point()
                mean = RATE * average[name] + (1 - RATE) * value
                average[name] = mean.detach() if is_mean else value.clone()
    return states(module), average


def test_the_average_equals_an_explicit_loop_with_the_statistics_of_batchnorm(rows, double):
    X, y = rows[0].astype("float64"), rows[1]
    net = make_net([PolyakAverage(RATE)]).fit(X, y)
    raw, average = average_by_hand((X, y), n_epochs=2)
    got = net.module_.state_dict()
    assert got["1.num_batches_tracked"] == average["1.num_batches_tracked"] == 12
    for name in average:
        assert torch.allclose(got[name], average[name], rtol=1e-12, atol=1e-14), name
    # The three differ: the test would detect raw or initial statistics.
    assert not torch.allclose(raw["1.running_var"], average["1.running_var"], rtol=1e-2)
    assert not torch.allclose(average["1.running_mean"], torch.zeros(8), atol=1e-2)


def test_a_rate_of_zero_keeps_the_raw_weights(rows):
    plain, averaged = make_net([]).fit(*rows), make_net([PolyakAverage(0.0)]).fit(*rows)
    assert_equal(states(plain.module_), states(averaged.module_))


@pytest.mark.parametrize("net_class", [NeuralNetClassifier, MixupENet])
@pytest.mark.parametrize("is_pickled", [False, True], ids=["same", "pickled"])
def test_training_in_pieces_is_training_in_one_piece(rows, net_class, is_pickled):
    def make():
        settings = {"net_class": net_class, "optimizer__momentum": 0.9, "max_epochs": 3}
        if net_class is MixupENet:  # one stream of draws for any number of calls
            order = np.random.default_rng(0)
            settings |= {"criterion__random_state": 0, "iterator_train__random_state": order}
        return make_net([PolyakAverage(RATE), WarmupCosine(n_warmup=3)], **settings)

    whole, pieces = make().fit(*rows), make().partial_fit(*rows, epochs=1)
    if is_pickled:
        pieces = pickle.loads(pickle.dumps(pieces))
    pieces.partial_fit(*rows, epochs=2)
    assert_equal(states(whole.module_), states(pieces.module_))
    # Negative control: continued from the average alone, the weights differ.
    forgetful = make().partial_fit(*rows, epochs=1)
    dict(forgetful.callbacks_)["PolyakAverage"].initialize()
    forgetful.partial_fit(*rows, epochs=2)
    assert not torch.equal(forgetful.module_[0].weight, whole.module_[0].weight)


def test_training_continues_from_loaded_weights(rows):
    net = make_net([PolyakAverage(RATE)]).fit(*rows)
    other = make_net([]).fit(*rows).module_.state_dict()
    net.module_.load_state_dict(other)
    net.partial_fit(*rows, epochs=1)
    fresh = make_net([PolyakAverage(RATE)]).initialize()
    fresh.module_.load_state_dict(other)
    assert_equal(states(fresh.partial_fit(*rows, epochs=1).module_), states(net.module_))


class Look(Callback):
    """Records the weights at two points of each epoch."""

    def initialize(self):
        self.at_training_, self.at_end_ = [], []
        return self

    def on_batch_begin(self, net, batch=None, training=None, **kwargs):
        if training:
            self.at_training_.append(states(net.module_))

    def on_epoch_end(self, net, **kwargs):
        self.at_end_.append(states(net.module_))


@pytest.mark.parametrize("has_validation", [True, False], ids=["validation", "none"])
def test_raw_weights_are_trained_and_averaged_ones_validated(rows, has_validation):
    split = predefined_split(Dataset(*rows)) if has_validation else None
    net = make_net([PolyakAverage(RATE), Look()], train_split=split).fit(*rows)
    look = dict(net.callbacks_)["Look"]
    plain = make_net([Look()]).fit(*rows)
    for mine, other in zip(
        look.at_training_, dict(plain.callbacks_)["Look"].at_training_, strict=True
    ):
        assert_equal(mine, other)
    assert_equal(look.at_end_[-1], states(net.module_))
    if has_validation:
        X, y = map(torch.from_numpy, rows)
        for row, weights in zip(net.history, look.at_end_, strict=True):
            module = make_module().eval()
            module.load_state_dict(weights)
            loss = nn.functional.cross_entropy(module(X), y)
            assert row["valid_loss"] == pytest.approx(loss.item(), rel=1e-5)


def test_early_stopping_restores_the_best_average(digits):
    X, y = digits[0][:400], digits[1][:400]
    # A learning rate at which the loss oscillates.
    classifier = paper_classifier(
        callbacks=[PolyakAverage(0.8), Look()],
        module=make_module,
        optimizer="sgd",
        lr=3.0,
        max_epochs=12,
        early_stopping=True,
        n_iter_no_change=3,
        random_state=4,
    ).fit(X, y)
    losses = [row["valid_loss"] for row in classifier.history_]
    best = int(np.argmin(losses))
    assert best < len(losses) - 1
    look = dict(classifier.net_.callbacks_)["Look"]
    assert_equal(look.at_end_[best], states(classifier.net_.module_))


def test_weights_of_half_precision_have_an_average_of_single_precision(rows):
    torch.manual_seed(0)
    module = make_module().bfloat16()
    callback = PolyakAverage(0.999).initialize()
    net = type("Net", (), {"module_": module})
    callback.on_train_begin(net)
    with torch.no_grad():
        module[0].weight.zero_()
        module[0].weight.add_(1.0)
    first = callback.average_[0].clone()
    callback.on_batch_end(net, training=True)
    # Updates of a thousandth are below the resolution of bfloat16 near 1.
    expected = first + 0.001 * (1.0 - first)
    assert callback.average_[0].dtype == torch.float32
    assert torch.allclose(callback.average_[0], expected, rtol=1e-6)


def test_an_interrupted_training_leaves_the_average_too(rows):
    class Interrupt(Callback):
        def on_batch_end(self, net, batch=None, training=None, **kwargs):
            if training and len(net.history) == 2:
                raise KeyboardInterrupt

    net = make_net([PolyakAverage(RATE), Interrupt()]).fit(*rows)
    callback = dict(net.callbacks_)["PolyakAverage"]
    assert torch.equal(net.module_[0].weight, callback.average_[0])
    assert not torch.equal(callback.raw_[0], callback.average_[0])


@pytest.mark.parametrize("name", ["PolyakAverage", "WarmupCosine"])
def test_callbacks_are_cloned_and_copied_before_and_after_training(rows, name):
    made = {
        "PolyakAverage": PolyakAverage(0.5),
        "WarmupCosine": WarmupCosine(n_steps=9, n_warmup=2, final=0.1),
    }[name]
    params = made.get_params()
    net = make_net([made]).fit(*rows)
    fitted = dict(net.callbacks_)[name]
    for original in (made, fitted):
        for other in (clone(original), copy.deepcopy(original), pickle.loads(pickle.dumps(made))):
            assert type(other) is type(made)
            assert other.get_params() == params


def rate_by_formula(step, n_steps, n_warmup, final, peak):
    if step < n_warmup:
        return peak * step / n_warmup
    share = min((step - n_warmup) / (n_steps - 1 - n_warmup), 1)
    return peak * (final + (1 - final) * (1 + math.cos(math.pi * share)) / 2)


def rates_of(net):
    return [batch["event_lr"] for row in net.history for batch in row["batches"]]


@pytest.mark.parametrize("net_class", [NeuralNetClassifier, MixupENet])
@pytest.mark.parametrize("n_warmup", [0, 4, 0.25])
def test_rates_follow_the_formula_at_every_step(rows, net_class, n_warmup):
    callback = WarmupCosine(n_warmup=n_warmup, final=0.01)
    net = make_net([callback], net_class, max_epochs=4).fit(*rows)
    n_warmup = 6 if n_warmup == 0.25 else n_warmup  # 300 samples: four epochs of six batches
    expected = [rate_by_formula(step, 24, n_warmup, 0.01, 0.1) for step in range(24)]
    assert np.allclose(rates_of(net), expected, rtol=1e-12)
    assert rates_of(net)[-1] == pytest.approx(0.001, rel=1e-12)
    assert net.optimizer_.param_groups[0]["lr"] == 0.1


def test_the_optimizer_has_the_rate_of_its_step(rows):
    seen = []

    class Watch(torch.optim.SGD):
        def step(self, closure=None):
            seen.append([group["lr"] for group in self.param_groups])
            return super().step(closure)

    groups = [("0.*", {"lr": 0.5})]
    callback = WarmupCosine(n_steps=8, n_warmup=2)
    net = make_net([callback], optimizer=Watch, optimizer__param_groups=groups).fit(*rows)
    own, rest = np.array(seen).T
    expected = [rate_by_formula(step, 8, 2, 0.001, 1.0) for step in range(12)]
    assert np.allclose(own, 0.5 * np.array(expected), rtol=1e-12)
    assert np.allclose(rest, 0.1 * np.array(expected), rtol=1e-12)
    assert [group["lr"] for group in net.optimizer_.param_groups] == [0.5, 0.1]


def test_the_first_step_changes_no_weight(rows):
    net = make_net([WarmupCosine(n_warmup=2), Look()]).fit(*rows)
    first, second, third, *_ = (
        look["0.weight"] for look in dict(net.callbacks_)["Look"].at_training_
    )
    assert torch.equal(first, second)
    assert not torch.equal(second, third)


def test_a_training_after_the_last_step_starts_a_new_cycle_unless_n_steps_is_given(rows):
    anew = make_net([WarmupCosine(n_warmup=3)]).fit(*rows).partial_fit(*rows)
    first, second = np.split(np.array(rates_of(anew)), 2)
    assert np.array_equal(first, second)
    assert first[0] == 0
    planned = make_net([WarmupCosine(n_steps=12, n_warmup=3)]).fit(*rows).partial_fit(*rows)
    assert np.allclose(rates_of(planned)[11:], 0.0001, rtol=1e-12)


def test_a_rate_that_the_user_changes_is_the_next_peak(rows):
    net = make_net([WarmupCosine(n_warmup=3)]).fit(*rows)
    net.optimizer_.param_groups[0]["lr"] = 0.4
    net.partial_fit(*rows)
    assert max(rates_of(net)[12:]) == 0.4


def test_an_interrupted_training_does_not_lower_the_peak(rows):
    net = make_net([WarmupCosine(n_warmup=3)]).initialize()
    few = [rows[0].copy(), rows[1].copy()]
    few[1][-1] = 99  # no such class
    with pytest.raises(IndexError, match="out of bounds"):
        net.partial_fit(*few)
    assert net.optimizer_.param_groups[0]["lr"] < 0.1
    net.partial_fit(*rows)
    assert dict(net.callbacks_)["WarmupCosine"].peaks_ == [0.1]


def test_simulated_rates_are_those_of_training(rows):
    net = make_net([WarmupCosine(n_warmup=3)]).fit(*rows)
    assert np.allclose(WarmupCosine(n_warmup=3).simulate(12, 0.1), rates_of(net), rtol=1e-12)


def test_warmup_cosine_is_a_schedule_with_batch_events():
    callback = WarmupCosine()
    assert is_schedule(callback)
    assert is_schedule(("warmup", WarmupCosine))
    assert not is_schedule(PolyakAverage())
    assert hears_batches(callback, None)
    assert hears_batches(PolyakAverage(), None)


def test_an_estimator_takes_both_and_leaves_the_users_own_untouched(small_digits):
    callbacks = [PolyakAverage(0.7), WarmupCosine(n_warmup=2)]
    before = [vars(callback).copy() for callback in callbacks]
    classifier = paper_classifier(callbacks=callbacks, random_state=0, lr=0.01, max_epochs=10)
    classifier.fit(*small_digits)
    assert classifier.score(*small_digits) > 0.8
    assert [vars(callback) for callback in callbacks] == before
    with pytest.raises(ValueError, match="set lr_schedule='constant'"):
        clone(classifier).set_params(lr_schedule="cosine").fit(*small_digits)


def test_batches_that_cannot_be_counted_need_a_number_of_steps(rows):
    class Endless(torch.utils.data.IterableDataset):
        def __iter__(self):
            return zip(*map(torch.from_numpy, rows), strict=True)

    settings = {"max_epochs": 1, "classes": range(10)}
    with pytest.raises(ValueError, match="Got n_steps=None .* set n_steps"):
        make_net([WarmupCosine()], **settings).fit(Endless(), None)
    net = make_net([WarmupCosine(n_steps=6, n_warmup=1)], **settings).fit(Endless(), None)
    assert rates_of(net)[1] == 0.1


@pytest.mark.parametrize(
    ("callback", "message"),
    [
        (PolyakAverage(rate=1.0), "Got rate=1.0, but expected a number >= 0 and below 1."),
        (PolyakAverage(rate=-0.1), "Got rate=-0.1"),
        (WarmupCosine(n_steps=0), "Got n_steps=0, but expected an integer >= 1 or None."),
        (
            WarmupCosine(n_warmup=-1),
            "Got n_warmup=-1, but expected an integer number of steps >= 0",
        ),
        (
            WarmupCosine(n_warmup=1.5),
            "Got n_warmup=1.5, but expected .* a fraction of them below 1.",
        ),
        (
            WarmupCosine(n_steps=5, n_warmup=5),
            "Got n_warmup=5, but expected fewer steps than the 5",
        ),
        (WarmupCosine(final=-1.0), "Got final=-1.0, but expected a number >= 0."),
    ],
    ids=["rate 1", "rate below 0", "no steps", "warm-up below 0", "share", "all warm-up", "final"],
)
def test_wrong_parameters_raise_one_sentence(callback, message):
    with pytest.raises(ValueError, match=message):
        make_net([callback]).initialize()


def test_a_warm_up_longer_than_the_training_raises_one_sentence(rows):
    with pytest.raises(
        ValueError, match="Got n_warmup=12, but expected fewer steps than the 12 of"
    ):
        make_net([WarmupCosine(n_warmup=12)]).fit(*rows)


def test_a_single_step_is_the_last_one():
    assert warmup_cosine(0, n_steps=1, n_warmup=0, final=0.5) == 0.5
