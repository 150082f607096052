"""Inputs of an ONNX model: names, types and missing values, read from the model's metadata."""

import json
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_array

from mixupe_sklearn._preprocessing.columns import read_columns

KEY = "mixupe_sklearn"


class Described(NamedTuple):
    """The inputs of a model: the kind of each column, or None for a single numeric matrix."""

    kinds: dict[str, str] | None
    positions: list[int] | None
    names: list[str] | None
    missing: str


def described_by(session: Any) -> Described:
    """Read the description that ``to_onnx`` wrote."""
    if not hasattr(session, "get_modelmeta"):
        raise TypeError(
            f"Got session of type {type(session).__name__}, but expected an "
            f"onnxruntime.InferenceSession."
        )
    text = session.get_modelmeta().custom_metadata_map.get(f"{KEY}.inputs")
    if text is None:
        raise ValueError(
            "Got a model without a description of its inputs, but expected one from to_onnx."
        )
    return Described(**json.loads(text))


def feed(X: Any, described: Described) -> dict[str, np.ndarray]:
    """Arrays for onnxruntime, by the names of the model's inputs."""
    if described.kinds is None:
        if described.names and hasattr(X, "columns"):  # in the order of fit
            _check_columns(X, described.names)
            X = X[described.names]
        return {"X": check_array(X, dtype=np.float64, ensure_all_finite=False)}
    inputs = {}
    positions = described.positions or []
    for (name, kind), position in zip(described.kinds.items(), positions, strict=True):
        values = read_columns(_column(X, name, position), kind=kind)
        if kind == "categories":
            values = np.where(values != values, described.missing, values).astype(object)
        inputs[name] = values
    return inputs


def _check_columns(X: Any, names: list[str]) -> None:
    for name in names:
        if name not in list(X.columns):
            raise ValueError(f"Got X without the column {name!r}, but expected the columns of fit.")


def _column(X: Any, name: str, position: int) -> Any:
    if not hasattr(X, "columns"):
        values = np.asarray(X, dtype=object)
        if values.ndim != 2 or position >= values.shape[1]:
            raise ValueError(
                f"Got X of shape {values.shape}, but expected the columns of fit: the model uses "
                f"column {position}."
            )
        return values[:, [position]]
    if all(isinstance(own, str) for own in X.columns):
        _check_columns(X, [name])
        return X[[name]]
    return X.iloc[:, [position]]
