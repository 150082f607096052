"""GIN compared with a dense computation and with the layers of PyTorch Geometric."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GINConv, global_add_pool, global_mean_pool

from mixupe_sklearn.modules import gin
from mixupe_sklearn.modules.gin import GIN

# A triangle with a tail, one directed edge, and an isolated node.
EDGES = [(0, 1), (1, 0), (1, 2), (2, 1), (0, 2), (2, 0), (2, 3)]
N_NODES = 5
EDGES_NONE = torch.zeros(2, 0, dtype=torch.long)


def graph(n_features=3, edges=EDGES, n_nodes=N_NODES, seed=0):
    X = torch.randn(n_nodes, n_features, generator=torch.Generator().manual_seed(seed))
    edges = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).T
    return Data(x=X.to(torch.get_default_dtype()), edge_index=edges)


def random_graphs(n_graphs, n_features=3, seed=0):
    rng = np.random.default_rng(seed)
    graphs = []
    for number in range(n_graphs):
        n_nodes = int(rng.integers(1, 12))
        pairs = [p for p in itertools.permutations(range(n_nodes), 2) if rng.random() < 0.3]
        graphs.append(graph(n_features, pairs, n_nodes, seed=number))
    return graphs


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(("readout", "norm"), [("sum", True), ("mean", True), ("sum", False)])
def test_the_forward_pass_equals_a_dense_computation(readout, norm):
    module = GIN(3, 2, d_hidden=4, n_layers=2, eps=0.3, readout=readout, norm=norm).eval()
    if norm:
        module.norm.running_mean.uniform_(-1, 1)
        module.norm.running_var.uniform_(0.5, 2)
    for layer in module.layers:  # running statistics that are not those of a new layer
        for place in (1, 4):
            layer.nn[place].running_mean.uniform_(-1, 1)
            layer.nn[place].running_var.uniform_(0.5, 2)
            torch.nn.init.uniform_(layer.nn[place].weight, 0.5, 2)
    one = graph()
    adjacency = torch.zeros(N_NODES, N_NODES)
    for source, target in EDGES:
        adjacency[target, source] = 1  # a node sums over those that lead to it

    def normed(layer, values):
        values = (values - layer.running_mean) / torch.sqrt(layer.running_var + layer.eps)
        return values if layer.weight is None else values * layer.weight + layer.bias

    def reduce(values):
        return values.sum(dim=0) if readout == "sum" else values.mean(dim=0)

    X = one.x
    parts = [reduce(X)]
    for layer in module.layers:
        first, norm1, _, second, norm2, _ = layer.nn
        total = 1.3 * X + adjacency @ X
        hidden = torch.relu(normed(norm1, total @ first.weight.T + first.bias))
        X = torch.relu(normed(norm2, hidden @ second.weight.T + second.bias))
        parts.append(reduce(X))
    vector = normed(module.norm, torch.cat(parts)) if norm else torch.cat(parts)
    dense, _, _, last = module.head
    logits = torch.relu(vector @ dense.weight.T + dense.bias) @ last.weight.T + last.bias
    torch.testing.assert_close(module.encode(one)[0], vector)
    torch.testing.assert_close(module(one)[0], logits)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("readout", ["sum", "mean"])
@pytest.mark.parametrize("devices", [("cpu",), ()], ids=["sparse", "without sparse products"])
def test_values_and_gradients_equal_those_of_pytorch_geometric(readout, devices, monkeypatch):
    monkeypatch.setattr(gin, "SPARSE_DEVICES", devices)
    module = GIN(3, 2, d_hidden=6, readout=readout, dropout=0.0)
    batch = Batch.from_data_list(random_graphs(20))
    pool = global_add_pool if readout == "sum" else global_mean_pool

    def theirs(X):
        parts = [pool(X, batch.batch)]
        for layer in module.layers:
            X = GINConv.forward(layer, X, batch.edge_index)
            parts.append(pool(X, batch.batch))
        return module.head(module.norm(torch.cat(parts, dim=1)))

    def gradients(logits):
        module.zero_grad()
        (logits**2).sum().backward()
        return [parameter.grad.clone() for parameter in module.parameters()]

    expected = theirs(batch.x)
    torch.testing.assert_close(module(batch), expected)
    for own, other in zip(gradients(module(batch)), gradients(expected), strict=True):
        torch.testing.assert_close(own, other)


@pytest.mark.usefixtures("double")
def test_the_gradients_of_sparse_products_equal_finite_differences():
    batch = Batch.from_data_list(random_graphs(4))
    neighbours = gin._neighbours(batch.edge_index, batch.x, is_symmetric=False)
    members = gin._members(batch, batch.x, "mean")
    X = batch.x.clone().requires_grad_()
    for sums in (neighbours, members):
        assert torch.autograd.gradcheck(gin._Product.apply, (X, *sums))
        assert torch.autograd.gradgradcheck(gin._Product.apply, (X, *sums))


@pytest.mark.usefixtures("double")
def test_isomorphic_graphs_give_equal_outputs():
    module = GIN(3, 2, d_hidden=8).eval()
    one = graph()
    order = torch.tensor([3, 0, 4, 2, 1])
    place = order.argsort()
    other = Data(x=one.x[order], edge_index=place[one.edge_index])
    shuffled = torch.randperm(len(EDGES))
    other.edge_index = other.edge_index[:, shuffled]
    torch.testing.assert_close(module(one), module(other))
    unlike = Data(x=one.x, edge_index=one.edge_index[:, :-1])
    assert not torch.allclose(module(one), module(unlike))


@pytest.mark.usefixtures("double")
def test_the_order_of_graphs_in_a_batch_does_not_matter():
    module, graphs = GIN(3, 2, d_hidden=8).eval(), random_graphs(12)
    order = torch.randperm(12)
    logits = module(Batch.from_data_list(graphs))
    moved = module(Batch.from_data_list([graphs[number] for number in order]))
    torch.testing.assert_close(moved, logits[order])
    alone = torch.cat([module(one) for one in graphs])
    torch.testing.assert_close(alone, logits)


def test_the_symmetric_flag_does_not_change_the_output():
    module = GIN(3, 2, d_hidden=8, dropout=0.0)
    both = [(a, b) for a, b in EDGES[:-1]]
    batch = Batch.from_data_list([graph(edges=both), graph(edges=both, seed=1)])
    results = []
    for is_symmetric in (False, True):
        batch.symmetric = is_symmetric
        module.zero_grad()
        logits = module(batch)
        logits.sum().backward()
        results.append([logits, *(one.grad.clone() for one in module.parameters())])
    for plain, flagged in zip(*results, strict=True):
        torch.testing.assert_close(plain, flagged)


def test_vectors_of_graphs_have_mean_zero_and_deviation_one_over_the_batch():
    batch = Batch.from_data_list(random_graphs(30))
    vectors = GIN(3, 2, d_hidden=8).encode(batch)
    torch.testing.assert_close(vectors.mean(dim=0), torch.zeros(43), atol=1e-4, rtol=0)
    assert (vectors.std(dim=0, correction=0) < 1.001).all()
    plain = GIN(3, 2, d_hidden=8, norm=False).encode(batch)
    assert plain.mean(dim=0).abs().max() > 1
    assert not list(GIN(3, 2).norm.parameters())


def test_epsilon_is_learned_or_fixed():
    learned = GIN(3, 2, d_hidden=4, n_layers=3, eps=0.1)
    names = dict(learned.named_parameters())
    assert sum(name.endswith(".eps") for name in names) == 3
    fixed = GIN(3, 2, d_hidden=4, n_layers=3, eps=0.1, train_eps=False)
    assert not any(name.endswith(".eps") for name, _ in fixed.named_parameters())
    fixed.load_state_dict(learned.state_dict())
    batch = Batch.from_data_list(random_graphs(5))
    torch.testing.assert_close(fixed.eval()(batch), learned.eval()(batch))
    learned(batch).sum().backward()
    assert names["layers.0.eps"].grad.abs() > 0


def test_graphs_of_one_node_and_without_edges_are_allowed():
    batch = Batch.from_data_list([graph(edges=[], n_nodes=1), graph(edges=[], n_nodes=3)])
    assert GIN(3, 2)(batch).shape == (2, 2)


def test_defaults_are_five_layers_of_two_with_norms_and_a_dense_head():
    module = GIN(7, 2)
    assert len(module.layers) == 5
    kinds = [type(part).__name__ for part in module.layers[0].nn]
    assert kinds == ["Linear", "BatchNorm1d", "ReLU"] * 2
    assert module.head[0].in_features == 7 + 5 * 64
    assert [type(part).__name__ for part in module.head] == ["Linear", "ReLU", "Dropout", "Linear"]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_features": 0}, "Got n_features=0, but expected an integer >= 1."),
        ({"n_layers": 0}, "Got n_layers=0, but expected an integer >= 1."),
        ({"readout": "max"}, "Got readout='max', but expected 'sum' or 'mean'."),
    ],
)
def test_invalid_parameters_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        GIN(**({"n_features": 3, "n_outputs": 2} | params))


def test_features_of_another_width_are_refused():
    with pytest.raises(ValueError, match=r"Got x of shape \(5, 3\), but GIN expected \(n_nodes, 4"):
        GIN(4, 2)(graph())
    with pytest.raises(ValueError, match="Got x of shape NoneType, but GIN expected"):
        GIN(4, 2)(Data(edge_index=graph().edge_index, num_nodes=5))


@pytest.mark.parametrize("edge", [(9, 0), (0, 9), (0, -1), (10**9, 0)])
def test_an_edge_to_a_missing_node_is_refused(edge):
    data = Data(x=torch.ones(4, 3), edge_index=torch.tensor([edge]).T)
    with pytest.raises(
        ValueError, match="Got edge_index from .* but GIN expected nodes from 0 to 3"
    ):
        GIN(3, 2).eval()(data)


def test_a_batch_out_of_order_is_refused():
    data = Data(x=torch.ones(4, 3), edge_index=EDGES_NONE, batch=torch.tensor([0, 1, 0, 1]))
    with pytest.raises(ValueError, match="Got an unsorted batch, but GIN expected the nodes graph"):
        GIN(3, 2).eval()(data)


NEED_THE_EXTRA = """
import sys
sys.modules["torch_geometric"] = None
for line in (
    "from mixupe_sklearn.modules.gin import GIN",
    "from mixupe_sklearn.modules import GIN",
    "from mixupe_sklearn import MixupEGraphClassifier",
):
    try:
        exec(line)
    except ImportError as error:
        print(error)
"""


def test_a_missing_extra_is_reported():
    command = [sys.executable, "-c", NEED_THE_EXTRA]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    message = "GIN needs torch_geometric: pip install mixupe-sklearn[graph]."
    assert result.stdout.splitlines() == [message] * 3
