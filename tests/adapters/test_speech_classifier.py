"""MixupESpeechClassifier: the API of an estimator, on waveforms."""

import pickle

import numpy as np
import pytest
import torch
from scipy.io import wavfile
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score

from mixupe_sklearn import MixupESpeechClassifier, Spectrogram

pytestmark = pytest.mark.usefixtures("one_thread")
PITCHES = {"low": 300.0, "middle": 900.0, "high": 2700.0}
TINY = {"channels": (2, 2), "d_hidden": (8,)}


def tones(n_sounds, seed=0, rate=16000):
    """Tones of unequal length in noise, and the word for their pitch."""
    rng = np.random.default_rng(seed)
    y = rng.choice(list(PITCHES), n_sounds)
    X = []
    for word in y:
        time = np.arange(rng.integers(rate // 4, rate // 2)) / rate
        waveform = 0.5 * np.sin(2 * np.pi * PITCHES[word] * rng.uniform(0.9, 1.1) * time)
        X.append((waveform + rng.normal(0, 0.02, len(time))).clip(-1, 1))
    return X, y


def make(**params):
    known = {"module_params": TINY, "max_epochs": 4, "batch_size": 10, "lr": 0.01}
    return MixupESpeechClassifier(**known | {"random_state": 0} | params)


@pytest.fixture(scope="module")
def waveforms():
    return tones(40)


@pytest.fixture(scope="module")
def spectrograms(waveforms):
    return Spectrogram().transform(waveforms[0])


@pytest.fixture(scope="module")
def fitted(waveforms):
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    model = make(max_epochs=8).fit(*waveforms)
    torch.set_num_threads(before)
    return model


def test_the_pitch_of_tones_is_learned(fitted):
    X, y = tones(30, seed=1)
    assert fitted.score(X, y) > 0.9
    assert fitted.shape_in_ == (1, 160, 101)
    assert fitted.predict_proba(X).shape == (30, 3)


def test_precomputed_spectrograms_are_used_unchanged(fitted, waveforms, spectrograms):
    np.testing.assert_array_equal(
        fitted.predict_proba(spectrograms), fitted.predict_proba(waveforms[0])
    )
    same = make(max_epochs=8).fit(spectrograms[:, None], waveforms[1])
    np.testing.assert_array_equal(
        same.predict_proba(spectrograms), fitted.predict_proba(spectrograms)
    )


def test_a_folder_of_words_gives_the_labels(fitted, waveforms, tmp_path):
    for number, (waveform, word) in enumerate(zip(*waveforms, strict=True)):
        (tmp_path / word).mkdir(exist_ok=True)
        wavfile.write(tmp_path / word / f"{number}.wav", 16000, (waveform * 32767).astype(np.int16))
    assert fitted.score(tmp_path) == pytest.approx(fitted.score(*waveforms))
    paths = sorted(tmp_path.glob("*/*.wav"))
    assert make(max_epochs=1).fit(paths, [path.parent.name for path in paths]).n_iter_ == 1
    paths[0].rename(tmp_path / "stray.wav")
    assert len(fitted.predict(tmp_path)) == len(paths)
    with pytest.raises(ValueError, match="with 'stray.wav' directly in it, but expected a folder"):
        fitted.score(tmp_path)


def test_files_of_another_rate_are_resampled(fitted, tmp_path):
    X, y = tones(20, seed=2, rate=22050)
    paths = [tmp_path / f"{number}.wav" for number in range(20)]
    for path, waveform in zip(paths, X, strict=True):
        wavfile.write(path, 22050, waveform.astype(np.float32))
    assert fitted.score(paths, y) > 0.9


def test_spectrograms_are_cached_on_request(waveforms, tmp_path):
    X, y = waveforms
    first = make(cache=tmp_path, max_epochs=1).fit(X, y)
    kept = list(tmp_path.iterdir())
    assert len(kept) == 1
    again = make(cache=tmp_path, max_epochs=1).fit(X, y)
    assert list(tmp_path.iterdir()) == kept
    np.testing.assert_array_equal(first.predict_proba(X), again.predict_proba(X))
    plain = make(max_epochs=1).fit(X, y)
    np.testing.assert_array_equal(first.predict_proba(X), plain.predict_proba(X))


def test_pickle_grid_search_and_cross_validation(fitted, waveforms, spectrograms):
    X, y = waveforms
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.predict_proba(X), fitted.predict_proba(X))
    assert len(cross_val_score(make(max_epochs=1), X, y, cv=2)) == 2
    search = GridSearchCV(make(), {"lr": [1e-7, 0.01]}, cv=2).fit(spectrograms, y)
    assert search.best_params_ == {"lr": 0.01}


def test_vgg_runs_on_spectrograms(spectrograms, waveforms):
    model = make(module="vgg11", module_params={"width": 2}, max_epochs=1)
    assert model.fit(spectrograms[:12], waveforms[1][:12]).predict(spectrograms[:2]).shape == (2,)


INVALID = {
    "no labels": (lambda model, X: clone(model).fit(X), "Got y=None and an X without labels"),
    "spectrograms with missing values": (
        lambda model, X: model.predict(np.full((2, 160, 101), np.nan)),
        "Got X with NaN or infinity, but expected finite spectrograms.",
    ),
    "complex spectrograms": (
        lambda model, X: model.predict(np.full((2, 160, 101), 1j)),
        "Got X of type complex128, but expected real numbers.",
    ),
    "many channels of integers": (
        lambda model, X: clone(model).fit(np.zeros((2, 16, 8000), dtype=np.int16), ["a", "b"]),
        "Got X of torch.int16 in 3 dimensions, but expected spectrograms of floats",
    ),
    "sparse spectrograms": (
        lambda model, X: model.predict(torch.ones(2, 160, 101).to_sparse()),
        "Got X of type torch.float32, but expected dense real numbers.",
    ),
    "spectrograms of another size": (
        lambda model, X: model.predict(np.zeros((2, 80, 101))),
        r"Got X of shape \(1, 80, 101\) per sample .*, but expected \(1, 160, 101\), as in fit.",
    ),
    "mono waveforms": (
        lambda model, X: model.predict(torch.zeros(2, 1, 16000)),
        r"Got X of shape \(2, 1, 16000\), but expected waveforms .*, averaged over their channels",
    ),
    "stereo waveforms of integers": (
        lambda model, X: model.predict(np.zeros((2, 2, 16000), dtype=np.int16)),
        r"Got X of shape \(2, 2, 16000\), but expected waveforms .*, averaged over their channels",
    ),
    "channels last": (
        lambda model, X: clone(model).fit(np.zeros((2, 16000, 2)), ["a", "b"]),
        r"Got X of shape \(2, 16000, 2\), but expected waveforms .*, averaged over their channels",
    ),
    "an invalid rate": (
        lambda model, X: clone(model).set_params(sampling_rate=0).fit(X, ["a"] * len(X)),
        "Got sampling_rate=0, but expected",
    ),
}


def test_a_dataset_of_waveforms_is_refused(fitted, waveforms):
    pairs = torch.utils.data.TensorDataset(torch.zeros(2, 800))
    with pytest.raises(
        TypeError, match="Got X of type TensorDataset, but expected a list of waveform"
    ):
        clone(fitted).fit(pairs)
    with pytest.raises(ValueError, match="in y, or a folder of word folders.$"):
        clone(fitted).fit(waveforms[0])


def test_the_rate_is_fixed_in_fit_and_gradients_have_no_effect(fitted, waveforms, spectrograms):
    model, before = pickle.loads(pickle.dumps(fitted)), fitted.predict_proba(waveforms[0])
    model.set_params(sampling_rate=8000)
    np.testing.assert_array_equal(model.predict_proba(waveforms[0]), before)
    with pytest.raises(ValueError, match="Got a new value of sampling_rate, but expected that"):
        model.partial_fit(*waveforms)
    tracked = torch.from_numpy(spectrograms).requires_grad_()
    assert fitted.predict(tracked).shape == (len(spectrograms),)


@pytest.mark.parametrize("what", INVALID)
def test_wrong_input_is_refused(fitted, waveforms, what):
    act, message = INVALID[what]
    with pytest.raises((TypeError, ValueError), match=message):
        act(fitted, waveforms[0])
