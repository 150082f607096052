"""The paper's input for speech: normalised log spectrograms of 160 frequencies by 101 frames."""

import hashlib
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from sklearn.base import BaseEstimator, TransformerMixin

from mixupe_sklearn._audio.waveforms import RATE, Waveforms, read_waveforms
from mixupe_sklearn._utils.atomic_files import replacing
from mixupe_sklearn._utils.parameter_rules import Kind, Number, Rule, check_rules

COUNT = Number("an integer >= 1", 1, integer=True)
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
# Increase it when the values change, so that older cache files are no longer found.
FORMAT = 2
# A checksum follows the array in a cache file, and is computed by parts of this size.
N_CHECKSUM, CHUNK_BYTES = 4, 2**20
# A smaller standard deviation relative to the mean is rounding. That of noise is about 0.5.
CONSTANT = 1e-5


def log_spectrogram(
    waveforms: Sequence[np.ndarray], *, n_window: int = 320, n_stride: int = 160, n_frequencies=160
) -> list[np.ndarray]:
    r"""log(1 + magnitude) of the short-time Fourier transform of each waveform.

    Frame ``t`` is a Hamming window of ``n_window`` values, centred at value ``t * n_stride``.
    Waveforms are padded with zeros at both ends. The lowest frequencies of the transform are kept.
    A window that is too short for that many frequencies is padded with zeros.

    Waveforms of unequal length share one batch: the shorter ones are padded with zeros. The frames
    of a waveform do not depend on the other waveforms in its batch.

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
    longest = max(len(waveform) for waveform in waveforms)
    padded = torch.zeros(len(waveforms), longest, dtype=torch.float32, device="cpu")
    for row, waveform in zip(padded, waveforms, strict=True):
        values = np.ascontiguousarray(waveform, dtype=np.float32)
        row[: len(waveform)] = torch.from_numpy(values)
    hamming = torch.hamming_window(n_window, dtype=padded.dtype, device=padded.device)
    transform = torch.stft(
        padded, n_fft, n_stride, n_window, hamming, pad_mode="constant", return_complex=True
    )
    logs = transform[:, :n_frequencies].abs().log1p_().numpy()
    return [
        log[:, : 1 + len(waveform) // n_stride]
        for log, waveform in zip(logs, waveforms, strict=True)
    ]


def normalise(spectrogram: np.ndarray) -> np.ndarray:
    """Scale a spectrogram to mean 0 and standard deviation 1. A constant one becomes zeros."""
    # A contiguous copy: a view of a larger array would be summed in another order.
    values = np.ascontiguousarray(spectrogram)
    mean, deviation = values.mean(), values.std()
    # Do not amplify the rounding errors of silence or of a single click.
    is_constant = deviation <= CONSTANT * abs(mean)
    return np.zeros_like(values) if is_constant else (values - mean) / deviation


# No set_output wrapper: the result fits no data frame, and warnings would point to the wrapper.
class Spectrogram(TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """Transform waveforms into normalised log spectrograms of one size, as in the paper.

    The spectrogram is log(1 + magnitude) of the short-time Fourier transform (a Hamming window of
    20 ms every 10 ms). It is normalised by its own mean and standard deviation, and then padded
    with zeros or cropped to 101 frames, which is one second. The transformer is stateless: ``fit``
    only checks the parameters, and ``transform`` works without it.

    Parameters
    ----------
    sampling_rate : int, default=16000
        Sampling rate in Hz. Audio with another rate is resampled.
    window : float, default=0.02
        Length of a frame in seconds.
    stride : float, default=0.01
        Seconds between the starts of two frames.
    n_frequencies : int, default=160
        Number of frequencies that are kept, from the lowest. The default drops the highest of the
        161 frequencies of a window of 320 values.
    n_frames : int, default=101
        Number of frames of each spectrogram.
    batch_size : int, default=256
        Number of waveforms of full length that are transformed at once.
    cache : path or None, default=None
        A folder for results, one file for each input and set of parameters. Later calls read
        them memory-mapped. Audio files are identified by path, size and modification time, and
        arrays by their values. Nothing is ever deleted from the folder.

    Notes
    -----
    ``set_output`` is not available, because the result has three dimensions.

    Memory holds one batch of waveforms and the result, which is memory-mapped with a ``cache``.

    Examples
    --------
    >>> import numpy as np
    >>> from mixupe_sklearn import Spectrogram
    >>> X = [np.sin(np.arange(16000)), np.sin(np.arange(8000) / 10)]
    >>> spectrograms = Spectrogram().fit_transform(X)
    >>> spectrograms.shape, spectrograms.dtype
    ((2, 160, 101), dtype('float32'))
    >>> bool(spectrograms[1, :, 51:].any())  # after half a second
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
        """Check the parameters. Nothing is learned.

        Parameters
        ----------
        X : ignored
            Present for the API of scikit-learn.
        y : ignored
            Present for the API of scikit-learn.

        Returns
        -------
        self : Spectrogram
            The transformer itself.
        """
        check_rules(vars(self), RULES)
        if min(self._n_values(self.window), self._n_values(self.stride)) < 1:
            raise ValueError(
                f"Got window={self.window} and stride={self.stride}, but expected at least one "
                f"value at sampling_rate={self.sampling_rate} in each; both are in seconds."
            )
        return self

    def transform(self, X):
        """Compute the spectrograms, or read them from the cache.

        Parameters
        ----------
        X : waveforms
            Waveforms of any length, one per row or in a list; pairs ``(rate, waveform)``; audio
            files; or a folder of them.

        Returns
        -------
        spectrograms : ndarray of shape (n_samples, n_frequencies, n_frames)
            float32. It is memory-mapped with a ``cache``, and can be written to (copy on write).
        """
        self.fit(X)
        waveforms = read_waveforms(X, sampling_rate=self.sampling_rate, labelled=False).waveforms
        shape = (len(waveforms), self.n_frequencies, self.n_frames)
        if self.cache is None:
            result = np.zeros(shape, dtype=np.float32)
            self._fill(result, waveforms)
            return result
        Path(self.cache).mkdir(parents=True, exist_ok=True)
        path = Path(self.cache) / f"spectrograms-{self._key(waveforms)}.npy"
        cached = _read_cached(path, shape)
        return self._save(path, waveforms, shape) if cached is None else cached

    def _n_values(self, seconds: float) -> int:
        return round(seconds * self.sampling_rate)

    def _fill(self, result: np.ndarray, waveforms: Waveforms) -> None:
        """Write the spectrograms into a result of zeros, batch by batch, cropped to its frames."""
        start, n_most = 0, self.batch_size * self.n_frames * self._n_values(self.stride)
        for batch in batches_of(waveforms, n_most):
            logs = log_spectrogram(
                batch,
                n_window=self._n_values(self.window),
                n_stride=self._n_values(self.stride),
                n_frequencies=self.n_frequencies,
            )
            for row, log in enumerate(logs, start):
                result[row, :, : log.shape[1]] = normalise(log)[:, : self.n_frames]
            start += len(batch)

    def _key(self, waveforms: Waveforms) -> str:
        numbers = {name: getattr(self, name) for name in ("n_frequencies", "n_frames")}
        numbers |= {name: self._n_values(getattr(self, name)) for name in ("window", "stride")}
        text = f"{FORMAT} {sorted(numbers.items())} {waveforms.fingerprint()}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def _save(self, path: Path, waveforms: Waveforms, shape: tuple[int, ...]) -> np.ndarray:
        """Compute into a temporary file, and rename it when it is complete."""
        with replacing(path) as file:
            result = np.lib.format.open_memmap(file.name, "w+", np.dtype(np.float32), shape)
            # A mapped write to a full disk would kill the process, so allocate the space now.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)
            self._fill(result, waveforms)
            result.flush()
            del result
            file.seek(0, os.SEEK_END)
            file.write(_checksum(Path(file.name)))
        return np.load(path, mmap_mode="c")


def batches_of(waveforms: Sequence[np.ndarray], n_most: int) -> Iterator[list[np.ndarray]]:
    """Batches of waveforms, in order, of at most ``n_most`` values when padded to the longest."""
    batch: list[np.ndarray] = []
    longest = 0
    for position in range(len(waveforms)):  # an iterator would hide the caller from warnings
        waveform = waveforms[position]
        longest = max(longest, len(waveform))
        if batch and longest * (len(batch) + 1) > n_most:
            yield batch
            batch, longest = [], len(waveform)
        batch.append(waveform)
    if batch:
        yield batch


def _checksum(path: Path, n_left_out: int = 0) -> bytes:
    """The checksum of a file without its last bytes, which is read part by part."""
    n_bytes, found = path.stat().st_size - n_left_out, 0
    with path.open("rb") as file:
        while part := file.read(min(CHUNK_BYTES, n_bytes - file.tell())):
            found = zlib.crc32(part, found)
    return found.to_bytes(N_CHECKSUM, "big")


def _read_cached(path: Path, shape: tuple[int, ...]) -> np.ndarray | None:
    """The result of an earlier call, or None if there is no intact file."""
    try:
        with path.open("rb") as file:
            file.seek(-N_CHECKSUM, os.SEEK_END)
            if file.read() != _checksum(path, N_CHECKSUM):
                return None
        # Copy on write: torch warns about read-only arrays.
        cached = np.load(path, mmap_mode="c")
    except (OSError, ValueError, EOFError):
        return None
    return cached if cached.shape == shape and cached.dtype == np.float32 else None
