"""Torch modules, one file per family; they know nothing of the rest of the package."""

from mixupe_sklearn.modules.mlp import MLP

__all__ = ["MLP"]
