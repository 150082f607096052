"""Inputs are divided by their scale: its values, and that nobody scales twice."""

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

from mixupe_sklearn import MixupEClassifier, make_mixupe_pipeline, preset
from mixupe_sklearn._data.rows import (
    CentredRows,
    Rows,
    Standardisation,
    centre,
    centred_block,
    mean_of_rows,
    scale_of_rows,
)
from mixupe_sklearn.serving import to_torch

QUICK = preset("paper") | {"max_epochs": 3, "batch_size": 20, "random_state": 0}
QUICK |= {"scale_inputs": True}


@pytest.fixture(name="X")
def columns():
    """A normal, a constant and a rare binary feature, and one with many zeros."""
    rng = np.random.default_rng(0)
    zeros = rng.normal(size=500) * (rng.random(500) < 0.2)
    return np.column_stack(
        [rng.normal(3, 10, 500), np.full(500, 0.1), rng.random(500) < 0.1, zeros]
    )


def scale(X, weight=None, index=None, **how):
    rows = Rows(X, np.zeros(X.shape[0]), weight, index)
    return scale_of_rows(rows, mean_of_rows(rows), **how)


def test_the_scale_is_the_deviation_or_the_range_of_two_values_or_one(X):
    deviation = X.std(axis=0)
    np.testing.assert_allclose(scale(X), [deviation[0], 1, 1, deviation[3]])
    np.testing.assert_allclose(scale(X, size=64), scale(X))
    np.testing.assert_allclose(scale(X * [1, 1, 7, 1])[2], 7)


def test_the_scale_of_sparse_weighted_and_numbered_samples_is_that_of_dense_ones(X):
    weight = np.random.default_rng(1).random(500)
    weight /= weight.mean()
    for own in (None, weight):
        np.testing.assert_allclose(scale(sparse.csr_array(X), own), scale(X, own))
    index = np.arange(0, 500, 3)
    np.testing.assert_allclose(scale(X, index=index), scale(X[index]))
    repeated = np.arange(500) % 3 + 1
    weighted = scale(X, repeated / repeated.mean())
    np.testing.assert_allclose(weighted, scale(np.repeat(X, repeated, axis=0)))


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_very_small_and_very_large_numbers_have_a_scale(size):
    found = scale(size * np.arange(5.0)[:, None])
    assert np.isfinite(found).all()
    assert found[0] == pytest.approx(4 * size)  # squares leave the range of floats


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_all_ways_to_standardise_are_equal_to_the_bit(X, kind):
    how = Standardisation(X.mean(axis=0), scale(X))
    rows = CentredRows(kind(X), how)
    whole = rows[:]
    assert torch.equal(rows[np.array([4, 2])], whole[[4, 2]])
    assert torch.equal(centred_block(kind(X[:16]), how, torch.float32), whole[:16])
    assert torch.equal(centre(X, how), whole)


def test_scaled_inputs_train_as_those_of_scikit_learns_scaler():
    X, y = load_wine(return_X_y=True)
    by_hand = StandardScaler().fit_transform(X)
    mine = MixupEClassifier(**QUICK).fit(X, y)
    other = MixupEClassifier(**QUICK | {"scale_inputs": False}).fit(by_hand, y)
    np.testing.assert_allclose(mine.predict_proba(X), other.predict_proba(by_hand), atol=1e-5)
    np.testing.assert_allclose(mine.X_scale_, X.std(axis=0))
    assert other.X_scale_ is None
    rows = to_torch(mine)(torch.as_tensor(X)).numpy()
    np.testing.assert_allclose(rows, mine.predict_proba(X), atol=1e-6)


def test_the_pipeline_does_not_scale_twice():
    X, y = load_wine(return_X_y=True)
    params = {name: value for name, value in QUICK.items() if name != "scale_inputs"}
    assert make_mixupe_pipeline(**params).fit(X, y)["classifier"].X_scale_ is None
    other = make_mixupe_pipeline(preprocessor=StandardScaler(), random_state=0)
    assert other["classifier"].scale_inputs is True
