"""Learned embeddings of numbers and levels, and mixing before and after them."""

import pathlib
import pickle
import re
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from paper import paper_classifier, paper_pipeline
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_iris
from torch import nn

from mixupe_sklearn import Draw, MixupELoss
from mixupe_sklearn.modules import MLP, EmbeddedMLP, quantile_bins
from mixupe_sklearn.preprocessing import make_preprocessor

ROOT = pathlib.Path(__file__).parents[2]
KINDS = ["periodic", "piecewise-linear", None]


def one_hot(levels, n_levels):
    return nn.functional.one_hot(levels, n_levels).to(torch.get_default_dtype())


# Levels.


@pytest.fixture
def many_levels(double):
    """A module for two numbers and two columns of categories, of 50 and 20 levels, and rows of it."""
    module = EmbeddedMLP(72, 3, n_numbers=2, embedding=None, d_levels=8)
    first, second = torch.randint(50, (30,)), torch.randint(20, (30,))
    X = torch.cat([torch.randn(30, 2), one_hot(first, 50), one_hot(second, 20)], dim=1)
    return module, X, (first, second)


def test_the_layer_of_levels_is_an_embedding_table(many_levels):
    module, X, (first, second) = many_levels
    vectors = module.stages[0].levels.weight.T
    expected = torch.cat([X[:, :2], vectors[first] + vectors[50 + second]], dim=1)
    torch.testing.assert_close(module.stages[0](X), expected)


def test_mixing_one_hot_columns_is_mixing_embeddings(many_levels):
    module, X, _ = many_levels
    partner, lam = torch.randperm(30), 0.3
    embed = module.stages[0]
    mixed_first = embed(lam * X + (1 - lam) * X[partner])
    torch.testing.assert_close(mixed_first, lam * embed(X) + (1 - lam) * embed(X)[partner])
    embed.levels.bias = nn.Parameter(torch.ones(8))  # a bias alone would do no harm
    torch.testing.assert_close(
        embed(lam * X + (1 - lam) * X[partner]), lam * embed(X) + (1 - lam) * embed(X)[partner]
    )
    rounded = embed((lam * X + (1 - lam) * X[partner]).round())  # a level that is not linear would
    assert not torch.allclose(rounded, lam * embed(X) + (1 - lam) * embed(X)[partner])


def test_the_loss_is_the_same_for_mixing_before_or_after_the_embedding(many_levels):
    module, X, _ = many_levels
    y, partner = torch.randint(3, (30,)), np.random.default_rng(0).permutation(30)
    losses = []
    for mix_at, stage in (("input", 0), ("hidden", 1)):
        criterion = MixupELoss(alpha=1.0, eta=0.5, mix_at=mix_at, random_state=0)
        draw = Draw(lam=0.3, partner=torch.as_tensor(partner), stage=stage)
        module.zero_grad()
        parts = criterion(module, X, y, draw=draw)
        parts.loss.backward()
        losses.append((parts.loss.detach(), module.stages[0].levels.weight.grad.clone()))
    torch.testing.assert_close(*losses)


def test_centring_shifts_all_rows_equally(many_levels):
    module, X, _ = many_levels
    shift = module.stages[0](X) - module.stages[0](X - X.mean(dim=0))
    torch.testing.assert_close(shift, shift[:1].expand_as(shift))


def test_few_levels_stay_one_hot_and_many_get_vectors_of_fixed_size():
    few = EmbeddedMLP(10, 3, n_numbers=2, embedding=None, d_levels=8)
    assert few.stages[0].levels is None
    X = torch.randn(4, 10)
    assert torch.equal(few.stages[0](X), X)
    sizes = []
    for n_levels in (100, 10_000):
        levels = EmbeddedMLP(n_levels, 3, n_numbers=0, d_levels=8).stages[0].levels
        sizes.append(levels.weight.detach().std())
        assert levels.bias is None
    torch.testing.assert_close(*sizes, rtol=0.1, atol=0)
    assert EmbeddedMLP(10_000, 3, n_numbers=0, d_levels=None).stages[0].levels is None


# Numbers.


@pytest.mark.parametrize("embedding", KINDS)
def test_each_number_becomes_its_own_vector(embedding):
    module = EmbeddedMLP(6, 3, n_numbers=4, embedding=embedding, d_embedding=5)
    X = torch.randn(10, 6)
    embedded = module.stages[0](X)
    width = 1 if embedding is None else 5
    assert embedded.shape == (10, 4 * width + 2)
    changed = X.clone()
    changed[:, 1] += 1
    is_same = (module.stages[0](changed) == embedded).all(dim=0)
    assert not is_same[width : 2 * width].all()
    assert is_same[:width].all()
    assert is_same[2 * width :].all()


def test_without_embeddings_it_is_the_plain_mlp():
    torch.manual_seed(1)
    plain = MLP(6, 3, d_hidden=(7,), activation="tanh")
    torch.manual_seed(1)
    module = EmbeddedMLP(6, 3, embedding=None, d_hidden=(7,), activation="tanh")
    X = torch.randn(10, 6)
    assert torch.equal(module(X), plain(X))


def test_bins_are_quantiles_with_at_least_three_edges():
    X = np.column_stack([np.arange(101), np.arange(101) % 2, np.full(101, 4.0)])
    first, second, third = quantile_bins(X, n_bins=4)
    assert first == (-50, -25, 0, 25, 50)
    np.testing.assert_allclose(second, np.array([0, 0.5, 1]) - X[:, 1].mean())
    assert third == (-1, 0, 1)
    module = EmbeddedMLP(
        3, 2, embedding="piecewise-linear", bins=(first, second, third), d_embedding=4
    )
    assert torch.isfinite(module(torch.as_tensor(X, dtype=torch.float32))).all()


def test_piecewise_linear_embeddings_bend_at_their_edges_only():
    module = EmbeddedMLP(1, 2, embedding="piecewise-linear", bins=((-1.0, 0.0, 2.0),))
    nn.init.normal_(module.stages[0].numbers.linear.weight)  # at first there are no bends
    X = torch.linspace(-3, 4, 71)[:, None]  # steps of a tenth
    bends = module.stages[0](X).diff(n=2, dim=0).abs().amax(dim=1)
    assert (X[1:-1, 0][bends > 1e-4] - torch.tensor([0.0])).abs().max() < 1e-5


# With the estimator.


@pytest.mark.parametrize("embedding", KINDS)
@pytest.mark.parametrize("mix_at", ["input", "hidden"])
def test_the_estimator_trains_it_and_copies_predict_the_same(iris, embedding, mix_at):
    X, y = iris
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    classifier = paper_classifier(
        module=EmbeddedMLP,
        module_params={"embedding": embedding, "d_embedding": 6},
        mix_at=mix_at,
        lr=0.01,
        max_epochs=10,
        batch_size=30,
        random_state=0,
    ).fit(X, y)
    assert classifier.score(X, y) > 0.9
    expected = classifier.predict_proba(X)
    for copy in (pickle.loads(pickle.dumps(classifier)), clone(classifier).fit(X, y)):
        assert np.array_equal(copy.predict_proba(X), expected)


def test_a_clone_keeps_the_bins_of_the_training_rows(iris):
    X, y = iris
    params = {"embedding": "piecewise-linear", "bins": quantile_bins(X, n_bins=5)}
    classifier = paper_classifier(
        module=EmbeddedMLP, module_params=params, max_epochs=2, warm_start=True, random_state=0
    )
    fitted = clone(classifier).fit(X, y)
    n_epochs = fitted.n_iter_
    assert fitted.fit(X, y).n_iter_ == 2 * n_epochs  # it continues: its module is the same


def test_the_directional_penalty_works_with_embeddings(iris):
    X, y = iris
    classifier = paper_classifier(
        module=EmbeddedMLP, penalty="directional", max_epochs=2, random_state=0
    ).fit(X, y)
    assert np.isfinite(classifier.loss_curve_).all()
    assert classifier.history_[0]["train_penalty"] > 0


def test_a_table_with_a_column_of_many_levels_is_learned_by_its_levels():
    """Only the levels predict the class."""
    rng = np.random.default_rng(0)
    level = rng.integers(200, size=2000)
    frame = pd.DataFrame({"size": rng.normal(size=2000), "shop": [f"no. {k}" for k in level]})
    y = rng.integers(2, size=200)[level]
    assert sparse.issparse(make_preprocessor().fit_transform(frame))
    pipeline = paper_pipeline(
        module=EmbeddedMLP,
        module_params={"n_numbers": 1, "embedding": None, "d_levels": 4},
        max_epochs=6,
        lr=0.03,
        random_state=0,
    )
    pipeline.fit(frame[:1500], y[:1500])
    assert pipeline.score(frame[1500:], y[1500:]) > 0.95


def test_numbers_come_first_and_the_preprocessor_counts_them():
    X, _ = load_iris(return_X_y=True)
    frame = pd.DataFrame(X[:, :3]).rename(columns=str).assign(wide=X[:, 3] > 1)
    preprocessor = make_preprocessor().fit(frame)
    assert preprocessor.output_indices_["categories"].start == 3
    assert preprocessor.transform(frame)[:, 3:].tolist() == [[1 - w, w] for w in frame["wide"]]


# Invalid input.


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"embedding": "cubic"}, "Got embedding='cubic', but expected one of 'periodic', "),
        ({"n_numbers": 7}, "Got n_numbers=7, but expected an integer from 0 to 6"),
        ({"n_numbers": True}, "Got n_numbers=True, but expected an integer from 0 to 6"),
        ({"d_levels": 0}, "Got d_levels=0, but expected an integer >= 1 or None."),
        (
            {"embedding": "piecewise-linear", "bins": 1},
            "Got bins=1, but expected an integer >= 2, or edges.",
        ),
        (
            {"embedding": "piecewise-linear", "bins": ((0.0, 1.0, 2.0),)},
            "Got bins of 1 columns, but expected 6: make them with quantile_bins",
        ),
        ({"d_hidden": 8}, "Got d_hidden=8, but expected a sequence of integers >= 1"),
    ],
    ids=lambda value: None if isinstance(value, str) else "-".join(value),
)
def test_an_invalid_parameter_is_refused(params, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        EmbeddedMLP(6, 3, **params)


def test_the_error_for_a_missing_library_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "rtdl_num_embeddings", None)
    message = "EmbeddedMLP needs rtdl_num_embeddings: pip install mixupe-sklearn[embeddings]."
    with pytest.raises(ImportError, match=re.escape(message)):
        EmbeddedMLP(6, 3)
    EmbeddedMLP(6, 3, embedding=None)  # needs none
