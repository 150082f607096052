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

from mixupe_sklearn._images.arrays import check_alike, resize
from mixupe_sklearn._utils.class_folders import check_classes, existing_folder, files_in, visible

GREY_MODES = {"1", "L", "LA", "La", "I", "F", "I;16", "I;16B", "I;16L", "I;16N"}
# Other files in a folder are ignored.
SUFFIXES = {".bmp", ".gif", ".jfif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm"}
SUFFIXES |= {".tif", ".tiff", ".webp"}
# A small file can declare any size. Pillow refuses 179 million pixels, and only warns below.
MAX_PIXELS = 50_000_000
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
    from PIL import ImageOps

    try:
        image.load()
        return ImageOps.exif_transpose(image)
    except _DAMAGED as error:
        raise ValueError(_damaged(where, error)) from error


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
    image_module = import_pillow()
    try:
        image = image_module.open(path)
    except (FileNotFoundError, PermissionError):
        raise
    except (*_DAMAGED, image_module.DecompressionBombError) as error:
        raise ValueError(_damaged(f"file {os.fspath(path)!r}", error)) from error
    if image.width * image.height > MAX_PIXELS:
        image.close()
        raise ValueError(
            f"Got file {os.fspath(path)!r} with {image.width} x {image.height} pixels, but "
            f"expected at most {MAX_PIXELS:,} in an image; scale it down."
        )
    return image


def _damaged(where: str, error: BaseException) -> str:
    return f"Got {where}, but expected an intact image ({error}); repair or remove it."


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
        where, first = (f"file {self.path(number)!r}" for number in (index, 0))
        check_alike(image, self.shape[1:], torch.uint8, where, first)
        return image


def list_folder(
    folder: str | os.PathLike, name: str, n_classes: int = 2
) -> tuple[list[Path], np.ndarray]:
    """Paths of the images in a folder of class folders, and the names of their classes.

    Classes and files are sorted by name. Class folders are searched recursively.
    """
    root = existing_folder(folder, name)
    found = {path.name: list(_images_of(path)) for path in visible(root) if path.is_dir()}
    got = f"Got {name}={os.fspath(folder)!r}"
    check_classes(found, files_in(root, SUFFIXES), got, "image", n_classes)
    paths = [path for own in found.values() for path in own]
    return paths, np.repeat(list(found), [len(own) for own in found.values()])


def list_images(folder: str | os.PathLike, name: str) -> list[Path]:
    """Paths of all images in a folder, recursively, sorted by name."""
    paths = list(_images_of(existing_folder(folder, name)))
    if not paths:
        raise ValueError(f"Got {name}={os.fspath(folder)!r} without any image, but expected some.")
    return paths


def _images_of(folder: Path, above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    yield from files_in(folder, SUFFIXES)
    above |= {folder.resolve()}
    for path in visible(folder):
        if path.is_dir() and path.resolve() not in above:  # links may form a cycle
            yield from _images_of(path, above)
