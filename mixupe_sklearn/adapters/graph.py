"""MixupEGraphClassifier: MixupE for graphs, which are mixed after the encoder."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from mixupe_sklearn._data.rows import Rows, Tensors
from mixupe_sklearn._graphs.batching import GraphRows, Graphs
from mixupe_sklearn._graphs.node_features import REPLACEMENTS, UNKNOWN, learn_inputs
from mixupe_sklearn._graphs.read import read_graphs
from mixupe_sklearn._net.net import MixupENet, float_type
from mixupe_sklearn._utils.parameter_rules import Choice, Kind, Rule, check_rules
from mixupe_sklearn.adapters._base import AdapterClassifier
from mixupe_sklearn.modules.gin import GIN

# Number of nodes and edges in a batch of predictions. A larger graph has its own batch.
AT_ONCE = 2**16
MODULES = {"gin": GIN}
# Optimizers with a fused implementation. Steps are short here: the update of many small weights
# would take a third of one.
FUSED = ("adam", "adamw", "sgd")
RULES: dict[str, Rule] = {
    "without_features": Choice(REPLACEMENTS),
    "unknown_labels": Choice(UNKNOWN),
    "node_label": Kind("the name of a node attribute", (str,)),
    "node_features": Kind("the name of a node attribute", (str,)),
}


class MixupEGraphClassifier(AdapterClassifier):
    """Neural network classifier for graphs, trained with MixupE.

    ``X`` is a sequence of graphs. Each graph is a ``torch_geometric.data.Data``; a networkx graph;
    a pair ``(adjacency, features)``, where the adjacency is a scipy sparse matrix or an array; a
    list of edges; or a pair ``(edges, node_labels)`` as in grakel. An encoder maps each graph to a
    vector. Mixing and penalty act on these vectors, as in the paper, and share one pass through
    the encoder.

    Nodes may have features (numbers), which are used unchanged, or labels (names or integers, one
    per node), which are one-hot encoded. See ``without_features`` for nodes that have neither.
    Weights and attributes of edges are ignored.

    Parameters
    ----------
    method : {"mixupe", "mixup", "erm", "erm+penalty"}, default="mixupe"
        The training method: the paper's MixupE, plain Mixup, no mixing, or the penalty alone.
    penalty : {"logit", "directional"}, default="logit"
        The paper's fast penalty from the logits, or its exact form, the derivative of the loss
        along the direction from a graph's vector to the mean of its batch.
    penalty_order : {1, 2}, default=1
        2 adds the second-order directional term, exact; experimental, and slower. See
        :class:`MixupELoss`.
    alpha : float, default=0.2
        Parameter of the Beta distribution that mixing weights are drawn from, *not* an L2 penalty
        (that is ``weight_decay``). 0 means no mixing; larger values mix more.
    beta : float or None, default=None
        Second parameter of the Beta distribution; None means ``alpha``.
    eta : float, default=0.01
        Weight of the penalty; 0 is plain Mixup, exactly.
    penalty_fraction : float, default=1.0
        Fraction of each batch, drawn at random, that the penalty is computed on. It saves little
        time here, because only the head runs twice.
    lam_per : {"batch", "sample"}, default="batch"
        One mixing weight for each batch (the paper) or for each graph.
    single_pass : bool, default=True
        Whether mixed and clean vectors share one pass through the head. It only matters for a head
        with BatchNorm, which :class:`GIN <mixupe_sklearn.modules.GIN>` does not have.
    module : str, class or callable, default="gin"
        The network: ``"gin"``, or a torch module class, or a function that returns a new module,
        with ``encode``, which takes a ``torch_geometric.data.Batch`` and gives a vector for each
        graph, and ``head``, which gives its logits. Arguments named ``n_features`` or
        ``in_channels``, ``n_outputs``, ``out_channels`` or ``num_classes`` are set automatically.
    module_params : dict or None, default=None
        Further arguments of the module, for instance ``{"d_hidden": 32, "readout": "mean"}``; see
        :class:`GIN <mixupe_sklearn.modules.GIN>`.
    without_features : {"degree", "ones"}, default="degree"
        Input for nodes without features and labels: the one-hot encoded in-degree (an unknown
        degree is encoded as the nearest known one), or a constant 1.
    unknown_labels : {"error", "ignore"}, default="error"
        How ``predict`` treats a node label that no training graph had: raise an error, or encode
        it as zeros.
    node_label : str, default="label"
        Node attribute of networkx graphs that holds the label.
    node_features : str, default="x"
        Node attribute of networkx graphs that holds the features.
    optimizer : {"adam", "adamw", "nadam", "rmsprop", "sgd"} or class, default="adam"
        The optimizer, by name or as a torch class.
    optimizer_params : dict or None, default=None
        Further arguments of the optimizer, for instance ``{"momentum": 0.9}``.
    lr : float, default=0.01
        Learning rate.
    lr_schedule : {"constant", "cosine", "onecycle"}, default="cosine"
        The learning-rate schedule over the steps of ``fit``. Callbacks provide others.
    weight_decay : float, default=0.0
        L2 penalty of the optimizer.
    max_epochs : int, default=100
        Number of passes over the graphs.
    batch_size : int, default=32
        Graphs per step.
    class_weight : dict, list of dicts, "balanced" or None, default=None
        Weight of each class, multiplied with ``sample_weight``.
    early_stopping : bool, default=False
        Whether training stops when the validation loss no longer decreases, and keeps the weights
        of the best epoch. It is computed on ``X_val``, else on held-out graphs.
    validation_fraction : float, default=0.1
        The held-out fraction, if ``early_stopping`` and no ``X_val`` is given.
    n_iter_no_change : int, default=20
        Epochs without an improvement of at least ``tol`` before training stops early.
    tol : float, default=1e-4
        Smallest decrease of the validation loss that counts as an improvement.
    warm_start : bool, default=False
        Whether ``fit`` continues from the weights of the last fit.
    callbacks : list of skorch callbacks or None, default=None
        Added to the net, for instance a learning-rate schedule.
    device : {"auto", "cpu", "cuda", "mps"}, default="auto"
        Where to train. ``"auto"`` uses a CUDA device if there is one.
    n_threads : int or None, default=None
        Threads of torch during training. None chooses by the work of a batch, within the limit that
        the user or joblib has set.
    random_state : int, RandomState instance or None, default=None
        Seed of initial weights, order, mixing and dropout.
    verbose : int, default=0
        1 shows a progress bar, 2 prints a line for each epoch.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    net_ : MixupENet
        The skorch net; ``net_.module_`` is the trained torch module.
    inputs_ : NodeInputs
        The encoding of nodes: ``kind`` (``"label"``, ``"degree"``, ``"ones"`` or None for features
        only), the ``known`` labels or degrees, and ``n_features``, the number of inputs.
    history_ : list of dict
        The record of each epoch, including ``train_loss``, ``train_mixup_loss``,
        ``train_penalty``, ``loss_scale``, ``dur`` (seconds), and ``valid_loss`` if there are
        validation graphs.
    loss_curve_ : list of float
        Training loss of each epoch.
    n_iter_ : int
        Number of epochs run.

    See Also
    --------
    MixupEClassifier : MixupE for tables.
    MixupENet : The skorch net, for other irregular inputs.

    References
    ----------
    Zou et al., "MixupE: Understanding and Improving Mixup from Directional Derivative
    Perspective", UAI 2023.
    Xu et al., "How Powerful are Graph Neural Networks?", ICLR 2019.

    Examples
    --------
    >>> import networkx as nx
    >>> from mixupe_sklearn import MixupEGraphClassifier
    >>> X = [make(n) for n in range(4, 24) for make in (nx.cycle_graph, nx.path_graph)]
    >>> y = ["cycle", "path"] * 20
    >>> classifier = MixupEGraphClassifier(max_epochs=40, batch_size=8, random_state=0)
    >>> bool(classifier.fit(X[:30], y[:30]).score(X[30:], y[30:]) > 0.8)
    True
    """

    _net_class = MixupENet
    _modules = MODULES
    # Graphs cannot be mixed, but their vectors can.
    mix_at = "hidden"
    compile = False
    _fixed_names = (
        *AdapterClassifier._fixed_names,
        *("without_features", "node_label", "node_features"),
    )
    _with_labels = "graphs of PyTorch Geometric with an attribute y"
    _rows_at_once = 32

    def __init__(
        self,
        *,
        method="mixupe",
        penalty="logit",
        penalty_order=1,
        alpha=0.2,
        beta=None,
        eta=0.01,
        penalty_fraction=1.0,
        lam_per="batch",
        single_pass=True,
        module="gin",
        module_params=None,
        without_features="degree",
        unknown_labels="error",
        node_label="label",
        node_features="x",
        optimizer="adam",
        optimizer_params=None,
        lr=0.01,
        lr_schedule="cosine",
        weight_decay=0.0,
        max_epochs=100,
        batch_size=32,
        class_weight=None,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=20,
        tol=1e-4,
        warm_start=False,
        callbacks=None,
        device="auto",
        n_threads=None,
        random_state=None,
        verbose=0,
    ):
        self.method = method
        self.penalty = penalty
        self.penalty_order = penalty_order
        self.alpha = alpha
        self.beta = beta
        self.eta = eta
        self.penalty_fraction = penalty_fraction
        self.lam_per = lam_per
        self.single_pass = single_pass
        self.module = module
        self.module_params = module_params
        self.without_features = without_features
        self.unknown_labels = unknown_labels
        self.node_label = node_label
        self.node_features = node_features
        self.optimizer = optimizer
        self.optimizer_params = optimizer_params
        self.lr = lr
        self.lr_schedule = lr_schedule
        self.weight_decay = weight_decay
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.class_weight = class_weight
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.warm_start = warm_start
        self.callbacks = callbacks
        self.device = device
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def _settings(self) -> Mapping[str, Any]:
        settings = super()._settings()
        given = {} if self.optimizer_params is None else self.optimizer_params
        is_free = isinstance(given, Mapping) and not set(given) & {"foreach", "differentiable"}
        if self.optimizer not in FUSED or not is_free:
            return settings
        return {**settings, "optimizer_params": {"fused": True, **given}}

    def _read(self, X: Any, name: str, *, is_new: bool, labelled: bool) -> tuple[Any, Any]:
        check_rules(vars(self), RULES)
        names = {"node_label": self.node_label, "node_features": self.node_features}
        return read_graphs(X, name, **names)

    def _validate_rows(self, X: Graphs, *, reset, name="X"):
        """Return the graphs: the encoding of nodes checks them."""
        return X

    def _select(self, X: Graphs, is_wanted: np.ndarray) -> Graphs:
        return X.part(np.flatnonzero(is_wanted))

    def _learn_inputs(self, train: Rows) -> None:
        # From all graphs, including held-out ones, whose labels are therefore known.
        self.inputs_ = learn_inputs(train.X, self.without_features)

    def _widths(self) -> dict[str, Any]:
        n_features, n_outputs = self.inputs_.n_features, self._n_outputs()
        ours = {"n_features": n_features, "n_outputs": n_outputs}
        # Argument names of PyTorch Geometric.
        theirs = {"in_channels": n_features, "out_channels": n_outputs, "num_classes": n_outputs}
        return {**ours, **theirs}

    def _try_out(self, net: Any, train: Rows) -> int:
        """Run a new module on two graphs: its output width, and an estimate of its work."""
        module = net.module_
        for name in ("encode", "head"):
            if not callable(getattr(module, name, None)):
                raise ValueError(
                    f"Got a {type(module).__name__} without {name!r}, but expected a module with "
                    f"'encode' (graphs to vectors) and 'head' (vectors to logits): graphs are "
                    f"mixed between the two."
                )
        few = train.X.part(np.arange(min(2, len(train.X))))
        batch = self.inputs_.ready(few, float_type(net))[:].to(net.device)
        logits, work = self._run_once(module, batch)
        if len(logits) != len(few):
            raise ValueError(
                f"Got a {type(module).__name__} with {len(logits)} rows of logits for {len(few)} "
                f"graphs, but expected one per graph: let 'encode' pool over the nodes of a graph."
            )
        # Work is per node, which dominates.
        net._work = round(work * float(train.X.n_nodes.mean()))
        return int(logits.shape[1])

    def _tensors(self, net: Any, rows: Rows) -> Tensors:
        return self._ready(net, rows.X), *self._targets(net, rows)

    def _in_batches(self, data: Graphs) -> Iterator[Any]:
        return self._ready(self.net_, data).chunks(AT_ONCE)

    def _ready(self, net: Any, graphs: Graphs) -> GraphRows:
        return self.inputs_.ready(graphs, float_type(net), self.unknown_labels)
