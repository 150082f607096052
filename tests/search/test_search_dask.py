"""joblib's Dask backend: a real cluster of two worker processes on this machine."""

import distributed
import joblib
import numpy as np
import pytest
from paper import paper_classifier, paper_pipeline
from sklearn.model_selection import GridSearchCV

from mixupe_sklearn import MixupESearchCV

GRID = {"classifier__alpha": [0.1, 1.0], "classifier__eta": [0.001, 0.1]}


@pytest.fixture(scope="module")
def cluster():
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_searches_on_a_dask_cluster_equal_local_ones(cluster, small_digits):
    pipeline = paper_pipeline(max_epochs=5, random_state=0)
    make = [
        lambda: GridSearchCV(pipeline, GRID, cv=2),
        lambda: MixupESearchCV(pipeline, GRID, cv=2, random_state=0),
    ]
    local = [search().fit(*small_digits) for search in make]
    with joblib.parallel_config("dask"):
        remote = [search().fit(*small_digits) for search in make]
    for here, there in zip(local, remote, strict=True):
        np.testing.assert_array_equal(
            here.cv_results_["mean_test_score"], there.cv_results_["mean_test_score"]
        )
        assert here.best_params_ == there.best_params_
    assert len(cluster.scheduler_info()["workers"]) == 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_a_search_that_learns_runs_on_a_cluster(cluster, small_digits, tmp_path):
    search = MixupESearchCV(
        paper_classifier(max_epochs=5), n_trials=9, cv=2, storage=tmp_path / "search.db", n_jobs=2
    )
    with joblib.parallel_config("dask"):
        search.fit(*small_digits)
    assert len(search.cv_results_["params"]) == 9
