"""The closed list of types and functions that a saved model may name.

A file holds the name of a type, never the place of its code. The names here do not change when code
moves, since files keep them for years.
"""

import functools
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

import numpy as np

# By the module that defines them now. Types are created from their attributes, without a call. The
# modules in the last lines are called, with numbers, text and arrays of the file as arguments.
_OURS = {
    "mixupe_sklearn": (
        *("MixupEClassifier", "MixupERegressor", "MixupEImageClassifier", "MixupESearchCV"),
        *("MixupESpeechClassifier", "MixupEGraphClassifier", "Spectrogram"),
    ),
    "mixupe_sklearn.preprocessing": (
        *("ClippingScaler", "ColumnsToNumbers", "DateParts", "MixupEPipeline"),
        *("PiecewiseLinearEncoder", "QuantileScaler", "TablePreprocessor"),
        *("read_columns", "select_columns", "select_many_levels", "select_missing"),
    ),
    "mixupe_sklearn._estimators.inputs": ("Labels",),
    "mixupe_sklearn._runtime.torch_state": ("Streams",),
    "mixupe_sklearn._graphs.node_features": ("NodeInputs",),
    "mixupe_sklearn.callbacks": ("PolyakAverage", "WarmupCosine"),
    "mixupe_sklearn.diagnostics": ("DerivativeMonitor",),
    "mixupe_sklearn._images.augment": ("flip", "pad_crop", "resized_crop"),
    "mixupe_sklearn.modules": (
        *("MLP", "LeNet", "VGG", "PreActResNet", "WideResNet", "ResNet", "ViT", "CoAtNet", "GIN"),
    ),
}
_SKLEARN = {
    "compose": ("ColumnTransformer", "TransformedTargetRegressor"),
    "decomposition": ("PCA", "TruncatedSVD"),
    "feature_selection": ("VarianceThreshold",),
    "impute": ("MissingIndicator", "SimpleImputer"),
    "model_selection": (
        *("GroupKFold", "KFold", "ShuffleSplit", "StratifiedGroupKFold", "StratifiedKFold"),
        "StratifiedShuffleSplit",
    ),
    "pipeline": ("FeatureUnion", "Pipeline"),
    "preprocessing": (
        *("Binarizer", "FunctionTransformer", "MaxAbsScaler", "MinMaxScaler"),
        *("LabelBinarizer", "LabelEncoder", "Normalizer", "OneHotEncoder", "OrdinalEncoder"),
        *("PolynomialFeatures", "PowerTransformer", "QuantileTransformer", "RobustScaler"),
        *("StandardScaler", "TargetEncoder"),
    ),
}
_OPTIMIZERS = (
    *("ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop"),
    *("Rprop", "SGD"),
)
_BUILTINS = ("bool", "float", "int", "object", "str")
_DISTRIBUTIONS = ("CategoricalDistribution", "FloatDistribution", "IntDistribution")
# The module and attribute of each known name.
KNOWN: dict[str, tuple[str, str]] = {
    **{f"mixupe.{name}": (module, name) for module, names in _OURS.items() for name in names},
    **{
        f"sklearn.{name}": (f"sklearn.{module}", name)
        for module, names in _SKLEARN.items()
        for name in names
    },
    **{f"torch.optim.{name}": ("torch.optim", name) for name in _OPTIMIZERS},
    **{f"builtins.{name}": ("builtins", name) for name in _BUILTINS},
    **{f"optuna.{name}": ("optuna.distributions", name) for name in _DISTRIBUTIONS},
}
# Parameters that are paths on the machine where a model was saved. Files do not hold them: a file
# from a stranger must not decide where this machine reads and writes.
PLACES = {
    "mixupe.MixupESearchCV": ("storage",),
    "mixupe.MixupESpeechClassifier": ("cache",),
    "mixupe.Spectrogram": ("cache",),
    "sklearn.Pipeline": ("memory",),
}

# Other types in pickles of our estimators, as skops names them.
_SKOPS = {
    "builtins": ("print",),
    "functools": ("partial",),
    "mixupe_sklearn._data.batches": ("Batches",),
    "mixupe_sklearn._method.criterion": ("MixupELoss",),
    "mixupe_sklearn._graphs.node_features": ("NodeInputs",),
    "mixupe_sklearn._net.callbacks": ("QuietLog", "SteadyTimer"),
    "mixupe_sklearn._net.net": ("MixupENet", "MixupENetRegressor"),
    "mixupe_sklearn.adapters._input_transform": ("Prepare",),
    "numpy": ("dtype",),
    "sklearn.model_selection._split": ("KFold",),  # of the target encoder
    "skorch.callbacks.logging": ("EpochTimer",),
    "skorch.callbacks.scoring": ("EpochScoring", "PassthroughScoring"),
    "skorch.dataset": ("Dataset",),
    "skorch.history": ("History",),
    "skorch.setter": ("optimizer_setter",),
    "skorch.utils": ("_indexing_none", "_indexing_other", "noop", "to_numpy"),
}


class UnknownNameError(ValueError):
    """A file names a type that is neither known nor trusted."""


def is_known(name: str) -> bool:
    """Whether a name belongs to this package or to a library that it relies on."""
    return name in KNOWN or is_ufunc(name)


def is_ufunc(name: str) -> bool:
    """Whether a name is an elementwise function of numpy, such as ``numpy.log1p``."""
    short = name.removeprefix("numpy.")
    return short != name and isinstance(vars(np).get(short), np.ufunc)


def name_of(thing: Any) -> str:
    """The name of a type or function in a file."""
    if isinstance(thing, np.ufunc):
        return f"numpy.{thing.__name__}"
    short = getattr(thing, "__qualname__", type(thing).__qualname__)
    for package in ("mixupe", "sklearn", "torch.optim", "optuna", "builtins"):
        name = f"{package}.{short}"
        if name in KNOWN and _is_loaded_as(thing, name):
            return name
    module = getattr(thing, "__module__", None)
    return f"{module}.{short}" if module else short


def _is_loaded_as(thing: Any, name: str) -> bool:
    # Compare modules first, so that the check does not import an optional library.
    package = KNOWN[name][0].split(".")[0]
    return (thing.__module__ or "").startswith(package) and _find_known(name) is thing


@functools.cache
def _find_known(name: str) -> Any:
    module, attribute = KNOWN[name]
    return getattr(import_module(module), attribute)


def make_finder(trusted: Iterable[Any]) -> Callable[[str], Any]:
    """Return a function that finds a known or trusted type or function by its name in a file."""
    by_name: dict[str, Any] = {}
    for thing in trusted:
        by_name[name_of(thing)] = thing
        # A class of a script has a different module name when it is imported.
        by_name.setdefault(name_of(thing).rpartition(".")[2], thing)

    def find(name: str) -> Any:
        if not isinstance(name, str):
            raise ValueError(f"has {name!r} in place of the name of a type")
        if name in KNOWN:
            return _find_known(name)
        if is_ufunc(name):
            return getattr(np, name.removeprefix("numpy."))
        short = name.rpartition(".")[2]
        if name in by_name or short in by_name:
            return by_name.get(name, by_name.get(short))
        hint = short if short.isidentifier() else "..."
        raise UnknownNameError(
            f"names {name!r}, a type or function that does not come with mixupe-sklearn: if you "
            f"know it and its code is yours, give it to load(..., trusted=[{hint}])"
        )

    return find


def skops_types() -> list[str]:
    """Names of the types in our estimators, for ``skops.io.load(trusted=...)``.

    They cover estimators of tables, images, speech and graphs, and the preprocessing. They do not
    cover searches and callbacks that hold tensors.

    Returns
    -------
    names : list of str
        Types of this package, of skorch and of torch's optimizers. None of them runs code of its
        own when it is loaded.

    Examples
    --------
    >>> from mixupe_sklearn.persistence import skops_types
    >>> "mixupe_sklearn._estimators.classifier.MixupEClassifier" in skops_types()
    True
    """
    found = [f"{module}.{name}" for module, names in _SKOPS.items() for name in names]
    for name in KNOWN:
        if name.startswith(("mixupe.", "torch.optim.")) and name != "mixupe.MixupESearchCV":
            try:
                kind = _find_known(name)
            except ImportError:  # an optional library is missing, so no model of it can exist here
                continue
            found.append(f"{kind.__module__}.{kind.__qualname__}")
    return sorted(found)
