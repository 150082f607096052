"""Plain values as JSON and arrays, and back: numbers, text, arrays, and containers of them.

Values that JSON knows stay unchanged. Everything else becomes an object with one tag, such as
``{"tuple": [...]}`` or ``{"array": "C"}``. The name of an array in the file is the path of its
value in the model, so a file cannot use one array twice.
"""

import functools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from mixupe_sklearn._persistence.file_format import parse

# A longer list of atoms becomes an array.
_SHORT = 16
# Elements that lists of a file may have, beyond one for 16 bytes of it: each takes about 40 bytes.
_MAX_ITEMS = 2**20
# Hashes of large integers can be made equal on purpose, and a dict then compares all of them.
_LARGE_KEY, _MAX_LARGE_KEYS = 2**60, 1000
_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
# What an array of objects may hold: the name of the type, and the value of its text.
_ATOMS: tuple[tuple[type, Callable[[str], Any]], ...] = (
    *((str, str), (type(None), lambda _: None), (bool, "True".__eq__), (int, int), (float, float)),
)
_TYPES = {kind.__name__: kind for kind in (bool, float, int, object, str)}
_MT19937_WORDS = 624


class Writer:
    """Turns values into JSON, and collects their arrays.

    Parameters
    ----------
    describe : callable
        Returns the JSON of a value that is not plain, or raises.

    Examples
    --------
    >>> writer = Writer(describe=None)
    >>> writer.plain({"a": (1, float("nan")), 2: np.ones(2)}, "x")
    {'pairs': [['a', {'tuple': [1, {'float': 'nan'}]}], [2, {'array': 'C'}]]}
    >>> list(writer.arrays)
    ['x.2']
    """

    def __init__(self, describe: Callable[["Writer", Any, str], Any]):
        self.describe = describe
        self.arrays: dict[str, np.ndarray] = {}
        self._inside: list[int] = []

    def plain(self, value: Any, path: str) -> Any:
        """JSON of a value; ``path`` is its place, for the names of its arrays and for errors."""
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": str(value)}
        if id(value) in self._inside:
            raise ValueError(f"Got {path}, which contains itself, but expected a tree of values.")
        self._inside.append(id(value))
        try:
            return self._other(value, path)
        finally:
            self._inside.pop()

    def json(self, value: Any, path: str) -> Any:
        """Keep the JSON of a value as an array, for values that may be long."""
        text = json.dumps(self.plain(value, path), separators=(",", ":")).encode()
        self._add(path, np.frombuffer(text, np.uint8))
        return {"json": True}

    def _other(self, value: Any, path: str) -> Any:
        if type(value) in (list, tuple):
            if type(value) is list and len(value) > _SHORT and _are_atoms(value):
                return {"list": self._keep(_column(value), path)}
            items = [self.plain(item, f"{path}.{n}") for n, item in enumerate(value)]
            return items if type(value) is list else {"tuple": items}
        if isinstance(value, dict) and type(value).__module__ in ("builtins", "collections"):
            if all(type(key) is str for key in value):
                return {"dict": {key: self.plain(value[key], f"{path}.{key}") for key in value}}
            pairs = [[self.plain(k, path), self.plain(value[k], f"{path}.{k}")] for k in value]
            return {"pairs": pairs}
        if isinstance(value, np.ma.MaskedArray):
            inner = {"data": value.data, "mask": np.ma.getmaskarray(value)}
            marks = {name: self._keep(part, f"{path}.{name}") for name, part in inner.items()}
            return {"masked": marks, "fill": self.plain(value.fill_value, path)}
        if isinstance(value, np.ndarray):
            return self._keep(value, path)
        if isinstance(value, np.generic) and value.dtype.kind in "biufUmM":
            plain = int(value.view("i8")) if value.dtype.kind in "mM" else value.item()
            dtype = "U" if value.dtype.kind == "U" else value.dtype.str
            return {"scalar": dtype, "value": self.plain(plain, path)}
        if isinstance(value, torch.Tensor):
            self._add(path, as_array(value))
            return {"tensor": str(value.dtype).removeprefix("torch.")}
        if isinstance(value, np.dtype):
            return {"dtype": value.str}
        if isinstance(value, type) and (issubclass(value, np.generic) or value in _TYPES.values()):
            return {"type": value.__name__}
        if type(value) is slice:
            parts = (value.start, value.stop, value.step)
            return {"slice": [self.plain(part, path) for part in parts]}
        if isinstance(value, np.random.RandomState):
            state = value.get_state(legacy=False)
            if state["bit_generator"] == "MT19937":
                inner = state["state"]
                own = [inner["key"], int(inner["pos"]), state["has_gauss"], state["gauss"]]
                return {"random_state": self.plain(own, path)}
        return self.describe(self, value, path)

    def _keep(self, array: np.ndarray, path: str) -> Any:
        """Keep an array, and return its JSON."""
        kind, order = array.dtype.kind, "C"
        if kind == "O" or kind == "T":
            codes, text = _encode_atoms(array.ravel().tolist(), path)
            self._add(f"{path}.text", text)
            self._add(path, codes)
            return {"objects": list(array.shape), "kind": kind}
        if (kind not in "biufSUmM" or array.dtype.itemsize > 8) and kind not in "SU":
            raise unknown(f"{path} of type {array.dtype}")
        # The memory order of a matrix affects the last bit of its products.
        if array.flags.f_contiguous and not array.flags.c_contiguous:
            array, order = array.T, "F"
        array = np.ascontiguousarray(array).reshape(array.shape)
        if kind in "biuf":
            self._add(path, array)
            return {"array": order}
        array = array.astype(array.dtype.newbyteorder("="))
        plain = {"U": "u4", "S": "u1"}.get(kind, "i8")
        wide = array.reshape(*array.shape, 1)
        self._add(path, wide.view(plain) if array.size else np.empty(array.shape, "u1"))
        return {"array": order, "view": array.dtype.str}

    def _add(self, path: str, array: np.ndarray) -> None:
        if path in self.arrays:
            raise ValueError(f"Got two values with the name {path}, but expected one.")
        self.arrays[path] = array


class Reader:
    """Turns JSON and arrays into values; raises if they are inconsistent.

    Parameters
    ----------
    arrays : dict of arrays
        The arrays of the file. Each is taken out once.
    find : callable
        Takes a JSON object with the tag ``"name"``, ``"class"`` or ``"select"``, its path, and the
        kinds of things that may be there; returns the thing.
    """

    def __init__(
        self, arrays: dict[str, np.ndarray], find: Callable[[Any, str, Iterable[str]], Any]
    ):
        self.arrays = arrays
        self.find = find
        self._n_items = _MAX_ITEMS + sum(array.nbytes for array in arrays.values()) // 16
        self._tags: dict[str, Callable[[Mapping[str, Any], str, Iterable[str]], Any]] = {
            "float": lambda value, *_: _FLOATS[value["float"]],
            "tuple": lambda value, path, kinds: tuple(self.plain(value["tuple"], path, kinds)),
            "dict": self._dict,
            "pairs": self._pairs,
            "list": self._list,
            "array": self._array,
            "objects": self._array,
            "masked": self._masked,
            "scalar": self._scalar,
            "tensor": lambda value, path, _: as_tensor(self.take(path), value["tensor"]),
            "dtype": lambda value, *_: _dtype(value["dtype"], "biufOSUmM", 64),
            "type": lambda value, *_: _type(value["type"]),
            "slice": lambda value, path, _: slice(*map(_index, value["slice"])),
            "random_state": self._random_state,
            "json": lambda _, path, kinds: self.plain(
                parse(self.take(path).tobytes()), path, kinds
            ),
        }

    def plain(self, value: Any, path: str, kinds: Iterable[str] = ()) -> Any:
        """The value of a piece of JSON. ``kinds`` of things may be in it that are not plain."""
        if isinstance(value, list):
            return [self.plain(item, f"{path}.{n}", kinds) for n, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        tag = next(iter(value), None)
        if tag in self._tags:
            return self._tags[tag](value, path, kinds)
        return self.find(value, path, kinds)

    def take(self, path: str) -> np.ndarray:
        """An array of the file; nothing else can have it."""
        if path not in self.arrays:
            raise ValueError(f"has no array {path!r}")
        return np.array(self.arrays.pop(path))  # the library may return read-only memory

    def _dict(self, value: Any, path: str, kinds: Iterable[str]) -> dict[str, Any]:
        return {k: self.plain(item, f"{path}.{k}", kinds) for k, item in value["dict"].items()}

    def _pairs(self, value: Any, path: str, kinds: Iterable[str]) -> dict[Any, Any]:
        pairs = [(self.plain(key, path), item) for key, item in value["pairs"]]
        check_keys([key for key, _ in pairs])
        return {key: self.plain(item, f"{path}.{key}", kinds) for key, item in pairs}

    def _list(self, value: Any, path: str, _: Any) -> list[Any]:
        items = self._array(value["list"], path, _)
        self._n_items -= items.size
        if self._n_items < 0 or items.ndim != 1:
            raise ValueError("has lists with more items than the size of the file allows")
        return items.tolist()

    def _array(self, value: Any, path: str, _: Any) -> np.ndarray:
        found = self.take(path)
        if "objects" in value:
            items = np.array([*_decode_atoms(found, self.take(f"{path}.text")), None], dtype=object)
            if math.prod(value["objects"]) != len(items) - 1 or value["kind"] not in ("O", "T"):
                raise ValueError("has an array whose shape does not match its items")
            items = items[:-1].reshape(value["objects"])
            return items.astype(np.dtypes.StringDType()) if value["kind"] == "T" else items
        if "view" in value:
            dtype = _dtype(value["view"], "USmM")
            expected = {"U": "u4", "S": "u1"}.get(dtype.kind, "i8") if found.size else "u1"
            if found.dtype != expected or (dtype.kind == "U" and found.max(initial=0) > 0x10FFFF):
                raise ValueError("has text with characters that do not exist")
            found = found.view(dtype)[..., 0] if found.size else np.empty(found.shape, dtype)
        return found.T if value["array"] == "F" else found

    def _masked(self, value: Any, path: str, _: Any) -> np.ndarray:
        data, mask = (self._array(value["masked"][k], f"{path}.{k}", _) for k in ("data", "mask"))
        return np.ma.MaskedArray(
            data, mask.astype(bool), fill_value=self.plain(value["fill"], path)
        )

    def _scalar(self, value: Any, path: str, _: Any) -> Any:
        dtype, plain = _dtype(value["scalar"], "biufUmM"), self.plain(value["value"], path)
        expected = str if dtype == "U" else int if dtype.kind in "mM" else (bool, int, float)
        if not isinstance(plain, expected) or dtype.itemsize > 8:
            raise ValueError(f"has a number of the type {dtype.str!r}")
        return np.array([plain]).astype(dtype)[0]

    def _random_state(self, value: Any, path: str, _: Any) -> np.random.RandomState:
        key, pos, has_gauss, gauss = self.plain(value["random_state"], path)
        is_state = np.shape(key) == (_MT19937_WORDS,) and np.any(key)  # zeros repeat for ever
        if not is_state or not 0 <= _index(pos) <= _MT19937_WORDS:
            raise ValueError("has a generator without a state, or a position beyond its buffer")
        rng = np.random.RandomState(0)
        rng.set_state(("MT19937", key.astype(np.uint32), pos, has_gauss, gauss))
        return rng


def unknown(what: str) -> ValueError:
    """The error of a value that cannot be saved."""
    return ValueError(
        f"Got {what}, which save does not know, but expected numbers, text, arrays, and lists and "
        f"dicts of these; try pickle."
    )


def check_keys(keys: Iterable[Any]) -> None:
    """Raise unless a dict can have these keys: text and numbers, few of them large."""
    keys = [key.item() if isinstance(key, np.generic) else key for key in keys]
    n_large = sum(type(key) is int and abs(key) >= _LARGE_KEY for key in keys)
    if n_large > _MAX_LARGE_KEYS or not _are_atoms(keys):
        raise ValueError("has keys other than text and numbers, or too many large numbers")


def as_array(tensor: torch.Tensor) -> np.ndarray:
    """A tensor as an array; numpy has no bfloat16, whose bits become integers."""
    tensor = tensor.detach().cpu().contiguous()
    return (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def as_tensor(array: np.ndarray, dtype: str) -> torch.Tensor:
    """The inverse of ``as_array``; ``dtype`` only says whether integers are bits of bfloat16."""
    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if dtype == "bfloat16" else tensor


def table_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The columns of a list of dicts, such as a history, as lists; ``rows_of`` is the inverse.

    Examples
    --------
    >>> table = table_of([{"loss": 1.0}, {"loss": 0.5, "is_best": True}])
    >>> table["columns"], table["rows"], rows_of(table)[1]
    ({'loss': [1.0, 0.5], 'is_best': [True]}, {'is_best': [1]}, {'loss': 0.5, 'is_best': True})
    """
    columns: dict[str, list[Any]] = {}
    where: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        for key, value in row.items():
            plain = value.item() if isinstance(value, np.generic) else value
            columns.setdefault(key, []).append(plain)
            where.setdefault(key, []).append(number)
    places = {key: own for key, own in where.items() if len(own) < len(rows)}
    return {"n_rows": len(rows), "columns": columns, "rows": places}


def rows_of(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The list of dicts of a table."""
    n_rows = len(next(iter(table["columns"].values()), ()))
    n_rows = table["n_rows"] if table["rows"] or n_rows == table["n_rows"] else n_rows
    n_items = sum(map(len, table["columns"].values()))
    if not 0 <= n_rows <= n_items + 1:
        raise ValueError("has a table with more rows than values")
    rows: list[dict[str, Any]] = [{} for _ in range(n_rows)]
    for key, values in table["columns"].items():
        places = table["rows"].get(key, range(n_rows))
        for place, value in zip(places, values, strict=True):
            rows[_index(place)][key] = value
    return rows


def _are_atoms(values: Iterable[Any]) -> bool:
    return {type(value) for value in values} <= {kind for kind, _ in _ATOMS}


def _column(values: list[Any]) -> np.ndarray:
    """A list of atoms as an array: of numbers if all are of one type, else of objects."""
    kinds = {type(value) for value in values}
    if kinds in ({float}, {bool}) or (kinds == {int} and max(map(abs, values)) < 2**63):
        return np.array(values)
    return np.array([*values, None], dtype=object)[:-1]


def _encode_atoms(items: list[Any], path: str) -> tuple[np.ndarray, np.ndarray]:
    """The number of the type and the end of the text of each item, and all texts together."""
    names = [kind for kind, _ in _ATOMS]
    items = [item.item() if isinstance(item, np.generic) else item for item in items]
    odd = next((item for item in items if type(item) not in names), None)
    if odd is not None:
        raise unknown(f"{path} with an item of type {type(odd).__name__}")
    texts = [str(item).encode(errors="surrogatepass") for item in items]
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    codes = np.array([names.index(type(item)) for item in items], dtype=np.int64)
    return np.stack([codes, ends], axis=1), np.frombuffer(b"".join(texts), np.uint8)


def _decode_atoms(codes: np.ndarray, text: np.ndarray) -> list[Any]:
    if codes.dtype != np.int64 or codes.shape[1:] != (2,) or text.dtype != np.uint8:
        raise ValueError("has an array of objects of another form")
    whole, start, items = text.tobytes(), 0, []
    for code, end in codes.tolist():
        if not (0 <= code < len(_ATOMS) and start <= end <= len(whole)):
            raise ValueError("has an array of objects with items beyond its text")
        items.append(_ATOMS[code][1](whole[start:end].decode(errors="surrogatepass")))
        start = end
    check_keys(items)
    return items


def _index(value: Any) -> Any:
    if value is not None and type(value) is not int:
        raise ValueError(f"has {value!r} in place of an index")
    return value


def _dtype(name: Any, kinds: str, largest: int = 2**31) -> np.dtype:
    dtype = np.dtype(name) if isinstance(name, str) else None
    if dtype is None or dtype.kind not in kinds or dtype.itemsize > largest or dtype.subdtype:
        raise ValueError(f"has an array or number of the type {name!r}")
    return dtype


@functools.cache
def _type(name: str) -> type:
    found = _TYPES.get(name) or getattr(np, name, None)
    if not (isinstance(found, type) and (name in _TYPES or issubclass(found, np.generic))):
        raise ValueError(f"has the unknown type {name!r}")
    return found
