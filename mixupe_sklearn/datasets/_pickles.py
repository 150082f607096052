"""Pickles that others made, read without trust: a pickle may name any function to call."""

import pickle  # nosec B403 # its reader, held to a short list of names
from importlib import import_module
from pathlib import Path
from typing import Any

# Of these, arrays are made.
ALLOWED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.numeric", "_frombuffer"),
}


class RefusedError(ValueError):
    """A pickle asks for more than arrays."""


class _ArraysOnly(pickle.Unpickler):
    """Unpickles arrays, text, numbers, lists and dicts: whatever else is named is refused."""

    def find_class(self, module: str, name: str) -> Any:
        """One of the few functions of which arrays are made."""
        module = module.replace("numpy.core", "numpy._core")  # its name before numpy 2
        if (module, name) == ("_codecs", "encode"):
            return _as_bytes
        if (module, name) not in ALLOWED:
            raise RefusedError(f"{module}.{name}")
        return getattr(import_module(module), name)


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
    return {key.encode() if isinstance(key, str) else key: content[key] for key in content}
