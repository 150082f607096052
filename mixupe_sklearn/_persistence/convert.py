"""Converts files of format 1 to the format of today: ``python -m mixupe_sklearn.persistence``.

Format 1 described any object by its attributes. Here its JSON becomes plain values, and the names
of objects with their attributes, which are then written as the schemas want them. Nothing is built
from the names, but the size of what is read is not bounded: convert only files that you trust.
"""

import argparse
import functools
import pathlib
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
import torch

from mixupe_sklearn._persistence.file_format import pack, unpack
from mixupe_sklearn._persistence.networks import _words_of
from mixupe_sklearn._persistence.objects import describe
from mixupe_sklearn._persistence.schemas import PLACES, SCHEMAS, SELECTORS, known, parameters_of
from mixupe_sklearn._persistence.values import Writer, table_of
from mixupe_sklearn._utils.atomic_files import replacing


class _Object(NamedTuple):
    """An object of a file: its name and its attributes, or the items of a named tuple."""

    name: str
    state: Any


class _Name(NamedTuple):
    """The name of a class or function."""

    name: str


class _Decoder:
    """Decodes the values of format 1."""

    def __init__(self, arrays: Mapping[str, np.ndarray]):
        self.arrays = arrays

    def __call__(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self(item) for item in value]
        if not isinstance(value, dict):
            return value
        (tag, inner), *others = value.items()
        return getattr(self, f"_{tag}")(inner, **dict(others))

    def _float(self, text):
        return float(text)

    def _tuple(self, items):
        return tuple(self(items))

    def _dict(self, items):
        return {key: self(item) for key, item in items.items()}

    def _pairs(self, pairs):
        return {self(key): self(item) for key, item in pairs}

    def _array(self, entry):
        return self.arrays[entry]

    def _turned(self, entry):
        return self.arrays[entry].T

    def _tensor(self, entry):
        return torch.from_numpy(self.arrays[entry])

    def _bfloat16(self, entry):
        return self._tensor(entry).view(torch.bfloat16)

    def _times(self, entry, dtype, scalar):
        values = self.arrays[entry].view(dtype)
        return values[()] if scalar else values

    def _masked(self, parts):
        data, mask, fill = self(parts)
        return np.ma.MaskedArray(data, mask, fill_value=fill)

    def _items(self, items, kind, shape):
        values = np.array([*self(items), None], dtype=object)[:-1].reshape(shape)
        return values.astype(np.dtypes.StringDType() if kind == "T" else kind)

    def _scalar(self, dtype, value):
        return np.dtype(dtype).type(self(value))

    def _dtype(self, name):
        return np.dtype(name)

    def _slice(self, parts):
        return slice(*self(parts))

    def _numpy_type(self, name):
        return getattr(np, name)

    def _generator(self, state, legacy):
        state = self(state)
        if not legacy:
            rng = np.random.default_rng(0)
            rng.bit_generator.state = state
            return rng
        legacy_rng = np.random.RandomState(0)
        legacy_rng.set_state(state)
        return legacy_rng

    def _partial(self, parts):
        function, _, keywords = self(parts)
        return functools.partial(SELECTORS[function.name.partition(".")[2]], **keywords)

    def _name(self, name):
        builtins = {"bool": bool, "float": float, "int": int, "object": object, "str": str}
        return builtins.get(name.removeprefix("builtins."), _Name(name))

    def _named(self, name, items):
        return _Object(name, self(items))

    def _object(self, name, state):
        return _Object(name, self._dict(state))


def _describe(writer: Writer, value: Any, path: str) -> Any:
    if isinstance(value, _Name):
        return {"name": value.name}
    if isinstance(value, functools.partial):
        return {"select": value.func.__name__} | value.keywords
    if not isinstance(value, _Object) or value.name not in SCHEMAS:
        raise ValueError(f"has {value!r} at {path}, which convert does not know")
    state, rules = dict(value.state), SCHEMAS[value.name].rules
    names = parameters_of(known(value.name))
    params = {key: None if key in PLACES else state.pop(key) for key in names if key in state}
    if "nets_" in state:
        if "X_mean_" in state and "scale_inputs" in names and "scale_inputs" not in params:
            params["scale_inputs"], state["X_scale_"] = False, None  # earlier than this parameter
        state |= _networks(state)
    if "study_" in state:
        state["study"] = state["study_"]
    fitted = {key: own for key, own in state.items() if key in rules}
    return describe(writer, value.name, params, fitted, path)


def _networks(state: Mapping[str, Any]) -> dict[str, Any]:
    nets = []
    for net in state["nets_"]:
        new = {key: net[key] for key in ("lr", "batch_size", "max_epochs", "weights", "head")}
        rows = [{key: row[key] for key in row if key != "batches"} for row in net["history"]]
        new |= {"work": net["work"], "history": table_of(rows)}
        new |= {key: net[key] for key in ("classes",) if key in net}
        if "optimizer" in net:
            groups = net["optimizer"]["param_groups"]
            places = [place for group in groups for place in group["params"]]
            new["state"] = [net["optimizer"]["state"].get(place, {}) for place in places]
            new["groups"] = [{"lr": g["lr"], "weight_decay": g["weight_decay"]} for g in groups]
            new["callbacks"] = net["callbacks"]
        nets.append(new)
    own = {"nets": nets, "fixed": state["_fixed"], "history_": table_of(state["history_"])}
    own["streams"] = _words_of([one.state for one in state["_streams"]])
    if "_labels" in state:
        own["are_several"] = state["_labels"].state[1]
    if "inputs_" in state:
        inputs = state["inputs_"].state
        own["inputs"] = inputs | {"known": list(inputs["known"])}
    return own


def convert(old: str, new: str) -> None:
    """Write the model of a file of format 1 to a file of the format of today."""
    content = unpack(
        pathlib.Path(old).read_bytes(), repr(old), version("mixupe-sklearn"), formats=(1,)
    )
    writer = Writer(_describe)
    try:
        model = writer.plain(_Decoder(content.arrays)(content.model), "estimator")
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"Got {old!r}, which cannot be converted ({error!r}).") from error
    data = pack(model, writer.arrays, content.written_by, content.versions)
    with replacing(new) as file:
        file.write(data)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command ``convert OLD NEW``."""
    parser = argparse.ArgumentParser(
        prog="python -m mixupe_sklearn.persistence",
        description="Convert a saved model of format 1. Only for files that you trust: what is "
        "read is not bounded as in load.",
    )
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("convert", help=parser.description)
    command.add_argument("old")
    command.add_argument("new")
    given = parser.parse_args(arguments)
    print(f"Converting {given.old!r}: do this only if you trust whoever made the file.")
    convert(given.old, given.new)
