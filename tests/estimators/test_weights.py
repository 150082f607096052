"""Sample and class weights: invariances to the bit, equivalences, and effects."""

import numpy as np
import pytest
import torch
from paper import paper_classifier, paper_regressor
from scipy import sparse
from sklearn.datasets import make_classification
from sklearn.utils.class_weight import compute_sample_weight

from mixupe_sklearn import Draw, MixupELoss
from mixupe_sklearn._data.rows import normalise
from mixupe_sklearn.modules import MLP

CASES = [
    paper_classifier(),
    paper_classifier(penalty="directional", lam_per="sample"),
    paper_classifier(mix_at="hidden", early_stopping=True),
    paper_classifier(method="erm"),
    paper_regressor(),
    paper_regressor(early_stopping=True),
]


def fitted(estimator, X, y, sample_weight=None):
    params = {**estimator.get_params(), "max_epochs": 3, "random_state": 0}
    return type(estimator)(**params).fit(X, y, sample_weight=sample_weight)


def output(estimator, X):
    return getattr(estimator, "predict_proba", estimator.predict)(X)


@pytest.fixture(params=CASES, ids=str)
def case(request, small_digits):
    return request.param, *small_digits


def test_weights_of_one_equal_no_weights_bit_for_bit(case):
    estimator, X, y = case
    none = output(fitted(estimator, X, y), X)
    assert np.array_equal(none, output(fitted(estimator, X, y, np.ones(len(X))), X))


@pytest.mark.parametrize("constant", [0.1, 7, 1e-30, 1e300])
def test_a_constant_weight_changes_nothing(case, constant):
    estimator, X, y = case
    none = output(fitted(estimator, X, y), X)
    assert np.array_equal(none, output(fitted(estimator, X, y, np.full(len(X), constant)), X))


@pytest.mark.parametrize("make_sparse", [False, True])
def test_weight_zero_equals_removal_bit_for_bit(case, make_sparse):
    estimator, X, y = case
    weight = np.ones(len(X))
    weight[::3] = 0
    rest = weight > 0
    X_in = sparse.csr_array(X) if make_sparse else X
    zero = fitted(estimator, X_in, y, weight)
    removed = fitted(estimator, X_in[rest], y[rest])
    assert np.array_equal(zero.X_mean_, removed.X_mean_)
    assert np.array_equal(output(zero, X), output(removed, X))


def test_weight_zero_beside_other_weights_equals_removal_too(case):
    estimator, X, y = case
    weight = np.random.default_rng(0).integers(0, 4, len(X)).astype(float)
    rest = weight > 0
    zero = fitted(estimator, X, y, weight)
    removed = fitted(estimator, X[rest], y[rest], weight[rest])
    assert np.array_equal(output(zero, X), output(removed, X))


def test_only_ratios_of_weights_matter(case):
    estimator, X, y = case
    weight = np.random.default_rng(0).integers(1, 4, len(X)).astype(float)
    one = output(fitted(estimator, X, y, weight), X)
    assert np.array_equal(one, output(fitted(estimator, X, y, 4 * weight), X))


def test_a_weight_changes_the_result(case):
    # Negative control.
    estimator, X, y = case
    weight = np.ones(len(X))
    weight[:50] = 5
    assert not np.array_equal(
        output(fitted(estimator, X, y), X), output(fitted(estimator, X, y, weight), X)
    )


@pytest.mark.parametrize("penalty", ["logit", "directional"])
@pytest.mark.parametrize("method", ["erm", "erm+penalty"])
def test_integer_weights_equal_repetition_where_nothing_is_mixed(method, penalty):
    # With mixing they differ: a sample of weight three has one partner, three samples have three.
    # No draw of partners gives a partner its own weight *and* equals repetition.
    torch.manual_seed(0)
    X, y = torch.randn(5, 4, dtype=torch.float64), torch.randint(3, (5,))
    weight = torch.tensor([1.0, 2.0, 3.0, 1.0, 2.0], dtype=torch.float64)
    repeated = torch.repeat_interleave(torch.arange(5), weight.long())
    module = MLP(4, 3).double()
    criterion = MixupELoss(method=method, alpha=1.0, eta=0.5, penalty=penalty)
    by_repetition = criterion(module, X[repeated], y[repeated])
    by_weight = criterion(module, X, y, weight / weight.mean())
    assert abs(by_repetition.loss - by_weight.loss) < 1e-12
    assert abs(by_repetition.penalty_term - by_weight.penalty_term) < 1e-12


def test_the_partner_has_its_own_weight():
    torch.manual_seed(0)
    X, y = torch.randn(2, 4, dtype=torch.float64), torch.tensor([0, 1])
    module = MLP(4, 2).double()
    lam = 0.7
    parts = MixupELoss(method="mixup")(
        module, X, y, torch.tensor([3.0, 0.5]).double(), draw=Draw(lam, np.array([1, 0]))
    )
    logits = module(lam * X + (1 - lam) * X.flip(0))
    loss = torch.nn.functional.cross_entropy
    rows = [
        lam * 3.0 * loss(logits[0], y[0]) + (1 - lam) * 0.5 * loss(logits[0], y[1]),
        lam * 0.5 * loss(logits[1], y[1]) + (1 - lam) * 3.0 * loss(logits[1], y[0]),
    ]
    assert abs(parts.mixup_loss - sum(rows) / 2) < 1e-12


def test_a_class_weighted_up_is_predicted_more_often():
    X, y = make_classification(
        1000, n_informative=4, weights=[0.9], flip_y=0.1, class_sep=0.5, random_state=0
    )
    counts = [
        (paper_classifier(random_state=0, class_weight=w).fit(X, y).predict(X) == 1).mean()
        for w in (None, {1: 3}, "balanced", {1: 100})
    ]
    assert counts == sorted(counts)
    assert counts[0] < counts[1] < counts[2] < counts[3]
    by_sample = paper_classifier(random_state=0).fit(X, y, sample_weight=np.where(y == 1, 3, 1))
    by_class = paper_classifier(random_state=0, class_weight={1: 3}).fit(X, y)
    assert np.array_equal(by_sample.predict_proba(X), by_class.predict_proba(X))


def test_balanced_gives_classes_equal_totals_also_under_sample_weights(small_digits):
    X, y = small_digits
    weight = np.random.default_rng(0).integers(1, 4, len(X)).astype(float)
    estimator = paper_classifier(class_weight="balanced")
    rows = estimator._rows(X, y, weight, is_new=True, learn=True)
    totals = np.bincount(rows.targets, weights=rows.weight)
    assert np.allclose(totals, totals[0])


def test_a_class_of_weight_zero_is_known_and_not_learned(small_digits):
    X, y = small_digits
    estimator = paper_classifier(class_weight={3: 0}, random_state=0).fit(X, y)
    assert 3 in estimator.classes_
    assert 3 not in estimator.predict(X)


def test_class_weight_for_multilabel_targets(multilabel):
    X, Y = multilabel
    counts = []
    for class_weight in (None, [{0: 1, 1: 1}, {0: 1, 1: 1}, {0: 1, 1: 30}]):
        classifier = paper_classifier(class_weight=class_weight, random_state=0, max_epochs=5)
        counts.append(classifier.fit(X, Y).predict(X)[:, 2].mean())
    assert counts[0] < counts[1]
    balanced = paper_classifier(class_weight="balanced", random_state=0, max_epochs=5).fit(X, Y)
    plain = paper_classifier(random_state=0, max_epochs=5).fit(X, Y)
    assert not np.array_equal(balanced.predict_proba(X), plain.predict_proba(X))


def test_balanced_weights_of_multilabel_targets_come_from_the_training_samples(multilabel):
    X, Y = multilabel
    estimator = paper_classifier(class_weight="balanced")
    rows = estimator._rows(X, Y, None, is_new=True, learn=True)
    # As in scikit-learn: the product of the balanced weights of each label.
    assert np.allclose(rows.weight, normalise(compute_sample_weight("balanced", Y)))
    one_sided = Y[:50].copy()
    one_sided[:, 0] = 0
    aside = estimator._rows(X[:50], one_sided, None, suffix="_val")
    expected = estimator._labels.weigh(one_sided, None, estimator._class_factors)
    assert np.allclose(aside.weight, normalise(expected))


def test_balanced_weights_where_a_later_call_lacks_a_class(small_digits):
    X, y = small_digits
    for part in (y > 0, y < 9):
        classifier = paper_classifier(class_weight="balanced", max_epochs=1, warm_start=True)
        classifier.fit(X, y).fit(X[part], y[part], X_val=X, y_val=y)
        assert np.isfinite(classifier._class_factors).all()
        assert np.isfinite(classifier.history_[-1]["valid_loss"])


def test_a_fold_may_lack_a_class_that_has_a_weight(small_digits):
    X, y = small_digits
    part = y > 0
    estimator = paper_classifier(class_weight=dict.fromkeys(range(10), 2.0), max_epochs=1)
    assert len(estimator.fit(X[part], y[part]).classes_) == 9


def test_samples_of_weight_zero_may_hold_anything(small_digits):
    X, y = small_digits[0].copy(), small_digits[1]
    weight = np.ones(len(X))
    weight[:10], X[:10] = 0, np.nan
    kept = paper_classifier(max_epochs=2, random_state=0).fit(X, y, sample_weight=weight)
    removed = paper_classifier(max_epochs=2, random_state=0).fit(X[10:], y[10:])
    assert np.array_equal(kept.predict_proba(X[10:]), removed.predict_proba(X[10:]))


def test_validation_weights_count(small_digits):
    X, y = small_digits
    X_val, y_val = X[200:], y[200:]
    losses = []
    for weight in (None, np.where(y_val == 0, 50.0, 1.0)):
        estimator = paper_classifier(random_state=0, max_epochs=2)
        estimator.fit(X[:200], y[:200], X_val=X_val, y_val=y_val, sample_weight_val=weight)
        losses.append([row["valid_loss"] for row in estimator.history_])
    assert losses[0] != losses[1]
