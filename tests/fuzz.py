"""Shared by the tests with random input: a call gives a result or one sentence, and keeps its input."""

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from scipy import sparse

from mixupe_sklearn import MixupEClassifier, MixupERegressor, preset

# The errors of wrong input; a training that leaves the range of floats raises another type.
REFUSALS = (ValueError, TypeError)
TINY = {"max_epochs": 1, "batch_size": 4, "module_params": {"d_hidden": (3,)}, "random_state": 0}


class Outcome(NamedTuple):
    """Outcome of a call: its result, or the sentence of its error."""

    answer: Any = None
    refusal: str | None = None
    kind: type[BaseException] | None = None


def tried(call: Callable[[], Any], *more: type[BaseException], alike: Any = ()) -> Outcome:
    """Run a call; raises any error that is not one sentence, and any warning of numpy.

    ``alike`` is input that the call must not change.
    """
    before = snapshot(alike)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", UserWarning)
        try:
            outcome = Outcome(call())
        except (*REFUSALS, *more) as error:
            outcome = Outcome(None, sentence_of(error), type(error))
    assert snapshot(alike) == before, "the input was written to"
    return outcome


def sentence_of(error: BaseException) -> str:
    """Return the text of an error, which must be a sentence."""
    text = str(error)
    # Texts of errors from inside, where a check is missing.
    slips = ("object is not", "unsupported operand", "has no attribute", "positional argument")
    slips += ("not supported between", "zero-size array", "not enough values", "ufunc '")
    assert len(text.strip().splitlines()[:1]) == 1, f"{error!r} says nothing"
    assert len(text.split()) >= 4, f"{error!r} is no sentence"
    assert text.startswith("Got ") or not any(slip in text for slip in slips), (
        f"{error!r} is a slip"
    )
    return text


def snapshot(data: Any) -> Any:
    """Return bytes that are equal for equal data, including NaN and memory layout."""
    if isinstance(data, (list, tuple)) and not any(isinstance(part, str) for part in data):
        return [snapshot(part) for part in data]
    if sparse.issparse(data):
        parts = {name: part for name, part in vars(data).items() if isinstance(part, np.ndarray)}
        return [
            type(data).__name__,
            data.shape,
            *sorted((k, snapshot(v)) for k, v in parts.items()),
        ]
    if isinstance(data, np.ndarray) and data.dtype != object:
        return (data.dtype.str, data.shape, data.strides, data.tobytes())
    return pickle.dumps(copy.copy(data))


def tiny_classifier(**params: Any) -> MixupEClassifier:
    return MixupEClassifier(**preset("paper") | TINY | params)


def tiny_regressor(**params: Any) -> MixupERegressor:
    return MixupERegressor(**preset("paper") | TINY | params)


def flipped(content: bytes) -> st.SearchStrategy[bytes]:
    """A truncated file, or one with a few bytes changed, removed or inserted."""
    place = st.integers(0, max(0, len(content) - 1))
    cut = place.map(lambda stop: content[:stop])
    edit = st.tuples(place, st.sampled_from(["set", "drop", "add"]), st.integers(0, 255))
    return cut | st.lists(edit, min_size=1, max_size=4).map(lambda edits: _edited(content, edits))


def _edited(content: bytes, edits: list[tuple[int, str, int]]) -> bytes:
    changed = bytearray(content)
    for place, way, value in edits:
        stop = place if way == "add" else place + 1
        changed[place:stop] = b"" if way == "drop" else bytes([value])
    return bytes(changed)


# Ordinary numbers, extreme ones, and those that are not finite.
plain_numbers = st.integers(-5, 5).map(float) | st.floats(-100, 100, width=16)
wild_numbers = plain_numbers | st.sampled_from(
    [5e-324, 1e-310, -1e-40, 1e-20, 3e4, -7e4, 1e20, 3e38, -4e38, 1e154, -1e300, 1.7e308, -1.7e308]
)
broken_numbers = wild_numbers | st.sampled_from([np.nan, np.inf, -np.inf])


@st.composite
def matrices(draw, numbers=plain_numbers, rows=(1, 8), columns=(1, 4)) -> np.ndarray:
    """Dense samples in double precision."""
    shape = draw(st.integers(*rows)), draw(st.integers(*columns))
    size = shape[0] * shape[1]
    values = draw(st.lists(numbers, min_size=size, max_size=size))
    return np.array(values, dtype=np.float64).reshape(shape)
