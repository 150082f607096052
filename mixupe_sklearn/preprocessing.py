"""From raw columns to the numbers that the method wants: filled, one-hot, centred and scaled."""

from collections.abc import Callable
from functools import partial
from typing import Any

from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.utils._set_output import _get_output_config

from mixupe_sklearn._estimators.classifier import MixupEClassifier
from mixupe_sklearn._preprocessing.columns import read_columns, select_columns
from mixupe_sklearn._preprocessing.scalers import (
    ClippingScaler,
    PiecewiseLinearEncoder,
    QuantileScaler,
)
from mixupe_sklearn._utils.parameter_rules import Choice, check_rules

__all__ = [
    "ClippingScaler",
    "ColumnsToNumbers",
    "PiecewiseLinearEncoder",
    "QuantileScaler",
    "make_mixupe_pipeline",
    "make_preprocessor",
    "read_columns",
    "select_columns",
]


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


def _standard() -> list[tuple[str, Any]]:
    return [("simpleimputer", SimpleImputer()), ("standardscaler", StandardScaler())]


def _missing_last(name: str, scaler: Any, *, with_std: bool = True) -> list[tuple[str, Any]]:
    """Scale, centre, and only then fill holes: the mean of raw numbers may be an outlier's."""
    centre = StandardScaler(with_std=with_std)
    return [(name, scaler), ("standardscaler", centre), ("simpleimputer", SimpleImputer())]


_SCALINGS: dict[str, Callable[[], list[tuple[str, Any]]]] = {
    "standard": _standard,
    "robust": lambda: _missing_last("clippingscaler", ClippingScaler()),
    "quantile": lambda: _missing_last("quantilescaler", QuantileScaler()),
    "splines": lambda: _missing_last(
        "piecewiselinearencoder", PiecewiseLinearEncoder(), with_std=False
    ),
}


def make_preprocessor(
    *,
    scaling="robust",
    handle_unknown="infrequent_if_exist",
    min_frequency=None,
    max_categories=None,
    sparse_threshold=0.3,
) -> ColumnTransformer:
    """Make the preprocessing that turns raw columns into what the method wants.

    Numbers are scaled to zero mean, which the method's derivation asks for, with outliers clipped
    smoothly; ``scaling="standard"`` is the paper's. Missing numbers become the column's mean,
    missing categories its most frequent value, and categories are one-hot encoded. Dates and spans
    of time are numbers of seconds.

    A column counts as numbers or times by its type, or, if it holds objects, when all values that
    are there are such; anything else is a category: text, truth values, mixed types. A column
    with a single value in the training rows, or none, is left out.

    Parameters
    ----------
    scaling : {"standard", "robust", "quantile", "splines"}, default="robust"
        How numbers and times are scaled. ``"standard"``: to unit variance. ``"robust"``: by median
        and interquartile range, clipped smoothly (``ClippingScaler``), then to unit variance.
        ``"quantile"``: to a normal distribution (``QuantileScaler``), then the same. ``"splines"``:
        each column becomes several, a piecewise-linear basis (``PiecewiseLinearEncoder``). For all
        but ``"standard"`` missing numbers become the mean after scaling.
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

    See Also
    --------
    make_mixupe_pipeline : The same with a classifier behind it.
    sklearn.compose.ColumnTransformer : What it is made of.

    Examples
    --------
    >>> import pandas as pd
    >>> from mixupe_sklearn import make_preprocessor
    >>> frame = pd.DataFrame({"size": [1.0, None, 3.0], "city": ["Oslo", "Bonn", None]})
    >>> make_preprocessor().fit_transform(frame).shape
    (3, 3)
    """
    check_rules({"scaling": scaling}, {"scaling": Choice(tuple(_SCALINGS))})
    encoder = OneHotEncoder(
        handle_unknown=handle_unknown, min_frequency=min_frequency, max_categories=max_categories
    )
    fill = SimpleImputer(strategy="most_frequent")
    return ColumnsToNumbers(
        [
            _part("numbers", *_SCALINGS[scaling]()),
            _part("times", *_SCALINGS[scaling]()),
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

    See Also
    --------
    MixupEClassifier : Its last step.
    sklearn.pipeline.Pipeline : What it is.

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
