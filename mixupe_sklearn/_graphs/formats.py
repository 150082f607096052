"""Read one graph from PyTorch Geometric, networkx, an adjacency matrix or a list of edges."""

from collections.abc import Collection, Hashable, Mapping, Sequence
from numbers import Integral, Number
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

FORMATS = (
    "a torch_geometric Data, a networkx graph, a pair (adjacency, features), a list of edges, or a "
    "pair (edges, node labels)"
)

# Types of the neighbours in a dict of neighbours.
NEIGHBOURS = (Mapping, list, tuple, set, frozenset, np.ndarray)


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
    if hasattr(graph, "edge_types"):
        raise TypeError(
            f"Got {name} of type {type(graph).__name__}, with several kinds of nodes or edges, but "
            f"expected {FORMATS}."
        )
    if hasattr(graph, "edge_index"):
        return _from_geometric(graph, name)
    if hasattr(graph, "nodes") and hasattr(graph, "edges"):
        return _from_networkx(graph, name, node_label, node_features)
    if _is_matrix(graph):
        return _from_adjacency(graph, None, name)
    if isinstance(graph, Mapping):
        return _from_edges(graph, None, name)
    if isinstance(graph, (str, bytes, Tensor)) or not isinstance(graph, Collection):
        raise TypeError(f"Got {name} of type {type(graph).__name__}, but expected {FORMATS}.")
    if isinstance(graph, (tuple, list)) and _is_pair(graph):
        first, about = graph[0], graph[1]
        if _is_matrix(first):
            return _from_adjacency(first, about, name)
        return _from_edges(first, about, name)
    return _from_edges(graph, None, name)


def _is_pair(parts: Sequence[Any]) -> bool:
    """Whether this is a pair (edges, nodes) and not a list of two or three edges."""
    if len(parts) not in (2, 3) or not _is_many(parts[0]):
        return False
    # Nodes may be tuples themselves, such as the positions of a grid.
    return not all(isinstance(part, tuple) and len(part) == 2 for part in parts)


def _is_many(first: Any) -> bool:
    """Whether this is a collection of edges rather than one edge."""
    if _is_matrix(first) or isinstance(first, (Mapping, set, frozenset)):
        return True
    if isinstance(first, (str, bytes)) or not isinstance(first, (Sequence, np.ndarray)):
        return False
    return len(first) == 0 or not all(map(_is_name, first))


def _is_name(value: Any) -> bool:
    return isinstance(value, (str, bytes)) or not isinstance(value, (Collection, np.ndarray))


def _is_matrix(value: Any) -> bool:
    if sparse.issparse(value):
        return True
    return isinstance(value, (np.ndarray, Tensor)) and value.ndim == 2


def _array(value: Any) -> np.ndarray:
    if not isinstance(value, Tensor):
        return np.asarray(value)
    value = value.detach().cpu()
    value = value if value.layout == torch.strided else value.to_dense()
    return (value.float() if value.dtype == torch.bfloat16 else value).numpy()


def _from_geometric(data: Any, name: str) -> Graph:
    x, edge_index = getattr(data, "x", None), data.edge_index
    if edge_index is None:
        raise ValueError(f"Got {name} with edge_index=None, but expected its edges, (2, n_edges).")
    is_dense = isinstance(edge_index, np.ndarray) or (
        isinstance(edge_index, Tensor) and edge_index.layout == torch.strided
    )
    edges = _array(edge_index) if is_dense else np.empty(0)
    if edges.ndim != 2 or len(edges) != 2 or edges.dtype.kind not in "iu":
        found = f"of shape {edges.shape} and type {edges.dtype}" if is_dense else "of another kind"
        raise ValueError(
            f"Got {name} with an edge_index {found}, but expected an array (2, n_edges) of "
            f"integers."
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
    if y.numel() <= 1:
        return y.item() if y.numel() else None
    return y.detach().cpu().numpy().reshape(-1)


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
    given = adjacency if sparse.issparse(adjacency) else _array(adjacency)
    if given.dtype.kind not in "biuf":
        raise ValueError(
            f"Got {name} with an adjacency of {given.dtype}, but expected real numbers."
        )
    matrix = sparse.coo_array(given, copy=True)
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
    if isinstance(about, Mapping):
        missing = [node for node in range(n_nodes) if node not in about]
        if missing:
            raise ValueError(
                f"Got {name} without a label of node {missing[0]}, but expected one for each of "
                f"its {n_nodes} nodes."
            )
        about = [about[node] for node in range(n_nodes)]
    values = _listed(about, name)
    if len(values) != n_nodes:
        raise ValueError(
            f"Got {name} with {n_nodes} nodes and features or labels of {len(values)}, but "
            f"expected as many."
        )
    if len(values) and all(map(_is_label, values)):
        return [_label(value, name) for value in values], None
    return None, as_features(values, name)


def _listed(about: Any, name: str) -> Any:
    """Labels or features with one entry per node."""
    if sparse.issparse(about):
        return about.toarray()
    is_array = hasattr(about, "__array__")
    if isinstance(about, (str, bytes)) or not (is_array or isinstance(about, Sequence)):
        raise TypeError(
            f"Got {name} with nodes' features of type {type(about).__name__}, but expected an "
            f"array (n_nodes, n_features), or a label for each node."
        )
    if not is_array:
        return about
    values = np.atleast_1d(_array(about))
    return values if values.ndim > 1 else list(values)


def _is_label(value: Any) -> bool:
    return isinstance(value, (str, bytes, Integral)) or not isinstance(
        value, (Number, Collection, np.ndarray, Tensor)
    )


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
        if rows.dtype.kind == "c":
            raise ValueError("complex")
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


def _from_edges(edges: Any, about: Any, name: str) -> Graph:
    """Edges in the formats of grakel: pairs of nodes, a dict by pairs, or a dict of dicts."""
    pairs, keys = _pairs(edges, name)
    if about is None:
        named: Collection[Any] = dict.fromkeys([*keys, *(node for pair in pairs for node in pair)])
    elif isinstance(about, Mapping):
        named = about
    else:
        about = _listed(about, name)
        named = range(len(about))
    try:
        place = {node: number for number, node in enumerate(named)}
        numbers = [(place[source], place[target]) for source, target in pairs]
    except KeyError as error:
        raise ValueError(
            f"Got {name} with an edge to node {error.args[0]!r}, but expected an existing "
            f"node: it is not among the {len(named)} labelled nodes."
        ) from None
    values = list(about.values()) if isinstance(about, Mapping) else about
    labels, features = _of_nodes(values, len(place), name)
    return Graph(len(place), np.array(numbers, dtype=np.int64).reshape(-1, 2).T, labels, features)


def _pairs(edges: Any, name: str) -> tuple[list[tuple[Any, Any]], list[Any]]:
    """Pairs of nodes, and the keys of a dict of neighbours."""
    keys: list[Any] = []
    if isinstance(edges, Mapping):
        if edges and all(isinstance(value, NEIGHBOURS) for value in edges.values()):
            keys = list(edges)
            edges = [(source, target) for source in keys for target in edges[source]]
        else:
            edges = list(edges)
    pairs = []
    for edge in edges:
        is_pair = isinstance(edge, (Collection, Tensor)) and not isinstance(edge, (str, bytes))
        pair = tuple(_array(edge).tolist() if isinstance(edge, Tensor) else edge) if is_pair else ()
        if len(pair) != 2 or not all(isinstance(node, Hashable) for node in pair):
            raise ValueError(
                f"Got {name} with an edge {edge!r}, but expected pairs of nodes, or {FORMATS}."
            )
        pairs.append(pair)
    return pairs, keys
