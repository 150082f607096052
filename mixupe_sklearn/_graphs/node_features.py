"""Inputs of a graph network: node features, one-hot labels, one-hot degrees, or ones."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mixupe_sklearn._graphs.batching import GraphRows, Graphs

# How to treat labels that are not in the training graphs.
UNKNOWN = ("error", "ignore")
# Replacements for graphs without features and labels.
REPLACEMENTS = ("degree", "ones")


@dataclass(frozen=True)
class NodeInputs:
    """The encoding of nodes, learned from training graphs.

    Parameters
    ----------
    kind : {"label", "degree", "ones"} or None
        What is one-hot encoded, or ``"ones"`` for a constant. None if nodes have features only.
    known : tuple
        The labels or degrees, with one column each.
    n_given : int
        Number of features in the input.
    """

    kind: str | None
    known: tuple[Any, ...]
    n_given: int

    @property
    def n_features(self) -> int:
        """The number of inputs of a node."""
        return self.n_given + (1 if self.kind == "ones" else len(self.known))

    def ready(
        self, graphs: Graphs, dtype: torch.dtype = torch.float32, unknown: str = "error"
    ) -> GraphRows:
        """Encode graphs for batching. Raises an error if they do not fit the training graphs."""
        self._check(graphs)
        if self.kind == "label":
            codes = self._label_codes(graphs, unknown == "error")
            return GraphRows(graphs, codes, len(self.known), dtype)
        if self.kind == "degree":
            # An unknown degree is encoded as the nearest known degree.
            known = np.array(self.known)
            between = (known[1:] + known[:-1]) / 2
            return GraphRows(graphs, np.searchsorted(between, graphs.degrees()), len(known), dtype)
        return GraphRows(graphs, None, 0, dtype)

    def _check(self, graphs: Graphs) -> None:
        name = graphs.name
        n_given = 0 if graphs.features is None else graphs.features.shape[1]
        if n_given != self.n_given:
            raise ValueError(
                f"Got {name} with {n_given} features per node, but expected {self.n_given}, as in "
                f"fit."
            )
        if (graphs.codes is not None) != (self.kind == "label"):
            got, expected = ("without", "some") if self.kind == "label" else ("with", "none")
            raise ValueError(f"Got {name} {got} node labels, but expected {expected}, as in fit.")

    def _label_codes(self, graphs: Graphs, must_know: bool) -> np.ndarray:
        """The column of each node's label. An unknown label gets the number of columns."""
        assert graphs.codes is not None
        position = {label: number for number, label in enumerate(self.known)}
        table = np.array([position.get(label, len(position)) for label in graphs.vocabulary])
        unknown = [code for code in graphs.used_codes() if table[code] == len(position)]
        if unknown and must_know:
            label = graphs.vocabulary[unknown[0]]
            shown = ", ".join(map(repr, self.known[:10])) + ", ..." * (len(self.known) > 10)
            raise ValueError(
                f"Got {graphs.name} with the node label {label!r}, but expected one of those in "
                f"fit: {shown}; unknown_labels='ignore' encodes it as zeros."
            )
        return table[graphs.codes]


def learn_inputs(graphs: Graphs, without_features: str) -> NodeInputs:
    """Learn the encoding of nodes: labels and features, else degrees or ones."""
    n_given = 0 if graphs.features is None else graphs.features.shape[1]
    if graphs.codes is not None:
        labels = [graphs.vocabulary[code] for code in graphs.used_codes()]
        return NodeInputs("label", tuple(_in_order(labels)), n_given)
    if n_given:
        return NodeInputs(None, (), n_given)
    if without_features == "ones":
        return NodeInputs("ones", (), 0)
    return NodeInputs("degree", tuple(np.unique(graphs.degrees()[graphs.nodes()]).tolist()), 0)


def _in_order(labels: list[Any]) -> list[Any]:
    """Sort labels, so that their order does not depend on the order of the graphs."""
    try:
        return sorted(labels)
    except TypeError:  # of several types
        return sorted(labels, key=lambda label: (type(label).__name__, repr(label)))
