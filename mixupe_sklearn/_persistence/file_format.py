"""The file format of a saved model: safetensors, with JSON text in its header and a checksum.

Other programs can read the arrays as safetensors. The JSON text in the header describes the arrays.
The checksum covers every byte of the file. safetensors has none, so a damaged weight would give
wrong predictions instead of an error.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np
import safetensors
import safetensors.numpy

# Our entry in the header.
ENTRY = "mixupe_sklearn"
# Increased whenever older versions cannot read a new file.
FORMAT_VERSION = 1
_UNSIGNED = "0" * 64
# The checksum as the file holds it: JSON text inside JSON text. No other text of the file matches,
# since its quotation marks would have more backslashes.
_CHECKSUM = re.compile(rb'\\"sha256\\":\\"([0-9a-f]{64})\\"')
# First bytes of other files that users may pass.
_OTHERS = (
    (b"\x80", "a pickle"),
    (b"PK", "a zip archive, as torch.save and skops write"),
)
EXPECTED = "a file that mixupe_sklearn.save has written"


class Content(NamedTuple):
    """The content of a file: who wrote it, with which libraries, and the model."""

    written_by: str
    versions: dict[str, str]
    model: Any
    arrays: dict[str, np.ndarray]


def pack(
    model: Any, arrays: Mapping[str, np.ndarray], written_by: str, versions: Mapping[str, str]
) -> bytes:
    """Make the bytes of a file; equal models give equal bytes."""
    text = json.dumps(
        {
            "sha256": _UNSIGNED,
            "format_version": FORMAT_VERSION,
            "written_by": written_by,
            "versions": dict(versions),
            "model": model,
        },
        separators=(",", ":"),
        allow_nan=False,
    )
    data = safetensors.numpy.save(dict(arrays), metadata={ENTRY: text})
    return _with_checksum(data, hashlib.sha256(data).hexdigest())


def unpack(data: bytes, name: str, reader: str) -> Content:
    """Check the bytes of a file and return its content; raises a ValueError if they are bad."""
    about = _read_header(data, name)
    _check_version(about, name, reader)
    found = _CHECKSUM.search(data)
    unsigned = _with_checksum(data, _UNSIGNED)
    if found is None or hashlib.sha256(unsigned).hexdigest().encode() != found[1]:
        refuse(name, "is damaged (its checksum does not match its content)")
    try:
        versions, arrays = dict(about["versions"]), safetensors.numpy.load(data)
    except (safetensors.SafetensorError, KeyError, ValueError, TypeError) as error:
        refuse(name, f"has content that cannot be read ({error})")
    # The library may return views of read-only memory.
    arrays = {key: np.array(value) for key, value in arrays.items()}
    return Content(about["written_by"], versions, about.get("model"), arrays)


def refuse(name: str, why: str) -> NoReturn:
    """Raise a ValueError that names the file and the reason."""
    raise ValueError(f"Got {name}, which {why}, but expected {EXPECTED}.") from None


def _read_header(data: bytes, name: str) -> dict[str, Any]:
    n_header = int.from_bytes(data[:8], "little")
    if len(data) < 8 or n_header > len(data) - 8:
        kind = next((kind for start, kind in _OTHERS if data.startswith(start)), None)
        refuse(name, f"is {kind}" if kind else "is not a safetensors file, or is truncated")
    try:
        header = json.loads(data[8 : 8 + n_header])
        text = header["__metadata__"][ENTRY]
        about = json.loads(text, parse_constant=lambda word: refuse(name, f"contains {word}"))
        if isinstance(about["written_by"], str) and type(about["format_version"]) is int:
            return about
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    refuse(name, "has no header of a saved model")


def _check_version(about: Mapping[str, Any], name: str, reader: str) -> None:
    version = about["format_version"]
    if not 1 <= version <= FORMAT_VERSION:
        raise ValueError(
            f"Got {name}, which mixupe-sklearn {about['written_by'][:40]} has written in format "
            f"{version}, but expected a format up to {FORMAT_VERSION}, which is what version "
            f"{reader} reads: update mixupe-sklearn."
        )


def _with_checksum(data: bytes, checksum: str) -> bytes:
    return _CHECKSUM.sub(rb'\\"sha256\\":\\"' + checksum.encode() + rb'\\"', data, count=1)
