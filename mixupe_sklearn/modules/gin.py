"""GIN: the graph isomorphism network. The paper mixes its graph vectors."""

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from mixupe_sklearn.modules._layers import check_counts

try:
    with warnings.catch_warnings():  # it scripts modules, which torch deprecates
        warnings.simplefilter("ignore", DeprecationWarning)
        from torch_geometric.nn import GINConv
except ModuleNotFoundError as error:
    if (error.name or "").split(".")[0] != "torch_geometric":
        raise
    raise ImportError("GIN needs torch_geometric: pip install mixupe-sklearn[graph].") from error

# Devices on which torch supports products with sparse matrices.
SPARSE_DEVICES = ("cpu", "cuda")


class _Sparse:
    """A sparse matrix in CSR format."""

    def __init__(self, start: Tensor, column: Tensor, value: Tensor, n_columns: int):
        self.start, self.column, self.value = start, column, value
        # Built once for all layers, because it takes as long as a product.
        self.matrix = None
        if value.device.type in SPARSE_DEVICES:
            size = (len(start) - 1, n_columns)
            self.matrix = torch.sparse_csr_tensor(
                start, column, value, size, check_invariants=False
            )

    def times(self, X: Tensor) -> Tensor:
        if self.matrix is not None:
            return self.matrix @ X
        row = torch.repeat_interleave(self.start.diff())
        terms = self.value[:, None] * X[self.column]
        return X.new_zeros(len(self.start) - 1, X.shape[1]).index_add_(0, row, terms)


with warnings.catch_warnings():  # torch warns once per process that CSR is in beta
    warnings.simplefilter("ignore", UserWarning)
    _Sparse(torch.tensor([0, 1]), torch.tensor([0]), torch.ones(1), 1)


# Sums over neighbours, or over the nodes of a graph: a matrix and its transpose.
_Sums = tuple[_Sparse, _Sparse]


class _Product(torch.autograd.Function):
    """A sparse product with a stored transpose. torch would transpose in each backward pass."""

    @staticmethod
    def forward(ctx: Any, X: Tensor, matrix: _Sparse, transpose: _Sparse) -> Tensor:
        ctx.other = transpose, matrix
        return matrix.times(X)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _Product.apply(gradient, *ctx.other), None, None


def _by_rows(row: Tensor, column: Tensor, n_nodes: int, dtype: torch.dtype) -> _Sparse:
    if bool((row[1:] < row[:-1]).any()):
        row, order = row.sort(stable=True)
        column = column[order]
    start = nn.functional.pad(torch.bincount(row, minlength=n_nodes).cumsum(0), (1, 0))
    return _Sparse(start, column, torch.ones(len(row), dtype=dtype, device=row.device), n_nodes)


def _neighbours(edge_index: Tensor, X: Tensor, is_symmetric: bool) -> _Sums:
    """The sum over the sources of the edges to each node."""
    source, target = edge_index
    incoming = _by_rows(target, source, len(X), X.dtype)
    if is_symmetric:
        return incoming, incoming
    return incoming, _by_rows(source, target, len(X), X.dtype)


def _members(data: Any, X: Tensor, readout: str) -> _Sums:
    """The sum, or the mean, over the nodes of each graph."""
    owner = getattr(data, "batch", None)
    owner = torch.zeros(len(X), dtype=torch.long, device=X.device) if owner is None else owner
    start = getattr(data, "ptr", None)
    if start is None:
        if bool((owner[1:] < owner[:-1]).any()):
            raise ValueError("Got an unsorted batch, but GIN expected the nodes graph by graph.")
        start = nn.functional.pad(torch.bincount(owner).cumsum(0), (1, 0))
    weight = torch.ones(len(X), dtype=X.dtype, device=X.device)
    if readout == "mean":
        weight = weight / start.diff()[owner]
    every = torch.arange(len(X) + 1, device=X.device)
    forward = _Sparse(start, every[:-1], weight, len(X))
    return forward, _Sparse(every, owner, weight, len(start) - 1)


class _Layer(GINConv):
    """The layer of PyTorch Geometric, with sums over neighbours that are built once per batch."""

    def forward(self, X: Tensor, neighbours: _Sums) -> Tensor:
        return self.nn((1 + self.eps) * X + _Product.apply(X, *neighbours))


def _mlp(d_in: int, d_out: int) -> nn.Sequential:
    layers = [nn.Linear(d_in, d_out), nn.BatchNorm1d(d_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(d_out, d_out), nn.BatchNorm1d(d_out), nn.ReLU())


class GIN(nn.Module):
    """Graph isomorphism network: layers that sum over neighbours, with a readout of each layer.

    A layer maps the vector ``x`` of a node to ``MLP((1 + eps) x + sum of neighbours)``. The inputs
    and the outputs of each layer are summed over the nodes and concatenated. This vector of the
    graph is normalised over the batch, and a dense head computes the logits from it. Mixup acts
    on the output of ``encode``, which is the input of ``head``.

    Parameters
    ----------
    n_features : int
        Number of features of a node.
    n_outputs : int
        Width of the output (logits).
    d_hidden : int, default=64
        Width of the layers and of the head.
    n_layers : int, default=5
        Number of layers.
    train_eps : bool, default=True
        Whether ``eps`` is learned, one for each layer.
    eps : float, default=0.0
        Its value, or its initial value if it is learned.
    readout : {"sum", "mean"}, default="sum"
        Pooling over the nodes of a graph. Means do not depend on the size of the graph.
    norm : bool, default=True
        Whether the vectors of graphs are normalised over the batch by BatchNorm without weights.
        Sums over nodes have any scale, and the penalty of MixupE is derived for a mean of zero.
    dropout : float, default=0.5
        Fraction of the hidden units of the head dropped in training.

    Attributes
    ----------
    layers : torch.nn.ModuleList
        The layers, each a ``torch_geometric.nn.GINConv``.
    head : torch.nn.Sequential
        Maps vectors of graphs to logits.

    Notes
    -----
    The input is a ``torch_geometric.data.Batch`` (or ``Data``, a single graph): ``x`` of shape
    ``(n_nodes, n_features)``, ``edge_index`` of shape ``(2, n_edges)``, from source to target, and
    ``batch``, the graph of each node, in order. Logits have the shape ``(n_graphs, n_outputs)``. An
    attribute ``symmetric=True`` declares that each edge has a reverse edge, and saves time.

    References
    ----------
    Xu et al., "How Powerful are Graph Neural Networks?", ICLR 2019, equations 4.1 and 4.2.

    Examples
    --------
    >>> import torch
    >>> from torch_geometric.data import Batch, Data
    >>> from mixupe_sklearn.modules.gin import GIN
    >>> edge = torch.tensor([[0, 1], [1, 0]])
    >>> graphs = [Data(x=torch.ones(n, 3), edge_index=edge) for n in (2, 4)]
    >>> module = GIN(n_features=3, n_outputs=2, d_hidden=8)
    >>> module(Batch.from_data_list(graphs)).shape
    torch.Size([2, 2])
    """

    def __init__(
        self,
        n_features: int,
        n_outputs: int,
        *,
        d_hidden: int = 64,
        n_layers: int = 5,
        train_eps: bool = True,
        eps: float = 0.0,
        readout: str = "sum",
        norm: bool = True,
        dropout: float = 0.5,
    ):
        super().__init__()
        check_counts(
            n_features=n_features, n_outputs=n_outputs, d_hidden=d_hidden, n_layers=n_layers
        )
        if readout not in ("sum", "mean"):
            raise ValueError(f"Got readout={readout!r}, but expected 'sum' or 'mean'.")
        self.n_features = n_features
        self.readout = readout
        widths = [n_features] + [d_hidden] * n_layers
        self.layers = nn.ModuleList(
            _Layer(_mlp(d_in, d_hidden), eps=eps, train_eps=train_eps) for d_in in widths[:-1]
        )
        self.norm = nn.BatchNorm1d(sum(widths), affine=False) if norm else nn.Identity()
        self.head = nn.Sequential(
            nn.Linear(sum(widths), d_hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(d_hidden, n_outputs),
        )

    def encode(self, data: Any) -> Tensor:
        """Return a vector for each graph, of shape (n_graphs, n_features + n_layers * d_hidden)."""
        X = data.x
        if not isinstance(X, Tensor) or X.ndim != 2 or X.shape[1] != self.n_features:
            shape = tuple(X.shape) if isinstance(X, Tensor) else type(X).__name__
            raise ValueError(
                f"Got x of shape {shape}, but GIN expected (n_nodes, {self.n_features})."
            )
        # At an edge to a missing node, a sparse product would read outside of its memory.
        edges = data.edge_index
        if edges.numel() and not 0 <= edges.min() <= edges.max() < len(X):
            raise ValueError(
                f"Got edge_index from {int(edges.min())} to {int(edges.max())}, but GIN expected "
                f"nodes from 0 to {len(X) - 1}."
            )
        neighbours = _neighbours(edges, X, getattr(data, "symmetric", False) is True)
        members = _members(data, X, self.readout)
        parts = [_Product.apply(X, *members)]
        for layer in self.layers:
            X = layer(X, neighbours)
            parts.append(_Product.apply(X, *members))
        return self.norm(torch.cat(parts, dim=1))

    def forward(self, data: Any) -> Tensor:
        """Return the logits of a batch of graphs."""
        return self.head(self.encode(data))
