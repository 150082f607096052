"""Folders of class folders with pictures: their paths and classes."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

# Other files in a folder (lists, notes, what file managers leave) are passed over.
SUFFIXES = {".bmp", ".gif", ".jfif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm"}
SUFFIXES |= {".tif", ".tiff", ".webp"}
# Names of folders that are parts of a data set, not classes of it.
PARTS = {"train", "training", "val", "valid", "validation", "test", "testing"}


def list_folder(
    folder: str | os.PathLike, name: str, n_classes: int = 2
) -> tuple[list[Path], np.ndarray]:
    """Paths of the pictures in a folder of class folders, and the names of their classes.

    Classes and files come in the order of their names; folders in class folders are searched, too.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for path in ("dog/b.png", "cat/a.jpg", "cat/notes.txt"):
    ...         path = pathlib.Path(folder, path)
    ...         path.parent.mkdir(exist_ok=True)
    ...         path.touch()
    ...     paths, labels = list_folder(folder, "X")
    >>> [path.name for path in paths], labels.tolist()
    (['a.jpg', 'b.png'], ['cat', 'dog'])
    """
    got = f"Got {name}={os.fspath(folder)!r}"
    classes = _class_folders(_checked(folder, name), got)
    found = {path.name: list(_images_of(path)) for path in classes}
    empty = [path for path in classes if not found[path.name]]
    if empty:
        raise ValueError(
            f"{got} without any picture in {_listed(empty)}, but expected some in every class "
            f"folder; remove folders that are no classes."
        )
    if len(classes) < n_classes:
        raise ValueError(f"{got} with one class only, {_listed(classes)}, but expected two.")
    paths = [path for own in found.values() for path in own]
    return paths, np.repeat(list(found), [len(own) for own in found.values()])


def _class_folders(folder: Path, got: str) -> list[Path]:
    classes = [path for path in _entries(folder) if path.is_dir()]
    stray = next(_own_images(folder), None)
    if not classes or stray is not None:
        has = f"with {stray.name!r} directly in it" if stray else "with no folder in it"
        raise ValueError(
            f"{got} {has}, but expected a folder for each class, with its pictures; for pictures "
            f"without classes, give a list of their paths."
        )
    if len(classes) > 1 and {path.name.lower() for path in classes} <= PARTS:
        raise ValueError(
            f"{got} with the folders {_listed(classes)}, which are parts of a data set, but "
            f"expected a folder for each class; give one part."
        )
    return classes


def list_images(folder: str | os.PathLike, name: str) -> list[Path]:
    """Paths of all pictures in a folder and the folders in it, by name: for predictions."""
    paths = list(_images_of(_checked(folder, name)))
    if not paths:
        raise ValueError(
            f"Got {name}={os.fspath(folder)!r} without any picture, but expected some."
        )
    return paths


def _checked(folder: str | os.PathLike, name: str) -> Path:
    path = Path(folder)
    if path.is_dir() and os.fspath(folder):  # an empty text would be the current folder
        return path
    got = f"Got {name}={os.fspath(folder)!r}"
    if not os.fspath(folder):
        raise FileNotFoundError(f"{got}, but expected the path of a folder, or a list of files.")
    if path.exists():
        raise NotADirectoryError(f"{got}, a file, but expected a folder, or a list of files.")
    raise FileNotFoundError(
        f"{got}, but expected a folder that is there, or a list of files; the current folder is "
        f"{os.getcwd()!r}."
    )


def _entries(folder: Path) -> list[Path]:
    """What is in a folder, by name; hidden things are not seen."""
    entries = sorted(folder.iterdir(), key=lambda path: path.name)
    return [path for path in entries if not path.name.startswith((".", "__MACOSX"))]


def _own_images(folder: Path) -> Iterator[Path]:
    for path in _entries(folder):
        if path.suffix.lower() in SUFFIXES and path.is_file():
            yield path


def _images_of(folder: Path, above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    yield from _own_images(folder)
    above |= {folder.resolve()}
    for path in _entries(folder):
        if path.is_dir() and path.resolve() not in above:  # a link may lead in circles
            yield from _images_of(path, above)


def _listed(paths: Sequence[Path], n_most: int = 5) -> str:
    more = f" and {len(paths) - n_most} more" if len(paths) > n_most else ""
    return ", ".join(repr(path.name) for path in paths[:n_most]) + more
