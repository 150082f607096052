"""JSON and arrays back to values: a closed set of kinds, none of which runs code."""

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from mixupe_sklearn._persistence.allowed_types import PLACES

# What text of equal width may take, above what its letters do.
_WIDE_TEXT = 2**24
# Numbers beyond the first can be alike to a dict of Python's, which looks through all such each
# time: there may be so many.
_LARGE_KEY, _MOST_LARGE_KEYS = 2**60, 1000
_TORCH_TYPES = {
    str(value): value for value in vars(torch).values() if isinstance(value, torch.dtype)
}
# Where a generator of this kind may be in its buffer: memory would be read beyond its end.
_MT19937_WORDS = 624


class Decoder:
    """Turns JSON and arrays back into values; raises where they do not fit.

    Parameters
    ----------
    arrays : dict of arrays
        Those of the file.
    find : callable
        Returns the type or function of a name.
    put_together : callable
        Gives an object, made without a call, its attributes; returns the object.

    Examples
    --------
    >>> decoder = Decoder({"x": np.ones(2)}, {}.get, lambda value, state: value)
    >>> decoder.decode({"tuple": [1, {"array": "x"}, {"float": "-inf"}]})
    (1, array([1., 1.]), -inf)
    """

    def __init__(
        self,
        arrays: Mapping[str, np.ndarray],
        find: Callable[[str], Any],
        put_together: Callable[[Any, dict[str, Any]], Any],
    ):
        self._arrays = dict(arrays)
        self._n_large_keys = 0
        self.find = find
        self.put_together = put_together
        self._tags: dict[str, Callable[..., Any]] = {
            "float": self._float,
            "tuple": lambda items: tuple(self.decode(items)),
            "set": lambda items: set(map(self._key, items)),
            "frozenset": lambda items: frozenset(map(self._key, items)),
            "dict": self._dict,
            "pairs": lambda pairs: {self._key(key): self.decode(value) for key, value in pairs},
            "array": lambda entry: self._take(entry),
            "turned": lambda entry: self._take(entry).T,
            "times": self._times,
            "masked": self._masked,
            "items": self._items,
            "scalar": self._scalar,
            "dtype": np.dtype,
            "tensor": lambda entry: torch.from_numpy(self._take(entry)),
            "bfloat16": lambda entry: torch.from_numpy(self._take(entry)).view(torch.bfloat16),
            "torch": self._torch,
            "bytes": bytes.fromhex,
            "slice": lambda parts: slice(*self.decode(parts)),
            "generator": self._generator,
            "numpy_type": self._numpy_type,
            "partial": self._partial,
            "name": self.find,
            "named": self._named,
            "object": self._object,
        }

    def decode(self, value: Any) -> Any:
        """The value of a piece of JSON."""
        if isinstance(value, list):
            return [self.decode(item) for item in value]
        if not isinstance(value, dict):
            return value
        tag = next(iter(value), None)
        if tag not in self._tags:
            raise ValueError(f"has a value with the unknown tag {tag!r}")
        others = {key: value[key] for key in value if key != tag}
        return self._tags[tag](value[tag], **others)

    @staticmethod
    def _float(word: str) -> float:
        return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[word]

    def _dict(self, entries: Mapping[str, Any]) -> dict[str, Any]:
        return {key: self.decode(value) for key, value in entries.items()}

    def _take(self, entry: str) -> np.ndarray:
        # Once each: a small file could make many large weights of one array.
        return self._arrays.pop(entry)

    def _key(self, value: Any) -> Any:
        key = self.decode(value)
        self._n_large_keys += isinstance(key, (int, float)) and abs(key) > _LARGE_KEY
        if self._n_large_keys > _MOST_LARGE_KEYS:
            raise ValueError(f"has more than {_MOST_LARGE_KEYS} large keys")
        return key

    def _times(self, entry: str, dtype: str, scalar: bool) -> Any:
        kind = np.dtype(dtype)
        if kind.kind not in "mM":
            raise ValueError(f"has times of the type {dtype!r}")
        values = self._take(entry).view(kind)
        return values[()] if scalar else values

    def _masked(self, parts: list[Any]) -> np.ndarray:
        data, mask, fill_value = self.decode(parts)
        return np.ma.MaskedArray(data, mask, fill_value=fill_value)

    def _items(self, items: list[Any], kind: str, shape: list[int]) -> np.ndarray:
        if kind not in ("U", "S", "O", "T") or math.prod(shape) != len(items):
            raise ValueError("has an array whose shape is not that of its items")
        values = np.empty(len(items), dtype=object)
        values[:] = self.decode(items)
        if kind in "US":
            # As wide as the longest item, whatever the type was: each takes as much as that one.
            sizes = [len(value) for value in values]
            n_whole = 4 * len(sizes) * max(sizes, default=0)
            if n_whole > _WIDE_TEXT + 64 * sum(sizes):
                raise ValueError(f"has text that would take {n_whole} bytes")
        dtype: Any = np.dtypes.StringDType() if kind == "T" else kind
        return values.astype(dtype).reshape(shape)

    def _scalar(self, dtype: str, value: Any) -> Any:
        kind, value = np.dtype(dtype), self.decode(value)
        expected = {"U": str, "S": bytes}.get(kind.kind, (bool, int, float))
        if kind.kind not in "biufUS" or kind.itemsize > 8 or not isinstance(value, expected):
            raise ValueError(f"has a number of the type {dtype!r}")
        return kind.type(value)

    @staticmethod
    def _torch(name: str) -> Any:
        return _TORCH_TYPES[name] if name in _TORCH_TYPES else torch.device(name)

    def _generator(self, state: Any, legacy: bool) -> Any:
        state = self.decode(state)
        if state["bit_generator"] == "MT19937":
            if not 0 <= state["state"]["pos"] <= _MT19937_WORDS:
                raise ValueError("has a generator that is beyond its own end")
            bits: Any = np.random.MT19937(0)
        elif state["bit_generator"] == "PCG64":
            bits = np.random.PCG64(0)
        else:
            raise ValueError(f"has the unknown generator {state['bit_generator']!r}")
        if not legacy:
            bits.state = state
            return np.random.Generator(bits)
        rng = np.random.RandomState(bits)
        rng.set_state(state)
        return rng

    @staticmethod
    def _numpy_type(name: str) -> type:
        found = getattr(np, name, None)
        if not (isinstance(found, type) and issubclass(found, np.generic)):
            raise ValueError(f"has the unknown numpy type {name!r}")
        return found

    def _partial(self, parts: list[Any]) -> functools.partial:
        if set(parts[0]) != {"name"}:
            raise ValueError("has arguments for what has no name")
        function, args, keywords = self.decode(parts)
        return functools.partial(function, *args, **keywords)

    def _named(self, name: str, items: list[Any]) -> Any:
        kind = self.find(name)
        if not (isinstance(kind, type) and issubclass(kind, tuple)):
            raise ValueError(f"has items for {name!r}, which takes none")
        return tuple.__new__(kind, self.decode(items))

    def _object(self, name: str, state: Mapping[str, Any]) -> Any:
        kind: Any = self.find(name)
        if not isinstance(kind, type):
            raise ValueError(f"has attributes for {name!r}, which is no type")
        attributes = self._dict(state) | dict.fromkeys(PLACES.get(name, ()))
        for key in attributes:
            # What a class does is no attribute: it would be called in the place of ours.
            found = inspect.getattr_static(kind, key, None)
            if key.startswith("__") or callable(found) or hasattr(found, "__get__"):
                raise ValueError(f"has {key!r} among the attributes of {name!r}")
        return self.put_together(object.__new__(kind), attributes)
