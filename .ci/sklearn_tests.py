"""Run scikit-learn's own tests of its searches with MixupESearchCV in the place of two of them.

    python .ci/sklearn_tests.py [options of pytest]

``MixupESearchCV`` takes the place of ``GridSearchCV`` and of ``RandomizedSearchCV``, with their
parameters. The tests are those of the installed scikit-learn.
``sklearn_expected_failures.txt`` lists the failures that remain, each with its reason.
"""

import pathlib
import sys
from typing import Any

import numpy as np
import pytest
import sklearn.model_selection

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from upstream_tests import HERE, mark_listed, run

from mixupe_sklearn import MixupESearchCV

LIST = HERE / "sklearn_expected_failures.txt"
TESTS = pathlib.Path(sklearn.model_selection.__file__).parent / "tests"
NAMES = ("test_search.py",)
# Parameters of our search that scikit-learn's searches do not have, and those that it lacks.
OURS: dict[str, Any] = {
    "timeout": None,
    "n_repeats": 1,
    "sampler": "auto",
    "pruner": "none",
    "storage": None,
    "study_name": "tests",
    "vectorize": "auto",
    "trial_params": None,
}


class GridSearchCV(MixupESearchCV):
    """Our search with the parameters of scikit-learn's grid search."""

    def __init__(
        self,
        estimator,
        param_grid,
        *,
        scoring=None,
        n_jobs=None,
        refit=True,
        cv=None,
        verbose=0,
        pre_dispatch="2*n_jobs",
        error_score=np.nan,
        return_train_score=False,
    ):
        super().__init__(
            estimator,
            scoring=scoring,
            n_jobs=n_jobs,
            refit=refit,
            cv=cv,
            verbose=verbose,
            error_score=error_score,
            return_train_score=return_train_score,
            **OURS,
        )
        self.param_grid = param_grid
        self.pre_dispatch = pre_dispatch

    @property
    def space(self):
        """The space under its name in scikit-learn."""
        return self.param_grid

    @space.setter
    def space(self, value):
        pass


class RandomizedSearchCV(MixupESearchCV):
    """Our search with the parameters of scikit-learn's randomized search."""

    def __init__(
        self,
        estimator,
        param_distributions,
        *,
        n_iter=10,
        scoring=None,
        n_jobs=None,
        refit=True,
        cv=None,
        verbose=0,
        pre_dispatch="2*n_jobs",
        random_state=None,
        error_score=np.nan,
        return_train_score=False,
    ):
        super().__init__(
            estimator,
            scoring=scoring,
            n_jobs=n_jobs,
            refit=refit,
            cv=cv,
            verbose=verbose,
            random_state=random_state,
            error_score=error_score,
            return_train_score=return_train_score,
            **OURS,
        )
        self.param_distributions = param_distributions
        self.n_iter = n_iter
        self.pre_dispatch = pre_dispatch

    @property
    def space(self):
        """The space under its name in scikit-learn."""
        return self.param_distributions

    @space.setter
    def space(self, value):
        pass

    @property
    def n_trials(self):
        """The number of trials under its name in scikit-learn."""
        return self.n_iter

    @n_trials.setter
    def n_trials(self, value):
        pass


def pytest_configure() -> None:
    """Replace scikit-learn's searches before its tests import them."""
    sklearn.model_selection.GridSearchCV = GridSearchCV
    sklearn.model_selection.RandomizedSearchCV = RandomizedSearchCV


@pytest.hookimpl(tryfirst=True)  # before an option such as -k removes tests
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the listed tests."""
    mark_listed(items, TESTS, LIST)


if __name__ == "__main__":
    sys.exit(run("sklearn_tests", TESTS, NAMES, sys.argv[1:]))
