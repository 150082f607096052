"""Torch modules, one file per family; they know nothing of the rest of the package."""

from mixupe_sklearn.modules.embedded_mlp import EmbeddedMLP, quantile_bins
from mixupe_sklearn.modules.mlp import MLP

__all__ = ["MLP", "EmbeddedMLP", "quantile_bins"]
