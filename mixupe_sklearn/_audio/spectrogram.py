"""The paper's picture of a sound: a normalised log spectrogram, 160 frequencies by 101 frames."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from sklearn.base import BaseEstimator, TransformerMixin

from mixupe_sklearn._audio.waveforms import RATE, Waveforms, read_waveforms
from mixupe_sklearn._utils.atomic_files import replacing
from mixupe_sklearn._utils.parameter_rules import Kind, Number, Rule, check_rules

COUNT = Number("a whole number >= 1", 1, integer=True)
SECONDS = Number("a number of seconds > 0", open_low=True)
RULES: dict[str, Rule] = {
    "sampling_rate": RATE,
    "window": SECONDS,
    "stride": SECONDS,
    "n_frequencies": COUNT,
    "n_frames": COUNT,
    "batch_size": COUNT,
    "cache": Kind("a folder or None", (str, os.PathLike), or_none=True),
}
# To be raised when the numbers change: files of an earlier kind are then not found any more.
FORMAT = 1
# A deviation that is so small a share of the mean is rounding; that of noise is about a half.
FLAT = 1e-5


def log_spectrogram(
    waves: Sequence[np.ndarray], *, n_window: int = 320, n_stride: int = 160, n_frequencies=160
) -> list[np.ndarray]:
    r"""log(1 + magnitude) of the short-time Fourier transform of each wave.

    Frame ``t`` is what a Hamming window of ``n_window`` values, centred at value
    ``t * n_stride``, shows; beyond its ends a wave is silent. The lowest frequencies of the
    transform are kept. Where the window is too short to have as many, it is filled up with zeros.

    Waves of unequal length are computed together, the shorter ones followed by silence, which is
    what each meets at its end anyway: a wave's frames do not depend on its company.

    **Shape:** ``(n_values,)`` each -> ``(n_frequencies, 1 + n_values // n_stride)`` each.

    Examples
    --------
    >>> import numpy as np
    >>> tone = np.sin(2 * np.pi * 1000 * np.arange(16000) / 16000).astype(np.float32)
    >>> (frames,) = log_spectrogram([tone])
    >>> frames.shape, int(frames[:, 50].argmax())  # bins are 50 Hz apart
    ((160, 101), 20)
    """
    n_fft = max(n_window, 2 * n_frequencies)
    longest = max(len(wave) for wave in waves)
    padded = torch.zeros(len(waves), longest, dtype=torch.float32, device="cpu")
    for row, wave in zip(padded, waves, strict=True):
        row[: len(wave)] = torch.from_numpy(np.ascontiguousarray(wave, dtype=np.float32))
    hamming = torch.hamming_window(n_window, dtype=padded.dtype, device=padded.device)
    transform = torch.stft(
        padded, n_fft, n_stride, n_window, hamming, pad_mode="constant", return_complex=True
    )
    logs = transform[:, :n_frequencies].abs().log1p_().numpy()
    return [log[:, : 1 + len(wave) // n_stride] for log, wave in zip(logs, waves, strict=True)]


def normalise(spectrogram: np.ndarray) -> np.ndarray:
    """Shift and scale a spectrogram to mean 0 and deviation 1; a flat one becomes zeros.

    Examples
    --------
    >>> normalise(np.array([[1.0, 3.0]])), normalise(np.zeros((1, 2)))
    (array([[-1.,  1.]]), array([[0., 0.]]))
    """
    # A copy in one piece: sums over a part of a larger array come in another order.
    values = np.ascontiguousarray(spectrogram)
    mean, deviation = values.mean(), values.std()
    # The rounding errors of a flat one, silence or a single click, are not to be blown up.
    is_flat = deviation <= FLAT * abs(mean)
    return np.zeros_like(values) if is_flat else (values - mean) / deviation


def fit_frames(spectrogram: np.ndarray, n_frames: int = 101) -> np.ndarray:
    """Cut a spectrogram, or fill it up with zeros, to this many frames.

    Examples
    --------
    >>> fit_frames(np.ones((1, 2)), 3), fit_frames(np.ones((1, 2)), 1)
    (array([[1., 1., 0.]]), array([[1.]]))
    """
    n_missing = max(0, n_frames - spectrogram.shape[1])
    return np.pad(spectrogram[:, :n_frames], ((0, 0), (0, n_missing)))


# Without the wrapper for frames: none is offered, and warnings would point into it.
class Spectrogram(TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """Turn sounds into normalised log spectrograms of one size, as the paper's networks want them.

    A sound becomes the magnitudes of its short-time Fourier transform (a Hamming window of 20 ms
    every 10 ms), as log(1 + magnitude), normalised by its own mean and deviation, and then filled
    up with zeros or cut to 101 frames: one second. Nothing is learned, so ``fit`` only checks
    parameters, and ``transform`` needs no ``fit``.

    Parameters
    ----------
    sampling_rate : int, default=16000
        Values a second; sounds at another rate are resampled.
    window : float, default=0.02
        Seconds that a frame shows.
    stride : float, default=0.01
        Seconds from one frame to the next.
    n_frequencies : int, default=160
        How many frequencies are kept, from the lowest. The default leaves out the highest of the
        161 that a window of 320 values has.
    n_frames : int, default=101
        How many frames each spectrogram has in the end.
    batch_size : int, default=256
        How many sounds, of as many seconds as the result shows, are transformed at once.
    cache : path or None, default=None
        A folder that keeps results, in a file for each set of sounds and parameters, to be
        read memory-mapped the next time. Files are known by path, size and time of change, arrays
        by their values. Nothing is ever deleted from it.

    Notes
    -----
    The result has three dimensions, which no frame has: ``set_output`` is not offered.

    Memory: a batch of sounds, and the result, which stays in a file if there is a ``cache``.

    Examples
    --------
    >>> import numpy as np
    >>> from mixupe_sklearn import Spectrogram
    >>> sounds = [np.sin(np.arange(16000)), np.sin(np.arange(8000) / 10)]
    >>> pictures = Spectrogram().fit_transform(sounds)
    >>> pictures.shape, pictures.dtype
    ((2, 160, 101), dtype('float32'))
    >>> bool(pictures[1, :, 51:].any())  # after half a second
    False
    """

    def __init__(
        self,
        *,
        sampling_rate=16000,
        window=0.02,
        stride=0.01,
        n_frequencies=160,
        n_frames=101,
        batch_size=256,
        cache=None,
    ):
        self.sampling_rate = sampling_rate
        self.window = window
        self.stride = stride
        self.n_frequencies = n_frequencies
        self.n_frames = n_frames
        self.batch_size = batch_size
        self.cache = cache

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.one_d_array = True
        tags.input_tags.string = True
        return tags

    def fit(self, X, y=None):
        """Check the parameters; nothing is learned.

        Parameters
        ----------
        X : sounds
            Not looked at.
        y : None
            Not looked at.

        Returns
        -------
        self : Spectrogram
            This very object.
        """
        check_rules(vars(self), RULES)
        if min(self._n_values(self.window), self._n_values(self.stride)) < 1:
            raise ValueError(
                f"Got window={self.window} and stride={self.stride}, but expected at least one "
                f"value of sampling_rate={self.sampling_rate} in each; they are in seconds."
            )
        return self

    def transform(self, X):
        """Compute the spectrograms of sounds, or read them from the cache.

        Parameters
        ----------
        X : sounds
            Waveforms of any length, one a row or in a list; pairs ``(rate, waveform)``; sound
            files; or a folder of them.

        Returns
        -------
        spectrograms : ndarray of shape (n_sounds, n_frequencies, n_frames)
            float32; memory-mapped if there is a ``cache``, and free to be written to all the same.
        """
        self.fit(X)
        waves = read_waveforms(X, sampling_rate=self.sampling_rate, labelled=False).waves
        shape = (len(waves), self.n_frequencies, self.n_frames)
        if self.cache is None:
            result = np.empty(shape, dtype=np.float32)
            self._fill(result, waves)
            return result
        path = _make_folder(self.cache) / f"spectrograms-{self._key(waves)}.npy"
        kept = _read_kept(path, shape)
        return self._keep(path, waves, shape) if kept is None else kept

    def _n_values(self, seconds: float) -> int:
        return round(seconds * self.sampling_rate)

    def _fill(self, result: np.ndarray, waves: Waveforms) -> None:
        """Write the spectrograms, batch by batch, where they are to be."""
        start, n_most = 0, self.batch_size * self.n_frames * self._n_values(self.stride)
        for batch in batches_of(waves, n_most):
            logs = log_spectrogram(
                batch,
                n_window=self._n_values(self.window),
                n_stride=self._n_values(self.stride),
                n_frequencies=self.n_frequencies,
            )
            for row, log in enumerate(logs, start):
                result[row] = fit_frames(normalise(log), self.n_frames)
            start += len(batch)

    def _key(self, waves: Waveforms) -> str:
        numbers = {name: getattr(self, name) for name in ("n_frequencies", "n_frames")}
        numbers |= {name: self._n_values(getattr(self, name)) for name in ("window", "stride")}
        text = f"{FORMAT} {sorted(numbers.items())} {waves.fingerprint()}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def _keep(self, path: Path, waves: Waveforms, shape: tuple[int, ...]) -> np.ndarray:
        """Compute into a file of our own, and give it its name when it is whole."""
        with ExitStack() as stack:
            try:
                file = stack.enter_context(replacing(path))
                result = np.lib.format.open_memmap(file.name, "w+", np.dtype(np.float32), shape)
                _take_room(file)
            except OSError as error:
                raise _no_folder(error, self.cache, "can be written to") from error
            self._fill(result, waves)
            result.flush()
            del result
        return np.load(path, mmap_mode="c")


def batches_of(waves: Sequence[np.ndarray], n_most: int) -> Iterator[list[np.ndarray]]:
    """Waves in turn, as many as make at most ``n_most`` values when all are as long as the longest.

    Examples
    --------
    >>> waves = [np.zeros(n_values) for n_values in (2, 3, 1, 9, 1)]
    >>> [[len(wave) for wave in batch] for batch in batches_of(waves, n_most=6)]
    [[2, 3], [1], [9], [1]]
    """
    batch: list[np.ndarray] = []
    longest = 0
    for position in range(len(waves)):
        wave = waves[position]
        longest = max(longest, len(wave))
        if batch and longest * (len(batch) + 1) > n_most:
            yield batch
            batch, longest = [], len(wave)
        batch.append(wave)
    if batch:
        yield batch


def _take_room(file: BinaryIO) -> None:
    """Take all room on the disk now: where it runs out later, the system ends the process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)


def _make_folder(cache: Any) -> Path:
    try:
        Path(cache).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _no_folder(error, cache, "can be made") from error
    return Path(cache)


def _no_folder(error: OSError, cache: Any, what: str) -> OSError:
    return type(error)(
        f"Got cache={os.fspath(cache)!r}, but expected a folder that {what}: {error.strerror}."
    )


def _read_kept(path: Path, shape: tuple[int, ...]) -> np.ndarray | None:
    """What an earlier call kept, or None; a broken file is as good as none."""
    try:
        # Copies on write: torch warns of arrays that cannot be written to.
        kept = np.load(path, mmap_mode="c")
    except (OSError, ValueError, EOFError):
        return None
    return kept if kept.shape == shape and kept.dtype == np.float32 else None
