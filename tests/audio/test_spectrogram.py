"""Spectrogram: its values equal the definition, with any batch, cache or pipeline."""

import os
import subprocess
import sys

import numpy as np
import pytest
import sklearn
import torch
from scipy.io import wavfile
from scipy.signal import ShortTimeFFT, get_window
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags

from mixupe_sklearn._audio import spectrogram
from mixupe_sklearn._audio.spectrogram import Spectrogram, log_spectrogram
from mixupe_sklearn._audio.waveforms import read_waveforms

LENGTHS = (16000, 11025, 2, 159, 160, 20000, 321)


def noise(n_values, seed=0):
    return np.random.default_rng(seed).uniform(-0.5, 0.5, n_values).astype(np.float32)


@pytest.fixture(scope="module")
def noises():
    return [noise(n_values, seed) for seed, n_values in enumerate(LENGTHS)]


@pytest.fixture(scope="module")
def spectrograms(noises):
    return Spectrogram().transform(noises)


def by_definition(waveform, n_window=320, n_stride=160, n_frequencies=160):
    """The definition: one frame at a time, as a sum, in double precision."""
    values = np.pad(waveform.astype(np.float64), n_window)
    angles = np.outer(np.arange(n_frequencies), np.arange(n_window)) / n_window
    hamming = 0.54 - 0.46 * np.cos(2 * np.pi * np.arange(n_window) / n_window)
    phases = np.exp(-2j * np.pi * angles) * hamming
    starts = n_window // 2 + n_stride * np.arange(1 + len(waveform) // n_stride)
    frames = np.stack([values[start : start + n_window] for start in starts], axis=1)
    logs = np.log(1 + np.abs(phases @ frames))
    return (logs - logs.mean()) / logs.std()


# Values


@pytest.mark.parametrize("row", range(len(LENGTHS)))
def test_a_spectrogram_equals_its_definition(noises, spectrograms, row):
    expected = by_definition(noises[row])
    n_frames = min(101, expected.shape[1])
    np.testing.assert_allclose(spectrograms[row, :, :n_frames], expected[:, :n_frames], atol=2e-5)
    assert not spectrograms[row, :, n_frames:].any()


def test_magnitudes_equal_those_of_scipy(noises):
    waveform = noises[0]
    reference = ShortTimeFFT(get_window("hamming", 320), hop=160, fs=16000, scale_to=None)
    expected = np.log1p(np.abs(reference.stft(waveform.astype(np.float64), p0=0, p1=101)))[:160]
    (logs,) = log_spectrogram([waveform])
    np.testing.assert_allclose(logs, expected, atol=1e-5)


def test_the_default_size_is_that_of_the_paper(spectrograms):
    assert spectrograms.shape == (len(LENGTHS), 160, 101)
    assert spectrograms.dtype == np.float32
    np.testing.assert_allclose(spectrograms[0].mean(), 0, atol=1e-6)
    np.testing.assert_allclose(spectrograms[0].std(), 1, atol=1e-5)


def test_the_batch_does_not_change_a_spectrogram(noises, spectrograms):
    # Not to the bit: the FFT library may choose its algorithm by the number of frames.
    for batch_size in (1, 3):
        others = Spectrogram(batch_size=batch_size).transform(noises)
        np.testing.assert_allclose(others, spectrograms, atol=2e-6)
    alone = np.concatenate([Spectrogram().transform([waveform]) for waveform in noises])
    np.testing.assert_allclose(alone, spectrograms, atol=2e-6)


@pytest.mark.parametrize(
    ("waveform", "is_constant"),
    [
        (np.zeros(4000), True),
        (np.full(4000, 1e-30), True),
        (np.full(1, 0.3), True),  # a click has equal magnitudes
        (np.zeros(16000, dtype=np.uint8) + 128, True),
        (noise(4000) / 2**14, False),
        (np.full(4000, 0.5), False),  # the first frequency, and two ends
    ],
    ids=["zeros", "tiny", "click", "8-bit zeros", "last bit", "level"],
)
def test_silence_gives_zeros_and_never_nan(waveform, is_constant):
    result = Spectrogram().transform([waveform])
    assert np.isfinite(result).all()
    assert result.any() != is_constant


def test_volume_hardly_changes_a_spectrogram(noises):
    loud, quiet = Spectrogram().transform([noises[0], noises[0] / 2])
    assert np.corrcoef(loud.ravel(), quiet.ravel())[0, 1] > 0.98


@pytest.mark.parametrize("rate", [8000, 16000, 44100])
def test_a_tone_is_at_its_frequency_at_any_rate(rate):
    tone = 0.5 * np.sin(2 * np.pi * 1000 * np.arange(rate) / rate)
    result = Spectrogram(sampling_rate=rate).transform([tone])[0]
    assert result.shape == (160, 101)
    # A window too short for 160 frequencies is padded, which narrows the bins.
    spacing = rate / max(round(0.02 * rate), 320)
    assert abs(result[:, 50].argmax() * spacing - 1000) <= spacing


def test_other_rates_give_similar_spectrograms():
    def chirp(rate):
        seconds = np.arange(rate) / rate
        return rate, 0.5 * np.sin(2 * np.pi * (300 + 1000 * seconds) * seconds)

    fast, right = Spectrogram().transform([chirp(44100), chirp(16000)])
    assert np.corrcoef(fast.ravel(), right.ravel())[0, 1] > 0.99


def test_parameters_set_the_size(noises):
    small = Spectrogram(window=0.04, stride=0.02, n_frequencies=40, n_frames=10)
    result = small.transform(noises[:1])
    assert result.shape == (1, 40, 10)
    expected = by_definition(noises[0], n_window=640, n_stride=320, n_frequencies=40)
    np.testing.assert_allclose(result[0], expected[:, :10], atol=2e-5)


def test_a_long_waveform_has_its_own_batch(noises, monkeypatch):
    sizes = []

    def recorded(waveforms, **parameters):
        sizes.append(len(waveforms) * max(len(waveform) for waveform in waveforms))
        return log_spectrogram(waveforms, **parameters)

    monkeypatch.setattr(spectrogram, "log_spectrogram", recorded)
    Spectrogram(batch_size=4).transform([*noises, noise(200_000), *noises])
    assert sorted(sizes)[-1] == 200_000  # alone
    assert sorted(sizes)[-2] <= 4 * 101 * 160


def test_settings_of_torch_have_no_effect_and_stay(noises, spectrograms, double, one_thread):
    state = torch.get_rng_state()
    np.testing.assert_allclose(Spectrogram().transform(noises), spectrograms, atol=2e-6)
    assert torch.get_num_threads() == 1
    assert torch.get_default_dtype() == torch.float64
    assert torch.equal(torch.get_rng_state(), state)


# API of scikit-learn


def test_the_transformer_is_stateless(noises, spectrograms):
    transformer = clone(Spectrogram(n_frames=50))
    assert transformer.get_params()["n_frames"] == 50
    assert not get_tags(transformer).requires_fit
    assert transformer.fit(noises) is transformer
    assert vars(transformer) == vars(Spectrogram(n_frames=50))
    np.testing.assert_allclose(transformer.transform(noises), spectrograms[:, :, :50], atol=2e-6)


def test_it_works_in_a_pipeline_and_with_pandas_output():
    seconds = np.arange(1600) / 16000
    X = np.sin(2 * np.pi * np.linspace(300, 3000, 20)[:, None] * seconds)
    y = np.repeat(["low", "high"], 10)
    flat = FunctionTransformer(lambda spectrograms: spectrograms.reshape(len(spectrograms), -1))
    pipeline = make_pipeline(Spectrogram(n_frames=11), flat, LogisticRegression())
    assert pipeline.fit(X, y).score(X, y) == 1
    with sklearn.config_context(transform_output="pandas"):
        assert isinstance(Spectrogram().fit_transform(X[:1]), np.ndarray)
    assert not hasattr(Spectrogram(), "set_output")


INVALID = {
    "sampling_rate": (0, "Got sampling_rate=0, but expected an integer rate in Hz"),
    "window": (0.0, "Got window=0.0, but expected a number of seconds > 0."),
    "stride": ("10ms", "Got stride='10ms', but expected a number of seconds > 0."),
    "n_frequencies": (0, "Got n_frequencies=0, but expected an integer >= 1."),
    "n_frames": (1.5, "Got n_frames=1.5, but expected an integer >= 1."),
    "batch_size": (-1, "Got batch_size=-1, but expected an integer >= 1."),
    "cache": (True, "Got cache=True, but expected a folder or None."),
}


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_parameter_is_refused_by_fit_and_by_transform(name):
    assert set(INVALID) == set(Spectrogram().get_params())
    value, message = INVALID[name]
    for method in ("fit", "transform"):
        with pytest.raises(ValueError, match=message):
            getattr(Spectrogram(**{name: value}), method)([noise(100)])


def test_a_stride_below_one_value_is_refused():
    with pytest.raises(
        ValueError, match=r"Got window=0.02 and stride=1e-05, .* both are in seconds."
    ):
        Spectrogram(stride=1e-5).fit(None)


def test_an_empty_waveform_is_refused():
    with pytest.raises(ValueError, match=r"Got X\[0\] without any values"):
        Spectrogram().transform([np.zeros(0)])


# The cache


@pytest.fixture
def counted(monkeypatch):
    """The sizes of the batches that were computed."""
    calls = []

    def recorded(waveforms, **parameters):
        calls.append(len(waveforms))
        return log_spectrogram(waveforms, **parameters)

    monkeypatch.setattr(spectrogram, "log_spectrogram", recorded)
    return calls


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / f"{n}.wav" for n in (2000, 3000)]
    for path in paths:
        wavfile.write(path, 16000, noise(int(path.stem)))
    return paths


def test_the_second_call_reads_from_the_cache(noises, spectrograms, cache, counted):
    transformer = Spectrogram(cache=cache / "deep")
    first, second = transformer.transform(noises), transformer.transform(noises)
    assert len(counted) == 1
    for cached in (first, second):
        assert isinstance(cached, np.memmap)
        np.testing.assert_allclose(cached, spectrograms, atol=2e-6)
    assert len(list((cache / "deep").iterdir())) == 1  # no temporary file is left


def test_a_changed_result_does_not_change_the_cache(noises, spectrograms, cache):
    transformer = Spectrogram(cache=str(cache))
    torch.from_numpy(transformer.transform(noises)).zero_()
    np.testing.assert_allclose(transformer.transform(noises), spectrograms, atol=2e-6)


def test_other_waveforms_or_parameters_are_computed_again(noises, cache, counted):
    other = [*noises[:-1], noises[-1] / 2]
    kinds = [({}, noises), ({}, other), ({}, noises[:-1]), ({"n_frames": 50}, noises)]
    kinds += [({"n_frequencies": 50}, noises), ({"window": 0.01}, noises)]
    kinds += [({"stride": 0.02}, noises), ({"sampling_rate": 8000}, noises)]
    for parameters, X in kinds:
        Spectrogram(cache=cache, **parameters).transform(X)
    assert len(list(cache.iterdir())) == len(counted) == len(kinds)
    Spectrogram(cache=cache, batch_size=2).transform(noises)  # the same values
    assert len(counted) == len(kinds)


def test_a_changed_file_is_computed_again(files, cache, counted):
    transformer = Spectrogram(cache=cache)
    first = transformer.transform(files)
    wavfile.write(files[0], 16000, noise(2000, seed=7))
    os.utime(files[0], ns=(0, 1))
    second = transformer.transform(files)
    assert len(counted) == 2
    assert not np.array_equal(first[0], second[0])
    np.testing.assert_array_equal(first[1], second[1])


def test_cached_spectrograms_are_returned_without_reading_audio(files, cache):
    first = Spectrogram(cache=cache).transform(files)
    for path in files:
        state = path.stat()
        path.write_bytes(bytes(state.st_size))
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    np.testing.assert_array_equal(Spectrogram(cache=cache).transform(files), first)


@pytest.mark.parametrize("damage", ["empty", "cut", "other", "shape", "pickle", "middle"])
def test_a_damaged_cache_file_is_computed_again(noises, spectrograms, cache, damage, counted):
    transformer = Spectrogram(cache=cache)
    transformer.transform(noises)
    (path,) = cache.iterdir()
    if damage == "shape":
        np.save(path, np.zeros((2, 3), dtype=np.float32))
    elif damage == "pickle":
        np.save(path, np.array([{}]), allow_pickle=True)
    else:
        intact = path.read_bytes()
        half = len(intact) // 2
        other = bytes([intact[half] ^ 1])  # one bit of one value
        contents = {"empty": b"", "cut": intact[:-1], "other": b"not numpy's"}
        contents["middle"] = intact[:half] + other + intact[half + 1 :]
        path.write_bytes(contents[damage])
    for _ in range(2):
        np.testing.assert_allclose(transformer.transform(noises), spectrograms, atol=2e-6)
    assert len(counted) == 2


def test_an_error_leaves_nothing_in_the_cache(files, cache):
    files[1].write_bytes(b"RIFF")
    with pytest.raises(ValueError, match="3000.wav"):
        Spectrogram(cache=cache).transform(files)
    assert list(cache.iterdir()) == []


RACE = """
import sys
from mixupe_sklearn._audio.spectrogram import Spectrogram
print("ready", flush=True)
sys.stdin.readline()
for n_frames in range(1, 41):
    cached = Spectrogram(cache=sys.argv[1], n_frames=n_frames).transform(sys.argv[2:])
    assert cached[:, :, 0].any(axis=1).all(), n_frames
"""


def test_two_processes_share_a_cache(files, cache):
    command = [sys.executable, "-c", RACE, str(cache), *map(str, files)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as other:
        assert other.stdout.readline() == "ready\n"
        other.stdin.write("go\n")
        other.stdin.flush()
        mine = [Spectrogram(cache=cache, n_frames=n).transform(files) for n in range(1, 41)]
        other.communicate(timeout=60)
    assert other.returncode == 0
    assert len(list(cache.iterdir())) == 40
    for cached in mine:
        expected = Spectrogram(n_frames=cached.shape[2]).transform(files)
        np.testing.assert_allclose(cached, expected, atol=2e-6)


def test_audio_data_is_transformed(files):
    audio = read_waveforms(files)
    np.testing.assert_array_equal(Spectrogram().transform(audio), Spectrogram().transform(files))
