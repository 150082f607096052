"""Each wrong input of a search gets its own sentence."""

import subprocess
import sys

import optuna
import pytest
from optuna.distributions import FloatDistribution
from paper import paper_classifier, paper_pipeline
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mixupe_sklearn import MixupESearchCV, plot_search

GRID = {"alpha": [0.1, 1.0]}
QUICK = {"max_epochs": 2, "batch_size": 50}


def search(estimator=None, space=GRID, **params):
    params = {"cv": 2, "random_state": 0, **params}
    return MixupESearchCV(estimator or paper_classifier(**QUICK), space, **params)


WRONG = [
    (
        {"space": {"aplha": [1.0]}},
        "unknown parameter 'aplha' in the space; the closest names are 'alpha'",
    ),
    ({"space": {}}, "Got an empty space, but expected at least one parameter to search over."),
    (
        {"space": {"alpha": []}},
        r"Got alpha=\[\] in the space, but expected a list of values such as \[0.01, 0.1, 1.0\], or",
    ),
    (
        {"space": {"alpha": (0.01, 1.0)}},
        r"Got alpha=\(0.01, 1.0\) in the space, but expected a list of values .* FloatDistribution\(",
    ),
    (
        {"space": {"alpha": "many"}},
        "Got alpha='many' in the space, but expected a list",
    ),
    ({"space": "papers"}, "Got space='papers', but expected 'paper', 'default' or a dict"),
    ({"space": [1]}, r"Got space=\[1\], but expected 'paper', 'default' or a dict"),
    ({"n_trials": 0}, "Got n_trials=0, but expected an integer >= 1 or None."),
    ({"timeout": -1}, "Got timeout=-1, but expected a number of seconds > 0 or None."),
    ({"n_repeats": 0}, "Got n_repeats=0, but expected an integer >= 1."),
    ({"vectorize": "yes"}, "Got vectorize='yes', but expected 'auto' or a boolean."),
    ({"error_score": "ignore"}, "Got error_score='ignore', but expected 'raise' or a number."),
    ({"trial_params": 3}, "Got trial_params=3, but expected a dict of parameters or None."),
    ({"study_name": None}, "Got study_name=None, but expected a name."),
    ({"sampler": "genetic"}, "Got sampler='genetic', but .*, or an Optuna sampler."),
    ({"pruner": "gentle"}, "Got pruner='gentle', but .*, an Optuna pruner or None."),
    ({"space": "default", "sampler": "grid"}, "Got sampler='grid' with a space that has ranges"),
    (
        {"storage": 7},
        "Got storage=7, but expected a file name, a database URL, an Optuna storage or None.",
    ),
    (
        {"storage": "sqlite:///no/such/folder/search.db"},
        "which cannot be reached or written: unable to open database file",
    ),
    ({"storage": "nodatabase://here"}, "which cannot be reached or written: "),
]


@pytest.mark.parametrize(("params", "message"), WRONG, ids=lambda value: str(value)[:40])
def test_wrong_parameters(iris, params, message):
    with pytest.raises(ValueError, match=message):
        search(**params).fit(*iris)


def test_the_name_of_a_step_that_was_forgotten_is_offered(iris):
    with pytest.raises(ValueError, match="'alpha' in the space; .* 'classifier__alpha'"):
        search(paper_pipeline(**QUICK)).fit(*iris)


def test_a_named_space_needs_an_estimator_of_this_package_that_uses_it(iris):
    with pytest.raises(
        ValueError, match="space='paper' for a LogisticRegression, but expected a dict"
    ):
        search(LogisticRegression(), "paper").fit(*iris)
    with pytest.raises(ValueError, match="method='erm', which uses neither alpha nor eta"):
        search(paper_classifier(method="erm"), "paper").fit(*iris)


def test_repeats_need_a_seed_to_vary(iris):
    neighbours = search(KNeighborsClassifier(), {"n_neighbors": [1]}, n_repeats=2)
    with pytest.raises(
        ValueError,
        match="n_repeats=2 for a KNeighborsClassifier, but expected 1: it has no random_state",
    ):
        neighbours.fit(*iris)


def test_an_unreachable_server_does_not_show_the_password(iris):
    place = "postgresql+psycopg://me:secret@127.0.0.1:1/none"
    with pytest.raises(ValueError, match="cannot be reached or written") as caught:
        search(storage=place).fit(*iris)
    assert "secret" not in str(caught.value)
    assert "127.0.0.1" in str(caught.value)


def test_a_folder_is_no_database(iris, tmp_path):
    with pytest.raises(ValueError, match="which cannot be reached or written: unable to open"):
        search(storage=tmp_path).fit(*iris)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_a_truncated_database_file(iris, tmp_path, share):
    place = tmp_path / "search.db"
    search(storage=place).fit(*iris)
    whole = place.read_bytes()
    place.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(
        ValueError, match="which is not a complete SQLite database .*: restore a copy"
    ):
        search(storage=place).fit(*iris)


def test_a_text_file_is_no_database(iris, tmp_path):
    place = tmp_path / "search.db"
    place.write_text("alpha,eta\n" * 1000)
    with pytest.raises(ValueError, match="not a complete SQLite database .file is not a database."):
        search(storage=place).fit(*iris)
    assert place.read_text() == "alpha,eta\n" * 1000


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"space": {"alpha": [0.1, 2.0]}}, r"another space \(alpha is .*2.0"),
        ({"space": {"eta": [0.1]}}, "another space"),
        ({"estimator": paper_classifier(max_epochs=3, batch_size=50)}, "another estimator .max_epochs is 2 there and 3 here"),
        ({"cv": 3}, "another cv .number of folds is 2 there and 3 here"),
        ({"scoring": "balanced_accuracy"}, "another scoring .None there, 'balanced_accuracy' here"),
        ({"n_repeats": 2}, "another n_repeats .1 there, 2 here"),
        ({"random_state": 1}, "another random_state .0 there, 1 here"),
    ],
    ids=str,
)  # fmt: skip
def test_a_study_belongs_to_one_search(iris, tmp_path, params, message):
    place = tmp_path / "search.db"
    search(storage=place).fit(*iris)
    with pytest.raises(ValueError, match=message) as caught:
        search(**params, storage=place).fit(*iris)
    assert "give another study_name or storage" in str(caught.value)
    search(**params, storage=place, study_name="second").fit(*iris)  # one file, two studies


def test_a_study_belongs_to_one_table(iris, tmp_path):
    X, y = iris
    place = tmp_path / "search.db"
    search(storage=place).fit(X, y)
    with pytest.raises(ValueError, match="another X .content differs."):
        search(storage=place).fit(X + 1, y)


def test_two_searches_on_one_study_at_once(iris, tmp_path):
    # Different ones: the second is refused while the first is at it. Equal ones share it, and are
    # told so.
    place = tmp_path / "search.db"
    errors = []

    def scorer(estimator, X, y):
        if not errors:
            try:
                search(space={"eta": [0.1]}, storage=place).fit(*iris)
            except ValueError as error:
                errors.append(str(error))
        return estimator.score(X, y)

    search(storage=place, scoring=scorer).fit(*iris)
    assert "which was created by a search with another space" in errors[0]


def test_a_running_trial_of_another_process_is_reported(iris, tmp_path):
    place = tmp_path / "search.db"
    first = search(storage=place, n_trials=1, sampler="grid").fit(*iris)
    other = optuna.load_study(study_name="mixupe-search", storage=f"sqlite:///{place}")
    other.ask()
    with pytest.warns(
        UserWarning, match="has trials of other processes .1 running or dead.: this search shares"
    ):
        search(storage=place, n_trials=1, sampler="grid", timeout=0.1).fit(*iris)
    assert first.best_params_


def test_a_study_that_was_not_created_by_a_search(iris, tmp_path):
    place = tmp_path / "search.db"
    theirs = optuna.create_study(study_name="mixupe-search", storage=f"sqlite:///{place}")
    theirs.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
    with pytest.raises(
        ValueError, match="holds trials that no MixupESearchCV created; give another study_name"
    ):
        search(storage=place).fit(*iris)


def test_a_storage_without_heartbeat_is_warned_about(iris, tmp_path):
    storage = optuna.storages.RDBStorage(f"sqlite:///{tmp_path / 'search.db'}")
    with pytest.warns(UserWarning, match="without heartbeat_interval"):
        search(storage=storage).fit(*iris)


def test_a_storage_in_memory_cannot_be_shared(iris):
    storage = optuna.storages.InMemoryStorage()
    with pytest.raises(ValueError, match="storage in memory with n_jobs=2, but expected a file"):
        search(storage=storage, n_jobs=2).fit(*iris)


def test_all_trials_failing_shows_the_first_error(iris):
    def scorer(estimator, X, y):
        raise RuntimeError("no scale at hand")

    with pytest.raises(
        ValueError,
        match=r"(?s)All 2 trials failed, the first with RuntimeError: no scale at hand.*Traceback",
    ):
        search(scoring=scorer).fit(*iris)


def test_no_trial_in_time(iris):
    with pytest.raises(ValueError, match="No trial was finished .timeout=1e-09."):
        search(timeout=1e-9).fit(*iris)


def test_an_estimator_of_another_package_is_not_pruned_and_warned_about(iris):
    space = {"C": FloatDistribution(0.1, 10.0, log=True)}
    model = LogisticRegression(max_iter=1000)
    with pytest.warns(
        UserWarning,
        match="A LogisticRegression reports no epochs, so its trials cannot be pruned by epoch",
    ):
        found = search(model, space, n_trials=3).fit(*iris)
    assert found.cv_results_["state"].tolist() == ["complete"] * 3
    assert found.not_vectorized_because_ == "LogisticRegression is not an estimator of this package"
    search(model, space, n_trials=3, pruner="none").fit(*iris)  # and no warning


@pytest.mark.parametrize(
    ("estimator", "reason"),
    [
        (paper_classifier(time_limit=100.0, **QUICK), "time_limit is given"),
        (paper_classifier(penalty="directional", **QUICK), "penalty is 'directional'"),
        (paper_classifier(module_params={"batch_norm": True}, **QUICK), "batch_norm is on"),
        (make_pipeline(StandardScaler(), paper_pipeline(**QUICK)), "holds another pipeline"),
    ],
    ids=["limit", "directional", "batch norm", "nested"],
)
def test_what_cannot_be_batched_falls_back_and_gives_the_reason(iris, estimator, reason):
    name = next(n for n in estimator.get_params() if n.endswith("alpha"))
    found = search(estimator, {name: [0.1, 1.0]}).fit(*iris)
    assert reason in found.not_vectorized_because_
    with pytest.raises(ValueError, match="vectorize=True, but networks cannot train as one: "):
        search(estimator, {name: [0.1, 1.0]}, vectorize=True).fit(*iris)


def test_without_optuna_the_extra_is_named():
    code = "import sys; sys.modules['optuna'] = None\nfrom mixupe_sklearn import MixupESearchCV"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert "MixupESearchCV needs optuna: pip install mixupe-sklearn[search]." in result.stderr


def test_plotting_something_that_is_not_a_search(iris):
    with pytest.raises(
        ValueError, match="Got a dict, but expected a fitted MixupESearchCV or a study"
    ):
        plot_search({})
    found = search().fit(*iris)
    with pytest.raises(ValueError, match="Got kind='pie', but expected one of 'map', 'history'"):
        plot_search(found, "pie")
    with pytest.raises(
        ValueError, match="search over 'alpha', but a map needs two parameters that are numbers"
    ):
        plot_search(found)
    with pytest.raises(ValueError, match="'lr' among params, but expected two of 'alpha', which"):
        plot_search(found, params=("alpha", "lr"))
    with pytest.raises(ValueError, match="without a complete trial"):
        plot_search(optuna.create_study())
