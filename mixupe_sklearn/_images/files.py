"""Image files: how to read them with Pillow, a lazy dataset of them, and class folders."""

import os
import struct
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from mixupe_sklearn._images.arrays import resize

GREY_MODES = {"1", "L", "LA", "La", "I", "F", "I;16", "I;16B", "I;16L", "I;16N"}
ORIENTATION = 0x0112  # the EXIF tag of the camera's orientation
# Other files in a folder are ignored.
SUFFIXES = {".bmp", ".gif", ".jfif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm"}
SUFFIXES |= {".tif", ".tiff", ".webp"}
# Names of folders that are splits of a dataset, not classes.
SPLITS = {"train", "training", "val", "valid", "validation", "test", "testing"}
_DAMAGED = (OSError, SyntaxError, ValueError, EOFError, struct.error, zlib.error)


def import_pillow() -> Any:
    """Import ``PIL.Image``, or raise an error that names the extra."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "Reading image files needs Pillow: pip install mixupe-sklearn[images]."
        ) from error
    return Image


def is_image(item: Any) -> bool:
    """Whether this is a PIL image. It does not import Pillow."""
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(item, module.Image)


def is_colour(image: Any) -> bool:
    """Whether the mode of a PIL image has colours."""
    return image.mode not in GREY_MODES


def to_array(image: Any, where: str, n_channels: int | None = None) -> np.ndarray:
    """A PIL image as uint8 (h, w, c), upright: one channel for grey images, three for colour.

    Palettes and transparency become RGB, and 16 bits become 8. A grey image has three equal
    channels if ``n_channels`` is 3.
    """
    if image.mode == "F":
        raise ValueError(
            f"Got {where}, an image of floats, but expected 8 or 16 bits; give arrays, and "
            f"value_range=(low, high)."
        )
    image = _loaded(image, where)
    colour = is_colour(image)
    if colour and n_channels == 1:
        raise ValueError(
            f"Got {where} in colour, but expected grey images like the others; convert it to "
            f"grey, or all to RGB."
        )
    if colour:
        if image.mode == "P" and "transparency" in image.info:
            image = image.convert("RGBA")  # Pillow warns about a direct conversion to RGB
        return np.array(image.convert("RGB"))
    grey = _grey(image, where)[:, :, None]
    return np.repeat(grey, 3, axis=2) if n_channels == 3 else grey


def _loaded(image: Any, where: str) -> Any:
    """Load the pixels and rotate the image upright. Pillow decodes the file only here."""
    try:
        image.load()
        if image.info.get("exif") and image.getexif().get(ORIENTATION, 1) != 1:
            from PIL import ImageOps

            return ImageOps.exif_transpose(image)
    except _DAMAGED as error:
        raise ValueError(_damaged(where, error)) from error
    return image


def _grey(image: Any, where: str) -> np.ndarray:
    if not image.mode.startswith("I"):
        return np.array(image.convert("L"))
    values = np.asarray(image).astype(np.int64)
    if values.size and not 0 <= values.min() <= values.max() < 2**16:
        raise ValueError(
            f"Got {where} with values from {values.min()} to {values.max()}, but expected 16 bits "
            f"(0 to 65535); give arrays, and value_range=(low, high)."
        )
    return ((values + 128) // 257).astype(np.uint8)


def read_file(path: str | os.PathLike, n_channels: int | None = None) -> np.ndarray:
    """Read an image file as uint8 (h, w, c)."""
    with _opened(path) as image:
        return to_array(image, f"file {os.fspath(path)!r}", n_channels)


def _opened(path: str | os.PathLike) -> Any:
    where = f"file {os.fspath(path)!r}"
    image_module = import_pillow()
    try:
        return image_module.open(path)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"Got {where}, but expected an existing file.") from error
    except PermissionError:
        raise
    except (*_DAMAGED, image_module.DecompressionBombError) as error:
        raise ValueError(_damaged(where, error)) from error


def _damaged(where: str, error: BaseException) -> str:
    # The message of an UnidentifiedImageError repeats the path.
    is_unknown = type(error).__name__ == "UnidentifiedImageError"
    reason = "a format unknown to Pillow" if is_unknown else f"Pillow reports: {error}"
    return f"Got {where}, but expected an intact image ({reason}); repair or remove it."


class ImageFiles(Dataset):
    """A dataset of image files, read on access: uint8 (c, h, w) of equal size.

    Parameters
    ----------
    paths : sequence of path
        The files. If one has colours, all are read in colour.
    image_size : (height, width) or None, default=None
        Size to which images are resized. None means the size of the first.
    n_channels : {1, 3} or None, default=None
        1 for grey, 3 for colour. None infers it from the files.

    Attributes
    ----------
    shape : tuple of int
        (n, c, h, w).
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike],
        image_size: tuple[int, int] | None = None,
        n_channels: int | None = None,
    ):
        # One array: every worker would copy a million Python strings.
        self._paths = np.array([os.fsencode(path) for path in paths])
        self.image_size = image_size
        if n_channels is None:
            n_channels = 1
            for path in paths:  # usually the first file has colours; only headers are read
                with _opened(path) as image:
                    if is_colour(image):
                        n_channels = 3
                        break
        self.n_channels = n_channels
        size = image_size or read_file(self.path(0), n_channels).shape[:2]
        self.shape = (len(self._paths), n_channels, int(size[0]), int(size[1]))

    def __len__(self) -> int:
        return len(self._paths)

    def path(self, index: int) -> str:
        """The path of an image."""
        return os.fsdecode(self._paths[index])

    def __getitem__(self, index: int) -> Tensor:
        pixels = torch.from_numpy(read_file(self.path(index), self.n_channels))
        # A view: the channels of a pixel stay adjacent in memory.
        image = resize(pixels.permute(2, 0, 1)[None], self.image_size)[0]
        check_size(image, self.shape, f"file {self.path(index)!r}", f"file {self.path(0)!r}")
        return image


def check_size(image: Tensor, shape: tuple[int, ...], where: str, first: str) -> None:
    """Raise an error if the size of an image (c, h, w) differs from the first."""
    if tuple(image.shape[1:]) != tuple(shape[2:]):
        raise ValueError(
            f"Got {where} of size {tuple(image.shape[1:])}, but expected {tuple(shape[2:])} as "
            f"{first} has; give image_size=(height, width) to resize all."
        )


def list_folder(
    folder: str | os.PathLike, name: str, n_classes: int = 2
) -> tuple[list[Path], np.ndarray]:
    """Paths of the images in a folder of class folders, and the names of their classes.

    Classes and files are sorted by name. Class folders are searched recursively.
    """
    got = f"Got {name}={os.fspath(folder)!r}"
    classes = _class_folders(_checked(folder, name), got)
    found = {path.name: list(_images_of(path)) for path in classes}
    empty = [path for path in classes if not found[path.name]]
    if empty:
        raise ValueError(
            f"{got} without any image in {_listed(empty)}, but expected some in every class "
            f"folder; remove folders that are not classes."
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
            f"{got} {has}, but expected a folder for each class, with its images; for images "
            f"without classes, give a list of paths."
        )
    if len(classes) > 1 and {path.name.lower() for path in classes} <= SPLITS:
        raise ValueError(
            f"{got} with the folders {_listed(classes)}, which are splits of a dataset, but "
            f"expected a folder for each class; give the path of one split."
        )
    return classes


def list_images(folder: str | os.PathLike, name: str) -> list[Path]:
    """Paths of all images in a folder, recursively, sorted by name."""
    paths = list(_images_of(_checked(folder, name)))
    if not paths:
        raise ValueError(f"Got {name}={os.fspath(folder)!r} without any image, but expected some.")
    return paths


def _checked(folder: str | os.PathLike, name: str) -> Path:
    path = Path(folder)
    if path.is_dir() and os.fspath(folder):  # Path("") is the current folder
        return path
    got = f"Got {name}={os.fspath(folder)!r}"
    if path.is_file():
        raise NotADirectoryError(f"{got}, a file, but expected a folder, or a list of files.")
    raise FileNotFoundError(
        f"{got}, but expected an existing folder, or a list of files; the current folder is "
        f"{os.getcwd()!r}."
    )


def _entries(folder: Path) -> list[Path]:
    """The entries of a folder, sorted by name, without hidden ones."""
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
        if path.is_dir() and path.resolve() not in above:  # links may form a cycle
            yield from _images_of(path, above)


def _listed(paths: Sequence[Path], n_most: int = 5) -> str:
    more = f" and {len(paths) - n_most} more" if len(paths) > n_most else ""
    return ", ".join(repr(path.name) for path in paths[:n_most]) + more
