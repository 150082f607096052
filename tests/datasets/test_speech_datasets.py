"""The layout of Speech Commands: words, speakers, and splits by speaker."""

import numpy as np
import pytest
from scipy.io import wavfile

from mixupe_sklearn._audio.waveforms import read_waveforms
from mixupe_sklearn.datasets.speech import load_speech_commands, split_by_speaker

SPEAKERS = ("0c40e715", "0ea0e2f4", "ffd2ba2f")


@pytest.fixture
def folder(tmp_path):
    """Three words by three speakers, two clips each, with noise and texts beside them."""
    for word in ("yes", "no", "stop"):
        (tmp_path / word).mkdir()
        for speaker in SPEAKERS:
            for number in range(2):
                path = tmp_path / word / f"{speaker}_nohash_{number}.wav"
                wavfile.write(path, 16000, np.zeros(20, dtype=np.int16))
    (tmp_path / "_background_noise_").mkdir()
    wavfile.write(tmp_path / "_background_noise_" / "pink_noise.wav", 16000, np.zeros(9))
    (tmp_path / "README.md").write_text("Speech Commands")
    return tmp_path


def test_clips_are_found_with_word_and_speaker(folder):
    commands = load_speech_commands(folder)
    assert commands.classes == ["no", "stop", "yes"]
    assert len(commands.paths) == len(commands.labels) == len(commands.speakers) == 18
    for path, label, speaker in zip(*commands[:3], strict=True):
        assert path.startswith(str(folder / label / speaker))
    assert sorted(set(commands.speakers)) == sorted(SPEAKERS)
    assert commands.split is None


def test_selected_paths_can_be_read(folder):
    commands = load_speech_commands(str(folder))
    chosen = commands.paths[commands.labels == "yes"]
    assert [len(waveform) for waveform in read_waveforms(chosen).waveforms] == [20] * 6


def test_words_can_be_chosen(folder):
    commands = load_speech_commands(folder, words=["yes", "no"])
    assert commands.classes == ["no", "yes"]
    assert set(commands.labels) == {"no", "yes"}


def test_the_lists_of_the_dataset_define_the_split(folder):
    (folder / "validation_list.txt").write_text("yes/0c40e715_nohash_0.wav\nno/gone_nohash_0.wav\n")
    (folder / "testing_list.txt").write_text("no/ffd2ba2f_nohash_1.wav\r\n")
    commands = load_speech_commands(folder)
    part_of = dict(zip(commands.paths, commands.split, strict=True))
    assert part_of[str(folder / "yes" / "0c40e715_nohash_0.wav")] == "valid"
    assert part_of[str(folder / "no" / "ffd2ba2f_nohash_1.wav")] == "test"
    assert commands.split.tolist().count("train") == 16


@pytest.mark.parametrize("is_there", [False, True])
def test_the_error_for_a_missing_or_empty_folder_names_the_address(tmp_path, is_there):
    folder = tmp_path if is_there else tmp_path / "gone"
    message = r"Got folder=.* but expected .*WORD/SPEAKER_nohash_.*http://.*speech_commands_v0.02"
    with pytest.raises(FileNotFoundError, match=message):
        load_speech_commands(folder)


def test_unknown_words_are_refused(folder):
    with pytest.raises(
        ValueError, match=r"Got the words \['stopp'\], but expected some of no, stop, yes"
    ):
        load_speech_commands(folder, words=["yes", "stopp"])
    for words in ("yes", []):
        with pytest.raises(ValueError, match="Got words=.*, but expected a list of words"):
            load_speech_commands(folder, words=words)


def test_a_file_without_a_speaker_is_refused(folder):
    (folder / "yes" / "mine.wav").touch()
    with pytest.raises(ValueError, match=r"Got the file '.*mine.wav', but expected a name with a"):
        load_speech_commands(folder)


# Splits by speaker


@pytest.fixture(scope="module")
def speakers():
    return np.random.default_rng(0).geometric(0.02, 2000).astype(str)


@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("seed", [0, 1])
def test_no_speaker_is_in_both_sets(speakers, share, seed):
    train, test = split_by_speaker(speakers, share, seed)
    assert not set(speakers[train]) & set(speakers[test])
    assert sorted([*train, *test]) == list(range(len(speakers)))
    assert abs(len(test) / len(speakers) - share) < 0.02


def test_the_split_depends_on_the_seed_but_not_on_the_order(speakers):
    first, second = split_by_speaker(speakers)[1], split_by_speaker(speakers, seed=1)[1]
    assert set(speakers[first]) != set(speakers[second])
    backwards = speakers[::-1]
    assert set(backwards[split_by_speaker(backwards)[1]]) == set(speakers[first])
    np.testing.assert_array_equal(first, split_by_speaker(list(speakers))[1])


@pytest.mark.parametrize("share", [0.001, 0.999])
def test_each_set_has_at_least_one_speaker(share):
    for part in split_by_speaker(["a", "b", "b"], share):
        assert len(part) > 0


def test_one_speaker_cannot_be_split():
    for people, n_people in ((["a", "a"], 1), ([], 0)):
        with pytest.raises(ValueError, match=f"Got {n_people} speakers, but expected at least two"):
            split_by_speaker(people)


@pytest.mark.parametrize("share", [0, 1, -0.1, "half", None])
def test_a_share_is_between_zero_and_one(share):
    with pytest.raises(ValueError, match="Got share=.*, but expected a fraction between 0 and 1."):
        split_by_speaker(["a", "b"], share)
