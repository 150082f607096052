"""Waveforms from arrays, pairs, files and folders, and errors for invalid ones."""

import os
import pickle
import shutil
import struct
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import soundfile
import torch
from scipy.io import wavfile
from scipy.signal import resample_poly

from mixupe_sklearn import Spectrogram
from mixupe_sklearn._audio import waveforms
from mixupe_sklearn._audio.waveforms import Waveforms, read_waveforms

RATE = 16000


def tone(n_values=1600, rate=RATE, hertz=440.0):
    return 0.5 * np.sin(2 * np.pi * hertz * np.arange(n_values) / rate)


def as_type(waveform, dtype):
    """A waveform as integers of a wav file."""
    zero, full = {"uint8": (128, 127), "int16": (0, 2**15 - 1), "int32": (0, 2**31 - 1)}[dtype]
    return np.round(waveform * full + zero).astype(dtype)


@pytest.fixture
def write(tmp_path):
    """Write a wav file and return its path."""

    def write_wav(values, name="a.wav", rate=RATE):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        wavfile.write(path, rate, values)
        return path

    return write_wav


@pytest.fixture
def words(write, tmp_path):
    """A folder of two words, with noise, hidden folders and other files beside them."""
    quiet = as_type(tone(), "int16")
    for name in ("yes/b.wav", "yes/a.wav", "no/c.WAV", "_background_noise_/hum.wav", ".git/x.wav"):
        write(quiet, f"words/{name}")
    for name in ("README.md", "yes/notes.txt", "no/._c.wav"):
        (tmp_path / "words" / name).write_text("not audio")
    return tmp_path / "words"


# The same waveform in many formats


FORMS = {
    "list": lambda waveform: [waveform, waveform],
    "tuple": lambda waveform: (waveform, waveform),
    "array": lambda waveform: np.stack([waveform, waveform]),
    "numbers": lambda waveform: [waveform.tolist(), waveform.tolist()],
    "tensor": lambda waveform: torch.tensor(np.stack([waveform, waveform]), requires_grad=True),
    "tensors": lambda waveform: [torch.tensor(waveform), torch.tensor(waveform)],
    "frame": lambda waveform: pd.DataFrame(np.stack([waveform, waveform])),
    "pairs": lambda waveform: [(RATE, waveform), [np.int64(RATE), waveform]],
    "column": lambda waveform: [(RATE, waveform[:, None])] * 2,
}


@pytest.mark.parametrize("form", FORMS)
def test_all_formats_give_the_same_waveforms(form):
    audio = read_waveforms(FORMS[form](tone()))
    assert audio.labels is None
    assert len(audio.waveforms) == 2
    for waveform in audio.waveforms:
        assert waveform.dtype == np.float32
        np.testing.assert_array_equal(waveform, tone().astype(np.float32))


def test_waveforms_may_have_unequal_lengths():
    ragged = np.empty(2, dtype=object)
    ragged[:] = [tone(10), tone(20)]
    for X in (ragged, list(ragged)):
        assert [len(waveform) for waveform in read_waveforms(X).waveforms] == [10, 20]


@pytest.mark.parametrize(
    ("dtype", "step"), [("uint8", 1 / 127), ("int16", 2**-15), ("int32", 2**-24)]
)
@pytest.mark.parametrize("is_file", [False, True])
def test_integers_are_scaled_to_one_and_eight_bits_are_centred(write, dtype, step, is_file):
    values = as_type(tone(), dtype)
    waveform = read_waveforms([write(values)] if is_file else [values]).waveforms[0]
    np.testing.assert_allclose(waveform, tone(), atol=1.5 * step)
    assert abs(waveform.mean()) < step


@pytest.mark.parametrize("container", [list, np.array, pd.Series, lambda x: np.array(x, object)])
def test_any_sequence_of_files_is_read(write, container):
    paths = [str(write(as_type(tone(n), "int16"), f"{n}.wav")) for n in (20, 10)]
    assert [len(waveform) for waveform in read_waveforms(container(paths)).waveforms] == [20, 10]


@pytest.mark.parametrize("suffix", ["flac", "ogg"])
def test_other_formats_are_read_by_soundfile(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    soundfile.write(path, tone(8000), RATE)
    (waveform,) = read_waveforms([path]).waveforms
    assert len(waveform) == 8000
    assert np.corrcoef(waveform, tone(8000))[0, 1] > 0.99


def test_without_soundfile_the_message_names_the_extra(tmp_path, monkeypatch):
    path = tmp_path / "a.flac"
    path.write_bytes(b"fLaC")
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(ImportError, match=r"a.flac.*pip install mixupe-sklearn\[speech\]"):
        read_waveforms([path]).waveforms[0]


def test_a_higher_rate_is_resampled_without_a_warning(write):
    path = write(as_type(tone(4410, 44100), "int16"), rate=44100)
    waveform = read_waveforms([path]).waveforms[0]
    assert len(waveform) == 1600
    np.testing.assert_allclose(waveform[50:-50], tone()[50:-50], atol=2e-3)


def test_a_lower_rate_is_resampled_with_one_warning():
    pair = (8000, tone(800, 8000))
    with pytest.warns(UserWarning, match="with a rate of 8000 Hz, below .*=16000") as caught:
        first, second = read_waveforms([pair, pair]).waveforms
    assert len(caught) == 1
    np.testing.assert_allclose(first[50:-50], tone()[50:-50], atol=2e-3)
    np.testing.assert_array_equal(first, second)


def test_stereo_files_are_averaged_with_one_warning(write):
    stereo = as_type(np.stack([tone(), 0 * tone()], axis=1), "int16")
    paths = [write(stereo, "left.wav"), write(stereo, "again.wav")]
    with pytest.warns(UserWarning, match="left.wav' with 2 channels: it is averaged") as caught:
        waveform, _ = read_waveforms(paths).waveforms
    assert len(caught) == 1
    np.testing.assert_allclose(waveform, tone() / 2, atol=1e-4)


def test_a_warning_points_to_the_call_of_transform():
    pair = (RATE, np.zeros((1600, 2)))
    with pytest.warns(UserWarning, match="with 2 channels") as caught:
        Spectrogram().transform([pair])
    assert caught[0].filename == __file__


def test_small_overshoot_is_clipped():
    waveform = read_waveforms([2.1 * tone()]).waveforms[0]
    assert waveform.max() == 1
    assert waveform.min() == -1


def test_files_are_read_on_access(write):
    first, second = write(as_type(tone(10), "int16"), "a.wav"), write(np.zeros(5), "b.wav")
    waveforms = read_waveforms([first, second]).waveforms
    second.write_bytes(b"")
    assert len(waveforms[0]) == 10
    with pytest.raises(ValueError, match="b.wav"):
        waveforms[-1]


def test_audio_data_is_returned_unchanged():
    audio = read_waveforms([tone()])
    assert read_waveforms(audio) is audio


def test_waveforms_can_be_pickled(write):
    waveforms = read_waveforms([write(as_type(tone(), "int16"))]).waveforms
    again = pickle.loads(pickle.dumps(waveforms))
    assert isinstance(again, Waveforms)
    np.testing.assert_array_equal(again[0], waveforms[0])


# Fingerprints


def test_a_fingerprint_changes_with_values_type_rate_order_and_file(write):
    path = write(as_type(tone(), "int16"))
    zeros = np.zeros(10, dtype=np.int16)
    kinds = [[zeros, zeros + 1], [zeros + 1, zeros], [zeros], [zeros[:5], zeros[:5]]]
    kinds += [[zeros.astype("int32")], [(8000, zeros)], [path]]
    prints = {read_waveforms(X).waveforms.fingerprint() for X in kinds}
    os.utime(path, ns=(0, 1))
    prints.add(read_waveforms([path]).waveforms.fingerprint())
    prints.add(read_waveforms([zeros], sampling_rate=8000).waveforms.fingerprint())
    assert len(prints) == len(kinds) + 2
    assert (
        read_waveforms([zeros]).waveforms.fingerprint()
        == read_waveforms([zeros]).waveforms.fingerprint()
    )


# Folders


def test_a_folder_gives_the_files_of_its_words_only(words):
    audio = read_waveforms(words)
    assert audio.labels.tolist() == ["no", "yes", "yes"]
    assert [len(waveform) for waveform in audio.waveforms] == [1600] * 3
    assert read_waveforms(str(words)).labels.tolist() == ["no", "yes", "yes"]


def test_a_folder_without_words_is_read_without_labels(words):
    audio = read_waveforms(words / "yes", labelled=False)
    assert audio.labels is None
    assert len(audio.waveforms) == 2


def test_one_word_is_enough_without_labels(words):
    (words / "no").rename(words / ".no")
    assert read_waveforms(words, labelled=False).labels.tolist() == ["yes", "yes"]
    with pytest.raises(ValueError, match=r"Got X='.*words' with one class only, 'yes', but"):
        read_waveforms(words)


@pytest.mark.parametrize(
    "X", [3.0, None, {"a": 1}, iter("ab")], ids=["number", "none", "dict", "iterator"]
)
def test_an_invalid_type_is_refused(X):
    with pytest.raises(TypeError, match=f"Got X of type {type(X).__name__}, but expected a list"):
        read_waveforms(X)


def test_invalid_rates_are_refused(write):
    path = write(as_type(tone(), "int16"))
    content = bytearray(path.read_bytes())
    content[24:32] = bytes(8)  # the rates of samples and of bytes
    path.write_bytes(bytes(content))
    with pytest.raises(
        ValueError, match="a.wav' with a sampling rate of 0 Hz, but expected 1000 to 1000000"
    ):
        read_waveforms([path]).waveforms[0]
    with pytest.raises(ValueError, match="Got rate of X.0.=2147483647, but expected an integer"):
        read_waveforms([(2**31 - 1, np.zeros(10))])


@pytest.mark.parametrize("rate", [1, 999, 1_000_001, 2**31 - 1])
def test_a_rate_that_would_exhaust_the_memory_is_refused(write, rate):
    """8 kB at a rate of 1 Hz would become 64 million values."""
    path = write(as_type(tone(4000), "int16"), rate=rate)
    with pytest.raises(ValueError, match=f"rate of {rate} Hz, but expected 1000 to 1000000; its"):
        read_waveforms([path]).waveforms[0]
    with pytest.raises(ValueError, match=f"={rate}, but expected an integer rate in Hz from 1000"):
        read_waveforms([(rate, tone())])


@pytest.mark.parametrize(
    ("rate", "terms"), [(44_100, (160, 441)), (8_000, (2, 1)), (999_983, None), (11_127, None)]
)
def test_the_filter_for_resampling_is_small(monkeypatch, rate, terms):
    """Also for a prime rate, with which an exact ratio needs a gigabyte."""
    used = []

    def resample(values, up, down):
        used.append((up, down))
        return resample_poly(values, up, down)

    monkeypatch.setattr(waveforms, "resample_poly", resample)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a lower rate
        waveform = read_waveforms([(rate, tone(rate // 10, rate))]).waveforms[0]
    assert used == [terms] or (terms is None and max(used[0]) <= 16 * waveforms.MAX_TERM)
    assert abs(used[0][0] / used[0][1] * rate / RATE - 1) < 1e-4
    assert abs(len(waveform) - RATE // 10) <= 1
    np.testing.assert_allclose(waveform[50:1500], tone()[50:1500], atol=5e-3)


def test_the_minimum_number_of_words_can_be_set(words):
    shutil.rmtree(words / "no")
    assert read_waveforms(words, n_words=1).labels.tolist() == ["yes", "yes"]


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"Got X_val=.* with no folder in it, but expected"):
        read_waveforms(tmp_path, name="X_val")
    (tmp_path / "maybe").mkdir()
    with pytest.raises(ValueError, match=r"Got X_val=.* without an audio file, but expected some"):
        read_waveforms(tmp_path, name="X_val", labelled=False)


def test_a_folder_without_words_is_refused(words):
    with pytest.raises(ValueError, match="with 'a.wav' directly in it, but expected a folder for"):
        read_waveforms(words / "yes")


def test_files_beside_word_folders_are_refused_with_labels_and_read_without(words, write):
    write(as_type(tone(800), "int16"), "words/stray.wav")
    (words / "maybe").mkdir()
    with pytest.raises(ValueError, match=r"words' with 'stray.wav' directly in it, but .* a list"):
        read_waveforms(words)
    audio = read_waveforms(words, labelled=False)
    assert audio.labels is None
    assert [len(waveform) for waveform in audio.waveforms] == [800, 1600, 1600, 1600]


def test_an_empty_word_folder_is_refused(words):
    (words / "maybe").mkdir()
    with pytest.raises(ValueError, match="without any audio file in 'maybe', but"):
        read_waveforms(words)


# Bad input


INVALID = {
    "nothing": ([], "Got X without waveforms, but expected at least one."),
    "no rows": (np.zeros((0, 5)), "Got X without waveforms"),
    "one waveform": (
        np.zeros(100),
        r"Got X of shape \(100,\), .* put a single waveform in a list.",
    ),
    "numbers": ([0.1, 0.2], r"Got X\[0\] of type float, but expected a waveform, a file or"),
    "one pair": (
        (16000, np.zeros(9)),
        r"Got X\[0\] of type int, but .* single waveform in a list.",
    ),
    "blocks": (np.zeros((2, 3, 100)), r"Got X of shape \(2, 3, 100\), but expected one waveform"),
    "stereo": (np.zeros((100, 2)), r"Got X of shape \(100, 2\), .* average channels"),
    "stereo row": (
        [np.zeros(9), np.zeros((9, 2))],
        r"Got X\[1\] of shape \(9, 2\), but .* average",
    ),
    "channels first": ([(16000, np.zeros((2, 9)))], r"Got X\[0\] of shape \(2, 9\), but"),
    "empty waveform": ([np.zeros(9), np.zeros(0)], r"Got X\[1\] without any values, but expected"),
    "NaN": ([np.zeros(9), np.array([0, np.nan])], r"Got X\[1\] with floats .* finite values"),
    "inf": (np.array([[0, 0, 0], [0, np.inf, 0]]), r"Got X\[1\] with floats .* finite values"),
    "16-bit floats": (
        [tone() * 32768],
        r"Got X\[0\] with floats from -163.* to 163.*\[-1, 1\]; convert 16-bit",
    ),
    "int64": ([np.arange(9)], r"Got X\[0\] of type int64, but expected floats in \[-1, 1\], or"),
    "complex": ([np.zeros(9, complex)], r"Got X\[0\] of type complex128, but expected floats"),
    "boolean": ([np.zeros(9, bool)], r"Got X\[0\] of type bool, but expected floats"),
    "rate 0": ([(0, np.zeros(9))], r"Got rate of X\[0\]=0, but expected an integer rate"),
}


@pytest.mark.parametrize("case", INVALID)
def test_invalid_input_is_refused(case):
    X, message = INVALID[case]
    with pytest.raises(ValueError, match=message):
        read_waveforms(X)


@pytest.mark.parametrize("rate", [0, -8000, 16000.5, "16000", None, True, float("nan")])
def test_the_sampling_rate_must_be_a_positive_integer(rate):
    with pytest.raises(ValueError, match="Got sampling_rate=.* but expected an integer rate"):
        read_waveforms([tone()], sampling_rate=rate)


def test_a_missing_folder_or_file_is_refused(write):
    for path in ("hello", write(tone())):
        with pytest.raises(FileNotFoundError, match="Got X=.*, but expected an existing folder"):
            read_waveforms(path)
    with pytest.raises(
        FileNotFoundError, match=r"Got X\[1\]='hello.wav', but expected an existing audio"
    ):
        read_waveforms([write(tone()), "hello.wav"])


@pytest.mark.parametrize("n_bytes", [0, 3, 10, 30, 44, 45, 46, 100, 2001, 3243])
def test_a_truncated_wav_file_is_refused(write, n_bytes):
    path = write(as_type(tone(), "int16"), "cut.wav")
    path.write_bytes(path.read_bytes()[:n_bytes])
    with pytest.raises(ValueError, match=r"Got the file '.*cut.wav', .*but expected an intact wav"):
        read_waveforms([path]).waveforms[0]


def test_a_damaged_header_is_read_or_refused(write):
    path = write(as_type(tone(), "int16"), "damaged.wav")
    intact, rng = path.read_bytes(), np.random.default_rng(0)
    refusals = []
    for _ in range(200):
        damaged = bytearray(intact)
        damaged[rng.integers(24)] = rng.integers(256)
        path.write_bytes(damaged)
        try:
            assert np.isfinite(read_waveforms([path]).waveforms[0]).all()
        except ValueError as error:
            refusals.append(str(error))
    assert len(refusals) > 50
    assert all(refusal.startswith("Got the file '") for refusal in refusals)


def test_a_wav_file_from_a_pipe_may_declare_the_largest_length(write):
    path = write(as_type(tone(), "int16"))
    content = bytearray(path.read_bytes())
    content[4:8] = content[40:44] = struct.pack("<I", 2**32 - 1)
    path.write_bytes(content)
    assert len(read_waveforms([path]).waveforms[0]) == 1600


def test_unknown_chunks_are_ignored(write):
    path = write(as_type(tone(), "int16"))
    content = bytearray(path.read_bytes())
    content[36:36] = b"what" + struct.pack("<I", 4) + b"ever"
    content[4:8] = struct.pack("<I", len(content) - 8)
    path.write_bytes(content)
    assert len(read_waveforms([path]).waveforms[0]) == 1600


@pytest.mark.parametrize("suffix", ["flac", "ogg"])
def test_a_truncated_file_of_another_format_is_refused(tmp_path, suffix):
    path = tmp_path / f"cut.{suffix}"
    soundfile.write(path, tone(8000), RATE)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"Got the file '.*cut\..*, but expected an intact audio"):
        read_waveforms([path]).waveforms[0]


def test_a_wav_file_without_values_is_refused(write):
    path = write(np.zeros(0, dtype=np.int16), "empty.wav")
    with pytest.raises(ValueError, match=r"Got the file '.*empty.wav' without any values, but"):
        read_waveforms([path]).waveforms[0]


def test_a_wav_file_with_nan_or_large_floats_is_refused(write):
    invalid = {"nan.wav": np.array([0, np.nan]), "loud.wav": tone() * 1000}
    for name, values in invalid.items():
        with pytest.raises(ValueError, match=f"Got the file '.*{name}' with"):
            read_waveforms([write(values.astype(np.float32), name)]).waveforms[0]
