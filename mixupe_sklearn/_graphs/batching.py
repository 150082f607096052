"""Many graphs in one piece of memory, and batches of them as PyTorch Geometric has them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mixupe_sklearn._data.rows import Gathers


def in_ranges(first: np.ndarray, size: np.ndarray) -> np.ndarray:
    """The numbers of ranges, one after the other, by where each begins and how long it is.

    Examples
    --------
    >>> import numpy as np
    >>> in_ranges(np.array([7, 0]), np.array([2, 3]))
    array([7, 8, 0, 1, 2])
    """
    return np.arange(size.sum()) + np.repeat(first - (size.cumsum() - size), size)


@dataclass(frozen=True, eq=False)
class Graphs:
    """Graphs as they were read, one after the other in the same arrays.

    Parameters
    ----------
    first_node, n_nodes : array of shape (n_graphs,)
        Where the nodes of a graph begin, and how many there are.
    first_edge, n_edges : array of shape (n_graphs,)
        The same of its edges.
    edges : array of shape (2, n_all_edges)
        Source and target of each edge, counted from the first node of its graph, and in the order
        of the targets.
    is_symmetric : bool
        Whether each edge of each graph has its reverse.
    features : array of shape (n_all_nodes, n_features) or None
        Numbers of the nodes.
    codes : array of shape (n_all_nodes,) or None
        Labels of the nodes, as places in ``vocabulary``.
    vocabulary : list
        The labels.
    name : str, default="X"
        How a message calls these graphs.
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
        """How many graphs there are, as an array tells it."""
        return (len(self),)

    def part(self, index: np.ndarray) -> "Graphs":
        """Some of the graphs, by numbers or flags, in the same memory."""
        names = ("first_node", "n_nodes", "first_edge", "n_edges")
        return replace(self, **{name: getattr(self, name)[index] for name in names})

    def nodes(self) -> np.ndarray:
        """Numbers of all nodes of these graphs."""
        return in_ranges(self.first_node, self.n_nodes)

    def degrees(self) -> np.ndarray:
        """How many edges lead to each node, by its number; zero for nodes of other graphs."""
        where = in_ranges(self.first_edge, self.n_edges)
        target = self.edges[1, where] + np.repeat(self.first_node, self.n_edges)
        n_all = int((self.first_node + self.n_nodes).max(initial=0))
        return np.bincount(target, minlength=n_all)

    def used_codes(self) -> np.ndarray:
        """Places in the vocabulary of the labels that these graphs have."""
        assert self.codes is not None
        return np.unique(self.codes[self.nodes()])


class GraphRows(Gathers):
    """Graphs whose nodes are ready for a network: some of them are a batch.

    What does not change from epoch to epoch is made here, once: a batch is gathered from it.

    Parameters
    ----------
    graphs : Graphs
        The graphs.
    codes : array of shape (n_all_nodes,) or None
        A number for each node, which becomes a one in that column; ``n_codes`` is no column.
    n_codes : int
        How many columns these are.
    dtype : torch.dtype, default=torch.float32
        Type of the nodes' numbers.
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
        """These graphs, by numbers or a slice, as a ``torch_geometric.data.Batch``; or one of them.

        The batch is made here and not by PyTorch Geometric, which would take it apart graph by
        graph first: its ``to_data_list`` does not work.
        """
        from torch_geometric.data import Batch, Data

        if isinstance(index, (int, np.integer)):
            batch = self[np.array([index])]
            return Data(x=batch.x, edge_index=batch.edge_index, symmetric=batch.symmetric)
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
        """All graphs as batches, in order, of at most so many nodes and edges, or of one graph."""
        sizes = (self.graphs.n_nodes + self.graphs.n_edges).tolist()
        start = total = 0
        for number, size in enumerate(sizes):
            if number > start and total + size > most:
                yield self[start:number]
                start, total = number, 0
            total += size
        yield self[start : len(sizes)]
