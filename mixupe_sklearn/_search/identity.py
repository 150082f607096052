"""What makes a search this search: a study is gone on with only by the one that began it."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import sparse

PLAIN = (bool, int, float, str, type(None))
# Parameters that change how fast or where a search runs, not what it finds.
FREE = ("verbose", "n_jobs", "device", "memory")


def identity_of(
    *,
    space: dict[str, Any],
    params: Mapping[str, Any],
    X: Any,
    y: Any,
    folds: Sequence[tuple[np.ndarray, np.ndarray]],
    scoring: Any,
    random_state: Any,
    seeds: Sequence[int | None],
) -> dict[str, Any]:
    """The search in plain data, part by part, so that a study can carry it."""
    is_number = isinstance(random_state, (int, np.integer))
    return {
        "space": space,
        "estimator": describe_params(params, without=space),
        "data": f"{_shape(X)} {digest(X)} {digest(y)}",
        "cv": f"{len(folds)} folds {digest(np.concatenate([i for fold in folds for i in fold]))}",
        "scoring": _describe_scoring(scoring),
        "n_repeats": len(seeds),
        "random_state": int(random_state) if is_number else None,
        "seeds": list(seeds),
    }


def describe_params(params: Mapping[str, Any], without: Collection[str] = ()) -> dict[str, Any]:
    """Parameters as plain data; objects by their type, since their text may hold an address.

    Examples
    --------
    >>> describe_params({"alpha": 0.1, "scaler": object(), "n_jobs": 2})
    {'alpha': 0.1, 'scaler': 'object'}
    """
    return {
        name: value if _is_plain(value) else _describe(value)
        for name, value in sorted(params.items())
        if name not in without and name.split("__")[-1] not in FREE
    }


def _is_plain(value: Any) -> bool:
    return isinstance(value, PLAIN) and value == value  # NaN is not even equal to itself


def _describe(value: Any) -> str:
    if isinstance(value, float):
        return "nan"
    if isinstance(value, (list, tuple)):
        return str([item if _is_plain(item) else _describe(item) for item in value])
    if isinstance(value, Mapping):
        return str(describe_params(value))
    kind = value if isinstance(value, type) else type(value)
    return getattr(value, "__qualname__", kind.__qualname__)


def _describe_scoring(scoring: Any) -> Any:
    if isinstance(scoring, (list, tuple, set)):
        return sorted(map(str, scoring))
    if isinstance(scoring, Mapping):
        return sorted(scoring)
    return scoring if isinstance(scoring, PLAIN) else _describe(scoring)


def _shape(data: Any) -> str:
    return " x ".join(map(str, getattr(data, "shape", None) or (len(data),)))


def digest(data: Any) -> str:
    """A short mark of the values: equal data, equal mark, in every process.

    Examples
    --------
    >>> import numpy as np
    >>> digest(np.arange(3)) == digest(np.arange(3)), digest(np.arange(3)) == digest(np.arange(4))
    (True, False)
    """
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
    if hasattr(data, "iloc"):
        from pandas.util import hash_pandas_object

        names = [str(name) for name in getattr(data, "columns", [])]
        return [hash_pandas_object(data, index=False).to_numpy(), *_parts(names)]
    values = np.asarray(data)
    if values.dtype.kind in "biufc":
        return [values]
    return [np.frombuffer(repr(values.tolist()).encode(), dtype=np.uint8)]
