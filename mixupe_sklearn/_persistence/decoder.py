"""Decode JSON and arrays to values: a closed set of kinds, none of which runs code."""

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from mixupe_sklearn._persistence.allowed_types import PLACES

# Bytes that a text array of fixed width may take beyond the length of its text.
_WIDE_TEXT = 2**24
# Large integers can have equal hashes. A dict compares all such keys on every access, so a file may
# hold only a limited number.
_LARGE_KEY, _MAX_LARGE_KEYS = 2**60, 1000
_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_TORCH_TYPES = {
    str(value): value for value in vars(torch).values() if isinstance(value, torch.dtype)
}
# Words in the buffer of this generator. A larger position would read beyond its end.
_MT19937_WORDS = 624


class Decoder:
    """Decodes JSON and arrays to values; raises if they are inconsistent.

    Parameters
    ----------
    arrays : dict of arrays
        The arrays of the file.
    find : callable
        Returns the type or function of a name.
    restore : callable
        Sets the attributes of an object that was created without a call; returns the object.
    """

    def __init__(
        self,
        arrays: Mapping[str, np.ndarray],
        find: Callable[[str], Any],
        restore: Callable[[Any, dict[str, Any]], Any],
    ):
        # Each array once: a small file could otherwise expand one array to many large weights.
        self._take = dict(arrays).pop
        self._n_large_keys = 0
        self.find = find
        self.restore = restore
        self._tags: dict[str, Callable[..., Any]] = {
            "float": _FLOATS.__getitem__,
            "tuple": lambda items: tuple(self.decode(items)),
            "set": lambda items: set(map(self._key, items)),
            "frozenset": lambda items: frozenset(map(self._key, items)),
            "dict": self._dict,
            "pairs": lambda pairs: {self._key(key): self.decode(value) for key, value in pairs},
            "array": self._take,
            "turned": lambda entry: self._take(entry).T,
            "times": self._times,
            "masked": self._masked,
            "items": self._items,
            "scalar": self._scalar,
            "dtype": np.dtype,
            "tensor": lambda entry: torch.from_numpy(self._take(entry)),
            "bfloat16": lambda entry: torch.from_numpy(self._take(entry)).view(torch.bfloat16),
            "torch": lambda name: _TORCH_TYPES.get(name) or torch.device(name),
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

    def _dict(self, entries: Mapping[str, Any]) -> dict[str, Any]:
        return {key: self.decode(value) for key, value in entries.items()}

    def _key(self, value: Any) -> Any:
        key = self.decode(value)
        self._n_large_keys += isinstance(key, (int, float)) and abs(key) > _LARGE_KEY
        if self._n_large_keys > _MAX_LARGE_KEYS:
            raise ValueError(f"has more than {_MAX_LARGE_KEYS} large keys")
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
            raise ValueError("has an array whose shape does not match its items")
        values = np.empty(len(items), dtype=object)
        values[:] = self.decode(items)
        if kind in "US":
            # Every item takes as many bytes as the longest one.
            sizes = [len(value) for value in values]
            n_bytes = 4 * len(sizes) * max(sizes, default=0)
            if n_bytes > _WIDE_TEXT + 64 * sum(sizes):
                raise ValueError(f"has text that would take {n_bytes} bytes")
        dtype: Any = np.dtypes.StringDType() if kind == "T" else kind
        return values.astype(dtype).reshape(shape)

    def _scalar(self, dtype: str, value: Any) -> Any:
        kind, value = np.dtype(dtype), self.decode(value)
        expected = {"U": str, "S": bytes}.get(kind.kind, (bool, int, float))
        if kind.kind not in "biufUS" or kind.itemsize > 8 or not isinstance(value, expected):
            raise ValueError(f"has a number of the type {dtype!r}")
        return kind.type(value)

    def _generator(self, state: Any, legacy: bool) -> Any:
        state = self.decode(state)
        if state["bit_generator"] == "MT19937":
            if not 0 <= state["state"]["pos"] <= _MT19937_WORDS:
                raise ValueError("has a generator with a position beyond its buffer")
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
            raise ValueError("has arguments for a function without a name")
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
            # An attribute must not replace a method or a property of the class.
            found = inspect.getattr_static(kind, key, None)
            if key.startswith("__") or callable(found) or hasattr(found, "__get__"):
                raise ValueError(f"has {key!r} among the attributes of {name!r}")
        return self.restore(object.__new__(kind), attributes)


def check_encoder(encoder: Any) -> None:
    """Raise if a fitted one-hot encoder would write beyond its own columns.

    scikit-learn builds a sparse matrix from the fitted attributes without checking them.
    """
    if not hasattr(encoder, "categories_"):
        return
    n_columns = encoder._compute_n_features_outs()
    none = [None] * len(n_columns)
    dropped = none if (found := encoder._drop_idx_after_grouping) is None else found
    is_grouped = encoder._infrequent_enabled
    rare = encoder._infrequent_indices if is_grouped else none
    mappings = encoder._default_to_infrequent_mappings if is_grouped else none
    is_right = list(encoder._n_features_outs) == list(n_columns)
    for levels, count, drop, few, mapping in zip(
        encoder.categories_, n_columns, dropped, rare, mappings, strict=True
    ):
        n_groups = count + (drop is not None)
        is_right &= n_groups >= 1 and (drop is None or 0 <= drop < n_groups)
        is_right &= (few is None) == (mapping is None)
        if mapping is not None:
            is_right &= len(mapping) == len(levels)
            is_right &= _are_within(mapping, n_groups) and _are_within(few, len(levels))
    if not is_right:
        raise ValueError("has a one-hot encoder with indices beyond its columns")


def _are_within(indices: Any, end: int) -> bool:
    values = np.asarray(indices)
    return values.dtype.kind == "i" and bool(((values >= 0) & (values < end)).all())
