"""Random samples: equal numbers in any container give equal results, or equal errors."""

import functools

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from fuzz import broken_numbers, matrices, plain_numbers, tiny_classifier, tiny_regressor, tried
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse


def _fortran(X):
    return np.asfortranarray(X)


def _strided(X):
    return np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)[::2, ::3]


def _backwards(X):
    return X[::-1, ::-1].copy()[::-1, ::-1]


def _read_only(X):
    X = X.copy()
    X.flags.writeable = False
    return X


def _unsorted(X):
    """A sparse matrix with entries in any order, some of them split in two."""
    entries = sparse.coo_array(X)
    rows, columns = (np.tile(part, 2)[::-1] for part in entries.coords)
    order = np.argsort(rows, kind="stable")
    start = np.searchsorted(rows[order], np.arange(X.shape[0] + 1))
    halves = np.tile(entries.data / 2, 2)[::-1][order]
    return sparse.csr_array((halves, columns[order], start), shape=X.shape)


def _explicit_zeros(X):
    n_rows, n_columns = X.shape
    return sparse.csr_array(
        (X.ravel(), np.tile(np.arange(n_columns), n_rows), np.arange(n_rows + 1) * n_columns),
        shape=X.shape,
    )


def _names(X):
    return [f"c{number}" for number in range(X.shape[1])]


CONTAINERS = {
    "C": np.ascontiguousarray,
    "Fortran": _fortran,
    "strided": _strided,
    "backwards": _backwards,
    "read-only": _read_only,
    "big-endian": lambda X: X.astype(">f8"),
    "objects": lambda X: X.astype(object),
    "long double": lambda X: X.astype(np.longdouble),
    "masked": np.ma.masked_array,
    "lists": lambda X: X.tolist(),
    "tuples": lambda X: tuple(map(tuple, X.tolist())),
    "tensor": torch.tensor,
    "tensor with gradient": lambda X: torch.tensor(X, requires_grad=True),
    "frame": pd.DataFrame,
    "frame of a nullable type": lambda X: pd.DataFrame(X).astype("Float64"),
    "polars": lambda X: pl.DataFrame(X, schema=_names(X)),
    **{
        f"sparse {form} {kind}": getattr(sparse, f"{form}_{kind}")
        for form in ("bsr", "coo", "csc", "csr", "dia", "dok", "lil")
        for kind in ("array", "matrix")
    },
    "sparse unsorted": _unsorted,
    "sparse with zeros": _explicit_zeros,
}
TYPES = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]
containers = st.sampled_from(list(CONTAINERS))


@functools.cache
def fitted(kind="classifier"):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 3))
    if kind == "classifier":
        return tiny_classifier(max_epochs=3).fit(X, np.arange(12) % 3)
    return tiny_regressor(max_epochs=3).fit(X, X.sum(axis=1))


@given(matrices(broken_numbers, rows=(1, 20), columns=(3, 3)), containers)
def test_a_container_does_not_change_a_prediction(X, container):
    model = fitted()
    held = CONTAINERS[container](X)
    expected = tried(lambda: model.predict_proba(X), alike=X)
    found = tried(lambda: model.predict_proba(held), alike=[])
    assert (found.refusal is None) == (expected.refusal is None), (found, expected)
    if expected.refusal is None:
        assert np.isfinite(found.answer).all()
        np.testing.assert_allclose(found.answer, expected.answer, rtol=1e-5, atol=1e-12)


@given(matrices(plain_numbers, rows=(4, 9), columns=(1, 4)), containers)
def test_a_container_does_not_change_a_fit_and_is_not_written_to(X, container):
    y, held = np.arange(len(X)) % 2, CONTAINERS[container](X)
    is_array = isinstance(held, np.ndarray) or sparse.issparse(held)
    found = tried(lambda: tiny_classifier().fit(held, y), alike=[y, held] if is_array else y)
    assert found.refusal is None
    expected = tiny_classifier().fit(X, y).predict_proba(X)
    # Arrays after a frame give a warning about missing column names.
    proba = tried(lambda: found.answer.predict_proba(X)).answer
    np.testing.assert_allclose(proba, expected, rtol=1e-5)


@given(matrices(st.integers(0, 200), rows=(4, 9), columns=(1, 3)), st.sampled_from(TYPES))
def test_a_number_type_changes_no_more_than_its_rounding(X, dtype):
    y = np.arange(len(X)) % 2
    with np.errstate(all="ignore"):
        held = X.astype(dtype)
    found = tried(lambda: tiny_classifier().fit(held, y).predict_proba(held), alike=[held, y])
    assert found.refusal is None
    expected = tiny_classifier().fit(held.astype(np.float64), y).predict_proba(held.astype("f8"))
    np.testing.assert_allclose(found.answer, expected, rtol=1e-4, atol=1e-7)


@given(matrices(broken_numbers, rows=(0, 9), columns=(0, 4)))
def test_any_samples_are_learned_or_rejected(X):
    y = np.arange(len(X)) % 2
    found = tried(lambda: tiny_classifier().fit(X, y), FloatingPointError, alike=[X, y])
    if found.refusal is None:
        assert np.isfinite(X).all()
        proba = tried(lambda: found.answer.predict_proba(X))
        assert proba.refusal is None, proba
        assert np.isfinite(proba.answer).all()
        np.testing.assert_allclose(proba.answer.sum(axis=1), 1)
    elif np.isfinite(X).all() and X.size and np.abs(X).max() < 1e30 and len(X) > 1:
        raise AssertionError(found.refusal)


@given(
    st.lists(st.integers(0, 3), max_size=4).map(tuple),
    st.sampled_from(["f4", "f8", "i8", "O", "U3", "S2", "M8[s]", "c16", "?"]),
)
def test_an_array_of_any_shape_and_type_is_learned_or_rejected(shape, dtype):
    X = np.zeros(shape, dtype="i8").astype(dtype)
    for model in (fitted(), fitted("regressor")):
        found = tried(lambda model=model: model.predict(X), alike=X)
        assert (found.refusal is None) <= (len(shape) == 2 and shape[1] == 3)
        if found.refusal is None:
            assert found.answer.shape == shape[:1]


@given(matrices(plain_numbers, rows=(1, 40), columns=(3, 3)), st.data())
def test_a_prediction_depends_neither_on_other_samples_nor_on_their_order(X, data):
    order = data.draw(st.permutations(range(len(X))))
    chosen = order[: data.draw(st.integers(1, len(X)))]
    for name, model in (("predict_proba", fitted()), ("predict", fitted("regressor"))):
        whole, part = getattr(model, name)(X), getattr(model, name)(X[chosen])
        assert np.array_equal(whole[chosen], part)
        np.testing.assert_array_equal(getattr(model, name)(sparse.csr_array(X)), whole)


@given(
    matrices(broken_numbers, rows=(1, 6), columns=(1, 3)),
    st.lists(st.sampled_from(["a", "b", " ", "", "é", "名", 0, 1, None, 1.5, True]), min_size=1),
)
def test_any_column_names_work(X, names):
    frame = pd.DataFrame(X, columns=(names * 3)[: X.shape[1]])
    y = np.arange(len(X)) % 2
    found = tried(lambda: tiny_classifier().fit(frame, y), FloatingPointError, alike=frame)
    if found.refusal is None:
        assert tried(lambda: found.answer.predict(frame)).refusal is None
    assert (
        found.refusal is None
        or not np.isfinite(X).all()
        or np.abs(X).max() > 1e30
        or ("names" in found.refusal)
    )


@pytest.mark.parametrize("name", list(CONTAINERS))
def test_containers_hold_what_they_are_given(name):
    """A test of the test: no container loses a number."""
    X = np.array([[1.0, 0.0, -2.5], [0.0, 0.0, 4.0]])
    held = CONTAINERS[name](X)
    dense = (
        held.toarray()
        if sparse.issparse(held)
        else np.asarray(getattr(held, "detach", lambda: held)())
    )
    assert np.array_equal(dense.astype(np.float64), X)
