"""Calendar parts of dates, as categories."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

PARTS = ("year", "month", "weekday")
DAY = 86_400.0
# Days from 1 March of year 0, where the calendar's cycle of 400 years begins, to 1 January 1970.
EPOCH = 719_468.0
CYCLE, CENTURY, FOUR_YEARS, YEAR = 146_097.0, 36_524.0, 1_460.0, 365.0


class DateParts(TransformerMixin, BaseEstimator):
    """Turn times into year, month and day of the week, which an encoder then takes as categories.

    Times are seconds since 1970 in UTC, as :func:`read_columns` returns them. Months count from 1,
    and days of the week from 0, which is Monday. NaN stays NaN.

    Examples
    --------
    >>> from mixupe_sklearn.preprocessing import DateParts
    >>> DateParts().fit_transform([[0.0], [951_782_400.0]]).tolist()  # the second: 29 February 2000
    [[1970.0, 1.0, 3.0], [2000.0, 2.0, 1.0]]
    """

    def fit(self, X, y=None):
        """Check the samples; nothing is learned."""
        validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan")
        return self

    def transform(self, X):
        """Return three columns for each column of times."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan", reset=False)
        days = np.floor(X / DAY)
        return np.stack([*year_and_month(days), np.mod(days + 3, 7)], axis=2).reshape(len(X), -1)

    def get_feature_names_out(self, input_features=None):
        """Names of the columns, such as ``"sold_month"``."""
        check_is_fitted(self)
        if input_features is None:
            default = [f"x{number}" for number in range(self.n_features_in_)]
            input_features = getattr(self, "feature_names_in_", default)
        return np.array([f"{name}_{part}" for name in input_features for part in PARTS], object)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.requires_fit = False
        return tags


def year_and_month(days: Any) -> tuple[Any, Any]:
    """Return year and month of a number of days since 1970, by arithmetic alone.

    A year begins in March here, so that a leap day is its last; ONNX has these operations, too.
    """
    days = days + EPOCH
    cycle = np.floor(days / CYCLE)
    of_cycle = days - CYCLE * cycle
    leap = np.floor(of_cycle / FOUR_YEARS) - np.floor(of_cycle / CENTURY)
    leap = leap + np.floor(of_cycle / (CYCLE - 1))
    year = np.floor((of_cycle - leap) / YEAR)
    of_year = of_cycle - (YEAR * year + np.floor(year / 4) - np.floor(year / 100))
    month = np.floor((5 * of_year + 2) / 153)
    is_late = month >= 10  # January and February
    return year + 400 * cycle + is_late, np.where(is_late, month - 9, month + 3)
