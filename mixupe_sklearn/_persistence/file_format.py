"""The file format of a saved model: safetensors, with JSON text in its header and a checksum.

Other programs can read the arrays as safetensors. The JSON text in the header describes the model.
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
FORMAT_VERSION = 2
# Bytes of the header, and values in a JSON text: each takes up to a hundred bytes when it is read.
MAX_HEADER, MAX_VALUES = 2**21, 2**17
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
    """The content of a file: its format, who wrote it, with which libraries, and the model."""

    format_version: int
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
    n_header = int.from_bytes(data[:8], "little")
    if (
        n_header > MAX_HEADER
        or max(_n_values(text), _n_values(data[8 : 8 + n_header])) > MAX_VALUES
    ):
        raise ValueError(
            f"Got a model with {len(arrays)} arrays and a description of {len(text)} characters, "
            f"but expected fewer, since load reads a header of up to {MAX_HEADER} bytes; try "
            f"keep_training=False or pickle."
        )
    return _with_checksum(data, hashlib.sha256(data).hexdigest())


def unpack(
    data: bytes, name: str, reader: str, formats: tuple[int, ...] = (FORMAT_VERSION,)
) -> Content:
    """Check the bytes of a file and return its content; raises a ValueError if they are bad."""
    about = _read_header(data, name)
    _check_version(about, name, reader, formats)
    found = _CHECKSUM.search(data)
    unsigned = _with_checksum(data, _UNSIGNED)
    if found is None or hashlib.sha256(unsigned).hexdigest().encode() != found[1]:
        refuse(name, "is damaged (its checksum does not match its content)")
    del unsigned
    try:
        versions, arrays = dict(about["versions"]), safetensors.numpy.load(data)
    except (safetensors.SafetensorError, KeyError, ValueError, TypeError) as error:
        refuse(name, f"has content that cannot be read ({printable(str(error))})")
    version, written_by = about["format_version"], printable(about["written_by"])
    return Content(version, written_by, versions, about.get("model"), arrays)


def refuse(name: str, why: str) -> NoReturn:
    """Raise a ValueError that names the file and the reason."""
    raise ValueError(f"Got {name}, which {why}, but expected {EXPECTED}.") from None


def printable(text: str, length: int = 200) -> str:
    r"""Return text of a file for an error: one line, without characters that control a terminal.

    Examples
    --------
    >>> printable("a \x1b[31m red\nline")
    'a \\x1b[31m red line'
    """
    line = " ".join(text.split())[:length]
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in line)


def parse(text: Any) -> Any:
    """Parse JSON text of a file, in which empty lists could take fifty times their length."""
    if _n_values(text) > MAX_VALUES:
        raise ValueError(f"has more than {MAX_VALUES} values in a JSON text")
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"contains {word}")


def _n_values(text: Any) -> int:
    return sum(text.count(sign if isinstance(text, str) else sign.encode()) for sign in "[{,:")


def _read_header(data: bytes, name: str) -> dict[str, Any]:
    n_header = int.from_bytes(data[:8], "little")
    if len(data) < 8 or n_header > len(data) - 8:
        kind = next((kind for start, kind in _OTHERS if data.startswith(start)), None)
        refuse(name, f"is {kind}" if kind else "is not a safetensors file, or is truncated")
    if n_header > MAX_HEADER:
        refuse(name, f"has a header of {n_header} bytes")
    try:
        about = parse(parse(data[8 : 8 + n_header])["__metadata__"][ENTRY])
        if isinstance(about["written_by"], str) and type(about["format_version"]) is int:
            return about
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        why = "has no header of a saved model"
        refuse(name, f"{why} ({printable(str(error))})" if type(error) is ValueError else why)
    refuse(name, "has no header of a saved model")


def _check_version(
    about: Mapping[str, Any], name: str, reader: str, formats: tuple[int, ...]
) -> None:
    version, written_by = about["format_version"], printable(about["written_by"], 40)
    if version in formats:
        return
    if 1 <= version < FORMAT_VERSION:
        raise ValueError(
            f"Got {name}, which mixupe-sklearn {written_by} has written in format {version}, but "
            f"expected format {FORMAT_VERSION}: if you trust the file, convert it by "
            f"'python -m mixupe_sklearn.persistence convert OLD NEW'."
        )
    raise ValueError(
        f"Got {name}, which mixupe-sklearn {written_by} has written in format {version}, but "
        f"expected a format up to {FORMAT_VERSION}, which is what version {reader} reads: update "
        f"mixupe-sklearn."
    )


def _with_checksum(data: bytes, checksum: str) -> bytes:
    return _CHECKSUM.sub(rb'\\"sha256\\":\\"' + checksum.encode() + rb'\\"', data, count=1)
