"""Decompress files in memory, with a limit on their size.

Nothing is written to the disk, so no name within an archive becomes a path.
"""

import bz2
import gzip
import lzma
import zipfile
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

# Tables are compressed about ten times. A file that exceeds both limits is a decompression bomb.
MAX_RATIO, ALWAYS_ALLOWED = 100, 2**28
CHUNK_BYTES = 2**20
OPENERS: dict[str, Callable] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
DAMAGED: tuple[type[Exception], ...] = (EOFError, RuntimeError, zlib.error, lzma.LZMAError)
DAMAGED += (zipfile.BadZipFile, OSError)


def check_growth(n_bytes: int, path: Path) -> None:
    """Refuse a decompressed size far above the size of the file."""
    if n_bytes > max(ALWAYS_ALLOWED, MAX_RATIO * path.stat().st_size):
        raise ValueError(
            f"Got path={str(path)!r}, which decompresses to at least {n_bytes:,} bytes, but "
            f"expected at most {MAX_RATIO} times its size; unpack the file if it is intact."
        )


def decompressed(path: Path) -> bytes:
    """The bytes of a file, decompressed according to its suffix."""
    kind = path.suffix.lower()
    if kind == ".zip":
        with zipfile.ZipFile(path) as archive:
            return _read(archive.open(_only_member(archive, path)), path)
    if kind in OPENERS:
        return _read(OPENERS[kind](path, "rb"), path)
    return path.read_bytes()


def _only_member(archive: zipfile.ZipFile, path: Path) -> str:
    # Archives from macOS hold a hidden copy of each file.
    names = [name for name in archive.namelist() if not name.startswith("__MACOSX/")]
    members = [name for name in names if not name.endswith("/")]
    if len(members) != 1:
        raise ValueError(
            f"Got path={str(path)!r} with {len(members)} files in it, but expected one; unpack "
            f"it and give the file."
        )
    return members[0]


def _read(opened: AbstractContextManager[Any], path: Path) -> bytes:
    # In chunks: the size that an archive declares may be wrong.
    content = bytearray()
    with opened as file:
        while chunk := file.read(CHUNK_BYTES):
            content += chunk
            check_growth(len(content), path)
    return bytes(content)


def short_name(path: Path) -> str:
    """The name of a file without its suffixes."""
    return Path(path.stem).stem if path.suffix.lower() in (*OPENERS, ".zip") else path.stem
