"""MixupESearchCV behaves as scikit-learn's searches do, and also prunes, repeats and resumes."""

import pickle

import numpy as np
import optuna
import pandas as pd
import pytest
import sklearn
import torch
from optuna.distributions import FloatDistribution
from paper import paper_classifier, paper_pipeline, paper_regressor
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.exceptions import FitFailedWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, make_scorer
from sklearn.model_selection import GridSearchCV, GroupKFold, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mixupe_sklearn import MixupEClassifier, MixupESearchCV
from mixupe_sklearn._search import evaluate

GRID = {"alpha": [0.1, 1.0], "eta": [0.001, 0.1]}
QUICK = {"max_epochs": 4, "batch_size": 20}


@pytest.fixture(scope="module")
def rows(iris):
    """Iris in a shuffled order, so that short folds hold all classes."""
    order = np.random.default_rng(0).permutation(150)
    return iris[0][order], iris[1][order]


def states(search):
    return search.cv_results_["state"].tolist()


class NeverPrune(optuna.pruners.BasePruner):
    """Receives all epochs, and prunes no trial."""

    def prune(self, study, trial):
        return False


@pytest.mark.parametrize("vectorize", [True, False])
def test_a_grid_gives_the_results_of_grid_search(rows, vectorize):
    classifier = paper_classifier(**QUICK, random_state=0)
    ours = MixupESearchCV(classifier, GRID, cv=3, vectorize=vectorize).fit(*rows)
    theirs = GridSearchCV(classifier, GRID, cv=3).fit(*rows)
    assert set(theirs.cv_results_) <= set(ours.cv_results_)
    for name in theirs.cv_results_:
        if "test_score" in name or name == "params":
            np.testing.assert_array_equal(ours.cv_results_[name], theirs.cv_results_[name])
    assert ours.best_params_ == theirs.best_params_
    assert ours.best_score_ == theirs.best_score_
    assert ours.best_index_ == theirs.best_index_
    X = rows[0]
    np.testing.assert_array_equal(ours.predict_proba(X), theirs.predict_proba(X))
    assert ours.score(*rows) == theirs.score(*rows)
    np.testing.assert_array_equal(ours.classes_, theirs.classes_)
    assert ours.n_splits_ == 3
    assert ours.n_features_in_ == 4


def test_one_process_and_two_give_the_same_result(rows):
    searches = [
        MixupESearchCV(
            paper_classifier(**QUICK), GRID, cv=3, n_repeats=2, random_state=0, n_jobs=n_jobs
        ).fit(*rows)
        for n_jobs in (1, 2)
    ]
    one, two = (search.cv_results_ for search in searches)
    np.testing.assert_array_equal(one["mean_test_score"], two["mean_test_score"])
    np.testing.assert_array_equal(one["params"], two["params"])
    assert searches[0].best_params_ == searches[1].best_params_
    assert searches[0].seeds_ == searches[1].seeds_


def test_the_papers_space_has_its_nine_alphas_by_five_etas(rows):
    pipeline = paper_pipeline(max_epochs=1, batch_size=50)
    cv = ShuffleSplit(1, random_state=0)
    search = MixupESearchCV(pipeline, "paper", cv=cv, n_repeats=2, random_state=0, refit=False).fit(
        *rows
    )
    params = pd.DataFrame(search.cv_results_["params"])
    assert sorted(params["classifier__alpha"].unique()) == [
        0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0,
    ]  # fmt: skip
    assert sorted(params["classifier__eta"].unique()) == [1e-4, 1e-3, 1e-2, 1e-1, 1.0]
    assert len(params.drop_duplicates()) == 45
    assert search.n_splits_ == 2
    mixup = MixupESearchCV(pipeline.set_params(classifier__method="mixup"), "paper", cv=cv)
    assert len(mixup.fit(*rows).cv_results_["params"]) == 9


def test_seeds_are_the_same_for_every_configuration_and_the_mean_is_over_them(rows):
    search = MixupESearchCV(
        paper_classifier(**QUICK), {"alpha": [0.1, 1.0]}, cv=3, n_repeats=2, random_state=0
    ).fit(*rows)
    assert len(search.seeds_) == 2
    grid = {"alpha": [0.1, 1.0], "random_state": search.seeds_}
    theirs = GridSearchCV(paper_classifier(**QUICK), grid, cv=3).fit(*rows).cv_results_
    mean = np.reshape(theirs["mean_test_score"], (2, 2)).mean(axis=1)
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], mean)
    # Splits: the seeds of the first fold, then those of the second, ...
    np.testing.assert_array_equal(
        [search.cv_results_[f"split{number}_test_score"][0] for number in range(6)],
        np.column_stack([theirs[f"split{f}_test_score"][:2] for f in range(3)]).T.ravel(),
    )
    assert search.best_estimator_.random_state == search.seeds_[0]


def test_equal_seeds_give_equal_searches(rows):
    searches = [
        MixupESearchCV(paper_classifier(**QUICK), n_trials=12, cv=2, random_state=seed).fit(*rows)
        for seed in (0, 0, 1)
    ]
    first, second, other = (search.cv_results_ for search in searches)
    assert first["params"] == second["params"] != other["params"]
    np.testing.assert_array_equal(first["mean_test_score"], second["mean_test_score"])
    assert first["state"].tolist() == second["state"].tolist()


def test_global_generators_and_threads_are_left_as_found(rows):
    torch.manual_seed(3)
    np.random.seed(3)
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), torch.get_num_threads()
    MixupESearchCV(paper_classifier(**QUICK), n_trials=3, cv=2, random_state=0).fit(*rows)
    assert torch.equal(torch.get_rng_state(), before[0])
    np.testing.assert_array_equal(np.random.get_state()[1], before[1])
    assert torch.get_num_threads() == before[2]


@pytest.mark.parametrize("vectorize", [True, False])
@pytest.mark.parametrize("is_pipeline", [True, False])
def test_the_validation_score_of_each_epoch_is_reported(rows, vectorize, is_pipeline):
    classifier = paper_classifier(**QUICK, random_state=0)
    estimator, name = classifier, "alpha"
    if is_pipeline:
        estimator, name = make_pipeline(StandardScaler(), classifier), "mixupeclassifier__alpha"
    search = MixupESearchCV(
        estimator, {name: [0.1, 1.0]}, cv=2, pruner=NeverPrune(), vectorize=vectorize
    ).fit(*rows)
    trial = search.study_.trials[search.cv_results_["trial"][0]]
    assert sorted(trial.intermediate_values) == list(range(1, 9))
    split = [search.cv_results_[f"split{fold}_test_score"][0] for fold in (0, 1)]
    for n_epochs in range(1, 5):
        shorter = clone(estimator).set_params(**{name.replace("alpha", "max_epochs"): n_epochs})
        theirs = GridSearchCV(shorter, {name: [0.1]}, cv=2).fit(*rows).cv_results_
        scores = [theirs[f"split{fold}_test_score"][0] for fold in (0, 1)]
        # Epochs of the second fold are later steps, and their value is the mean of both folds.
        assert trial.intermediate_values[n_epochs] == pytest.approx(scores[0])
        mean = np.mean([split[0], scores[1]])
        assert trial.intermediate_values[4 + n_epochs] == pytest.approx(mean)


@pytest.mark.filterwarnings("error")
def test_each_fold_reports_all_epochs_that_min_steps_gives(rows):
    # Optuna ignored the first epochs of later folds: their steps were those of earlier folds.
    X, y = rows[0][:60], rows[1][:60]
    # 30 samples less 7 held-out ones are two batches, so that 9 steps need 5 epochs.
    params = {"n_members": 2, "max_epochs": 2, "min_steps": 9, "batch_size": 20}
    search = MixupESearchCV(
        MixupEClassifier(**params), {"lr": [1e-3, 1e-2]}, cv=2, pruner=NeverPrune(), random_state=0
    ).fit(X, y)
    for trial in search.study_.trials:
        assert sorted(trial.intermediate_values) == list(range(1, 11))
    assert search.cv_results_["n_epochs"].tolist() == [10, 10]
    space = {"batch_size": [10, 20, 40], "min_steps": [4, 9]}
    search = MixupESearchCV(
        MixupEClassifier(**params), space, cv=2, pruner="median", random_state=0
    ).fit(X, y)
    assert set(states(search)) <= {"complete", "pruned"}


@pytest.mark.parametrize(  # each value with each of the others
    ("pruner", "vectorize", "is_pipeline"),
    [
        ("auto", True, False),
        ("auto", False, True),
        ("hyperband", True, True),
        ("hyperband", False, False),
    ],
)
def test_poor_trials_are_pruned_early(rows, pruner, vectorize, is_pipeline):
    params = {"max_epochs": 9, "batch_size": 20}
    estimator = paper_pipeline(**params) if is_pipeline else paper_classifier(**params)
    name = "classifier__lr" if is_pipeline else "lr"
    space = {name: FloatDistribution(1e-6, 1e-2, log=True)}
    search = MixupESearchCV(
        estimator, space, n_trials=12, cv=2, pruner=pruner, random_state=0, vectorize=vectorize
    ).fit(*rows)
    results = pd.DataFrame(search.cv_results_)
    pruned = results[results["state"] == "pruned"]
    assert len(results) == 12
    assert len(pruned) >= 2
    assert (pruned["n_epochs"] < 18).all()
    assert pruned["mean_test_score"].isna().all()
    assert (pruned["rank_test_score"] > results.loc[search.best_index_, "rank_test_score"]).all()
    assert (results[results["state"] == "complete"]["n_epochs"] == 18).all()
    assert search.best_estimator_ is not None


def test_the_median_pruner_and_a_pruner_of_optunas(rows):
    space = {"lr": np.geomspace(1e-5, 1e-2, 12)}
    for pruner in ("median", optuna.pruners.ThresholdPruner(lower=0.6, n_warmup_steps=4)):
        search = MixupESearchCV(
            paper_classifier(max_epochs=6, batch_size=20), space, cv=2, pruner=pruner,
            random_state=0, vectorize=False,
        ).fit(*rows)  # fmt: skip
        assert "pruned" in states(search)
        assert search.best_params_["lr"] > 1e-3


@pytest.mark.filterwarnings("ignore:Exact p-value", "ignore:Sample size too small")  # older scipy
def test_the_wilcoxon_pruner_compares_folds_and_seeds(rows):
    space = {"lr": [1e-2, 1e-5, 2e-5, 3e-5]}
    search = MixupESearchCV(
        paper_classifier(max_epochs=5, batch_size=20),
        space,
        cv=5,
        n_repeats=2,
        pruner="wilcoxon",
        random_state=0,
        vectorize=False,
    ).fit(*rows)
    assert search.best_params_ == {"lr": 1e-2}
    assert "pruned" in states(search)
    complete = [t for t in search.study_.trials if t.state == optuna.trial.TrialState.COMPLETE]
    assert sorted(complete[0].intermediate_values) == list(range(10))
    number = states(search).index("pruned")
    assert search.cv_results_["n_epochs"][number] < 50


class RowCounter(TransformerMixin, BaseEstimator):
    """Records the number of samples of each fit, over all its clones."""

    seen = []  # noqa: RUF012

    def fit(self, X, y=None):
        self.n_features_in_ = X.shape[1]
        RowCounter.seen.append(len(X))
        return self

    def transform(self, X):
        return X


@pytest.mark.parametrize("vectorize", [True, False])
def test_preprocessing_sees_training_folds_only(rows, vectorize):
    RowCounter.seen.clear()
    MixupESearchCV(
        make_pipeline(RowCounter(), paper_classifier(**QUICK)),
        {"mixupeclassifier__alpha": [0.1, 1.0]},
        cv=3,
        refit=False,
        vectorize=vectorize,
        pruner=NeverPrune(),
    ).fit(*rows)
    assert set(RowCounter.seen) == {100}


def test_parameters_of_the_preprocessing_can_be_searched(rows):
    pipeline = make_pipeline(StandardScaler(), paper_classifier(**QUICK, random_state=0))
    space = {"standardscaler__with_std": [True, False], "mixupeclassifier__alpha": [0.1, 1.0]}
    ours = MixupESearchCV(pipeline, space, cv=2).fit(*rows)
    theirs = GridSearchCV(pipeline, space, cv=2).fit(*rows)
    np.testing.assert_array_equal(
        ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"]
    )
    assert "standardscaler__with_std" in ours.not_vectorized_because_


def test_choices_of_any_kind_and_numpy_values(rows):
    space = {
        "module_params": [{"d_hidden": (8,)}, {"d_hidden": (16, 16)}],
        "alpha": np.array([0.1, 1.0]),
    }
    search = MixupESearchCV(paper_classifier(**QUICK), space, cv=2, random_state=0).fit(*rows)
    assert len(search.cv_results_["params"]) == 4
    hidden = search.best_estimator_.module_params["d_hidden"]
    assert [stage[0].out_features for stage in search.best_estimator_.net_.module_.stages[:-1]] == (
        list(hidden)
    )


def test_several_metrics(rows):
    scoring = {"accuracy": "accuracy", "loss": "neg_log_loss"}
    params = {"cv": 2, "scoring": scoring}
    classifier = paper_classifier(**QUICK, random_state=0)
    ours = MixupESearchCV(classifier, GRID, refit="loss", **params).fit(*rows)
    theirs = GridSearchCV(classifier, GRID, refit="loss", **params).fit(*rows)
    for name in ("mean_test_accuracy", "mean_test_loss", "rank_test_loss"):
        np.testing.assert_allclose(ours.cv_results_[name], theirs.cv_results_[name], rtol=1e-5)
    assert ours.best_params_ == theirs.best_params_
    assert ours.multimetric_
    assert ours.score(*rows) == pytest.approx(theirs.score(*rows))
    assert {trial.value for trial in ours.study_.trials} == set(ours.cv_results_["mean_test_loss"])
    unfitted = MixupESearchCV(classifier, GRID, refit=False, **params).fit(*rows)
    assert not hasattr(unfitted, "best_params_")
    with pytest.raises(ValueError, match="multi-metric scoring, the parameter refit must be set"):
        MixupESearchCV(classifier, GRID, **params).fit(*rows)


def test_a_callable_may_choose_and_a_callable_may_score(rows):
    def second(results):
        return 1

    def both(estimator, X, y):
        return {"right": estimator.score(X, y), "wrong": 1 - estimator.score(X, y)}

    classifier = paper_classifier(**QUICK, random_state=0)
    chosen = MixupESearchCV(classifier, GRID, cv=2, refit=second).fit(*rows)
    assert chosen.best_index_ == 1
    assert chosen.best_params_ == chosen.cv_results_["params"][1]
    scored = MixupESearchCV(classifier, GRID, cv=2, scoring=both, refit="right").fit(*rows)
    np.testing.assert_allclose(
        scored.cv_results_["mean_test_right"], 1 - scored.cv_results_["mean_test_wrong"]
    )


@pytest.mark.parametrize("vectorize", [True, False])
def test_weights_are_split_along_the_folds(rows, vectorize):
    X, y = rows
    weight = np.where(y == 1, 5.0, 1.0)
    classifier = paper_classifier(**QUICK, random_state=0)
    ours = MixupESearchCV(classifier, GRID, cv=2, vectorize=vectorize)
    theirs = GridSearchCV(classifier, GRID, cv=2)
    # scikit-learn 1.9 passes weights on to the scorer, too
    ours.fit(X, y, sample_weight=weight)
    theirs.fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(
        ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"]
    )
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))


def test_metadata_is_routed_through_a_pipeline(rows):
    X, y = rows
    weight = np.where(y == 1, 5.0, 1.0)
    with sklearn.config_context(enable_metadata_routing=True):
        classifier = paper_classifier(**QUICK, random_state=0).set_fit_request(sample_weight=True)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        scorer = make_scorer(accuracy_score).set_score_request(sample_weight=True)
        params = {"cv": GroupKFold(3), "scoring": scorer}
        space = {"mixupeclassifier__alpha": [0.1, 1.0]}
        fit_params = {"sample_weight": weight, "groups": np.arange(150) % 7}
        searches = [
            kind(make_pipeline(scaler, classifier), space, **params).fit(X, y, **fit_params)
            for kind in (MixupESearchCV, GridSearchCV)
        ]
    ours, theirs = (search.cv_results_["mean_test_score"] for search in searches)
    np.testing.assert_array_equal(ours, theirs)


def test_clone_and_pickle(rows, tmp_path):
    place = tmp_path / "search.db"
    search = MixupESearchCV(paper_classifier(**QUICK), GRID, cv=2, random_state=0, storage=place)
    copy = clone(search)
    assert copy.get_params()["space"] == GRID
    search.fit(*rows)
    text = pickle.dumps(search)
    place.unlink()  # a model is used where no study is
    loaded = pickle.loads(text)
    np.testing.assert_array_equal(loaded.predict(rows[0]), search.predict(rows[0]))
    assert len(loaded.study_.trials) == 4
    assert loaded.best_params_ == search.best_params_


def test_n_trials_counts_the_study_and_finished_trials_are_not_run_again(rows, tmp_path):
    place = tmp_path / "search.db"

    def run(n_trials):
        search = MixupESearchCV(
            paper_classifier(**QUICK), n_trials=n_trials, cv=2, random_state=0, storage=place
        ).fit(*rows)
        assert len(search.cv_results_["params"]) == n_trials
        return [trial.datetime_start for trial in search.study_.trials], search.seeds_

    first, again, more = run(3), run(3), run(5)
    assert first == again
    assert more == (first[0] + more[0][3:], first[1])


def test_no_random_state_still_resumes_with_the_seeds_of_the_study(rows, tmp_path):
    search = MixupESearchCV(
        paper_classifier(**QUICK), GRID, n_trials=2, sampler="grid", cv=2, n_repeats=2,
        storage=tmp_path / "search.db",
    )  # fmt: skip
    seeds = search.fit(*rows).seeds_
    assert clone(search).set_params(n_trials=4).fit(*rows).seeds_ == seeds


class InterruptedScorer:
    """Is interrupted at its fifth call. What it counts is no part of a search's identity."""

    calls = []  # noqa: RUF012

    def __call__(self, estimator, X, y):
        self.calls.append(1)
        if len(self.calls) == 5:
            raise KeyboardInterrupt
        return estimator.score(X, y)


def test_an_interrupted_search_resumes(rows, tmp_path):
    calls = InterruptedScorer.calls
    calls.clear()
    search = MixupESearchCV(
        paper_classifier(**QUICK), GRID, cv=2, random_state=0, scoring=InterruptedScorer(),
        storage=tmp_path / "search.db", vectorize=False,
    )  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        search.fit(*rows)
    search.fit(*rows)
    assert states(search) == ["complete"] * 4
    assert len(calls) == 9  # two trials of two folds, the one that was cut, and two trials more


def test_a_timeout_ends_the_search_between_trials(rows):
    search = MixupESearchCV(
        paper_classifier(**QUICK), n_trials=10_000, timeout=1.0, cv=2, random_state=0
    ).fit(*rows)
    assert 1 <= len(search.cv_results_["params"]) < 10_000


class Fussy(LogisticRegression):
    """Fails with C=1."""

    def fit(self, X, y, sample_weight=None):
        if self.C == 1.0:
            raise RuntimeError("not one")
        return super().fit(X, y, sample_weight)


def test_failed_trials_are_reported_and_rank_last(rows):
    params = {"cv": 2, "pruner": "none"}
    with pytest.warns(FitFailedWarning, match="1 of 2 trials failed, .*RuntimeError: not one"):
        search = MixupESearchCV(Fussy(max_iter=1000), {"C": [1.0, 2.0]}, **params).fit(*rows)
    assert states(search) == ["failed", "complete"]
    assert search.best_params_ == {"C": 2.0}
    assert np.isnan(search.cv_results_["mean_test_score"][0])
    search = MixupESearchCV(Fussy(max_iter=1000), {"C": [1.0, 2.0]}, error_score=0.0, **params)
    with pytest.warns(
        FitFailedWarning, match="2 fits failed out of a total of 4, .* error_score=0"
    ):
        search.fit(*rows)
    assert search.cv_results_["mean_test_score"][0] == 0.0
    with pytest.raises(RuntimeError, match="not one"):
        search.set_params(error_score="raise").fit(*rows)


@pytest.mark.filterwarnings("ignore:1 of 3 trials failed")
def test_a_network_that_diverges_fails_its_trial_and_no_other(rows):
    space = {"lr": [1e30, 1e-2, 1e-3]}
    search = MixupESearchCV(paper_classifier(**QUICK), space, cv=2, random_state=0).fit(*rows)
    assert search.not_vectorized_because_ is None
    assert states(search) == ["failed", "complete", "complete"]


def test_regression_multilabel_and_sparse_input(diabetes, multilabel, rows, monkeypatch):
    X, y = diabetes
    quick = {"max_epochs": 3, "batch_size": 50}
    search = MixupESearchCV(paper_regressor(**quick), GRID, cv=2, random_state=0).fit(X, y)
    assert search.not_vectorized_because_ is None
    assert search.score(X, y) == search.best_estimator_.score(X, y)
    X, y = multilabel
    search = MixupESearchCV(paper_classifier(**quick), GRID, cv=2, random_state=0).fit(X, y)
    assert search.predict(X).shape == y.shape
    X, y = rows
    search = MixupESearchCV(paper_classifier(**quick), GRID, cv=2, random_state=0)
    scores = search.fit(sparse.csr_array(X), y).cv_results_["mean_test_score"]
    assert search.not_vectorized_because_ is None
    monkeypatch.setattr(evaluate, "DENSE_ENTRIES", 0)  # as if there were too many to make dense
    assert search.fit(sparse.csr_array(X), y).not_vectorized_because_ == "X is sparse"
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], scores)


def test_data_frames_with_strings_and_missing_values(rows):
    frame = pd.DataFrame(rows[0], columns=list("abcd"))
    frame["e"] = np.where(rows[1] == 0, "low", None)
    search = MixupESearchCV(
        paper_pipeline(**QUICK), {"classifier__alpha": [0.1, 1.0]}, cv=2, random_state=0
    ).fit(frame, rows[1])
    assert search.not_vectorized_because_ is None
    assert search.feature_names_in_.tolist() == list("abcde")
    assert search.predict(frame).shape == (150,)


def test_a_bar_shows_the_best_score(rows, capsys):
    search = MixupESearchCV(paper_classifier(**QUICK), GRID, cv=2, random_state=0, verbose=1)
    search.fit(*rows)
    shown = capsys.readouterr().err
    assert "4/4" in shown
    assert f"best={search.best_score_:.4f}" in shown


def test_nothing_is_printed_or_logged_by_default(rows, capfd):
    MixupESearchCV(paper_classifier(**QUICK), n_trials=3, cv=2, random_state=0).fit(*rows)
    assert capfd.readouterr() == ("", "")
