"""Atomic writes: a file is complete or absent, even if the process that writes it is killed."""

import glob
import hashlib
import os
import pathlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

try:
    import fcntl
except ImportError:  # Windows, where partial files of killed writers remain
    fcntl = None  # type: ignore[assignment]

# Hexadecimal digits in the name of a partial file.
N_DIGITS = 16
# Bytes of a file's name that all common file systems accept.
MAX_NAME = 255


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Write to a partial file, then move it to ``path`` once it is complete and on the disk.

    On any error within the block, ``path`` stays unchanged and nothing else remains. A process
    that is killed leaves a hidden partial file, ``.name.<16 hexadecimal digits>.part`` (with the
    start of a long name), which the next writer of the same name removes. Of several concurrent
    writers, the last one wins. Links are followed. An existing file keeps its permissions.
    """
    target = pathlib.Path(os.path.realpath(path))
    _check(target)
    _remove_partials(target)
    file = _open_partial(target)
    try:
        with file:
            if fcntl is not None and target.exists():
                os.fchmod(file.fileno(), target.stat().st_mode & 0o777)
            yield file
            file.flush()
            os.fsync(file.fileno())
            if fcntl is not None:  # while locked, so that no other writer removes it
                os.replace(file.name, target)
        if fcntl is None:
            os.replace(file.name, target)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(file.name)
        raise
    sync_folder(target.parent)


def _check(target: pathlib.Path) -> None:
    """Refuse what ``open`` would refuse, and devices, which must not become files."""
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"Got {str(target)!r}, but expected the name of a file in a folder that exists."
        )
    if target.exists() and not target.is_file():
        raise OSError(f"Got {str(target)!r}, but expected the name of a file.")
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(f"Got {str(target)!r}, but expected a file that can be written.")


def _open_partial(target: pathlib.Path) -> Any:
    """A new file beside the target, locked while it is open."""
    while True:
        name = target.with_name(f".{_stem(target)}.{secrets.token_hex(N_DIGITS // 2)}.part")
        file = name.open("x+b")
        if fcntl is None:
            return file
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        if name.exists():  # else another writer removed it before it was locked
            return file
        file.close()


def _stem(target: pathlib.Path) -> str:
    """The name of the target, or the start of a long one with a checksum."""
    name = os.fsencode(target.name)
    if len(name) <= MAX_NAME - N_DIGITS - len("...part"):
        return target.name
    start = name[: MAX_NAME // 2].decode(errors="ignore")
    return f"{start}.{hashlib.sha256(name).hexdigest()[:N_DIGITS]}"


def _remove_partials(target: pathlib.Path) -> None:
    """Remove the partial files of killed writers; a running writer holds a lock on its own."""
    if fcntl is None:
        return
    digits = "[0-9a-f]" * N_DIGITS
    for partial in target.parent.glob(f".{glob.escape(_stem(target))}.{digits}.part"):
        with suppress(OSError), partial.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            partial.unlink()


def sync_folder(folder: pathlib.Path) -> None:
    """Flush the new name to the disk, if the system can; the content is there already."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
