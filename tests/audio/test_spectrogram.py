"""Spectrograms: the numbers are those of the definition, whatever their company, cache or pipeline."""

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
from mixupe_sklearn._audio.spectrogram import Spectrogram, fit_frames, log_spectrogram
from mixupe_sklearn._audio.waveforms import read_waveforms

LENGTHS = (16000, 11025, 2, 159, 160, 20000, 321)


def noise(n_values, seed=0):
    return np.random.default_rng(seed).uniform(-0.5, 0.5, n_values).astype(np.float32)


@pytest.fixture(scope="module")
def noises():
    return [noise(n_values, seed) for seed, n_values in enumerate(LENGTHS)]


@pytest.fixture(scope="module")
def images(noises):
    return Spectrogram().transform(noises)


def by_definition(wave, n_window=320, n_stride=160, n_frequencies=160):
    """One frame at a time, as a sum over values, in double precision."""
    values = np.pad(wave.astype(np.float64), n_window)
    angles = np.outer(np.arange(n_frequencies), np.arange(n_window)) / n_window
    hamming = 0.54 - 0.46 * np.cos(2 * np.pi * np.arange(n_window) / n_window)
    waves = np.exp(-2j * np.pi * angles) * hamming
    starts = n_window // 2 + n_stride * np.arange(1 + len(wave) // n_stride)
    frames = np.stack([values[start : start + n_window] for start in starts], axis=1)
    logs = np.log(1 + np.abs(waves @ frames))
    return (logs - logs.mean()) / logs.std()


# The numbers


@pytest.mark.parametrize("row", range(len(LENGTHS)))
def test_a_spectrogram_is_that_of_the_definition(noises, images, row):
    expected = by_definition(noises[row])
    n_frames = min(101, expected.shape[1])
    np.testing.assert_allclose(images[row, :, :n_frames], expected[:, :n_frames], atol=2e-5)
    assert not images[row, :, n_frames:].any()


def test_magnitudes_are_those_of_scipy(noises):
    wave = noises[0]
    reference = ShortTimeFFT(get_window("hamming", 320), hop=160, fs=16000, scale_to=None)
    expected = np.log1p(np.abs(reference.stft(wave.astype(np.float64), p0=0, p1=101)))[:160]
    (logs,) = log_spectrogram([wave])
    np.testing.assert_allclose(logs, expected, atol=1e-5)


def test_the_size_is_that_of_the_paper(images):
    assert images.shape == (len(LENGTHS), 160, 101)
    assert images.dtype == np.float32
    np.testing.assert_allclose(images[0].mean(), 0, atol=1e-6)
    np.testing.assert_allclose(images[0].std(), 1, atol=1e-5)


def test_company_and_batches_do_not_matter(noises, images):
    # Frames are transformed one by one, and sums run over a sound's own frames in one piece. Not
    # to the bit: a library for Fourier transforms may choose its way by the number of frames.
    for batch_size in (1, 3):
        others = Spectrogram(batch_size=batch_size).transform(noises)
        np.testing.assert_allclose(others, images, atol=2e-6)
    alone = np.concatenate([Spectrogram().transform([wave]) for wave in noises])
    np.testing.assert_allclose(alone, images, atol=2e-6)


@pytest.mark.parametrize(
    ("wave", "is_flat"),
    [
        (np.zeros(4000), True),
        (np.full(4000, 1e-30), True),
        (np.full(1, 0.3), True),  # a click has all frequencies alike
        (np.zeros(16000, dtype=np.uint8) + 128, True),
        (noise(4000) / 2**14, False),
        (np.full(4000, 0.5), False),  # the first frequency, and two ends
    ],
    ids=["zeros", "tiny", "click", "8-bit zeros", "last bit", "level"],
)
def test_silence_gives_zeros_and_never_nan(wave, is_flat):
    image = Spectrogram().transform([wave])
    assert np.isfinite(image).all()
    assert image.any() != is_flat


def test_loudness_hardly_matters(noises):
    loud, quiet = Spectrogram().transform([noises[0], noises[0] / 2])
    assert np.corrcoef(loud.ravel(), quiet.ravel())[0, 1] > 0.98


@pytest.mark.parametrize("rate", [8000, 16000, 44100])
def test_a_tone_is_where_its_frequency_is_at_any_rate(rate):
    tone = 0.5 * np.sin(2 * np.pi * 1000 * np.arange(rate) / rate)
    image = Spectrogram(sampling_rate=rate).transform([tone])[0]
    assert image.shape == (160, 101)
    # A window too short for 160 frequencies is filled up, and its bins are then closer.
    spacing = rate / max(round(0.02 * rate), 320)
    assert abs(image[:, 50].argmax() * spacing - 1000) <= spacing


def test_recordings_of_other_rates_look_alike():
    def chirp(rate):
        seconds = np.arange(rate) / rate
        return rate, 0.5 * np.sin(2 * np.pi * (300 + 1000 * seconds) * seconds)

    fast, right = Spectrogram().transform([chirp(44100), chirp(16000)])
    assert np.corrcoef(fast.ravel(), right.ravel())[0, 1] > 0.99


def test_frames_are_cut_or_filled_up():
    ones = np.ones((2, 3), dtype=np.float32)
    assert fit_frames(ones, 2).shape == (2, 2)
    assert fit_frames(ones, 3).tolist() == ones.tolist()
    assert fit_frames(ones, 5).sum(axis=0).tolist() == [2, 2, 2, 0, 0]


def test_other_parameters_give_other_sizes(noises):
    small = Spectrogram(window=0.04, stride=0.02, n_frequencies=40, n_frames=10)
    image = small.transform(noises[:1])
    assert image.shape == (1, 40, 10)
    expected = by_definition(noises[0], n_window=640, n_stride=320, n_frequencies=40)
    np.testing.assert_allclose(image[0], expected[:, :10], atol=2e-5)


def test_a_long_sound_does_not_make_its_batch_long(noises, monkeypatch):
    sizes = []

    def watched(waves, **parameters):
        sizes.append(len(waves) * max(len(wave) for wave in waves))
        return log_spectrogram(waves, **parameters)

    monkeypatch.setattr(spectrogram, "log_spectrogram", watched)
    Spectrogram(batch_size=4).transform([*noises, noise(200_000), *noises])
    assert sorted(sizes)[-1] == 200_000  # alone
    assert sorted(sizes)[-2] <= 4 * 101 * 160


def test_settings_of_torch_do_not_matter_and_stay(noises, images, double, one_thread):
    state = torch.get_rng_state()
    np.testing.assert_allclose(Spectrogram().transform(noises), images, atol=2e-6)
    assert torch.get_num_threads() == 1
    assert torch.get_default_dtype() == torch.float64
    assert torch.equal(torch.get_rng_state(), state)


# The protocol


def test_it_is_a_transformer_without_state(noises, images):
    transformer = clone(Spectrogram(n_frames=50))
    assert transformer.get_params()["n_frames"] == 50
    assert not get_tags(transformer).requires_fit
    assert transformer.fit(noises) is transformer
    assert vars(transformer) == vars(Spectrogram(n_frames=50))
    np.testing.assert_allclose(transformer.transform(noises), images[:, :, :50], atol=2e-6)


def test_it_works_in_a_pipeline_and_with_frames_asked_for():
    seconds = np.arange(1600) / 16000
    X = np.sin(2 * np.pi * np.linspace(300, 3000, 20)[:, None] * seconds)
    y = np.repeat(["low", "high"], 10)
    flat = FunctionTransformer(lambda images: images.reshape(len(images), -1))
    pipeline = make_pipeline(Spectrogram(n_frames=11), flat, LogisticRegression())
    assert pipeline.fit(X, y).score(X, y) == 1
    with sklearn.config_context(transform_output="pandas"):
        assert isinstance(Spectrogram().fit_transform(X[:1]), np.ndarray)
    assert not hasattr(Spectrogram(), "set_output")


ODD = {
    "sampling_rate": (0, "Got sampling_rate=0, but expected a whole number of values a second"),
    "window": (0.0, "Got window=0.0, but expected a number of seconds > 0."),
    "stride": ("10ms", "Got stride='10ms', but expected a number of seconds > 0."),
    "n_frequencies": (0, "Got n_frequencies=0, but expected a whole number >= 1."),
    "n_frames": (1.5, "Got n_frames=1.5, but expected a whole number >= 1."),
    "batch_size": (-1, "Got batch_size=-1, but expected a whole number >= 1."),
    "cache": (True, "Got cache=True, but expected a folder or None."),
}


@pytest.mark.parametrize("name", ODD)
def test_a_bad_parameter_is_refused_by_fit_and_by_transform(name):
    assert set(ODD) == set(Spectrogram().get_params())
    value, message = ODD[name]
    for method in ("fit", "transform"):
        with pytest.raises(ValueError, match=message):
            getattr(Spectrogram(**{name: value}), method)([noise(100)])


def test_a_stride_below_one_value_is_refused():
    with pytest.raises(ValueError, match=r"Got window=0.02 and stride=1e-05, .* are in seconds."):
        Spectrogram(stride=1e-5).fit(None)


def test_bad_sounds_are_refused():
    with pytest.raises(ValueError, match=r"Got X\[0\] without any values"):
        Spectrogram().transform([np.zeros(0)])


# The cache


@pytest.fixture
def counted(monkeypatch):
    """How many batches were computed."""
    calls = []

    def watched(waves, **parameters):
        calls.append(len(waves))
        return log_spectrogram(waves, **parameters)

    monkeypatch.setattr(spectrogram, "log_spectrogram", watched)
    return calls


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / f"{n}.wav" for n in (2000, 3000)]
    for path in paths:
        wavfile.write(path, 16000, noise(int(path.stem)))
    return paths


def test_what_was_computed_is_read_from_the_cache(noises, images, cache, counted):
    transformer = Spectrogram(cache=cache / "deep")
    first, second = transformer.transform(noises), transformer.transform(noises)
    assert len(counted) == 1
    for kept in (first, second):
        assert isinstance(kept, np.memmap)
        np.testing.assert_allclose(kept, images, atol=2e-6)
    assert len(list((cache / "deep").iterdir())) == 1  # nothing half-written is left


def test_a_changed_result_does_not_change_the_cache(noises, images, cache):
    transformer = Spectrogram(cache=str(cache))
    torch.from_numpy(transformer.transform(noises)).zero_()
    np.testing.assert_allclose(transformer.transform(noises), images, atol=2e-6)


def test_other_sounds_or_parameters_are_computed_anew(noises, cache, counted):
    other = [*noises[:-1], noises[-1] / 2]
    kinds = [({}, noises), ({}, other), ({}, noises[:-1]), ({"n_frames": 50}, noises)]
    kinds += [({"n_frequencies": 50}, noises), ({"window": 0.01}, noises)]
    kinds += [({"stride": 0.02}, noises), ({"sampling_rate": 8000}, noises)]
    for parameters, sounds in kinds:
        Spectrogram(cache=cache, **parameters).transform(sounds)
    assert len(list(cache.iterdir())) == len(counted) == len(kinds)
    Spectrogram(cache=cache, batch_size=2).transform(noises)  # the same numbers
    assert len(counted) == len(kinds)


def test_a_changed_file_is_computed_anew(files, cache, counted):
    transformer = Spectrogram(cache=cache)
    first = transformer.transform(files)
    wavfile.write(files[0], 16000, noise(2000, seed=7))
    os.utime(files[0], ns=(0, 1))
    second = transformer.transform(files)
    assert len(counted) == 2
    assert not np.array_equal(first[0], second[0])
    np.testing.assert_array_equal(first[1], second[1])


def test_kept_spectrograms_need_no_sound_to_be_read(files, cache):
    first = Spectrogram(cache=cache).transform(files)
    for path in files:
        state = path.stat()
        path.write_bytes(bytes(state.st_size))
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    np.testing.assert_array_equal(Spectrogram(cache=cache).transform(files), first)


@pytest.mark.parametrize("damage", ["empty", "cut", "other", "shape", "pickle"])
def test_a_broken_file_is_made_anew(noises, images, cache, damage, counted):
    transformer = Spectrogram(cache=cache)
    transformer.transform(noises)
    (path,) = cache.iterdir()
    if damage == "shape":
        np.save(path, np.zeros((2, 3), dtype=np.float32))
    elif damage == "pickle":
        np.save(path, np.array([{}]), allow_pickle=True)
    else:
        whole = path.read_bytes()
        path.write_bytes({"empty": b"", "cut": whole[:-1], "other": b"not numpy's"}[damage])
    for _ in range(2):
        np.testing.assert_allclose(transformer.transform(noises), images, atol=2e-6)
    assert len(counted) == 2


def test_an_error_leaves_nothing_in_the_cache(files, cache):
    files[1].write_bytes(b"RIFF")
    with pytest.raises(ValueError, match="3000.wav"):
        Spectrogram(cache=cache).transform(files)
    assert list(cache.iterdir()) == []


def test_a_cache_that_is_a_file_is_refused(tmp_path):
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(FileExistsError, match=r"Got cache='.*file', but expected a folder that"):
        Spectrogram(cache=path).transform([noise(100)])


RACE = """
import sys
from mixupe_sklearn._audio.spectrogram import Spectrogram
print("ready", flush=True)
sys.stdin.readline()
for n_frames in range(1, 41):
    kept = Spectrogram(cache=sys.argv[1], n_frames=n_frames).transform(sys.argv[2:])
    assert kept[:, :, 0].any(axis=1).all(), n_frames
"""


def test_two_processes_at_once_do_no_harm(files, cache):
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
    for kept in mine:
        expected = Spectrogram(n_frames=kept.shape[2]).transform(files)
        np.testing.assert_allclose(kept, expected, atol=2e-6)


def test_waves_that_were_read_already_are_taken(files):
    waves = read_waveforms(files).waves
    np.testing.assert_array_equal(Spectrogram().transform(waves), Spectrogram().transform(files))
