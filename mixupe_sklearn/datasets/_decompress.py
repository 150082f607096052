"""Files that may be compressed, read into memory: no more than such a file can honestly hold.

Nothing is unpacked to the disk, so no name within an archive becomes a path.
"""

import bz2
import gzip
import lzma
import re
import zipfile
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

# Tables shrink to a tenth or so. What grows by more than this, and to more than so many bytes, was
# made to fill a memory.
MOST_GROWTH, ALWAYS_ALLOWED = 100, 2**28
PIECE = 2**20
OPENERS: dict[str, Callable] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
DAMAGED: tuple[type[Exception], ...] = (EOFError, RuntimeError, zlib.error, lzma.LZMAError)
DAMAGED += (zipfile.BadZipFile, OSError)


def check_growth(n_bytes: int, path: Path) -> None:
    """Refuse what a compressed file becomes, if that is out of all proportion.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "small.zip")
    ...     size = path.write_bytes(b"x")
    ...     check_growth(2**28, path)
    """
    if n_bytes > max(ALWAYS_ALLOWED, MOST_GROWTH * path.stat().st_size):
        raise ValueError(
            f"Got path={str(path)!r}, which grows to {n_bytes:,} bytes or more, but expected at "
            f"most {MOST_GROWTH} times its size; if that is right, unpack it and name the file."
        )


def unpacked(path: Path) -> bytes:
    """The bytes of a file, as they were before it was compressed.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "x.csv.gz")
    ...     size = path.write_bytes(gzip.compress(b"a,b"))
    ...     unpacked(path)
    b'a,b'
    """
    kind = path.suffix.lower()
    if kind == ".zip":
        with zipfile.ZipFile(path) as archive:
            return _read(archive.open(_only_member(archive, path)), path)
    if kind in OPENERS:
        return _read(OPENERS[kind](path, "rb"), path)
    return path.read_bytes()


def _only_member(archive: zipfile.ZipFile, path: Path) -> str:
    # Archives from macOS hold a hidden twin of each file.
    is_file = re.compile("(?!__MACOSX/).*[^/]").fullmatch
    members = list(filter(is_file, archive.namelist()))
    if len(members) != 1:
        raise ValueError(
            f"Got path={str(path)!r} with {len(members)} files in it, but expected one; unpack "
            f"it and name the file."
        )
    return members[0]


def _read(opened: AbstractContextManager[Any], path: Path) -> bytes:
    # Piece by piece: an archive's own word on its size may be a lie.
    content = bytearray()
    with opened as file:
        while piece := file.read(PIECE):
            content += piece
            check_growth(len(content), path)
    return bytes(content)


def short_name(path: Path) -> str:
    """The name of a file without its endings.

    Examples
    --------
    >>> short_name(Path("a/b.csv.gz"))
    'b'
    """
    return Path(path.stem).stem if path.suffix.lower() in (*OPENERS, ".zip") else path.stem
