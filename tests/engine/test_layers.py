"""Every layer of the engine: its output and gradients equal those of torch, in any company."""

import pkgutil

import numpy as np
import pytest
import torch
from torch import nn

from mixupe_sklearn import MixupEClassifier
from mixupe_sklearn._engine import layers
from mixupe_sklearn._engine.layers import LAYERS, Elementwise
from mixupe_sklearn._engine.network import Network, layers_of, n_outputs_of, predict_stacked
from mixupe_sklearn.modules.mlp import ScaledLinear

N_MEMBERS, N_ROWS, N_FEATURES = 3, 5, 4

# A case for each file, by its name.
CASES = {
    "dropout": [lambda: nn.Dropout(0.3), lambda: nn.Dropout(0.0), lambda: nn.Dropout(1.0)],
    "gelu": [nn.GELU],
    "linear": [
        lambda: nn.Linear(N_FEATURES, 3),
        lambda: nn.Linear(N_FEATURES, 3, bias=False),
        lambda: nn.Linear(N_FEATURES, 1),
        lambda: nn.Linear(N_FEATURES, 1, bias=False),
    ],
    "relu": [nn.ReLU],
    "scaled_linear": [
        lambda: ScaledLinear(N_FEATURES, 3),
        lambda: ScaledLinear(N_FEATURES, 3, bias=False),
        lambda: ScaledLinear(N_FEATURES, 1),
    ],
    "silu": [nn.SiLU],
    "tanh": [nn.Tanh],
}


def bound_layer(modules):
    """The layer of the engine for these modules, and the gradients that it writes."""
    layer = LAYERS[type(modules[0])]
    if isinstance(layer, Elementwise):
        return layer, []
    rows = zip(*(module.parameters() for module in modules), strict=True)
    weights = [torch.stack([weight.detach() for weight in row]) for row in rows]
    grads = [torch.full_like(weight, torch.nan) for weight in weights]
    layer = layer(modules[0], weights, grads)
    if hasattr(layer, "rngs"):
        layer.rngs = [np.random.default_rng(seed) for seed in range(len(modules))]
    return layer, grads


def test_every_file_has_a_layer_and_a_case():
    names = {info.name for info in pkgutil.iter_modules(layers.__path__)}
    assert names == set(CASES)
    assert set(LAYERS) == {type(make()) for made in CASES.values() for make in made}


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("name", CASES)
def test_output_and_gradients_equal_autograd(name):
    for make in CASES[name]:
        modules = [make() for _ in range(N_MEMBERS)]
        for weight in (weight for module in modules for weight in module.parameters()):
            nn.init.normal_(weight)
        layer, grads = bound_layer(modules)
        state = torch.randn(N_MEMBERS, N_ROWS, N_FEATURES)
        expected = [module(own) for module, own in zip(modules, state, strict=True)]
        out = torch.full_like(torch.stack(expected), torch.nan)
        layer.forward(state, out=out)
        grad, grad_input = torch.randn_like(out), torch.full_like(state, torch.nan)
        layer.backward(
            grad.clone(), state if layer.saves == "input" else out, grad_input=grad_input
        )
        for k, module in enumerate(modules):
            own = state[k].clone().requires_grad_()
            is_random = type(module) is nn.Dropout
            expected = own * layer.factors[k] if is_random else module(own)
            found = torch.autograd.grad(expected, [own, *module.parameters()], grad[k])
            for mine, theirs in zip(
                [out[k], grad_input[k], *(value[k] for value in grads)],
                [expected, *found],
                strict=True,
            ):
                torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)
        predicted = layer.function(state)
        for module, own, mine in zip(modules, state, predicted, strict=True):
            torch.testing.assert_close(mine, module.eval()(own), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
def test_dropout_keeps_the_share_and_the_mean(p):
    layer, _ = bound_layer([nn.Dropout(p), nn.Dropout(p)])
    state = torch.ones(2, 500, 40)
    out = torch.empty_like(state)
    layer.forward(state, out=out)
    assert not torch.equal(out[0], out[1]) or p in (0.0, 1.0)
    kept = out[out != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - p) if p < 1 else 0.0))
    # Five standard deviations of the share of 20,000 draws.
    assert (out == 0).float().mean(dim=(1, 2)).sub(p).abs().max() <= 5 * (
        p * (1 - p) / 20_000
    ) ** 0.5


def test_masks_of_a_member_do_not_depend_on_the_others():
    state = torch.ones(3, 7, 5)
    together, _ = bound_layer([nn.Dropout(0.4)] * 3)
    expected = torch.empty_like(state)
    together.forward(state, out=expected)
    for k in range(3):
        alone, _ = bound_layer([nn.Dropout(0.4)])
        alone.rngs = [np.random.default_rng(k)]
        out = torch.empty(1, 7, 5)
        alone.forward(state[:1], out=out)
        assert torch.equal(out[0], expected[k])


def test_layers_that_do_not_fit_together_get_a_sentence(iris):
    class Odd(nn.Sequential):
        pass

    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(9, 3))
    sentence = (
        r"Got a Sequential whose layer 2, Linear, takes 9 features, but expected 8, as many as the "
        r"layers before it return\."
    )
    with pytest.raises(ValueError, match=sentence):
        n_outputs_of(module)
    with pytest.raises(ValueError, match=sentence):
        MixupEClassifier(module=lambda n_features, n_outputs: module, max_epochs=1).fit(*iris)
    assert n_outputs_of(Odd(nn.Linear(4, 8))) is None  # a subclass may compute anything


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)),
        nn.Sequential(nn.Linear(4, 3), nn.GELU(approximate="tanh")),
        nn.Linear(4, 3),
    ],
    ids=["unknown layer", "other form", "no container"],
)
def test_modules_that_the_engine_does_not_know(module):
    assert layers_of(module) is None
    assert predict_stacked([module], torch.ones(2, 4)) is None


def test_released_modules_keep_their_weights_and_their_storage():
    modules = [nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)) for _ in range(2)]
    weight = modules[1][0].weight
    storage = weight.data_ptr()
    network = Network(modules)
    network.weights.fill_(0.5)
    network.release()
    assert modules[1][0].weight is weight
    assert weight.data_ptr() == storage
    assert (weight == 0.5).all()
    network.weights.zero_()
    assert (weight == 0.5).all()
