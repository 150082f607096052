"""Files that are there whole or not at all, whatever happens to the process that writes them."""

import glob
import os
import pathlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

try:
    import fcntl
except ImportError:  # Windows, where pieces of killed writers are left lying
    fcntl = None  # type: ignore[assignment]

# Letters in the name of a piece, by which it is known.
N_LETTERS = 16


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    r"""Write a file aside, and put it in the place of ``path`` when it is whole and on the disk.

    On any error within the block, ``path`` stays as it was and nothing else is left. A process
    that is killed leaves a hidden piece, ``.name.<16 hexadecimal digits>.part``, which the next
    writer of the same name removes. Of several writers at once the last one stays, whole.

    Parameters
    ----------
    path : path
        The file. A link is followed. A file that is there hands on its permissions; a new one has
        those that the process gives its files.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "table.csv")
    ...     with replacing(path) as file:
    ...         n_bytes = file.write("a,b\n".encode())
    ...     path.read_text()
    'a,b\n'
    """
    target = pathlib.Path(os.path.realpath(path))
    _check(target)
    _clear_pieces(target)
    file = _open_piece(target)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if fcntl is not None:  # while the lock holds: nobody takes it for a dead one's
                os.replace(file.name, target)
        if fcntl is None:
            os.replace(file.name, target)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(file.name)
        raise
    sync_folder(target.parent)


def _check(target: pathlib.Path) -> None:
    """Refuse what opening a file would refuse, and devices, which must not become files."""
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"Got {str(target)!r}, but expected the name of a file in a folder that is there."
        )
    if target.exists() and not target.is_file():
        raise OSError(f"Got {str(target)!r}, but expected the name of a file.")
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(f"Got {str(target)!r}, but expected a file that can be written.")


def _open_piece(target: pathlib.Path) -> Any:
    """A new file beside the target, locked for as long as it is open."""
    while True:
        name = target.with_name(f".{target.name}.{secrets.token_hex(N_LETTERS // 2)}.part")
        file = name.open("x+b")
        try:
            if fcntl is None:
                return file
            with suppress(OSError):  # a disk without locks: none can be had by others either
                fcntl.flock(file, fcntl.LOCK_EX)
            if target.exists():
                os.fchmod(file.fileno(), target.stat().st_mode & 0o777)
            if name.exists():  # else another writer came between, and took it for a dead one's
                return file
        except BaseException:
            file.close()
            name.unlink(missing_ok=True)
            raise
        file.close()


def _clear_pieces(target: pathlib.Path) -> None:
    """Remove what killed writers left: the lock of a living one cannot be had."""
    if fcntl is None:
        return
    letters = "[0-9a-f]" * N_LETTERS
    for piece in target.parent.glob(f".{glob.escape(target.name)}.{letters}.part"):
        with suppress(OSError), piece.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            piece.unlink()


def sync_folder(folder: pathlib.Path) -> None:
    """Bring the new name to the disk, where the system can; the file itself is there already."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
