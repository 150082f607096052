"""Scalers of number columns: outliers, skewed columns, missing values, and scikit-learn's contract."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse, stats
from sklearn.base import clone
from sklearn.preprocessing import SplineTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from mixupe_sklearn._preprocessing.scalers import smooth_clip
from mixupe_sklearn.preprocessing import ClippingScaler, PiecewiseLinearEncoder, QuantileScaler

SCALERS = [ClippingScaler(), QuantileScaler(), PiecewiseLinearEncoder()]
EACH = pytest.mark.parametrize("scaler", SCALERS, ids=lambda scaler: type(scaler).__name__)


@pytest.mark.filterwarnings("ignore")  # the checks provoke warnings on purpose
@parametrize_with_checks(SCALERS)
def test_scalers_keep_scikit_learns_contract(estimator, check):
    check(estimator)


# Clipping.


def test_the_clip_is_odd_monotone_and_bounded_and_leaves_small_numbers_alone():
    z = np.concatenate([[0.0], np.geomspace(1e-300, 1e300, 2001)])
    clipped = smooth_clip(z)
    assert np.array_equal(smooth_clip(-z), -clipped)
    assert (np.diff(clipped) >= 0).all()
    assert (np.diff(clipped[z < 1e6]) > 0).all()  # beyond, three is all that floats can tell
    assert clipped.max() == 3
    np.testing.assert_allclose(clipped[z < 1e-3], z[z < 1e-3], rtol=1e-6)
    np.testing.assert_allclose(smooth_clip(z, limit=5)[z < 1e100], by_the_formula(z[z < 1e100], 5))


def by_the_formula(z, limit=3):
    return z / np.sqrt(1 + (z / limit) ** 2)


def test_clipping_is_that_of_the_formula():
    X = np.random.default_rng(0).standard_cauchy((200, 3))
    low, middle, high = np.percentile(X, [25, 50, 75], axis=0)
    expected = by_the_formula((X - middle) / (high - low))
    np.testing.assert_allclose(ClippingScaler().fit_transform(X), expected, rtol=1e-12)


def test_where_the_quartiles_are_equal_half_the_range_is_the_scale():
    column = np.array([[0.0]] * 8 + [[1.0], [4.0]])
    assert ClippingScaler().fit(column).scale_.tolist() == [2.0]
    np.testing.assert_allclose(ClippingScaler().fit_transform(column).max(), by_the_formula(2.0))


def test_units_of_a_column_do_not_matter():
    X = np.random.default_rng(0).normal(size=(50, 2))
    for scaler in SCALERS:
        expected = clone(scaler).fit_transform(X)
        np.testing.assert_allclose(clone(scaler).fit_transform(1024 * X), expected, rtol=1e-9)
        np.testing.assert_allclose(
            clone(scaler).fit_transform(X + 8), expected, rtol=1e-9, atol=1e-9
        )


# Quantiles.


def test_any_distribution_becomes_normal():
    column = np.random.default_rng(0).lognormal(sigma=3, size=(3000, 1))
    normal = QuantileScaler().fit_transform(column).ravel()
    assert stats.kstest(normal, "norm").statistic < 0.01
    assert np.array_equal(np.argsort(normal), np.argsort(column.ravel()))


# Ramps.


def test_the_sum_of_ramps_times_widths_gives_the_column_back():
    X = np.random.default_rng(0).normal(size=(300, 2))
    encoder = PiecewiseLinearEncoder(n_bins=5).fit(X)
    weighted = encoder.transform(X) * (encoder.high_ - encoder.low_)
    for column in range(2):
        is_own = encoder.source_ == column
        np.testing.assert_allclose(
            weighted[:, is_own].sum(axis=1) + X[:, column].min(), X[:, column], atol=1e-12
        )


def test_ramps_span_what_scikit_learns_splines_of_degree_one_span():
    X = np.random.default_rng(0).normal(size=(101, 1))  # the quantiles are rows of it
    ramps = PiecewiseLinearEncoder(n_bins=4).fit_transform(X)
    hats = SplineTransformer(n_knots=5, degree=1, knots="quantile").fit_transform(X)
    basis = np.column_stack([np.ones(len(X)), ramps])
    coefficients = np.linalg.lstsq(basis, hats, rcond=None)[0]
    np.testing.assert_allclose(basis @ coefficients, hats, atol=1e-12)


@pytest.mark.parametrize("column", [[0] * 5 + [1] * 5, [0] * 9 + [1], [0] + [1] * 9, [0, 0, 1]])
def test_a_column_of_two_values_becomes_one_ramp_that_goes_on_level(column):
    """scikit-learn's splines give zeros below the first of two equal knots: another level."""
    X = np.array(column, dtype=float)[:, None]
    encoder = PiecewiseLinearEncoder().fit(X)
    assert np.array_equal(encoder.transform(X), X)
    assert encoder.transform([[-7.0], [0.25], [7.0]]).tolist() == [[0], [0.25], [1]]


def test_a_column_gets_as_many_ramps_as_it_has_different_quantiles():
    X = np.column_stack([np.arange(100), np.arange(100) % 3, np.arange(100) // 99, np.full(100, 7)])
    encoder = PiecewiseLinearEncoder(n_bins=8).fit(X)
    assert np.bincount(encoder.source_).tolist() == [8, 2, 1, 1]
    frame = pd.DataFrame(X, columns=["size", "kind", "flag", "unit"])
    names = encoder.fit(frame).get_feature_names_out().tolist()
    assert names[7:] == ["size_ramp7", "kind_ramp0", "kind_ramp1", "flag_ramp0", "unit_ramp0"]
    assert encoder.set_output(transform="pandas").transform(frame).columns.tolist() == names


# All of them.


@pytest.mark.parametrize(
    "scaler", [ClippingScaler(), QuantileScaler(n_quantiles=10), PiecewiseLinearEncoder()], ids=repr
)
def test_missing_values_stay_missing_and_do_not_affect_the_others(scaler):
    X = np.random.default_rng(0).normal(size=(40, 2))
    with_missing = np.vstack([X, np.full((5, 2), np.nan)])
    output = clone(scaler).fit(with_missing).transform(with_missing)
    np.testing.assert_allclose(output[:40], clone(scaler).fit_transform(X))
    assert np.isnan(output[40:]).all()
    empty = np.full((3, 1), np.nan)
    assert np.isnan(clone(scaler).fit_transform(empty)).all()


@EACH
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_outlier_leaves_the_others_apart_and_comes_out_small(scaler, dtype):
    X = np.array([[1e30], *([x] for x in range(20))], dtype=dtype)
    output = clone(scaler).fit_transform(X)
    assert output.dtype == dtype
    assert np.isfinite(output).all()
    assert np.abs(output).max() < 5.2
    assert len(np.unique(output, axis=0)) == 21
    beyond = clone(scaler).fit(X[1:]).transform(np.array([[-1e30], [1e30]], dtype=dtype))
    assert np.isfinite(beyond).all()
    assert (beyond[1] - beyond[0] > 0).all()


@pytest.mark.parametrize("scaler", [ClippingScaler(), PiecewiseLinearEncoder()], ids=repr)
@pytest.mark.parametrize("n_rows", [1, 4])
def test_a_constant_column_becomes_zero_whatever_it_holds_later(scaler, n_rows):
    scaler = clone(scaler).fit(np.full((n_rows, 1), 3.0))
    assert scaler.transform([[3.0], [-8.0], [1e30]]).tolist() == [[0], [0], [0]]


@EACH
def test_sparse_rows_and_infinity_are_refused(scaler):
    with pytest.raises(TypeError, match="Sparse data was passed for X, but dense data is required"):
        clone(scaler).fit(sparse.eye_array(3).tocsr())
    with pytest.raises(ValueError, match="infinity"):
        clone(scaler).fit([[1.0], [np.inf]])


@pytest.mark.parametrize(
    ("scaler", "sentence"),
    [
        (ClippingScaler(limit=0), "Got limit=0, but expected a number > 0."),
        (QuantileScaler(n_quantiles=1), "Got n_quantiles=1, but expected an integer >= 2."),
        (PiecewiseLinearEncoder(n_bins=0), "Got n_bins=0, but expected an integer >= 1."),
    ],
    ids=repr,
)
def test_a_wrong_parameter_is_named(scaler, sentence):
    with pytest.raises(ValueError, match=sentence):
        scaler.fit([[1.0], [2.0]])
