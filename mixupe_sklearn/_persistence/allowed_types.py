"""The closed list of types and functions that a saved model may name.

A file names a type; it never says where its code lies. The names here stay as they are when code
moves, since files keep them for years.
"""

import functools
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

import numpy as np

# By the module that has them now. Types are made without a call, from their attributes; those of
# the last lines are called, with arguments from the file that are numbers, text and arrays.
_OURS = {
    "mixupe_sklearn": (
        *("MixupEClassifier", "MixupERegressor", "MixupEImageClassifier", "MixupESearchCV"),
        *("MixupESpeechClassifier", "MixupEGraphClassifier", "Spectrogram"),
    ),
    "mixupe_sklearn.preprocessing": (
        *("ClippingScaler", "ColumnsToNumbers", "MixupEPipeline", "PiecewiseLinearEncoder"),
        *("QuantileScaler", "TablePreprocessor"),
        *("read_columns", "select_columns"),
    ),
    "mixupe_sklearn._estimators.targets": ("Labels",),
    "mixupe_sklearn._runtime.seeding": ("Streams",),
    "mixupe_sklearn._graphs.node_features": ("NodeInputs",),
    "mixupe_sklearn.callbacks": ("PolyakAverage", "WarmupCosine"),
    "mixupe_sklearn.diagnostics": ("DerivativeMonitor",),
    "mixupe_sklearn._images.augment": ("flip", "pad_crop", "resized_crop"),
    "mixupe_sklearn.modules": (
        *("MLP", "EmbeddedMLP", "LeNet", "VGG", "PreActResNet", "WideResNet", "ResNet", "ViT"),
        *("CoAtNet", "GIN"),
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
        *("Normalizer", "OneHotEncoder", "OrdinalEncoder", "PolynomialFeatures"),
        *("PowerTransformer", "QuantileTransformer", "RobustScaler", "StandardScaler"),
    ),
}
_OPTIMIZERS = (
    *("ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop"),
    *("Rprop", "SGD"),
)
_BUILTINS = ("bool", "float", "int", "object", "str")
_DISTRIBUTIONS = ("CategoricalDistribution", "FloatDistribution", "IntDistribution")
# Where each known name is to be found.
KNOWN: dict[str, tuple[str, str]] = {
    **{f"mixupe.{name}": (module, name) for module, names in _OURS.items() for name in names},
    **{
        f"sklearn.{name}": (f"sklearn.{module}", name)
        for module, names in _SKLEARN.items()
        for name in names
    },
    **{f"torch.optim.{name}": ("torch.optim", name) for name in _OPTIMIZERS},
    **{
        f"builtins.{name}": ("builtins", name) for name in ("bool", "float", "int", "object", "str")
    },
    **{f"optuna.{name}": ("optuna.distributions", name) for name in _DISTRIBUTIONS},
}
# Parameters that are places on the machine where a model was saved. They are left behind: a file
# from a stranger is not to say where ours reads and writes.
PLACES = {
    "mixupe.MixupESearchCV": ("storage",),
    "mixupe.MixupESpeechClassifier": ("cache",),
    "mixupe.Spectrogram": ("cache",),
    "sklearn.Pipeline": ("memory",),
}

# What pickles of our estimators are made of beside themselves, in the words of skops.
_SKOPS = {
    "builtins": ("print",),
    "functools": ("partial",),
    "mixupe_sklearn._data.batches": ("Batches",),
    "mixupe_sklearn._method.criterion": ("MixupELoss",),
    "mixupe_sklearn._graphs.node_features": ("NodeInputs",),
    "mixupe_sklearn._net.net": (
        *("EpochHook", "MixupENet", "MixupENetRegressor", "QuietLog", "SteadyTimer", "Stopper"),
    ),
    "mixupe_sklearn.adapters._input_transform": ("Prepare",),
    "numpy": ("dtype",),
    "skorch.callbacks.logging": ("EpochTimer",),
    "skorch.callbacks.scoring": ("EpochScoring", "PassthroughScoring"),
    "skorch.dataset": ("Dataset",),
    "skorch.history": ("History",),
    "skorch.setter": ("optimizer_setter",),
    "skorch.utils": ("_indexing_none", "_indexing_other", "noop", "to_numpy"),
}


class UnknownNameError(ValueError):
    """A file names what is neither known nor trusted."""


def is_known(name: str) -> bool:
    """Whether this comes with the package, or from a library that it vouches for."""
    return name in KNOWN or is_ufunc(name)


def is_ufunc(name: str) -> bool:
    """Whether a name is that of one of numpy's elementwise functions, such as ``numpy.log1p``."""
    short = name.removeprefix("numpy.")
    return short != name and isinstance(vars(np).get(short), np.ufunc)


def name_of(thing: Any) -> str:
    """The name of a type or function in a file.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.pipeline import Pipeline
    >>> name_of(Pipeline), name_of(np.log1p), name_of(dict.fromkeys)
    ('sklearn.Pipeline', 'numpy.log1p', 'dict.fromkeys')
    """
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
    # By module first, so that asking does not import what an extra brings.
    package = KNOWN[name][0].split(".")[0]
    return (thing.__module__ or "").startswith(package) and _find_known(name) is thing


@functools.cache
def _find_known(name: str) -> Any:
    module, attribute = KNOWN[name]
    return getattr(import_module(module), attribute)


def make_finder(trusted: Iterable[Any]) -> Callable[[str], Any]:
    """Return what finds a type or function by the name in a file.

    Parameters
    ----------
    trusted : iterable of types and functions
        Those that a file may name besides the known ones.

    Examples
    --------
    >>> find = make_finder([dict])
    >>> find("builtins.dict"), find("mixupe.MLP").__name__
    (<class 'dict'>, 'MLP')
    >>> try:
    ...     find("os.system")
    ... except UnknownNameError as error:
    ...     print(str(error).partition(': ')[2])
    if you know it and its code is yours, give it to load(..., trusted=[system])
    """
    by_name: dict[str, Any] = {}
    for thing in trusted:
        by_name[name_of(thing)] = thing
        # A class of a script has another module where it is imported.
        by_name.setdefault(name_of(thing).rpartition(".")[2], thing)

    def find(name: str) -> Any:
        if not isinstance(name, str):
            raise ValueError(f"has {name!r} where the name of a type is due")
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
    """Names of the types that our estimators are made of, for ``skops.io.load(trusted=...)``.

    They hold for tables, pictures, speech and graphs, and for the preprocessing; not for searches,
    nor for callbacks that keep tensors.

    Returns
    -------
    names : list of str
        Types of this package, of skorch and of torch's optimizers; nothing that runs code of its
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
            except ImportError:  # an extra that is not installed: no model of it can be here
                continue
            found.append(f"{kind.__module__}.{kind.__qualname__}")
    return sorted(found)
