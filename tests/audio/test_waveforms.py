"""Sounds in every form that a user may have: the same wave comes out, or one sentence says why not."""

import os
import pickle
import shutil
import struct
import sys

import numpy as np
import pandas as pd
import pytest
import soundfile
import torch
from scipy.io import wavfile

from mixupe_sklearn import Spectrogram
from mixupe_sklearn._audio.waveforms import Sounds, Waveforms, read_waveforms

RATE = 16000


def tone(n_values=1600, rate=RATE, hertz=440.0):
    return 0.5 * np.sin(2 * np.pi * hertz * np.arange(n_values) / rate)


def as_type(wave, dtype):
    """A wave in the integers of a wav file."""
    zero, full = {"uint8": (128, 127), "int16": (0, 2**15 - 1), "int32": (0, 2**31 - 1)}[dtype]
    return np.round(wave * full + zero).astype(dtype)


@pytest.fixture
def write(tmp_path):
    """Write a wav file, and give its path."""

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
        (tmp_path / "words" / name).write_text("not a sound")
    return tmp_path / "words"


# The same wave in many forms


FORMS = {
    "list": lambda wave: [wave, wave],
    "tuple": lambda wave: (wave, wave),
    "array": lambda wave: np.stack([wave, wave]),
    "objects": lambda wave: np.array([wave.tolist(), wave.tolist()], dtype=object),
    "numbers": lambda wave: [wave.tolist(), wave.tolist()],
    "tensor": lambda wave: torch.tensor(np.stack([wave, wave]), requires_grad=True),
    "tensors": lambda wave: [torch.tensor(wave), torch.tensor(wave)],
    "frame": lambda wave: pd.DataFrame(np.stack([wave, wave])),
    "pairs": lambda wave: [(RATE, wave), [np.int64(RATE), wave]],
    "column": lambda wave: [(RATE, wave[:, None])] * 2,
}


@pytest.mark.parametrize("form", FORMS)
def test_the_form_of_waveforms_does_not_matter(form):
    sounds = read_waveforms(FORMS[form](tone()))
    assert sounds.labels is None
    assert len(sounds.waves) == 2
    for wave in sounds.waves:
        assert wave.dtype == np.float32
        np.testing.assert_array_equal(wave, tone().astype(np.float32))


def test_waveforms_may_have_unequal_lengths():
    ragged = np.empty(2, dtype=object)
    ragged[:] = [tone(10), tone(20)]
    for X in (ragged, list(ragged)):
        assert [len(wave) for wave in read_waveforms(X).waves] == [10, 20]


@pytest.mark.parametrize(
    ("dtype", "step"), [("uint8", 1 / 127), ("int16", 2**-15), ("int32", 2**-24)]
)
@pytest.mark.parametrize("is_file", [False, True])
def test_integers_are_scaled_to_one_and_eight_bits_are_centred(write, dtype, step, is_file):
    values = as_type(tone(), dtype)
    wave = read_waveforms([write(values)] if is_file else [values]).waves[0]
    np.testing.assert_allclose(wave, tone(), atol=1.5 * step)
    assert abs(wave.mean()) < step


@pytest.mark.parametrize("container", [list, np.array, pd.Series, lambda x: np.array(x, object)])
def test_files_may_come_in_any_sequence(write, container):
    paths = [str(write(as_type(tone(n), "int16"), f"{n}.wav")) for n in (20, 10)]
    assert [len(wave) for wave in read_waveforms(container(paths)).waves] == [20, 10]


@pytest.mark.parametrize("suffix", ["flac", "ogg"])
def test_other_formats_are_read_by_soundfile(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    soundfile.write(path, tone(8000), RATE)
    (wave,) = read_waveforms([path]).waves
    assert len(wave) == 8000
    assert np.corrcoef(wave, tone(8000))[0, 1] > 0.99


def test_a_missing_soundfile_names_its_extra(tmp_path, monkeypatch):
    path = tmp_path / "a.flac"
    path.write_bytes(b"fLaC")
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(ImportError, match=r"a.flac.*pip install mixupe-sklearn\[speech\]"):
        read_waveforms([path]).waves[0]


def test_a_faster_recording_is_resampled_in_silence(write):
    path = write(as_type(tone(4410, 44100), "int16"), rate=44100)
    wave = read_waveforms([path]).waves[0]
    assert len(wave) == 1600
    np.testing.assert_allclose(wave[50:-50], tone()[50:-50], atol=2e-3)


def test_a_slower_recording_is_resampled_with_one_warning():
    pair = (8000, tone(800, 8000))
    with pytest.warns(UserWarning, match="with 8000 values a second, fewer .*=16000") as caught:
        first, second = read_waveforms([pair, pair]).waves
    assert len(caught) == 1
    np.testing.assert_allclose(first[50:-50], tone()[50:-50], atol=2e-3)
    np.testing.assert_array_equal(first, second)


def test_stereo_files_are_averaged_with_one_warning(write):
    stereo = as_type(np.stack([tone(), 0 * tone()], axis=1), "int16")
    paths = [write(stereo, "left.wav"), write(stereo, "again.wav")]
    with pytest.warns(UserWarning, match="left.wav' with 2 channels, so it is averaged") as caught:
        wave, _ = read_waveforms(paths).waves
    assert len(caught) == 1
    np.testing.assert_allclose(wave, tone() / 2, atol=1e-4)


def test_a_warning_points_at_the_line_that_asked_for_a_spectrogram():
    pair = (RATE, np.zeros((1600, 2)))
    with pytest.warns(UserWarning, match="with 2 channels") as caught:
        Spectrogram().transform([pair])
    assert caught[0].filename == __file__


def test_a_little_overshoot_is_clipped():
    wave = read_waveforms([2.1 * tone()]).waves[0]
    assert wave.max() == 1
    assert wave.min() == -1


def test_files_are_read_when_asked_for(write):
    first, second = write(as_type(tone(10), "int16"), "a.wav"), write(np.zeros(5), "b.wav")
    waves = read_waveforms([first, second]).waves
    second.write_bytes(b"")
    assert len(waves[0]) == 10
    assert len(waves[:1][0]) == 10
    with pytest.raises(ValueError, match="b.wav"):
        waves[-1]


def test_what_was_read_may_be_read_again():
    sounds = read_waveforms([tone()])
    assert read_waveforms(sounds) is sounds
    assert read_waveforms(sounds.waves) == Sounds(sounds.waves, None)
    with pytest.raises(ValueError, match="Got X read at 16000 values .* sampling_rate=8000"):
        read_waveforms(sounds, sampling_rate=8000)


def test_waves_can_be_pickled(write):
    waves = read_waveforms([write(as_type(tone(), "int16"))]).waves
    again = pickle.loads(pickle.dumps(waves))
    assert isinstance(again, Waveforms)
    np.testing.assert_array_equal(again[0], waves[0])


# Fingerprints


def test_a_fingerprint_changes_with_values_type_rate_order_and_file(write):
    path = write(as_type(tone(), "int16"))
    zeros = np.zeros(10, dtype=np.int16)
    kinds = [[zeros, zeros + 1], [zeros + 1, zeros], [zeros], [zeros[:5], zeros[:5]]]
    kinds += [[zeros.astype("int32")], [(8000, zeros)], [path]]
    prints = {read_waveforms(X).waves.fingerprint() for X in kinds}
    os.utime(path, ns=(0, 1))
    prints.add(read_waveforms([path]).waves.fingerprint())
    prints.add(read_waveforms([zeros], sampling_rate=8000).waves.fingerprint())
    assert len(prints) == len(kinds) + 2
    assert (
        read_waveforms([zeros]).waves.fingerprint() == read_waveforms([zeros]).waves.fingerprint()
    )


# Folders


def test_a_folder_gives_its_words_and_nothing_else(words):
    sounds = read_waveforms(words)
    assert sounds.labels.tolist() == ["no", "yes", "yes"]
    assert [len(wave) for wave in sounds.waves] == [1600] * 3
    assert read_waveforms(str(words)).labels.tolist() == ["no", "yes", "yes"]


def test_a_folder_without_words_is_enough_where_no_labels_are_wanted(words):
    sounds = read_waveforms(words / "yes", labelled=False)
    assert sounds.labels is None
    assert len(sounds.waves) == 2


def test_one_word_is_enough_where_no_labels_are_wanted(words):
    (words / "no").rename(words / ".no")
    assert read_waveforms(words, labelled=False).labels.tolist() == ["yes", "yes"]
    with pytest.raises(ValueError, match=r"Got X='.*words' with one word only, 'yes', but"):
        read_waveforms(words)


@pytest.mark.parametrize(
    "X", [3.0, None, {"a": 1}, iter("ab")], ids=["number", "none", "dict", "iterator"]
)
def test_what_is_no_list_is_refused_by_its_type(X):
    with pytest.raises(TypeError, match=f"Got X of type {type(X).__name__}, but expected a list"):
        read_waveforms(X)


def test_an_empty_path_is_not_the_current_folder():
    with pytest.raises(FileNotFoundError, match="Got X='', but expected the path of a folder"):
        read_waveforms("")


def test_rates_that_cannot_be_are_refused(write):
    path = write(as_type(tone(), "int16"))
    content = bytearray(path.read_bytes())
    content[24:32] = bytes(8)  # the rates of values and of bytes
    path.write_bytes(bytes(content))
    with pytest.raises(
        ValueError, match="a.wav' with 0 values a second, but expected 1 to 1000000"
    ):
        read_waveforms([path]).waves[0]
    with pytest.raises(ValueError, match="Got rate of X.0.=2147483647, but expected a whole"):
        read_waveforms([(2**31 - 1, np.zeros(10))])


def test_one_word_is_enough_where_it_is_said(words):
    shutil.rmtree(words / "no")
    assert read_waveforms(words, n_words=1).labels.tolist() == ["yes", "yes"]


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"Got X_val=.* with no word folder in it, but expected"):
        read_waveforms(tmp_path, name="X_val")
    (tmp_path / "maybe").mkdir()
    with pytest.raises(ValueError, match=r"Got X_val=.* without a sound file, but expected some"):
        read_waveforms(tmp_path, name="X_val", labelled=False)


def test_a_folder_without_words_is_refused(words):
    with pytest.raises(ValueError, match="with 'a.wav' directly in it, but expected a folder for"):
        read_waveforms(words / "yes")


def test_sounds_beside_words_are_refused_where_labels_are_wanted_and_else_all_taken(words, write):
    write(as_type(tone(800), "int16"), "words/stray.wav")
    (words / "maybe").mkdir()
    with pytest.raises(ValueError, match=r"words' with 'stray.wav' directly in it, but .* a list"):
        read_waveforms(words)
    sounds = read_waveforms(words, labelled=False)
    assert sounds.labels is None
    assert [len(wave) for wave in sounds.waves] == [800, 1600, 1600, 1600]


def test_a_word_without_sounds_is_refused(words):
    (words / "maybe").mkdir()
    with pytest.raises(ValueError, match="without a sound file in its folder 'maybe', but"):
        read_waveforms(words)


# Bad input


ODD = {
    "nothing": ([], "Got X with 0 sounds, but expected one at least."),
    "no rows": (np.zeros((0, 5)), "Got X with 0 sounds"),
    "one wave": (np.zeros(100), r"Got X of shape \(100,\), .* put a single waveform in a list."),
    "numbers": ([0.1, 0.2], r"Got X\[0\] of type float, but expected a waveform, a file or"),
    "one pair": ((16000, np.zeros(9)), r"Got X\[0\] of type int, but .* single sound in a list."),
    "blocks": (np.zeros((2, 3, 100)), r"Got X of shape \(2, 3, 100\), but expected one waveform"),
    "stereo": (np.zeros((100, 2)), r"Got X of shape \(100, 2\), .* average channels"),
    "stereo row": (
        [np.zeros(9), np.zeros((9, 2))],
        r"Got X\[1\] of shape \(9, 2\), but .* average",
    ),
    "channels first": ([(16000, np.zeros((2, 9)))], r"Got X\[0\] of shape \(2, 9\), but"),
    "unequal lists": ([[[0.1], [0.1, 0.2]]], r"Got X\[0\] of type list, but expected a waveform"),
    "empty wave": ([np.zeros(9), np.zeros(0)], r"Got X\[1\] without any values, but expected"),
    "NaN": ([np.zeros(9), np.array([0, np.nan])], r"Got X\[1\] with 1 values that are NaN or inf"),
    "inf": (np.array([[0, 0, 0], [0, np.inf, 0]]), r"Got X\[1\] with 1 values that are NaN or inf"),
    "16-bit floats": (
        [tone() * 32768],
        r"Got X\[0\] with floats from -163.* to 163.*\[-1, 1\]; 16",
    ),
    "int64": ([np.arange(9)], r"Got X\[0\] of type int64, but expected floats in \[-1, 1\], or"),
    "complex": ([np.zeros(9, complex)], r"Got X\[0\] of type complex128, but expected floats"),
    "truth": ([np.zeros(9, bool)], r"Got X\[0\] of type bool, but expected floats"),
    "rate 0": ([(0, np.zeros(9))], r"Got rate of X\[0\]=0, but expected a whole number of values"),
}


@pytest.mark.parametrize("case", ODD)
def test_what_is_no_sound_is_refused_in_one_sentence(case):
    X, message = ODD[case]
    with pytest.raises(ValueError, match=message):
        read_waveforms(X)


@pytest.mark.parametrize("rate", [0, -8000, 16000.5, "16000", None, True, float("nan")])
def test_a_sampling_rate_is_a_positive_whole_number(rate):
    with pytest.raises(ValueError, match="Got sampling_rate=.* but expected a whole number of"):
        read_waveforms([tone()], sampling_rate=rate)


def test_text_that_is_no_folder_is_refused(write):
    with pytest.raises(FileNotFoundError, match="Got X='hello', but expected a folder that is"):
        read_waveforms("hello")
    with pytest.raises(ValueError, match=r"Got X='.*a.wav', a file, .* put one file in a list."):
        read_waveforms(write(tone()))
    with pytest.raises(FileNotFoundError, match=r"Got X\[1\]='hello.wav', but expected a sound"):
        read_waveforms([write(tone()), "hello.wav"])


@pytest.mark.parametrize("n_bytes", [0, 3, 10, 30, 44, 45, 46, 100, 2001, 3243])
def test_a_cut_wav_file_is_refused_by_name(write, n_bytes):
    path = write(as_type(tone(), "int16"), "cut.wav")
    path.write_bytes(path.read_bytes()[:n_bytes])
    with pytest.raises(ValueError, match=r"Got the file '.*cut.wav', .*but expected a whole wav"):
        read_waveforms([path]).waves[0]


def test_damaged_headers_give_a_sentence_or_a_sound(write):
    path = write(as_type(tone(), "int16"), "odd.wav")
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    refusals = []
    for _ in range(200):
        damaged = bytearray(whole)
        damaged[rng.integers(24)] = rng.integers(256)
        path.write_bytes(damaged)
        try:
            assert np.isfinite(read_waveforms([path]).waves[0]).all()
        except ValueError as error:
            refusals.append(str(error))
    assert len(refusals) > 50
    assert all(refusal.startswith("Got the file '") for refusal in refusals)


def test_a_wav_file_from_a_pipe_has_an_open_end(write):
    path = write(as_type(tone(), "int16"))
    content = bytearray(path.read_bytes())
    content[4:8] = content[40:44] = struct.pack("<I", 2**32 - 1)
    path.write_bytes(content)
    assert len(read_waveforms([path]).waves[0]) == 1600


def test_chunks_that_nobody_knows_are_passed_over(write):
    path = write(as_type(tone(), "int16"))
    content = bytearray(path.read_bytes())
    content[36:36] = b"what" + struct.pack("<I", 4) + b"ever"
    content[4:8] = struct.pack("<I", len(content) - 8)
    path.write_bytes(content)
    assert len(read_waveforms([path]).waves[0]) == 1600


@pytest.mark.parametrize("suffix", ["flac", "ogg"])
def test_a_cut_file_of_another_format_is_refused_by_name(tmp_path, suffix):
    path = tmp_path / f"cut.{suffix}"
    soundfile.write(path, tone(8000), RATE)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"Got the file '.*cut\..*, but expected a whole sound"):
        read_waveforms([path]).waves[0]


def test_a_wav_file_without_values_is_refused_by_name(write):
    path = write(np.zeros(0, dtype=np.int16), "empty.wav")
    with pytest.raises(ValueError, match=r"Got the file '.*empty.wav' without any values, but"):
        read_waveforms([path]).waves[0]


def test_a_wav_file_with_nan_or_large_floats_is_refused_by_name(write):
    odd = {"nan.wav": np.array([0, np.nan]), "loud.wav": tone() * 1000}
    for name, values in odd.items():
        with pytest.raises(ValueError, match=f"Got the file '.*{name}' with"):
            read_waveforms([write(values.astype(np.float32), name)]).waves[0]
