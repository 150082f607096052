"""The fingerprint of a search: only the search that began a study may resume it."""

import hashlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from scipy import sparse

from mixupe_sklearn._search.space import PLAIN

# Parameters that change speed or place, not the result.
FREE = ("verbose", "n_jobs", "device", "memory")


def fingerprint(task: Any, space: Any, scoring: Any, random_state: Any) -> dict[str, Any]:
    """Describe a search by plain values, part by part, to be stored with its study."""
    is_number = isinstance(random_state, (int, np.integer))
    rows = np.concatenate([part for fold in task.folds for part in fold])
    params = {"class": type(task.estimator).__name__, **task.estimator.get_params(deep=True)}
    passed = {**task.fit_params, **task.score_params}
    return {
        "space": {name: str(kind) for name, kind in sorted(space.distributions.items())},
        "estimator": describe_params(params, without=space.distributions),
        "table": f"{_shape(task.X)} {digest(task.X)} {digest(task.y)}",
        "cv": f"{len(task.folds)} folds {digest(rows)}",
        "scoring": _describe_scoring(scoring),
        "metric": task.metric,
        "error_score": str(task.error_score),
        "fit_params": {name: digest(value) for name, value in sorted(passed.items())},
        "n_repeats": len(task.seeds),
        "random_state": int(random_state) if is_number else None,
        "seeds": list(task.seeds),
    }


def describe_params(params: Mapping[str, Any], without: Collection[str] = ()) -> dict[str, Any]:
    """Parameters as plain values; objects by their type, since a repr may hold an address."""
    return {
        name: _describe(value)
        for name, value in sorted(params.items())
        if name not in without and name.split("__")[-1] not in FREE
    }


def _describe(value: Any) -> Any:
    if isinstance(value, PLAIN):
        return value if value == value else "nan"  # NaN differs from itself
    if isinstance(value, (list, tuple)):
        return str([_describe(item) for item in value])
    if isinstance(value, Mapping):
        return str(describe_params(value))
    return getattr(value, "__qualname__", type(value).__qualname__)


def _describe_scoring(scoring: Any) -> Any:
    if isinstance(scoring, (list, tuple, set)):
        return sorted(map(str, scoring))
    if isinstance(scoring, Mapping):
        return {name: _describe_scoring(one) for name, one in sorted(scoring.items())}
    # The repr of scikit-learn's scorers describes them.
    return repr(scoring) if hasattr(scoring, "_score_func") else _describe(scoring)


def _shape(data: Any) -> str:
    return " x ".join(map(str, getattr(data, "shape", None) or (len(data),)))


def digest(data: Any) -> str:
    """A short hash of the values, the same in every process."""
    found = hashlib.sha256()
    for part in _parts(data):
        found.update(np.ascontiguousarray(part).view(np.uint8).data)
    return found.hexdigest()[:12]


def _parts(data: Any) -> list[np.ndarray]:
    if data is None:
        return []
    if sparse.issparse(data):
        data = sparse.csr_array(data)
        return [data.data, data.indices, data.indptr]
    names = [str(name) for name in getattr(data, "columns", [])]
    if hasattr(data, "hash_rows"):  # polars
        return [data.hash_rows().to_numpy(), *_parts(names)]
    try:
        if hasattr(data, "iloc"):
            from pandas.util import hash_pandas_object

            return [hash_pandas_object(data, index=False).to_numpy(), *_parts(names)]
        values = np.asarray(data)
        if values.dtype.kind in "biufc":
            return [values]
    except (TypeError, ValueError):  # lists in cells, lists of different length
        pass
    return [np.frombuffer(repr(data).encode(), dtype=np.uint8)]
