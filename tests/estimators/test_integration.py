"""The estimators with other tools of scikit-learn, on real data."""

import io
import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from paper import paper_classifier, paper_pipeline, paper_regressor
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import AdaBoostClassifier, BaggingClassifier, StackingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from mixupe_sklearn import MixupEClassifier, make_preprocessor


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.fixture
def parts(cancer):
    return train_test_split(*cancer, random_state=0, stratify=cancer[1])


@pytest.mark.parametrize("make", [MixupEClassifier, paper_classifier])
def test_pipeline(parts, make):
    X_train, X_test, y_train, y_test = parts
    pipeline = make_pipeline(StandardScaler(), make(random_state=0))
    assert pipeline.fit(X_train, y_train).score(X_test, y_test) > 0.93


def test_grid_search_over_alpha_and_eta_in_two_processes(parts):
    X_train, X_test, y_train, y_test = parts
    search = GridSearchCV(
        make_pipeline(StandardScaler(), paper_classifier(random_state=0, max_epochs=5)),
        {"mixupeclassifier__alpha": [0.1, 1.0], "mixupeclassifier__eta": [0.01, 0.1]},
        cv=3,
        n_jobs=2,
    )
    search.fit(X_train, y_train)
    assert search.score(X_test, y_test) > 0.93
    assert set(search.best_params_) == {"mixupeclassifier__alpha", "mixupeclassifier__eta"}


def test_cross_val_score(iris):
    scores = cross_val_score(paper_classifier(batch_size=10, random_state=0), *iris, cv=5)
    assert scores.mean() > 0.93


def test_calibrated_classifier(parts):
    X_train, X_test, y_train, y_test = parts
    base = make_pipeline(StandardScaler(), paper_classifier(random_state=0))
    calibrated = CalibratedClassifierCV(base, cv=3).fit(X_train, y_train)
    assert calibrated.score(X_test, y_test) > 0.93
    assert calibrated.predict_proba(X_test).shape == (len(X_test), 2)


def test_stacking_classifier(parts):
    X_train, X_test, y_train, y_test = parts
    stack = StackingClassifier(
        [("ours", paper_classifier(random_state=0)), ("linear", LogisticRegression(max_iter=2000))],
        cv=3,
    )
    assert stack.fit(X_train, y_train).score(X_test, y_test) > 0.93


def test_one_vs_rest_classifier(iris):
    model = OneVsRestClassifier(paper_classifier(batch_size=10, random_state=0))
    assert model.fit(*iris).score(*iris) > 0.9


def test_bagging_boosting_and_multi_output(parts, multilabel):
    X_train, X_test, y_train, y_test = parts
    base = paper_classifier(random_state=0, max_epochs=10)
    # AdaBoost requires sample_weight, and bagging passes it.
    for model in (
        BaggingClassifier(base, 3, random_state=0),
        AdaBoostClassifier(base, n_estimators=3),
    ):
        assert model.fit(X_train, y_train).score(X_test, y_test) > 0.9
    X, Y = multilabel
    assert MultiOutputClassifier(base).fit(X, Y).predict(X).shape == Y.shape


def test_clone_copies_parameters_and_nothing_learned(small_digits):
    classifier = paper_classifier(alpha=0.7, module_params={"d_hidden": (8,)}, max_epochs=1)
    classifier.fit(*small_digits)
    copy = clone(classifier)
    assert copy.get_params() == classifier.get_params()
    assert not hasattr(copy, "net_")


def joblib_round_trip(estimator):
    file = io.BytesIO()
    joblib.dump(estimator, file)
    file.seek(0)
    return joblib.load(file)


@pytest.mark.parametrize(
    "round_trip",
    [lambda e: pickle.loads(pickle.dumps(e)), joblib_round_trip],
    ids=["pickle", "joblib"],
)
@pytest.mark.parametrize(
    "estimator",
    [
        paper_classifier(max_epochs=2, random_state=0),
        paper_classifier(max_epochs=2, random_state=0, early_stopping=True, verbose=1),
        paper_regressor(max_epochs=2, random_state=0, mix_at="hidden"),
    ],
    ids=["classifier", "early stopping", "regressor"],
)
def test_saved_models_predict_and_continue_as_if_never_saved(small_digits, estimator, round_trip):
    X, y = small_digits
    fitted = clone(estimator).fit(X, y)
    loaded = round_trip(fitted)
    assert np.array_equal(loaded.predict(X), fitted.predict(X))
    fitted.partial_fit(X, y)
    loaded.partial_fit(X, y)
    assert np.array_equal(loaded.predict(X), fitted.predict(X))


def test_a_saved_model_does_not_carry_the_data():
    rng = np.random.default_rng(0)
    sizes = []
    for n_samples in (200, 4000):
        X, y = rng.normal(size=(n_samples, 20)), rng.integers(2, size=n_samples)
        classifier = paper_classifier(max_epochs=2, early_stopping=True, random_state=0)
        classifier.fit(X, y, X_val=X, y_val=y)
        sizes.append(len(pickle.dumps(classifier)))
    assert sizes[1] < sizes[0] + 10_000


@pytest.mark.usefixtures("routing")
def test_weights_are_routed_through_a_pipeline(cancer):
    X, y = cancer
    weight = np.where(y == "benign", 1.0, 3.0)
    classifier = paper_classifier(random_state=0, max_epochs=3).set_fit_request(sample_weight=True)
    scaler = StandardScaler().set_fit_request(sample_weight=False)
    pipeline = make_pipeline(scaler, classifier).fit(X, y, sample_weight=weight)
    by_hand = paper_classifier(random_state=0, max_epochs=3)
    by_hand.fit(StandardScaler().fit_transform(X), y, sample_weight=weight)
    X_scaled = StandardScaler().fit_transform(X)
    assert np.array_equal(pipeline.predict_proba(X), by_hand.predict_proba(X_scaled))
    unweighted = clone(by_hand).fit(X_scaled, y)
    assert not np.array_equal(pipeline.predict_proba(X), unweighted.predict_proba(X_scaled))


@pytest.mark.filterwarnings("ignore:Got y with the single class:UserWarning")
@pytest.mark.usefixtures("routing")
def test_weights_are_routed_through_a_search(cancer):
    X, y = cancer
    weight = np.where(y == "benign", 1.0, 0.0)
    classifier = paper_classifier(random_state=0, max_epochs=2).set_fit_request(sample_weight=True)
    classifier.set_score_request(sample_weight=False)
    search = GridSearchCV(classifier, {"alpha": [0.1, 1.0]}, cv=3).fit(X, y, sample_weight=weight)
    # Samples of weight zero are removed: only one class is left.
    assert search.best_estimator_.classes_.tolist() == ["benign"]


@pytest.mark.usefixtures("routing")
def test_validation_samples_are_transformed_in_a_pipeline(parts):
    X_train, X_val, y_train, y_val = parts
    scale = StandardScaler().fit(X_train)
    classifier = paper_classifier(early_stopping=True, n_iter_no_change=2, random_state=0)
    pipeline = Pipeline(
        [
            ("scale", StandardScaler()),
            ("classify", classifier.set_fit_request(X_val=True, y_val=True)),
        ],
        transform_input=["X_val"],
    )
    pipeline.fit(X_train, y_train, X_val=X_val, y_val=y_val)
    by_hand = clone(classifier).fit(
        scale.transform(X_train), y_train, X_val=scale.transform(X_val), y_val=y_val
    )
    losses = [row["valid_loss"] for row in pipeline[-1].history_]
    assert losses == [row["valid_loss"] for row in by_hand.history_]
    assert len(losses) >= 3


def test_data_frames_keep_their_names_and_raise_when_they_change():
    data = load_breast_cancer(as_frame=True)
    X = data.data / data.data.std()
    classifier = paper_classifier(random_state=0, max_epochs=2).fit(X, data.target)
    assert list(classifier.feature_names_in_) == list(X.columns)
    with pytest.raises(ValueError, match="feature names should match"):
        classifier.predict(X.rename(columns={"mean radius": "radius"}))
    with pytest.warns(match="X does not have valid feature names"):
        classifier.predict(X.to_numpy())


def test_a_frame_with_strings_and_missing_values_passes_the_pipeline():
    rng = np.random.default_rng(0)
    n = 400
    size, city = rng.normal(size=n), rng.choice(["Oslo", "Bonn", "Kyiv"], size=n)
    y = np.where((size > 0) ^ (city == "Bonn"), "yes", "no")
    frame = pd.DataFrame(
        {
            "size": np.where(rng.random(n) < 0.1, np.nan, size),
            "city": pd.Series(city).mask(rng.random(n) < 0.1),
            "kind": pd.Series(rng.choice(["a", "b"], n)).astype("category"),
            "flag": rng.random(n) < 0.5,
            "span": pd.to_timedelta(rng.integers(3, size=n), unit="D"),
            "day": pd.to_datetime("2020-01-01")
            + pd.to_timedelta(rng.integers(3, size=n), unit="D"),
            "note": pd.Series(rng.choice(["x", None], n), dtype=object),
            "unit": pd.Series(rng.choice(["m", pd.NA], n), dtype="string"),
            "count": pd.Series(rng.integers(9, size=n)).astype("Int64").mask(rng.random(n) < 0.1),
        }
    )
    pipeline = paper_pipeline(batch_size=20, random_state=0).fit(frame, y)
    assert pipeline.score(frame, y) > 0.85
    unseen = frame.head(2).assign(city=["Rome", None])
    assert pipeline.predict(unseen).shape == (2,)
    assert cross_val_score(pipeline, frame, y, cv=3).mean() > 0.8


@pytest.mark.parametrize("make", [MixupEClassifier, paper_classifier])
def test_parameters_are_flat_and_plain(make):
    # OpenML can then describe the estimator, and a search can clone it.
    plain = (str, int, float, bool, type(None))
    for value in make().get_params().values():
        assert all(isinstance(v, plain) for v in (value if isinstance(value, tuple) else [value]))


def test_html_repr(small_digits):
    classifier = paper_classifier(max_epochs=1).fit(*small_digits)
    assert "MixupEClassifier" in classifier._repr_html_()


class Tiny(torch.nn.Module):
    """A user's module with argument names of its own."""

    def __init__(self, inputs, classes):
        super().__init__()
        self.layer = torch.nn.Linear(inputs, classes)

    def forward(self, x):
        return self.layer(x)


def make_tiny(n_features, n_outputs, width=16):
    return torch.nn.Sequential(
        torch.nn.Linear(n_features, width), torch.nn.Tanh(), torch.nn.Linear(width, n_outputs)
    )


@pytest.mark.parametrize(
    ("module", "module_params"),
    [
        (Tiny, {"inputs": 64, "classes": 10}),
        (make_tiny, {"width": 32}),
        ("mlp", {"d_hidden": (32,), "batch_norm": True, "dropout": 0.1}),
        ("mlp", {"d_hidden": ()}),
    ],
    ids=["class", "function", "name", "linear"],
)
@pytest.mark.parametrize("penalty", ["logit", "directional"])
def test_modules_by_class_function_and_name(digits, module, module_params, penalty):
    X, y = digits
    params = {"module": module, "module_params": module_params, "penalty": penalty}
    classifier = paper_classifier(lr=0.01, max_epochs=8, random_state=0, **params)
    assert classifier.fit(X, y).score(X, y) > 0.9


@pytest.mark.parametrize(
    "optimizer",
    ["adam", "adamw", "nadam", "rmsprop", "sgd", torch.optim.Adagrad, torch.optim.Rprop],
)
def test_optimizers(digits, optimizer):
    X, y = digits
    params = {"momentum": 0.9} if optimizer == "sgd" else None
    lr = 0.1 if optimizer == "sgd" else 0.01
    classifier = paper_classifier(
        optimizer=optimizer, optimizer_params=params, lr=lr, max_epochs=8, random_state=0
    )
    assert classifier.fit(X, y).score(X, y) > 0.9


def test_weight_decay_shrinks_weights(small_digits):
    norms = []
    for weight_decay in (0.0, 1.0):
        classifier = paper_classifier(weight_decay=weight_decay, optimizer="adamw", random_state=0)
        classifier.fit(*small_digits)
        norms.append(sum(p.norm().item() for p in classifier.net_.module_.parameters()))
    assert norms[1] < norms[0]


def test_many_threads_may_predict_at_once(digits):
    X, y = digits
    classifier = paper_classifier(random_state=0, max_epochs=2).fit(X, y)
    expected = classifier.predict_proba(X)
    results = joblib.Parallel(n_jobs=8, backend="threading")(
        joblib.delayed(classifier.predict_proba)(X) for _ in range(40)
    )
    assert all(np.array_equal(result, expected) for result in results)


def test_training_uses_few_threads_and_prediction_small_chunks(digits):
    X, y = digits
    seen = []

    class Watch(torch.nn.Linear):
        def forward(self, rows):
            seen.append((self.training, torch.get_num_threads(), len(rows)))
            return super().forward(rows)

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        classifier = paper_classifier(
            module=Watch, module_params={"in_features": 64, "out_features": 10}, max_epochs=1
        ).fit(X, y)
        assert {n_threads for training, n_threads, _ in seen if training} == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    many = np.tile(X, (10, 1))
    seen.clear()
    assert classifier.predict(many).shape == (len(many),)
    assert max(n_rows for _, _, n_rows in seen) <= 8192
    assert len(seen) == 3


def test_a_lazy_module_is_trained_in_all_its_parts(digits):
    X, y = digits

    def lazy(n_outputs):
        return torch.nn.Sequential(
            torch.nn.LazyLinear(32), torch.nn.ReLU(), torch.nn.Linear(32, n_outputs)
        )

    first = paper_classifier(module=lazy, max_epochs=1, random_state=0).fit(X, y)
    more = paper_classifier(module=lazy, max_epochs=20, random_state=0).fit(X, y)
    pairs = zip(first.net_.module_.parameters(), more.net_.module_.parameters(), strict=True)
    assert all(not torch.equal(*pair) for pair in pairs)
    assert more.score(X, y) > 0.9


@pytest.mark.parametrize("switch", [torch.no_grad, torch.inference_mode])
def test_fit_works_where_gradients_are_switched_off(small_digits, switch):
    X, y = small_digits
    outside = paper_classifier(max_epochs=2, random_state=0).fit(X, y)
    with switch():
        inside = paper_classifier(max_epochs=2, random_state=0).fit(X, y)
    assert np.array_equal(inside.predict_proba(X), outside.predict_proba(X))


def test_half_precision_tensors_are_accepted(small_digits):
    X, y = torch.as_tensor(small_digits[0]).bfloat16(), small_digits[1]
    classifier = paper_classifier(max_epochs=2, random_state=0).fit(X, y)
    assert classifier.predict(X).shape == y.shape


def test_pandas_output_of_the_preprocessor():
    frame = pd.DataFrame({"size": [1.0, None, 3.0], "city": ["Oslo", "Bonn", None]})
    output = make_preprocessor().set_output(transform="pandas").fit_transform(frame)
    assert list(output.columns) == [
        *("numbers__size", "numbers_ramps__size_ramp0"),
        *("categories__city_Bonn", "categories__city_Oslo", "categories__city_nan"),
    ]
    assert output.notna().all().all()
