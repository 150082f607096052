"""``compile=True``: the module is compiled for training, or one warning names the reason.

torch's own compiler takes many seconds. Here a backend that returns the graph unchanged replaces
it and records what is compiled, and when.
"""

import copy
import io
import pickle
import warnings

import joblib
import numpy as np
import pytest
import torch
from paper import paper_classifier, paper_regressor
from sklearn.base import clone
from torch import nn

from mixupe_sklearn._runtime import compile as runtime_compile
from mixupe_sklearn._runtime.compile import compile_module
from mixupe_sklearn._runtime.torch_state import is_compiled
from mixupe_sklearn.modules import MLP

NORMED = {"batch_norm": True, "dropout": 0.5, "d_hidden": (16,)}


@pytest.fixture
def graphs(monkeypatch):
    """The compiled graphs, from a backend that changes nothing."""
    taken = []

    def backend(graph, inputs):
        taken.append(graph)
        return graph.forward

    monkeypatch.setattr(runtime_compile, "BACKEND", backend)
    yield taken
    torch._dynamo.reset()


@pytest.fixture
def broken(monkeypatch):
    """A backend that fails."""

    def backend(graph, inputs):
        raise OSError("no room left\nand many more lines")

    monkeypatch.setattr(runtime_compile, "BACKEND", backend)
    yield
    torch._dynamo.reset()


class Own(MLP):
    """A user module, which trains by autograd, compiled or not, so that all bits agree."""


def fit(data, **params):
    params = {"max_epochs": 2, "random_state": 0, "module": Own, **params}
    return paper_classifier(**params).fit(*data)


def weights(estimator):
    return estimator.net_.module_.state_dict()


def assert_equal_weights(first, second):
    first, second = weights(first), weights(second)
    assert list(first) == list(second)
    assert all(torch.equal(first[name], second[name]) for name in first)


def sequential(n_features, n_outputs):
    # With a layer that the engine does not know, so that the plain fit runs by autograd, too.
    return nn.Sequential(nn.Linear(n_features, 8), nn.LayerNorm(8), nn.Linear(8, n_outputs))


@pytest.mark.parametrize(
    ("params", "n_parts"),
    [
        ({}, 1),
        ({"mix_at": "hidden"}, 3),
        ({"module": sequential}, 1),
        ({"module_params": NORMED}, 1),
    ],
    ids=["module", "stages", "module-of-torch", "batch-norm-and-dropout"],
)
def test_training_runs_the_compiled_module_with_equal_results(
    small_digits, graphs, params, n_parts
):
    plain = fit(small_digits, **params)
    assert not graphs
    assert_equal_weights(fit(small_digits, compile=True, **params), plain)
    n_graphs = len(graphs)
    assert n_graphs >= n_parts
    assert_equal_weights(fit(small_digits, compile=True, **params), plain)
    assert len(graphs) == n_graphs, "an equal network is not compiled again"


def test_a_smaller_last_batch_does_not_recompile(small_digits, graphs):
    compiled = fit(small_digits, batch_size=70, compile=True)
    assert len(graphs) == 1
    assert_equal_weights(compiled, fit(small_digits, batch_size=70))


def test_the_built_in_network_is_compiled(small_digits, graphs):
    X, _ = small_digits
    compiled = fit(small_digits, module="mlp", compile=True).predict_proba(X)
    assert len(graphs) == 1
    assert np.allclose(compiled, fit(small_digits, module="mlp").predict_proba(X), atol=1e-4)


def test_gradients_through_torchs_own_graphs_are_equal_to_rounding(small_digits, monkeypatch):
    monkeypatch.setattr(runtime_compile, "BACKEND", "aot_eager")
    X, y = small_digits
    params = {"module": sequential, "max_epochs": 2, "random_state": 0}
    compiled = paper_regressor(compile=True, **params).fit(X, y)
    torch._dynamo.reset()
    assert np.allclose(compiled.predict(X), paper_regressor(**params).fit(X, y).predict(X))


def test_a_validation_set_does_not_recompile(small_digits, graphs):
    params = {"early_stopping": True, "module_params": NORMED}
    compiled = fit(small_digits, compile=True, **params)
    assert graphs
    plain = fit(small_digits, **params)
    assert_equal_weights(compiled, plain)
    assert [row["valid_loss"] for row in compiled.history_] == [
        row["valid_loss"] for row in plain.history_
    ]


def test_nothing_compiled_remains_after_training(small_digits, graphs):
    X, _ = small_digits
    estimator = fit(small_digits, compile=True)
    n_graphs = len(graphs)
    assert not is_compiled(estimator.net_.module_)
    expected = estimator.predict_proba(X)
    assert len(graphs) == n_graphs
    file = io.BytesIO()
    joblib.dump(estimator, file)
    file.seek(0)
    loaded = pickle.loads(pickle.dumps(estimator))
    for copied in (loaded, copy.deepcopy(estimator), joblib.load(file)):
        assert np.array_equal(copied.predict_proba(X), expected)
    assert clone(estimator).compile


def test_continued_training_compiles_again(small_digits, graphs):
    plain = fit(small_digits).partial_fit(*small_digits)
    estimator = pickle.loads(pickle.dumps(fit(small_digits, compile=True)))
    torch._dynamo.reset()
    graphs.clear()
    estimator.partial_fit(*small_digits)
    assert len(graphs) == 1
    assert_equal_weights(estimator, plain)


def test_a_warm_start_can_switch_it_on_and_off(small_digits, graphs):
    estimator = fit(small_digits, warm_start=True)
    assert not graphs
    estimator.set_params(compile=True).fit(*small_digits)
    assert len(graphs) == 1
    torch._dynamo.reset()
    estimator.set_params(compile=False).fit(*small_digits)
    assert len(graphs) == 1
    plain = fit(small_digits, warm_start=True)
    assert_equal_weights(estimator, plain.fit(*small_digits).fit(*small_digits))


def test_a_failure_gives_one_warning_and_changes_nothing(small_digits, broken):
    plain = fit(small_digits, module_params=NORMED).partial_fit(*small_digits)
    with warnings.catch_warnings(record=True, action="always") as caught:
        estimator = fit(small_digits, module_params=NORMED, compile=True)
        estimator.partial_fit(*small_digits)  # neither a second attempt nor a second warning
    assert [str(warning.message) for warning in caught] == [
        "Got compile=True, but torch.compile failed (OSError: no room left); the module runs "
        "uncompiled."
    ]
    assert caught[0].filename == __file__
    assert_equal_weights(estimator, plain)


def test_the_warning_names_a_missing_compiler(small_digits):
    from torch._inductor import config

    try:
        with (
            config.patch({"cpp.cxx": ("no-such-compiler",)}),
            pytest.warns(UserWarning, match=r"torch\.compile failed \(.*compiler") as caught,
        ):
            estimator = fit(small_digits, compile=True)
    finally:
        torch._dynamo.reset()
    assert len(caught) == 1
    assert_equal_weights(estimator, fit(small_digits))


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"penalty": "directional"}, "penalty='directional'"),
        ({"penalty_order": 2}, "penalty_order=2"),
    ],
)
def test_second_derivatives_prevent_compilation(small_digits, graphs, params, named):
    with pytest.warns(UserWarning, match=named) as caught:
        estimator = fit(small_digits, compile=True, **params)
    assert len(caught) == 1
    assert not graphs
    assert_equal_weights(estimator, fit(small_digits, **params))


@pytest.mark.parametrize("fails", [False, True], ids=["works", "fails"])
def test_the_trial_restores_the_module(graphs, fails):
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5)).eval()
    before, random = copy.deepcopy(module.state_dict()), torch.get_rng_state()

    def try_out():
        module.train()(torch.randn(8, 4)).sum().backward()
        assert int(module[1].num_batches_tracked) == 1
        if fails:
            raise RuntimeError

    with warnings.catch_warnings(record=True, action="always") as caught:
        compile_module(module, [module], try_out)
    assert len(caught) == fails
    assert is_compiled(module) != fails
    assert all(torch.equal(module.state_dict()[name], before[name]) for name in before)
    assert all(parameter.grad is None for parameter in module.parameters())
    assert not any(part.training for part in module.modules())
    assert torch.equal(torch.get_rng_state(), random)


def test_a_search_over_widths_compiles_every_network(graphs):
    for width in range(2, 14):  # torch by itself would stop at eight, without an error
        module = nn.Linear(width, 1)
        rows = torch.ones(2, width)
        compile_module(module, [module], lambda module=module, rows=rows: module(rows))
    assert len(graphs) == 12
