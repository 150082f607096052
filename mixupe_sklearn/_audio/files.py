"""Audio files: how to find, read and check them."""

import io
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.io import wavfile

from mixupe_sklearn._utils.class_folders import files_in, visible
from mixupe_sklearn._utils.warnings import own_filters

# A folder is searched for these. A list may name files of any format that soundfile reads.
SUFFIXES = (".wav", ".flac", ".ogg", ".opus", ".mp3", ".aiff")
# Speech Commands has minutes of noise in a folder beside its words.
NOISE = "_background_noise_"
# Zero and full scale of the integer types of wav files.
SCALES = {"uint8": (128, 128), "int16": (0, 2**15), "int32": (0, 2**31)}
# Resampled and decompressed audio overshoots full scale a little. Integers as floats exceed this.
MAX_VALUE = 1.1
# In Hz. Another rate means a damaged header, and resampling would exhaust the memory.
MIN_RATE, MAX_RATE = 1_000, 1_000_000


class Recording(NamedTuple):
    """Unscaled values of one or more channels, and their sampling rate in Hz."""

    rate: int
    values: np.ndarray


def find_words(folder: Path, suffixes: Collection[str] = SUFFIXES) -> dict[str, list[Path]]:
    """The audio files of each word folder, sorted, without hidden files and background noise."""
    folders = [path for path in visible(folder) if path.is_dir() and path.name != NOISE]
    return {path.name: files_in(path, suffixes) for path in folders}


def check_values(values: np.ndarray, what: str) -> None:
    """Raise an error for values that are not audio."""
    if values.dtype.kind != "f" and values.dtype.name not in SCALES:
        raise ValueError(
            f"Got {what} of type {values.dtype}, but expected floats in [-1, 1], or integers of "
            f"type {', '.join(SCALES)}; convert it, for example with values.astype('int16')."
        )
    if values.size == 0:
        raise ValueError(f"Got {what} without any values, but expected a waveform; leave it out.")
    if values.dtype.kind != "f":
        return
    low, high = values.min(), values.max()
    if not max(-low, high) <= MAX_VALUE:  # nor if a value is NaN
        raise ValueError(
            f"Got {what} with floats from {low:.6g} to {high:.6g}, but expected finite values in "
            f"[-1, 1]; convert 16-bit values to int16, or divide them by 32768."
        )


def read_file(path: Path, what: str) -> Recording:
    """Read and check an audio file. ``what`` is its name in an error."""
    rate, values = _read_wav(path, what) if path.suffix.lower() == ".wav" else _decode(path, what)
    if not MIN_RATE <= rate <= MAX_RATE:
        raise ValueError(
            f"Got {what} with a sampling rate of {rate} Hz, but expected {MIN_RATE} to {MAX_RATE}; "
            f"its header may be damaged."
        )
    check_values(values, what)
    return Recording(rate, values)


def _read_wav(path: Path, what: str) -> tuple[int, np.ndarray]:
    content = path.read_bytes()
    # Programs that write to a pipe do not know the length, and write the largest number.
    is_open_ended = content[4:8] == b"\xff" * 4
    with own_filters(record=True, action="always") as caught:
        try:
            rate, values = wavfile.read(io.BytesIO(content))
        except Exception as error:  # scipy raises many types of errors on bad headers
            reason = f" ({error})" if isinstance(error, ValueError) else ""
            raise ValueError(
                f"Got {what}, but expected an intact wav file of PCM or float values{reason}."
            ) from error
    is_cut = any("EOF prematurely" in str(warning.message) for warning in caught)
    if is_cut and not is_open_ended:
        raise ValueError(
            f"Got {what}, which is shorter than its header declares, but expected an intact wav "
            f"file; download it again or leave it out."
        )
    return rate, values


def _decode(path: Path, what: str) -> tuple[int, np.ndarray]:
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: libsndfile is missing
        raise ImportError(
            f"Got {what}, which is not a wav file, but expected soundfile for other formats: "
            f"pip install mixupe-sklearn[speech]."
        ) from error
    try:
        values, rate = soundfile.read(path, dtype="float32")
    except soundfile.LibsndfileError as error:
        raise ValueError(f"Got {what}, but expected an intact audio file ({error}).") from error
    return rate, values
