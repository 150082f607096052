"""Pictures and sounds with their classes, and how they are split into training and test rows."""

import hashlib
import pathlib
import zipfile
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_digits

from mixupe_sklearn.datasets._decompress import check_growth
from mixupe_sklearn.datasets.images import (
    ImageSplits,
    load_cifar,
    load_image_folder,
    load_svhn,
    load_tiny_imagenet,
)
from mixupe_sklearn.datasets.speech import load_speech_commands, split_by_speaker

# Sounds made by rule: how many of each class, from how many voices, values in one, and their rate.
N_TONES, N_VOICES, N_VALUES, RATE = 30, 10, 4_000, 16_000
ARRAYS = ("x_train", "y_train", "x_test", "y_test")


class Parts(NamedTuple):
    """Training and test rows of one seed."""

    X_train: Any
    y_train: np.ndarray
    X_test: Any
    y_test: np.ndarray


@dataclass(frozen=True, eq=False, repr=False)
class Signals:
    """Pictures or sounds, their classes, and what they are split by.

    Parameters
    ----------
    name : str
        A short name, such as ``"cifar10"``.
    kind : str
        ``"image"`` or ``"speech"``.
    X : ndarray or list of paths
        All rows: arrays of pictures (n, height, width, n_channels) or of sounds (n, n_values), or
        the files that hold them.
    y : ndarray of shape (n,)
        The class of each row.
    n_train : int or None, default=None
        The first so many rows are for training, for every seed.
    speakers : ndarray of shape (n,) or None, default=None
        Who speaks: each seed has a split of its own, with no speaker on both sides.

    Examples
    --------
    >>> digits = load_digits_as_pictures()
    >>> digits
    Signals('digits': 1797 rows, 10 classes)
    >>> [len(part) for part in digits.parts(seed=0)]
    [1437, 1437, 360, 360]
    """

    name: str
    kind: str
    X: Any
    y: np.ndarray
    n_train: int | None = None
    speakers: np.ndarray | None = None

    def __repr__(self) -> str:
        return f"Signals({self.name!r}: {len(self.y)} rows, {self.n_classes} classes)"

    @cached_property
    def n_classes(self) -> int:
        """How many different classes there are."""
        return len(np.unique(self.y))

    @cached_property
    def fingerprint(self) -> str:
        """Twelve hex digits that change when the rows or their classes do.

        Of files the names and the sizes count: a data set may be on the disk many times as large
        as memory.
        """
        digest = hashlib.sha256()
        if isinstance(self.X, np.ndarray):
            digest.update(repr((self.X.shape, self.X.dtype.str)).encode())
            digest.update(np.ascontiguousarray(self.X).data)
        else:
            files = [pathlib.Path(path) for path in self.X]
            told = [(*path.parts[-2:], path.stat().st_size) for path in files]
            digest.update(repr(told).encode())
        split = (self.n_train, None if self.speakers is None else self.speakers.tolist())
        digest.update(repr((self.y.tolist(), split)).encode())
        return digest.hexdigest()[:12]

    def parts(self, seed: int) -> Parts:
        """Training and test rows of a seed."""
        if self.speakers is None:
            n = self.n_train
            return Parts(self.X[:n], self.y[:n], self.X[n:], self.y[n:])
        train, test = split_by_speaker(self.speakers, seed=seed)
        return Parts(
            *(_rows(self.X, train), self.y[train]),
            *(_rows(self.X, test), self.y[test]),
        )


def _rows(X: Any, wanted: np.ndarray) -> Any:
    if isinstance(X, np.ndarray):
        return X[wanted]
    places = np.flatnonzero(wanted) if wanted.dtype == bool else wanted
    return [X[place] for place in places]


def load_digits_as_pictures() -> Signals:
    """Scikit-learn's digits: pictures of 8 x 8 pixels, a fifth of them to test."""
    X, y = load_digits(return_X_y=True)
    pixels = np.round(X * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)
    return Signals("digits", "image", pixels, y, n_train=len(y) * 4 // 5)


def _from_splits(name: str, splits: ImageSplits) -> Signals:
    X_train, X_test = splits.X_train, splits.X_test
    X = np.concatenate([X_train, X_test]) if isinstance(X_train, np.ndarray) else X_train + X_test
    y = np.concatenate([splits.y_train, splits.y_test])
    return Signals(name, "image", X, y, n_train=len(splits.y_train))


def load_npz(path: pathlib.Path) -> Signals:
    """Pictures of an ``.npz`` file with the arrays x_train, y_train, x_test and y_test."""
    try:
        with zipfile.ZipFile(path) as archive:
            check_growth(sum(member.file_size for member in archive.infolist()), path)
        with np.load(path, allow_pickle=False) as file:
            found = {name: file[name] for name in ARRAYS if name in file}
    except (OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
        raise OSError(f"Got {path}, but expected a readable .npz file ({error}).") from error
    missing = [name for name in ARRAYS if name not in found]
    if missing:
        raise ValueError(
            f"Got {path} without {', '.join(missing)}, but expected the arrays {', '.join(ARRAYS)}."
        )
    X_train, y_train, X_test, y_test = (found[name] for name in ARRAYS)
    shapes = {name: found[name].shape for name in ARRAYS}
    if (len(X_train), len(X_test)) != (len(y_train), len(y_test)) or X_train.shape[
        1:
    ] != X_test.shape[1:]:
        raise ValueError(
            f"Got {path} with arrays of the shapes {shapes}, but expected a label for each "
            f"picture, and pictures of one shape."
        )
    X, y = np.concatenate([X_train, X_test]), np.concatenate([y_train, y_test])
    return Signals(path.stem, "image", X, y, n_train=len(y_train))


# Loaders of folders, by the name of a layout.
LAYOUTS = {
    "cifar10": lambda folder: load_cifar(folder, "cifar10"),
    "cifar100": lambda folder: load_cifar(folder, "cifar100"),
    "svhn": load_svhn,
    "tinyimagenet": load_tiny_imagenet,
    "folder": load_image_folder,
}


def load_pictures(data: pathlib.Path | None, layout: str | None) -> Signals:
    """Pictures of a file or of a folder, or those that come with scikit-learn."""
    if data is None:
        return load_digits_as_pictures()
    if layout is None:
        if data.is_dir():
            raise ValueError(
                f"Got the folder {data} without --layout, but expected one of "
                f"{', '.join(LAYOUTS)} to say how it is read."
            )
        return load_npz(data)
    name = data.name if layout == "folder" else layout
    return _from_splits(name, LAYOUTS[layout](data))


def load_sounds(data: pathlib.Path | None) -> Signals:
    """Sounds of a folder in the layout of Speech Commands, or some made by rule."""
    if data is None:
        return make_tones()
    found = load_speech_commands(data)
    return Signals(
        "speech-commands", "speech", list(found.paths), found.labels, speakers=found.speakers
    )


def make_tones(n_a_class: int = N_TONES) -> Signals:
    """Tones that stay, rise or fall in a little noise, each voice at a pitch of its own.

    Examples
    --------
    >>> tones = make_tones()
    >>> tones.X.shape, tones.X.dtype
    ((90, 4000), dtype('float32'))
    """
    rng, time = np.random.default_rng(0), np.arange(N_VALUES) / RATE
    words, slopes = np.array(["fall", "rise", "stay"]), np.array([-1.0, 1.0, 0.0])
    kinds = np.repeat(np.arange(3), n_a_class)
    voices = np.tile(np.arange(n_a_class), 3) % N_VOICES
    pitches = 1_500.0 + 60.0 * voices + rng.normal(scale=20.0, size=len(kinds))
    # The frequency changes by 1 kHz from the beginning to the end, or not at all.
    bends = slopes[kinds] * 1_000.0 * RATE / N_VALUES / 2
    phases = 2 * np.pi * (pitches[:, None] * time + bends[:, None] * time**2)
    waves = 0.5 * np.sin(phases) + rng.normal(scale=0.02, size=phases.shape)
    X = waves.clip(-1, 1).astype(np.float32)
    return Signals("tones", "speech", X, words[kinds], speakers=voices)
