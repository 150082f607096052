"""Read arrays from untrusted pickles, which could name any function to call."""

import pickle  # nosec B403 # its reader, restricted to a short list of names
import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

# The array types of published datasets: numbers, and text of a fixed width.
TYPE = re.compile(r"[|<>=]?(b1|[iu][1248]|f[248]|[SU]\d{1,4})")


class RefusedError(ValueError):
    """A pickle names something other than arrays."""


class _Type:
    """Replaces ``numpy.dtype``, whose shared instances a damaged pickle could corrupt."""

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
    """Replaces ``numpy.ndarray``. The array is built from its bytes at the end."""

    def __init__(self, *_: Any):
        self.values: np.ndarray | None = None

    def __setstate__(self, state: tuple) -> None:
        _, shape, kind, is_fortran, content = state
        self.values = _from_buffer(content, kind, shape, "F" if is_fortran else "C").values


def _from_buffer(content: bytes, kind: _Type, shape: tuple, order: Any, *_: Any) -> _Array:
    array = _Array()
    array.values = np.frombuffer(content, kind.name).reshape(shape, order=order).copy()
    return array


def _as_bytes(text: str, encoding: str) -> bytes:
    """Replaces ``_codecs.encode``, by which old pickles encode bytes."""
    if encoding != "latin1":
        raise RefusedError(f"the encoding {encoding!r}")
    return text.encode("latin1")


# The names in a pickle of arrays.
ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): None,  # only named, as the first argument of the next
    ("numpy", "dtype"): _Type,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
    ("_codecs", "encode"): _as_bytes,
}


class _ArraysOnly(pickle._Unpickler):
    """Unpickles arrays, text, numbers, lists and dicts, and refuses all other names.

    It derives from the unpickler in Python, because the one in C allocates gigabytes for a large
    memo index in a damaged file.
    """

    def load_build(self) -> None:
        """Set the state of our own objects only: a name could be a function of the library."""
        if not isinstance(self.stack[-2], _Type | _Array):  # type: ignore[attr-defined]
            raise RefusedError(f"a state of {type(self.stack[-2]).__name__}")  # type: ignore[attr-defined]
        super().load_build()  # type: ignore[misc]

    dispatch: ClassVar[dict[int, Any]] = {**pickle._Unpickler.dispatch, pickle.BUILD[0]: load_build}

    def find_class(self, module: str, name: str) -> Any:
        """The replacement for an allowed name."""
        module = module.replace("numpy.core", "numpy._core")  # its name before numpy 2
        if (module, name) not in ALLOWED:
            raise RefusedError(f"{module}.{name}")
        return ALLOWED[module, name]


def unpickle_arrays(path: Path, title: str, address: str) -> dict[bytes, Any]:
    """Read the dict in a pickle of arrays and text. Text of Python 2 is bytes."""
    try:
        with path.open("rb") as file:
            content = _ArraysOnly(file, encoding="bytes").load()
    except RefusedError as error:
        raise RefusedError(
            f"Got {str(path)!r}, a pickle that names {error}, but expected arrays and text "
            f"only; download it from {address}."
        ) from error
    except Exception as error:  # a damaged pickle can raise anything
        raise ValueError(
            f"Got {str(path)!r}, but expected an intact file of {title} ({error}); unpack it again."
        ) from error
    if not isinstance(content, dict):
        raise ValueError(f"Got {str(path)!r}, but expected a dict, as in {title}.")
    return {
        key: value.values if isinstance(value, _Array) else value for key, value in content.items()
    }
