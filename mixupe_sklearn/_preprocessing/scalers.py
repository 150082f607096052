"""Scalers of numeric columns that are robust to outliers and skew; NaN stays NaN."""

from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.preprocessing import QuantileTransformer
from sklearn.utils.validation import FLOAT_DTYPES, check_is_fitted, validate_data

from mixupe_sklearn._utils.parameter_rules import Number, check_rules


def smooth_clip(z: np.ndarray, limit: float = 3.0) -> np.ndarray:
    """Squash numbers into ``(-limit, limit)``: ``z / sqrt(1 + (z / limit)^2)``.

    It is close to the identity near zero, and it is increasing.
    """
    share = z / limit
    return limit * (share / np.hypot(1, share))  # the square of a large number would overflow


class _NumberScaler(TransformerMixin, BaseEstimator):
    """Shared by the scalers: checks of samples, and of parameters by ``_rules``."""

    _rules: ClassVar[dict[str, Number]]

    def _rows(self, X: Any, *, reset: bool) -> np.ndarray:
        if reset:
            check_rules(vars(self), self._rules)
        else:
            check_is_fitted(self)
        with np.errstate(over="ignore", invalid="ignore"):  # it sums
            rows = validate_data(
                self, X, dtype=FLOAT_DTYPES, ensure_all_finite="allow-nan", reset=reset
            )
        largest, most = np.nanmax(np.abs(rows), initial=0.0), np.finfo(rows.dtype).max / 8
        if reset and largest > most:
            raise ValueError(
                f"Got X with a number of size {largest:.3g}, but expected at most {most:.3g}, so "
                f"that differences stay in the range of {rows.dtype}."
            )
        return rows

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _without_empty(X: np.ndarray) -> np.ndarray:
    """Samples whose all-missing columns are zero, since these have no quantiles."""
    return np.where(np.isnan(X).all(axis=0), X.dtype.type(0), X)


class ClippingScaler(OneToOneFeatureMixin, _NumberScaler):
    """Scale by median and interquartile range, then clip smoothly.

    With quartiles ``q25``, ``q50``, ``q75`` of a column::

        z   = (x - q50) / (q75 - q25)
        out = z / sqrt(1 + (z / limit)^2)

    If the quartiles are equal, half the range of the column takes the place of their difference; a
    constant column becomes zero. Outliers neither set the scale nor stay large. The mean of the
    result is near zero, but not zero.

    Parameters
    ----------
    limit : float, default=3.0
        Bound of the result.

    Attributes
    ----------
    center_, scale_ : ndarray of shape (n_features,)
        Median and divisor of each column; infinity for a constant column.

    References
    ----------
    Holzmüller et al., "Better by Default: Strong Pre-Tuned MLPs and Boosted Trees on Tabular
    Data", NeurIPS 2024.

    Examples
    --------
    >>> from mixupe_sklearn.preprocessing import ClippingScaler
    >>> column = [[0.0], [1.0], [2.0], [3.0], [1e30]]
    >>> ClippingScaler().fit_transform(column).ravel().round(2).tolist()
    [-0.95, -0.49, 0.0, 0.49, 3.0]
    """

    _rules: ClassVar = {"limit": Number("a number > 0", open_low=True)}

    def __init__(self, *, limit=3.0):
        self.limit = limit

    def fit(self, X, y=None):
        """Learn median and scale of each column."""
        rows = _without_empty(self._rows(X, reset=True))
        low, middle, high = np.nanpercentile(rows, [25, 50, 75], axis=0)
        half_range = np.nanmax(rows, axis=0) / 2 - np.nanmin(rows, axis=0) / 2
        scale = np.where(high > low, high - low, half_range)
        self.center_ = middle.astype(rows.dtype)
        self.scale_ = np.where(scale > 0, scale, np.inf).astype(rows.dtype)
        return self

    def transform(self, X):
        """Scale and clip."""
        X = self._rows(X, reset=False)
        with np.errstate(over="ignore"):
            z = (X - self.center_) / self.scale_
        largest = np.finfo(z.dtype).max  # infinity divided by itself would be NaN
        return smooth_clip(np.clip(z, -largest, largest), self.limit)


class QuantileScaler(OneToOneFeatureMixin, _NumberScaler):
    """Map each column to a normal distribution by its quantiles.

    It wraps scikit-learn's :class:`~sklearn.preprocessing.QuantileTransformer` without random
    subsampling, with at most as many quantiles as samples. The minimum and maximum of a column
    become -5.2 and 5.2. So do the two values of a binary column, which is then ten times as wide
    as others: scale to unit variance afterwards.

    Parameters
    ----------
    n_quantiles : int, default=1000
        Maximum number of quantiles.

    Attributes
    ----------
    transformer_ : QuantileTransformer
        The fitted transformer.

    Examples
    --------
    >>> from mixupe_sklearn.preprocessing import QuantileScaler
    >>> QuantileScaler().fit_transform([[1.0], [2.0], [1e30], [3.0]]).ravel().round(1).tolist()
    [-5.2, -0.4, 5.2, 0.4]
    """

    _rules: ClassVar = {"n_quantiles": Number("an integer >= 2", low=2, integer=True)}

    def __init__(self, *, n_quantiles=1000):
        self.n_quantiles = n_quantiles

    def fit(self, X, y=None):
        """Learn the quantiles of each column."""
        rows = _without_empty(self._rows(X, reset=True))
        self.transformer_ = QuantileTransformer(
            n_quantiles=min(self.n_quantiles, len(rows)),
            output_distribution="normal",
            subsample=None,
        ).fit(rows)
        return self

    def transform(self, X):
        """Map each value to the normal quantile of its rank."""
        return self.transformer_.transform(self._rows(X, reset=False))


def _edges(values: np.ndarray, n_bins: int) -> np.ndarray:
    """Return at most ``n_bins + 1`` increasing values: frequent ones, and quantiles of the others.

    Examples
    --------
    >>> _edges(np.array([0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 4.0]), n_bins=3).tolist()
    [0.0, 1.0, 3.0, 4.0]
    """
    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) <= n_bins + 1:
        return distinct
    is_frequent = counts * n_bins > len(values)  # fewer than n_bins of them
    others = np.repeat(distinct[~is_frequent], counts[~is_frequent])
    ranks = np.linspace(0, 100, n_bins + 1 - is_frequent.sum())
    # Quantiles are values of the column: interpolation would split equal ones by rounding.
    quantiles = np.percentile(others, ranks, method="nearest")
    return np.unique(np.concatenate([distinct[is_frequent], quantiles]))


class PiecewiseLinearEncoder(OneToOneFeatureMixin, _NumberScaler):
    """Turn each column into ramps, one for each interval between two of its quantiles.

    With values ``k_0 < k_1 < ...`` of a column, the output has a column for each ``j``::

        ramp_j = clip((x - k_j) / (k_(j+1) - k_j), 0, 1)

    A linear layer on top represents any function of the column that is linear between these
    values. They are quantiles, but a value of more than ``1 / n_bins`` of the samples, such as the
    zeros of a column of counts, is one of them by itself, and the quantiles are those of the other
    samples. A column of few values gets few ramps; a constant column becomes zero. Beyond the range
    of the training samples the output is constant.

    Parameters
    ----------
    n_bins : int, default=8
        Maximum number of ramps per column.

    Attributes
    ----------
    source_ : ndarray of shape (n_ramps,)
        The column of each ramp.
    low_, high_ : ndarray of shape (n_ramps,)
        Where each ramp begins and ends.

    References
    ----------
    Gorishniy et al., "On Embeddings for Numerical Features in Tabular Deep Learning", NeurIPS
    2022, equation (1).

    Examples
    --------
    >>> from mixupe_sklearn.preprocessing import PiecewiseLinearEncoder
    >>> encoder = PiecewiseLinearEncoder(n_bins=2).fit([[0.0], [2.0], [10.0]])
    >>> encoder.transform([[-5.0], [1.0], [6.0], [99.0]]).tolist()
    [[0.0, 0.0], [0.5, 0.0], [1.0, 0.5], [1.0, 1.0]]
    """

    _rules: ClassVar = {"n_bins": Number("an integer >= 1", low=1, integer=True)}

    def __init__(self, *, n_bins=8):
        self.n_bins = n_bins

    def fit(self, X, y=None):
        """Learn where the ramps of each column begin and end."""
        rows = _without_empty(self._rows(X, reset=True))
        edges = [_edges(column[~np.isnan(column)], self.n_bins) for column in rows.T]
        low = [edge if len(edge) == 1 else edge[:-1] for edge in edges]
        high = [np.full(1, np.inf) if len(edge) == 1 else edge[1:] for edge in edges]
        self.source_ = np.repeat(np.arange(len(edges)), [len(part) for part in low])
        self.low_ = np.concatenate(low).astype(rows.dtype)
        self.high_ = np.concatenate(high).astype(rows.dtype)
        return self

    def transform(self, X):
        """Encode each column by its ramps."""
        X = self._rows(X, reset=False)
        ramps = np.take(X, self.source_, axis=1)
        # A constant column has a ramp of infinite length, which is zero.
        with np.errstate(over="ignore"):
            ramps -= self.low_
            largest = np.finfo(ramps.dtype).max  # infinity divided by itself would be NaN
            np.clip(ramps, -largest, largest, out=ramps)
            ramps /= self.high_ - self.low_
        return np.clip(ramps, 0, 1, out=ramps)

    def get_feature_names_out(self, input_features=None):
        """Names of the ramps: the name of the column and a number."""
        names = super().get_feature_names_out(input_features)
        counts = np.arange(len(self.source_)) - np.searchsorted(self.source_, self.source_)
        pairs = zip(self.source_, counts, strict=True)
        return np.array([f"{names[source]}_ramp{count}" for source, count in pairs], dtype=object)
