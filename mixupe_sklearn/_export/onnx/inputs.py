"""Inputs of an ONNX model: names, types and missing values, read from the model's metadata."""

import json
from typing import Any, NamedTuple

import numpy as np

from mixupe_sklearn._preprocessing.columns import read_columns

KEY = "mixupe_sklearn"


class Described(NamedTuple):
    """The inputs of a model: the kind of each column, or None for a single numeric matrix."""

    kinds: dict[str, str] | None
    positions: list[int] | None
    names: list[str] | None
    missing: str

    def to_json(self) -> str:
        """Text for the metadata."""
        return json.dumps(self._asdict())


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
    kinds = described.kinds
    if getattr(X, "ndim", 0 if X is None else 2) != 2 or isinstance(X, (str, dict)):
        raise ValueError(
            f"Got X of type {type(X).__name__}, but expected a data frame or a two-dimensional "
            f"array."
        )
    if kinds is None:
        return {"X": _matrix(X, described.names)}
    inputs = {}
    for number, (name, kind) in enumerate(kinds.items()):
        column = _column(X, name, (described.positions or [])[number])
        values = read_columns(column, kind=kind)
        if kind == "categories":
            is_missing = values != values
            values = np.where(is_missing, described.missing, values).astype(object)
        inputs[name] = values
    return inputs


def _matrix(X: Any, names: list[str] | None) -> np.ndarray:
    """All columns as one numeric matrix, in the order of fit."""
    if names and hasattr(X, "columns"):
        missing = [name for name in names if name not in list(X.columns)]
        if missing:
            raise ValueError(
                f"Got X without the column {missing[0]!r}, but expected the columns of fit."
            )
        X = X[names]
    try:
        return np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"Got X that is not numeric ({error}), but expected numbers.") from error


def _column(X: Any, name: str, position: int) -> Any:
    if not hasattr(X, "columns"):
        values = np.asarray(X, dtype=object)
        if values.ndim != 2 or position >= values.shape[1]:
            raise ValueError(
                f"Got X of shape {values.shape}, but expected the columns of fit: the model uses "
                f"column {position}."
            )
        return values[:, [position]]
    if name in list(X.columns):
        return X[[name]]
    if all(isinstance(own, str) for own in X.columns):
        raise ValueError(f"Got X without the column {name!r}, but expected the columns of fit.")
    return X.iloc[:, [position]]
