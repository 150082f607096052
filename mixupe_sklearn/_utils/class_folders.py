"""Folders that hold a folder of files for each class."""

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

# Names of folders that are splits of a dataset, not classes.
SPLITS = {"train", "training", "val", "valid", "validation", "test", "testing"}


def existing_folder(folder: str | os.PathLike, name: str) -> Path:
    """The path of a folder, or an error if there is none."""
    path = Path(folder)
    if not os.fspath(folder) or not path.is_dir():  # Path("") is the current folder
        raise FileNotFoundError(
            f"Got {name}={os.fspath(folder)!r}, but expected an existing folder, or a list of "
            f"files; the current folder is {os.getcwd()!r}."
        )
    return path


def visible(folder: Path) -> list[Path]:
    """The entries of a folder, sorted by name, without hidden ones."""
    entries = sorted(folder.iterdir(), key=lambda path: path.name)
    return [path for path in entries if not path.name.startswith((".", "__MACOSX"))]


def files_in(folder: Path, suffixes: Collection[str]) -> list[Path]:
    """The files with these suffixes directly in a folder."""
    return [p for p in visible(folder) if p.suffix.lower() in suffixes and p.is_file()]


def check_classes(
    found: Mapping[str, list[Path]], loose: list[Path], got: str, kind: str, n_least: int
) -> None:
    """Raise an error unless each class has files, and none is beside the class folders.

    ``found`` has the files of each class, and ``loose`` those in no class folder. ``got`` begins
    the messages, and ``kind`` names one file.
    """
    if loose or not found:
        has = f"with {loose[0].name!r} directly in it" if loose else "with no folder in it"
        raise ValueError(
            f"{got} {has}, but expected a folder for each class; for files without classes, give "
            f"a list of paths."
        )
    if len(found) > 1 and {name.lower() for name in found} <= SPLITS:
        raise ValueError(
            f"{got} with the folders {listed(list(found))}, which are splits of a dataset, but "
            f"expected a folder for each class; give the path of one split."
        )
    empty = [name for name, paths in found.items() if not paths]
    if empty:
        raise ValueError(
            f"{got} without any {kind} in {listed(empty)}, but expected some in every class "
            f"folder; remove folders that are not classes."
        )
    if len(found) < n_least:
        raise ValueError(f"{got} with one class only, {listed(list(found))}, but expected two.")


def listed(values: Sequence[Any], n_most: int = 10) -> str:
    """The first values, separated by commas, and the number of the others."""
    more = f" and {len(values) - n_most} more" if len(values) > n_most else ""
    return ", ".join(repr(value) for value in values[:n_most]) + more
