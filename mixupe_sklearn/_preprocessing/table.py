"""TablePreprocessor: from the raw columns of a table to numeric features."""

from collections.abc import Callable
from functools import partial
from typing import Any

from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import check_is_fitted, validate_data

from mixupe_sklearn._preprocessing.columns import read_columns, select_columns
from mixupe_sklearn._preprocessing.scalers import (
    ClippingScaler,
    PiecewiseLinearEncoder,
    QuantileScaler,
)
from mixupe_sklearn._utils.parameter_rules import Choice, check_rules

SCALERS: dict[str, Callable[[], Any]] = {
    "robust": ClippingScaler,
    "quantile": QuantileScaler,
    "splines": PiecewiseLinearEncoder,
}


class ColumnsToNumbers(ColumnTransformer):
    """The column transformer of a ``TablePreprocessor``, by which saved files and exports know it.

    It and its parts always return arrays. The preprocessor makes a data frame of the whole result,
    if one is wanted: scikit-learn's one-hot encoder makes none, since no frame is sparse.
    """


def _check_table(X: Any) -> None:
    """Raise one sentence for what is no table; columns are checked one by one as they are read."""
    if sparse.issparse(X):
        raise TypeError(
            f"Got X as a sparse {type(X).__name__}, but expected a data frame or a dense array."
        )
    shape = getattr(X, "shape", None)
    if shape is not None and len(shape) != 2:
        raise ValueError(
            f"Got X of shape {shape}, but expected a table of samples and columns. Reshape your "
            f"data, for a single column with X.reshape(-1, 1)."
        )
    if getattr(getattr(X, "dtype", None), "kind", "") == "c":
        raise ValueError("Complex data not supported: got complex X, but expected real numbers.")


def _part(kind: str, steps: list[tuple[str, Any]]) -> tuple[str, Pipeline, Callable]:
    reader = FunctionTransformer(
        read_columns, feature_names_out="one-to-one", kw_args={"kind": kind}
    )
    return kind, Pipeline([("reader", reader), *steps]), partial(select_columns, kind=kind)


def _scaling_steps(scaling: Any) -> list[tuple[str, Any]]:
    if isinstance(scaling, str) and scaling == "standard":
        return [("simpleimputer", SimpleImputer()), ("standardscaler", StandardScaler())]
    scaler = SCALERS[scaling]() if isinstance(scaling, str) else clone(scaling)
    # Ramps are in [0, 1] already: unit variance would inflate the rare ones.
    centring = StandardScaler(with_std=not isinstance(scaler, PiecewiseLinearEncoder))
    # Missing values are filled last: the mean of raw numbers may be an outlier's.
    return [
        (type(scaler).__name__.lower(), scaler),
        ("standardscaler", centring),
        ("simpleimputer", SimpleImputer()),
    ]


class TablePreprocessor(TransformerMixin, BaseEstimator):
    """Turn the raw columns of a table into the numeric features that the method needs.

    Numeric columns are scaled to zero mean, which the derivation of the method assumes, with
    outliers clipped smoothly. Missing numbers become the column's mean and missing categories its
    most frequent value. Categories are one-hot encoded. Dates and durations become seconds.

    A column is numeric or temporal by its dtype or, if it holds objects, when all values that are
    not missing are such. Every other column is categorical: text, booleans, mixed types. A column
    that is constant in the training samples is dropped.

    Parameters
    ----------
    scaling : {"standard", "robust", "quantile", "splines"} or transformer, default="robust"
        How numeric and temporal columns are scaled. ``"standard"`` (the paper's): to unit variance.
        ``"robust"``: by median and interquartile range, clipped smoothly (``ClippingScaler``), then
        to unit variance. ``"quantile"``: to a normal distribution (``QuantileScaler``), then to
        unit variance. ``"splines"``: each column becomes several, a piecewise-linear basis
        (``PiecewiseLinearEncoder``). A transformer, such as ``ClippingScaler(limit=5.0)``, must
        keep NaN. For all but ``"standard"`` missing numbers become the mean after scaling.
    handle_unknown : str, default="infrequent_if_exist"
        What happens to a category that the training samples do not have, as in
        :class:`~sklearn.preprocessing.OneHotEncoder`: it joins the infrequent categories, or
        becomes zeros where there are none. ``"ignore"`` always gives zeros, ``"error"`` raises.
    min_frequency : int, float or None, default=None
        Categories with fewer samples (int), or a smaller fraction of them (float), share one
        column.
    max_categories : int or None, default=None
        Maximum number of columns for one categorical column; infrequent categories share one.
    sparse_threshold : float, default=0.3
        The output is sparse if its share of non-zeros is smaller, as in
        :class:`~sklearn.compose.ColumnTransformer`; 0 makes it always dense.

    Attributes
    ----------
    transformer_ : ColumnTransformer
        The fitted column transformer, with the parts ``"numbers"``, ``"times"`` and
        ``"categories"``.
    output_indices_ : dict of str to slice
        The output columns of each part.
    n_features_in_ : int
        Number of columns seen during ``fit``.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of these columns, if they are all strings.

    See Also
    --------
    make_preprocessor : The same as a function.
    make_mixupe_pipeline : The same with a classifier or regressor behind it.

    Examples
    --------
    >>> import pandas as pd
    >>> from mixupe_sklearn.preprocessing import TablePreprocessor
    >>> frame = pd.DataFrame({"size": [1.0, None, 3.0], "city": ["Oslo", "Bonn", None]})
    >>> preprocessor = TablePreprocessor().fit(frame)
    >>> preprocessor.get_feature_names_out().tolist()
    ['numbers__size', 'categories__city_Bonn', 'categories__city_Oslo']
    """

    def __init__(
        self,
        *,
        scaling="robust",
        handle_unknown="infrequent_if_exist",
        min_frequency=None,
        max_categories=None,
        sparse_threshold=0.3,
    ):
        self.scaling = scaling
        self.handle_unknown = handle_unknown
        self.min_frequency = min_frequency
        self.max_categories = max_categories
        self.sparse_threshold = sparse_threshold

    def fit(self, X, y=None):
        """Learn the kind of each column, and how to scale or encode it.

        Parameters
        ----------
        X : data frame or array-like of shape (n_samples, n_features)
            Training samples: a pandas frame, a polars frame (scikit-learn 1.9 or later), an array
            or a list of rows.
        y : object, default=None
            Ignored.

        Returns
        -------
        self : TablePreprocessor
            The fitted preprocessor.
        """
        self.fit_transform(X)
        return self

    def fit_transform(self, X, y=None):
        """Fit, and return the features of the training samples.

        Parameters
        ----------
        X : data frame or array-like of shape (n_samples, n_features)
            Training samples.
        y : object, default=None
            Ignored.

        Returns
        -------
        features : ndarray, sparse matrix or data frame of shape (n_samples, n_features_out)
            Numeric features.
        """
        _check_table(X)
        if 0 in getattr(X, "shape", ()):
            n_samples, n_features = X.shape
            raise ValueError(
                f"Got X with {n_samples} sample(s) and {n_features} feature(s) "
                f"(shape={X.shape}) while a minimum of 1 is required."
            )
        validate_data(self, X, skip_check_array=True)  # only counts and names the columns
        self.transformer_ = self._make_transformer()
        return self._dense_for_frames(self.transformer_.fit_transform(X))

    def transform(self, X):
        """Return the features of samples.

        Parameters
        ----------
        X : data frame or array-like of shape (n_samples, n_features)
            Samples with the columns of ``fit``.

        Returns
        -------
        features : ndarray, sparse matrix or data frame of shape (n_samples, n_features_out)
            Numeric features.
        """
        check_is_fitted(self)
        _check_table(X)
        return self._dense_for_frames(self.transformer_.transform(X))

    def get_feature_names_out(self, input_features=None):
        """Names of the features: the part, the column and, for categories, the value.

        Parameters
        ----------
        input_features : array-like of str or None, default=None
            Names of the columns, as scikit-learn's transformers take them.

        Returns
        -------
        names : ndarray of shape (n_features_out,)
            For example ``"categories__city_Oslo"``.
        """
        check_is_fitted(self)
        return self.transformer_.get_feature_names_out(input_features)

    @property
    def output_indices_(self):
        """The output columns of each part, as in :class:`~sklearn.compose.ColumnTransformer`."""
        check_is_fitted(self)
        return self.transformer_.output_indices_

    def _dense_for_frames(self, X: Any) -> Any:
        """Dense features if the output is to be a data frame, which is never sparse."""
        is_frame_wanted = _get_output_config("transform", self)["dense"] != "default"
        return X.toarray() if is_frame_wanted and sparse.issparse(X) else X

    def _make_transformer(self) -> ColumnsToNumbers:
        if isinstance(self.scaling, str) or not hasattr(self.scaling, "transform"):
            check_rules({"scaling": self.scaling}, {"scaling": Choice(("standard", *SCALERS))})
        encoder = OneHotEncoder(
            handle_unknown=self.handle_unknown,
            min_frequency=self.min_frequency,
            max_categories=self.max_categories,
        )
        fill = SimpleImputer(strategy="most_frequent")
        return ColumnsToNumbers(
            [
                _part("numbers", _scaling_steps(self.scaling)),
                _part("times", _scaling_steps(self.scaling)),
                _part("categories", [("simpleimputer", fill), ("onehotencoder", encoder)]),
            ],
            sparse_threshold=self.sparse_threshold,
        ).set_output(transform="default")  # whatever scikit-learn's global configuration is

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags
