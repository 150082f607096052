"""What goes into an ONNX model: names, types and holes, told by the model's own metadata."""

import json
from typing import Any, NamedTuple

import numpy as np

from mixupe_sklearn._columns import read_columns

KEY = "mixupe_sklearn"


class Described(NamedTuple):
    """The inputs of a model: what each column holds, or that all are one matrix of numbers."""

    kinds: dict[str, str] | None
    positions: list[int] | None
    names: list[str] | None
    hole: str

    def to_json(self) -> str:
        """Text for the metadata."""
        return json.dumps(self._asdict())


def described_by(session: Any) -> Described:
    """Read what ``to_onnx`` has written."""
    told = session.get_modelmeta().custom_metadata_map.get(f"{KEY}.inputs")
    if told is None:
        raise ValueError(
            "Got a model without a description of its inputs, but expected one of to_onnx."
        )
    return Described(**json.loads(told))


def feed(X: Any, described: Described) -> dict[str, np.ndarray]:
    """Arrays for onnxruntime, by the names of the model's inputs."""
    kinds = described.kinds
    if kinds is None:
        columns = X[described.names] if described.names and hasattr(X, "columns") else X
        return {"X": np.asarray(columns, dtype=np.float64)}
    fed = {}
    for number, (name, kind) in enumerate(kinds.items()):
        column = _column(X, name, (described.positions or [])[number])
        values = read_columns(column, kind=kind)
        if kind == "categories":
            is_hole = values != values
            values = np.where(is_hole, described.hole, values).astype(object)
        fed[name] = values
    return fed


def _column(X: Any, name: str, position: int) -> Any:
    if not hasattr(X, "columns"):
        return np.asarray(X, dtype=object)[:, [position]]
    if name in list(X.columns):
        return X[[name]]
    if all(isinstance(own, str) for own in X.columns):
        raise ValueError(f"Got X without the column {name!r}, but expected the columns of fit.")
    return X.iloc[:, [position]]
