"""Random spaces and storages of a search: what is chosen is what was given, or it is refused."""

import copy
import functools
import sqlite3

import numpy as np
import pandas as pd
import pytest
from fuzz import flipped, tried
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import FloatDistribution, IntDistribution
from scipy import sparse
from sklearn.preprocessing import SplineTransformer

from mixupe_sklearn._search.digest import digest
from mixupe_sklearn._search.samplers import make_pruner, make_sampler
from mixupe_sklearn._search.space import Space, check_names, named_space
from mixupe_sklearn._search.storage import _check_sqlite, open_storage

values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.floats(),
    st.text(max_size=3),
    st.tuples(st.integers(0, 2)),
    st.sampled_from([np.float32(0.5), np.int8(1), np.bool_(True), np.zeros(2), len, {"a": 1}]),
)
names = st.sampled_from(["alpha", "eta", "lr", "module__d_hidden", "é", ""])
spaces = st.dictionaries(names, st.lists(values, max_size=4), max_size=3)


def is_alike(first, second):
    return type(first) is type(second) and np.array_equal(
        first, second, equal_nan=isinstance(first, float)
    )


@given(spaces)
def test_every_value_of_a_list_can_be_chosen_as_it_is(given_space):
    found = tried(lambda: Space.of(given_space))
    assert (found.refusal is None) == all(given_space.values())
    if found.refusal is not None:
        return
    space = found.answer
    assert space.is_grid
    for name, own in given_space.items():
        decoded = [space.decode({name: choice})[name] for choice in space.grid[name]]
        plain = [value.item() if isinstance(value, np.generic) else value for value in own]
        assert all(any(is_alike(one, other) for other in decoded) for one in plain), (own, decoded)
        assert all(any(is_alike(one, other) for other in plain) for one in decoded)
    assert space.size == np.prod([len(choices) for choices in space.grid.values()])


@given(spaces.filter(lambda space: space and all(space.values())), st.data())
def test_points_of_a_grid_have_numbers_of_their_own(given_space, data):
    space = Space.of(given_space)
    number = st.fixed_dictionaries({name: st.sampled_from(space.grid[name]) for name in space.grid})
    first, second = data.draw(number), data.draw(number)
    places = [space.place(point) for point in (first, second)]
    assert all(0 <= place < space.size for place in places)
    is_same = all(is_alike(first[name], second[name]) for name in first)
    assert (places[0] == places[1]) == is_same


odd_spaces = st.dictionaries(
    names,
    values
    | st.lists(values, max_size=2)
    | st.builds(FloatDistribution, st.just(0.0), st.floats(0, 1)),
    max_size=3,
)


@given(
    odd_spaces,
    st.sampled_from(["auto", "grid", "tpe", "random", "bayes", None, 3, ["grid"]]),
    st.sampled_from(
        ["auto", "halving", "hyperband", "median", "wilcoxon", "none", "x", None, 3, ["none"]]
    ),
    st.none() | st.integers(1, 9),
)
def test_any_space_and_strategy_is_taken_or_refused(given_space, sampler, pruner, n_trials):
    def build():
        check_names(given_space, ["alpha", "eta", "lr"])
        space = Space.of({**given_space, "n": IntDistribution(1, 2)})
        return make_sampler(sampler, space, n_trials, 0), make_pruner(pruner, space, 5, 2)

    found = tried(build)
    is_known = set(given_space) <= {"alpha", "eta", "lr"} and len(given_space) > 0
    assert (found.refusal is None) <= is_known


@given(
    st.sampled_from(["paper", "default"]),
    st.text(max_size=4),
    st.sampled_from(["mixupe", "mixup", "erm", "erm+penalty"]),
)
def test_a_named_space_has_the_prefix_that_is_asked_for(space, prefix, method):
    found = tried(lambda: named_space(space, prefix, method))
    assert (found.refusal is None) == (space == "default" or method != "erm")
    if found.refusal is None:
        assert all(name.startswith(prefix) for name in found.answer.distributions)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("storage")


@pytest.fixture(scope="module")
def database(folder):
    path = folder / "whole.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)")
    connection.executemany("INSERT INTO t (b) VALUES (?)", [("x" * 200,)] * 40)
    connection.commit()
    connection.close()
    return path.read_bytes()


@given(st.data())
def test_a_damaged_database_is_refused_before_a_search(folder, database, data):
    """Only the check of the file: creating the tables of a study in each would take minutes."""
    path = folder / "cut.db"
    path.write_bytes(data.draw(flipped(database) | st.binary(max_size=40)))
    found = tried(lambda: _check_sqlite(path))
    if found.refusal is None and path.stat().st_size:
        connection = sqlite3.connect(path)
        assert connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok"
        connection.close()


@given(
    values.filter(lambda value: not isinstance(value, str))
    | st.sampled_from(["x://y", "://", "a://b:secret@d"])
)
def test_a_storage_that_is_none_is_refused_without_its_password(storage):
    found = tried(lambda: open_storage(storage))
    assert (found.refusal is None) == (storage is None)
    assert found.refusal is None or "secret" not in found.refusal


plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.just(float("nan")),
    st.text(max_size=3),
    st.binary(max_size=2),
)
nested = st.recursive(
    plain,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.text(max_size=2), inner, max_size=2),
    ),
    max_leaves=6,
)


def canonical(value):
    """A text that is equal for equal content: keys in order."""
    if isinstance(value, dict):
        return f"dict({', '.join(f'{k!r}: {canonical(value[k])}' for k in sorted(value))})"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}({', '.join(map(canonical, value))})"
    return repr(value)


@given(nested, nested)
def test_the_hash_is_equal_for_equal_content_and_for_no_other(first, second):
    assert (digest(first) == digest(second)) == (canonical(first) == canonical(second))
    assert digest(first) == digest(copy.deepcopy(first))


CONTAINERS = {
    "list": list,
    "tuple": tuple,
    "array": np.array,
    "column of numbers": lambda values: np.array(values, dtype=np.float32).reshape(-1, 1),
    "objects": lambda values: np.array(list(map(str, values)), dtype=object),
    "every second": lambda values: np.repeat(values, 2)[::2],
    "series": pd.Series,
    "frame": lambda values: pd.DataFrame({"a": values, "b": list(map(str, values))}),
    "categories": lambda values: pd.Series(values, dtype="category"),
    "masked": lambda values: pd.array(values, dtype="Int8"),
    "sparse": lambda values: sparse.csr_array(np.array([values])),
    "partial": lambda values: functools.partial(sorted, key=np.array(values)),
    "estimator": lambda values: SplineTransformer(knots=np.array([values]).T),
}


@given(
    st.lists(st.integers(-9, 9), min_size=1, max_size=40),
    st.data(),
    st.sampled_from(sorted(CONTAINERS)),
)
def test_one_changed_item_changes_the_hash(values, data, kind):
    place = data.draw(st.integers(0, len(values) - 1))
    changed = list(values)
    changed[place] = data.draw(st.integers(-9, 9).filter(lambda other: other != values[place]))
    make = CONTAINERS[kind]
    assert digest(make(values)) == digest(make(list(values)))
    assert digest(make(changed)) != digest(make(values))
