"""Random labels, regression targets and weights: learned unchanged, or rejected."""

import datetime

import numpy as np
import pandas as pd
from fuzz import broken_numbers, plain_numbers, tiny_classifier, tiny_regressor, tried
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import sparse

X = np.random.default_rng(0).normal(size=(8, 2))

WHOLE = st.integers(-5, 5) | st.sampled_from([2**31, -(2**62), 2**63 - 1, 2**63, 10**30])
KINDS = {
    "whole": WHOLE,
    "float": st.integers(-3, 3).map(float) | st.sampled_from([1e15, -1e18, 1e300, 0.5]),
    "bool": st.booleans(),
    "text": st.text(max_size=4),
    "bytes": st.binary(max_size=2),
    "date": st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 1, 1)),
    "missing": st.sampled_from([None, np.nan, pd.NA, pd.NaT]),
}
labels = st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=2, unique=True).flatmap(
    lambda kinds: st.lists(st.one_of([KINDS[kind] for kind in kinds]), min_size=8, max_size=8)
)
HOLDERS = {
    "list": list,
    "tuple": tuple,
    "objects": lambda y: np.array([*y, None], dtype=object)[:-1],
    "series": lambda y: pd.Series(y, dtype=object),
    "strided": lambda y: np.array([[one, one] for one in [*y, None]], dtype=object)[:-1, 0],
}


def is_missing(label):
    return label is None or label is pd.NA or label is pd.NaT or label != label


@given(labels, st.sampled_from(list(HOLDERS)))
@example(["a", np.nan] * 4, "list")
@example(["1", 1] * 4, "list")
@example([pd.NA, "a"] * 4, "series")
@example([1e300, 2.0] * 4, "list")
def test_labels_of_any_type_are_learned_unchanged_or_rejected(values, holder):
    y = HOLDERS[holder](values)
    found = tried(lambda: tiny_classifier().fit(X, y), alike=y)
    if found.refusal is None:
        classes = found.answer.classes_.tolist()
        assert not any(map(is_missing, values)), "a missing label became a class"
        assert len(classes) == len(set(values)), "classes were joined or parted"
        assert set(classes) == set(values)
        assert set(found.answer.predict(X).tolist()) <= set(values)
    elif {type(value) for value in values} == {str}:
        raise AssertionError(found.refusal)


@given(labels, labels, st.booleans())
def test_partial_fit_learns_announced_labels_or_raises(values, others, announce_all):
    classes = values + others if announce_all else values
    model = tiny_classifier()
    found = tried(lambda: model.partial_fit(X, values, classes=classes))
    if found.refusal is not None:
        assert not hasattr(model, "classes_"), "half fitted"
        return
    again = tried(lambda: model.partial_fit(X, others))
    known = set(model.classes_.tolist())
    assert known == set(classes)
    assert (again.refusal is None) <= (set(others) <= known)
    assert set(model.predict(X).tolist()) <= known


@given(
    st.integers(0, 9),
    st.integers(0, 4),
    st.data(),
    st.sampled_from(["i8", "f4", "?", "O", "csr", "csc", "frame"]),
)
def test_multilabel_targets_are_learned_or_rejected(n_rows, n_labels, data, holder):
    values = data.draw(
        st.lists(
            st.integers(0, 1) | st.integers(-1, 2),
            min_size=n_rows * n_labels,
            max_size=n_rows * n_labels,
        )
    )
    matrix = np.array(values, dtype=np.int64).reshape(n_rows, n_labels)
    holders = {"csr": sparse.csr_array, "csc": sparse.csc_matrix, "frame": pd.DataFrame}
    y = holders[holder](matrix) if holder in holders else matrix.astype(holder)
    found = tried(lambda: tiny_classifier().fit(X, y), alike=y)
    is_several = n_rows == 8 and n_labels > 1 and set(matrix.ravel().tolist()) == {0, 1}
    assert (found.refusal is None) >= is_several, found.refusal
    if found.refusal is None and n_labels > 1:
        proba, decided = found.answer.predict_proba(X), found.answer.predict(X)
        assert proba.shape == (8, n_labels)
        assert np.array_equal(decided, proba > 0.5)


weights = st.floats(0, 10) | st.sampled_from([0.0, 5e-324, 1e-300, 1e300, 1.7e308])
odd_weights = weights | st.sampled_from([-1.0, np.nan, np.inf, None, "a", 10**400, 1j, True])


@given(st.lists(odd_weights, min_size=7, max_size=9) | odd_weights)
@example([10**400] * 8)
def test_weights_are_used_or_rejected(weight):
    y = np.arange(8) % 2
    found = tried(lambda: tiny_classifier().fit(X, y, weight))
    numbers = weight if isinstance(weight, list) else [weight] * 8
    are_right = all(isinstance(one, (bool, float)) and 0 <= one < np.inf for one in numbers)
    are_right &= len(numbers) == 8 and any(numbers) if are_right else False
    if weight is not None:
        assert (found.refusal is None) <= are_right
    if found.refusal is None:
        assert np.isfinite(found.answer.predict_proba(X)).all()


@given(
    st.lists(st.floats(0.125, 8), min_size=8, max_size=8),
    st.lists(st.booleans(), min_size=8, max_size=8),
    st.integers(-900, 900),
)
def test_only_ratios_of_weights_count_and_samples_of_weight_zero_are_removed(
    weight, is_there, power
):
    y, weight, is_there = np.arange(8) % 2, np.array(weight), np.array(is_there)
    if len(set(y[is_there])) < 2:
        is_there[:] = True
    with_zeros = np.where(is_there, np.ldexp(weight, power), 0.0)
    first = tiny_classifier().fit(X, np.where(is_there, y, 7), with_zeros)
    second = tiny_classifier().fit(X[is_there], y[is_there], weight[is_there])
    assert np.array_equal(first.predict_proba(X), second.predict_proba(X))


class_weights = st.dictionaries(
    st.sampled_from([0, 1, 2, "0", None, 1.0, True]), weights | odd_weights, max_size=3
)


@given(
    class_weights
    | st.sampled_from(["balanced", "balancd", 3, None, [1, 2]])
    | st.lists(class_weights, max_size=3),
    st.lists(weights, min_size=8, max_size=8) | st.none(),
    st.booleans(),
)
@example({0: 1e308}, [1.7e308] * 3 + [1e308] * 5, False)
@example("balanced", [1.7e308] * 3 + [1e308] * 5, False)
@example([{0: 1e300, 1: 1e300}] * 2, [1e300] * 4 + [1.0] * 4, True)
@example({0: 10**400}, None, False)
def test_class_weights_are_used_or_rejected(class_weight, weight, several):
    y = np.arange(8) % 2
    y = np.column_stack([y, y[::-1]]) if several else y
    found = tried(lambda: tiny_classifier(class_weight=class_weight).fit(X, y, weight), alike=[y])
    if found.refusal is None:
        assert np.isfinite(found.answer.predict_proba(X)).all()


@given(
    st.lists(broken_numbers, min_size=8, max_size=8),
    st.sampled_from(["f2", "f4", "f8", "O", "g", "list", "column", "two", "series"]),
)
@example([0.0, 5e-324] * 4, "f8")
@example([1.7e308] * 7 + [-1.7e308], "f8")
def test_regression_targets_are_learned_or_rejected(values, holder):
    y = np.array(values)
    if holder in ("f2", "f4", "f8", "O", "g"):
        with np.errstate(over="ignore"):
            y = y.astype(holder)
    y = {"list": values, "column": y[:, None], "series": pd.Series(values)}.get(holder, y)
    y = np.column_stack([y, y[::-1]]) if holder == "two" else y
    found = tried(lambda: tiny_regressor().fit(X, y), alike=y)
    numbers = np.asarray(y, dtype=np.float64)
    assert (found.refusal is None) == (
        np.isfinite(numbers).all() and np.abs(numbers).max() <= 1e300
    )
    if found.refusal is None:
        predicted = tried(lambda: found.answer.predict(X))
        assert predicted.refusal is None
        assert predicted.answer.shape == ((8, 2) if holder == "two" else (8,))
        assert np.isfinite(predicted.answer).all()


@given(st.lists(plain_numbers, min_size=8, max_size=8), st.integers(-200, 200))
def test_the_unit_of_a_target_does_not_matter(values, power):
    y = np.array(values)
    first, second = (tiny_regressor().fit(X, scaled) for scaled in (y, np.ldexp(y, power)))
    np.testing.assert_allclose(np.ldexp(first.predict(X), power), second.predict(X), rtol=1e-9)


@given(
    st.integers(0, 5),
    st.sampled_from([(2,), (3,), ()]),
    labels | st.lists(st.integers(0, 2), max_size=5),
    st.none() | st.lists(odd_weights, max_size=5),
    st.booleans(),
)
def test_validation_samples_are_used_or_rejected(n_rows, width, y_val, weight, with_rows):
    y = np.arange(8) % 2
    X_val = np.ones((n_rows, *width)) if with_rows else None
    found = tried(
        lambda: tiny_classifier(early_stopping=True).fit(
            X, y, X_val=X_val, y_val=y_val, sample_weight_val=weight
        )
    )
    if found.refusal is None:
        assert with_rows
        assert len(y_val) == n_rows
        assert set(y_val) <= {0, 1}
        assert np.isfinite(found.answer.history_[0]["valid_loss"])
