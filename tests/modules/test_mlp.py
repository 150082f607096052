"""The MLP, and the learned factors of its inputs."""

import re

import numpy as np
import pytest
import torch
from torch import nn

from mixupe_sklearn import MixupEClassifier
from mixupe_sklearn.modules import MLP
from mixupe_sklearn.modules.mlp import RATE, ScaledLinear

X = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
every_depth = pytest.mark.parametrize("d_hidden", [(), (8,), (8, 6)])


def made(**params):
    torch.manual_seed(0)
    return MLP(4, 3, **params)


def first_layer(module):
    return next(layer for layer in module.modules() if isinstance(layer, nn.Linear))


@every_depth
def test_input_scale_adds_one_factor_per_feature_to_the_first_layer_only(d_hidden):
    module, plain = made(d_hidden=d_hidden, input_scale=True), made(d_hidden=d_hidden)
    added = dict(module.named_parameters()).keys() - dict(plain.named_parameters()).keys()
    (name,) = added
    assert name == ("stages.0.0.scale" if d_hidden else "stages.0.scale")
    assert module.get_parameter(name).shape == (4,)
    assert [type(layer) for layer in module.modules() if isinstance(layer, nn.Linear)] == (
        [ScaledLinear] + [nn.Linear] * len(d_hidden)
    )
    assert module(X).shape == (7, 3)


@every_depth
@pytest.mark.parametrize("bias", [True, False])
def test_scaled_inputs_equal_a_plain_mlp_with_a_scaled_first_weight(d_hidden, bias):
    params = {"d_hidden": d_hidden, "bias": bias, "activation": "gelu"}
    scaled, plain = made(**params, input_scale=True), made(**params)
    assert torch.equal(scaled(X), plain(X))  # the same draws, and all factors are 1
    factors = torch.tensor([2.0, 0.0, -0.5, 1.0])
    with torch.no_grad():
        first_layer(scaled).scale.copy_(factors / RATE)
        first_layer(plain).weight.mul_(factors)
    torch.testing.assert_close(scaled(X), plain(X))
    scaled_by_hand = made(**params)(X * factors)
    torch.testing.assert_close(scaled(X), scaled_by_hand)


def test_the_factors_get_a_gradient_and_learn_with_six_times_the_rate():
    module = made(input_scale=True)
    layer = first_layer(module)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.001)
    before = [RATE * layer.scale.detach().clone(), layer.weight.detach().clone()]
    module(X).square().sum().backward()
    assert (layer.scale.grad != 0).all()
    optimizer.step()
    # The first step of Adam is the learning rate.
    steps = [RATE * layer.scale.detach() - before[0], layer.weight.detach() - before[1]]
    torch.testing.assert_close(steps[0].abs(), torch.full((4,), 6 * 0.001), rtol=1e-3, atol=0)
    assert steps[1].abs().max().item() == pytest.approx(0.001, rel=1e-3)


@pytest.mark.parametrize("n_members", [1, 2])
def test_the_estimator_trains_the_factors(iris, n_members):
    inputs, y = iris
    params = {"max_epochs": 3, "random_state": 0, "module_params": {"input_scale": True}}
    model = MixupEClassifier(n_members=n_members, **params).fit(inputs, y)
    assert all((RATE * first_layer(net.module_).scale != 1).all() for net in model.nets_)
    assert model.score(inputs, y) > 0.5
    again = MixupEClassifier(n_members=n_members, **params).fit(inputs, y)
    np.testing.assert_array_equal(again.predict_proba(inputs), model.predict_proba(inputs))


@pytest.mark.parametrize("d_hidden", [8, None, (0,), (8, -1), (True,), (2.5,), "8", [8, "8"]])
def test_wrong_widths_are_refused(d_hidden):
    message = f"Got d_hidden={d_hidden!r}, but expected a sequence of integers >= 1."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        MLP(4, 3, d_hidden=d_hidden)


def test_widths_may_be_integers_of_numpy():
    assert MLP(4, 3, d_hidden=np.array([8, 6])).stages[1][0].weight.shape == (6, 8)


def test_an_unknown_activation_is_refused():
    with pytest.raises(ValueError, match="Got activation='sine', but expected one of 'relu', "):
        MLP(4, 3, activation="sine")
