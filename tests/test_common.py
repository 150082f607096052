"""scikit-learn's own checks, over every method, both penalties, hidden mixing and early stopping.

scikit-learn runs the weight equivalence check of its MLPClassifier with a solver that uses all rows
at once, since a stochastic one cannot pass it to seven digits. We do the same: without mixing and
in double precision there is no expected failure at all.
"""

import pytest
import torch
from sklearn.utils.estimator_checks import parametrize_with_checks

from mixupe_sklearn import MixupEClassifier, MixupERegressor
from mixupe_sklearn.modules import MLP

WEIGHT_CHECKS = (
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
)
REASON = (
    "a row repeated three times is mixed with three partners, a row of weight three with one; "
    "without mixing the check passes"
)


class DoubleMLP(MLP):
    def __init__(self, n_features, n_outputs):
        super().__init__(n_features, n_outputs)
        self.to(torch.float64)


ESTIMATORS = [
    MixupEClassifier(),
    MixupEClassifier(method="mixup"),
    MixupEClassifier(method="erm", module=DoubleMLP),
    MixupEClassifier(method="erm+penalty", module=DoubleMLP),
    MixupEClassifier(penalty="directional"),
    MixupEClassifier(mix_at="hidden"),
    MixupEClassifier(early_stopping=True),
    MixupERegressor(),
    MixupERegressor(method="erm", module=DoubleMLP),
    MixupERegressor(penalty="directional"),
    MixupERegressor(mix_at="hidden"),
    MixupERegressor(early_stopping=True),
]


def expected_failures(estimator):
    is_mixed = estimator.method in ("mixup", "mixupe")
    return dict.fromkeys(WEIGHT_CHECKS, REASON) if is_mixed else {}


@pytest.mark.filterwarnings("ignore")  # the checks provoke warnings on purpose
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected_failures)
def test_estimators_keep_scikit_learns_contract(estimator, check):
    check(estimator)
