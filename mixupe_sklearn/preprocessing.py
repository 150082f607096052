"""From raw columns to the numbers that the method wants: filled, one-hot, centred and scaled."""

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.utils._set_output import _get_output_config

from mixupe_sklearn._classifier import MixupEClassifier


def _columns(X: Any) -> Iterator[tuple[Any, Any]]:
    """Names and columns of a pandas or polars frame, or of an array, which has no names."""
    is_frame = hasattr(X, "columns")
    if len(X.shape) != 2 or not (is_frame or isinstance(X, np.ndarray)):
        raise ValueError(
            f"Got X of type {type(X).__name__} and shape {X.shape}, but expected a data frame, or "
            f"an array with rows and columns."
        )
    if hasattr(X, "iter_columns"):
        return ((column.name, column) for column in X.iter_columns())
    return iter(X.items()) if is_frame else ((None, column) for column in X.T)


def _is_hole(value: Any) -> bool:
    # By name: pandas, whose NA has no truth value, need not be installed.
    if type(value).__name__ in ("NoneType", "NAType", "NaTType"):
        return True
    return isinstance(value, (float, np.floating, Decimal)) and value != value


def _is_present(values: np.ndarray) -> np.ndarray:
    return ~np.frompyfunc(_is_hole, 1, 1)(values).astype(bool)


def _kind(column: Any) -> str:
    """What a column holds; numpy's type of its values tells, objects are looked at."""
    # Its values may well be numbers; polars has categories of text only.
    if str(getattr(column, "dtype", "")) == "category":
        return "categories"
    values = np.asarray(column)
    if values.dtype.kind in "iufMm":
        return "times" if values.dtype.kind in "Mm" else "numbers"
    if values.dtype.kind != "O" or str in set(map(type, values)):
        return "categories"
    types = set(map(type, values[_is_present(values)]))
    if all(issubclass(kind, (Real, Decimal)) and kind is not bool for kind in types):
        return "numbers"
    return "times" if all(issubclass(kind, (date, timedelta)) for kind in types) else "categories"


def _objects(column: Any) -> np.ndarray:
    values = np.asarray(column)
    if values.dtype.kind in "Mm":  # nanoseconds would become whole numbers
        values = values.astype(f"{values.dtype.kind}8[us]")
    return values.astype(object)


def _seconds(value: Any) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if not isinstance(value, date):
        raise TypeError
    moment = value if isinstance(value, datetime) else datetime.combine(value, time())
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _level(value: Any) -> str:
    # A hole turns whole numbers into floats, so 1 and 1.0 are the same level.
    is_whole = isinstance(value, (float, np.floating)) and float(value).is_integer()
    return str(int(value) if is_whole else value)


def _where(name: Any) -> str:
    return "a column" if name is None else f"column {name!r}"


def _each(values: np.ndarray, convert: Callable, where: str, expected: str) -> np.ndarray:
    """Floats of objects one by one, NaN for holes."""
    floats = np.full(len(values), np.nan)
    for row in np.flatnonzero(_is_present(values)):
        try:
            floats[row] = convert(values[row])
        except (TypeError, ValueError, OverflowError):
            raise ValueError(
                f"Got {values[row]!r} in {where}, but expected {expected}, as in the rows of fit."
            ) from None
    return floats


def _numbers(name: Any, column: Any) -> np.ndarray:
    values, where = np.asarray(column), _where(name)
    if values.dtype.kind in "biuf":
        floats = values.astype(np.float64, copy=False)
    else:
        floats = _each(_objects(values), float, where, "numbers")
    if np.isinf(floats).any():
        raise ValueError(f"Got infinity in {where}, but expected finite numbers, or NaN for holes.")
    return floats


def _times(name: Any, column: Any) -> np.ndarray:
    return _each(_objects(column), _seconds, _where(name), "dates or spans of time")


def _levels(name: Any, column: Any) -> np.ndarray:
    values = _objects(column)
    is_present = _is_present(values)
    levels = np.full(len(values), np.nan, dtype=object)
    levels[is_present] = [_level(value) for value in values[is_present]]
    return levels


_READERS: dict[str, Callable] = {"numbers": _numbers, "times": _times, "categories": _levels}


def select_columns(X: Any, kind: str) -> list[Any]:
    """Columns of one kind that hold two different values at least: the others tell nothing.

    Names, or positions where names are not text.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"size": [1.0, 2.0], "unit": [1, 1], "city": ["Oslo", None]})
    >>> select_columns(frame, kind="numbers"), select_columns(frame, kind="categories")
    (['size'], [])
    """
    found = []
    for position, (name, column) in enumerate(_columns(X)):
        if _kind(column) == kind:
            values = _READERS[kind](name, column)
            # Whatever is a hole is NaN by now, which differs from itself.
            values = values[values == values]
            if len(values) and (values != values[0]).any():
                # ColumnTransformer takes whole numbers for positions, even where they are names.
                found.append(name if isinstance(name, str) else position)
    return found


def read_columns(X: Any, kind: str) -> np.ndarray:
    """Columns of one kind as floats (numbers, or times in seconds) or as text, NaN for holes.

    Examples
    --------
    >>> from datetime import date
    >>> read_columns(np.array([[date(1970, 1, 2)], [None]]), kind="times").tolist()
    [[86400.0], [nan]]
    >>> read_columns(np.array([["Oslo"], [7.0], [None]], dtype=object), kind="categories").tolist()
    [['Oslo'], ['7'], [nan]]
    """
    return np.column_stack([_READERS[kind](name, column) for name, column in _columns(X)])


class ColumnsToNumbers(ColumnTransformer):
    """A column transformer that makes a frame, if one is asked for, of the whole result only.

    Its parts always give arrays: scikit-learn's pipelines lose the names of an array's columns
    where each step makes a frame, and its one-hot encoder refuses to, since no frame is sparse.
    """

    def set_output(self, *, transform=None):
        """Choose the container of the output; see scikit-learn's ``set_output``."""
        return super(ColumnTransformer, self).set_output(transform=transform)

    def _hstack(self, Xs, *, n_samples):  # the parent's hook for subclasses
        stacked = super()._hstack(Xs, n_samples=n_samples)
        is_frame_wanted = _get_output_config("transform", self)["dense"] != "default"
        return stacked.toarray() if is_frame_wanted and sparse.issparse(stacked) else stacked


def _part(kind: str, *steps: tuple[str, Any]) -> tuple[str, Pipeline, Callable]:
    reader = FunctionTransformer(
        read_columns, feature_names_out="one-to-one", kw_args={"kind": kind}
    )
    # Said here, it holds whatever scikit-learn's global configuration says.
    pipeline = Pipeline([("reader", reader), *steps]).set_output(transform="default")
    return kind, pipeline, partial(select_columns, kind=kind)


def _scaled() -> list[tuple[str, Any]]:
    return [("simpleimputer", SimpleImputer()), ("standardscaler", StandardScaler())]


def make_preprocessor(
    *,
    handle_unknown="infrequent_if_exist",
    min_frequency=None,
    max_categories=None,
    sparse_threshold=0.3,
) -> ColumnTransformer:
    """Make the preprocessing of the paper's tabular experiments.

    Missing numbers become the column's mean, missing categories its most frequent value, and
    categories are one-hot encoded. Numbers are then scaled to zero mean, which the method's
    derivation asks for, and unit variance. Dates and spans of time are numbers of seconds.

    A column counts as numbers or times by its type, or, if it holds objects, when all values that
    are there are such; anything else is a category: text, truth values, mixed types. A column
    with a single value in the training rows, or none, is left out.

    Parameters
    ----------
    handle_unknown : str, default="infrequent_if_exist"
        What becomes of a category that was not in the training rows, as in
        :class:`~sklearn.preprocessing.OneHotEncoder`: it joins the rare ones, and where there are
        none, it becomes zeros. ``"ignore"`` always gives zeros, ``"error"`` refuses.
    min_frequency : int, float or None, default=None
        Categories with fewer rows (int), or a smaller share of them (float), become one column.
    max_categories : int or None, default=None
        Most columns that one column of categories may become; the rare ones share one.
    sparse_threshold : float, default=0.3
        Output with a smaller share of non-zeros is sparse, as in
        :class:`~sklearn.compose.ColumnTransformer`; 0 makes it always dense.

    Returns
    -------
    preprocessor : ColumnTransformer
        Not yet fitted; for pandas frames, polars frames (with scikit-learn 1.9 or later), arrays
        and lists of rows. Its parts are ``"numbers"``, ``"times"`` and ``"categories"``.

    Examples
    --------
    >>> import pandas as pd
    >>> from mixupe_sklearn import make_preprocessor
    >>> frame = pd.DataFrame({"size": [1.0, None, 3.0], "city": ["Oslo", "Bonn", None]})
    >>> make_preprocessor().fit_transform(frame).shape
    (3, 3)
    """
    encoder = OneHotEncoder(
        handle_unknown=handle_unknown, min_frequency=min_frequency, max_categories=max_categories
    )
    fill = SimpleImputer(strategy="most_frequent")
    return ColumnsToNumbers(
        [
            _part("numbers", *_scaled()),
            _part("times", *_scaled()),
            _part("categories", ("simpleimputer", fill), ("onehotencoder", encoder)),
        ],
        sparse_threshold=sparse_threshold,
    )


def make_mixupe_pipeline(*, preprocessor=None, **classifier_params) -> Pipeline:
    """Make a pipeline from raw rows to a classifier.

    Parameters
    ----------
    preprocessor : transformer or None, default=None
        What turns raw rows into numbers; None is :func:`make_preprocessor` as it comes.
    **classifier_params : dict
        Parameters of :class:`MixupEClassifier`.

    Returns
    -------
    pipeline : Pipeline
        Steps ``"preprocessor"`` and ``"classifier"``.

    Examples
    --------
    >>> import pandas as pd
    >>> from mixupe_sklearn import make_mixupe_pipeline
    >>> frame = pd.DataFrame({"size": [1.0, None, 3.0], "city": ["Oslo", "Bonn", None]})
    >>> pipeline = make_mixupe_pipeline(batch_size=2, random_state=0)
    >>> pipeline.fit(frame, ["a", "a", "b"]).predict(frame).shape
    (3,)
    """
    return Pipeline(
        [
            ("preprocessor", make_preprocessor() if preprocessor is None else preprocessor),
            ("classifier", MixupEClassifier(**classifier_params)),
        ]
    )
