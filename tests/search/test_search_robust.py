"""What can go wrong in a search: interrupts, odd spaces, failing scorers, transient errors, lost trials."""

import os
import pickle
import sqlite3
import time

import numpy as np
import optuna
import pandas as pd
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from paper import paper_classifier, paper_pipeline, paper_regressor
from scipy import sparse, stats
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score, make_scorer
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import SplineTransformer, StandardScaler
from sklearn.svm import LinearSVC

from mixupe_sklearn import MixupEClassifier, MixupESearchCV
from mixupe_sklearn._estimators.fit_monitor import HAS_CALLBACKS
from mixupe_sklearn._search import evaluate, worker
from mixupe_sklearn._search import storage as storage_module
from mixupe_sklearn._search.heartbeats import heartbeats
from mixupe_sklearn._search.study import live_trials
from mixupe_sklearn.modules import MLP

QUICK = {"max_epochs": 3, "batch_size": 20}
GRID = {"alpha": [0.1, 1.0]}


def search(estimator=None, space=GRID, **params):
    params = {"cv": 2, "random_state": 0, **params}
    return MixupESearchCV(estimator or paper_classifier(**QUICK), space, **params)


with storage_module.quiet():
    BRUTE_FORCE = optuna.samplers.BruteForceSampler()


def states(found):
    return found.cv_results_["state"].tolist()


# Spaces.


@pytest.mark.parametrize(
    ("space", "params", "n_trials"),
    [
        ({"alpha": [0.1, 0.1, 1.0]}, {}, 2),
        ({"alpha": [1, 1.0]}, {}, 2),
        ({"alpha": [0.1, 1.0]}, {"sampler": "tpe"}, 2),
        ({"alpha": [0.1, 1.0]}, {"sampler": "random", "n_trials": 6}, 2),
        ({"alpha": [0.1, 1.0, 2.0]}, {"sampler": BRUTE_FORCE}, 3),
        ({"alpha": [0.1, 1.0]}, {"sampler": optuna.samplers.GridSampler({"alpha": [0.1, 1.0]})}, 2),
        ({"alpha": [0.1 * k for k in range(1, 9)]}, {"n_trials": 5}, 5),
    ],
)
def test_a_finite_space_is_searched_to_its_end_and_no_further(iris, space, params, n_trials):
    found = search(space=space, **params).fit(*iris)
    assert len(found.cv_results_["params"]) == n_trials
    assert len(found.study_.trials) == n_trials


def first_rule(X):
    return X


def second_rule(X):
    return -X


@pytest.mark.parametrize(
    "choices",
    [
        [np.nan, -1.0],
        [None, True, 1],
        [first_rule, second_rule],
        [StandardScaler(), StandardScaler(with_mean=False)],
    ],
    ids=["nan", "equal", "functions", "estimators"],
)
def test_choices_of_any_kind_survive_a_storage(iris, tmp_path, choices):
    class Anything(TransformerMixin, BaseEstimator):
        def __init__(self, rule=None):
            self.rule = rule

        def fit(self, X, y=None):
            return self

        def transform(self, X):
            return X

    pipeline = make_pipeline(Anything(), paper_classifier(**QUICK))
    space = {"anything__rule": choices}
    for _ in range(2):  # the second call finds the first one's study
        found = search(pipeline, space, storage=tmp_path / "search.db").fit(*iris)
    kinds = [type(params["anything__rule"]) for params in found.cv_results_["params"]]
    assert kinds == [type(choice) for choice in choices]


@pytest.mark.filterwarnings("ignore:Choices for a categorical distribution")
def test_numpy_scalars_in_a_distribution_and_steps(iris, tmp_path):
    space = {
        "batch_size": CategoricalDistribution([np.int64(20), np.int64(50)]),
        "max_epochs": IntDistribution(2, 6, step=2),
    }
    found = search(space=space, n_trials=4, storage=tmp_path / "search.db").fit(*iris)
    assert {params["max_epochs"] for params in found.cv_results_["params"]} <= {2, 4, 6}


def test_rungs_are_those_of_the_longest_training_of_the_space(iris):
    space = {"max_epochs": IntDistribution(12, 36), "lr": FloatDistribution(1e-4, 1e-2, log=True)}
    found = search(paper_classifier(max_epochs=1, batch_size=50), space, n_trials=8).fit(*iris)
    pruned = found.cv_results_["n_epochs"][found.cv_results_["state"] == "pruned"]
    assert (pruned > 2).all()


def test_a_searched_seed_is_used(iris):
    found = search(space={"random_state": [0, 1, 2]}).fit(*iris)
    theirs = GridSearchCV(paper_classifier(**QUICK), {"random_state": [0, 1, 2]}, cv=2).fit(*iris)
    np.testing.assert_allclose(
        found.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"]
    )
    assert found.best_estimator_.random_state == found.best_params_["random_state"]
    with pytest.raises(ValueError, match="n_repeats=2 .* but expected 1: the space has its random"):
        search(space={"random_state": [0, 1]}, n_repeats=2).fit(*iris)


def test_the_last_step_can_be_searched_over(iris):
    pipeline = Pipeline([("scale", StandardScaler()), ("model", paper_classifier(**QUICK))])
    space = {"model": [paper_classifier(**QUICK), KNeighborsClassifier()]}
    found = search(pipeline, space).fit(*iris)
    assert states(found) == ["complete"] * 2
    assert isinstance(found.best_params_["model"], KNeighborsClassifier)


# Interrupts and failures.


class Interrupted(MLP):
    """Is interrupted by the user in the middle of the second fit, once."""

    n_calls = 0

    def forward(self, X):
        Interrupted.n_calls += self.training
        if Interrupted.n_calls == 20:
            Interrupted.n_calls += 1
            raise KeyboardInterrupt
        return super().forward(X)


def test_an_interrupt_within_a_fit_ends_the_search_and_stores_no_half_trained_network(
    iris, tmp_path
):
    classifier = paper_classifier(module=Interrupted, **QUICK)
    interrupted = search(classifier, storage=tmp_path / "search.db")
    Interrupted.n_calls = 0
    with pytest.raises(KeyboardInterrupt):
        interrupted.fit(*iris)
    found = interrupted.fit(*iris)
    assert states(found) == ["complete"] * 2
    assert found.cv_results_["n_epochs"].tolist() == [6, 6]
    undisturbed = search(paper_classifier(**QUICK)).fit(*iris)
    np.testing.assert_allclose(
        found.cv_results_["mean_test_score"], undisturbed.cv_results_["mean_test_score"]
    )


@pytest.mark.filterwarnings("ignore:.* failed:sklearn.exceptions.FitFailedWarning")
@pytest.mark.parametrize("vectorize", ["auto", False])
def test_a_score_that_fails_in_an_epoch_fails_its_trial_only(iris, vectorize):
    calls = []

    def scorer(estimator, X, y):
        calls.append(estimator.alpha)
        if estimator.alpha > 1.5 and calls.count(estimator.alpha) > 1:
            raise RuntimeError("too much")
        return estimator.score(X, y)

    params = {"pruner": optuna.pruners.PercentilePruner(99.0), "vectorize": vectorize}
    space = {"alpha": [0.1, 1.0, 2.0]}
    found = search(space=space, scoring=scorer, **params).fit(*iris)
    assert states(found) == ["complete", "complete", "failed"]
    calls.clear()
    found = search(space=space, scoring=scorer, error_score=0.0, **params).fit(*iris)
    assert found.cv_results_["mean_test_score"][2] == 0.0
    assert states(found) == ["complete"] * 3


@pytest.mark.filterwarnings("ignore:.* failed:sklearn.exceptions.FitFailedWarning")
def test_a_network_that_diverges_under_pruning_fails_its_trial_only(diabetes):
    space = {"lr": [1e-3, 1e-2, 1e25]}
    found = search(paper_regressor(**QUICK), space, pruner="median").fit(*diabetes)
    assert states(found)[:2] == ["complete"] * 2
    assert states(found)[2] == "failed"


def test_raise_blames_the_trial_that_failed(iris, tmp_path):
    def scorer(estimator, X, y):
        if estimator.alpha == 1.0:
            raise RuntimeError("only alpha=1 fails")
        return estimator.score(X, y)

    space = {"alpha": [0.1, 0.5, 1.0]}
    failing = search(space=space, scoring=scorer, error_score="raise", storage=tmp_path / "s.db")
    with pytest.raises(RuntimeError, match="only alpha=1 fails"):
        failing.fit(*iris)
    study = optuna.load_study(study_name="mixupe-search", storage=f"sqlite:///{tmp_path / 's.db'}")
    failed = [t.params["alpha"] for t in live_trials(study) if t.state.name == "FAIL"]
    assert failed == [1.0]


@pytest.mark.filterwarnings("ignore:.* failed:sklearn.exceptions.FitFailedWarning")
def test_a_function_that_scores_by_several_metrics_and_fails_once(iris):
    def scorer(estimator, X, y):
        if estimator.C == 1.0:
            raise RuntimeError
        return {"right": estimator.score(X, y), "C": -estimator.C}

    space = {"C": [1.0, 2.0, 3.0]}
    model = LogisticRegression(max_iter=1000)
    params = {"scoring": scorer, "refit": "right", "error_score": 0.0, "cv": 2}
    found = MixupESearchCV(model, space, pruner="none", **params).fit(*iris)
    assert found.cv_results_["mean_test_right"][0] == found.cv_results_["mean_test_C"][0] == 0.0
    assert found.best_params_["C"] in (2.0, 3.0)


@pytest.mark.parametrize("vectorize", ["auto", False])
def test_a_scorer_of_the_users_sees_the_pipeline_and_raw_rows_in_every_epoch(iris, vectorize):
    frame = pd.DataFrame(iris[0], columns=list("abcd"))

    def scorer(estimator, X, y):
        assert list(X.columns) == list("abcd")
        assert "preprocessor" in estimator.named_steps
        return estimator.score(X, y)

    space = {"classifier__alpha": [0.1, 1.0]}
    found = search(
        paper_pipeline(**QUICK), space, scoring=scorer, pruner="median", vectorize=vectorize
    ).fit(frame, iris[1])
    assert states(found) == ["complete"] * 2


class Thinner(TransformerMixin, BaseEstimator):
    """Returns sparse output after its first fit."""

    n_fits = 0

    def fit(self, X, y=None):
        Thinner.n_fits += 1
        self.is_sparse_ = Thinner.n_fits > 1
        return self

    def transform(self, X):
        return sparse.csr_array(X) if self.is_sparse_ else X


def test_a_later_fold_that_is_sparse_is_fitted_one_by_one(iris, monkeypatch):
    monkeypatch.setattr(evaluate, "DENSE_ENTRIES", 0)
    Thinner.n_fits = 0
    pipeline = make_pipeline(Thinner(), paper_classifier(**QUICK, random_state=0))
    space = {"mixupeclassifier__alpha": [0.1, 1.0]}
    found = search(pipeline, space, refit=False).fit(*iris)
    theirs = GridSearchCV(paper_classifier(**QUICK, random_state=0), GRID, cv=2).fit(*iris)
    np.testing.assert_allclose(
        found.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"]
    )


def test_vectorize_true_raises_what_the_data_or_the_space_stand_against(iris, monkeypatch):
    monkeypatch.setattr(evaluate, "DENSE_ENTRIES", 0)
    with pytest.raises(ValueError, match="vectorize=True, but networks cannot train as one: X is"):
        search(vectorize=True).fit(sparse.csr_array(iris[0]), iris[1])
    with pytest.raises(ValueError, match="cannot train as one: penalty_order is not 1"):
        search(space={"penalty_order": [2, 1]}, vectorize=True).fit(*iris)


# Studies and storages.


def lose_trials(place):
    """As if a process had died between failing trials and queueing them again."""
    storage = storage_module.open_storage(place)
    study = optuna.load_study(study_name="mixupe-search", storage=storage)
    with storage_module.quiet():
        for trial in (study.ask({"alpha": CategoricalDistribution([0.1, 1.0])}) for _ in range(2)):
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
    storage_module.close_connections(storage)


def test_trials_that_were_failed_but_not_queued_again_are_found(iris, tmp_path):
    place = tmp_path / "search.db"
    with pytest.raises(ValueError, match="No trial was finished"):
        search(storage=place, timeout=1e-9).fit(*iris)
    lose_trials(place)
    assert states(search(storage=place).fit(*iris)) == ["complete"] * 2


@pytest.mark.parametrize(
    ("first", "second", "part"),
    [
        ({"scoring": make_scorer(accuracy_score)}, {"scoring": make_scorer(f1_score, average="macro")}, "scoring"),
        ({"scoring": {"m": "accuracy"}, "refit": "m"}, {"scoring": {"m": "neg_log_loss"}, "refit": "m"}, "scoring"),
        ({"scoring": ["accuracy", "neg_log_loss"], "refit": "accuracy"}, {"scoring": ["accuracy", "neg_log_loss"], "refit": "neg_log_loss"}, "metric"),
        ({"error_score": 0.0}, {"error_score": np.nan}, "error_score"),
    ],
)  # fmt: skip
def test_a_study_belongs_to_one_way_of_scoring(iris, tmp_path, first, second, part):
    place = tmp_path / "search.db"
    search(storage=place, **first).fit(*iris)
    search(storage=place, **first).fit(*iris)
    with pytest.raises(ValueError, match=f"another {part}"):
        search(storage=place, **second).fit(*iris)


def test_a_study_belongs_to_one_set_of_weights(iris, tmp_path):
    X, y = iris
    place = tmp_path / "search.db"
    search(storage=place).fit(X, y, sample_weight=np.ones(150))
    with pytest.raises(ValueError, match="another fit_params"):
        search(storage=place).fit(X, y, sample_weight=np.arange(1, 151))


def test_cells_that_hold_lists_do_no_harm(iris, tmp_path):
    frame = pd.DataFrame({"cell": [[value] for value in iris[0][:, 2]]})

    class First(TransformerMixin, BaseEstimator):
        def fit(self, X, y=None):
            return self

        def transform(self, X):
            return np.array([[cell[0]] for cell in X["cell"]])

    pipeline = make_pipeline(First(), paper_classifier(**QUICK))
    space = {"mixupeclassifier__alpha": [0.1, 1.0]}
    for place in (None, tmp_path / "search.db"):
        found = search(pipeline, space, storage=place).fit(frame, iris[1])
        assert states(found) == ["complete"] * 2


def test_any_storage_without_heartbeat_is_warned_about(iris, tmp_path):
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "journal.log"))
    with pytest.warns(UserWarning, match="Got a JournalStorage without heartbeat_interval"):
        search(storage=optuna.storages.JournalStorage(backend)).fit(*iris)


def test_a_file_that_is_locked_or_not_writable(iris, tmp_path, monkeypatch):
    monkeypatch.setattr(storage_module, "LOCK_SECONDS", 0.1)
    place = tmp_path / "search.db"
    search(storage=place).fit(*iris)
    holder = sqlite3.connect(place, isolation_level=None)
    holder.execute("PRAGMA journal_mode=DELETE")
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(ValueError, match="cannot be reached or written: database is locked"):
        search(storage=place).fit(*iris)
    holder.close()
    place.chmod(0o444)
    if not os.access(place, os.W_OK):  # root may write anything
        with pytest.raises(ValueError, match="cannot be reached or written: .*readonly"):
            search(storage=place).fit(*iris)


def test_a_fitted_search_outlives_its_database(iris, tmp_path):
    with storage_module.quiet():
        storage = optuna.storages.RDBStorage(
            f"sqlite:///{tmp_path / 'search.db'}", heartbeat_interval=5
        )
    found = search(storage=storage).fit(*iris)
    text = pickle.dumps(found)
    (tmp_path / "search.db").unlink()
    storage_module.close_connections(storage)
    for loaded in (pickle.loads(text), pickle.loads(pickle.dumps(found))):
        np.testing.assert_array_equal(loaded.predict(iris[0]), found.predict(iris[0]))
    assert len(pickle.loads(text).study_.trials) == 2


def test_a_database_in_memory_is_memory(iris):
    assert len(search(storage="sqlite:///:memory:").fit(*iris).study_.trials) == 2


def test_heartbeats_continue_after_a_transient_error(tmp_path, monkeypatch):
    monkeypatch.setattr(storage_module, "HEARTBEAT", 1)
    storage = storage_module.open_storage(tmp_path / "search.db")
    with storage_module.quiet():
        trial = optuna.create_study(storage=storage).ask()
    beats = []

    def record(trial_id):
        beats.append(trial_id)
        if len(beats) == 1:
            raise optuna.exceptions.StorageInternalError("out of reach")

    monkeypatch.setattr(storage, "record_heartbeat", record)
    with heartbeats(storage, [trial]):
        end = time.monotonic() + 300
        while len(beats) < 2 and time.monotonic() < end:
            time.sleep(0.05)
    assert len(beats) >= 2
    storage_module.close_connections(storage)


def test_a_lost_report_does_no_harm(iris, monkeypatch):
    report, calls = optuna.trial.Trial.report, []

    def transient_error(self, value, step):
        calls.append(step)
        if len(calls) == 2:
            raise optuna.exceptions.StorageInternalError("out of reach")
        return report(self, value, step)

    monkeypatch.setattr(optuna.trial.Trial, "report", transient_error)
    found = search(pruner=optuna.pruners.PercentilePruner(99.0)).fit(*iris)
    assert states(found) == ["complete"] * 2
    assert len(calls) == 12


def test_numpys_global_generator_is_left_as_found_without_a_seed(iris):
    np.random.seed(3)
    before = np.random.get_state()[2]
    search(random_state=None).fit(*iris)
    assert np.random.get_state()[2] == before


# Candidates.


def test_arrays_of_different_shapes_are_candidates(iris):
    knots = [np.linspace(0, 8, n).reshape(-1, 1) * np.ones(4) for n in (3, 5, 5)]
    knots[2] = knots[2] + 0.01  # of the same shape, but others
    pipeline = make_pipeline(SplineTransformer(), LogisticRegression(max_iter=1000))
    space = {"splinetransformer__knots": ["quantile", *knots, knots[0].copy()]}
    ours = search(pipeline, space, pruner="none").fit(*iris)
    theirs = GridSearchCV(pipeline, space, cv=2).fit(*iris)
    np.testing.assert_array_equal(
        ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"][:4]
    )
    for mine, given in zip(ours.cv_results_["params"], ["quantile", *knots], strict=True):
        assert np.array_equal(mine["splinetransformer__knots"], given)


@pytest.mark.parametrize(
    "space",
    [
        {"model": [LogisticRegression(max_iter=1000), LinearSVC()], "model__C": [0.01, 1.0]},
        [
            {"model": [LinearSVC()], "model__C": [0.01, 1.0]},
            {"model": [KNeighborsClassifier()], "model__n_neighbors": [1, 3], "scale": [None]},
        ],
    ],
    ids=["dict", "list"],
)
def test_a_step_is_swapped_together_with_its_parameters(iris, tmp_path, space):
    pipeline = Pipeline([("scale", StandardScaler()), ("model", LogisticRegression())])
    ours = search(pipeline, space, pruner="none", storage=tmp_path / "search.db").fit(*iris)
    theirs = GridSearchCV(pipeline, space, cv=2).fit(*iris)
    for name in ("mean_test_score", "rank_test_score"):
        np.testing.assert_array_equal(ours.cv_results_[name], theirs.cv_results_[name])
    assert [list(p) for p in ours.cv_results_["params"]] == [
        list(p) for p in theirs.cv_results_["params"]
    ]
    assert repr(ours.best_params_) == repr(theirs.best_params_)
    np.testing.assert_array_equal(ours.predict(iris[0]), theirs.predict(iris[0]))


class OnlyDraws:
    """Has no quantiles."""

    def rvs(self, random_state=None):
        return 1.0


def test_distributions_of_scipy_are_drawn_from(iris):
    space = {
        "C": stats.loguniform(0.01, 1.0),
        "tol": stats.uniform(1e-4, 1e-3),
        "max_iter": stats.randint(1000, 1003),
        "intercept_scaling": stats.expon(scale=2.0),
        "random_state": stats.poisson(3.0),
    }
    found = search(LogisticRegression(), space, n_trials=60, pruner="none", sampler="random")
    drawn = pd.DataFrame(found.fit(*iris).cv_results_["params"])
    assert drawn["C"].between(0.01, 1.0).all()
    assert drawn["C"].median() < 0.3
    assert drawn["tol"].between(1e-4, 1.1e-3).all()
    assert set(drawn["max_iter"]) == {1000, 1001, 1002}
    assert drawn["random_state"].map(type).eq(int).all()
    drawn_by_quantile = drawn["intercept_scaling"]
    assert stats.kstest(drawn_by_quantile, space["intercept_scaling"].cdf).pvalue > 0.01
    with pytest.raises(ValueError, match=r"a distribution of Optuna or scipy.stats, such as"):
        search(LogisticRegression(), {"C": OnlyDraws()}, pruner="none").fit(*iris)


def test_a_list_of_grids_has_no_ranges(iris):
    space = [{"alpha": FloatDistribution(0.1, 1.0)}, {"eta": [0.1]}]
    with pytest.raises(ValueError, match="a list of spaces with ranges, but expected lists"):
        search(space=space).fit(*iris)


def test_trials_with_one_network_and_the_refit_of_an_ensemble(iris):
    classifier = MixupEClassifier(n_members=3, max_epochs=2, min_steps=0, batch_size=20)
    found = search(classifier, {"lr": [1e-3, 1e-2]}, trial_params={"n_members": 1}).fit(*iris)
    alone = search(classifier.set_params(n_members=1), {"lr": [1e-3, 1e-2]}).fit(*iris)
    np.testing.assert_array_equal(
        found.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"]
    )
    assert len(found.best_estimator_.nets_) == 3
    with pytest.raises(ValueError, match="unknown parameter 'members' in trial_params"):
        search(trial_params={"members": 1}).fit(*iris)


# Callbacks of scikit-learn.


class Recorder:
    """Records the tasks that it is told of."""

    def __init__(self):
        self.tasks = []

    def setup(self, estimator, context):
        self.tasks.append("setup")

    def teardown(self, estimator, context):
        self.tasks.append("teardown")

    def on_fit_task_begin(self, estimator, context, *, X=None, y=None, metadata=None):
        n_rows = None if X is None else len(X)
        weight = None if metadata is None else len(metadata["sample_weight"])
        self.tasks.append(
            (context.task_name, context.max_subtasks, type(estimator).__name__, n_rows, weight)
        )

    def on_fit_task_end(self, estimator, context, *, X=None, y=None, metadata=None):
        self.tasks.append(context.task_name)


class PropagatedRecorder(Recorder):
    """Also goes into the estimators."""

    max_propagation_depth = None


@pytest.mark.skipif(not HAS_CALLBACKS, reason="this scikit-learn has no callbacks")
@pytest.mark.parametrize("kind", [Recorder, PropagatedRecorder])
@pytest.mark.parametrize("refit", [True, False])
def test_callbacks_see_what_they_see_of_grid_search(iris, kind, refit):
    recorders = [kind(), kind()]
    classifier = paper_classifier(**QUICK, random_state=0)
    ours = search(classifier, refit=refit).set_callbacks(recorders[0])
    theirs = GridSearchCV(classifier, GRID, cv=2, refit=refit).set_callbacks(recorders[1])
    for one in (ours, theirs):
        one.fit(*iris, sample_weight=np.ones(150))
    as_seen, expected = (
        [str(task).replace("MixupESearchCV", "GridSearchCV") for task in recorder.tasks]
        for recorder in recorders
    )
    # Networks that train as one begin together.
    assert (as_seen if kind is PropagatedRecorder else sorted(as_seen)) == (
        expected if kind is PropagatedRecorder else sorted(expected)
    )
    assert as_seen[:3] == expected[:3]
    is_batched = ours.not_vectorized_because_ is None
    assert is_batched == (kind is Recorder)


@pytest.mark.skipif(not HAS_CALLBACKS, reason="this scikit-learn has no callbacks")
def test_callbacks_see_failing_fits(iris):
    def scorer(estimator, X, y):
        raise RuntimeError("no scale at hand")

    recorder = Recorder()
    found = search(scoring=scorer, error_score=0.0, refit=False).set_callbacks(recorder)
    with pytest.raises(ValueError, match="All fits of all 2 trials failed"):
        found.fit(*iris)
    assert recorder.tasks.count("candidate-split-evaluation") == 4


# The progress bar.


def test_the_bar_moves_within_a_batch_of_trials(iris, monkeypatch, capsys):
    monkeypatch.setattr(worker, "PROGRESS_SECONDS", 0.0)
    notes = []

    def note(self, name, value, set_user_attr=optuna.trial.Trial.set_user_attr):
        if name == "progress":
            notes.append(value)
        return set_user_attr(self, name, value)

    monkeypatch.setattr(optuna.trial.Trial, "set_user_attr", note)
    found = search(verbose=1, vectorize=True).fit(*iris)
    assert states(found) == ["complete"] * 2
    for number in (0, 1):
        parts = [part for own, part in notes if own == number]
        assert parts == sorted(parts)
        # Two folds of three epochs.
        assert {0.167, 0.333, 0.5, 0.667, 0.833} <= set(parts)
    assert "2/2" in capsys.readouterr().err
