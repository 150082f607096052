"""Speech Commands on disk: a folder for each word, and the speaker in each file name."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mixupe_sklearn._audio.files import find_words
from mixupe_sklearn._utils.parameter_rules import Number, check_rules

ADDRESS = "http://download.tensorflow.org/data/speech_commands_v0.02.tar.gz"
LAYOUT = "folder/WORD/SPEAKER_nohash_NUMBER.wav"
# The speaker is the beginning of a hash.
FILE_NAME = re.compile(r"([0-9a-f]{8})_nohash_\d+\.wav", re.IGNORECASE)
# The lists of the dataset, and the split of the files in them.
LISTS = {"validation_list.txt": "valid", "testing_list.txt": "test"}
SHARE = Number("a fraction between 0 and 1", 0, 1, open_low=True)


class SpeechCommands(NamedTuple):
    """Audio clips of spoken words, one per entry of each array.

    Attributes
    ----------
    paths : ndarray of str
        The wav files.
    labels : ndarray of str
        The spoken words.
    speakers : ndarray of str
        The speakers: eight hex digits.
    split : ndarray of str or None
        ``"train"``, ``"valid"`` or ``"test"`` by the lists of the dataset, which share no
        speaker. None without lists.
    classes : list of str
        The distinct words, sorted.

    Examples
    --------
    >>> import numpy as np
    >>> words = np.array(["yes", "no"])
    >>> clips = SpeechCommands(np.array(["a.wav", "b.wav"]), words, words, None, ["no", "yes"])
    >>> clips.labels == "no"
    array([False,  True])
    """

    paths: np.ndarray
    labels: np.ndarray
    speakers: np.ndarray
    split: np.ndarray | None
    classes: list[str]


def load_speech_commands(
    folder: str | os.PathLike, *, words: Sequence[str] | None = None
) -> SpeechCommands:
    """Find the clips of Google's Speech Commands dataset, or of one with the same layout.

    Nothing is downloaded, and no audio is read. Download the data (Warden, 2018; CC BY 4.0) from
    http://download.tensorflow.org/data/speech_commands_v0.02.tar.gz and unpack them.

    Parameters
    ----------
    folder : path
        Holds a folder for each word, with files named ``SPEAKER_nohash_NUMBER.wav``, and
        optionally ``validation_list.txt`` and ``testing_list.txt``. Background noise is ignored.
    words : sequence of str or None, default=None
        The words to load. None means all.

    Returns
    -------
    commands : SpeechCommands
        Paths, labels, speakers, split and classes.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from mixupe_sklearn.datasets.speech import load_speech_commands
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for word in ("yes", "no"):
    ...         path = pathlib.Path(folder, word, "0c40e715_nohash_0.wav")
    ...         path.parent.mkdir()
    ...         path.touch()
    ...     commands = load_speech_commands(folder)
    >>> commands.labels.tolist(), commands.speakers.tolist(), commands.split
    (['no', 'yes'], ['0c40e715', '0c40e715'], None)
    """
    folder = Path(folder)
    every = find_words(folder, (".wav",)) if folder.is_dir() else {}
    found = {word: paths for word, paths in every.items() if paths}
    if not found:
        raise FileNotFoundError(
            f"Got folder={str(folder)!r}, but expected one with {LAYOUT}; unpack {ADDRESS} there."
        )
    if words is not None:
        found = {word: found[word] for word in _checked(words, list(found))}
    paths = [path for word in found for path in found[word]]
    return SpeechCommands(
        paths=np.array([str(path) for path in paths]),
        labels=np.array([path.parent.name for path in paths]),
        speakers=np.array([_speaker(path) for path in paths]),
        split=_split(folder, paths),
        classes=list(found),
    )


def split_by_speaker(
    speakers: Sequence[str] | np.ndarray, share: float = 0.2, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Split clips into training and test sets that share no speaker.

    Parameters
    ----------
    speakers : sequence of str
        The speaker of each clip.
    share : float, default=0.2
        Fraction of the clips in the test set, approximately.
    seed : int, default=0
        Seed for the choice of test speakers. The order of the clips has no effect.

    Returns
    -------
    train, test : tuple of ndarray of int
        Sorted positions. Neither is empty.

    Examples
    --------
    >>> train, test = split_by_speaker(["ann", "bob", "ann", "cy", "cy", "ann"], share=0.4)
    >>> train.tolist(), test.tolist()
    ([0, 1, 2, 5], [3, 4])
    """
    check_rules({"share": share}, {"share": SHARE})
    people, clip_of, n_clips = np.unique(speakers, return_inverse=True, return_counts=True)
    if len(people) < 2:
        raise ValueError(
            f"Got {len(people)} speakers, but expected at least two: one for each set."
        )
    order = np.random.default_rng(seed).permutation(len(people))
    # The number of speakers whose clips are closest to the share, with at least one in each set.
    totals = np.cumsum(n_clips[order])[:-1]
    n_chosen = 1 + np.abs(totals - share * len(clip_of)).argmin()
    is_test = np.isin(clip_of, order[:n_chosen])
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)


def _checked(words: Sequence[str], known: list[str]) -> list[str]:
    """The requested words, sorted."""
    if isinstance(words, str) or len(words) == 0:
        raise ValueError(f"Got words={words!r}, but expected a list of words, or None for all.")
    unknown = set(words) - set(known)
    if unknown:
        raise ValueError(
            f"Got the words {sorted(unknown)}, but expected some of {', '.join(known)}."
        )
    return sorted(set(words))


def _speaker(path: Path) -> str:
    match = FILE_NAME.fullmatch(path.name)
    if match is None:
        raise ValueError(
            f"Got the file {str(path)!r}, but expected a name with a speaker, "
            f"SPEAKER_nohash_NUMBER.wav with eight hex digits first, as in 0c40e715_nohash_0.wav."
        )
    return match[1].lower()


def _split(folder: Path, paths: list[Path]) -> np.ndarray | None:
    part_of: dict[str, str] = {}
    for name, part in LISTS.items():
        if (folder / name).is_file():
            part_of |= dict.fromkeys((folder / name).read_text(encoding="utf-8").split(), part)
    if not part_of:
        return None
    return np.array([part_of.get(path.relative_to(folder).as_posix(), "train") for path in paths])
