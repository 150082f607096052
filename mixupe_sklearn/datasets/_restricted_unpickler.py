"""Pickles that others made, read without trust: a pickle may name any function to call."""

import pickle  # nosec B403 # its reader, held to a short list of names
import re
from pathlib import Path
from typing import Any

import numpy as np

# The types that arrays of published sets have: numbers, and text of a fixed width.
TYPE = re.compile(r"[|<>=]?(b1|[iu][1248]|f[248]|[SU]\d{1,4})")


class RefusedError(ValueError):
    """A pickle asks for more than arrays."""


class _Type:
    """Stands for numpy's type of an array, which a damaged pickle could leave broken for all."""

    def __init__(self, name: str | bytes, *_: Any):
        self.name = name.decode() if isinstance(name, bytes) else name
        if not TYPE.fullmatch(self.name):
            raise RefusedError(f"the type {name!r}")

    def __setstate__(self, state: tuple) -> None:
        order = state[1].decode() if isinstance(state[1], bytes) else state[1]
        self.name = order + self.name.lstrip("|<>=")
        if not TYPE.fullmatch(self.name):
            raise RefusedError(f"the byte order {order!r}")


class _Array:
    """Stands for an array, and is made one of its own bytes once all has been read."""

    def __init__(self, *_: Any):
        self.values: np.ndarray | None = None

    def __setstate__(self, state: tuple) -> None:
        _, shape, kind, is_fortran, content = state
        self.values = _from_buffer(content, kind, shape, "F" if is_fortran else "C").values


def _from_buffer(content: bytes, kind: _Type, shape: tuple, order: Any, *_: Any) -> _Array:
    array = _Array()
    array.values = np.frombuffer(content, kind.name).reshape(shape, order=order).copy()
    return array


# Of these, arrays are made.
ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): None,  # only named, as the first argument of the next
    ("numpy", "dtype"): _Type,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
}


class _ArraysOnly(pickle._Unpickler):
    """Unpickles arrays, text, numbers, lists and dicts: whatever else is named is refused.

    In Python: the one in C takes gigabytes where a damaged file has a large number of a memo.
    """

    def find_class(self, module: str, name: str) -> Any:
        """What stands for one of the few functions of which arrays are made."""
        module = module.replace("numpy.core", "numpy._core")  # its name before numpy 2
        if (module, name) == ("_codecs", "encode"):
            return _as_bytes
        if (module, name) not in ALLOWED:
            raise RefusedError(f"{module}.{name}")
        return ALLOWED[module, name]


def _as_bytes(text: str, encoding: str) -> bytes:
    """What old pickles call to say bytes."""
    if encoding != "latin1":
        raise RefusedError(f"the encoding {encoding!r}")
    return text.encode("latin1")


def unpickle_arrays(path: Path, title: str, address: str) -> dict[bytes, Any]:
    """The dict in a pickle of arrays and text, with keys as bytes, or one sentence.

    Examples
    --------
    >>> import pathlib, pickle, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "batch"
    ...     size = path.write_bytes(pickle.dumps({"labels": [1, 2]}))
    ...     unpickle_arrays(path, "a set", "an address")
    {b'labels': [1, 2]}
    """
    try:
        with path.open("rb") as file:
            content = _ArraysOnly(file, encoding="bytes").load()
    except RefusedError as error:
        raise RefusedError(
            f"Got {str(path)!r}, a pickle that asks for {error}, but expected arrays and text "
            f"only; get it from {address}."
        ) from error
    except Exception as error:  # damaged pickles raise whatever their bytes happen to mean
        raise ValueError(
            f"Got {str(path)!r}, but expected a whole file of {title} ({error}); unpack it again."
        ) from error
    if not isinstance(content, dict):
        raise ValueError(f"Got {str(path)!r}, but expected a dict, as in {title}.")
    # Keys are text where Python 3 wrote them.
    keys = {key.encode() if isinstance(key, str) else key: key for key in content}
    return {name: _finished(content[key]) for name, key in keys.items()}


def _finished(value: Any) -> Any:
    return value.values if isinstance(value, _Array) else value
