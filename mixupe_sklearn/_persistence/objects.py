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
    base_of,
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
        name, names = _name(type(value), path), parameters_of(type(value))
        odd = next((key for key in names if not hasattr(value, key)), None)
        if odd is not None:
            raise ValueError(f"Got {path}, but expected its parameter {odd!r} as an attribute.")
        params = {key: None if key in PLACES else getattr(value, key) for key in names}
        fitted = {key: own for key, own in vars(value).items() if key not in params}
        if isinstance(value, BaseMixupE):
            fitted = networks.state_of(value, fitted, self.keep_training)
        elif name == "mixupe.MixupESearchCV":
            fitted = _search_state(fitted)
        base = base_of(type(value))
        rules = SCHEMAS[base].rules if base else {}
        odd = next((key for key in fitted if key not in rules and base == name), None)
        if odd is not None:
            raise unknown(f"{path}.{odd}, an attribute of a {type(value).__name__}")
        try:
            if base:
                check_fitted(base, {key: fitted[key] for key in fitted if key in rules}, params)
        except ValueError as error:
            raise ValueError(f"Got an estimator that {error}, which load refuses.") from error
        return describe(writer, name, params, fitted, path)


def describe(
    writer: Writer, name: str, params: Mapping[str, Any], fitted: Mapping[str, Any], path: str
) -> Any:
    """JSON of an object."""
    plain = Writer(_refuse)  # of parameters that may hold no object
    plain.arrays = writer.arrays
    free = [key for key in params if key in HOLDS or name not in SCHEMAS]
    writers = {"study": writer.json} | dict.fromkeys(params.keys() - free, plain.plain)
    return {"class": name} | {
        part: {key: writers.get(key, writer.plain)(own, f"{path}.{key}") for key, own in of.items()}
        for part, of in (("params", params), ("fitted", fitted))
    }


def _refuse(writer: Writer, value: Any, path: str) -> Any:
    raise unknown(f"{path} of type {type(value).__name__}")


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
        if not isinstance(kind, type) or issubclass(kind, torch.nn.Module):
            raise ValueError(f"has an object of {name!r}, which may only be named")
        base, names, plain = base_of(kind), parameters_of(kind), self.reader.plain
        rules, is_own = SCHEMAS[base].rules if base else {}, base != name
        odd = next((key for key in value["params"] if key not in names), None)
        if odd is not None:
            raise ValueError(f"has the parameter {odd!r} of {name!r}, which has none")
        params = {
            key: None if key in PLACES else plain(own, f"{path}.{key}", _kinds(key, is_own))
            for key, own in value["params"].items()
        }
        made, fitted = kind(**params), dict[str, Any]()
        for key, own in value["fitted"].items():
            if key not in rules and (not is_own or _shadows(kind, key)):
                raise ValueError(f"has {key!r} among the attributes of {name!r}")
            if key == "fixed":
                items = own["dict"].items()
                fitted[key] = {k: plain(v, f"{path}.fixed.{k}", HOLDS.get(k, ())) for k, v in items}
            else:
                fitted[key] = plain(own, f"{path}.{key}", _ALL if is_own else _FITTED)
        if base:
            check_fitted(base, {key: fitted[key] for key in fitted if key in rules}, params)
        if isinstance(made, BaseMixupE) and "nets" in fitted:
            networks.restore(made, fitted, self.device)
        elif name == "mixupe.MixupESearchCV" and fitted:
            _restore_search(made, fitted)
        else:
            vars(made).update(fitted)
        return made


def _kinds(parameter: str, is_own: bool) -> Iterable[str]:
    return _ALL if is_own else HOLDS.get(parameter, ())


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
