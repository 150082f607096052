"""What nodes bring into a network: features, labels as columns, degrees, or ones."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mixupe_sklearn._graphs.batching import GraphRows, Graphs

# What becomes of labels that were not there in training.
UNKNOWN = ("error", "ignore")
# What stands in for features where graphs have none.
STAND_INS = ("degree", "ones")


@dataclass(frozen=True)
class NodeInputs:
    """How nodes become numbers, as learned from training graphs.

    Parameters
    ----------
    kind : {"label", "degree", "ones"} or None
        What becomes columns of zeros and ones; None where nodes have features only.
    known : tuple
        The labels, or the degrees, that have a column each.
    n_given : int
        Number of features that nodes come with.
    """

    kind: str | None
    known: tuple[Any, ...]
    n_given: int

    @property
    def n_features(self) -> int:
        """How many numbers a node brings into the network."""
        return self.n_given + (1 if self.kind == "ones" else len(self.known))

    def ready(
        self, graphs: Graphs, dtype: torch.dtype = torch.float32, unknown: str = "error"
    ) -> GraphRows:
        """Graphs as batches are taken from them; one sentence where they are unlike the first."""
        self._check(graphs)
        if self.kind == "label":
            codes = self._label_codes(graphs, unknown == "error")
            return GraphRows(graphs, codes, len(self.known), dtype)
        if self.kind == "degree":
            # A degree that was never seen counts as the nearest that was.
            known = np.array(self.known)
            between = (known[1:] + known[:-1]) / 2
            return GraphRows(graphs, np.searchsorted(between, graphs.degrees()), len(known), dtype)
        return GraphRows(graphs, None, 0, dtype)

    def _check(self, graphs: Graphs) -> None:
        name = graphs.name
        n_given = 0 if graphs.features is None else graphs.features.shape[1]
        if n_given != self.n_given:
            raise ValueError(
                f"Got {name} with {n_given} features a node, but expected {self.n_given}, as in "
                f"fit."
            )
        if (graphs.codes is not None) != (self.kind == "label"):
            got, expected = ("without", "some") if self.kind == "label" else ("with", "none")
            raise ValueError(f"Got {name} {got} node labels, but expected {expected}, as in fit.")

    def _label_codes(self, graphs: Graphs, must_know: bool) -> np.ndarray:
        """The column of each node's label; one more than there are for a label that has none."""
        assert graphs.codes is not None
        place = {label: number for number, label in enumerate(self.known)}
        table = np.array([place.get(label, len(place)) for label in graphs.vocabulary])
        unknown = [code for code in graphs.used_codes() if table[code] == len(place)]
        if unknown and must_know:
            label = graphs.vocabulary[unknown[0]]
            shown = ", ".join(map(repr, self.known[:10])) + ", ..." * (len(self.known) > 10)
            raise ValueError(
                f"Got {graphs.name} with the node label {label!r}, but expected one of those in "
                f"fit: {shown}; unknown_labels='ignore' takes it for none of them."
            )
        return table[graphs.codes]


def learn_inputs(graphs: Graphs, without_features: str) -> NodeInputs:
    """Learn what nodes bring along; where that is nothing, degrees or ones stand in."""
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
    """Labels in an order that does not depend on that of the graphs."""
    try:
        return sorted(labels)
    except TypeError:  # of several types
        return sorted(labels, key=lambda label: (type(label).__name__, repr(label)))
