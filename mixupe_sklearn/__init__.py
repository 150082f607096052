"""MixupE for scikit-learn: neural networks that train with enhanced Mixup."""

from importlib import import_module
from typing import Any

import mixupe_sklearn._utils.skorch_import  # noqa: F401  # before the first import of skorch
from mixupe_sklearn._estimators.classifier import MixupEClassifier
from mixupe_sklearn._estimators.regressor import MixupERegressor
from mixupe_sklearn._method.criterion import LossParts, MixupELoss
from mixupe_sklearn._method.formulas import Draw
from mixupe_sklearn._net.net import MixupENet, MixupENetRegressor
from mixupe_sklearn._training.config import preset

__version__ = "0.1.0.dev0"

__all__ = [
    "Draw",
    "LossParts",
    "MixupEClassifier",
    "MixupEGraphClassifier",
    "MixupEImageClassifier",
    "MixupELoss",
    "MixupENet",
    "MixupENetRegressor",
    "MixupERegressor",
    "MixupESearchCV",
    "MixupESpeechClassifier",
    "Spectrogram",
    "fit_many",
    "load",
    "make_mixupe_pipeline",
    "make_preprocessor",
    "onnx_inputs",
    "plot_search",
    "preset",
    "save",
    "saved_info",
    "to_onnx",
    "to_torch",
]
# Names that are imported on first use: their module, and the extra that they need.
_LAZY = {
    "fit_many": ("mixupe_sklearn._estimators.fit_many", None),
    "load": ("mixupe_sklearn.persistence", None),
    "make_mixupe_pipeline": ("mixupe_sklearn.preprocessing", None),
    "make_preprocessor": ("mixupe_sklearn.preprocessing", None),
    "MixupEGraphClassifier": ("mixupe_sklearn.adapters.graph", "graph"),
    "MixupEImageClassifier": ("mixupe_sklearn.adapters.image", None),
    "MixupESearchCV": ("mixupe_sklearn.search", "search"),
    "MixupESpeechClassifier": ("mixupe_sklearn.adapters.speech", None),
    "Spectrogram": ("mixupe_sklearn._audio.spectrogram", None),
    "onnx_inputs": ("mixupe_sklearn.serving", None),
    "plot_search": ("mixupe_sklearn.search", "search"),
    "save": ("mixupe_sklearn.persistence", None),
    "saved_info": ("mixupe_sklearn.persistence", None),
    "to_onnx": ("mixupe_sklearn.serving", "onnx"),
    "to_torch": ("mixupe_sklearn.serving", None),
}


def __getattr__(name: str) -> Any:
    """Import a name on first use."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, extra = _LAZY[name]
    try:
        value = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        library = (error.name or "").split(".")[0]
        if library == "mixupe_sklearn" or extra is None:
            raise
        raise ImportError(
            f"{name} needs {library}: pip install mixupe-sklearn[{extra}]."
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
