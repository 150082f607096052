"""Objects of a model: to their parameters and fitted attributes, and back through constructors."""

import functools
import inspect
from collections.abc import Iterable, Mapping
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np
import torch

from mixupe_sklearn._estimators.base import BaseMixupE
from mixupe_sklearn._persistence import networks
from mixupe_sklearn._persistence.schemas import (
    HOLDS,
    PLACES,
    SCHEMAS,
    SELECTORS,
    Finder,
    check_fitted,
    name_of,
    parameters_of,
    select,
)
from mixupe_sklearn._persistence.values import Reader, Writer, unknown

# Kinds of things in fitted attributes, and in what belongs to a trusted class.
_FITTED = ("estimator", "callback", "distribution")
_ALL = (*_FITTED, "function", "module", "optimizer", "splitter", "trusted")


class Describer:
    """Describes what is not plain: objects by parameters and attributes, the rest by its name."""

    def __init__(self, keep_training: bool):
        self.keep_training = keep_training

    def __call__(self, writer: Writer, value: Any, path: str) -> Any:
        """JSON of a value that is not plain."""
        if isinstance(value, functools.partial):
            name = getattr(value.func, "__name__", None)
            if SELECTORS.get(name or "") is not value.func or value.args:
                raise ValueError(
                    f"Got {path}, a functools.partial, but expected a function or class with a "
                    f"name; the arguments of a module belong into module_params."
                )
            return {"select": name} | writer.plain(value.keywords, path)["dict"]
        if isinstance(value, (type, FunctionType, BuiltinFunctionType, np.ufunc)):
            return {"name": _name(value, path)}
        is_container = isinstance(value, (list, tuple, dict, torch.nn.Module, torch.Tensor))
        if is_container or not hasattr(value, "__dict__"):
            raise unknown(f"{path} of type {type(value).__name__}")
        name = _name(type(value), path)
        names = parameters_of(type(value))
        params = {key: None if key in PLACES else getattr(value, key) for key in names}
        fitted = self._fitted(value, name, names, path)
        return describe(writer, name, params, fitted, path)

    def _fitted(self, value: Any, name: str, params: list[str], path: str) -> dict[str, Any]:
        fitted = {key: own for key, own in vars(value).items() if key not in params}
        if name not in SCHEMAS:
            return fitted
        if isinstance(value, BaseMixupE):
            fitted = networks.state_of(value, fitted, self.keep_training)
        elif name == "mixupe.MixupESearchCV":
            fitted = _search_state(fitted)
        odd = next((key for key in fitted if key not in SCHEMAS[name].rules), None)
        if odd is not None:
            raise ValueError(
                f"Got {path}.{odd}, an attribute that save does not know of a "
                f"{type(value).__name__}, but expected parameters and fitted attributes only; try "
                f"pickle."
            )
        return fitted


def describe(
    writer: Writer, name: str, params: Mapping[str, Any], fitted: Mapping[str, Any], path: str
) -> Any:
    """JSON of an object."""
    writers = {"study": writer.json}
    return {
        "class": name,
        "params": {key: writer.plain(own, f"{path}.{key}") for key, own in params.items()},
        "fitted": {
            key: writers.get(key, writer.plain)(own, f"{path}.{key}") for key, own in fitted.items()
        },
    }


def _name(thing: Any, path: str) -> str:
    name = name_of(thing)
    if "<" in name:
        raise ValueError(
            f"Got {path}, a function or class that is defined within a function ({name}), but "
            f"expected one at the top of a module, whose name can be saved."
        )
    return name


def _search_state(fitted: dict[str, Any]) -> dict[str, Any]:
    from mixupe_sklearn._search.results import plain_study  # Optuna is optional

    fitted.pop("scorer_", None)  # follows from ``scoring``
    if "study_" in fitted:
        fitted["study"] = plain_study(fitted.pop("study_"))
    return fitted


class Builder:
    """Builds what a file names; ``Reader`` calls it.

    Parameters
    ----------
    arrays : dict of arrays
        The arrays of the file.
    device : str or None
        The new device of the networks.
    trusted : list of types and functions
        What the file may name beside the table.
    """

    def __init__(self, arrays: dict[str, np.ndarray], device: str | None, trusted: Iterable[Any]):
        self.device = device
        self.find = Finder(trusted)
        self.reader = Reader(arrays, self)

    def __call__(self, value: Mapping[str, Any], path: str, kinds: Iterable[str]) -> Any:
        """The thing of a JSON object that is not plain."""
        tag = next(iter(value), None)
        if not kinds or tag not in ("name", "class", "select"):
            raise ValueError(f"has the tag {tag!r} where only plain values may be")
        if tag == "select" and "selector" in kinds:
            return select(value)
        if tag == "class":
            return self._object(value, path, kinds)
        return self.find(value["name"], kinds)

    def _object(self, value: Mapping[str, Any], path: str, kinds: Iterable[str]) -> Any:
        name, kind = value["class"], self.find(value["class"], kinds)
        is_known, plain = name in SCHEMAS, self.reader.plain
        if not isinstance(kind, type) or issubclass(kind, torch.nn.Module):
            raise ValueError(f"has an object of {name!r}, which may only be named")
        names = parameters_of(kind)
        odd = next((key for key in value["params"] if key not in names), None)
        if odd is not None:
            raise ValueError(f"has the parameter {odd!r} of {name!r}, which has none")
        params = {
            key: None if key in PLACES else plain(own, f"{path}.{key}", _kinds(key, is_known))
            for key, own in value["params"].items()
        }
        made, fitted = kind(**params), dict[str, Any]()
        for key, own in value["fitted"].items():
            if (is_known and key not in SCHEMAS[name].rules) or _shadows(kind, key):
                raise ValueError(f"has {key!r} among the attributes of {name!r}")
            if key == "fixed":
                items = own["dict"].items()
                fitted[key] = {k: plain(v, f"{path}.fixed.{k}", HOLDS.get(k, ())) for k, v in items}
            else:
                fitted[key] = plain(own, f"{path}.{key}", _FITTED if is_known else _ALL)
        if is_known:
            check_fitted(name, fitted, params)
        if isinstance(made, BaseMixupE) and fitted:
            networks.restore(made, fitted, self.device)
        elif name == "mixupe.MixupESearchCV" and fitted:
            _restore_search(made, fitted)
        else:
            vars(made).update(fitted)
        return made


def _kinds(parameter: str, is_known: bool) -> Iterable[str]:
    return HOLDS.get(parameter, ()) if is_known else _ALL


def _shadows(kind: type, key: str) -> bool:
    """Whether an attribute would replace a method or a property of the class."""
    found = inspect.getattr_static(kind, key, None)
    return key.startswith("__") or callable(found) or hasattr(found, "__get__")


def _restore_search(search: Any, fitted: dict[str, Any]) -> None:
    from mixupe_sklearn._search.results import study_of  # Optuna is optional

    if "study" in fitted:
        search.study_ = study_of(fitted.pop("study"))
    vars(search).update(fitted)
    scorer, _ = search._get_scorers()
    search.scorer_ = getattr(scorer, "_scorers", scorer)
