"""TablePreprocessor: from the raw columns of a table to numeric features."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.model_selection import KFold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    StandardScaler,
    TargetEncoder,
)
from sklearn.utils import check_array
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from mixupe_sklearn._preprocessing.columns import (
    find_ids,
    read_columns,
    select_columns,
    select_many_levels,
    select_missing,
)
from mixupe_sklearn._preprocessing.dates import DateParts
from mixupe_sklearn._preprocessing.scalers import (
    ClippingScaler,
    PiecewiseLinearEncoder,
    QuantileScaler,
)
from mixupe_sklearn._utils.parameter_rules import Choice, Number, Rule, check_rules
from mixupe_sklearn._utils.warnings import warn_user

SCALERS: dict[str, Callable[[], Any]] = {"robust": ClippingScaler, "quantile": QuantileScaler}
# Targets that scikit-learn's target encoder knows.
ENCODABLE = ("binary", "multiclass", "continuous")
# Ramps of all columns together: more make training slow.
MOST_RAMPS = 512
# Samples per ramp of a column, beyond the first ramps; small tables overfit with more.
SAMPLES_PER_RAMP, FIRST_RAMPS = 200, 4


def _target_encoder() -> TargetEncoder:
    parameter = inspect.signature(TargetEncoder).parameters.get("random_state")
    if parameter is None or parameter.default == "deprecated":
        return TargetEncoder(cv=KFold(5, shuffle=True, random_state=0))
    return TargetEncoder(random_state=0)  # before scikit-learn 1.9, cv is a number


class ColumnsToNumbers(ColumnTransformer):
    """The column transformer of a ``TablePreprocessor``, by which saved files and exports know it.

    It and its parts always return arrays. The preprocessor makes a data frame of the whole result,
    if one is wanted: scikit-learn's one-hot encoder makes none, since no frame is sparse.
    """


def _as_table(X: Any) -> Any:
    """Return a frame or an array as it is, and anything else as an array of objects.

    What is no table gets a sentence. Columns are checked one by one as they are read.
    """
    if sparse.issparse(X):
        raise TypeError(
            f"Got X as a sparse {type(X).__name__}, but expected a data frame or a dense array."
        )
    if not hasattr(X, "shape"):
        return check_array(X, dtype=object, ensure_all_finite="allow-nan")
    if len(X.shape) != 2:
        raise ValueError(
            f"Got X of shape {X.shape}, but expected a table of samples and columns. Reshape your "
            f"data, for a single column with X.reshape(-1, 1)."
        )
    if getattr(getattr(X, "dtype", None), "kind", "") == "c":
        raise ValueError("Complex data not supported: got complex X, but expected real numbers.")
    return X


def _part(
    name: str, kind: str, steps: list[tuple[str, Any]], select: Callable = select_columns
) -> tuple[str, Pipeline, Callable]:
    """A part of the column transformer: its name, its steps after reading, and its columns."""
    reader = FunctionTransformer(
        read_columns, feature_names_out="one-to-one", kw_args={"kind": kind}
    )
    return name, Pipeline([("reader", reader), *steps]), partial(select, kind=kind)


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


def _warn_about_ids(X: Any) -> None:
    for column, kind, n_levels in find_ids(X):
        name = f"column {column!r}" if isinstance(column, str) else f"column number {column}"
        advice = "it looks like an identifier or free text and is left out; derive features from it"
        if kind == "numbers":
            advice = "it looks like a serial number; drop it, unless the order of samples matters"
        warn_user(f"Got {name} with {n_levels:,} different values in {len(X):,} samples: {advice}.")


class TablePreprocessor(TransformerMixin, BaseEstimator):
    """Turn the raw columns of a table into the numeric features that the method needs.

    - Numeric columns are scaled to zero mean, which the derivation of the method assumes, with
      outliers clipped smoothly. Beside the scaled value stand ramps: a piecewise-linear encoding
      (``PiecewiseLinearEncoder``), in which thresholds are easy to learn.
    - Missing numbers become the column's mean. If a column has ten or more of them, another feature
      indicates where.
    - Categories are one-hot encoded; a missing category is a level of its own. Columns with more
      than ``max_categories`` levels share a feature for the rare ones, and the mean target of each
      level is a further feature (``TargetEncoder``, with inner folds).
    - Dates and durations become seconds, scaled like numbers. Year, month and day of the week of a
      date are one-hot encoded, too.

    A column is numeric or temporal by its dtype or, if it holds objects, when all values that are
    not missing are such. Every other column is categorical: text, booleans, mixed types. A column
    that is constant in the training samples is left out. So is a column of text in which nearly
    every sample has a value of its own, with a warning; a column of serial numbers gets a warning.

    Parameters
    ----------
    scaling : {"standard", "robust", "quantile"} or transformer, default="robust"
        How numeric and temporal columns are scaled. ``"standard"`` (the paper's): to unit variance.
        ``"robust"``: by median and interquartile range, clipped smoothly (``ClippingScaler``), then
        to unit variance. ``"quantile"``: to a normal distribution (``QuantileScaler``), then to
        unit variance. A transformer, such as ``ClippingScaler(limit=5.0)``, must keep NaN. For all
        but ``"standard"`` missing numbers become the mean after scaling.
    n_bins : int, default=8
        Maximum number of ramps for each numeric or temporal column; 0 means none. Tables with many
        such columns get fewer, 512 ramps in all at most. So do small tables: above four, each
        ramp needs 200 samples.
    handle_unknown : str, default="infrequent_if_exist"
        What happens to a category that the training samples do not have, as in
        :class:`~sklearn.preprocessing.OneHotEncoder`: it joins the infrequent categories, or
        becomes zeros where there are none. ``"ignore"`` always gives zeros, ``"error"`` raises.
    min_frequency : int, float or None, default=None
        Categories with fewer samples (int), or a smaller fraction of them (float), share one
        column.
    max_categories : int or None, default=50
        Maximum number of one-hot columns for one categorical column; infrequent categories share
        one. Columns with more categories get the mean target of each, too, if ``y`` is given and
        has one column: one feature, or one for each of several classes. None means no maximum.
    sparse_threshold : float, default=0.3
        The output is sparse if its share of non-zeros is smaller, as in
        :class:`~sklearn.compose.ColumnTransformer`; 0 makes it always dense.

    Attributes
    ----------
    transformer_ : ColumnTransformer
        The fitted column transformer. Its parts are ``"numbers"`` and ``"times"``, each with
        ``"..._ramps"`` and ``"..._missing"``, and ``"dates"``, ``"categories"`` and ``"targets"``.
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
    ['numbers__size', 'numbers_ramps__size_ramp0', 'categories__city_Bonn', \
'categories__city_Oslo', 'categories__city_nan']
    """

    def __init__(
        self,
        *,
        scaling="robust",
        n_bins=8,
        handle_unknown="infrequent_if_exist",
        min_frequency=None,
        max_categories=50,
        sparse_threshold=0.3,
    ):
        self.scaling = scaling
        self.n_bins = n_bins
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
        y : array-like of shape (n_samples,) or None, default=None
            Targets, which only the encoding of columns with many categories uses.

        Returns
        -------
        self : TablePreprocessor
            The fitted preprocessor.
        """
        self.fit_transform(X, y)
        return self

    def fit_transform(self, X, y=None):
        """Fit, and return the features of the training samples.

        A target encoding of a training sample does not use the sample's own target, so that
        ``transform`` gives other values for columns with many categories.

        Parameters
        ----------
        X : data frame or array-like of shape (n_samples, n_features)
            Training samples.
        y : array-like of shape (n_samples,) or None, default=None
            Targets, as in ``fit``.

        Returns
        -------
        features : ndarray, sparse matrix or data frame of shape (n_samples, n_features_out)
            Numeric features.
        """
        X = _as_table(X)
        if 0 in X.shape:
            n_samples, n_features = X.shape
            raise ValueError(
                f"Got X with {n_samples} sample(s) and {n_features} feature(s) "
                f"(shape={X.shape}) while a minimum of 1 is required."
            )
        validate_data(self, X, skip_check_array=True)  # only counts and names the columns
        _warn_about_ids(X)
        self.transformer_ = self._make_transformer(X, y)
        return self._dense_for_frames(self.transformer_.fit_transform(X, y))

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
        X = _as_table(X)
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

    def _make_transformer(self, X: Any, y: Any) -> ColumnsToNumbers:
        rules: dict[str, Rule] = {
            "scaling": Choice(("standard", *SCALERS)),
            "n_bins": Number("an integer >= 0", integer=True),
        }
        if not isinstance(self.scaling, str) and hasattr(self.scaling, "transform"):
            del rules["scaling"]
        check_rules(vars(self), rules)
        encoder = OneHotEncoder(
            handle_unknown=self.handle_unknown,
            min_frequency=self.min_frequency,
            max_categories=self.max_categories,
        )
        scaling = _scaling_steps(self.scaling)
        parts = [_part("numbers", "numbers", scaling), _part("times", "times", scaling)]
        amounts = {kind: select_columns(X, kind) for kind in ("numbers", "times")}
        n_columns = max(1, sum(map(len, amounts.values())))
        by_rows = max(FIRST_RAMPS, X.shape[0] // SAMPLES_PER_RAMP)
        n_bins = min(self.n_bins, MOST_RAMPS // n_columns, by_rows)
        if n_bins >= 2:
            ramps = _scaling_steps(PiecewiseLinearEncoder(n_bins=n_bins))
            parts += [_part(f"{kind}_ramps", kind, ramps) for kind in amounts]
        missing = [("missingindicator", MissingIndicator(features="all"))]
        parts += [_part(f"{kind}_missing", kind, missing, select_missing) for kind in amounts]
        of_dates = OneHotEncoder(handle_unknown="ignore")  # a new year has no column
        parts.append(_part("dates", "dates", [("dateparts", DateParts()), ("encoder", of_dates)]))
        parts.append(_part("categories", "categories", [("onehotencoder", encoder)]))
        if self._has_targets(X, y):
            select = partial(select_many_levels, more_than=self.max_categories)
            means = [("targetencoder", _target_encoder()), ("scaler", StandardScaler())]
            parts.append(_part("targets", "categories", means, select))
        return ColumnsToNumbers(parts, sparse_threshold=self.sparse_threshold).set_output(
            transform="default"  # whatever scikit-learn's global configuration is
        )

    def _has_targets(self, X: Any, y: Any) -> bool:
        """Return whether there are columns to encode by their targets, and targets to do it by."""
        if self.max_categories is None or y is None:
            return False
        has_many = bool(select_many_levels(X, "categories", self.max_categories))
        return has_many and type_of_target(y) in ENCODABLE

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags
