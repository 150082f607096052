"""Random input: saved models with changed text and a valid checksum."""

import copy
import functools
import pathlib
import tempfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import BaseEstimator
from sklearn.datasets import load_iris

from mixupe_sklearn import MixupEClassifier, load, make_mixupe_pipeline, preset, save, saved_info
from mixupe_sklearn._persistence import file_format as container
from mixupe_sklearn._persistence.schemas import SCHEMAS
from mixupe_sklearn._persistence.values import Reader, Writer

SMALL = {"max_epochs": 1, "module_params": {"d_hidden": (3,)}, "random_state": 0}


@functools.cache
def saved(name):
    X, y = load_iris(return_X_y=True)
    model = MixupEClassifier(**preset("paper") | SMALL)
    if name == "pipeline":
        model = make_mixupe_pipeline(**preset("paper") | SMALL)
        X = np.column_stack([X[:, :2].astype(object), np.array(["a", "b", "c"])[y]])
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "model")
        save(model.fit(X, y), path)
        return container.unpack(path.read_bytes(), "a file", "1")


def places(value, path=()):
    """All paths in a JSON value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items if isinstance(value, (dict, list)) else ():
        if isinstance(item, (dict, list)):
            yield from places(item, (*path, key))
        else:
            yield (*path, key)


NUMBERS = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False)),
    *(st.sampled_from([10**9, 10**18, -1, 2**63, 2**64]), st.text(max_size=5)),
)
TAGS = st.sampled_from(
    [
        *("array", "class", "dict", "dtype", "fitted", "float", "json", "list", "masked", "name"),
        *("objects", "pairs", "params", "random_state", "scalar", "select", "slice", "tensor"),
        *("tuple", "type", "view", "__class__"),
    ]
)
NAMES = st.one_of(
    st.sampled_from(sorted(SCHEMAS)), st.sampled_from(["os.system", "numpy.log", "U9"])
)
JSON = st.recursive(
    st.one_of(NUMBERS, NAMES),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(TAGS, inner, min_size=1, max_size=2)
    ),
    max_leaves=6,
)


def refusal_of(data):
    """The error of ``load``, or None if it returns a model."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "model")
        file.write_bytes(data)
        try:
            model = load(file)
        except ValueError as error:
            return str(error).replace(str(file), "model")
        finally:
            assert sorted(pathlib.Path(folder).iterdir()) == [file]
    assert isinstance(model, BaseEstimator)
    return None


@pytest.mark.parametrize("name", ["classifier", "pipeline"])
@given(data=st.data())
def test_a_forged_file_gives_a_model_or_an_error(name, data):
    content = saved(name)
    model, arrays = copy.deepcopy(content.model), dict(content.arrays)
    path = data.draw(st.sampled_from(list(places(model))[1:]))
    target = functools.reduce(lambda value, key: value[key], path[:-1], model)
    if data.draw(st.booleans()):
        target[path[-1]] = data.draw(JSON)
    else:
        del target[path[-1]]
    refusal = refusal_of(container.pack(model, arrays, "0.1", content.versions))
    assert refusal is None or (refusal.startswith("Got 'model', ") and refusal.endswith("."))


@given(data=st.data())
def test_arrays_of_other_shapes_give_a_model_or_an_error(data):
    content = saved("classifier")
    arrays = {name: array.copy() for name, array in content.arrays.items()}
    name = data.draw(st.sampled_from(sorted(arrays)))
    shape = data.draw(st.lists(st.integers(0, 4), max_size=3))
    dtype = data.draw(st.sampled_from(["float32", "float64", "int64", "bool", "uint8", "float16"]))
    arrays[name] = np.ones(shape, dtype)
    refusal = refusal_of(container.pack(content.model, arrays, "0.1", content.versions))
    assert refusal is None or refusal.startswith("Got 'model', ")


@given(data=st.binary(max_size=300), starts_well=st.booleans())
def test_random_bytes_raise(data, starts_well):
    if starts_well:
        data = len(data).to_bytes(8, "little") + data
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "model")
        file.write_bytes(data)
        for read in (load, saved_info):
            with pytest.raises(ValueError, match="but expected a file that mixupe_sklearn.save"):
                read(file)


ARRAYS = st.builds(
    lambda dtype, shape, order: np.asarray(np.arange(np.prod(shape)), dtype).reshape(
        shape, order=order
    ),
    st.sampled_from(["bool", "int8", "uint16", "int64", "float16", "float32", "float64", "O"])
    | st.sampled_from(["U", "S", "M8[ns]", "m8[s]"]),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
    st.sampled_from("CF"),
)
KEYS = st.one_of(st.text(max_size=3), st.integers(), st.booleans(), st.none())
VALUES = st.recursive(
    st.one_of(
        *(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), ARRAYS),
        st.builds(np.float32, st.floats(width=32)),
        st.builds(slice, st.integers(), st.integers()),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(KEYS, inner, max_size=3),
    ),
    max_leaves=8,
)


def same(first, second):
    """Whether two values have the same type and are equal; NaN equals NaN."""
    if type(first) is not type(second):
        return False
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, dict):
        return same(list(first), list(second)) and same([*first.values()], [*second.values()])
    if isinstance(first, np.ndarray):
        is_alike = first.shape == second.shape and first.dtype.kind == second.dtype.kind
        # The text of a missing value does not matter: objects are compared one by one.
        return is_alike and same(first.tolist(), second.tolist())
    return first == second or (first != first and second != second)


@given(value=VALUES)
def test_every_value_round_trips(value):
    writer = Writer(None)
    plain = writer.plain(value, "x")
    data = container.pack(plain, writer.arrays, "1", {})
    content = container.unpack(data, "a file", "1")
    assert same(Reader(content.arrays, None).plain(content.model, "x"), value)
    assert not content.arrays
