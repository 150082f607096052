"""Equal seeds give equal results, and global generators are restored."""

import joblib
import numpy as np
import pytest
import torch
from paper import paper_classifier, paper_regressor
from sklearn.model_selection import GridSearchCV, cross_val_score

SETTINGS = [
    {},
    {"penalty": "directional"},
    {"mix_at": "hidden"},
    {"early_stopping": True},
    {"module_params": {"dropout": 0.3, "batch_norm": True}},
]


def global_states():
    return np.random.get_state()[1].tobytes(), torch.get_rng_state().numpy().tobytes()


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_equal_seeds_give_equal_results(small_digits, settings):
    X, y = small_digits
    first, second, third = (
        paper_classifier(max_epochs=3, random_state=seed, **settings).fit(X, y).predict_proba(X)
        for seed in (0, 0, 1)
    )
    assert np.array_equal(first, second)
    assert not np.array_equal(first, third)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("random_state", [0, None])
def test_global_generators_are_restored(small_digits, settings, random_state):
    X, y = small_digits
    before = global_states()
    estimator = paper_classifier(max_epochs=2, random_state=random_state, **settings)
    estimator.fit(X, y)
    assert global_states() == before
    estimator.predict_proba(X)
    assert global_states() == before
    estimator.partial_fit(X, y)
    assert global_states() == before


def test_the_global_generator_does_not_matter(small_digits):
    X, y = small_digits
    results = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        np.random.seed(seed)
        results.append(paper_regressor(max_epochs=2, random_state=0).fit(X, y).predict(X))
    assert np.array_equal(*results)


def test_without_a_seed_fits_differ(small_digits):
    X, y = small_digits
    np.random.seed(0)
    first, second = (paper_classifier(max_epochs=1).fit(X, y).predict_proba(X) for _ in range(2))
    assert not np.array_equal(first, second)


def test_a_random_state_instance_advances(small_digits):
    X, y = small_digits
    shared = np.random.RandomState(0)
    first, second = (
        paper_classifier(max_epochs=1, random_state=shared).fit(X, y).predict_proba(X)
        for _ in range(2)
    )
    assert not np.array_equal(first, second)


def test_two_processes_score_equally(small_digits):
    X, y = small_digits
    estimator = paper_classifier(max_epochs=3, random_state=0)
    one, two = (cross_val_score(estimator, X, y, cv=4, n_jobs=jobs) for jobs in (1, 2))
    assert np.array_equal(one, two)


def test_a_grid_search_gives_the_same_with_one_and_two_processes(small_digits):
    X, y = small_digits
    grid = {"alpha": [0.1, 1.0], "eta": [0.01, 0.5]}
    searches = [
        GridSearchCV(paper_classifier(max_epochs=3, random_state=0), grid, cv=2, n_jobs=jobs)
        for jobs in (1, 2)
    ]
    one, two = (search.fit(X, y) for search in searches)
    assert np.array_equal(one.cv_results_["mean_test_score"], two.cv_results_["mean_test_score"])
    assert one.best_params_ == two.best_params_


def test_a_prediction_does_not_depend_on_the_other_samples(digits):
    X, y = digits
    estimator = paper_classifier(max_epochs=2, random_state=0).fit(X, y)
    together = estimator.predict_proba(X[:100])
    alone = np.vstack([estimator.predict_proba(X[i : i + 1]) for i in range(100)])
    assert np.allclose(together, alone, atol=1e-7, rtol=0)


def test_equal_seeds_give_equal_results_in_threads(iris):
    X, y = iris

    def fit(seed):
        return paper_classifier(random_state=seed, max_epochs=3).fit(X, y).predict_proba(X)

    expected = [fit(seed) for seed in range(3)]
    before = global_states()
    results = joblib.Parallel(n_jobs=4, backend="threading")(
        joblib.delayed(fit)(i % 3) for i in range(24)
    )
    assert all(np.array_equal(result, expected[i % 3]) for i, result in enumerate(results))
    assert global_states() == before
