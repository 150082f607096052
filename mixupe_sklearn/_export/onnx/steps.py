"""Which steps of a pipeline come out of ONNX as they are in scikit-learn; others are refused.

skl2onnx knows more of them, but some in single precision, and some without one of their options.
"""

from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    RobustScaler,
    StandardScaler,
)

from mixupe_sklearn.preprocessing import ClippingScaler, PiecewiseLinearEncoder, QuantileScaler

STEPS = (
    *(ClippingScaler, PiecewiseLinearEncoder, QuantileScaler, StandardScaler, MinMaxScaler),
    *(MaxAbsScaler, RobustScaler, SimpleImputer, OneHotEncoder, PCA, TruncatedSVD),
)


def check_step(step: Any) -> None:
    """Raise one sentence for a step, or a part of it, that would come out otherwise.

    Examples
    --------
    >>> from sklearn.preprocessing import Normalizer
    >>> try:
    ...     check_step(Normalizer())
    ... except ValueError as error:
    ...     print(str(error)[:65])
    Got a Normalizer, but expected the steps of make_preprocessor, or
    """
    if isinstance(step, (Pipeline, FeatureUnion, ColumnTransformer)):
        for part in _parts_of(step):
            check_step(part)
        return
    if type(step) not in STEPS:
        raise ValueError(
            f"Got a {type(step).__name__}, but expected the steps of make_preprocessor, or a "
            f"StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler, SimpleImputer, "
            f"OneHotEncoder, PCA or TruncatedSVD."
        )
    if getattr(step, "clip", False):
        raise ValueError(f"Got a {type(step).__name__} with clip=True, but expected clip=False.")
    levels = getattr(step, "categories_", ())
    if any(one.dtype.kind == "f" and np.isnan(one).any() for one in levels):
        raise ValueError(
            "Got a OneHotEncoder with NaN among its numbers, but expected a SimpleImputer before "
            "it."
        )


def _parts_of(step: Any) -> list[Any]:
    if isinstance(step, Pipeline):
        found = [part for _, part in step.steps]
    elif isinstance(step, FeatureUnion):
        found = [part for _, part in step.transformer_list]
    else:
        found = [part for _, part, chosen in step.transformers_ if len(chosen)]
    return [part for part in found if part is not None and not isinstance(part, str)]


def check_labels(estimator: Any) -> None:
    """Raise one sentence where labels have no type in ONNX."""
    classes = getattr(estimator, "classes_", np.zeros(0))
    kinds = {type(label) for label in classes.tolist()}
    is_large = classes.dtype.kind in "iu" and len(classes) and int(classes.max()) >= 2**63
    if is_large or not kinds <= {bool, int, float, str}:
        raise ValueError(
            f"Got labels such as {classes[-1]!r}, but expected text, truth values, floats or "
            f"whole numbers below 2**63."
        )
