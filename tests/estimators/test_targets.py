"""Labels of every type, multi-label targets, numbers, one class, two classes."""

import numpy as np
import pandas as pd
import pytest
import torch
from paper import paper_classifier, paper_regressor
from scipy import sparse
from sklearn.metrics import r2_score


@pytest.mark.parametrize(
    "rename",
    [
        lambda y: y,
        lambda y: y.astype(str),
        lambda y: np.array([f"class {i}" for i in y], dtype=object),
        lambda y: y.astype(float) - 5,
        lambda y: pd.Series(y).astype("category"),
        lambda y: list(y),
        torch.as_tensor,
    ],
    ids=["int", "str", "object", "float", "category", "list", "torch"],
)
def test_labels_of_every_kind_come_back(small_digits, rename):
    X, y = small_digits
    labels = rename(y)
    classifier = paper_classifier(random_state=0).fit(X, labels)
    expected = np.asarray(labels)
    assert set(classifier.predict(X)) <= set(expected)
    assert (classifier.predict(X) == expected).mean() > 0.85
    assert np.array_equal(classifier.classes_, np.unique(expected))


def test_probabilities_sum_to_one_and_lead_to_the_prediction(small_digits):
    X, y = small_digits
    classifier = paper_classifier(random_state=0).fit(X, y)
    proba = classifier.predict_proba(X)
    assert proba.shape == (300, 10)
    assert np.allclose(proba.sum(axis=1), 1, atol=1e-12)
    assert np.array_equal(classifier.classes_[proba.argmax(axis=1)], classifier.predict(X))
    assert np.allclose(np.exp(classifier.predict_log_proba(X)), proba)


@pytest.mark.parametrize("module_params", [None, {"n_outputs": 1}])
def test_two_classes(cancer, module_params):
    X, y = cancer
    classifier = paper_classifier(random_state=0, module_params=module_params).fit(X, y)
    assert classifier.predict_proba(X).shape == (len(X), 2)
    assert classifier.score(X, y) > 0.93


@pytest.mark.parametrize("method", ["mixupe", "erm", "erm+penalty"])
@pytest.mark.parametrize("penalty", ["logit", "directional"])
def test_one_class_is_predicted_with_certainty(iris, method, penalty):
    X = iris[0]
    classifier = paper_classifier(method=method, penalty=penalty, random_state=0)
    message = (
        "^Got y with the single class 'only', but expected two or more: the model always predicts "
        "it.$"
    )
    with pytest.warns(UserWarning, match=message) as caught:
        classifier.fit(X, ["only"] * len(X))
    assert [warning.filename for warning in caught] == [__file__]
    assert (classifier.predict(X) == "only").all()
    assert (classifier.predict_proba(X) == 1).all()


@pytest.mark.parametrize("penalty", ["logit", "directional"])
@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_multilabel_targets(multilabel, penalty, container):
    X, Y = multilabel
    classifier = paper_classifier(penalty=penalty, random_state=0).fit(X, container(Y))
    proba = classifier.predict_proba(X)
    assert proba.shape == Y.shape
    assert ((proba >= 0) & (proba <= 1)).all()
    assert np.array_equal(classifier.predict(X), (proba > 0.5).astype(int))
    assert (classifier.predict(X) == Y).mean() > 0.85


def test_regression_learns_and_keeps_the_shape_of_y(diabetes):
    X, y = diabetes
    regressor = paper_regressor(random_state=0).fit(X, y)
    assert regressor.predict(X).shape == y.shape
    assert regressor.score(X, y) > 0.5


def test_several_outputs_of_very_different_scale(diabetes):
    X, y = diabetes
    Y = np.column_stack([y, 1e6 * X[:, 2] + 5, 1e-6 * X[:, 8], np.full(len(X), 3.0)])
    prediction = paper_regressor(random_state=0, max_epochs=50).fit(X, Y).predict(X)
    assert prediction.shape == Y.shape
    scores = r2_score(Y, prediction, multioutput="raw_values")
    assert (scores[:3] > 0.5).all()
    assert np.allclose(prediction[:, 3], 3.0, atol=0.3)


def test_a_column_vector_of_numbers_is_flattened_with_a_warning(diabetes):
    X, y = diabetes
    with pytest.warns(match="column-vector"):
        regressor = paper_regressor(max_epochs=1).fit(X, y[:, None])
    assert regressor.predict(X).shape == (len(X),)


def test_float32_float64_integers_tensors_frames_and_sparse_agree(small_digits):
    X, y = np.round(small_digits[0] * 16), small_digits[1]
    reference = paper_classifier(max_epochs=2, random_state=0).fit(X, y).predict_proba(X)
    frame = pd.DataFrame(X, columns=[f"pixel {i}" for i in range(64)])
    for other in (
        X.astype(np.float32),
        X.astype(np.int16),
        torch.as_tensor(X).requires_grad_(),
        sparse.csr_array(X),
        sparse.csc_matrix(X),
        frame,
        np.asfortranarray(X),
    ):
        classifier = paper_classifier(max_epochs=2, random_state=0).fit(other, y)
        assert np.allclose(classifier.predict_proba(other), reference, atol=1e-5)
    assert paper_classifier(max_epochs=1).fit(frame, y).feature_names_in_[3] == "pixel 3"


def test_fit_and_predict_do_not_change_the_users_arrays(small_digits):
    X, y = small_digits[0].copy(), small_digits[1].copy()
    weight = np.linspace(0.5, 2, len(X))
    copies = X.copy(), y.copy(), weight.copy()
    paper_classifier(max_epochs=2).fit(X, y, sample_weight=weight).predict(X)
    assert all(np.array_equal(*pair) for pair in zip((X, y, weight), copies, strict=True))


@pytest.mark.parametrize("factor", [1e200, 1e-300, 1e-20])
def test_targets_of_any_scale(diabetes, factor):
    X, y = diabetes
    plain = paper_regressor(random_state=0, max_epochs=2).fit(X, y).predict(X)
    scaled = paper_regressor(random_state=0, max_epochs=2).fit(X, factor * y).predict(X)
    assert np.allclose(scaled / factor, plain, rtol=1e-4)
