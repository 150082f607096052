"""Files in the layout of openml-python's cache: read, added to, never changed or deleted."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import filelock
import openml

from mixupe_sklearn._utils.atomic_files import replacing
from mixupe_sklearn.datasets._openml.metadata import InvalidFileError

LOCK_NAME = ".mixupe-openml.lock"

Result = TypeVar("Result")
Download = Callable[[str, Callable[[bytes], Any]], tuple[bytes, Any]]


class NotCachedError(Exception):
    """A file is not in the cache. The argument is its path."""


def cache_folders(cache_dir: str | os.PathLike[str] | None) -> tuple[Path, Path]:
    """The root of the cache, and the folder in it of the configured server."""
    configured = Path(openml.config.get_config_as_dict()["cachedir"])
    part = Path(openml.config.get_cache_directory()).relative_to(configured)
    root = configured if cache_dir is None else Path(cache_dir)
    root = root.expanduser().absolute()
    return root, root / part


class Cache:
    """The files of one server. Downloads stay in memory until :meth:`save`.

    ``download(url, read)`` returns a file and the result of ``read``. None means offline.
    """

    def __init__(self, folder: Path, download: Download | None = None) -> None:
        self.folder = folder
        self.download = download
        self.downloaded: dict[str, bytes] = {}

    def has(self, name: str) -> bool:
        """Whether the cache holds a file."""
        return (self.folder / name).is_file()

    def get(self, name: str, url: str, read: Callable[[bytes], Result]) -> Result:
        """The result of ``read`` for a file of the cache, or else for its download."""
        path = self.folder / name
        if not path.is_file():
            if self.download is None:
                raise NotCachedError(str(path))
            self.downloaded[name], result = self.download(url, read)
            return result
        try:
            return read(path.read_bytes())
        except InvalidFileError as error:
            raise ValueError(
                f"Got {str(path)!r} in the cache, which is corrupt: {error}; delete this file and "
                f"run again with a network, or copy an intact file there."
            ) from error

    def save(self) -> None:
        """Add the downloads to the cache, each of them whole or not at all."""
        with _writing(self.folder):
            for name, content in self.downloaded.items():
                path = self.folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                if not os.path.lexists(path):  # not even a broken link is replaced
                    with replacing(path) as file:
                        file.write(content)


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Hold the cache's lock, so that one process downloads and the others wait."""
    lock = filelock.FileLock(root / LOCK_NAME)
    with _writing(root):
        root.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OSError(
            f"Got the folder {str(folder)!r} as cache, but it cannot be written "
            f"({error.strerror}): free some space, make it writable, or set cache_dir to another "
            f"folder."
        ) from error
