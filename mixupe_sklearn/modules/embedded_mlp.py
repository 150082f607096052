"""An MLP with learned embeddings of numbers and of one-hot encoded categories."""

from collections.abc import Sequence
from importlib import import_module
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mixupe_sklearn.modules._layers import Staged, is_count
from mixupe_sklearn.modules.mlp import MLP

EMBEDDINGS = ("periodic", "piecewise-linear", None)


def quantile_bins(X: Any, n_bins: int = 16) -> tuple[tuple[float, ...], ...]:
    """Bin edges for piecewise-linear embeddings: quantiles of the centred columns.

    The columns are centred because the estimators subtract the mean from a module's inputs.

    Parameters
    ----------
    X : array of shape (n_samples, n_numbers)
        Finite training samples, only the numeric columns.
    n_bins : int, default=16
        Maximum number of bins of a column. Equal quantiles count once. Each column has at least
        two bins.

    Returns
    -------
    bins : tuple of tuples of float
        The sorted edges of each column.

    Examples
    --------
    >>> from mixupe_sklearn.modules import quantile_bins
    >>> quantile_bins([[0.0, 7.0], [2.0, 7.0], [10.0, 7.0]], n_bins=2)
    ((-4.0, -2.0, 6.0), (-1.0, 0.0, 1.0))
    """
    X = np.asarray(X, dtype=np.float64)
    quantiles = np.quantile(
        X - X.mean(axis=0), np.linspace(0, 1, n_bins + 1), axis=0, method="nearest"
    )
    return tuple(_at_least_three(np.unique(column)) for column in quantiles.T)


def _at_least_three(edges: np.ndarray) -> tuple[float, ...]:
    """At least two bins: a single bin would be linear. A constant column gets bins around it."""
    if len(edges) == 1:
        edges = edges + np.array([-1.0, 0.0, 1.0])
    elif len(edges) == 2:
        edges = np.linspace(edges[0], edges[1], 3)
    return tuple(edges.tolist())


def _library() -> Any:
    try:
        return import_module("rtdl_num_embeddings")
    except ModuleNotFoundError as error:
        raise ImportError(
            "EmbeddedMLP needs rtdl_num_embeddings: pip install mixupe-sklearn[embeddings]."
        ) from error


class RowEmbedding(nn.Module):
    """The first stage of :class:`EmbeddedMLP`: embedded numbers and levels, concatenated.

    Parameters
    ----------
    numbers : torch.nn.Module or None
        Embeds the first columns, to shape (n_samples, n_numbers, d_embedding). None keeps them.
    levels : torch.nn.Module or None
        Embeds the other columns. None keeps them.
    n_numbers : int
        Number of numeric columns.

    Examples
    --------
    >>> import torch
    >>> levels = torch.nn.Linear(3, 2, bias=False)
    >>> RowEmbedding(None, levels, n_numbers=1)(torch.zeros(5, 4)).shape
    torch.Size([5, 3])
    """

    def __init__(self, numbers: nn.Module | None, levels: nn.Module | None, n_numbers: int):
        super().__init__()
        self.numbers = numbers
        self.levels = levels
        self.n_numbers = n_numbers

    def forward(self, X: Tensor) -> Tensor:
        """Return the flattened embeddings."""
        numbers, levels = X[:, : self.n_numbers], X[:, self.n_numbers :]
        numbers = numbers if self.numbers is None else self.numbers(numbers).flatten(1)
        levels = levels if self.levels is None else self.levels(levels)
        return torch.cat([numbers, levels], dim=1)


class EmbeddedMLP(Staged):
    """An :class:`MLP` with learned embeddings of numbers and levels.

    The first ``n_numbers`` columns are numbers, each with its own embedding. The other columns are
    one-hot encoded levels. If there are more than ``d_levels`` of them, a linear layer without bias
    maps them to ``d_levels`` numbers. Its weights are a learned vector for each level, and a sample
    gets the sum of the vectors of its levels. Because the layer is linear, mixing the one-hot
    columns is the same as mixing the embeddings, and centring only adds a constant.

    Parameters
    ----------
    n_features : int
        Width of the input.
    n_outputs : int
        Width of the output (logits).
    n_numbers : int or None, default=None
        Number of numeric columns, which come first. None means all.
    embedding : {"periodic", "piecewise-linear", None}, default="periodic"
        The embedding of a number: sines and cosines of learned frequencies, then a linear layer
        that all numbers share, and ReLU; or a learned piecewise-linear function with knots at the
        edges of its bins. None keeps the numbers, and needs no library.
    d_embedding : int, default=24
        Width of the embedding of a number.
    n_frequencies : int, default=48
        Number of learned frequencies of a column.
    frequency_scale : float, default=0.01
        Standard deviation of the initial frequencies. Tune it first, from 0.01 to 1.
    bins : int or sequence of sequences of float, default=16
        Bins of the piecewise-linear embedding. An integer means quantiles of the normal
        distribution, for standardised columns. Or the edges of each column, from
        :func:`quantile_bins`.
    d_levels : int or None, default=32
        Maximum width of the embedding of all levels. None keeps the one-hot columns.
    **mlp_params : dict
        Parameters of :class:`MLP`, such as ``d_hidden``.

    Attributes
    ----------
    stages : torch.nn.ModuleList
        The embedding, then the stages of the MLP. Manifold Mixup mixes after any but the last.

    Notes
    -----
    Shapes: ``(n_samples, n_features)`` in, ``(n_samples, n_outputs)`` out.

    References
    ----------
    Gorishniy et al., "On Embeddings for Numerical Features in Tabular Deep Learning", NeurIPS
    2022; the embeddings of numbers are those of its package ``rtdl_num_embeddings``.

    Examples
    --------
    >>> import torch
    >>> from mixupe_sklearn.modules import EmbeddedMLP
    >>> module = EmbeddedMLP(n_features=1004, n_outputs=3, n_numbers=4, embedding=None)
    >>> module.stages[0](torch.zeros(5, 1004)).shape, module(torch.zeros(5, 1004)).shape
    (torch.Size([5, 36]), torch.Size([5, 3]))
    """

    def __init__(
        self,
        n_features: int,
        n_outputs: int,
        *,
        n_numbers: int | None = None,
        embedding: str | None = "periodic",
        d_embedding: int = 24,
        n_frequencies: int = 48,
        frequency_scale: float = 0.01,
        bins: int | Sequence[Sequence[float]] = 16,
        d_levels: int | None = 32,
        **mlp_params: Any,
    ):
        n_numbers = n_features if n_numbers is None else n_numbers
        _check(n_features, n_numbers, embedding, bins, d_levels)
        numbers: nn.Module | None = None
        if embedding == "periodic" and n_numbers:
            numbers = _library().PeriodicEmbeddings(
                n_numbers,
                d_embedding,
                n_frequencies=n_frequencies,
                frequency_init_scale=frequency_scale,
                lite=True,  # one linear layer for all numbers: far fewer weights
            )
        elif embedding == "piecewise-linear" and n_numbers:
            # Version B is linear at initialization.
            numbers = _library().PiecewiseLinearEmbeddings(
                _edges(bins, n_numbers), d_embedding, activation=False, version="B"
            )
        levels = _level_layer(n_features - n_numbers, d_levels)
        width = n_numbers * (1 if numbers is None else d_embedding)
        width += n_features - n_numbers if levels is None else levels.out_features
        mlp = MLP(width, n_outputs, **mlp_params)
        super().__init__([RowEmbedding(numbers, levels, n_numbers), *mlp.stages])


def _edges(bins: Any, n_numbers: int) -> list[Tensor]:
    if isinstance(bins, Integral):
        # Quantiles of 0 and 1 would be infinite.
        ranks = (torch.arange(int(bins) + 1) + 0.5) / (int(bins) + 1)
        return [torch.special.ndtri(ranks)] * n_numbers
    return [torch.as_tensor(edges, dtype=torch.get_default_dtype()) for edges in bins]


def _level_layer(n_levels: int, d_levels: int | None) -> nn.Linear | None:
    """An embedding of the levels, or None if there are few."""
    if d_levels is None or n_levels <= d_levels:
        return None
    layer = nn.Linear(n_levels, d_levels, bias=False)
    # torch would scale by the number of inputs, but a sample has one level per column.
    nn.init.uniform_(layer.weight, -(d_levels**-0.5), d_levels**-0.5)
    return layer


def _check(n_features: int, n_numbers: Any, embedding: Any, bins: Any, d_levels: Any) -> None:
    if not is_count(n_numbers, 0) or n_numbers > n_features:
        raise ValueError(
            f"Got n_numbers={n_numbers!r}, but expected an integer from 0 to {n_features}, the "
            f"number of columns, or None for all of them."
        )
    if embedding not in EMBEDDINGS:
        known = ", ".join(map(repr, EMBEDDINGS))
        raise ValueError(f"Got embedding={embedding!r}, but expected one of {known}.")
    if d_levels is not None and not is_count(d_levels, 1):
        raise ValueError(f"Got d_levels={d_levels!r}, but expected an integer >= 1 or None.")
    if embedding != "piecewise-linear":
        return
    if isinstance(bins, Integral):
        if not is_count(bins, 2):
            raise ValueError(f"Got bins={bins!r}, but expected an integer >= 2, or edges.")
    elif len(bins) != n_numbers:
        raise ValueError(
            f"Got bins of {len(bins)} columns, but expected {n_numbers}: make them with "
            f"quantile_bins from the columns that are numbers."
        )
