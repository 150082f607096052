"""scikit-learn's own checks for the search, as for scikit-learn's own searches."""

import pytest
from paper import paper_classifier, paper_regressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils.estimator_checks import parametrize_with_checks

from mixupe_sklearn import MixupESearchCV

# scikit-learn runs its own searches with these two parameters.
COMMON = {"cv": 2, "error_score": "raise", "random_state": 0}
OURS = {"max_epochs": 3, "batch_size": 50, "lr": 0.01}  # few steps, but enough to learn
SEARCHES = [
    MixupESearchCV(paper_classifier(**OURS), {"alpha": [0.1, 1.0]}, **COMMON),
    MixupESearchCV(paper_regressor(**OURS), {"alpha": [0.1, 1.0]}, **COMMON),
    # A sampler that learns, and networks one by one: two that the first search does not have.
    MixupESearchCV(paper_classifier(**OURS), n_trials=2, vectorize=False, **COMMON),
    MixupESearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, pruner="none", **COMMON),
    MixupESearchCV(Ridge(), {"alpha": [0.1, 1.0]}, pruner="none", **COMMON),
]


def expected_failures(search):
    # Declared by scikit-learn for GridSearchCV over a Ridge, too: a search does not validate y.
    if isinstance(search.estimator, Ridge):
        return {"check_supervised_y_2d": "DataConversionWarning not caught"}
    return {}


@pytest.mark.filterwarnings("ignore")  # the checks provoke warnings on purpose
@parametrize_with_checks(SEARCHES, expected_failed_checks=expected_failures)
def test_the_search_keeps_scikit_learns_contract(estimator, check):
    check(estimator)
