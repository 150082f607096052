"""Files in the layout of openml-python's cache, without its habit of deleting what it reads.

The client removes the folder of an id on any error, and writes pickles beside what it reads. So
it only ever sees a scratch folder; the user's cache is read, and gains files that were checked.
"""

import importlib
import os
import shutil
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import pandas as pd

from mixupe_sklearn._utils.atomic_files import sync_folder
from mixupe_sklearn.datasets._openml.metadata import FaultError, first_line, without_parquet

LOCK_NAME = ".mixupe-openml.lock"
SCRATCH_SERVER = "scratch"
# The client's configuration is global: one thread at a time may borrow it.
_CONFIG_LOCK = threading.RLock()

Result = TypeVar("Result")
Ask = Callable[[str, Callable[[bytes], Any]], bytes]


class MissingError(Exception):
    """A file is not in the cache; the argument is its path."""


def import_openml() -> Any:
    """The module openml, or one sentence that says how to get it."""
    try:
        return importlib.import_module("openml")
    except ImportError as error:
        raise ImportError(
            f"Got no module {error.name or 'openml'!r}, but data of OpenML needs it: pip install "
            f"mixupe-sklearn[openml]."
        ) from error
    except OSError as error:  # the client makes its folders when it is imported
        raise OSError(
            f"Got {error.filename!r} as a folder of openml, but it cannot be made "
            f"({error.strerror}): set OPENML_CACHE_DIR and XDG_CONFIG_HOME to folders that can."
        ) from error


def server_folder(openml: Any, cache_dir: str | os.PathLike[str] | None) -> tuple[Path, Path]:
    """The root of the cache, and the folder in it of the server that is configured."""
    with _CONFIG_LOCK:
        configured = Path(openml.config.get_config_as_dict()["cachedir"])
        part = Path(openml.config.get_cache_directory()).relative_to(configured)
    root = configured if cache_dir is None else Path(cache_dir)
    root = root.expanduser().absolute()
    return root, root / part


class Shelf:
    """The files of one server: from the cache, else fetched, and kept apart until ``keep``.

    Parameters
    ----------
    folder : Path
        The server's folder in the cache; it need not exist.
    ask : callable or None
        ``ask(url, check)`` fetches a file that passes a check; None: nothing is fetched.
    """

    def __init__(self, folder: Path, ask: Ask | None) -> None:
        self.folder = folder
        self.ask = ask
        self.fresh: dict[str, bytes] = {}

    def has(self, name: str) -> bool:
        """Whether a file is here, from the cache or fresh."""
        return name in self.fresh or (self.folder / name).is_file()

    def get(self, name: str, url: str, read: Callable[[bytes], Result]) -> Result:
        """What ``read`` makes of a file; a file of the cache at which it raises is refused."""
        if not self.has(name):
            if self.ask is None:
                raise MissingError(str(self.folder / name))
            self.fresh[name] = self.ask(url, read)
        with self.guard(name):
            return read(self.content(name))

    def content(self, name: str) -> bytes:
        """The bytes of a file that is here."""
        if name in self.fresh:
            return self.fresh[name]
        with self._open(name) as file:
            return file.read()

    def _open(self, name: str) -> BinaryIO:
        path = self.folder / name
        try:
            return path.open("rb")
        except OSError as error:
            raise OSError(
                f"Got {str(path)!r} in the cache, but it cannot be read ({error.strerror}): make "
                f"it readable, or name another folder by cache_dir."
            ) from error

    @contextmanager
    def guard(self, name: str) -> Iterator[None]:
        """Turn a fault of a file into a sentence that names the file and the way out."""
        try:
            yield
        except FaultError as fault:
            if name in self.fresh:
                raise ValueError(
                    f"Got {name!r} from the server, but it does not fit the files beside it: "
                    f"{fault}; it was not kept, try again later."
                ) from fault
            raise ValueError(
                f"Got {str(self.folder / name)!r} in the cache, which is corrupt: {fault}; delete "
                f"this file and run again with a network, or copy a whole one there."
            ) from fault

    def put(self, name: str, path: Path) -> None:
        """Lay a file out for the client: a copy, or a link to what the client only reads."""
        if name in self.fresh:
            path.write_bytes(self.fresh[name])
            return
        with self._open(name) as file:
            try:
                path.symlink_to(self.folder / name)
            except OSError:  # Windows asks for a right to do so
                with path.open("wb") as copy:
                    shutil.copyfileobj(file, copy)

    def keep(self) -> None:
        """Move what was fetched into the cache: all of it is written before any name appears.

        The caller holds the cache's lock, so a piece that is found was left by a killed process.
        """
        parts = {}
        try:
            for name, content in self.fresh.items():
                path = self.folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                for left in path.parent.glob(f".{path.name}.*.part"):
                    left.unlink()
                parts[path] = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
                _write(parts[path], content)
            for path, part in parts.items():
                if os.path.lexists(path):  # what is there, even a broken link, is never replaced
                    part.unlink()
                else:
                    os.replace(part, path)
            for folder in {path.parent for path in parts}:
                sync_folder(folder)
        except OSError as error:
            for part in parts.values():
                with suppress(OSError):
                    part.unlink()
            raise _cannot_keep(self.folder, error) from error


def _write(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _cannot_keep(folder: Path, error: OSError) -> OSError:
    return OSError(
        f"Got the folder {str(folder)!r} as cache, but nothing can be kept there "
        f"({error.strerror}): make room or make it writable, or name another folder by cache_dir."
    )


@contextmanager
def one_at_a_time(root: Path) -> Iterator[None]:
    """Hold the cache's lock: of several processes that fetch, one does and the others wait."""
    filelock: Any = importlib.import_module("filelock")
    lock = filelock.FileLock(root / LOCK_NAME)
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError as error:
        raise _cannot_keep(root, error) from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def borrowed(openml: Any, root: Path) -> Iterator[None]:
    """Point the client to a scratch folder, and to no server; put all back as it was."""
    with _CONFIG_LOCK:
        before = openml.config.get_config_as_dict()
        try:
            openml.config.set_root_cache_directory(root)
            openml.config.server = f"none://{SCRATCH_SERVER}"  # a request fails at once
            yield
        finally:
            openml.config.set_root_cache_directory(before["cachedir"])
            openml.config.server = before["server"]


def read_frame(openml: Any, shelf: Shelf, data_id: int, data_name: str) -> pd.DataFrame:
    """The table of a data set, as the client reads it, with all of its columns."""
    try:
        with tempfile.TemporaryDirectory(prefix="mixupe-openml-") as scratch:
            _lay_out(shelf, data_id, data_name, Path(scratch))
            with borrowed(openml, Path(scratch)):
                dataset = openml.datasets.get_dataset(
                    data_id, download_data=True, download_features_meta_data=True
                )
                # The client takes a list of columns to ignore for one name.
                return dataset.get_data(include_row_id=True, include_ignore_attribute=True)[0]
    except OSError as error:
        if error.errno is None:  # a sentence already
            raise
        raise OSError(
            f"Got {tempfile.gettempdir()!r} as folder for scratch files, but they cannot be "
            f"written ({error.strerror}): make room, or set TMPDIR to another folder."
        ) from error
    except Exception as error:  # whatever the client meets in a file that it cannot read
        raise FaultError(f"openml cannot read it ({_innermost(error)})") from error


def _lay_out(shelf: Shelf, data_id: int, data_name: str, scratch: Path) -> None:
    folder = scratch / SCRATCH_SERVER / "datasets" / str(data_id)
    folder.mkdir(parents=True)
    description = shelf.content(f"datasets/{data_id}/description.xml")
    is_parquet = data_name.endswith(".pq")
    if not is_parquet:  # else the client would ask for the parquet file first
        description = without_parquet(description)
    (folder / "description.xml").write_bytes(description)
    shelf.put(f"datasets/{data_id}/features.xml", folder / "features.xml")
    shelf.put(data_name, folder / (f"dataset_{data_id}.pq" if is_parquet else "dataset.arff"))


def _innermost(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {first_line(error)}"
