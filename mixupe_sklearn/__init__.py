"""MixupE for scikit-learn: neural networks for tables that train with enhanced Mixup."""

from mixupe_sklearn._classifier import MixupEClassifier
from mixupe_sklearn._criterion import LossParts, MixupELoss
from mixupe_sklearn._mixing import Draw
from mixupe_sklearn._net import MixupENet, MixupENetRegressor
from mixupe_sklearn._regressor import MixupERegressor
from mixupe_sklearn.preprocessing import make_mixupe_pipeline, make_preprocessor

__version__ = "0.1.0.dev0"

__all__ = [
    "Draw",
    "LossParts",
    "MixupEClassifier",
    "MixupELoss",
    "MixupENet",
    "MixupENetRegressor",
    "MixupERegressor",
    "make_mixupe_pipeline",
    "make_preprocessor",
]
