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


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples, classes, and the split: the first ``n_train``, or for each seed by ``speakers``."""

    name: str
    kind: str
    X: Any
    y: np.ndarray
    n_train: int | None = None
    speakers: np.ndarray | None = None

    @cached_property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(np.unique(self.y))

    @cached_property
    def fingerprint(self) -> str:
        """Twelve hex digits of the samples (of files: names and sizes), classes and split."""
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
        parts: list[Any] = []
        for wanted in split_by_speaker(self.speakers, seed=seed):
            is_array = isinstance(self.X, np.ndarray)
            samples = self.X[wanted] if is_array else [self.X[place] for place in wanted]
            parts += [samples, self.y[wanted]]
        return Split(*parts)


def load_digit_images() -> Dataset:
    """Scikit-learn's digits: images of 8 x 8 pixels, a fifth of them to test."""
    X, y = load_digits(return_X_y=True)
    pixels = np.round(X * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)
    return Dataset("digits", "image", pixels, y, n_train=len(y) * 4 // 5)


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
    return _joined(path.stem, *(found[name] for name in ARRAYS))


def _joined(name: str, X_train: Any, y_train: np.ndarray, X_test: Any, y_test: Any) -> Dataset:
    """Training samples followed by test samples, as arrays or as lists of files."""
    if (len(X_train), len(X_test)) != (len(y_train), len(y_test)):
        raise ValueError(f"Got {name} with other numbers of labels, but expected one per image.")
    X = np.concatenate([X_train, X_test]) if isinstance(X_train, np.ndarray) else X_train + X_test
    y = np.concatenate([y_train, y_test])
    return Dataset(name, "image", X, y, n_train=len(y_train))


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
    return _joined(name, *LAYOUTS[layout](data)[:4])


def load_audio(data: pathlib.Path | None) -> Dataset:
    """Audio of a folder in the layout of Speech Commands, or synthetic tones."""
    if data is None:
        return make_tones()
    found = load_speech_commands(data)
    return Dataset(
        "speech-commands", "speech", list(found.paths), found.labels, speakers=found.speakers
    )


def make_tones(n_a_class: int = N_TONES) -> Dataset:
    """Tones with a constant, rising or falling pitch and some noise, each voice at its own."""
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
