"""Metrics match their definitions, and every baseline fits every kind of raw data."""

import json
import os
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.metrics import balanced_accuracy_score, brier_score_loss, log_loss
from sklearn.model_selection import train_test_split

from benchmarks._tabular import baselines
from benchmarks._tabular.baselines import (
    BASELINES,
    TypedFrame,
    check_baselines,
    installed_baselines,
    make_baseline,
    params_of,
)
from benchmarks._tabular.metrics import expected_calibration_error, measure
from mixupe_sklearn.datasets.embedded import load_embedded

INSTALLED = installed_baselines()


def messy(table):
    """The dataset with text, categories, booleans, missing values, a date and useless columns."""
    X, rng = table.X.copy(), np.random.default_rng(0)
    first, second, third = X.columns[:3]
    X["a [text], with <signs>"] = pd.cut(X[first], 4).astype(str)
    X["category"] = pd.qcut(X[second], 3, labels=["low", "mid", "high"])
    X["is_large"] = X[third] > X[third].median()
    X["perhaps"] = X["is_large"].astype(object).where(rng.random(len(X)) > 0.2, None)
    X["day"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(len(X)), "D")
    X["constant"] = 7
    X["empty"] = np.nan
    # Every tenth row has a level that no other row has.
    X["code"] = [f"r{row}" if row % 10 == 0 else f"c{row % 3}" for row in range(len(X))]
    for column in (first, "a [text], with <signs>", "category"):
        X.loc[rng.random(len(X)) < 0.1, column] = None
    return X


@pytest.fixture(scope="module", params=["iris", "breast-cancer"])
def split(request):
    table = load_embedded(request.param)
    return train_test_split(messy(table), table.y, test_size=0.3, stratify=table.y, random_state=0)


def assert_probabilities(proba, shape):
    assert proba.shape == shape
    assert (proba >= 0).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1, atol=1e-5)


# Metrics


def test_calibration_error_matches_a_worked_example():
    # Two bins: confidences .3, .4 and .5, of which one is right, and .8 and .9, both right.
    proba = [[0.4, 0.3, 0.3], [0.3, 0.5, 0.2], [0.34, 0.33, 0.33], [0.1, 0.8, 0.1], [0.9, 0.1, 0.0]]
    y = [0, 0, 1, 1, 0]
    lower = abs(1 / 3 - (0.4 + 0.5 + 0.34) / 3)
    upper = abs(1 - (0.8 + 0.9) / 2)
    expected = 3 / 5 * lower + 2 / 5 * upper
    assert expected_calibration_error(y, proba, n_bins=2) == pytest.approx(expected)


def test_certain_and_correct_is_calibrated_and_certain_and_wrong_is_not():
    sure = np.eye(4)
    assert expected_calibration_error([0, 1, 2, 3], sure) == 0
    assert expected_calibration_error([1, 2, 3, 0], sure) == 1


def test_metrics_agree_with_scikit_learn():
    rng = np.random.default_rng(0)
    classes = np.array(["a", "b", "c"], dtype=object)
    y, proba = classes[rng.integers(0, 3, 200)], rng.dirichlet(np.ones(3), size=200)
    found = measure(y, proba, classes, classes)
    predicted = classes[proba.argmax(axis=1)]
    assert found["error"] == pytest.approx(100 * np.mean(y != predicted))
    assert found["log_loss"] == pytest.approx(log_loss(y, proba, labels=classes), rel=1e-5)
    assert found["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(y, predicted))
    positions = [list(classes).index(label) for label in y]
    assert found["ece"] == expected_calibration_error(positions, proba)
    assert found["brier"] == pytest.approx(
        brier_score_loss(y, proba, labels=classes, scale_by_half=False)
    )


def test_metrics_do_not_depend_on_the_order_of_classes():
    rng = np.random.default_rng(0)
    y, proba = rng.integers(0, 3, 50), rng.dirichlet(np.ones(3), size=50)
    assert measure(y, proba, [0, 1, 2], [0, 1, 2]) == measure(
        y, proba[:, [2, 0, 1]], [2, 0, 1], [0, 1, 2]
    )


def test_an_unseen_class_has_probability_zero():
    found = measure(["a", "c"], [[0.5, 0.5], [1.0, 0.0]], ["a", "b"], ["a", "b", "c"])
    assert found["error"] == 50
    assert found["balanced_accuracy"] == 0.5
    # Probabilities are clipped at the precision of 32-bit floats.
    worst = -np.log(np.finfo(np.float32).eps)
    assert found["log_loss"] == pytest.approx((np.log(2) + worst) / 2, rel=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y_true": ["z", "a"]}, "Got 'z' in y_true, but expected one of all_classes="),
        ({"classes_of_model": ["a", "z"]}, "Got 'z' in classes_of_model, but expected one of"),
        ({"proba": [[1.0], [1.0]]}, r"Got proba of shape \(2, 1\), but expected \(2, 2\)"),
        ({"proba": [[0.5, 0.5], [np.nan, 1]]}, "Input contains NaN"),
    ],
)
def test_measure_rejects_invalid_input(change, message):
    right = {
        "y_true": ["a", "b"],
        "proba": [[0.5, 0.5], [0.5, 0.5]],
        "classes_of_model": ["a", "b"],
        "all_classes": ["a", "b"],
    }
    with pytest.raises(ValueError, match=message):
        measure(**right | change)


# Typed frames


def test_typed_frame_has_only_floats_and_categories():
    table = load_embedded("iris")
    X = messy(table)
    frame = TypedFrame().fit(X).transform(X)
    kinds = [str(kind) for kind in frame.dtypes]
    # Four numbers and a date; text, category, two booleans, and the code.
    assert kinds == ["float64"] * 5 + ["category"] * 5
    assert frame["x0"].isna().sum() == X.iloc[:, 0].isna().sum() > 0
    assert frame["x5"].isna().sum() == X["a [text], with <signs>"].isna().sum() > 0


def test_a_level_has_the_same_code_in_other_samples():
    fitted = TypedFrame().fit(pd.DataFrame({"city": ["Rome", "Oslo", "Bonn"]}))
    codes = fitted.transform(pd.DataFrame({"city": ["Oslo", "Lima", "Rome", None]}))["x0"]
    assert codes.cat.categories.tolist() == [0, 1, 2]
    assert codes.tolist()[::2] == [1, 2]
    assert codes.isna().tolist() == [False, True, False, True]


def test_missing_values_are_filled_on_request():
    train = pd.DataFrame({"size": [1.0, 3.0, None], "city": ["Rome", "Oslo", "lost"]})
    other = pd.DataFrame({"size": [None, 5.0], "city": [None, "Lima"]})
    frame = TypedFrame(fills_numbers=True, fills_levels=True).fit(train).transform(other)
    assert frame["x0"].tolist() == [2.0, 5.0]
    assert frame["x1"].tolist() == [3, 3]


def test_the_rarest_levels_become_missing_values():
    frame = pd.DataFrame({"city": list("aaabbc")})
    found = TypedFrame(max_levels=2).fit_transform(frame)["x0"]
    assert found.isna().tolist() == [False] * 5 + [True]


# Baselines


@pytest.mark.parametrize("name", INSTALLED)
def test_a_baseline_learns_from_messy_data(name, split, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X_train, X_test, y_train, y_test = split
    baseline = make_baseline(name, seed=0).fit(X_train, y_train)
    proba = baseline.predict_proba(X_test)
    classes = np.unique(y_train)
    assert_probabilities(proba, (len(X_test), len(classes)))
    assert baseline.classes_.tolist() == classes.tolist()
    assert measure(y_test, proba, baseline.classes_, classes)["error"] < 20
    assert (baseline.predict(X_test) == baseline.classes_[proba.argmax(axis=1)]).all()
    assert capfd.readouterr() == ("", "")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", INSTALLED)
def test_a_baseline_is_reproducible_and_restores_global_generators(name, split):
    X_train, X_test, y_train, _ = split
    X_train, y_train = X_train[:60], y_train[:60]
    np.random.seed(1)
    states = torch.get_rng_state(), np.random.get_state()[1].tolist(), torch.get_num_threads()
    baseline = make_baseline(name, seed=3)
    first = baseline.fit(X_train, y_train).predict_proba(X_test)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.random.get_state()[1].tolist() == states[1]
    assert torch.get_num_threads() == states[2]
    np.random.seed(2)
    torch.manual_seed(2)
    np.testing.assert_array_equal(
        clone(baseline).fit(X_train, y_train).predict_proba(X_test), first
    )


@pytest.mark.parametrize("name", INSTALLED)
def test_a_baseline_takes_integer_classes_with_gaps_and_few_samples(name):
    table = load_embedded("digits")
    keep = np.flatnonzero(np.isin(table.y, [2, 3, 5, 9]))[:80]
    baseline = make_baseline(name, seed=0).fit(table.X.iloc[keep[:60]], table.y[keep[:60]])
    assert baseline.classes_.tolist() == [2, 3, 5, 9]
    proba = baseline.predict_proba(table.X.iloc[keep[60:]])
    assert_probabilities(proba, (20, 4))
    # Classes that are not in the training data count as well.
    assert measure(
        table.y[60:80], baseline.predict_proba(table.X.iloc[60:80]), baseline.classes_, range(10)
    )


@pytest.mark.parametrize("name", INSTALLED)
def test_a_baseline_takes_only_text_with_many_levels(name):
    table = load_embedded("balance-scale")
    text = table.X.astype(str)
    text["pair"] = text["left_weight"] + text["left_distance"] + text["right_weight"]
    text["row"] = [f"r{number // 4}" for number in range(len(text))]  # 157 levels
    even = np.arange(len(text)) % 2 == 0
    baseline = make_baseline(name, seed=0).fit(text[even], table.y[even])
    assert_probabilities(baseline.predict_proba(text[~even]), (312, 3))


@pytest.mark.parametrize("name", INSTALLED)
def test_a_baseline_takes_missing_values_that_training_data_lack(name):
    table = load_embedded("iris")
    X = table.X.assign(city=np.where(np.arange(150) % 2, "Oslo", "Bonn"))
    baseline = make_baseline(name, seed=0).fit(X, table.y)
    assert_probabilities(baseline.predict_proba(X.head(20).map(lambda value: None)), (20, 3))


def test_mlp_sklearn_has_the_papers_network_and_the_given_training(split):
    X_train, _, y_train, _ = split
    training = {"max_epochs": 3, "batch_size": 10, "lr": 0.02}
    baseline = make_baseline("mlp-sklearn", seed=0, training=training).fit(X_train, y_train)
    network = clone(baseline).fit(X_train, y_train).classifier_
    assert [weights.shape[1] for weights in network.coefs_[:-1]] == [128, 128]
    assert (network.n_iter_, network.batch_size, network.learning_rate_init) == (3, 10, 0.02)


@pytest.mark.parametrize("name", INSTALLED)
def test_params_of_returns_all_changed_parameters(name):
    table, training = load_embedded("iris"), {"max_epochs": 2, "batch_size": 50, "lr": 0.01}
    model = make_baseline(name, seed=7, training=training).fit(table.X, table.y).classifier_
    changed, plain = params_of(name, training), type(model)().get_params()
    assert json.loads(json.dumps(changed)) == changed
    # Seed, threads and silence do not change the results of a run.
    ignored = {"random_state", "n_jobs", "verbosity"}
    set_ = {k: v for k, v in model.get_params().items() if k not in plain or v != plain[k]}
    assert {k: v for k, v in set_.items() if k not in ignored}.items() <= changed.items()
    assert changed.items() <= model.get_params().items()


def test_convergence_warnings_are_hidden(monkeypatch):
    short = replace(BASELINES["logistic"], params={"max_iter": 1})
    monkeypatch.setitem(baselines.BASELINES, "logistic", short)
    table = load_embedded("iris")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        baseline = make_baseline("logistic", seed=0).fit(table.X, table.y)
    assert baseline.classifier_.n_iter_ == 1
    assert not caught


def test_an_unknown_baseline_raises_with_the_list():
    with pytest.raises(
        ValueError, match="Got baseline 'xgbost', but expected one of logistic, mlp-.*"
    ):
        make_baseline("xgbost", seed=0)


def test_a_missing_baseline_raises_with_the_pip_command(monkeypatch):
    absent = replace(BASELINES["realmlp"], classifier="a_module_that_is_not_there.Any")
    monkeypatch.setitem(baselines.BASELINES, "realmlp", absent)
    assert "realmlp" not in installed_baselines()
    message = "Got baseline 'realmlp', but expected one that is installed: pip install mixupe-"
    with pytest.raises(ImportError, match=message):
        make_baseline("realmlp", seed=0)
    assert check_baselines([]) == installed_baselines()
