"""Raw tables: kinds of columns, missing values, rare and new categories, containers, memory."""

import datetime
import os
import pathlib
import pickle
import re
import resource
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.fixes import parse_version

from mixupe_sklearn import MixupEClassifier, make_mixupe_pipeline, make_preprocessor, preset
from mixupe_sklearn._preprocessing.scalers import smooth_clip
from mixupe_sklearn.preprocessing import (
    ClippingScaler,
    DateParts,
    PiecewiseLinearEncoder,
    QuantileScaler,
    TablePreprocessor,
)

ROOT = pathlib.Path(__file__).parents[2]
N_CATEGORIES = 2_000
# Older column transformers do not find columns of polars frames by name.
HAS_POLARS = parse_version(sklearn.__version__) >= parse_version("1.9")
needs_polars = pytest.mark.skipif(not HAS_POLARS, reason="polars needs scikit-learn 1.9")
# One network, and not for long: for what is not about training.
QUICK = preset("paper") | {"batch_size": 20, "max_epochs": 2, "random_state": 0}


def dense(X):
    return X.toarray() if sparse.issparse(X) else np.asarray(X, dtype=float)


def messy_iris(n_rows=150):
    """The iris table, repeated, as a practitioner would get it; types that pandas and polars share."""
    X, y = load_iris(return_X_y=True)
    rows = np.arange(n_rows)
    X, y = X[rows % 150], y[rows % 150]
    has_missing = np.random.default_rng(0).random((n_rows, 4)) < 0.1
    words = pd.Series(np.where(X[:, 2] < 3, "short", "long"))
    frame = pd.DataFrame(
        {
            "float": np.where(has_missing[:, 0], np.nan, X[:, 0]),
            "int": (10 * X[:, 1]).astype(int),
            "bool": X[:, 3] > 1,
            "string": words.astype("string").mask(has_missing[:, 1]),
            "category": pd.Series(pd.cut(X[:, 3], 3, labels=["low", "middle", "high"])),
            "object": words.str.upper().astype(object).where(~has_missing[:, 2], None),
            "date": pd.Timestamp("2020-01-01") + pd.to_timedelta(rows % 70, unit="D"),
            "span": pd.to_timedelta(pd.Series(rows % 9), unit="h").mask(has_missing[:, 3]),
            "missing": pd.Series([None] * n_rows, dtype=object),
            "nan": np.nan,
            "constant": 3,
            "serial": [f"no. {number}" for number in rows * 7 % min(N_CATEGORIES, n_rows // 3)],
        }
    )
    return frame, y


@pytest.fixture
def frame():
    return messy_iris()[0].drop(columns="serial")


# The whole way.


def test_a_messy_table_goes_through_cross_validation():
    frame, y = messy_iris()
    pipeline = make_mixupe_pipeline(**QUICK | {"max_epochs": 40})
    assert cross_val_score(pipeline, frame, y, cv=3).mean() > 0.8
    new = frame.assign(string="new", category="new", object="new", serial="new", missing="new")
    assert pipeline.fit(frame, y).predict(new.assign(bool=None)).shape == y.shape


def print_memory_of_cross_validation():
    small = {"max_epochs": 1, "batch_size": 500, "module_params": {"d_hidden": (8,)}}
    preprocessor = make_preprocessor(max_categories=None)
    pipeline = make_mixupe_pipeline(preprocessor=preprocessor, **preset("paper") | small)
    cross_val_score(pipeline, *messy_iris(2_000), cv=2)  # loads libraries, once and for all
    frame, y = messy_iris(60_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cross_val_score(pipeline, frame, y, cv=2)
    print(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))


@pytest.mark.skipif(sys.platform != "linux", reason="the unit of ru_maxrss differs")
def test_a_column_of_many_categories_takes_less_than_a_quarter_of_its_dense_matrix():
    """The bound is 240 MB, for 60,000 rows whose 2,000 one-hot columns are 960 MB when dense.

    Measured: 95 to 149 MB, and 1.2 GB where ``sparse_threshold=0`` makes the output dense.
    """
    code = "import test_preprocessing; test_preprocessing.print_memory_of_cross_validation()"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    output = subprocess.check_output(
        command, cwd=ROOT / "tests/preprocessing", env=environment, text=True
    )
    assert int(output) < 60_000 * N_CATEGORIES * 8 / 4


def test_sparse_and_dense_output_give_the_same_predictions():
    frame, y = messy_iris()
    sparse_output = make_preprocessor(sparse_threshold=1.0, max_categories=None)
    dense_output = make_preprocessor(sparse_threshold=0.0, max_categories=None)
    X_sparse, X_dense = sparse_output.fit_transform(frame), dense_output.fit_transform(frame)
    assert sparse.issparse(X_sparse)
    assert np.array_equal(X_sparse.toarray(), X_dense)
    first, second = (
        make_mixupe_pipeline(preprocessor=p, **QUICK | {"max_epochs": 25}).fit(frame, y)
        for p in (sparse_output, dense_output)
    )
    np.testing.assert_allclose(first.predict_proba(frame), second.predict_proba(frame), atol=1e-5)


def test_the_pipeline_as_it_comes_trains_members_and_stops_early():
    frame, y = messy_iris()
    pipeline = make_mixupe_pipeline(n_iter_no_change=2, random_state=0).fit(frame, y)
    classifier = pipeline["classifier"]
    assert classifier.n_members == 8
    assert any("valid_loss" in epoch for epoch in classifier.history_)
    assert pipeline.score(frame, y) > 0.95


def test_a_search_reaches_the_encoder():
    frame, y = messy_iris()
    pipeline = make_mixupe_pipeline(preprocessor=make_preprocessor(max_categories=None), **QUICK)
    name = "preprocessor__min_frequency"
    search = GridSearchCV(pipeline, {name: [None, 20]}, cv=2, error_score="raise").fit(frame, y)
    n_columns = [
        clone(pipeline).set_params(**{name: value}).fit(frame, y)["classifier"].n_features_in_
        for value in search.cv_results_[f"param_{name}"]
    ]
    assert n_columns[0] > n_columns[1] + 40


def test_only_the_training_rows_are_learned_from():
    train = pd.DataFrame({"size": [1.0, 3.0], "city": ["Oslo", "Bonn"]})
    test = pd.DataFrame({"size": [None, 100.0], "city": ["Rome", None]})
    # Mean 2, deviation 1; the training samples have no level for a missing city.
    paper = make_preprocessor(scaling="standard", n_bins=0).fit(train)
    assert paper.transform(test).tolist() == [[0, 0, 0], [98, 0, 0]]
    # Median 2, quartiles 1.5 and 2.5, so 1 and 3 are one range away; clipped, and scaled by that.
    # The ramp from 1 to 3 ends there, and has the mean 1/2.
    expected = [[0, 0, 0, 0], [smooth_clip(98.0) / smooth_clip(1.0), 0.5, 0, 0]]
    np.testing.assert_allclose(make_preprocessor().fit(train).transform(test), expected)


# Numbers by hand.


def test_missing_values_are_imputed_and_numbers_scaled_as_by_hand():
    frame = pd.DataFrame({"size": [1.0, None, 4.0], "city": ["Bonn", "Oslo", None]})
    # Mean 2.5, filled: 1, 2.5, 4; its variance is 1.5. A missing city is the last level.
    expected = [[-1.5, 1, 0, 0], [0, 0, 1, 0], [1.5, 0, 0, 1]]
    preprocessor = make_preprocessor(scaling="standard", n_bins=0)
    output = preprocessor.fit_transform(frame) * [np.sqrt(1.5), 1, 1, 1]
    np.testing.assert_allclose(output, expected, atol=1e-15)


def test_by_default_numbers_are_clipped_and_scaled_and_missing_values_imputed_last_as_by_hand():
    sizes = np.array([0.0, 1.0, 2.0, 3.0, 1e30])
    frame = pd.DataFrame({"size": [*sizes, None]})
    clipped = smooth_clip((sizes - 2) / 2)  # median 2, quartiles 1 and 3
    expected = [*(clipped - clipped.mean()) / clipped.std(), 0]
    output = make_preprocessor().fit_transform(frame)
    np.testing.assert_allclose(output[:, 0], expected, atol=1e-12)
    same = make_preprocessor(scaling="robust").fit_transform(frame)
    assert np.array_equal(output, same)


def test_the_ramps_beside_a_number_are_those_of_the_encoder_centred():
    sizes = np.random.default_rng(0).lognormal(size=(100, 1))
    output = make_preprocessor(n_bins=4).fit_transform(sizes)
    ramps = PiecewiseLinearEncoder(n_bins=4).fit_transform(sizes)
    np.testing.assert_allclose(output[:, 1:], ramps - ramps.mean(axis=0), atol=1e-12)
    assert np.array_equal(make_preprocessor(n_bins=0).fit_transform(sizes), output[:, :1])


def test_many_numeric_columns_have_fewer_ramps_each():
    X = np.random.default_rng(0).normal(size=(2_000, 200))
    assert make_preprocessor().fit_transform(X[:, :64]).shape[1] == 64 * 9
    assert make_preprocessor().fit_transform(X).shape[1] == 200 * 3  # 512 // 200 is 2
    wide = np.concatenate([X, X + 1], axis=1)
    assert make_preprocessor().fit_transform(wide).shape[1] == 400


# Missing values, dates, many levels and ids as features.


def test_a_missing_value_that_tells_the_class_is_learned():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    city = np.where(y == 1, None, rng.choice(["Oslo", "Bonn"], 300))
    size = np.where(y == 1, np.nan, rng.normal(size=300))
    for frame in (pd.DataFrame({"city": city}), pd.DataFrame({"size": size})):
        pipeline = make_mixupe_pipeline(**QUICK | {"max_epochs": 20}).fit(frame[:200], y[:200])
        assert pipeline.score(frame[200:], y[200:]) == 1.0


def test_missing_numbers_have_an_indicator_where_there_are_ten():
    for n_missing, is_there in ((9, False), (10, True)):
        sizes = np.where(np.arange(40) < n_missing, np.nan, np.arange(40.0))
        preprocessor = make_preprocessor(n_bins=0).fit(pd.DataFrame({"size": sizes}))
        names = preprocessor.get_feature_names_out().tolist()
        assert ("numbers_missing__missingindicator_size" in names) is is_there
    output = preprocessor.transform(pd.DataFrame({"size": sizes}))
    assert (
        output[:, names.index("numbers_missing__missingindicator_size")].tolist()
        == [1.0] * 10 + [0.0] * 30
    )


def test_a_date_has_year_month_and_weekday_as_categories():
    days = pd.Series(pd.to_datetime(["2023-12-31", "2024-02-29", None, "2024-03-01"]))
    preprocessor = make_preprocessor().fit(pd.DataFrame({"sold": days}))
    output = preprocessor.set_output(transform="pandas").transform(pd.DataFrame({"sold": days}))
    parts = output.filter(like="dates__").rename(columns=lambda name: name.removeprefix("dates__"))
    assert parts["sold_year_2024.0"].tolist() == [0, 1, 0, 1]
    assert parts["sold_month_12.0"].tolist() == [1, 0, 0, 0]
    assert parts["sold_weekday_3.0"].tolist() == [0, 1, 0, 0]  # a Thursday
    assert parts["sold_weekday_nan"].tolist() == [0, 0, 1, 0]
    later = preprocessor.transform(pd.DataFrame({"sold": pd.to_datetime(["2030-03-01"])}))
    assert later.filter(like="_year_").to_numpy().sum() == 0  # a new year has no column
    spans = pd.DataFrame({"span": pd.to_timedelta([1, 2, 3], unit="D")})
    assert make_preprocessor(n_bins=0).fit_transform(spans).shape == (3, 1)


def test_date_parts_are_those_of_numpy_on_every_day_of_a_thousand_years():
    days = np.arange(np.datetime64("1500-01-01"), np.datetime64("2500-01-01"))
    seconds = days.astype("datetime64[s]").astype(float)[:, None] + 86_399
    year = days.astype("datetime64[Y]").astype(int) + 1970
    month = days.astype("datetime64[M]").astype(int) % 12 + 1
    weekday = (days - np.datetime64("2024-01-01")).astype(int) % 7  # which was a Monday
    expected = np.column_stack([year, month, weekday])
    assert np.array_equal(DateParts().fit_transform(seconds), expected)


def test_a_column_of_many_levels_has_few_columns_and_the_mean_target_of_each_level():
    rng = np.random.default_rng(0)
    code = rng.integers(0, 300, 6_000)
    y = rng.random(300)[code] > rng.random(6_000)
    frame = pd.DataFrame({"city": code.astype(str)})
    preprocessor = make_preprocessor(max_categories=20)
    features = dense(preprocessor.fit_transform(frame, y))
    assert features.shape[1] == 21
    assert preprocessor.get_feature_names_out()[-1] == "targets__city"
    # Without the target there is nothing to encode by.
    assert make_preprocessor(max_categories=20).fit_transform(frame).shape[1] == 20
    # Its own target has no part in the encoding of a sample: noise stays noise.
    noise = rng.integers(0, 2, 6_000)
    own = dense(make_preprocessor(max_categories=20).fit_transform(frame, noise))[:, -1]
    assert abs(np.corrcoef(own, noise)[0, 1]) < 0.05
    pipeline = make_mixupe_pipeline(preprocessor=preprocessor, **QUICK | {"batch_size": 100})
    score = pipeline.fit(frame[:4_000], y[:4_000]).score(frame[4_000:], y[4_000:])
    best = np.maximum(rates := pd.Series(y).groupby(code).mean(), 1 - rates)[code[4_000:]].mean()
    assert score > best - 0.06


def test_columns_that_look_like_ids_get_a_warning_and_those_of_text_are_left_out():
    frame = pd.DataFrame({"id": range(60), "name": [f"no. {i}" for i in range(60)]})
    with pytest.warns(UserWarning, match="looks like") as found:
        preprocessor = make_preprocessor(n_bins=0).fit(frame.assign(size=frame["id"] ** 2))
    assert [str(one.message) for one in found] == [
        "Got column 'id' with 60 different values in 60 samples: it looks like a serial number; "
        "drop it, unless the order of samples matters.",
        "Got column 'name' with 60 different values in 60 samples: it looks like an identifier or "
        "free text and is left out; derive features from it.",
    ]
    assert preprocessor.get_feature_names_out().tolist() == ["numbers__id", "numbers__size"]
    with pytest.warns(UserWarning, match="Got column number 1 with 60"):
        make_preprocessor().fit(frame.to_numpy() + np.array([[0.5, ""]], dtype=object))
    make_preprocessor().fit(frame[:40])  # too few samples to tell


def test_numbers_and_times_have_mean_zero_and_variance_one(frame):
    numbers = frame[["float", "int", "date", "span"]]
    preprocessor = make_preprocessor(scaling="standard").fit(numbers)
    output = dense(preprocessor.transform(numbers))[:, :4]
    np.testing.assert_allclose(output.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(output.var(axis=0), 1)
    # By default missing values are imputed last: the others have variance one, and all have mean zero.
    output = dense(make_preprocessor().fit_transform(numbers))[:, :4]
    np.testing.assert_allclose(output.mean(axis=0), 0, atol=1e-12)
    output = np.where(numbers.isna(), np.nan, output)
    np.testing.assert_allclose(np.nanvar(output, axis=0), 1)


def test_rare_categories_share_a_column_and_new_ones_join_them():
    frame = pd.DataFrame({"city": ["Oslo"] * 3 + ["Bonn"] * 2 + ["Kyiv", "Rome"]})
    new = pd.DataFrame({"city": ["Lima", "Kyiv", "Oslo"]})
    for params in ({"min_frequency": 2}, {"max_categories": 3}, {"min_frequency": 0.2}):
        preprocessor = make_preprocessor(**params).fit(frame)
        names = [
            name.removeprefix("categories__city_") for name in preprocessor.get_feature_names_out()
        ]
        assert names == ["Bonn", "Oslo", "infrequent_sklearn"]
        assert preprocessor.transform(new).tolist() == [[0, 0, 1], [0, 0, 1], [0, 1, 0]]
    ignoring = make_preprocessor(min_frequency=2, handle_unknown="ignore").fit(frame)
    assert ignoring.transform(new).tolist()[0] == [0, 0, 0]
    with pytest.raises(ValueError, match="unknown categories"):
        make_preprocessor(handle_unknown="error").fit(frame).transform(new)


# Ways to scale.

SCALINGS = ["standard", "robust", "quantile"]


def test_standard_scaling_is_scikit_learns_bit_for_bit(frame):
    numbers = frame[["float", "int"]].astype(float)
    rows = np.ascontiguousarray(numbers)  # sums depend on the order in memory
    by_hand = make_pipeline(SimpleImputer(), StandardScaler()).fit_transform(rows)
    preprocessor = make_preprocessor(scaling="standard", n_bins=0)
    output = preprocessor.fit_transform(numbers)[:, :2]  # then the indicator of missing values
    assert np.array_equal(output, by_hand)
    assert list(preprocessor.transformer_.named_transformers_["numbers"].named_steps) == [
        *("reader", "simpleimputer", "standardscaler")
    ]


@pytest.mark.parametrize("scaling", SCALINGS)
def test_every_scaling_gives_mean_zero_and_missing_values_the_mean(frame, scaling):
    numbers = frame[["float", "int", "date", "span"]]
    preprocessor = make_preprocessor(scaling=scaling).set_output(transform="pandas")
    output = preprocessor.fit_transform(numbers)
    assert output.columns.tolist() == preprocessor.get_feature_names_out().tolist()
    output = output.filter(regex="^(numbers|times)(_ramps)?__")
    assert output.shape[1] == 4 + 4 * 4
    np.testing.assert_allclose(output.mean(), 0, atol=1e-12)
    for part, column in (("numbers", "float"), ("times", "span")):
        is_own = output.columns.str.match(f"{part}(_ramps)?__{column}")
        is_missing = numbers[column].isna().to_numpy()
        np.testing.assert_allclose(output.to_numpy()[is_missing][:, is_own], 0, atol=1e-12)
        assert (np.abs(output.to_numpy()[~is_missing][:, is_own]) > 1e-6).any()


@pytest.mark.parametrize("scaling", SCALINGS[1:])
def test_an_outlier_in_the_training_rows_blurs_at_most_its_neighbour(scaling):
    frame = pd.DataFrame({"size": [1e30, None, *np.arange(20.0)]})
    output = make_preprocessor(scaling=scaling, n_bins=0).fit_transform(frame)
    assert np.isfinite(output).all()
    assert np.abs(output).max() < 6
    steps = np.abs(np.diff(output[2:-1], axis=0)).max(axis=1)
    assert steps.min() > 0.03
    blurred = make_preprocessor(scaling="standard", n_bins=0).fit_transform(frame)
    assert np.ptp(blurred[2:]) < 1e-12  # what the others are there for


@needs_polars
@pytest.mark.parametrize("scaling", SCALINGS)
def test_copies_and_other_containers_scale_alike(frame, scaling):
    preprocessor = make_preprocessor(scaling=scaling).fit(frame)
    expected = dense(preprocessor.transform(frame))
    assert np.array_equal(dense(preprocessor.transform(pl.from_pandas(frame))), expected)
    for copy in (pickle.loads(pickle.dumps(preprocessor)), clone(preprocessor).fit(frame)):
        assert np.array_equal(dense(copy.transform(frame)), expected)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_a_single_sample_gives_no_features_and_a_new_sample_is_scaled_alone(scaling):
    frame = pd.DataFrame({"size": [1.0, 2.0, 5.0]})
    assert make_preprocessor(scaling=scaling).fit_transform(frame[:1]).shape == (1, 0)
    preprocessor = make_preprocessor(scaling=scaling).fit(frame)
    assert np.array_equal(preprocessor.transform(frame[1:2]), preprocessor.transform(frame)[1:2])


@pytest.mark.parametrize(
    ("scaling", "scaler", "name", "value"),
    [
        ("robust", ClippingScaler(), "limit", 1.0),
        ("quantile", QuantileScaler(), "n_quantiles", 3),
    ],
)
def test_a_scaler_in_place_of_its_name_is_in_reach_of_a_search(frame, scaling, scaler, name, value):
    expected = dense(make_preprocessor(scaling=scaling).fit_transform(frame))
    pipeline = make_mixupe_pipeline(preprocessor=make_preprocessor(scaling=scaler))
    assert np.array_equal(dense(pipeline["preprocessor"].fit_transform(frame)), expected)
    pipeline.set_params(**{f"preprocessor__scaling__{name}": value})
    after = dense(pipeline["preprocessor"].fit_transform(frame))
    assert expected.shape != after.shape or not np.array_equal(expected, after)


@pytest.mark.parametrize("scaling", ["minmax", 3, None])
def test_an_unknown_scaling_is_refused(frame, scaling):
    sentence = f"Got scaling={scaling!r}, but expected one of 'standard', 'robust', 'quantile'."
    with pytest.raises(ValueError, match=sentence):
        make_preprocessor(scaling=scaling).fit(frame)


@parametrize_with_checks([TablePreprocessor()])
def test_scikit_learns_checks_of_the_preprocessor(estimator, check):
    check(estimator)


def test_the_pipeline_prints_in_two_lines():
    assert repr(make_mixupe_pipeline()).splitlines() == [
        "MixupEPipeline(steps=[('preprocessor', TablePreprocessor()),",
        "                      ('classifier', MixupEClassifier(scale_inputs=False))])",
    ]


def test_a_pipeline_for_regression_and_the_predictions_of_its_members(frame):
    y = np.arange(len(frame), dtype=float)
    quick = QUICK | {"n_members": 2}
    pipeline = make_mixupe_pipeline(regression=True, **quick).fit(frame, y)
    assert [name for name, _ in pipeline.steps] == ["preprocessor", "regressor"]
    members = pipeline.predict_members(frame)
    inner = pipeline["regressor"].predict_members(pipeline["preprocessor"].transform(frame))
    assert members.shape == (2, len(frame))
    assert np.array_equal(members, inner)
    assert not hasattr(pipeline, "predict_proba_members")


def test_probabilities_of_members_through_the_pipeline():
    frame, y = messy_iris()
    pipeline = make_mixupe_pipeline(**QUICK | {"n_members": 2}).fit(frame, y)
    members = pipeline.predict_proba_members(frame)
    assert members.shape == (2, len(frame), 3)
    weights = pipeline["classifier"].member_weights_
    mean = np.average(members, axis=0, weights=weights)
    np.testing.assert_allclose(mean, pipeline.predict_proba(frame), atol=1e-6)
    assert not hasattr(pipeline, "predict_members")


def test_regression_is_a_flag():
    with pytest.raises(ValueError, match="Got regression='yes', but expected True or False"):
        make_mixupe_pipeline(regression="yes")


# Kinds of columns.

MONDAY = datetime.date(2024, 1, 1)
TWO_NUMBERS = [
    pd.Series([1, None, 3], dtype="Int64"),
    pd.Series([1, None, 3], dtype="Float64"),
    pd.Series([1, None, 3], dtype="int64[pyarrow]"),
    pd.Series([1, None, 3], dtype="double[pyarrow]"),
    pd.Series([1, None, 3], dtype=object),
    pd.Series([1, pd.NA, 3.0], dtype=object),
    pd.Series([Decimal("1"), None, Decimal("3")], dtype=object),
    pd.Series([1, 2, 3], dtype="uint8"),
]
TWO_TIMES = [
    pd.Series([MONDAY, None, MONDAY + datetime.timedelta(days=2)], dtype=object),
    pd.Series(pd.to_datetime(["2024-01-01", None, "2024-01-03"])),
    pd.Series(pd.to_datetime(["2024-01-01", None, "2024-01-03"])).astype("datetime64[ns]"),
    pd.Series(pd.to_datetime(["2024-01-01", None, "2024-01-03"], utc=True)),
    pd.Series(pd.to_timedelta([1, None, 3], unit="h")),
]
TWO_LEVELS = [
    pd.Series([False, None, True], dtype="boolean"),
    pd.Series([False, None, True], dtype="bool[pyarrow]"),
    pd.Series([False, None, True], dtype=object),
    pd.Series(["a", None, "b"]),
    pd.Series(["a", None, "b"], dtype="string"),
    pd.Series(["a", pd.NA, "b"], dtype="string[pyarrow]"),
    pd.Series(["a", None, "b"], dtype=pd.CategoricalDtype(["a", "b", "unused"])),
    pd.Series([1, None, 2]).astype("category"),
    pd.Series([1, None, "one"], dtype=object),
    pd.Series(pd.PeriodIndex(["2024-01", None, "2024-02"], freq="M")),
]


@pytest.mark.parametrize(
    ("column", "part"),
    [(column, "numbers") for column in TWO_NUMBERS] + [(column, "times") for column in TWO_TIMES],
)
def test_numbers_and_times_of_every_type_are_scaled(column, part):
    frame = pd.DataFrame({"column": column})
    preprocessor = make_preprocessor(scaling="standard")
    output = dense(preprocessor.fit_transform(frame))
    np.testing.assert_allclose(output[:, 0], np.sqrt(1.5) * np.array([-1, 0, 1]), atol=1e-6)
    ramps = [f"{part}_ramps__column_ramp{number}" for number in range(output.shape[1] - 1)]
    names = [name for name in preprocessor.get_feature_names_out() if "dates" not in name]
    assert names == [f"{part}__column", *ramps[: len(names) - 1]]
    # By default the missing value has no share in the variance.
    scale = 1 if column.isna().any() else np.sqrt(1.5)
    output = dense(make_preprocessor().fit_transform(frame))[:, 0]
    np.testing.assert_allclose(output, scale * np.array([-1, 0, 1]), atol=1e-6)


@pytest.mark.parametrize("column", TWO_LEVELS, ids=lambda column: str(column.dtype))
def test_categories_of_every_type_are_one_hot(column):
    preprocessor = make_preprocessor().fit(pd.DataFrame({"column": column}))
    # A missing value is the last level.
    assert preprocessor.transform(pd.DataFrame({"column": column})).tolist() == [
        [1, 0, 0],
        [0, 0, 1],
        [0, 1, 0],
    ]
    assert all(n.startswith("categories__column_") for n in preprocessor.get_feature_names_out())


def test_integers_stay_the_same_category_when_a_missing_value_makes_them_floats():
    preprocessor = make_preprocessor().fit(pd.DataFrame({"code": [1, 2, 2]}, dtype="category"))
    new = pd.DataFrame({"code": pd.Series([1, None]).astype("category")})
    assert preprocessor.transform(new).tolist() == [[1, 0], [0, 0]]


EMPTY = [
    pd.Series([None] * 3, dtype=object),
    pd.Series([np.nan] * 3),
    pd.Series([None] * 3, dtype="category"),
    pd.Series([None] * 3, dtype="Int64"),
    pd.Series([None] * 3, dtype="string"),
    pd.Series([pd.NaT] * 3),
    pd.Series([7, 7, None]),
    pd.Series(["a", "a", None]),
    pd.Series([pd.Timestamp("2024-01-01")] * 3),
]


@pytest.mark.parametrize("column", EMPTY, ids=lambda column: str(column.dtype))
@pytest.mark.parametrize("later", [5.0, "text", None, pd.Timestamp("2024-01-01")])
def test_a_constant_column_is_dropped_whatever_it_holds_later(column, later):
    frame = pd.DataFrame({"size": [1.0, 2.0, 3.0], "column": column})
    preprocessor = make_preprocessor().fit(frame)
    names = preprocessor.get_feature_names_out()
    assert all("column" not in name for name in names)
    expected = make_preprocessor().fit_transform(frame[["size"]])
    assert np.array_equal(preprocessor.transform(frame.assign(column=later)), expected)
    assert np.array_equal(preprocessor.transform(frame[["size"]]), expected)


# Containers.


@needs_polars
def test_polars_arrays_and_lists_equal_pandas(frame):
    preprocessor = make_preprocessor().fit(frame)
    expected, names = dense(preprocessor.transform(frame)), preprocessor.get_feature_names_out()
    polars_frame = pl.from_pandas(frame)
    of_polars = make_preprocessor().fit(polars_frame)
    assert np.array_equal(dense(of_polars.transform(polars_frame)), expected)
    assert of_polars.get_feature_names_out().tolist() == names.tolist()
    assert np.array_equal(dense(preprocessor.transform(polars_frame)), expected)
    for rows in (frame.to_numpy(), frame.to_numpy().tolist()):
        of_rows = make_preprocessor().fit(rows)
        assert np.array_equal(dense(of_rows.transform(rows)), expected)
        assert of_rows.get_feature_names_out()[:2].tolist() == ["numbers__x0", "numbers__x1"]


def test_arrays_of_numbers_and_of_text(iris):
    X, _ = iris
    preprocessor = make_preprocessor(scaling="standard", n_bins=0)
    np.testing.assert_allclose(
        preprocessor.fit_transform(X), (X - X.mean(axis=0)) / X.std(axis=0), atol=1e-12
    )
    words = np.array([["1", "a"], ["2", "b"]])
    assert make_preprocessor().fit_transform(words).tolist() == [[1, 0, 1, 0], [0, 1, 0, 1]]


def test_columns_are_found_by_name_and_integer_names_are_no_positions(frame):
    preprocessor = make_preprocessor().fit(frame)
    expected = dense(preprocessor.transform(frame))
    other = frame[frame.columns[::-1]].assign(extra="more")
    assert np.array_equal(dense(preprocessor.transform(other)), expected)
    assert preprocessor.feature_names_in_.tolist() == frame.columns.tolist()
    numbered = frame.set_axis(range(len(frame.columns))[::-1], axis=1)
    assert np.array_equal(dense(make_preprocessor().fit_transform(numbered)), expected)


@needs_polars
@pytest.mark.parametrize("is_global", [True, False])
@pytest.mark.parametrize(
    ("kind", "frame_type"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame)]
)
def test_frames_come_out_where_asked_for_even_if_the_output_would_be_sparse(
    kind, frame_type, is_global
):
    frame, y = messy_iris()
    params = {"sparse_threshold": 0.9, "max_categories": None}
    sparse_output = make_preprocessor(**params).fit_transform(frame)
    assert sparse.issparse(sparse_output)
    for rows in (frame, pl.from_pandas(frame), frame.to_numpy()):
        preprocessor = make_preprocessor(**params)
        if not is_global:
            preprocessor = clone(preprocessor.set_output(transform=kind))
        with sklearn.config_context(transform_output=kind if is_global else None):
            output = preprocessor.fit(rows).transform(rows)
            make_mixupe_pipeline(preprocessor=preprocessor, **QUICK).fit(rows, y).predict(rows)
        assert isinstance(output, frame_type)
        assert list(output.columns) == preprocessor.get_feature_names_out().tolist()
        assert np.array_equal(dense(output), sparse_output.toarray())


# Sentences.


@pytest.mark.parametrize(
    ("column", "value", "sentence"),
    [
        (
            "float",
            "n/a",
            "Got 'n/a' in column 'float', but expected numbers, as in fit.",
        ),
        ("float", MONDAY, "in column 'float', but expected numbers"),
        (
            "date",
            "2024-13-01",
            "Got '2024-13-01' in column 'date', but expected dates or durations",
        ),
        ("span", 5, "Got 5 in column 'span', but expected dates or durations"),
        (
            "int",
            -np.inf,
            "Got infinity in column 'int', but expected finite numbers up to",
        ),
    ],
)
def test_a_column_that_changed_its_kind_is_named(frame, column, value, sentence):
    preprocessor = make_preprocessor().fit(frame)
    with pytest.raises(ValueError, match=re.escape(sentence)):
        preprocessor.transform(frame.assign(**{column: value}))
    if HAS_POLARS:
        polars_frame = pl.from_pandas(frame).with_columns(pl.lit(value).alias(column))
        with pytest.raises(ValueError, match=sentence[-20:]):
            preprocessor.transform(polars_frame)


def test_text_that_reads_as_numbers_is_read(frame):
    preprocessor = make_preprocessor().fit(frame)
    changed = frame.assign(int=frame["int"].astype(str), bool=frame["bool"].astype(str))
    assert np.array_equal(
        dense(preprocessor.transform(changed)), dense(preprocessor.transform(frame))
    )


@pytest.mark.parametrize(
    ("X", "sentence"),
    [
        (sparse.eye_array(3).tocsr(), "sparse csr_array, but expected a data frame or a dense"),
        (np.arange(3.0), r"Got X of shape \(3,\), but expected a table of samples and columns"),
        (pd.Series([1, 2]), r"Got X of shape \(2,\), but expected a table of samples and columns"),
    ],
    ids=type,
)
def test_what_is_no_table_is_refused(X, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence):
        make_preprocessor().fit(X)


def test_infinity_in_training_and_a_column_missing_later_are_refused(frame):
    with pytest.raises(ValueError, match="Got infinity in a column, but expected finite numbers"):
        make_preprocessor().fit(np.array([[1.0], [np.inf]]))
    preprocessor = make_preprocessor().fit(frame)
    with pytest.raises(ValueError, match="columns are missing: {'float'}"):
        preprocessor.transform(frame.drop(columns="float"))


def test_the_pipeline_has_two_named_steps_and_takes_another_preprocessor(iris):
    X, y = iris
    scaler = sklearn.preprocessing.StandardScaler()
    pipeline = make_mixupe_pipeline(preprocessor=scaler, **QUICK).fit(X, y)
    assert list(pipeline.named_steps) == ["preprocessor", "classifier"]
    by_hand = make_pipeline(clone(scaler), MixupEClassifier(**QUICK)).fit(X, y)
    assert np.array_equal(pipeline.predict_proba(X), by_hand.predict_proba(X))
