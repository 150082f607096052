"""Images and audio with their classes, and their split into training and test samples."""

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

# Synthetic audio: waveforms per class, voices, values per waveform, and the sampling rate.
N_TONES, N_VOICES, N_VALUES, RATE = 30, 10, 4_000, 16_000
ARRAYS = ("x_train", "y_train", "x_test", "y_test")


class Split(NamedTuple):
    """Training and test samples of one seed."""

    X_train: Any
    y_train: np.ndarray
    X_test: Any
    y_test: np.ndarray


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Images or audio, their classes, and what decides on the split.

    Parameters
    ----------
    name : str
        A short name, such as ``"cifar10"``.
    kind : str
        ``"image"`` or ``"speech"``.
    X : ndarray or list of paths
        All samples: arrays of images (n, height, width, n_channels) or of waveforms
        (n, n_values), or the files that hold them.
    y : ndarray of shape (n,)
        The class of each sample.
    n_train : int or None, default=None
        The first so many samples are for training, for every seed.
    speakers : ndarray of shape (n,) or None, default=None
        The speaker of each sample: each seed has its own split, with no speaker on both sides.

    Examples
    --------
    >>> digits = load_digit_images()
    >>> digits
    Dataset('digits': 1797 samples, 10 classes)
    >>> [len(part) for part in digits.split(seed=0)]
    [1437, 1437, 360, 360]
    """

    name: str
    kind: str
    X: Any
    y: np.ndarray
    n_train: int | None = None
    speakers: np.ndarray | None = None

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}: {len(self.y)} samples, {self.n_classes} classes)"

    @cached_property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(np.unique(self.y))

    @cached_property
    def fingerprint(self) -> str:
        """Twelve hex digits that depend on the samples, the classes and the split.

        Of files only names and sizes count, as a dataset may be much larger than memory.
        """
        digest = hashlib.sha256()
        if isinstance(self.X, np.ndarray):
            digest.update(repr((self.X.shape, self.X.dtype.str)).encode())
            digest.update(np.ascontiguousarray(self.X).data)
        else:
            files = [pathlib.Path(path) for path in self.X]
            named = [(*path.parts[-2:], path.stat().st_size) for path in files]
            digest.update(repr(named).encode())
        split = (self.n_train, None if self.speakers is None else self.speakers.tolist())
        digest.update(repr((self.y.tolist(), split)).encode())
        return digest.hexdigest()[:12]

    def split(self, seed: int) -> Split:
        """Training and test samples of a seed."""
        if self.speakers is None:
            n = self.n_train
            return Split(self.X[:n], self.y[:n], self.X[n:], self.y[n:])
        train, test = split_by_speaker(self.speakers, seed=seed)
        return Split(
            *(_samples(self.X, train), self.y[train]), *(_samples(self.X, test), self.y[test])
        )


def _samples(X: Any, wanted: np.ndarray) -> Any:
    if isinstance(X, np.ndarray):
        return X[wanted]
    places = np.flatnonzero(wanted) if wanted.dtype == bool else wanted
    return [X[place] for place in places]


def load_digit_images() -> Dataset:
    """Scikit-learn's digits: images of 8 x 8 pixels, a fifth of them to test."""
    X, y = load_digits(return_X_y=True)
    pixels = np.round(X * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)
    return Dataset("digits", "image", pixels, y, n_train=len(y) * 4 // 5)


def _from_splits(name: str, splits: ImageSplits) -> Dataset:
    X_train, X_test = splits.X_train, splits.X_test
    X = np.concatenate([X_train, X_test]) if isinstance(X_train, np.ndarray) else X_train + X_test
    y = np.concatenate([splits.y_train, splits.y_test])
    return Dataset(name, "image", X, y, n_train=len(splits.y_train))


def load_npz(path: pathlib.Path) -> Dataset:
    """Images of an ``.npz`` file with the arrays x_train, y_train, x_test and y_test."""
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
            f"image, and images of one shape."
        )
    X, y = np.concatenate([X_train, X_test]), np.concatenate([y_train, y_test])
    return Dataset(path.stem, "image", X, y, n_train=len(y_train))


# Loaders of folders, by the name of a layout.
LAYOUTS = {
    "cifar10": lambda folder: load_cifar(folder, "cifar10"),
    "cifar100": lambda folder: load_cifar(folder, "cifar100"),
    "svhn": load_svhn,
    "tinyimagenet": load_tiny_imagenet,
    "folder": load_image_folder,
}


def load_images(data: pathlib.Path | None, layout: str | None) -> Dataset:
    """Images of a file or of a folder, or scikit-learn's digits."""
    if data is None:
        return load_digit_images()
    if layout is None:
        if data.is_dir():
            raise ValueError(
                f"Got the folder {data} without --layout, but expected one of {', '.join(LAYOUTS)}."
            )
        return load_npz(data)
    name = data.name if layout == "folder" else layout
    return _from_splits(name, LAYOUTS[layout](data))


def load_audio(data: pathlib.Path | None) -> Dataset:
    """Audio of a folder in the layout of Speech Commands, or synthetic tones."""
    if data is None:
        return make_tones()
    found = load_speech_commands(data)
    return Dataset(
        "speech-commands", "speech", list(found.paths), found.labels, speakers=found.speakers
    )


def make_tones(n_a_class: int = N_TONES) -> Dataset:
    """Tones with a constant, rising or falling pitch and some noise; each voice has its own pitch.

    Examples
    --------
    >>> tones = make_tones()
    >>> tones.X.shape, tones.X.dtype
    ((90, 4000), dtype('float32'))
    """
    rng, time = np.random.default_rng(0), np.arange(N_VALUES) / RATE
    words, changes = np.array(["fall", "rise", "stay"]), np.array([-1.0, 1.0, 0.0])
    kinds = np.repeat(np.arange(3), n_a_class)
    voices = np.tile(np.arange(n_a_class), 3) % N_VOICES
    pitches = 1_500.0 + 60.0 * voices + rng.normal(scale=20.0, size=len(kinds))
    # The frequency changes by 1 kHz from start to end, or not at all.
    bends = changes[kinds] * 1_000.0 * RATE / N_VALUES / 2
    phases = 2 * np.pi * (pitches[:, None] * time + bends[:, None] * time**2)
    waveforms = 0.5 * np.sin(phases) + rng.normal(scale=0.02, size=phases.shape)
    X = waveforms.clip(-1, 1).astype(np.float32)
    return Dataset("tones", "speech", X, words[kinds], speakers=voices)
