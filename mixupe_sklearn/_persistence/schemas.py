"""What a saved model may consist of: each class, its fitted attributes, and the rule of each.

A file holds the names of this table, which do not change when code moves. An object is built by its
constructor, with the parameters of the file. Then its fitted attributes are set, if they are in the
table and keep their rule.

A rule is a word, and for arrays the names of its sizes: ``"floats k d"`` is a matrix of floats. A
name is the same number throughout an object, and ``d`` is ``n_features_in_``. ``|`` separates
alternatives, and ``?`` marks attributes that some objects lack.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from mixupe_sklearn._preprocessing.columns import (
    select_columns,
    select_many_levels,
    select_missing,
)


class Schema(NamedTuple):
    """A class or function that a file may name: its kind, its module, and the fitted attributes."""

    kind: str
    module: str
    rules: Mapping[str, str] = {}


# Of every estimator.
_COMMON = {
    "n_features_in_": "? size d",
    "feature_names_in_": "? names d",
    "_sklearn_output_config": "? output",
}
# Of every estimator of ours; the networks are in ``networks.py``, under names without underscores.
_NETWORKS = {
    "member_weights_": "positive m",
    "history_": "table",
    "loss_curve_": "plain",
    "n_iter_": "count",
    "_split_seed": "count",
    "streams": "bits m 4 6",
    "fixed": "params",
    "nets": "nets",
}
_CLASSES = {
    "classes_": "classes c",
    "are_several": "flag",
    "_class_factors": "none | finite c | finite c 2",
}
_CENTRED = {"X_mean_": "finite d", "X_scale_": "none | positive d"}
_IMAGES = {"shape_in_": "shape", "X_mean_": "finite n", "X_std_": "finite n"}
_ENCODER = {"categories_": "all levels", "_infrequent_enabled": "flag"}
_RARE = {"_infrequent_indices": "? plain", "_default_to_infrequent_mappings": "? plain"}
_DECOMPOSITION = {
    **{"components_": "floats k d", "explained_variance_": "floats k"},
    **{"explained_variance_ratio_": "floats k", "singular_values_": "floats k"},
}
_RANGE = {"n_samples_seen_": "count | number | ints d | floats d", "scale_": "none | floats d"}
_COLUMNS = {
    **{"transformers_": "parts", "_columns": "plain", "_remainder": "plain"},
    **{"_transformer_to_input_indices": "plain", "sparse_output_": "flag"},
    "output_indices_": "plain",
}

_OURS = {
    "MixupEClassifier": _CLASSES | _CENTRED | _NETWORKS,
    "MixupERegressor": {
        **{"y_mean_": "finite o", "y_scale_": "positive o", "_y_is_flat": "flag"},
        **{"_class_factors": "none"},
        **_CENTRED,
        **_NETWORKS,
    },
    "MixupEImageClassifier": {"_known": "plain"} | _CLASSES | _IMAGES | _NETWORKS,
    "MixupESpeechClassifier": {"_rate": "count"} | _CLASSES | _IMAGES | _NETWORKS,
    "MixupEGraphClassifier": {"inputs": "plain"} | _CLASSES | _NETWORKS,
    "MixupESearchCV": {
        **{"best_estimator_": "? estimator", "best_index_": "? count", "best_params_": "? plain"},
        **{"best_score_": "? number", "cv_results_": "plain", "multimetric_": "flag"},
        **{"n_splits_": "count", "not_vectorized_because_": "none | text", "seeds_": "plain"},
        **{"refit_time_": "? number", "study": "? study"},
    },
    "Spectrogram": {},
}
_OUR_STEPS = {
    "ClippingScaler": {"center_": "floats d", "scale_": "floats d"},
    "ColumnsToNumbers": _COLUMNS,
    "DateParts": {},
    "MixupEPipeline": {},
    "PiecewiseLinearEncoder": {"source_": "index r d", "low_": "floats r", "high_": "floats r"},
    "QuantileScaler": {"transformer_": "estimator"},
    "TablePreprocessor": {"transformer_": "estimator"},
}
_SKLEARN: dict[str, dict[str, dict[str, str]]] = {
    "compose": {
        "ColumnTransformer": _COLUMNS,
        "TransformedTargetRegressor": {
            **{"_training_dim": "count", "transformer_": "estimator", "regressor_": "estimator"},
        },
    },
    "decomposition": {
        "PCA": {
            **_DECOMPOSITION,
            **{"mean_": "floats d", "n_components_": "count", "n_samples_": "count"},
            **{"noise_variance_": "number", "_fit_svd_solver": "text"},
        },
        "TruncatedSVD": _DECOMPOSITION,
    },
    "feature_selection": {"VarianceThreshold": {"variances_": "floats d"}},
    "impute": {
        "MissingIndicator": {
            **{"features_": "index k d", "_n_features": "size d", "_precomputed": "flag"},
        },
        "SimpleImputer": {
            **{"statistics_": "floats d | objects d", "indicator_": "none | estimator"},
            **{"_fit_dtype": "dtype", "_fill_dtype": "? dtype"},
        },
    },
    "pipeline": {"FeatureUnion": {}, "Pipeline": {}},
    "preprocessing": {
        "Binarizer": {},
        "FunctionTransformer": {},
        "LabelBinarizer": {"classes_": "classes c", "y_type_": "text", "sparse_input_": "flag"},
        "LabelEncoder": {"classes_": "classes c"},
        "MaxAbsScaler": _RANGE | {"max_abs_": "floats d"},
        "MinMaxScaler": {
            **_RANGE,
            **{"min_": "floats d", "data_min_": "floats d", "data_max_": "floats d"},
            **{"data_range_": "floats d"},
        },
        "Normalizer": {},
        "OneHotEncoder": {
            **_ENCODER,
            **_RARE,
            **{"_drop_idx_after_grouping": "none | objects d", "drop_idx_": "none | objects d"},
            **{"_n_features_outs": "plain"},
        },
        "OrdinalEncoder": _ENCODER | _RARE | {"_missing_indices": "plain"},
        "PolynomialFeatures": {
            **{"n_output_features_": "count", "_n_out_full": "count"},
            **{"_min_degree": "count", "_max_degree": "count"},
        },
        "PowerTransformer": {"lambdas_": "floats d", "_scaler": "? estimator"},
        "QuantileTransformer": {
            **{"n_quantiles_": "size q", "references_": "rising q", "quantiles_": "rising q d"},
        },
        "RobustScaler": {"center_": "none | floats d", "scale_": "none | floats d"},
        "StandardScaler": _RANGE | {"mean_": "none | floats d", "var_": "none | floats d"},
        "TargetEncoder": {
            **_ENCODER,
            **{"target_type_": "text", "classes_": "none | classes c", "encodings_": "plain"},
            **{"target_mean_": "number | floats c"},
        },
    },
}
_SPLITTERS = (
    *("GroupKFold", "KFold", "ShuffleSplit", "StratifiedGroupKFold", "StratifiedKFold"),
    "StratifiedShuffleSplit",
)
_OPTIMIZERS = (
    *("ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop"),
    *("Rprop", "SGD"),
)
_MODULES = ("MLP", "LeNet", "VGG", "PreActResNet", "WideResNet", "ResNet", "ViT", "CoAtNet", "GIN")
_CALLBACKS = {
    "mixupe_sklearn.callbacks": {
        "PolyakAverage": {"average_": "weights", "raw_": "weights"},
        "WarmupCosine": {
            **{"step_": "count", "n_steps_": "none | count", "n_warmup_": "? count"},
            **{"peaks_": "plain", "rates_": "plain"},
        },
    },
    "mixupe_sklearn.diagnostics": {"DerivativeMonitor": {"rows_": "? none"}},
}
SCHEMAS: dict[str, Schema] = {
    **{f"mixupe.{n}": Schema("estimator", "mixupe_sklearn", r | _COMMON) for n, r in _OURS.items()},
    **{
        f"mixupe.{name}": Schema("estimator", "mixupe_sklearn.preprocessing", _COMMON | rules)
        for name, rules in _OUR_STEPS.items()
    },
    **{
        f"sklearn.{name}": Schema("estimator", f"sklearn.{module}", _COMMON | rules)
        for module, classes in _SKLEARN.items()
        for name, rules in classes.items()
    },
    **{f"sklearn.{n}": Schema("splitter", "sklearn.model_selection") for n in _SPLITTERS},
    **{f"torch.optim.{name}": Schema("optimizer", "torch.optim") for name in _OPTIMIZERS},
    **{f"mixupe.{name}": Schema("module", "mixupe_sklearn.modules") for name in _MODULES},
    **{
        f"mixupe.{name}": Schema("callback", module, rules)
        for module, classes in _CALLBACKS.items()
        for name, rules in classes.items()
    },
    "mixupe.read_columns": Schema("function", "mixupe_sklearn.preprocessing"),
    **{
        f"mixupe.{name}": Schema("function", "mixupe_sklearn._images.augment")
        for name in ("flip", "pad_crop", "resized_crop")
    },
    **{
        f"optuna.{name}Distribution": Schema("distribution", "optuna.distributions")
        for name in ("Categorical", "Float", "Int")
    },
}
# Parameters that hold more than plain values: the kinds of things in them.
HOLDS: dict[str, tuple[str, ...]] = {
    **{"module": ("module",), "optimizer": ("optimizer",), "callbacks": ("callback",)},
    **dict.fromkeys(("augment", "func", "inverse_func", "feature_names_out"), ("function",)),
    **dict.fromkeys(("steps", "transformer_list", "regressor", "transformer"), ("estimator",)),
    **dict.fromkeys(("estimator", "scaling", "remainder"), ("estimator",)),
    **{"transformers": ("estimator", "selector"), "cv": ("splitter",), "space": ("distribution",)},
    **dict.fromkeys(("scoring", "sampler", "pruner", "refit"), ("trusted",)),
}
# Parameters that are paths on the machine where a model was saved. Files do not hold them: a file
# from a stranger must not decide where this machine reads and writes.
PLACES = ("storage", "cache", "memory")
# Functions that choose the columns of a part of the preprocessor, and their numbers.
SELECTORS: dict[str, Callable] = {
    function.__name__: function for function in (select_columns, select_many_levels, select_missing)
}
_COLUMN_KINDS = ("numbers", "dates", "durations", "times", "categories")
_LARGEST = 2**31


class UnknownNameError(ValueError):
    """A file names a type that is neither known nor trusted."""


class Finder:
    """Finds known and trusted classes and functions by their names in a file."""

    def __init__(self, trusted: Iterable[Any] = ()):
        self._by_name: dict[str, Any] = {}
        for thing in trusted:
            self._by_name[name_of(thing)] = thing
            # A class of a script has a different module name when it is imported.
            self._by_name.setdefault(name_of(thing).rpartition(".")[2], thing)
        self.trusted = list(self._by_name.values())

    def __call__(self, name: Any, kinds: Iterable[str]) -> Any:
        """The thing of a name, if one of these kinds may be here."""
        if not isinstance(name, str):
            raise ValueError(f"has {name!r} in place of a name")
        if is_ufunc(name) and "function" in kinds:
            return getattr(np, name.removeprefix("numpy."))
        if name in SCHEMAS and SCHEMAS[name].kind in kinds:
            return known(name)
        if name in SCHEMAS or is_ufunc(name):
            raise ValueError(f"has {name!r} where it may not be")
        short = name.rpartition(".")[2]
        found = self._by_name.get(name, self._by_name.get(short))
        if found is not None:
            return found
        hint = short if short.isidentifier() else "..."
        raise UnknownNameError(
            f"names {name!r}, a type or function that does not come with mixupe-sklearn: if you "
            f"know it and its code is yours, give it to load(..., trusted=[{hint}])"
        )


@functools.cache
def known(name: str) -> Any:
    """The class or function of a name in the table."""
    return getattr(import_module(SCHEMAS[name].module), name.rpartition(".")[2])


def is_ufunc(name: str) -> bool:
    """Whether a name is an elementwise function of numpy, such as ``numpy.log1p``."""
    short = name.removeprefix("numpy.")
    return short != name and isinstance(vars(np).get(short), np.ufunc)


def name_of(thing: Any) -> str:
    """The name of a class or function in a file."""
    if isinstance(thing, np.ufunc):
        return f"numpy.{thing.__name__}"
    short = getattr(thing, "__qualname__", type(thing).__qualname__)
    module = getattr(thing, "__module__", None) or ""
    for package in ("mixupe", "sklearn", "torch.optim", "optuna"):
        name = f"{package}.{short}"
        # Compare modules first, so that the check does not import an optional library.
        is_near = name in SCHEMAS and module.startswith(SCHEMAS[name].module.split(".")[0])
        if is_near and known(name) is thing:
            return name
    return f"{module}.{short}" if module else short


def base_of(kind: type) -> str | None:
    """The name in the table of a class, or of the nearest class that it inherits from."""
    names = (name_of(own) for own in kind.__mro__)
    return next((name for name in names if name in SCHEMAS), None)


def parameters_of(kind: Any) -> list[str]:
    """The names of the parameters of a class."""
    parameters = inspect.signature(kind.__init__).parameters.values()
    return [
        one.name
        for one in parameters
        if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL) and one.name != "self"
    ]


def select(value: Mapping[str, Any]) -> Any:
    """The chooser of columns that a file describes."""
    options = {"kind": value["kind"]}
    if "more_than" in value:
        options["more_than"] = value["more_than"]
    is_right = value["kind"] in _COLUMN_KINDS and type(value.get("more_than", 0)) is int
    if value["select"] not in SELECTORS or not is_right:
        raise ValueError(f"has the unknown choice of columns {value['select']!r}")
    return functools.partial(SELECTORS[value["select"]], **options)


def check_fitted(name: str, fitted: Mapping[str, Any], params: Mapping[str, Any]) -> None:
    """Raise unless all fitted attributes of an object of the table keep their rules."""
    rules, sizes = SCHEMAS[name].rules, dict[str, int]()
    # An estimator may have a configuration without being fitted.
    is_fitted = bool(set(fitted) - {"_sklearn_output_config"})
    for attribute in sorted(rules, key=lambda own: own != "n_features_in_"):
        rule = rules[attribute].removeprefix("? ")
        if attribute not in fitted:
            if is_fitted and rule == rules[attribute]:
                raise ValueError(f"has a {name} without {attribute!r}")
        elif not any(_keeps(one.split(), fitted[attribute], sizes) for one in rule.split(" | ")):
            raise ValueError(f"has a {name} whose {attribute!r} is not {rule!r}")
    if is_fitted and name in _CHECKS and not _CHECKS[name](fitted, params):
        raise ValueError(f"has a {name} whose fitted attributes do not fit each other")


def _keeps(rule: list[str], value: Any, sizes: dict[str, int]) -> bool:
    word, *axes = rule
    if word == "size":
        is_size = type(value) is int and 1 <= value < _LARGEST
        return is_size and sizes.setdefault(axes[0], value) == value
    if word in _SCALARS:
        return bool(_SCALARS[word](value))
    kinds, test = _ARRAYS[word]
    end = sizes.get(axes.pop(), 0) if word == "index" else None
    if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds:
        return False
    if len(value.shape) != len(axes) or (end is not None and (value >= end).any()):
        return False
    found = {**sizes, **{axis: int(axis) for axis in axes if axis.isdigit()}}
    if any(found.setdefault(a, n) != n for a, n in zip(axes, value.shape, strict=True)):
        return False
    sizes.update(found)
    return test(value)


def is_rising(values: np.ndarray) -> bool:
    """Whether values along the first axis never fall; NaN may stand anywhere."""
    return not np.any(values[1:] < values[:-1])


def are_levels(values: Any) -> bool:
    """Whether an array has distinct values, in increasing order if they are numbers; NaN is last.

    scikit-learn searches numbers by bisection, and writes beyond its arrays if they are unsorted.
    """
    if not isinstance(values, np.ndarray) or values.ndim != 1:
        return False
    if values.dtype.kind in "OTUS":
        keys = ["nan" if item != item else (type(item), item) for item in values.tolist()]
        return len(set(keys)) == len(keys)
    if values.dtype.kind not in "biufmM":
        return False
    n_missing = int((values != values).sum())
    present = values[: len(values) - n_missing]
    return n_missing <= 1 and bool((present[1:] > present[:-1]).all())


def _are_finite(values: np.ndarray) -> bool:
    return bool(np.isfinite(values).all())


def _is_output(value: Any) -> bool:
    options = ("default", "pandas", "polars", None)
    return isinstance(value, dict) and all(value[key] in options for key in value)


def _is_shape(value: Any) -> bool:
    is_triple = isinstance(value, tuple) and len(value) == 3
    return is_triple and all(type(size) is int and 1 <= size < _LARGEST for size in value)


def _is_estimator(value: Any) -> bool:
    return isinstance(value, BaseEstimator)


def _are_parts(value: Any) -> bool:
    def is_part(part: Any) -> bool:
        step = part[1]
        return isinstance(part[0], str) and (_is_estimator(step) or step in ("drop", "passthrough"))

    return all(isinstance(part, tuple) and len(part) == 3 and is_part(part) for part in value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


_SCALARS: dict[str, Callable[[Any], Any]] = {
    "none": lambda value: value is None,
    "flag": lambda value: isinstance(value, (bool, np.bool_)),
    "count": lambda value: _is_number(value) and int(value) == value and 0 <= value < 2**63,
    "number": _is_number,
    "text": lambda value: isinstance(value, str),
    "dtype": lambda value: isinstance(value, np.dtype),
    "plain": lambda value: True,
    "estimator": _is_estimator,
    "parts": _are_parts,
    "output": _is_output,
    "shape": _is_shape,
    "all": lambda value: isinstance(value, list) and all(map(are_levels, value)),
    # Checked where they are read.
    **dict.fromkeys(("table", "params", "nets", "study", "weights"), lambda value: True),
}
_ARRAYS: dict[str, tuple[str, Callable[[np.ndarray], bool]]] = {
    "floats": ("f", lambda values: True),
    "ints": ("iu", lambda values: True),
    "bits": ("u", lambda values: values.dtype == np.uint64),
    "objects": ("OU", lambda values: True),
    "finite": ("f", _are_finite),
    "positive": ("f", lambda values: _are_finite(values) and bool((values >= 0).all())),
    "rising": ("f", is_rising),
    "classes": ("biufmMOTUS", lambda values: are_levels(values) and is_rising(values)),
    "names": ("OTU", lambda values: all(isinstance(name, str) for name in values)),
    "index": ("iu", lambda values: is_rising(values) and bool((values >= 0).all())),
}


def _is_encoder(fitted: Mapping[str, Any], params: Mapping[str, Any]) -> bool:
    """Whether no part of an encoder of categories points beyond another.

    scikit-learn builds a sparse matrix from the fitted attributes without checking them.
    """
    levels, is_grouped = fitted["categories_"], fitted["_infrequent_enabled"]
    none = [None] * len(levels)
    rare, mappings = (fitted[name] if is_grouped else none for name in _RARE)
    dropped = fitted.get("_drop_idx_after_grouping")
    counts = fitted.get("_n_features_outs", none)
    dropped = none if dropped is None else dropped
    parts = (levels, rare, mappings, dropped, counts)
    is_right = all(len(part) == fitted["n_features_in_"] for part in parts)
    # Levels of an OrdinalEncoder that are missing values are not grouped.
    missing = fitted.get("_missing_indices", {})
    for number, (own, few, mapping, drop, count) in enumerate(zip(*parts, strict=False)):
        n_groups = n_levels = len(own) - (number in missing)
        is_right &= (few is None) == (mapping is None) and len(own) > 0
        is_right &= 0 <= missing.get(number, 0) < len(own)
        if few is not None:
            n_groups += 1 - len(few)
            is_right &= _are_within(few, n_levels) and _are_within(mapping, n_groups)
            is_right &= len(mapping) == n_levels
        is_right &= drop is None or (type(drop) is int and 0 <= drop < n_groups)
        is_right &= count is None or (type(count) is int and count == n_groups - (drop is not None))
    return bool(is_right)


def _is_target_encoder(fitted: Mapping[str, Any], params: Mapping[str, Any]) -> bool:
    is_many, levels = fitted["target_type_"] == "multiclass", fitted["categories_"]
    n_each = len(fitted["classes_"]) if is_many else 1
    encodings = fitted["encodings_"]
    is_right = len(levels) == fitted["n_features_in_"] and len(encodings) == n_each * len(levels)
    return is_right and all(
        isinstance(own, np.ndarray) and own.shape == (len(levels[n // n_each]),)
        for n, own in enumerate(encodings)
    )


def _is_polynomial(fitted: Mapping[str, Any], params: Mapping[str, Any]) -> bool:
    degree = params["degree"]
    if np.max(degree) > _DEGREE or fitted["n_features_in_"] > _WIDTH:
        return False
    again = known("sklearn.PolynomialFeatures")(**params)
    again.fit(np.broadcast_to(0.0, (1, fitted["n_features_in_"])))
    names = SCHEMAS["sklearn.PolynomialFeatures"].rules.keys() - _COMMON.keys()
    return all(getattr(again, name) == fitted[name] for name in names)


def _are_columns(fitted: Mapping[str, Any], params: Mapping[str, Any]) -> bool:
    n_features = fitted["n_features_in_"]
    places = fitted["_transformer_to_input_indices"].values()
    slices = fitted["output_indices_"].values()
    return all(_are_within(own, n_features) for own in places) and all(
        isinstance(own, slice) for own in slices
    )


def _are_within(indices: Any, end: int) -> bool:
    values = np.asarray(indices)
    is_integer = values.dtype.kind == "i" or not values.size
    return is_integer and bool(((values >= 0) & (values < end)).all())


# A polynomial of a higher degree, or of more columns, has more features than any table.
_DEGREE, _WIDTH = 16, 2**16
_CHECKS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], bool]] = {
    **dict.fromkeys(("sklearn.OneHotEncoder", "sklearn.OrdinalEncoder"), _is_encoder),
    "sklearn.TargetEncoder": _is_target_encoder,
    "sklearn.PolynomialFeatures": _is_polynomial,
    **dict.fromkeys(("sklearn.ColumnTransformer", "mixupe.ColumnsToNumbers"), _are_columns),
}
# Other types in pickles of our estimators, as skops names them.
_SKOPS = {
    "builtins": ("print",),
    "functools": ("partial",),
    "mixupe_sklearn._data.batches": ("Batches",),
    "mixupe_sklearn._estimators.inputs": ("Labels",),
    "mixupe_sklearn._graphs.node_features": ("NodeInputs",),
    "mixupe_sklearn._method.criterion": ("MixupELoss",),
    "mixupe_sklearn._net.callbacks": ("QuietLog", "SteadyTimer"),
    "mixupe_sklearn._net.net": ("MixupENet", "MixupENetRegressor"),
    "mixupe_sklearn._preprocessing.columns": tuple(SELECTORS),
    "mixupe_sklearn._runtime.torch_state": ("Streams",),
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
    for name in SCHEMAS:
        if name.startswith(("mixupe.", "torch.optim.")) and name != "mixupe.MixupESearchCV":
            try:
                kind = known(name)
            except ImportError:  # an optional library is missing, so no model of it can exist here
                continue
            found.append(f"{kind.__module__}.{kind.__qualname__}")
    return sorted(found)
