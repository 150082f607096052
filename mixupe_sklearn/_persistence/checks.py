"""What is looked at in objects of scikit-learn whose own code trusts them."""

from typing import Any

import numpy as np


def check_encoder(encoder: Any) -> None:
    """Raise where a fitted one-hot encoder would write beyond its own columns.

    It makes a sparse matrix by what it has learned, without a look at it.

    Examples
    --------
    >>> from sklearn.preprocessing import OneHotEncoder
    >>> encoder = OneHotEncoder(min_frequency=2).fit([["a"], ["a"], ["b"]])
    >>> check_encoder(encoder)
    >>> encoder._default_to_infrequent_mappings = [np.array([0, 2**40])]
    >>> check_encoder(encoder)
    Traceback (most recent call last):
        ...
    ValueError: has an encoder that is beyond its columns
    """
    if not hasattr(encoder, "categories_"):
        return
    n_columns = encoder._compute_n_features_outs()
    none = [None] * len(n_columns)
    dropped = none if (found := encoder._drop_idx_after_grouping) is None else found
    is_grouped = encoder._infrequent_enabled
    rare = encoder._infrequent_indices if is_grouped else none
    mappings = encoder._default_to_infrequent_mappings if is_grouped else none
    is_right = list(encoder._n_features_outs) == list(n_columns)
    for levels, count, drop, few, mapping in zip(
        encoder.categories_, n_columns, dropped, rare, mappings, strict=True
    ):
        n_groups = count + (drop is not None)
        is_right &= n_groups >= 1 and (drop is None or 0 <= drop < n_groups)
        is_right &= (few is None) == (mapping is None)
        if mapping is not None:
            is_right &= len(mapping) == len(levels)
            is_right &= _are_within(mapping, n_groups) and _are_within(few, len(levels))
    if not is_right:
        raise ValueError("has an encoder that is beyond its columns")


def _are_within(numbers: Any, end: int) -> bool:
    whole = np.asarray(numbers)
    return whole.dtype.kind == "i" and bool(((whole >= 0) & (whole < end)).all())
