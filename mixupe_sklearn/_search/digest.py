"""A hash of the content of any value: samples, parameters, functions, objects.

``joblib.hash`` pickles. It distinguishes equal frames by how they were built and equal lists by
which of their items are shared, and takes no lambda. Here equal content has an equal hash in every
process: arrays are hashed by dtype, shape and buffer, columns of Python objects item by item. One
core hashes about 1 GB of numbers, or ten million strings, in a second.
"""

import copyreg
import functools
import hashlib
import marshal
import sys
import types
from collections.abc import Collection, Iterable, Mapping, Set
from typing import Any

import numpy as np
import torch
from scipy import sparse

# Parameters that change speed or place, not the result.
FREE = ("verbose", "n_jobs", "n_threads", "device", "memory")
# Types that marshal writes in one way only: version 2 of its format shares no objects.
_PLAIN = {type(None), bool, int, float, complex, str, bytes}
# Items, or entries of an array, that are hashed at once.
_BLOCK = 2**20
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType)


def digest(value: Any) -> str:
    """A short hash of the content of a value.

    Functions and classes of modules count by name. Those of the main program and local functions,
    such as lambdas, count by their code and by the values that they hold.

    Examples
    --------
    >>> digest(np.arange(3.0)) == digest(np.array([0.0, 1.0, 2.0]))
    True
    >>> digest(np.arange(3.0)) == digest(np.arange(3))
    False
    """
    hasher = _Hasher()
    hasher.add(value)
    return hasher.found.hexdigest()[:16]


def name_of(value: Any) -> str:
    """The full name of a class or function."""
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', value)}"


def parameters_of(estimator: Any) -> dict[str, Any]:
    """What an estimator is: its parameters and other attributes, without speed and callbacks."""
    own = {**getattr(estimator, "__dict__", {}), **estimator.get_params(deep=False)}
    if "_metadata_request" in own:  # which also holds its estimator
        own["_metadata_request"] = own["_metadata_request"]._serialize()
    return {
        name: value
        for name, value in own.items()
        if name not in FREE and not name.startswith("_skl_") and "_callback_" not in name
    }


class _Hasher:
    """Writes values into one hash, each with its type and length, so that no two look alike."""

    def __init__(self) -> None:
        self.found = hashlib.sha256()
        self.path: list[int] = []  # the objects within which the present one lies

    def add(self, value: Any) -> None:
        """Add a value of any kind."""
        if type(value) in _PLAIN:
            self._plain(value)
        elif id(value) in self.path:
            self._tag("itself", len(self.path) - self.path.index(id(value)))
        else:
            self.path.append(id(value))
            self._nested(value)
            self.path.pop()

    def _plain(self, value: Any) -> None:
        self.found.update(marshal.dumps(value, 2))

    def _tag(self, *parts: Any) -> None:
        """Write what follows; as a tuple, which no plain value is."""
        self.found.update(marshal.dumps(parts, 2))

    def _nested(self, value: Any) -> None:
        if isinstance(value, np.generic):
            plain = value.item()
            self.add(np.asarray(value) if isinstance(plain, np.generic) else plain)
        elif isinstance(value, np.ndarray):
            self._array(value)
        elif sparse.issparse(value):
            self._sparse(value)
        elif isinstance(value, torch.Tensor):
            self._tag("tensor", str(value.dtype), *value.shape)
            dense = value.detach().to_dense().cpu().contiguous()
            self._array(dense.reshape(-1).view(torch.uint8).numpy())
        elif hasattr(value, "iter_columns") or hasattr(value, "iloc"):
            self._frame(value)
        elif hasattr(value, "dtype") and hasattr(value, "to_numpy"):  # an index, a polars series
            self._column(value)
        elif isinstance(value, (list, tuple)):
            self._items(type(value).__name__, value)
        elif isinstance(value, Set):
            self._items(type(value).__name__, sorted(map(digest, value)))
        elif isinstance(value, Mapping):
            pairs = sorted((digest(key), key) for key in value)
            self._items(type(value).__name__, [digest for digest, _ in pairs])
            for _, key in pairs:
                self.add(value[key])
        elif isinstance(value, (type, types.ModuleType)):
            self._tag(name_of(value) if isinstance(value, type) else value.__name__)
        elif isinstance(value, _FUNCTIONS):
            self._function(value)
        elif isinstance(value, types.MethodType):
            self._items("method", [value.__self__, value.__name__])
        elif isinstance(value, functools.partial):
            self._items("partial", [value.func, value.args, value.keywords])
        elif isinstance(value, types.CodeType):
            self._items("code", [value.co_code, value.co_names, value.co_consts])
        elif hasattr(value, "get_params"):
            self._items(name_of(type(value)), [parameters_of(value)])
        else:
            self._object(value)

    def _items(self, kind: str, items: Collection[Any]) -> None:
        """Add items in their order; plain ones many at once."""
        self._tag(kind, len(items))
        if set(map(type, items)) <= _PLAIN:
            items = list(items)
            for start in range(0, len(items), _BLOCK):
                self._plain(items[start : start + _BLOCK])
        else:
            for item in items:
                self.add(item)

    def _array(self, values: np.ndarray) -> None:
        self._tag("array", values.dtype.str, str(values.dtype), *values.shape)
        if isinstance(values, np.ma.MaskedArray):
            self._array(np.ma.getmaskarray(values))
            values = values.data
        if values.dtype.hasobject:
            self._items("objects", values.ravel().tolist())
        else:
            for block in _blocks(values):
                self.found.update(np.ascontiguousarray(block).reshape(-1).view(np.uint8).data)

    def _sparse(self, values: Any) -> None:
        # The same entries may be stored in several formats and orders.
        rows = sparse.csr_array(values, copy=True)
        rows.sum_duplicates()
        self._tag("sparse", *rows.shape)
        self._array(rows.data)
        for index in (rows.indices, rows.indptr):
            self._array(index.astype(np.int64))

    def _frame(self, frame: Any) -> None:
        """Add the columns of a pandas or polars frame, or a series: its index does not count."""
        columns = columns_of(frame)
        self._items("columns", [name for name, _ in columns])
        for _, column in columns:
            self._column(column)

    def _column(self, column: Any) -> None:
        dtype = column.dtype
        self._tag("column", str(dtype), len(column))
        kind = getattr(getattr(dtype, "numpy_dtype", dtype), "kind", "")
        if isinstance(dtype, np.dtype):
            self._array(column.to_numpy())
        elif hasattr(column, "null_count"):  # polars
            if dtype.is_numeric() and not column.null_count():
                self._array(column.to_numpy())
            else:
                self._items("objects", column.to_list())
        elif str(dtype) == "category":
            self._column(dtype.categories)
            self._tag(bool(dtype.ordered))
            self._array(np.asarray(getattr(column, "cat", column).codes))
        elif hasattr(getattr(column, "array", column), "asi8"):  # times with a zone, periods
            self._array(getattr(column, "array", column).asi8)
        elif kind and kind in "biuf":  # numbers with a mask
            self._array(np.asarray(column.isna()))
            self._array(column.to_numpy(dtype=dtype.numpy_dtype, na_value=0))
        else:
            self._items("objects", column.to_numpy(dtype=object).tolist())

    def _function(self, function: Any) -> None:
        self._tag(name_of(function))
        code = getattr(function, "__code__", None)
        if code is None or _is_of_module(function):
            return
        held = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
        self._items("function", [code, function.__defaults__, function.__kwdefaults__, held])

    def _object(self, value: Any) -> None:
        """Add an object by what pickle would store; by its type if it stores nothing."""
        self._tag(name_of(type(value)))
        try:
            reduce = copyreg.dispatch_table.get(type(value))
            stored = value.__reduce_ex__(4) if reduce is None else reduce(value)
        except Exception:  # a lock, a generator
            return
        if isinstance(stored, str):
            self._tag(stored)
            return
        make, arguments, *rest = stored
        self._items("object", [make, arguments, *map(_listed, rest)])


def _listed(part: Any) -> Any:
    return list(part) if hasattr(part, "__next__") else part


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is cell.cell_contents
    except ValueError:  # a name that is not bound yet
        return False


def _is_of_module(function: Any) -> bool:
    """Whether a function is found by its name in an imported module."""
    found: Any = sys.modules.get(function.__module__)
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is function and function.__module__ != "__main__"


def _blocks(values: np.ndarray) -> Iterable[np.ndarray]:
    """Parts along the first axis: a table that is stored by columns is not copied as a whole."""
    if values.size == 0 or values.dtype.itemsize == 0:
        return []
    if values.flags.c_contiguous:
        return [values]
    n_rows = max(1, _BLOCK // (values.size // len(values)))
    return (values[start : start + n_rows] for start in range(0, len(values), n_rows))


def columns_of(frame: Any) -> list[tuple[Any, Any]]:
    """Names and columns of a pandas or polars frame; a series is a frame of one column."""
    if hasattr(frame, "iter_columns"):
        return [(column.name, column) for column in frame.iter_columns()]
    return list(frame.items()) if hasattr(frame, "columns") else [(frame.name, frame)]
