"""Under metadata routing, weights and groups reach our pipeline without a request by the user."""

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate

from mixupe_sklearn import MixupEClassifier, MixupESearchCV, make_mixupe_pipeline, preset

QUICK = preset("paper") | {"max_epochs": 3, "batch_size": 20, "random_state": 0}
SPACE = {"classifier__alpha": [0.1, 1.0]}
FOLDS = GroupKFold(3)


@pytest.fixture
def data(iris):
    X, y = iris
    order = np.random.default_rng(0).permutation(150)
    X, y = X[order], y[order]
    return X, y, np.where(y == 1, 9.0, 1.0), np.arange(150) % 7


@pytest.fixture
def _routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def scores_by_hand(pipeline, X, y, weight, groups):
    """Weighted scores of each fold, with the weights given to the last step by name."""
    found = []
    with sklearn.config_context(enable_metadata_routing=False):
        for train, test in FOLDS.split(X, y, groups):
            model = clone(pipeline)
            model.fit(X[train], y[train], classifier__sample_weight=weight[train])
            found.append(model.score(X[test], y[test], sample_weight=weight[test]))
    return found


@pytest.mark.usefixtures("_routing")
def test_cross_validate_passes_weights_and_groups(data):
    X, y, weight, groups = data
    pipeline = make_mixupe_pipeline(**QUICK)
    params = {"sample_weight": weight, "groups": groups}
    found = cross_validate(pipeline, X, y, cv=FOLDS, params=params, error_score="raise")
    np.testing.assert_allclose(found["test_score"], scores_by_hand(pipeline, X, y, weight, groups))
    assert not np.allclose(
        found["test_score"], scores_by_hand(pipeline, X, y, np.ones(150), groups)
    )


@pytest.mark.parametrize("kind", [GridSearchCV, MixupESearchCV])
@pytest.mark.usefixtures("_routing")
def test_a_search_passes_weights_and_groups(data, kind):
    X, y, weight, groups = data
    pipeline = make_mixupe_pipeline(**QUICK)
    search = kind(pipeline, SPACE, cv=FOLDS, error_score="raise")
    search.fit(X, y, sample_weight=weight, groups=groups)
    for number, alpha in enumerate(SPACE["classifier__alpha"]):
        own = clone(pipeline).set_params(classifier__alpha=alpha)
        found = [search.cv_results_[f"split{fold}_test_score"][number] for fold in range(3)]
        np.testing.assert_allclose(found, scores_by_hand(own, X, y, weight, groups))
    best = clone(pipeline).set_params(**search.best_params_).fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(search.predict_proba(X), best.predict_proba(X))


@pytest.mark.usefixtures("_routing")
def test_groups_and_weights_reach_the_folds_within_the_folds(data):
    X, y, weight, groups = data
    search = MixupESearchCV(
        make_mixupe_pipeline(**QUICK | {"max_epochs": 1}), SPACE, cv=GroupKFold(2)
    )
    params = {"sample_weight": weight, "groups": groups}
    found = cross_validate(
        search, X, y, cv=FOLDS, params=params, error_score="raise", return_estimator=True
    )
    for (train, _), inner in zip(FOLDS.split(X, y, groups), found["estimator"], strict=True):
        own = clone(search).fit(
            X[train], y[train], sample_weight=weight[train], groups=groups[train]
        )
        np.testing.assert_array_equal(
            inner.cv_results_["mean_test_score"], own.cv_results_["mean_test_score"]
        )


@pytest.mark.usefixtures("_routing")
def test_a_user_can_decline_weights(data):
    X, y, weight, _ = data
    classifier = MixupEClassifier(**QUICK).set_fit_request(sample_weight=False)
    classifier.set_score_request(sample_weight=False)
    search = GridSearchCV(classifier, {"alpha": [1.0]}, cv=2, error_score="raise")
    without = clone(search).fit(X, y).cv_results_["mean_test_score"]
    with pytest.raises(TypeError, match="unexpected argument.* {'sample_weight'}"):
        search.fit(X, y, sample_weight=weight)
    requesting = clone(search).set_params(estimator=MixupEClassifier(**QUICK))
    weighted = requesting.fit(X, y, sample_weight=weight).cv_results_["mean_test_score"]
    assert weighted[0] != without[0]
