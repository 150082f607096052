"""Read one graph from PyTorch Geometric, networkx, an adjacency matrix or a list of edges."""

from collections.abc import Collection, Hashable, Mapping, Sequence, Set
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from torch import Tensor

FORMATS = (
    "a torch_geometric Data, a networkx graph, a pair (adjacency, features), a list of edges, or a "
    "pair (edges, node labels)"
)


class Graph(NamedTuple):
    """A graph: its number of nodes, its edges (2, n_edges), and labels or features of the nodes."""

    n_nodes: int
    edges: np.ndarray
    labels: list[Any] | None = None
    features: np.ndarray | None = None
    # The label of the graph, if it has one.
    y: Any = None
    # Whether the graph declares itself as directed.
    is_directed: bool = False
    # Whether edges have weights, which are ignored.
    is_weighted: bool = False


def read_graph(graph: Any, name: str, *, node_label: str, node_features: str) -> Graph:
    """Read one graph, or raise an error with its name."""
    if hasattr(graph, "edge_index"):
        return _from_geometric(graph, name)
    if hasattr(graph, "nodes") and hasattr(graph, "edges"):
        return _from_networkx(graph, name, node_label, node_features)
    first, about = graph[:2] if _is_pair(graph) else (graph, None)
    if _is_matrix(first):
        return _from_adjacency(first, about, name)
    if isinstance(first, (list, tuple, Set, Mapping)):
        return _from_edges(first, about, name)
    raise TypeError(f"Got {name} of type {type(graph).__name__}, but expected {FORMATS}.")


def _is_pair(graph: Any) -> bool:
    """Whether this is a pair (edges, nodes) and not a list of two or three edges."""
    if not isinstance(graph, (tuple, list)) or len(graph) not in (2, 3):
        return False
    first = graph[0]
    if _is_matrix(first) or isinstance(first, (Set, Mapping)):
        return True
    # Nodes may be tuples themselves, such as the positions of a grid.
    if all(isinstance(part, tuple) and len(part) == 2 for part in graph):
        return False
    return isinstance(first, (tuple, list)) and all(isinstance(e, (tuple, list)) for e in first)


def _is_matrix(value: Any) -> bool:
    if sparse.issparse(value):
        return True
    return isinstance(value, (np.ndarray, Tensor)) and value.ndim == 2


def _array(value: Any) -> np.ndarray:
    return np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)


def _from_geometric(data: Any, name: str) -> Graph:
    x, edges = getattr(data, "x", None), _array(data.edge_index)
    if edges.ndim != 2 or len(edges) != 2 or edges.dtype.kind not in "iu":
        raise ValueError(
            f"Got {name} with an edge_index of shape {edges.shape}, {edges.dtype}, but expected an "
            f"array (2, n_edges) of integers."
        )
    features = None if x is None else as_features(x, name)
    n_nodes = len(features) if features is not None else data.num_nodes
    if not isinstance(n_nodes, int):
        n_nodes = int(edges.max(initial=-1)) + 1
    return Graph(n_nodes, edges.astype(np.int64), None, features, _own_label(data))


def _own_label(data: Any) -> Any:
    """The label of a graph of PyTorch Geometric: a scalar, an array, or None."""
    y = getattr(data, "y", None)
    if not isinstance(y, Tensor):
        return y
    values = _array(y).reshape(-1)
    return values.tolist()[0] if values.size == 1 else values if values.size else None


def _from_networkx(graph: Any, name: str, node_label: str, node_features: str) -> Graph:
    place = {node: number for number, node in enumerate(graph.nodes)}
    pairs = [(place[edge[0]], place[edge[1]]) for edge in graph.edges]
    edges = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    if not graph.is_directed():
        reverse = edges[:, edges[0] != edges[1]][::-1]  # a self-loop is its own reverse
        edges = np.concatenate([edges, reverse], axis=1)
    about = [graph.nodes[node] for node in graph.nodes]
    found = _attribute(about, node_label, name)
    labels = None if found is None else [_label(value, name) for value in found]
    features = _attribute(about, node_features, name)
    numbers = None if features is None else as_features(features, name)
    return Graph(len(place), edges, labels, numbers, None, graph.is_directed())


def _attribute(about: Sequence[Mapping], key: str, name: str) -> list[Any] | None:
    """An attribute of all nodes, or None if no node has it."""
    n_known = sum(key in one for one in about)
    if n_known == 0:
        return None
    if n_known < len(about):
        raise ValueError(
            f"Got {name} with {key!r} at {n_known} of {len(about)} nodes, but expected it at all "
            f"nodes or at none."
        )
    return [one[key] for one in about]


def _from_adjacency(adjacency: Any, about: Any, name: str) -> Graph:
    matrix = sparse.coo_array(
        adjacency if sparse.issparse(adjacency) else _array(adjacency), copy=True
    )
    matrix.sum_duplicates()
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(
            f"Got {name} with an adjacency of shape {matrix.shape}, but expected a square matrix, "
            f"a row and a column for each node."
        )
    if not np.isfinite(matrix.data).all():
        raise ValueError(
            f"Got {name} with NaN or infinity in its adjacency, but expected finite numbers."
        )
    is_edge = matrix.data != 0
    row, column = matrix.coords
    edges = np.stack([row[is_edge], column[is_edge]]).astype(np.int64)
    is_weighted = bool((matrix.data[is_edge] != 1).any())
    labels, features = _of_nodes(about, matrix.shape[0], name)
    return Graph(matrix.shape[0], edges, labels, features, is_weighted=is_weighted)


def _of_nodes(about: Any, n_nodes: int, name: str) -> tuple[list[Any] | None, np.ndarray | None]:
    """Labels or features of nodes. Names, and one integer per node, are labels."""
    if about is None:
        return None, None
    values = about.toarray() if sparse.issparse(about) else about
    if hasattr(values, "__array__"):
        values = np.atleast_1d(_array(values))
    if not isinstance(values, (list, tuple, np.ndarray)):
        raise TypeError(
            f"Got {name} with nodes' features of type {type(about).__name__}, but expected an "
            f"array (n_nodes, n_features), or a label for each node."
        )
    if len(values) != n_nodes:
        raise ValueError(
            f"Got {name} with {n_nodes} nodes and features or labels of {len(values)}, but "
            f"expected as many."
        )
    if len(values) and all(isinstance(value, (str, Integral, np.bool_)) for value in values):
        return [_label(value, name) for value in values], None
    return None, as_features(values, name)


def _label(value: Any, name: str) -> Any:
    """A node label as a hashable scalar, not as an array of size one."""
    if isinstance(value, (np.ndarray, np.generic, Tensor)) and value.ndim == 0:
        value = value.item()
    is_hashable = isinstance(value, Hashable) and not isinstance(value, Tensor)
    if not is_hashable or value != value:  # NaN
        raise ValueError(
            f"Got {name} with the node label {value!r}, but expected a name or an integer; "
            f"pass real numbers as features."
        )
    return value


def as_features(values: Any, name: str) -> np.ndarray:
    """Node features as an array (n_nodes, n_features). A single column may be 1-dimensional."""
    try:
        is_list = isinstance(values, (list, tuple))
        rows = np.asarray([_array(row) for row in values]) if is_list else _array(values)
        features = rows.astype(np.float32)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"Got {name} with features that are not an array of real numbers, but expected "
            f"(n_nodes, n_features)."
        ) from None
    features = features[:, None] if features.ndim == 1 else features
    if features.ndim != 2:
        raise ValueError(
            f"Got {name} with features of shape {features.shape}, but expected "
            f"(n_nodes, n_features)."
        )
    is_invalid = ~np.isfinite(features).all(axis=1)
    if is_invalid.any():
        raise ValueError(
            f"Got {name} with NaN or infinity in the features of node "
            f"{int(is_invalid.argmax())}, but expected finite numbers."
        )
    return features


def _from_edges(edges: Collection[Any], about: Any, name: str) -> Graph:
    """Edges in the formats of grakel: pairs of nodes, or a dict by pairs."""
    for edge in edges:
        is_pair = isinstance(edge, (tuple, list)) and len(edge) == 2
        if not is_pair or not all(isinstance(node, Hashable) for node in edge):
            raise ValueError(
                f"Got {name} with an edge {edge!r}, but expected pairs of nodes, or {FORMATS}."
            )
    if about is not None and not isinstance(about, Mapping):
        raise TypeError(
            f"Got {name} with nodes' features of type {type(about).__name__}, but expected a dict "
            f"of node labels beside edges."
        )
    named = dict.fromkeys(node for edge in edges for node in edge) if about is None else about
    place = {node: number for number, node in enumerate(named)}
    unknown = [node for edge in edges for node in edge if node not in place]
    if unknown:
        raise ValueError(
            f"Got {name} with an edge to node {unknown[0]!r}, but expected an existing "
            f"node: it is not among the {len(named)} labelled nodes."
        )
    pairs = np.array([(place[a], place[b]) for a, b in edges], dtype=np.int64).reshape(-1, 2)
    labels, features = _of_nodes(None if about is None else list(about.values()), len(place), name)
    return Graph(len(place), pairs.T, labels, features)
