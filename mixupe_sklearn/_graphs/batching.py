"""Many graphs packed into a few arrays, and batches of them for PyTorch Geometric."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mixupe_sklearn._data.rows import Gathers


def in_ranges(first: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Concatenate integer ranges, given by their starts and lengths."""
    return np.arange(size.sum()) + np.repeat(first - (size.cumsum() - size), size)


@dataclass(frozen=True, eq=False)
class Graphs:
    """Graphs, concatenated in the same arrays.

    Parameters
    ----------
    first_node, n_nodes : array of shape (n_graphs,)
        Position of the first node of each graph, and the number of its nodes.
    first_edge, n_edges : array of shape (n_graphs,)
        The same for its edges.
    edges : array of shape (2, n_all_edges)
        Source and target of each edge, relative to the first node of its graph, sorted by target.
    is_symmetric : bool
        Whether each edge of each graph has a reverse edge.
    features : array of shape (n_all_nodes, n_features) or None
        Features of the nodes.
    codes : array of shape (n_all_nodes,) or None
        Labels of the nodes, as positions in ``vocabulary``.
    vocabulary : list
        The distinct labels.
    name : str, default="X"
        Name of the graphs in messages.
    """

    first_node: np.ndarray
    n_nodes: np.ndarray
    first_edge: np.ndarray
    n_edges: np.ndarray
    edges: np.ndarray
    is_symmetric: bool
    features: np.ndarray | None = None
    codes: np.ndarray | None = None
    vocabulary: Sequence[Any] = ()
    name: str = "X"

    def __len__(self) -> int:
        return len(self.n_nodes)

    @property
    def shape(self) -> tuple[int]:
        """The number of graphs, as the shape of an array."""
        return (len(self),)

    def part(self, index: np.ndarray) -> "Graphs":
        """Some of the graphs, by positions or a mask, in the same memory."""
        names = ("first_node", "n_nodes", "first_edge", "n_edges")
        return replace(self, **{name: getattr(self, name)[index] for name in names})

    def nodes(self) -> np.ndarray:
        """Positions of all nodes of these graphs."""
        return in_ranges(self.first_node, self.n_nodes)

    def degrees(self) -> np.ndarray:
        """The in-degree of each node, by position. It is zero for nodes of other graphs."""
        where = in_ranges(self.first_edge, self.n_edges)
        target = self.edges[1, where] + np.repeat(self.first_node, self.n_edges)
        n_all = int((self.first_node + self.n_nodes).max(initial=0))
        return np.bincount(target, minlength=n_all)

    def used_codes(self) -> np.ndarray:
        """Positions in the vocabulary of the labels of these graphs."""
        assert self.codes is not None
        return np.unique(self.codes[self.nodes()])


class GraphRows(Gathers):
    """Graphs with encoded nodes, from which batches are gathered.

    Everything that is constant over the epochs is computed once, in the constructor.

    Parameters
    ----------
    graphs : Graphs
        The graphs.
    codes : array of shape (n_all_nodes,) or None
        The column of each node in the one-hot encoding. The code ``n_codes`` has no column.
    n_codes : int
        Number of one-hot columns.
    dtype : torch.dtype, default=torch.float32
        Type of the node features.
    """

    def __init__(
        self,
        graphs: Graphs,
        codes: np.ndarray | None,
        n_codes: int,
        dtype: torch.dtype = torch.float32,
    ):
        self.graphs = graphs
        self.dtype = dtype
        self.shape = graphs.shape
        features = graphs.features
        self._n_codes = n_codes
        self._n_beyond = int(codes is not None and bool((codes == n_codes).any()))
        self._codes = None if codes is None else torch.from_numpy(codes.astype(np.int64))
        self._features = None if features is None else torch.from_numpy(features).to(dtype)
        self._edges = torch.from_numpy(graphs.edges)

    def __len__(self) -> int:
        return len(self.graphs)

    def __getitem__(self, index: Any) -> Any:
        """A ``torch_geometric.data.Batch`` by positions or a slice.

        The batch is not built by PyTorch Geometric, which would need a list of graphs first. Its
        ``to_data_list`` does not work.
        """
        from torch_geometric.data import Batch

        graphs = self.graphs
        n_nodes, n_edges = graphs.n_nodes[index], graphs.n_edges[index]
        nodes = torch.from_numpy(in_ranges(graphs.first_node[index], n_nodes))
        ends = n_nodes.cumsum()
        shift = np.repeat(ends - n_nodes, n_edges)
        chosen = torch.from_numpy(in_ranges(graphs.first_edge[index], n_edges))
        edges = self._edges.index_select(1, chosen) + torch.from_numpy(shift)
        return Batch(
            x=self._inputs(nodes),
            edge_index=edges,
            batch=torch.from_numpy(np.repeat(np.arange(len(n_nodes)), n_nodes)),
            ptr=torch.from_numpy(np.concatenate([[0], ends])),
            symmetric=graphs.is_symmetric,
        )

    def _inputs(self, nodes: Tensor) -> Tensor:
        parts = []
        if self._codes is not None:
            codes = self._codes.index_select(0, nodes)
            columns = torch.zeros(len(nodes), self._n_codes + self._n_beyond, dtype=self.dtype)
            columns.scatter_(1, codes[:, None], 1.0)
            parts.append(columns[:, : self._n_codes].contiguous())
        if self._features is not None:
            parts.append(self._features.index_select(0, nodes))
        if not parts:
            return torch.ones(len(nodes), 1, dtype=self.dtype)
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def chunks(self, most: int) -> Iterator[Any]:
        """All graphs in order, as batches of at most ``most`` nodes and edges, or of one graph."""
        sizes = (self.graphs.n_nodes + self.graphs.n_edges).tolist()
        start = total = 0
        for number, size in enumerate(sizes):
            if number > start and total + size > most:
                yield self[start:number]
                start, total = number, 0
            total += size
        yield self[start : len(sizes)]
