"""Encode values as JSON and arrays: a closed set of kinds.

Values that JSON knows stay unchanged. Everything else becomes an object with one tag, such as
``{"tuple": [...]}`` or ``{"array": "estimator.X_mean_"}``.
"""

import functools
import math
from collections.abc import Callable, Mapping
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np
import torch

from mixupe_sklearn._persistence.allowed_types import PLACES, name_of


class Encoder:
    """Encodes values as JSON and collects their arrays.

    Parameters
    ----------
    state_of : callable
        Returns the attributes of an object that are saved.

    Examples
    --------
    >>> encoder = Encoder(vars)
    >>> encoder.encode({"a": (1, float("nan")), 2: np.ones(2)}, "x")
    {'pairs': [['a', {'tuple': [1, {'float': 'nan'}]}], [2, {'array': 'x.2'}]]}
    >>> list(encoder.arrays)
    ['x.2']
    """

    def __init__(self, state_of: Callable[[Any], dict[str, Any]]):
        self.state_of = state_of
        self.arrays: dict[str, np.ndarray] = {}
        self._inside: list[int] = []

    def encode(self, value: Any, path: str) -> Any:
        """JSON of a value; ``path`` is its place, for names of arrays and for errors."""
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": str(value)}
        if id(value) in self._inside:
            raise ValueError(f"Got {path}, which contains itself, but expected a tree of values.")
        self._inside.append(id(value))
        try:
            return self._encode_other(value, path)
        finally:
            self._inside.pop()

    def _encode_other(self, value: Any, path: str) -> Any:
        if type(value) in (list, tuple):
            items = [self.encode(item, f"{path}.{n}") for n, item in enumerate(value)]
            return items if type(value) is list else {"tuple": items}
        if type(value) in (set, frozenset):
            items = sorted(value, key=repr)  # equal models give equal files
            return {type(value).__name__: [self.encode(item, path) for item in items]}
        if isinstance(value, dict) and type(value).__module__ in ("builtins", "collections"):
            return self._encode_dict(value, path)
        if isinstance(value, (np.ndarray, np.generic, np.dtype)):
            return self._encode_numpy(value, path)
        if isinstance(value, (torch.Tensor, torch.dtype, torch.device)):
            return self._encode_torch(value, path)
        if type(value) is bytes:
            return {"bytes": value.hex()}
        if type(value) is slice:
            parts = (value.start, value.stop, value.step)
            return {"slice": [self.encode(part, path) for part in parts]}
        if isinstance(value, (np.random.Generator, np.random.RandomState)):
            return self._encode_generator(value, path)
        if isinstance(value, type) and issubclass(value, np.generic):
            return {"numpy_type": value.__name__}
        if isinstance(value, functools.partial):
            parts = (value.func, value.args, value.keywords)
            return {"partial": [self.encode(part, path) for part in parts]}
        if isinstance(value, (type, FunctionType, BuiltinFunctionType, np.ufunc)):
            return {"name": self._name(value, path)}
        return self._encode_object(value, path)

    def _encode_dict(self, value: Mapping[Any, Any], path: str) -> Any:
        keys = list(value)
        if all(type(key) is str for key in keys):
            return {"dict": {key: self.encode(value[key], f"{path}.{key}") for key in keys}}
        pairs = [(self.encode(key, path), key) for key in keys]
        return {"pairs": [[name, self.encode(value[key], f"{path}.{key}")] for name, key in pairs]}

    def _encode_numpy(self, value: Any, path: str) -> Any:
        if isinstance(value, np.dtype):
            return {"dtype": value.str}
        if isinstance(value, np.ma.MaskedArray):
            parts = (value.data, np.ma.getmaskarray(value), value.fill_value)
            return {"masked": [self.encode(part, path) for part in parts]}
        if value.dtype.kind in "biuf" and value.dtype.itemsize <= 8:
            if isinstance(value, np.generic):
                return {"scalar": value.dtype.str, "value": self.encode(value.item(), path)}
            # The memory order of a matrix affects the last bit of its products.
            is_turned = value.flags.f_contiguous and not value.flags.c_contiguous
            entry = self._keep(value.T if is_turned else value, path)
            return {"turned": entry} if is_turned else {"array": entry}
        if value.dtype.kind in "mM":
            entry = self._keep(np.asarray(value).view(np.int64), path)
            return {
                "times": entry,
                "dtype": value.dtype.str,
                "scalar": isinstance(value, np.generic),
            }
        if value.dtype.kind in "USOT":
            if isinstance(value, np.generic):
                return {"scalar": value.dtype.kind, "value": self.encode(value.item(), path)}
            items = [self.encode(item, f"{path}.{n}") for n, item in enumerate(value.flat)]
            return {"items": items, "kind": value.dtype.kind, "shape": list(value.shape)}
        raise _unknown(value, f"{path} of type {value.dtype}")

    def _encode_torch(self, value: Any, path: str) -> Any:
        if isinstance(value, torch.Tensor):
            value = value.detach().cpu().contiguous()
            if value.dtype == torch.bfloat16:
                return {"bfloat16": self._keep(value.view(torch.int16).numpy(), path)}
            return {"tensor": self._keep(value.numpy(), path)}
        return {"torch": str(value)}

    def _encode_generator(self, value: Any, path: str) -> Any:
        is_new = isinstance(value, np.random.Generator)
        state = value.bit_generator.state if is_new else value.get_state(legacy=False)
        if state["bit_generator"] not in ("PCG64", "MT19937"):
            raise _unknown(value, f"{path} with the generator {state['bit_generator']}")
        return {"generator": self.encode(state, path), "legacy": not is_new}

    def _encode_object(self, value: Any, path: str) -> Any:
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            items = [self.encode(item, f"{path}.{n}") for n, item in enumerate(value)]
            return {"named": self._name(type(value), path), "items": items}
        is_container = isinstance(value, (list, tuple, dict, torch.nn.Module))
        if is_container or not hasattr(value, "__dict__"):
            raise _unknown(value, f"{path} of type {type(value).__name__}")
        name = self._name(type(value), path)
        state = self.state_of(value) | dict.fromkeys(PLACES.get(name, ()))
        return {"object": name, "state": self.encode(state, path)["dict"]}

    def _name(self, thing: Any, path: str) -> str:
        name = name_of(thing)
        if "<" in name:
            raise ValueError(
                f"Got {path}, a function or class that is defined within a function ({name}), but "
                f"expected one at the top of a module, whose name can be saved."
            )
        return name

    def _keep(self, array: np.ndarray, path: str) -> str:
        name, number = path, 1
        while name in self.arrays:
            name, number = f"{path}~{number}", number + 1
        self.arrays[name] = np.ascontiguousarray(array).reshape(array.shape)
        return name


def _unknown(value: Any, what: str) -> ValueError:
    return ValueError(
        f"Got {what}, which save does not know, but expected numbers, text, arrays, tensors, and "
        f"lists, dicts and objects of such; try pickle."
    )
