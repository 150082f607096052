"""Callbacks for any skorch net: a moving average of its weights, and warm-up with a cosine."""

from mixupe_sklearn._net.warmup_cosine import WarmupCosine, warmup_cosine
from mixupe_sklearn._net.weight_average import PolyakAverage

__all__ = ["PolyakAverage", "WarmupCosine", "warmup_cosine"]
