"""All formats of a graph give the same graph, and invalid graphs raise an error."""

import warnings

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset
from torch_geometric.utils import to_networkx

from mixupe_sklearn._graphs.node_features import learn_inputs
from mixupe_sklearn._graphs.read import read_graphs

# Water, and a triangle with an isolated node.
LABELS = [["O", "H", "H"], ["C", "C", "C", "Na"]]
PAIRS = [[(0, 1), (0, 2)], [(0, 1), (1, 2), (2, 0)]]
BOTH = [pairs + [(b, a) for a, b in pairs] for pairs in PAIRS]


def adjacency(pairs, n_nodes, make=sparse.csr_matrix):
    dense = np.zeros((n_nodes, n_nodes))
    for a, b in pairs:
        dense[a, b] = 1
    return make(dense)


def labelled_networkx(pairs, labels):
    graph = nx.Graph()
    for node, label in enumerate(labels):
        graph.add_node(f"atom {node}", label=label)
    graph.add_edges_from((f"atom {a}", f"atom {b}") for a, b in pairs)
    return graph


FORMS = {
    "networkx": [labelled_networkx(p, label) for p, label in zip(PAIRS, LABELS, strict=True)],
    "csr": [(adjacency(p, len(n)), n) for p, n in zip(BOTH, LABELS, strict=True)],
    "coo array": [
        (adjacency(p, len(n), sparse.coo_array), np.array(n))
        for p, n in zip(BOTH, LABELS, strict=True)
    ],
    "dense": [(adjacency(p, len(n), np.array), n) for p, n in zip(BOTH, LABELS, strict=True)],
    "edges": [(p, dict(enumerate(n))) for p, n in zip(BOTH, LABELS, strict=True)],
    "set of edges": [(set(p), dict(enumerate(n))) for p, n in zip(BOTH, LABELS, strict=True)],
    "edges and edge labels": [
        [p, dict(enumerate(n)), dict.fromkeys(p, 1)] for p, n in zip(BOTH, LABELS, strict=True)
    ],
    "dict by pairs": [
        (dict.fromkeys(p, 1.0), dict(enumerate(n))) for p, n in zip(BOTH, LABELS, strict=True)
    ],
    "names of nodes": [
        ([(f"n{a}", f"n{b}") for a, b in p], {f"n{i}": label for i, label in enumerate(n)})
        for p, n in zip(BOTH, LABELS, strict=True)
    ],
}


def batch_of(X, **how):
    graphs, _ = read_graphs(X, **how)
    return learn_inputs(graphs, "degree").ready(graphs)[:]


@pytest.mark.parametrize("form", FORMS)
def test_all_formats_with_labels_give_the_same_batch(form):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batch = batch_of(FORMS[form])
    expected = torch.zeros(7, 4)  # C, H, Na, O
    expected[range(7), [3, 1, 1, 0, 0, 0, 2]] = 1
    torch.testing.assert_close(batch.x, expected)
    edges = {(a, b) for a, b in BOTH[0]} | {(a + 3, b + 3) for a, b in BOTH[1]}
    assert set(map(tuple, batch.edge_index.T.tolist())) == edges
    assert batch.edge_index.shape[1] == len(edges)
    assert batch.edge_index[1].diff().min() >= 0
    assert batch.batch.tolist() == [0] * 3 + [1] * 4
    assert batch.ptr.tolist() == [0, 3, 7]
    assert batch.num_graphs == len(batch) == 2
    assert batch.symmetric is True


def test_features_are_unchanged_in_all_formats():
    X = [np.arange(6.0).reshape(3, 2), np.ones((4, 2))]
    pairs = [(adjacency(p, len(x)), x) for p, x in zip(BOTH, X, strict=True)]
    data = [
        Data(x=torch.tensor(x), edge_index=torch.tensor(p).T) for p, x in zip(BOTH, X, strict=True)
    ]
    graphs = [to_networkx(one, node_attrs=["x"], to_undirected=True) for one in data]
    lists = [(a, sparse.csr_matrix(x)) for a, x in pairs]
    whole = torch.tensor(np.concatenate(X), dtype=torch.float32)
    for form in (pairs, data, graphs, lists, Batch.from_data_list(data)):
        batch = batch_of(form)
        torch.testing.assert_close(batch.x, whole)
        assert batch.edge_index.shape[1] == 10


def test_labels_and_features_are_concatenated():
    graph = nx.path_graph(2)
    for node in graph:
        graph.nodes[node].update(kind="ab"[node], size=[1.0 + node])
    batch = batch_of([graph], node_label="kind", node_features="size")
    assert batch.x.tolist() == [[1, 0, 1], [0, 1, 2]]


def test_nodes_without_features_are_encoded_by_degree_or_by_one():
    graphs, _ = read_graphs([nx.star_graph(3), nx.path_graph(2)])
    degree = learn_inputs(graphs, "degree")
    assert degree.known == (1, 3)
    assert degree.ready(graphs)[:].x.tolist() == [[0, 1]] + [[1, 0]] * 5
    ones = learn_inputs(graphs, "ones")
    assert ones.n_features == 1
    assert ones.ready(graphs)[:].x.tolist() == [[1]] * 6
    # The degree 2 is as far from one as from the other; 7 counts as 3.
    other, _ = read_graphs([nx.star_graph(7)])
    assert degree.ready(other)[:].x[0].tolist() == [0, 1]


def test_the_nodes_of_an_edge_list_are_those_of_its_edges():
    batch = batch_of([[(7, 9), (9, 7)], [["a", "b"], ["b", "a"]], {("x", "y"): 1, ("y", "x"): 1}])
    assert batch.ptr.tolist() == [0, 2, 4, 6]


def test_a_batch_equals_that_of_pytorch_geometric():
    rng = np.random.default_rng(0)
    data = []
    for _ in range(30):
        n_nodes = int(rng.integers(1, 9))
        edges = np.array([(a, b) for a in range(n_nodes) for b in range(n_nodes) if a != b])
        edges = edges[rng.random(len(edges)) < 0.4].reshape(-1, 2)
        x = torch.tensor(rng.normal(size=(n_nodes, 3)), dtype=torch.float32)
        data.append(Data(x=x, edge_index=torch.tensor(edges, dtype=torch.long).reshape(-1, 2).T))
    with pytest.warns(UserWarning, match="edges are directed"):
        graphs, _ = read_graphs(data)
    rows = learn_inputs(graphs, "degree").ready(graphs)
    for index in (np.array([4, 0, 29, 4]), np.array([7]), slice(3, 9), slice(None)):
        own = rows[index]
        theirs = Batch.from_data_list([data[number] for number in np.arange(30)[index]])
        torch.testing.assert_close(own.x, theirs.x)
        assert own.batch.tolist() == theirs.batch.tolist()
        assert own.ptr.tolist() == theirs.ptr.tolist()
        pairs = [sorted(map(tuple, one.edge_index.T.tolist())) for one in (own, theirs)]
        assert pairs[0] == pairs[1]


def test_a_subset_of_graphs_shares_their_memory():
    graphs, _ = read_graphs(FORMS["csr"] * 2)
    part = graphs.part(np.array([3, 0]))
    assert part.edges is graphs.edges
    assert [int(n) for n in part.n_nodes] == [4, 3]
    batch = learn_inputs(part, "degree").ready(part)[:]
    assert batch.ptr.tolist() == [0, 4, 7]
    only = graphs.part(np.array([0, 2]))
    assert learn_inputs(only, "degree").known == ("H", "O")


def test_chunks_hold_all_graphs_in_order_within_the_limit():
    X = [nx.path_graph(n) for n in (1, 5, 50, 2, 3, 4)]
    graphs, _ = read_graphs(X)
    chunks = list(learn_inputs(graphs, "ones").ready(graphs).chunks(21))
    assert [chunk.ptr.diff().tolist() for chunk in chunks] == [[1, 5], [50], [2, 3, 4]]


def test_directed_edges_raise_one_warning_and_stay_directed():
    X = [(adjacency([(0, 1)], 2), None), (adjacency([(1, 0)], 2), None)]
    with pytest.warns(UserWarning, match="directed") as record:
        batch = batch_of(X)
    assert [str(one.message) for one in record] == [
        "Got X[0] with edges in one direction only (an asymmetric adjacency): edges are "
        "directed, from source to target; give both directions for an undirected graph."
    ]
    assert batch.edge_index.tolist() == [[0, 3], [1, 2]]
    assert batch.symmetric is False


def test_directed_networkx_graphs_raise_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batch = batch_of([nx.DiGraph([(0, 1)]), nx.Graph([(0, 1), (1, 1)])])
    assert batch.symmetric is False
    # The loop is there once.
    assert sorted(map(tuple, batch.edge_index.T.tolist())) == [(0, 1), (2, 3), (3, 2), (3, 3)]


def test_edge_weights_raise_a_warning():
    with pytest.warns(UserWarning, match=r"Got X\[1\] with numbers other than 0 and 1 in its adj"):
        batch_of([(np.eye(2), None), (2 * np.eye(2), None)])


def test_explicit_zeros_are_not_edges():
    matrix = sparse.csr_matrix(([0.0, 1.0, 1.0], ([0, 0, 1], [0, 1, 0])), shape=(2, 2))
    assert batch_of([(matrix, None)]).edge_index.shape[1] == 2


def test_graph_labels_are_returned_if_all_graphs_have_one():
    edge = torch.tensor([[0, 1], [1, 0]])
    data = [Data(edge_index=edge, num_nodes=2, y=torch.tensor([number])) for number in (3, 1)]
    assert read_graphs(data)[1] == [3, 1]
    assert read_graphs([*data, Data(edge_index=edge, num_nodes=2)])[1] is None


def test_nodes_may_be_tuples():
    grid = nx.grid_2d_graph(2, 1).to_directed()
    batch = batch_of(
        [list(grid.edges), nx.grid_2d_graph(2, 1), list(nx.grid_2d_graph(2, 2).to_directed().edges)]
    )
    assert batch.ptr.tolist() == [0, 2, 4, 8]
    assert batch.edge_index[:, :2].tolist() == [[1, 0], [0, 1]]


def test_a_duplicate_edge_of_an_adjacency_counts_once():
    ones, places = np.ones(4), ([0, 0, 1, 1], [1, 1, 0, 0])
    for kind in (sparse.coo_array, sparse.csr_array):
        with pytest.warns(UserWarning, match="numbers other than 0 and 1"):
            batch = batch_of([(kind((ones, places), shape=(3, 3)), None)])
        assert batch.edge_index.shape[1] == 2
    assert batch_of([nx.MultiGraph([(0, 1), (0, 1)])]).edge_index.shape[1] == 4


def test_asymmetric_edges_after_a_directed_graph_raise_a_warning():
    with pytest.warns(UserWarning, match=r"Got X\[1\] with edges in one direction only"):
        batch_of([nx.DiGraph([(0, 1)]), [(0, 1)]])


def test_networkx_labels_may_be_arrays_of_size_one():
    graph = nx.path_graph(3)
    for node, label in enumerate([np.int64(1), torch.tensor(1), np.array(2)]):
        graph.nodes[node]["label"] = label
    graphs, _ = read_graphs([graph])
    assert graphs.vocabulary == [1, 2]
    assert [type(label) for label in graphs.vocabulary] == [int, int]


def test_other_containers_of_features_are_read():
    dense = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    x = np.array([[1.0], [2.0]])
    for adjacency, features in [
        (dense, torch.tensor(x)),
        (dense.numpy(), pd.DataFrame(x)),
        (dense.numpy(), pd.Series([1.0, 2.0])),
        (dense.int().numpy().astype(bool), [torch.tensor([1.0]), torch.tensor([2.0])]),
    ]:
        batch = batch_of([(adjacency, features)])
        assert batch.x.tolist() == [[1], [2]]
        assert batch.edge_index.tolist() == [[1, 0], [0, 1]]


def test_a_dataset_of_pytorch_geometric_is_a_sequence():
    class Own(InMemoryDataset):
        def __init__(self, graphs):
            super().__init__()
            self.data, self.slices = self.collate(graphs)

    graphs = [Data(x=torch.ones(2, 1), edge_index=EDGE, y=torch.tensor([n])) for n in (0, 1, 1)]
    read, labels = read_graphs(Own(graphs))
    assert len(read) == 3
    assert labels == [0, 1, 1]


def test_unknown_labels_may_be_ignored():
    graphs, _ = read_graphs(FORMS["csr"])
    inputs = learn_inputs(graphs.part(np.array([0])), "degree")
    assert inputs.known == ("H", "O")
    batch = inputs.ready(graphs, unknown="ignore")[:]
    assert batch.x.tolist() == [[0, 1], [1, 0], [1, 0]] + [[0, 0]] * 4


EDGE = torch.tensor([[0, 1], [1, 0]])
ONES = np.ones((2, 2)) - np.eye(2)
INVALID = {
    "no graphs": ([], "Got X with no graphs, but expected at least one."),
    "no nodes, networkx": ([nx.Graph()], "Got X[0] without nodes, but expected at least one node."),
    "no nodes, adjacency": (
        [(ONES, None), (np.zeros((0, 0)), None)],
        "Got X[1] without nodes, but expected at least one node.",
    ),
    "no nodes, edges": ([[]], "Got X[0] without nodes, but expected at least one node."),
    "edge to nowhere, geometric": (
        [Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0, 5], [5, 0]]))],
        "Got X[0] with an edge to node 5, but expected an existing node: 0 to 1.",
    ),
    "edge to nowhere, below zero": (
        [Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0, -1], [-1, 0]]))],
        "Got X[0] with an edge to node -1, but expected an existing node: 0 to 1.",
    ),
    "edge to nowhere, edges": (
        [([("a", "b"), ("b", "c")], {"a": 1, "b": 2})],
        "Got X[0] with an edge to node 'c', but expected an existing node: it is not among the 2 "
        "labelled nodes.",
    ),
    "width": (
        [(ONES, np.ones((2, 3))), (ONES, np.ones((2, 4)))],
        "Got X[1] with 4 features per node, but expected 3, as in X[0].",
    ),
    "NaN": (
        [(ONES, np.array([[1.0, 2.0], [3.0, np.nan]]))],
        "Got X[0] with NaN or infinity in the features of node 1, but expected finite numbers.",
    ),
    "NaN, geometric": (
        [Data(x=torch.tensor([[torch.inf], [1.0]]), edge_index=EDGE)],
        "Got X[0] with NaN or infinity in the features of node 0, but expected finite numbers.",
    ),
    "NaN in the adjacency": (
        [(np.array([[0, np.nan], [1, 0]]), None)],
        "Got X[0] with NaN or infinity in its adjacency, but expected finite numbers.",
    ),
    "not square": (
        [(np.ones((2, 3)), None)],
        "Got X[0] with an adjacency of shape (2, 3), but expected a square matrix, a row and a "
        "column for each node.",
    ),
    "other number of nodes": (
        [(ONES, np.ones((3, 2)))],
        "Got X[0] with 2 nodes and features or labels of 3, but expected as many.",
    ),
    "labels here and there": (
        [nx.path_graph(2), labelled_networkx([(0, 1)], "ab")],
        "Got X[1] with node labels, but expected none, as in X[0].",
    ),
    "features here and there": (
        [(ONES, np.ones((2, 3))), (ONES, None)],
        "Got X[1] without node features, but expected some, as in X[0].",
    ),
    "a label of some nodes": (
        [nx.Graph()],
        "Got X[0] with 'label' at 1 of 2 nodes, but expected it at all nodes or at none.",
    ),
    "features of three dimensions": (
        [(ONES, np.ones((2, 2, 2)))],
        "Got X[0] with features of shape",
    ),
    "ragged features": (
        [(ONES, [[1.0], [1.0, 2.0]])],
        "Got X[0] with features that are not an array of real numbers, but expected (n_nodes, n_features).",
    ),
    "an edge of three": (
        [[(0, 1), (0, 1, 2)]],
        "Got X[0] with an edge (0, 1, 2), but expected pai",
    ),
    "no edge_index": (
        [Data(x=torch.ones(2, 1))],
        "Got X[0] with an edge_index of shape (), object, but expected an array (2, n_edges) of",
    ),
    "edge_index the other way": (
        [Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0, 1], [1, 0], [0, 0]]))],
        "Got X[0] with an edge_index of shape (3, 2), int64, but expected an array (2, n_edges)",
    ),
    "huge features": (
        [(ONES, [[10**400], [1]])],
        "Got X[0] with features that are not an array of real",
    ),
    "lists as nodes": (
        [[([0], [1]), ([1], [0])]],
        "Got X[0] with an edge ([0], [1]), but expected",
    ),
    "labels of graphs of unequal length": (
        [Data(edge_index=EDGE, num_nodes=2, y=torch.zeros(n)) for n in (2, 3)],
        "Got X with y of 2 to 3 values per graph, but expected the same number of labels",
    ),
}
INVALID["a label of some nodes"][0][0].add_node(0, label="a")
INVALID["a label of some nodes"][0][0].add_node(1)


@pytest.mark.parametrize("case", INVALID)
def test_invalid_graphs_are_refused(case):
    X, message = INVALID[case]
    with pytest.raises(ValueError) as caught:
        read_graphs(X)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "X", [nx.path_graph(3), Data(edge_index=EDGE), "MUTAG", 3, None, {0: 1}, ONES]
)
def test_one_graph_is_not_a_sequence_of_graphs(X):
    kind = type(X).__name__
    with pytest.raises(TypeError, match=f"Got X of type {kind}, but expected a sequence of graphs"):
        read_graphs(X)


@pytest.mark.parametrize("graph", [3, "abc", None, HeteroData()])
def test_other_types_in_the_sequence_are_refused(graph):
    with pytest.raises(TypeError, match=r"Got X\[1\] of type .*, but expected a torch_geometric"):
        read_graphs([nx.path_graph(2), graph])


@pytest.mark.parametrize("label", [[1, 0], np.zeros(2), {}, float("nan")])
def test_invalid_node_labels_are_refused(label):
    graph = nx.path_graph(2)
    nx.set_node_attributes(graph, label, "label")
    for node in graph:
        graph.nodes[node]["label"] = label
    with pytest.raises(ValueError, match=r"Got X\[0\] with the node label .* but expected a name"):
        read_graphs([graph])


@pytest.mark.parametrize("about", ["ab", 7])
def test_invalid_features_are_refused(about):
    for first in (ONES, [(0, 1), (1, 0)]):
        with pytest.raises(TypeError, match=r"Got X\[0\] with nodes' features of type"):
            read_graphs([(first, about)])
