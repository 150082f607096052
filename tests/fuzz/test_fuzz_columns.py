"""Random tables: a preprocessor gives finite columns, whatever samples hold, or names the column that it refuses."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
from fuzz import broken_numbers, matrices, plain_numbers, tried, wild_numbers
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone

from mixupe_sklearn import make_preprocessor
from mixupe_sklearn.preprocessing import (
    ClippingScaler,
    PiecewiseLinearEncoder,
    QuantileScaler,
    read_columns,
    select_columns,
)

MISSING = st.sampled_from([None, np.nan, pd.NA, pd.NaT])
TIMES = st.datetimes() | st.dates() | st.timedeltas()
CELLS = {
    "plain numbers": plain_numbers,
    "integers": st.integers(-(2**70), 2**70),
    "wild numbers": wild_numbers,
    "truth": st.booleans(),
    "text": st.text(max_size=3),
    "few words": st.sampled_from(["a", "b", "", " ", "nan", "None", "1", "1.0"]),
    "times": TIMES,
    "decimals": st.sampled_from([Decimal("1.5"), Decimal(10) ** 400, Decimal("NaN")]),
    "odd things": st.sampled_from([b"x", 1j, datetime.time(1), object]),
}
columns = st.lists(st.sampled_from(list(CELLS)), min_size=1, max_size=2, unique=True).map(
    lambda kinds: st.one_of([MISSING, *[CELLS[kind] for kind in kinds]])
)
names = st.sampled_from(["a", "b", "", "é", "x[0]<", 0, 1, 2.5])


@st.composite
def frames(draw, rows=(1, 7)):
    """A frame whose columns may hold anything; some get a type of pandas' own."""
    n_rows = draw(st.integers(*rows))
    found = {}
    for name in draw(st.lists(names, min_size=1, max_size=3, unique=True)):
        cell = draw(columns)
        values = draw(st.lists(cell, min_size=n_rows, max_size=n_rows))
        found[name] = pd.Series(values, dtype=object)
        if draw(st.booleans()):
            try:
                found[name] = found[name].infer_objects()
                if draw(st.booleans()):
                    found[name] = found[name].astype("category")
            except (TypeError, ValueError, OverflowError):
                pass
    return pd.DataFrame(found)


SCALINGS = st.sampled_from(["standard", "robust", "quantile"])


def dense(rows):
    return rows.toarray() if sparse.issparse(rows) else np.asarray(rows)


@given(frames(), SCALINGS)
@example(pd.DataFrame({"a": [1.7e308, -1.7e308, 1.7e308, 0.0]}), "robust")
@example(pd.DataFrame({"a": [1.7e308, -1.7e308, 1.7e308, 0.0]}), "robust")
@example(pd.DataFrame({"a": [1.7e308, 1.7e308, 1e308, 0.0]}), "standard")
def test_any_table_becomes_finite_numbers_or_is_refused(frame, scaling):
    before = frame.copy(deep=True)
    found = tried(lambda: make_preprocessor(scaling=scaling).fit(frame))
    assert frame.equals(before) or frame.astype(object).isna().any(axis=None)
    if found.refusal is not None:
        return
    rows = tried(lambda: dense(found.answer.transform(frame)))
    assert rows.refusal is None, rows
    assert np.isfinite(rows.answer.astype(np.float64)).all()
    assert len(rows.answer) == len(frame)
    backwards = dense(found.answer.transform(frame.iloc[::-1]))
    np.testing.assert_array_equal(backwards[::-1], rows.answer)


@given(frames(), frames(rows=(0, 4)), SCALINGS)
def test_rows_that_were_never_seen_become_finite_numbers_or_are_refused(frame, others, scaling):
    others = others.reindex(columns=frame.columns)
    found = tried(lambda: make_preprocessor(scaling=scaling).fit(frame))
    if found.refusal is not None:
        return
    width = found.answer.transform(frame).shape[1]
    rows = tried(lambda: dense(found.answer.transform(others)))
    if rows.refusal is None:
        assert rows.answer.shape == (len(others), width)
        assert np.isfinite(rows.answer.astype(np.float64)).all()


@given(frames())
def test_a_column_is_of_one_kind_and_reads_alike_twice(frame):
    kinds = ("numbers", "times", "categories")
    found = tried(lambda: [select_columns(frame, kind=kind) for kind in kinds])
    if found.refusal is not None:
        return
    chosen = [name for part in found.answer for name in part]
    assert len(chosen) == len(set(chosen))
    for kind, part in zip(kinds, found.answer, strict=True):
        if not part:
            continue
        table = frame[[name if isinstance(name, str) else frame.columns[name] for name in part]]
        first = read_columns(table, kind=kind)
        assert first.shape == table.shape
        second = read_columns(first, kind="numbers" if kind == "times" else kind)
        assert pd.DataFrame(first).equals(pd.DataFrame(second)), "what was read reads otherwise"


SCALERS = [
    ClippingScaler(),
    QuantileScaler(),
    PiecewiseLinearEncoder(),
    PiecewiseLinearEncoder(n_bins=2),
]


@given(
    matrices(broken_numbers | st.just(np.nan), rows=(0, 9)),
    matrices(broken_numbers, rows=(1, 5)),
    st.sampled_from(SCALERS),
    st.sampled_from(["f4", "f8"]),
)
@example(np.array([[1.7e308], [-1.7e308], [1.7e308], [0.0]]), np.zeros((1, 1)), SCALERS[0], "f8")
@example(np.array([[1.7e308], [-1.7e308], [1.7e308], [0.0]]), np.zeros((1, 1)), SCALERS[2], "f8")
def test_a_scaler_keeps_missing_values_bounds_and_order(X, others, scaler, dtype):
    with np.errstate(over="ignore"):
        X, others = X.astype(dtype), others.astype(dtype)
    found = tried(lambda: clone(scaler).fit(X), alike=X)
    is_right = len(X) > 0 and np.nanmax(np.abs(X), initial=0.0) <= np.finfo(dtype).max / 8
    assert (found.refusal is None) == is_right
    if found.refusal is not None:
        return
    for rows in (X, others[:, :1].repeat(X.shape[1], axis=1)):
        scaled = tried(lambda rows=rows: found.answer.transform(rows), alike=rows)
        assert (scaled.refusal is None) == (not np.isinf(rows).any())
        if scaled.refusal is None:
            is_missing, source = (
                np.isnan(scaled.answer),
                getattr(found.answer, "source_", slice(None)),
            )
            assert np.array_equal(is_missing, np.isnan(rows)[:, source])
            assert np.abs(scaled.answer[~is_missing]).max(initial=0) < 6
            column, out = rows[:, source][:, 0], scaled.answer[:, 0]
            order = np.argsort(column[~np.isnan(column)], kind="stable")
            assert (np.diff(out[~np.isnan(column)][order]) >= 0).all(), "the order was lost"


@given(matrices(wild_numbers, rows=(2, 9), columns=(1, 1)))
def test_two_different_numbers_stay_different_where_they_can(X):
    """No spread may be lost to overflow: the ends of a column stay distinct."""
    ends = np.array([[X.min()], [X.max()]])
    scaled = tried(lambda: ClippingScaler().fit(X).transform(ends))
    assert (scaled.refusal is None) == (np.abs(X).max() < 1e308)
    if scaled.refusal is None and ends[1] / 2 - ends[0] / 2 > 1e-300:
        assert scaled.answer[0] < scaled.answer[1]
