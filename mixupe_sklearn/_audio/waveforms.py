"""Waveforms from arrays, pairs, files or a folder: one channel, float32, one sampling rate.

Files are read on access, so that a folder may be larger than the memory.
"""

import hashlib
import os
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.signal import resample_poly

from mixupe_sklearn._audio.files import (
    MAX_RATE,
    MIN_RATE,
    SCALES,
    SUFFIXES,
    Recording,
    check_values,
    find_words,
    read_file,
)
from mixupe_sklearn._utils.class_folders import check_classes, existing_folder, files_in
from mixupe_sklearn._utils.parameter_rules import Number, check_rules
from mixupe_sklearn._utils.warnings import warn_user

RATE = Number(
    f"an integer rate in Hz from {MIN_RATE} to {MAX_RATE}, such as 16000",
    *(MIN_RATE - 1, MAX_RATE + 1, True, True),
)
# The filter for resampling grows with the terms of the ratio of two rates. With a prime rate, an
# exact ratio needs a gigabyte; the nearest smaller one differs by less than 0.01 %.
MAX_TERM = 10_000


class Waveforms(Sequence[np.ndarray]):
    """A lazy sequence of waveforms: float32 values in [-1, 1] at one sampling rate.

    Channels are averaged, 8-bit values are centred, and other rates are resampled. The first
    recording with several channels and the first one with a lower rate each raise a warning.

    Parameters
    ----------
    items : sequence of Path or Recording
        Files, and recordings that have been checked.
    sampling_rate : int
        Sampling rate of each waveform in Hz.
    """

    def __init__(self, items: Sequence[Path | Recording], sampling_rate: int):
        self.sampling_rate = sampling_rate
        self._items = items
        self._warned: set[str] = set()

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> np.ndarray:  # type: ignore[override]
        """Read one waveform."""
        item = self._items[index]
        what = f"the file {str(item)!r}" if isinstance(item, Path) else f"the recording {index}"
        rate, values = read_file(item, what) if isinstance(item, Path) else item
        waveform = _scaled(values)
        if waveform.ndim == 2:
            if waveform.shape[1] > 1:
                self._warn("channels", f"{what} with {waveform.shape[1]} channels", "averaged")
            waveform = waveform.mean(axis=1)
        if rate < self.sampling_rate:
            what = f"{what} with a rate of {rate} Hz, below sampling_rate={self.sampling_rate}"
            self._warn("rate", what, "resampled without high frequencies")
        ratio = Fraction(self.sampling_rate, rate).limit_denominator(MAX_TERM)
        resampled = resample_poly(waveform, ratio.numerator, ratio.denominator)
        return resampled.clip(-1, 1).astype(np.float32, copy=False)

    def _warn(self, kind: str, what: str, how: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            warn_user(f"Got {what}: it is {how}, and so are all others like it.")

    def fingerprint(self) -> str:
        """A hash of the recordings, their order and their rate. No file is opened."""
        digest = hashlib.sha256(f"{self.sampling_rate}".encode())
        for item in self._items:
            if isinstance(item, Path):
                state = item.stat()
                key = (os.path.abspath(item), state.st_size, state.st_mtime_ns)
                digest.update(repr(key).encode())
            else:
                digest.update(repr((item.rate, item.values.dtype.str, item.values.shape)).encode())
                digest.update(np.ascontiguousarray(item.values).data)
        return digest.hexdigest()


class AudioData(NamedTuple):
    """Waveforms, and the names of their word folders if there are any."""

    waveforms: Waveforms
    labels: np.ndarray | None


def read_waveforms(
    X: Any,
    *,
    sampling_rate: int = 16000,
    name: str = "X",
    labelled: bool = True,
    n_words: int = 2,
) -> AudioData:
    """Read waveforms of one sampling rate.

    Parameters
    ----------
    X : path, array or sequence
        A folder of word folders with audio files (hidden folders and ``_background_noise_`` are
        ignored); a sequence of files; a sequence of waveforms, or an array with one per row; or a
        sequence of pairs ``(rate, waveform)`` as :func:`scipy.io.wavfile.read` returns them.
        Waveforms are floats in [-1, 1], or integers of type int16, int32 or uint8 (zero is 128).
        A waveform without a rate has one channel and the rate ``sampling_rate``. Files and pairs
        may have several channels, which are averaged with one warning. They may have other rates
        and are then resampled, with one warning if the rate was lower. scipy reads wav files, and
        soundfile reads other formats: ``pip install mixupe-sklearn[speech]``.
    sampling_rate : int, default=16000
        Sampling rate of the waveforms in Hz.
    name : str, default="X"
        Name of the input in an error.
    labelled : bool, default=True
        Whether a folder must have word folders, and no audio file beside them. If not, all audio
        files are read: first those directly in the folder, then those of each word.
    n_words : int, default=2
        Minimum number of word folders if ``labelled``.

    Returns
    -------
    audio : AudioData
        ``waveforms``, whose files are read on access, and ``labels``, an array with the names of
        the word folders, or None if a file is in none of them.

    Examples
    --------
    >>> import numpy as np
    >>> from mixupe_sklearn._audio.waveforms import read_waveforms
    >>> pairs = [(8000, np.zeros(4000)), (16000, np.zeros(16000))]
    >>> audio = read_waveforms(pairs, sampling_rate=8000)
    >>> [len(waveform) for waveform in audio.waveforms]
    [4000, 8000]
    """
    check_rules({"sampling_rate": sampling_rate}, {"sampling_rate": RATE})
    if isinstance(X, AudioData):
        return X
    if isinstance(X, str | os.PathLike):
        return _read_folder(X, int(sampling_rate), name, n_words if labelled else 0)
    items = _as_items(X, name)
    found = [_as_item(item, int(sampling_rate), f"{name}[{i}]") for i, item in enumerate(items)]
    return AudioData(Waveforms(found, int(sampling_rate)), None)


def _read_folder(X: str | os.PathLike, sampling_rate: int, name: str, n_least: int) -> AudioData:
    folder, got = existing_folder(X, name), f"Got {name}={os.fspath(X)!r}"
    words, loose = find_words(folder), files_in(folder, SUFFIXES)
    if n_least:
        check_classes(words, loose, got, "audio file", n_least)
    paths = [*loose, *(path for found in words.values() for path in found)]
    if not paths:
        raise ValueError(f"{got} without an audio file, but expected some ({', '.join(SUFFIXES)}).")
    labels = np.repeat(list(words), [len(found) for found in words.values()])
    return AudioData(Waveforms(paths, sampling_rate), None if loose else labels)


def _as_items(X: Any, name: str) -> Sequence[Any]:
    """The rows of an array, or the items of a list."""
    if not isinstance(X, list | tuple):
        if not hasattr(X, "__array__"):
            raise TypeError(
                f"Got {name} of type {type(X).__name__}, but expected a list of waveforms, of "
                f"files or of pairs (rate, waveform), an array, or the path of a folder."
            )
        X = _as_array(X)
        is_flat = X.ndim == 1 and X.dtype.kind in "biufc"
        if X.ndim not in (1, 2) or is_flat or (X.ndim == 2 and 0 < X.shape[1] < 3 and len(X)):
            raise ValueError(
                f"Got {name} of shape {X.shape}, but expected one waveform of one channel per row; "
                f"average channels, and put a single waveform in a list."
            )
    if len(X) == 0:
        raise ValueError(f"Got {name} without waveforms, but expected at least one.")
    return X


def _as_array(values: Any) -> np.ndarray:
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)


def _as_item(item: Any, sampling_rate: int, what: str) -> Path | Recording:
    if isinstance(item, str | os.PathLike):
        path = Path(item)
        if not path.is_file():
            raise FileNotFoundError(
                f"Got {what}={str(path)!r}, but expected an existing audio file; the current "
                f"folder is {str(Path.cwd())!r}."
            )
        return path
    if isinstance(item, list | tuple) and len(item) == 2 and np.ndim(item[1]) > 0:
        check_rules({f"rate of {what}": item[0]}, {f"rate of {what}": RATE})
        rate, values = int(item[0]), _as_array(item[1])
        is_right = values.ndim == 1 or (values.ndim == 2 and values.shape[0] >= values.shape[1])
    else:
        rate, values = sampling_rate, _as_array(item)
        is_right = values.ndim == 1
    if values.ndim == 0 or values.dtype.kind not in "biufc":
        raise ValueError(
            f"Got {what} of type {type(item).__name__}, but expected a waveform, a file or a pair "
            f"(rate, waveform); put a single waveform in a list."
        )
    if not is_right:
        raise ValueError(
            f"Got {what} of shape {values.shape}, but expected (n_values,), one channel; "
            f"average channels, or give a pair (rate, values of shape (n_values, n_channels))."
        )
    check_values(values, what)
    return Recording(rate, values)


def _scaled(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind == "f":
        return values.astype(np.float32, copy=False)
    zero, full = SCALES[values.dtype.name]
    return ((values.astype(np.float64) - zero) / full).astype(np.float32)
