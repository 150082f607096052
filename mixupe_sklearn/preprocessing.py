"""From raw columns to the numbers that the method wants: filled, one-hot, centred and scaled."""

from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from mixupe_sklearn._classifier import MixupEClassifier


def mark_holes(frame: Any) -> Any:
    """Give all kinds of missing value (None, NaN, NA) the one form that the imputer knows.

    Examples
    --------
    >>> import pandas as pd
    >>> mark_holes(pd.DataFrame({"city": ["Oslo", None]}, dtype=object))["city"].tolist()
    ['Oslo', nan]
    """
    return frame.astype(object).where(frame.notna(), np.nan)


def _holds_numbers(dtype: Any) -> bool:
    # By kind: pandas counts spans of time as numbers, and truth values too in some places.
    return getattr(dtype, "kind", "O") in "iuf"


def number_columns(frame: Any) -> list[Any]:
    """Names of the columns that hold numbers.

    Examples
    --------
    >>> import pandas as pd
    >>> number_columns(pd.DataFrame({"size": [1.0], "city": ["Oslo"], "is_old": [True]}))
    ['size']
    """
    return [name for name, dtype in frame.dtypes.items() if _holds_numbers(dtype)]


def category_columns(frame: Any) -> list[Any]:
    """Names of all other columns."""
    return [name for name, dtype in frame.dtypes.items() if not _holds_numbers(dtype)]


def make_preprocessor() -> ColumnTransformer:
    """Make the preprocessing of the paper's tabular experiments.

    Missing numbers become the column's mean, missing categories its most frequent value;
    categories are one-hot encoded, and a category that was not in the training rows becomes
    zeros. Numbers are then scaled to zero mean, which the method's derivation asks for, and unit
    variance. A column counts as numbers if its type is numeric, as categories otherwise.

    Returns
    -------
    preprocessor : ColumnTransformer
        Not yet fitted; for data frames.

    Examples
    --------
    >>> import pandas as pd
    >>> from mixupe_sklearn import make_preprocessor
    >>> frame = pd.DataFrame({"size": [1.0, None, 3.0], "city": ["Oslo", "Bonn", None]})
    >>> make_preprocessor().fit_transform(frame).shape
    (3, 3)
    """
    numbers = make_pipeline(SimpleImputer(keep_empty_features=True), StandardScaler())
    categories = make_pipeline(
        FunctionTransformer(mark_holes, feature_names_out="one-to-one"),
        SimpleImputer(strategy="most_frequent", keep_empty_features=True),
        OneHotEncoder(handle_unknown="ignore", sparse_output=False),
    )
    return ColumnTransformer(
        [
            ("numbers", numbers, number_columns),
            ("categories", categories, category_columns),
        ]
    )


def make_mixupe_pipeline(**classifier_params) -> Pipeline:
    """Make a pipeline from a raw data frame to a classifier.

    Parameters
    ----------
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
            ("preprocessor", make_preprocessor()),
            ("classifier", MixupEClassifier(**classifier_params)),
        ]
    )
