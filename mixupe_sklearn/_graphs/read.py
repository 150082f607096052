"""Read, check and pack a sequence of graphs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from mixupe_sklearn._graphs.batching import Graphs
from mixupe_sklearn._graphs.formats import FORMATS, Graph, read_graph
from mixupe_sklearn._utils.warnings import warn_user


def read_graphs(
    X: Any, name: str = "X", *, node_label: str = "label", node_features: str = "x"
) -> tuple[Graphs, list[Any] | None]:
    """Read graphs. Returns the packed graphs, and their labels if all of them have one.

    Parameters
    ----------
    X : sequence of graphs
        Each of them a ``torch_geometric.data.Data``, a networkx graph, a pair of adjacency and
        features, or edges.
    name : str, default="X"
        Name of the graphs in messages.
    node_label, node_features : str
        Node attributes of networkx graphs with labels and features.
    """
    read = [
        read_graph(graph, f"{name}[{number}]", node_label=node_label, node_features=node_features)
        for number, graph in enumerate(_sequence(X, name))
    ]
    for number, graph in enumerate(read):
        _check(graph, read[0], f"{name}[{number}]", f"{name}[0]")
    return _packed(read, name), _labels(read, name)


def _sequence(X: Any, name: str) -> Sequence[Any]:
    if hasattr(X, "to_data_list"):  # a Batch of PyTorch Geometric
        X = X.to_data_list()
    is_graph = hasattr(X, "edge_index") or (hasattr(X, "nodes") and hasattr(X, "edges"))
    is_graph = is_graph and not isinstance(X, Dataset)  # one of PyTorch Geometric has them, too
    is_sequence = hasattr(X, "__len__") and hasattr(X, "__getitem__")
    is_sequence = is_sequence and getattr(X, "ndim", 1) == 1
    if is_graph or isinstance(X, (str, bytes, dict)) or not is_sequence:
        raise TypeError(
            f"Got {name} of type {type(X).__name__}, but expected a sequence of graphs, such as a "
            f"list, each {FORMATS}."
        )
    if len(X) == 0:
        raise ValueError(f"Got {name} with no graphs, but expected at least one.")
    return X


def _check(graph: Graph, first: Graph, name: str, first_name: str) -> None:
    if graph.n_nodes == 0:
        raise ValueError(f"Got {name} without nodes, but expected at least one node.")
    low, high = int(graph.edges.min(initial=0)), int(graph.edges.max(initial=0))
    if low < 0 or high >= graph.n_nodes:
        raise ValueError(
            f"Got {name} with an edge to node {low if low < 0 else high}, but expected an "
            f"existing node: 0 to {graph.n_nodes - 1}."
        )
    for what, own, theirs in (
        ("node labels", graph.labels, first.labels),
        ("node features", graph.features, first.features),
    ):
        if (own is None) != (theirs is None):
            got, expected = ("with", "none") if theirs is None else ("without", "some")
            raise ValueError(
                f"Got {name} {got} {what}, but expected {expected}, as in {first_name}."
            )
    if graph.features is not None and first.features is not None:
        width, expected_width = graph.features.shape[1], first.features.shape[1]
        if width != expected_width:
            raise ValueError(
                f"Got {name} with {width} features per node, but expected {expected_width}, as in "
                f"{first_name}."
            )


def _labels(read: Sequence[Graph], name: str) -> list[Any] | None:
    labels = [graph.y for graph in read]
    if any(label is None for label in labels):
        return None
    sizes = {np.size(label) for label in labels}
    if len(sizes) > 1:
        raise ValueError(
            f"Got {name} with y of {min(sizes)} to {max(sizes)} values per graph, but expected "
            f"the same number of labels for each."
        )
    return labels


def _packed(read: Sequence[Graph], name: str) -> Graphs:
    n_nodes = np.array([graph.n_nodes for graph in read])
    n_edges = np.array([graph.edges.shape[1] for graph in read])
    sorted_edges = []
    is_symmetric, one_way = True, None
    for number, graph in enumerate(read):
        source, target = graph.edges
        order = np.lexsort((source, target))
        sorted_edges.append(graph.edges[:, order])
        # Symmetric if the edges sorted by target equal the reversed edges sorted by source.
        reversed_edges = graph.edges[::-1, np.lexsort((target, source))]
        if not np.array_equal(sorted_edges[-1], reversed_edges):
            is_symmetric = False
            if one_way is None and not graph.is_directed:
                one_way = number
    _warn(read, one_way, name)
    vocabulary, codes = _numbered(read)
    features = [graph.features for graph in read if graph.features is not None]
    return Graphs(
        first_node=n_nodes.cumsum() - n_nodes,
        n_nodes=n_nodes,
        first_edge=n_edges.cumsum() - n_edges,
        n_edges=n_edges,
        edges=np.ascontiguousarray(np.concatenate(sorted_edges, axis=1)),
        is_symmetric=is_symmetric,
        features=np.concatenate(features) if features else None,
        codes=codes,
        vocabulary=vocabulary,
        name=name,
    )


def _warn(read: Sequence[Graph], one_way: int | None, name: str) -> None:
    """Warn about directed edges and about weights, which may not be intended."""
    if one_way is not None:
        warn_user(
            f"Got {name}[{one_way}] with edges in one direction only (an asymmetric adjacency): "
            f"edges are directed, from source to target; give both directions for an undirected "
            f"graph."
        )
    weighted = next((number for number, graph in enumerate(read) if graph.is_weighted), None)
    if weighted is not None:
        warn_user(
            f"Got {name}[{weighted}] with numbers other than 0 and 1 in its adjacency: edge "
            f"weights are ignored, each edge counts once."
        )


def _numbered(read: Sequence[Graph]) -> tuple[list[Any], np.ndarray | None]:
    """The distinct node labels, and the position of each node's label among them."""
    if read[0].labels is None:
        return [], None
    position: dict[Any, int] = {}
    codes = [
        position.setdefault(label, len(position)) for graph in read for label in graph.labels or ()
    ]
    return list(position), np.array(codes)
