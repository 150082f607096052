"""MixupEGraphClassifier: mixing at the readout, the API of scikit-learn, and invalid input."""

import copy
import itertools
import pickle
import subprocess
import sys

import networkx as nx
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool
from torch_geometric.utils import from_networkx

from mixupe_sklearn import MixupEGraphClassifier, MixupELoss, MixupENet
from mixupe_sklearn.modules.gin import GIN

SMALL = {"module_params": {"d_hidden": 8, "n_layers": 2}, "n_threads": 1}


def make(**params):
    fixed = {"max_epochs": 3, "batch_size": 8, "random_state": 0}
    return MixupEGraphClassifier(**(SMALL | fixed | params))


@pytest.fixture(scope="module")
def rings():
    """Alternating rings and paths with three nodes and more."""
    X = [kind(n) for n in range(3, 27) for kind in (nx.cycle_graph, nx.path_graph)]
    return X, np.array(["ring", "path"] * 24)


def labelled(X):
    X = copy.deepcopy(X)
    for graph in X:
        nx.set_node_attributes(graph, {node: "ab"[node % 2] for node in graph}, "label")
    return X


def weights(model):
    return [value.clone() for value in model.net_.module_.state_dict().values()]


def is_equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(weights(one), weights(other), strict=True))


# The method.


def test_rings_and_paths_are_learned(rings):
    X, y = rings
    model = make(max_epochs=40, module_params=None).fit(X[:32], y[:32])
    assert model.score(X[32:], y[32:]) > 0.9
    assert model.classes_.tolist() == ["path", "ring"]


def test_eta_zero_is_mixup_and_alpha_zero_is_erm_to_the_bit(rings):
    fits = {
        name: make(**params).fit(*rings)
        for name, params in {
            "mixup": {"method": "mixup"},
            "eta zero": {"eta": 0.0},
            "erm": {"method": "erm"},
            "alpha zero": {"method": "mixup", "alpha": 0.0},
            "mixupe": {"eta": 1.0},
        }.items()
    }
    assert is_equal(fits["mixup"], fits["eta zero"])
    assert is_equal(fits["erm"], fits["alpha zero"])
    for one, other in itertools.combinations(["mixup", "erm", "mixupe"], 2):
        assert not is_equal(fits[one], fits[other])


@pytest.mark.parametrize("method", ["mixupe", "mixup", "erm", "erm+penalty"])
@pytest.mark.parametrize("penalty", ["logit", "directional"])
def test_a_step_runs_the_encoder_once(rings, method, penalty, monkeypatch):
    sizes = []
    encode = GIN.encode
    monkeypatch.setattr(
        GIN, "encode", lambda self, data: sizes.append(len(data)) or encode(self, data)
    )
    model = make(method=method, penalty=penalty, max_epochs=1).fit(*rings)
    n_tried = 4  # to see how wide the output is, whether the parts fit, and how much work it is
    in_training = [size for size in sizes if size == 8]
    assert len(in_training) == 6
    assert len(sizes) <= 6 + n_tried
    assert model.n_iter_ == 1


@pytest.mark.usefixtures("double")
def test_the_loss_of_a_step_equals_the_formula_at_the_readout(rings):
    X, y = rings
    model = make(eta=0.7, alpha=0.5, max_epochs=1).fit(X, y)
    graphs, _ = model._read(X[:6], "X", is_new=False, labelled=False)
    batch = model.inputs_.ready(graphs)[:]
    module = model.net_.module_.double().train()
    module.head[2].p = 0.0
    batch.x = batch.x.double()
    target = torch.tensor([1, 0] * 3)
    criterion = MixupELoss(alpha=0.5, eta=0.7, mix_at="hidden", random_state=3)
    draw = criterion.draw(6, 2)
    parts = criterion(module, batch, target, draw=draw)
    vectors = module.encode(batch)
    one_hot = torch.eye(2)[target]
    mixed = draw.lam * vectors + (1 - draw.lam) * vectors[draw.partner]
    soft = draw.lam * one_hot + (1 - draw.lam) * one_hot[draw.partner]
    mixup_loss = -(soft * module.head(mixed).log_softmax(dim=1)).sum(dim=1).mean()
    logits = module.head(vectors)
    q = ((one_hot - logits.softmax(dim=1)) * logits).sum(dim=1)
    penalty = (1 - 1.5 / 2.0) * q.abs().mean()
    torch.testing.assert_close(parts.mixup_loss, mixup_loss.detach())
    torch.testing.assert_close(parts.penalty_term, penalty.detach())
    total = mixup_loss + 0.7 * penalty
    torch.testing.assert_close(parts.loss, total * (mixup_loss / total).detach())


@pytest.mark.parametrize(
    "params",
    [
        {"penalty": "directional"},
        {"penalty_fraction": 0.3},
        {"lam_per": "sample"},
        {"single_pass": False},
        {"beta": 2.0},
        {"optimizer": "sgd", "lr": 0.001},
        {"optimizer": torch.optim.RMSprop},
        {"optimizer_params": {"fused": False}},
        {"class_weight": "balanced"},
        {"without_features": "ones"},
        {"lr_schedule": "onecycle", "weight_decay": 0.01},
    ],
    ids=str,
)
def test_every_setting_trains(rings, params):
    model = make(**params).fit(*rings)
    proba = model.predict_proba(rings[0])
    assert proba.shape == (48, 2)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    assert np.isfinite(model.loss_curve_).all()


def test_the_optimizer_is_fused_by_default(rings):
    groups = [make(**p).fit(*rings).net_.optimizer_.param_groups[0] for p in (
        {}, {"optimizer_params": {"fused": False}}, {"optimizer": "rmsprop"}
    )]  # fmt: skip
    assert [group.get("fused") for group in groups] == [True, False, None]
    own = make(optimizer_params={"foreach": True}).fit(*rings).net_.optimizer_.param_groups[0]
    assert own["foreach"]
    assert not own["fused"]


# The API of scikit-learn. Its checks without data are in test_adapter_checks.


def test_cross_validation_and_grid_search(rings):
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    scores = cross_val_score(make(max_epochs=25), *rings, cv=folds)
    assert scores.shape == (3,)
    assert scores.mean() > 0.7
    grid = {"alpha": [0.1, 1.0], "module_params": [{"d_hidden": 4}, {"d_hidden": 8}]}
    search = GridSearchCV(make(max_epochs=1), grid, cv=2, error_score="raise").fit(*rings)
    assert len(search.cv_results_["params"]) == 4
    assert search.predict(rings[0][:3]).shape == (3,)


def test_the_seed_determines_the_network(rings):
    one = make().fit(*rings)
    assert is_equal(one, make().fit(*rings))
    assert is_equal(one, clone(one).fit(*rings))
    assert not is_equal(one, make(random_state=1).fit(*rings))


def test_global_generators_are_left_as_found(rings):
    states = torch.get_rng_state(), np.random.get_state()[1].copy()
    make().fit(*rings).predict(rings[0])
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (np.random.get_state()[1] == states[1]).all()


def test_a_pickled_model_predicts_the_same(rings):
    model = make().fit(*rings)
    copied = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copied.predict_proba(rings[0]), model.predict_proba(rings[0]))


def test_predictions_do_not_depend_on_the_order_and_batch(rings):
    X, y = rings
    model = make().fit(X, y)
    order = np.random.default_rng(0).permutation(48)
    proba = model.predict_proba(X)
    moved = model.predict_proba([X[number] for number in order])
    np.testing.assert_allclose(moved, proba[order], atol=1e-5)
    np.testing.assert_allclose(model.predict_proba(X[7:8]), proba[7:8], atol=1e-5)
    turned = nx.relabel_nodes(X[6], {node: (5 * node) % 6 for node in X[6]})
    assert len(X[6]) == 6
    np.testing.assert_allclose(model.predict_proba([turned]), proba[6:7], atol=1e-5)


def test_weight_zero_removes_a_graph_and_equal_weights_change_nothing(rings):
    X, y = rings
    plain = make().fit(X, y)
    assert is_equal(plain, make().fit(X, y, sample_weight=np.full(48, 2.5)))
    weight = np.array([1.0] * 40 + [0.0] * 8)
    mixed = [*X[:40], *(nx.star_graph(30) for _ in range(8))]  # with unique degrees
    part = make().fit(X[:40], y[:40])
    weighted = make().fit(mixed, y, sample_weight=weight)
    assert weighted.inputs_ == part.inputs_
    assert is_equal(part, weighted)
    unequal = make().fit(X, y, sample_weight=np.linspace(0.1, 2, 48))
    assert not is_equal(plain, unequal)


def test_early_stopping_keeps_the_best_epoch(rings):
    X, y = rings
    params = {"early_stopping": True, "n_iter_no_change": 3, "max_epochs": 60, "lr": 0.02}
    model = make(validation_fraction=0.25, **params).fit(X, y)
    assert model.n_iter_ < 60
    assert "valid_loss" in model.history_[-1]
    given = make(**params).fit(X[:36], y[:36], X_val=X[36:], y_val=y[36:])
    losses = [row["valid_loss"] for row in given.history_]
    logits = given.predict_log_proba(X[36:])
    place = np.searchsorted(given.classes_, y[36:])
    measured = -logits[np.arange(12), place].mean()
    np.testing.assert_allclose(measured, min(losses), rtol=1e-4)


def test_warm_start_and_partial_fit(rings):
    X, y = rings
    model = make(warm_start=True, max_epochs=2).fit(X, y)
    assert model.fit(X, y).n_iter_ == 2
    assert len(model.history_) == 4
    with pytest.raises(ValueError, match="Got a new value of without_features, but expected that"):
        model.set_params(without_features="ones").fit(X, y)
    partial = make()
    partial.partial_fit(X[:20], y[:20], classes=["path", "ring"])
    assert partial.partial_fit(X[20:], y[20:]).n_iter_ == 2


def test_labels_come_with_graphs_of_pytorch_geometric(rings):
    X, y = rings
    data = [from_networkx(graph) for graph in X]
    for one, label in zip(data, y, strict=True):
        one.y = torch.tensor(int(label == "ring"))
    model = make().fit(data)
    assert model.classes_.tolist() == [0, 1]
    assert model.score(data) == model.score(data, y == "ring")
    with pytest.raises(ValueError, match="Got y=None and an X without labels, but expected labels"):
        make().fit(X)


def test_fit_and_predict_may_have_different_formats(rings):
    X, y = rings
    model = make().fit(X, y)
    pairs = [(nx.to_scipy_sparse_array(graph), None) for graph in X]
    edges = [[(a, b) for a, b in graph.to_directed().edges] for graph in X]
    for other in (pairs, edges, [from_networkx(graph) for graph in X]):
        np.testing.assert_allclose(model.predict_proba(other), model.predict_proba(X), atol=1e-6)


def test_multi_label_graphs(rings):
    X, y = rings
    both = np.stack([y == "ring", [len(graph) > 12 for graph in X]], axis=1).astype(int)
    model = make().fit(X, both)
    assert model.predict(X).shape == (48, 2)


class OwnGCN(torch.nn.Module):
    """A user's network with the argument names of PyTorch Geometric."""

    def __init__(self, in_channels, out_channels, d_hidden=8):
        super().__init__()
        self.conv = GCNConv(in_channels, d_hidden)
        self.head = torch.nn.Linear(d_hidden, out_channels)

    def encode(self, data):
        return global_mean_pool(self.conv(data.x, data.edge_index).relu(), data.batch)

    def forward(self, data):
        return self.head(self.encode(data))


def test_a_module_of_the_user_is_trained(rings):
    model = make(module=OwnGCN, module_params={"d_hidden": 4}).fit(*rings)
    assert type(model.net_.module_) is OwnGCN
    assert model.predict(rings[0]).shape == (48,)


class Pairs(torch.utils.data.Dataset):
    """Graphs with their classes."""

    def __init__(self, *pair):
        self.pair = pair

    def __len__(self):
        return len(self.pair[0])

    def __getitem__(self, number):
        return tuple(one[number] for one in self.pair)


def test_the_net_alone_trains_on_a_loader_of_pytorch_geometric(rings):
    X, y = rings
    data = [Data(x=torch.ones(len(g), 1), edge_index=from_networkx(g).edge_index) for g in X]
    net = MixupENet(
        GIN, module__n_features=1, module__n_outputs=2, module__d_hidden=8,
        criterion__mix_at="hidden", optimizer=torch.optim.Adam, lr=0.01, max_epochs=2, verbose=0,
        iterator_train=DataLoader, iterator_valid=DataLoader, train_split=None, batch_size=8,
    )  # fmt: skip
    pairs = Pairs(data, (y == "ring").astype(int).tolist())
    net.fit(pairs, y=None)
    assert net.predict_proba(pairs).shape == (48, 2)


# Invalid input.


def test_unknown_node_labels_are_refused_by_predict(rings):
    X, y = labelled(rings[0]), rings[1]
    model = make().fit(X, y)
    assert model.inputs_.known == ("a", "b")
    unknown = copy.deepcopy(X[:2])
    unknown[1].nodes[0]["label"] = "zinc"
    with pytest.raises(
        ValueError, match="Got X with the node label 'zinc', but expected one of tho"
    ):
        model.predict(unknown)
    with pytest.raises(
        ValueError, match="Got X_val with the node label 'zinc', but expected one o"
    ):
        make().fit(X, y, X_val=unknown, y_val=y[:2])
    with pytest.raises(ValueError, match="Got X without node labels, but expected some, as in fit"):
        model.predict(rings[0])
    with pytest.raises(ValueError, match="Got X with node labels, but expected none, as in fit"):
        make().fit(*rings).predict(X)


def test_unknown_node_labels_may_be_ignored(rings):
    X, y = labelled(rings[0]), rings[1]
    X[0].nodes[0]["label"] = "once"
    scores = cross_val_score(make(unknown_labels="ignore"), X, y, cv=4, error_score="raise")
    assert np.isfinite(scores).all()


def test_labels_of_held_out_graphs_are_known(rings):
    X, y = labelled(rings[0]), rings[1]
    X[0].nodes[0]["label"] = "once"
    for seed in range(3):
        model = make(early_stopping=True, validation_fraction=0.4, random_state=seed)
        assert "once" in model.fit(X, y).inputs_.known


def test_features_of_another_width_at_predict_are_refused(rings):
    X, y = rings
    model = make().fit([(nx.to_scipy_sparse_array(g), np.ones((len(g), 3))) for g in X], y)
    for width, graphs in ((2, [(np.eye(2), np.ones((2, 2)))]), (0, X[:1])):
        with pytest.raises(
            ValueError, match=f"Got X with {width} features per node, but expected 3"
        ):
            model.predict(graphs)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"alpha": -1}, "Got alpha=-1, but expected a number >= 0"),
        ({"alpha": (0.1, 0.2)}, "Got alpha="),
        ({"without_features": "zeros"}, "Got without_features='zeros', but expected"),
        ({"node_label": 3}, "Got node_label=3, but expected the name"),
        ({"module": "gat"}, "Got module='gat', but expected"),
        ({"module_params": {"width": 3}}, "Got module_params with 'width', but expected arguments"),
        ({"module": torch.nn.Linear, "module_params": {"in_features": 1, "out_features": 2}},
         "Got a Linear without 'encode', but expected a module with 'encode'"),
        ({"unknown_labels": "drop"}, "Got unknown_labels='drop', but expected"),
        ({"optimizer_params": [1]}, "Got optimizer_params=[1], but expected a dict or None"),
        ({"batch_size": 1}, "Got batches of one sample"),
    ],
)  # fmt: skip
def test_invalid_parameters_are_refused(rings, params, message):
    with pytest.raises(ValueError) as caught:
        make(**params).fit(*rings)
    assert str(caught.value).startswith(message)


class Unpooled(OwnGCN):
    def encode(self, data):
        return self.conv(data.x, data.edge_index)


def test_a_module_that_does_not_pool_is_refused(rings):
    with pytest.raises(ValueError, match="Got a Unpooled with 6 rows of logits for 2 graphs"):
        make(module=Unpooled, module_params=None).fit(*rings)


class Crooked(OwnGCN):
    def forward(self, data):
        return self.head(self.encode(data)) + 1


def test_a_module_whose_stages_differ_from_forward_is_refused(rings):
    with pytest.raises(ValueError, match="Got a Crooked whose 'stages', or 'encode' and 'head'"):
        make(module=Crooked, module_params=None).fit(*rings)


def test_other_invalid_input(rings):
    X, y = rings
    with pytest.raises(ValueError, match="Got X with no graphs, but expected at least one"):
        make().fit([], [])
    with pytest.raises(ValueError, match="inconsistent numbers of samples: .48, 3."):
        make().fit(X, y[:3])
    with pytest.raises(NotFittedError):
        make().predict(X)
    model = make().fit(X, y)
    before = weights(model)
    with pytest.raises(ValueError, match=r"Got X\[0\] without nodes"):
        model.fit([nx.Graph()], ["ring"])
    assert all(torch.equal(a, b) for a, b in zip(before, weights(model), strict=True))


def test_a_fit_warns_once_about_directed_graphs(rings):
    X, y = rings
    edges = [list(graph.edges) for graph in X]
    with pytest.warns(UserWarning, match="edges are directed") as record:
        make().fit(edges, y)
    assert len(record) == 1


# Memory.

PROGRAM = """
import resource, sys, warnings
warnings.simplefilter("ignore")
import networkx as nx
import torch
from mixupe_sklearn import MixupEGraphClassifier

torch.set_num_threads(1)
sizes = eval(sys.argv[1])
X = [nx.random_regular_graph(4, n, seed=0) if n > 10 else nx.path_graph(n) for n in sizes]
if "labels" in sys.argv:
    for graph in X:
        nx.set_node_attributes(graph, {node: node for node in graph}, "label")
y = [number % 2 for number in range(len(X))]
model = MixupEGraphClassifier(max_epochs=2, batch_size=len(X), random_state=0)
MixupEGraphClassifier(max_epochs=1, batch_size=2, random_state=0).fit([nx.path_graph(2)] * 2, [0, 1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model.fit(X, y).predict(X)
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
n_edges = sum(2 * graph.number_of_edges() for graph in X)
print(grown * 1024, sum(sizes), n_edges, model.inputs_.n_features)
"""


@pytest.mark.parametrize(
    "arguments",
    [["[1, 2, 5_000, 10, 100, 1_000, 3, 5_000]"], ["[1, 1_500, 1_500]", "labels"]],
    ids=["1 to 5,000 nodes", "1,500 labels"],
)
def test_a_fit_stays_within_the_stated_memory(arguments):
    command = [sys.executable, "-c", PROGRAM, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    grown, n_nodes, n_edges, width = map(int, result.stdout.split())
    # What docs/graphs.md states. A dense adjacency of 5,000 nodes alone would take 100 MB.
    assert grown < (15_000 + 24 * width) * n_nodes + 200 * n_edges + 50e6
