"""One graph from each of the forms that people have: PyTorch Geometric, networkx, pairs, edges."""

from collections.abc import Collection, Mapping, Sequence
from numbers import Integral, Number
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from torch import Tensor

FORMS = (
    "a torch_geometric Data, a networkx graph, a pair (adjacency, features), a list of edges, or a "
    "pair (edges, node labels)"
)


class Graph(NamedTuple):
    """A graph: its number of nodes, its edges (2, n_edges), and what the nodes come with."""

    n_nodes: int
    edges: np.ndarray
    labels: list[Any] | None = None
    features: np.ndarray | None = None
    # What the graph itself is labelled with, where that comes along.
    y: Any = None
    # Whether a graph without reverse edges says so itself.
    is_directed: bool = False
    # Whether edges come with numbers that are not read.
    is_weighted: bool = False


def read_graph(graph: Any, name: str, *, node_label: str, node_features: str) -> Graph:
    """Read one graph, or raise one sentence that names it."""
    if hasattr(graph, "edge_index"):
        return _from_geometric(graph, name)
    if hasattr(graph, "nodes") and hasattr(graph, "edges"):
        return _from_networkx(graph, name, node_label, node_features)
    if _is_matrix(graph):
        return _from_adjacency(graph, None, name)
    if isinstance(graph, Mapping):
        return _from_edges(graph, None, name)
    if isinstance(graph, (str, bytes)) or not isinstance(graph, Collection):
        raise TypeError(f"Got {name} of type {type(graph).__name__}, but expected {FORMS}.")
    if isinstance(graph, (tuple, list)) and len(graph) in (2, 3) and _is_many(graph[0]):
        first, about = graph[0], graph[1]
        if _is_matrix(first):
            return _from_adjacency(first, about, name)
        return _from_edges(first, about, name)
    return _from_edges(graph, None, name)


def _is_many(first: Any) -> bool:
    """Whether this is all of a graph's edges rather than a single one of them."""
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
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)


def _from_geometric(data: Any, name: str) -> Graph:
    x, edge_index = getattr(data, "x", None), data.edge_index
    if edge_index is None:
        raise ValueError(f"Got {name} with edge_index=None, but expected its edges, (2, n_edges).")
    edges = _array(edge_index)
    if edges.ndim != 2 or len(edges) != 2 or edges.dtype.kind not in "iu":
        raise ValueError(
            f"Got {name} with an edge_index of shape {edges.shape} and type {edges.dtype}, but "
            f"expected (2, n_edges) whole numbers."
        )
    features = None if x is None else as_features(_array(x), name)
    n_nodes = len(features) if features is not None else data.num_nodes
    if not isinstance(n_nodes, int):
        n_nodes = int(edges.max(initial=-1)) + 1
    y = getattr(data, "y", None)
    if isinstance(y, Tensor):
        y = y.item() if y.numel() == 1 else y.detach().cpu().numpy().reshape(-1)
    return Graph(n_nodes, edges.astype(np.int64), None, features, y)


def _from_networkx(graph: Any, name: str, node_label: str, node_features: str) -> Graph:
    place = {node: number for number, node in enumerate(graph.nodes)}
    pairs = [(place[edge[0]], place[edge[1]]) for edge in graph.edges]
    edges = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    if not graph.is_directed():
        reverse = edges[:, edges[0] != edges[1]][::-1]  # a loop is its own reverse
        edges = np.concatenate([edges, reverse], axis=1)
    about = [graph.nodes[node] for node in graph.nodes]
    labels = _attribute(about, node_label, name)
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
    matrix = sparse.coo_array(adjacency if sparse.issparse(adjacency) else _array(adjacency))
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(
            f"Got {name} with an adjacency of shape {matrix.shape}, but expected a square matrix, "
            f"a row and a column for each node."
        )
    if matrix.dtype.kind not in "biuf":
        raise ValueError(f"Got {name} with an adjacency of {matrix.dtype}, but expected numbers.")
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
    """Labels or features of nodes: names, and whole numbers one a node, are labels."""
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
    values = about.toarray() if sparse.issparse(about) else about
    if not sparse.issparse(about) and not isinstance(about, (Sequence, np.ndarray, Tensor)):
        raise TypeError(
            f"Got {name} with nodes' features of type {type(about).__name__}, but expected an "
            f"array (n_nodes, n_features), or a label for each node."
        )
    if len(values) != n_nodes:
        raise ValueError(
            f"Got {name} with features or labels of {len(values)} nodes and an adjacency of "
            f"{n_nodes}, but expected as many."
        )
    values = values if isinstance(values, list) else list(_array(values))
    if values and all(map(_is_label, values)):
        return [_plain(value) for value in values], None
    return None, as_features(values, name)


def _is_label(value: Any) -> bool:
    return isinstance(value, (str, bytes, Integral)) or not isinstance(
        value, (Number, Collection, np.ndarray, Tensor)
    )


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def as_features(values: Any, name: str) -> np.ndarray:
    """Numbers of nodes as an array (n_nodes, n_features); a single column may be flat."""
    try:
        rows = [_array(row) for row in values] if isinstance(values, list) else values
        features = np.asarray(rows, dtype=np.float32)
    except (TypeError, ValueError):
        raise ValueError(
            f"Got {name} with features that are no array of numbers, but expected "
            f"(n_nodes, n_features)."
        ) from None
    features = features[:, None] if features.ndim == 1 else features
    if features.ndim != 2:
        raise ValueError(
            f"Got {name} with features of shape {features.shape}, but expected "
            f"(n_nodes, n_features)."
        )
    is_bad = ~np.isfinite(features).all(axis=1)
    if is_bad.any():
        raise ValueError(
            f"Got {name} with NaN or infinity among the features of node {int(is_bad.argmax())}, "
            f"but expected finite numbers."
        )
    return features


def _from_edges(edges: Any, about: Any, name: str) -> Graph:
    """Edges as grakel has them: pairs of names, or a dict by pairs, or a dict of dicts."""
    pairs = list(_pairs(edges, name))
    if about is None:
        named: Collection[Any] = dict.fromkeys(node for pair in pairs for node in pair)
    elif isinstance(about, Mapping):
        named = about
    else:
        named = range(len(about))
    try:
        place = {node: number for number, node in enumerate(named)}
        numbers = [(place[source], place[target]) for source, target in pairs]
    except KeyError as error:
        raise ValueError(
            f"Got {name} with an edge to node {error.args[0]!r}, but expected a node that is "
            f"there: it has labels of {len(named)} nodes, and this is none of them."
        ) from None
    values = list(about.values()) if isinstance(about, Mapping) else about
    labels, features = _of_nodes(values, len(place), name)
    return Graph(len(place), np.array(numbers, dtype=np.int64).reshape(-1, 2).T, labels, features)


def _pairs(edges: Any, name: str) -> Any:
    if isinstance(edges, Mapping):
        if any(isinstance(value, (Mapping, list, set)) for value in edges.values()):
            # Neighbours by node; a node without any is known by its key alone, or not at all.
            return ((source, target) for source, targets in edges.items() for target in targets)
        edges = list(edges)
    for edge in edges:
        if isinstance(edge, (str, bytes)) or not isinstance(edge, Collection) or len(edge) != 2:
            raise ValueError(
                f"Got {name} with an edge {edge!r}, but expected pairs of nodes, or {FORMS}."
            )
    return (tuple(edge) for edge in edges)
