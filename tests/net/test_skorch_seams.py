"""What skorch lets a user override, pass or call: the nets use it or refuse it in one sentence."""

import copy
import pickle
import types
import warnings

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from skorch.exceptions import SkorchTrainingImpossibleError
from skorch.hf import AccelerateMixin
from skorch.utils import FirstStepAccumulator, to_tensor
from torch import nn

from mixupe_sklearn import (
    LossParts,
    MixupEClassifier,
    MixupELoss,
    MixupENet,
    MixupENetRegressor,
)
from mixupe_sklearn._distributed.preflight import check_supported
from mixupe_sklearn.modules import MLP

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def data(small_digits):
    X, y = small_digits
    return X.astype("float32"), y


def make_net(net_class=MixupENet, module=MLP, **settings):
    defaults = {"lr": 0.1, "max_epochs": 2, "batch_size": 50, "verbose": 0, "train_split": None}
    if module is MLP:
        defaults |= {"module__n_features": 64, "module__n_outputs": 10}
    torch.manual_seed(0)
    return net_class(module, **{**defaults, **settings})


def weights_of(net):
    return torch.cat([weight.detach().flatten() for weight in net.module_.parameters()])


# Prediction


@pytest.mark.parametrize(
    "copied", [lambda net: net, copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))]
)
@pytest.mark.parametrize("head", ["softmax", "sigmoid"])
def test_a_trimmed_net_predicts_as_before(data, head, copied):
    X, y = data
    targets = y if head == "softmax" else np.eye(10, dtype="float32")[y]
    net = make_net(criterion__head=head).fit(X, targets)
    expected = net.predict(X), net.predict_proba(X)
    net.trim_for_prediction()
    net.trim_for_prediction()  # a second call changes nothing
    net = copied(net)
    assert net.criterion_ is None
    np.testing.assert_array_equal(net.predict(X), expected[0])
    np.testing.assert_array_equal(net.predict_proba(X), expected[1])
    for train in (net.fit, net.partial_fit):
        with pytest.raises(SkorchTrainingImpossibleError):
            train(X, targets)


def test_a_trimmed_regressor_predicts_as_before(data):
    X, y = data
    net = make_net(MixupENetRegressor, module__n_outputs=1).fit(X, y.astype("float32")[:, None])
    expected = net.predict(X)
    net.trim_for_prediction()
    np.testing.assert_array_equal(net.predict(X), expected)


# infer


class Doubled(MixupENet):
    """Doubles the inputs in training and in prediction."""

    def infer(self, x, **fit_params):
        return super().infer(2 * x, **fit_params)


@pytest.mark.parametrize(
    "settings", [{}, {"criterion__single_pass": False}, {"criterion__method": "erm"}]
)
def test_an_infer_of_a_subclass_runs_in_training(data, settings):
    X, y = data
    net = make_net(Doubled, **settings).fit(X, y)
    plain = make_net(**settings).fit(2 * X, y)
    assert (weights_of(net) - weights_of(plain)).abs().max() < 1e-5
    np.testing.assert_allclose(net.predict_proba(X), plain.predict_proba(2 * X), atol=1e-5)


def test_an_infer_set_on_the_net_runs_in_training(data):
    net, shapes = make_net(), []

    def infer(x, **fit_params):
        shapes.append(tuple(x.shape))
        return MixupENet.infer(net, x, **fit_params)

    net.infer = infer
    net.fit(*data)
    assert shapes == [(100, 64)] * 12  # mixed and clean samples of six batches in two epochs


class TwoModules(MixupENet):
    """The mean of two modules, as in skorch's documentation; with BatchNorm."""

    def initialize_module(self):
        super().initialize_module()
        self.module2_ = nn.Sequential(nn.Linear(64, 10), nn.BatchNorm1d(10))
        return self

    def infer(self, x, **fit_params):
        x = to_tensor(x, device=self.device)
        return (self.module_(x) + self.module2_(x)) / 2


def test_infer_may_run_several_modules(data):
    net = make_net(TwoModules, criterion__single_pass=False).initialize()
    before = net.module2_[0].weight.clone()
    net.partial_fit(*data)
    assert not torch.equal(net.module2_[0].weight, before)
    # The clean pass updates no statistics: one update for each of 12 batches.
    assert net.module2_[1].num_batches_tracked == 12


class Shifted(nn.Module):
    """Logits of a dict of inputs, with a parameter of ``fit``."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, image, offset, factor=1.0):
        return factor * (self.linear(image) + offset)


class Seen(MixupENet):
    """Records what ``infer`` gets."""

    calls = ()

    def infer(self, x, **fit_params):
        self.calls = (*self.calls, (set(x), fit_params))
        return super().infer(x, **fit_params)


def test_infer_gets_a_dict_of_inputs_and_the_parameters_of_fit(data):
    X, y = data
    inputs = {"image": X, "offset": np.zeros((len(X), 1), dtype="float32")}
    net = make_net(Seen, Shifted, criterion__method="erm", max_epochs=1).fit(inputs, y, factor=0.5)
    assert net.calls == (({"image", "offset"}, {"factor": 0.5}),) * 6


def test_an_infer_and_hidden_mixing_raise_one_sentence(data):
    message = "Got mix_at='hidden' with an infer of Doubled, but expected mix_at='input', since the stages of the module run without infer."
    with pytest.raises(ValueError, match=message):
        make_net(Doubled, criterion__mix_at="hidden").fit(*data)
    make_net(Doubled, criterion__mix_at="hidden", criterion__method="erm").fit(*data)


def test_an_infer_in_several_processes_raises_one_sentence():
    net = make_net(Doubled).initialize()
    net.accelerator = types.SimpleNamespace(num_processes=2)
    message = "Got an infer of Doubled in 2 processes, but expected none, since each process runs the module on its shard without infer."
    with pytest.raises(ValueError, match=message):
        check_supported(net)


# get_loss


class Scaled(MixupENet):
    """A loss that is based on ours."""

    seen = ()

    def get_loss(self, y_pred, y_true, X=None, training=False):
        if training:
            self.seen = (*self.seen, (type(y_pred), y_true.shape, X.shape))
        return 0.5 * super().get_loss(y_pred, y_true, X=X, training=training)


def test_a_get_loss_of_a_subclass_is_the_loss_of_a_step(data):
    net = make_net(Scaled, lr=0.2).fit(*data)
    plain = make_net(lr=0.1).fit(*data)
    assert (weights_of(net) - weights_of(plain)).abs().max() < 1e-6
    assert net.seen == ((LossParts, (50,), (50, 64)),) * 12
    np.testing.assert_allclose(
        net.history[:, "train_loss"], np.multiply(plain.history[:, "train_loss"], 0.5), rtol=1e-5
    )


def cross_entropy(y_pred, y_true, **kwargs):
    return nn.functional.cross_entropy(y_pred, y_true)


def first_output(y_pred, y_true, **kwargs):
    return nn.functional.cross_entropy(y_pred[:, 0], y_true)


def without_gradient(y_pred, y_true, **kwargs):
    return nn.functional.cross_entropy(y_pred.mixed_logits, y_true)


@pytest.mark.parametrize(
    ("get_loss", "found"),
    [
        (cross_entropy, "TypeError: "),
        (first_output, "TypeError: tuple indices must be integers or slices, not tuple"),
        (without_gradient, "no loss with a gradient"),
        (lambda *args, **kwargs: None, "no loss with a gradient"),
    ],
)
def test_a_loss_that_does_not_come_from_ours_raises_one_sentence(data, get_loss, found):
    net = make_net()
    net.get_loss = get_loss
    with pytest.raises(TypeError) as raised:
        net.fit(*data)
    start, end = str(raised.value).split(
        " from MixupENet.get_loss in a training step, but expected "
    )
    assert start.startswith(("Got '" + found, 'Got "' + found))
    assert (
        end
        == "a loss based on super().get_loss(y_pred, y_true, X, training), since y_pred is a LossParts there, and only its loss has a gradient."
    )


def test_other_errors_of_a_get_loss_stay_as_they_are(data):
    net = make_net()

    def get_loss(*args, **kwargs):
        raise ValueError("of the user")

    net.get_loss = get_loss
    with pytest.raises(ValueError, match="^of the user$"):
        net.fit(*data)


class OwnStep(MixupENet):
    """A training step as skorch's, which does not mix."""

    def train_step_single(self, batch, **fit_params):
        self._set_training(True)
        X, y = batch
        y_pred = self.infer(X, **fit_params)
        loss = self.get_loss(y_pred, y, X=X, training=True)
        loss.backward()
        return {"loss": loss, "y_pred": y_pred}


class Accelerated(AccelerateMixin, MixupENet):
    """The step of skorch's mixin does not mix, either."""


def test_a_training_step_that_does_not_mix_raises_one_sentence(data):
    message = "Got y_pred of type Tensor in a training step, but expected the LossParts of super[(][)].train_step_single, which mixes samples."
    with pytest.raises(TypeError, match=message):
        make_net(OwnStep).fit(*data)
    with pytest.raises(TypeError, match=message):
        make_net(Accelerated, accelerator=Accelerator(cpu=True)).fit(*data)


# get_train_step_accumulator


class Last(FirstStepAccumulator):
    """Keeps the last of the calls of an optimizer."""

    def store_step(self, step):
        self.step = step


class Thrice(torch.optim.SGD):
    """Calls the closure three times in a step."""

    losses = ()

    def step(self, closure=None):
        for _ in range(3):
            self.losses = (*self.losses, super().step(closure).item())


class KeepsLast(MixupENet):
    """An accumulator by a method."""

    def get_train_step_accumulator(self):
        return Last()


@pytest.mark.parametrize("net_class", [KeepsLast, MixupENet])
def test_an_accumulator_of_a_subclass_or_of_the_net_is_used(data, net_class):
    net = make_net(net_class, optimizer=Thrice, max_epochs=1)
    if net_class is MixupENet:
        net.get_train_step_accumulator = Last
    net.fit(*data)
    kept = net.history[-1, "batches", :, "train_loss"]
    np.testing.assert_allclose(kept, net.optimizer_.losses[2::3], rtol=1e-6)


# criterion


class OwnLoss(MixupELoss):
    """A subclass."""


@pytest.mark.parametrize("net_class", [MixupENet, MixupENetRegressor])
@pytest.mark.parametrize(
    "criterion",
    [nn.CrossEntropyLoss, nn.CrossEntropyLoss(), lambda **kwargs: nn.CrossEntropyLoss()],
)
def test_another_criterion_raises_one_sentence(net_class, criterion):
    message = "^Got criterion=CrossEntropyLoss, but expected MixupELoss or a subclass, since the training step mixes samples and runs the module itself.$"
    with pytest.raises(TypeError, match=message):
        make_net(net_class, criterion=criterion).initialize()
    with pytest.raises(TypeError, match=message):
        make_net(net_class).initialize().set_params(criterion=criterion)


@pytest.mark.parametrize("criterion", [OwnLoss, OwnLoss(), lambda **kwargs: OwnLoss(**kwargs)])
def test_subclasses_of_the_criterion_are_used(data, criterion):
    assert type(make_net(criterion=criterion).fit(*data).criterion_) is OwnLoss


class OwnCriterion(MixupENet):
    """Creates another criterion by itself."""

    def initialize_criterion(self):
        self.criterion_ = nn.CrossEntropyLoss()
        return self


def test_another_criterion_of_a_subclass_raises_before_training(data):
    with pytest.raises(TypeError, match="Got criterion=CrossEntropyLoss, but expected MixupELoss"):
        make_net(OwnCriterion).fit(*data)


# A last layer that returns probabilities


class Ends(nn.Module):
    """A module that registers its last layer last."""

    def __init__(self, last):
        super().__init__()
        self.body = nn.Linear(64, 10)
        self.last = last

    def forward(self, X):
        return self.last(self.body(X))


@pytest.mark.parametrize(
    "build", [Ends, lambda last: nn.Sequential(nn.Linear(64, 10), nn.Sequential(last))]
)
@pytest.mark.parametrize(
    ("last", "returns"),
    [
        (nn.Softmax(1), "probabilities"),
        (nn.LogSoftmax(1), "log-probabilities"),
        (nn.Sigmoid(), "probabilities"),
    ],
)
def test_a_last_layer_of_probabilities_warns_once(data, build, last, returns):
    module = build(last)
    net = make_net(module=module)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        net.fit(*data).partial_fit(*data)
    (found,) = caught
    assert str(found.message) == (
        f"Got module={type(module).__name__}, whose last layer, {type(last).__name__}, returns {returns}, but expected "
        f"logits: remove this layer, since the loss applies the softmax itself."
    )
    assert found.filename == __file__


def test_an_estimator_warns_about_a_last_layer_of_probabilities_once(data):
    def module(n_features, n_outputs):
        return nn.Sequential(nn.Linear(n_features, n_outputs), nn.Softmax(1))

    classifier = MixupEClassifier(module=module, n_members=2, max_epochs=1, min_steps=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        classifier.fit(*data)
    (found,) = caught
    assert "whose last layer, Softmax, returns probabilities, but expected logits" in str(
        found.message
    )
    assert found.filename == __file__


@pytest.mark.parametrize("last", [nn.ReLU(), nn.Identity(), nn.Linear(10, 10)])
def test_other_last_layers_do_not_warn(data, last):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_net(module=Ends(last)).fit(*data)


def test_a_regressor_may_end_in_a_sigmoid(data):
    X, y = data
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_net(MixupENetRegressor, Ends(nn.Sigmoid())).fit(X, np.eye(10, dtype="float32")[y])
