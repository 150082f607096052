"""Sounds as a user has them, arrays, pairs, files or a folder, read as waves of one kind.

A wave is one channel of float32 values in [-1, 1] at one sampling rate. Files are read when their
wave is asked for, so that a folder may be larger than the memory.
"""

import hashlib
import math
import os
from collections.abc import Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
from scipy.signal import resample_poly

from mixupe_sklearn._audio.files import (
    MOST_RATE,
    SCALES,
    SUFFIXES,
    Recording,
    check_values,
    find_files,
    find_words,
    read_file,
)
from mixupe_sklearn._utils.parameter_rules import Number, check_rules
from mixupe_sklearn._utils.warnings import warn_user

RATE = Number(
    f"a whole number of values a second up to {MOST_RATE}, such as 16000",
    *(0, MOST_RATE + 1, True, True),
)


class Waveforms(Sequence[np.ndarray]):
    """A lazy sequence of waves: float32 values in [-1, 1] at one sampling rate.

    Channels are averaged, 8-bit values are centred, and other rates are resampled. What a listener
    would miss, a second channel or the high tones of a slower recording, is warned of once.

    Parameters
    ----------
    items : sequence of Path or Recording
        Files, and recordings that are known to be good.
    sampling_rate : int
        Values a second of each wave.

    Examples
    --------
    >>> import numpy as np
    >>> waves = Waves([Recording(8, np.array([0, 128, 255], dtype=np.uint8))], sampling_rate=8)
    >>> len(waves), waves[0].round(2).tolist()
    (1, [-1.0, 0.0, 0.9900000095367432])
    """

    def __init__(self, items: Sequence[Path | Recording], sampling_rate: int):
        self.sampling_rate = sampling_rate
        self._items = items
        self._told: set[str] = set()

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> np.ndarray: ...

    @overload
    def __getitem__(self, index: slice) -> "Waveforms": ...

    def __getitem__(self, index):
        """One wave, or some of them as lazy as before."""
        if isinstance(index, slice):
            part = Waveforms(self._items[index], self.sampling_rate)
            part._told = self._told
            return part
        item = self._items[index]
        what = f"the file {str(item)!r}" if isinstance(item, Path) else f"the sound {index}"
        rate, values = read_file(item, what) if isinstance(item, Path) else item
        wave = _scaled(values)
        if wave.ndim == 2:
            if wave.shape[1] > 1:
                self._tell("channels", f"{what} with {wave.shape[1]} channels", "averaged")
            wave = wave.mean(axis=1)
        if rate < self.sampling_rate:
            what = f"{what} with {rate} values a second, fewer than sampling_rate="
            self._tell("rate", f"{what}{self.sampling_rate}", "resampled without the high tones")
        return _resampled(wave, rate, self.sampling_rate).clip(-1, 1).astype(np.float32, copy=False)

    def _tell(self, kind: str, what: str, how: str) -> None:
        if kind not in self._told:
            self._told.add(kind)
            warn_user(f"Got {what}, so it is {how}, and so are others like it.")

    def fingerprint(self) -> str:
        """A text that changes with the sounds, their order and their rate; no file is opened.

        Examples
        --------
        >>> import numpy as np
        >>> sounds = [np.zeros(4), np.ones(3)]
        >>> first, second = read_sounds(sounds), read_sounds(sounds[::-1])
        >>> first.waves.fingerprint() == second.waves.fingerprint()
        False
        """
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


class Sounds(NamedTuple):
    """Waves, and the names of the word folders that they were found in, where there are such."""

    waves: Waveforms
    labels: np.ndarray | None


def read_waveforms(
    X: Any,
    *,
    sampling_rate: int = 16000,
    name: str = "X",
    labelled: bool = True,
    n_words: int = 2,
) -> Sounds:
    """Read sounds as waves of one sampling rate.

    Parameters
    ----------
    X : path, array or sequence
        A folder of word folders with sound files (hidden folders and ``_background_noise_`` are
        left out); a sequence of files; a sequence of waveforms, or an array with one a row; or a
        sequence of pairs ``(rate, waveform)`` as :func:`scipy.io.wavfile.read` returns them.
        Waveforms are floats in [-1, 1], or integers of type int16, int32 or uint8 (zero is 128).
        One without a rate is taken to have ``sampling_rate``, and must have one channel. Files and
        pairs may have several channels, which are averaged with one warning, and other rates, to be
        resampled; one warning says so where the rate was lower. Wav files are read by scipy, others
        by soundfile: ``pip install mixupe-sklearn[speech]``.
    sampling_rate : int, default=16000
        Values a second of the waves.
    name : str, default="X"
        What to call the sounds in an error.
    labelled : bool, default=True
        Whether a folder must have words, and no sound file beside them. If not, all sound files
        are taken: first those that lie in it directly, then those of each word.
    n_words : int, default=2
        How many word folders there must be at least, where labels are wanted.

    Returns
    -------
    sounds : Sounds
        ``waves``, whose files are read when asked for, and ``labels``, an array with the names of
        the word folders, or None where a sound lies in none.

    Examples
    --------
    >>> import numpy as np
    >>> from mixupe_sklearn._audio.waveforms import read_sounds
    >>> sounds = read_sounds([(8000, np.zeros(4000)), (16000, np.zeros(16000))], sampling_rate=8000)
    >>> [len(wave) for wave in sounds.waves]
    [4000, 8000]
    """
    check_rules({"sampling_rate": sampling_rate}, {"sampling_rate": RATE})
    if isinstance(X, Sounds | Waveforms):
        return _as_before(X if isinstance(X, Sounds) else Sounds(X, None), sampling_rate, name)
    if isinstance(X, str | os.PathLike):
        n_least = n_words if labelled else 0
        return _read_folder(X, int(sampling_rate), name, n_least)
    items = _as_items(X, name)
    found = [_as_item(item, int(sampling_rate), f"{name}[{i}]") for i, item in enumerate(items)]
    return Sounds(Waveforms(found, int(sampling_rate)), None)


def _as_before(sounds: Sounds, sampling_rate: int, name: str) -> Sounds:
    if sounds.waves.sampling_rate != sampling_rate:
        raise ValueError(
            f"Got {name} read at {sounds.waves.sampling_rate} values a second, but expected "
            f"sampling_rate={sampling_rate}; read it at that rate."
        )
    return sounds


def _read_folder(X: str | os.PathLike, sampling_rate: int, name: str, n_least: int) -> Sounds:
    folder, got = Path(X), f"Got {name}={os.fspath(X)!r}"
    if not os.fspath(X):  # the current folder otherwise
        raise FileNotFoundError(f"{got}, but expected the path of a folder, or a list of files.")
    if folder.is_file():
        raise ValueError(f"{got}, a file, but expected a folder; put one file in a list.")
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{got}, but expected a folder that is there; the current folder is "
            f"{str(Path.cwd())!r}."
        )
    words, loose = find_words(folder), find_files(folder)
    if n_least:
        _check_words(words, loose, got, n_least)
    paths = [*loose, *(path for found in words.values() for path in found)]
    if not paths:
        raise ValueError(f"{got} without a sound file, but expected some ({', '.join(SUFFIXES)}).")
    labels = np.repeat(list(words), [len(found) for found in words.values()])
    return Sounds(Waveforms(paths, sampling_rate), None if loose else labels)


def _check_words(words: dict[str, list[Path]], loose: list[Path], got: str, n_least: int) -> None:
    expected = "but expected a folder for each word, with its sound files"
    if loose or not words:
        has = f"with {loose[0].name!r} directly in it" if loose else "with no word folder in it"
        raise ValueError(
            f"{got} {has}, {expected}; for sounds without words, give a list of their paths."
        )
    empty = [word for word, paths in words.items() if not paths]
    if empty:
        raise ValueError(
            f"{got} without a sound file in its folder {empty[0]!r}, {expected} "
            f"({', '.join(SUFFIXES)}) in it; fill it or take it away."
        )
    if len(words) < n_least:
        raise ValueError(
            f"{got} with one word only, {next(iter(words))!r}, but expected two word folders at "
            f"least."
        )


def _as_items(X: Any, name: str) -> Sequence[Any]:
    """The sequence's items: the rows of an array, or whatever a list holds."""
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
                f"Got {name} of shape {X.shape}, but expected one waveform of one channel a row; "
                f"average channels, and put a single waveform in a list."
            )
    if len(X) == 0:
        raise ValueError(f"Got {name} with 0 sounds, but expected one at least.")
    return X


def _as_array(values: Any) -> np.ndarray:
    array = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    # Rows of an array of objects may be numbers all the same.
    return np.array(array.tolist()) if array.dtype == object and array.ndim > 1 else array


def _as_item(item: Any, sampling_rate: int, what: str) -> Path | Recording:
    if isinstance(item, str | os.PathLike):
        path = Path(item)
        if not path.is_file():
            raise FileNotFoundError(
                f"Got {what}={str(path)!r}, but expected a sound file that is there; the current "
                f"folder is {str(Path.cwd())!r}."
            )
        return path
    if _is_pair(item):
        check_rules({f"rate of {what}": item[0]}, {f"rate of {what}": RATE})
        rate, values = int(item[0]), _as_array(item[1])
        is_right = values.ndim == 1 or (values.ndim == 2 and values.shape[0] >= values.shape[1])
    else:
        rate, values = sampling_rate, _as_waveform(item, what)
        is_right = values.ndim == 1
    if not is_right:
        raise ValueError(
            f"Got {what} of shape {values.shape}, but expected (n_values,), one channel; "
            f"average channels, or give a pair (rate, values of shape (n_values, n_channels))."
        )
    check_values(values, what)
    return Recording(rate, values)


def _is_pair(item: Any) -> bool:
    is_two = isinstance(item, list | tuple) and len(item) == 2
    return is_two and isinstance(item[0], Integral) and np.ndim(item[1]) > 0


def _as_waveform(item: Any, what: str) -> np.ndarray:
    try:
        values = _as_array(item)
    except ValueError:  # lists of unequal length
        values = np.empty((), dtype=object)
    if values.ndim == 0 or values.dtype.kind not in "biufc":
        raise ValueError(
            f"Got {what} of type {type(item).__name__}, but expected a waveform, a file or a pair "
            f"(rate, waveform); put a single sound in a list."
        )
    return values


def _scaled(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind == "f":
        return values.astype(np.float32, copy=False)
    zero, full = SCALES[values.dtype.name]
    return ((values.astype(np.float64) - zero) / full).astype(np.float32)


def _resampled(wave: np.ndarray, rate: int, wanted: int) -> np.ndarray:
    common = math.gcd(rate, wanted)
    return resample_poly(wave, wanted // common, rate // common) if rate != wanted else wave
