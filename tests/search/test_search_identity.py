"""A study is continued for equal content only: one changed item anywhere is refused."""

import copy
import functools
import threading

import numpy as np
import optuna
import pandas as pd
import pytest
import sklearn
from scipy import sparse
from search_programs import run_labelled_search
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, make_scorer
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, SplineTransformer

from mixupe_sklearn import MixupEClassifier, MixupESearchCV, preset
from mixupe_sklearn._search.digest import digest
from mixupe_sklearn._search.identity import describe_estimator, open_study
from mixupe_sklearn._search.storage import close_connections, open_storage

# More items than numpy and pandas show in a repr.
N_ROWS = 1200
rng = np.random.default_rng(0)
X = rng.normal(size=(N_ROWS, 3))
y = (X[:, 0] > 0).astype(int)
NAMES = pd.DataFrame({"a": X[:, 0], "b": np.where(X[:, 1] > 0, "yes", None).astype(object)})
SPARSE = sparse.csr_array(np.where(np.abs(X) > 1, X, 0.0))
STEPS = np.linspace(-3, 3, 1500)


def shifted(X, by):
    return X + by[0]


def with_item(values, place, item):
    """A copy with one item changed."""
    changed = copy.deepcopy(values)
    if isinstance(changed, pd.DataFrame):
        changed.iloc[place] = item
    else:
        changed[place] = item
    return changed


def make_scoring(costs):
    return lambda estimator, X, y: float(np.mean(costs[y] * (estimator.predict(X) == y)))


def run(storage, X=X, y=y, estimator=None, fit_params=None, **params):
    params = {"space": {"C": [1.0]}, "cv": 2, "pruner": "none", "refit": False} | params
    search = MixupESearchCV(estimator or LogisticRegression(), storage=storage, **params)
    return search.fit(X, y, **(fit_params or {}))


def pipeline(step):
    return {
        "estimator": make_pipeline(step, LogisticRegression()),
        "space": {"logisticregression__C": [1.0]},
    }


def text_pipeline():
    return pipeline(OneHotEncoder(handle_unknown="ignore"))


def requesting(estimator):
    with sklearn.config_context(enable_metadata_routing=True):
        return estimator.set_fit_request(sample_weight=True)


CHANGES = {
    "label": ({}, {"y": with_item(y, 600, 1 - y[600])}, r"another y \(content differs\)"),
    "value": ({}, {"X": with_item(X, (600, 1), 0.5)}, r"another X \(content differs\)"),
    "dtype": ({}, {"X": X.astype(np.float32)}, "another X .dtype is 'float64' there and 'float32'"),
    "dtype of y": ({}, {"y": y.astype(np.int32)}, "another y .dtype is 'int64' there and 'int32'"),
    "a sample less": (
        {},
        {"X": X[:-1], "y": y[:-1]},
        "X .shape is '1200 x 3' there and '1199 x 3'",
    ),
    "weight": (
        {"fit_params": {"sample_weight": np.ones(N_ROWS)}},
        {"fit_params": {"sample_weight": with_item(np.ones(N_ROWS), 600, 2.0)}},
        "another fit_params .sample_weight differs",
    ),
    "group": (
        {"cv": GroupKFold(2), "fit_params": {"groups": np.arange(N_ROWS) % 6}},
        {"cv": GroupKFold(2), "fit_params": {"groups": with_item(np.arange(N_ROWS) % 6, 0, 1)}},
        "another cv .samples of a fold differs",
    ),
    "object label": (
        {"y": y.astype(str).astype(object)},
        {"y": with_item(y.astype(str).astype(object), 600, str(1 - y[600]))},
        "another y .content differs",
    ),
    "cell": (
        text_pipeline() | {"X": NAMES},
        text_pipeline() | {"X": with_item(NAMES, (600, 1), "no")},
        "another X .column 'b' differs",
    ),
    "column's dtype": (
        text_pipeline() | {"X": NAMES},
        text_pipeline() | {"X": NAMES.astype({"a": np.float32})},
        "another X .column 'a' is 'float64' there and 'float32' here",
    ),
    "column's name": (
        text_pipeline() | {"X": NAMES},
        text_pipeline() | {"X": NAMES.rename(columns={"a": "c"})},
        "another X .order of the columns differs",
    ),
    "sparse entry": (
        {"X": SPARSE},
        {"X": sparse.csr_array(with_item(SPARSE.toarray(), (600, 2), 9.0))},
        "another X .content differs",
    ),
    "array in partial": (
        pipeline(FunctionTransformer(functools.partial(shifted, by=STEPS))),
        pipeline(FunctionTransformer(functools.partial(shifted, by=with_item(STEPS, 700, 0.0)))),
        "another estimator .functiontransformer__func differs",
    ),
    "array parameter": (
        pipeline(SplineTransformer(knots=np.linspace(-5, 5, 6).reshape(-1, 1) * np.ones(3))),
        pipeline(SplineTransformer(knots=np.linspace(-5, 5, 6).reshape(-1, 1) * [1, 1, 1.1])),
        "another estimator .splinetransformer__knots differs",
    ),
    "array candidate": (
        pipeline(FunctionTransformer(shifted))
        | {"space": {"functiontransformer__kw_args": [{"by": STEPS}]}},
        pipeline(FunctionTransformer(shifted))
        | {"space": {"functiontransformer__kw_args": [{"by": with_item(STEPS, 700, 0.0)}]}},
        "another space .functiontransformer__kw_args differs",
    ),
    "closure of a scorer": (
        {"scoring": make_scoring(np.array([1.0, 2.0]))},
        {"scoring": make_scoring(np.array([1.0, 2.5]))},
        "another scoring .its content differs",
    ),
    "code of a scorer": (
        {"scoring": lambda estimator, X, y: estimator.score(X, y)},
        {"scoring": lambda estimator, X, y: -estimator.score(X, y)},
        "another scoring .its content differs",
    ),
    "sign of a scorer": (
        {"scoring": make_scorer(accuracy_score, normalize=True)},
        {"scoring": make_scorer(accuracy_score, normalize=False)},
        "another scoring",
    ),
}


@pytest.mark.parametrize(("first", "second", "message"), CHANGES.values(), ids=CHANGES)
def test_one_change_is_refused_and_equal_content_is_continued(first, second, message):
    storage = optuna.storages.InMemoryStorage()
    trials = run(storage, **first).study_.trials
    is_function = callable(first.get("scoring")) and not hasattr(first["scoring"], "_sign")
    again = first if is_function else copy.deepcopy(first)
    assert len(run(storage, **again).study_.trials) == len(trials)
    with pytest.raises(ValueError, match=message) as caught:
        run(storage, **second)
    assert "give another study_name or storage" in str(caught.value)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (X, np.asfortranarray(X)),
        (X, X[::-1][::-1]),
        (NAMES, NAMES.set_axis(range(7, 7 + N_ROWS))),
        (NAMES, pd.concat([NAMES[["a"]], NAMES[["b"]]], axis=1)),
        (SPARSE, sparse.csc_matrix(SPARSE)),
        (NAMES["b"], NAMES["b"].sample(frac=1, random_state=0).sort_index()),
        ({"a": 1, "b": X}, {"b": X.copy(), "a": 1}),
        ({"x", "y", 3}, {3, "y", "x"}),
        (functools.partial(shifted, by=X), functools.partial(shifted, by=X.copy())),
        (LogisticRegression(n_jobs=1), LogisticRegression(n_jobs=2)),
    ],
    ids=range(10),
)
def test_equal_content_has_one_hash_however_it_is_stored(first, second):
    assert digest(first) == digest(second)


@pytest.mark.parametrize(
    "values",
    [
        [1, 1.0, True, "1", b"1", None, np.float32(0.1), 0.1, float("nan"), 1j],
        [[1, 2], (1, 2), {1, 2}, {1: 2}, [[1], [2]], [[1, 2]], np.array([1, 2]), ["1", "2"]],
        [np.zeros((2, 3)), np.zeros((3, 2)), np.zeros(6), np.zeros(6, int), np.array([None] * 6)],
        [["ab", "c"], ["a", "bc"], ["abc"], ["ab", None], ["ab", "nan"], ["ab", float("nan")]],
        [pd.array([1, None], "Int64"), pd.array([1, 0], "Int64"), pd.array([1, None], "Float64")],
        [
            pd.Series(["u", "v"], dtype="category"),
            pd.Series(["v", "u"], dtype="category"),
            pd.Series(["u", "v"]).astype(pd.CategoricalDtype(["v", "u"])),
            pd.Series(["u", "v"]).astype(pd.CategoricalDtype(["u", "v"], ordered=True)),
            pd.Series(["u", "v"]),
        ],
        [
            pd.Series(pd.to_datetime(["2020-01-01"])),
            pd.Series(pd.to_datetime(["2020-01-02"])),
            pd.Series(pd.to_datetime(["2020-01-01"])).dt.tz_localize("UTC"),
            pd.Series(pd.to_datetime(["2020-01-01"])).dt.tz_localize("Europe/Oslo"),
        ],
        [np.random.RandomState(0), np.random.RandomState(1), np.random.default_rng(0)],
        [
            LogisticRegression(C=1.0),
            LogisticRegression(C=2.0),
            LogisticRegression().fit(X, y),
            requesting(LogisticRegression()),
        ],
        [shifted, with_item, np.log1p, np.log, LogisticRegression, "shifted"],
    ],
    ids=range(10),
)
def test_different_content_has_different_hashes(values):
    assert len({digest(value) for value in values}) == len(values)
    assert [digest(value) for value in values] == [digest(value) for value in values]


def test_polars_frames_are_hashed_by_column():
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"a": [1.0, 2.0], "b": ["x", None], "c": [1, None]})
    assert digest(frame) == digest(frame.clone())
    changes = [("a", [1.0, 3.0]), ("b", ["x", "y"]), ("c", [2, None])]
    changed = [frame.with_columns(pl.Series(name, own)) for name, own in changes]
    assert len({digest(one) for one in [frame, *changed]}) == 4


def test_what_holds_itself_and_what_stores_nothing_have_a_hash():
    loop = [1]
    loop.append(loop)
    other = [2]
    other.append(other)
    assert digest(loop) != digest(other)
    assert digest(threading.Lock()) == digest(threading.Lock())


def test_speed_place_searched_parameters_and_replaced_seeds_are_no_part_of_the_identity():
    storage = optuna.storages.InMemoryStorage()
    params = preset("paper") | {"max_epochs": 1, "batch_size": 600}
    space = {"space": {"alpha": [0.1]}, "n_repeats": 2, "random_state": 0}
    for own in ({}, {"verbose": 1}, {"n_threads": 1}, {"alpha": 3.0}, {"random_state": 5}):
        found = run(storage, estimator=MixupEClassifier(**params | own), **space)
        assert len(found.study_.trials) == 1
    with pytest.raises(ValueError, match="another estimator .eta is 1.0 there and 0.5 here"):
        run(storage, estimator=MixupEClassifier(**params | {"eta": 0.5}), **space)


def test_parameters_of_steps_are_named_one_by_one():
    found = describe_estimator(make_pipeline(SplineTransformer(), LogisticRegression()))
    assert found["logisticregression__C"] == 1.0
    assert found["splinetransformer"].endswith("SplineTransformer")
    assert "verbose" not in found
    assert found["steps"] == "[['splinetransformer'], ['logisticregression']]"


def claim_at_once(storages, name):
    """Open a study as several different searches at the same moment; return the winners."""
    barrier, winners, errors = threading.Barrier(len(storages)), [], []

    def open_one(number):
        barrier.wait(60)
        try:
            open_study(storages[number], name, {"y": {"content": number}, "seeds": [0]})
            winners.append(number)
        except ValueError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=open_one, args=(n,)) for n in range(len(storages))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert all("created by a search with another y" in error for error in errors)
    return winners


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_of_different_searches_at_the_same_moment_one_gets_the_study(tmp_path, kind):
    memory = optuna.storages.InMemoryStorage()
    place = tmp_path / "search.db"
    storages = [memory if kind == "memory" else open_storage(place) for _ in range(4)]
    for number in range(10):
        assert len(claim_at_once(storages, f"study {number}")) == 1
    for storage in storages:
        close_connections(storage)


def test_two_searches_with_different_labels_on_a_server(postgresql_uri, processes):
    queue = processes.Queue()
    workers = [
        processes.Process(target=run_labelled_search, args=(postgresql_uri, label, queue))
        for label in (0, 1)
    ]
    for worker in workers:
        worker.start()
    answers = [queue.get(timeout=300) for _ in workers]
    for worker in workers:
        worker.join(300)
    refused = [answer for answer in answers if "another y (content differs)" in answer]
    assert len(refused) == 1
    assert sorted(answers, key=len)[0] == "complete"
