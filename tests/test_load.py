"""Much at once: many classes, many columns, many fits, and many threads with one fitted model."""

import copy
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from paper import paper_classifier
from scipy.io import wavfile

from mixupe_sklearn import _inputs, _members, _predicting
from mixupe_sklearn._predicting import forward_all
from mixupe_sklearn._signals import sound_files

N_THREADS = 8


def at_once(function, *arguments):
    """What a function makes of each argument, called by threads that start together."""
    gate = threading.Barrier(N_THREADS)

    def call(number, argument):
        if number < N_THREADS:
            gate.wait()
        return function(argument)

    with ThreadPoolExecutor(N_THREADS) as pool:
        return list(pool.map(call, range(len(arguments)), arguments))


# What a prediction may change beside its answer: nothing.


class SlowDropout(torch.nn.Dropout):
    """A part that takes its time to leave training: another thread comes in."""

    def train(self, mode=True):
        time.sleep(0.002)
        return super().train(mode)


def make_slow(n_features, n_outputs):
    parts = [torch.nn.Linear(n_features, 8), SlowDropout(), torch.nn.BatchNorm1d(8)]
    return torch.nn.Sequential(*parts, torch.nn.Linear(8, n_outputs))


def test_the_first_predictions_after_fit_may_come_all_at_once(iris):
    X, y = iris
    fitted = paper_classifier(module=make_slow, max_epochs=1, random_state=0).fit(X, y)
    alone = copy.deepcopy(fitted)
    for found in at_once(fitted.predict_proba, *[X] * N_THREADS):
        assert np.array_equal(found, alone.predict_proba(X))
    buffers = [dict(one.net_.module_.named_buffers()) for one in (fitted, alone)]
    assert all(torch.equal(value, buffers[1][name]) for name, value in buffers[0].items())


def test_sound_files_are_read_in_threads_without_taking_each_others_warnings(tmp_path, monkeypatch):
    read = wavfile.read

    def read_slowly(file):
        time.sleep(0.001)  # another thread comes in
        return read(file)

    monkeypatch.setattr(wavfile, "read", read_slowly)
    whole, cut = tmp_path / "whole.wav", tmp_path / "cut.wav"
    wavfile.write(whole, 8000, np.arange(800, dtype=np.int16))
    cut.write_bytes(whole.read_bytes()[:-400])
    before = list(warnings.filters)

    def is_whole(path):
        try:
            return len(sound_files.read_file(path, path.name).values) == 800
        except ValueError:
            return False

    assert at_once(is_whole, *[whole, cut] * 20) == [True, False] * 20
    assert warnings.filters == before


# Many classes.


@pytest.mark.parametrize("n_members", [1, 3])
def test_no_more_logits_are_made_at_once_than_a_chunk_may_have(n_members, monkeypatch):
    n_classes, n_rows, seen = 300, 1200, []

    def forward(nets, X):
        logits = forward_all(nets, X)
        seen.append(logits.numel())
        return logits

    for module in (_members, _predicting):
        monkeypatch.setattr(module, "forward_all", forward)
    for module in (_members, _inputs):
        monkeypatch.setattr(module, "CHUNK", n_members * n_classes * 64)
    X = np.random.default_rng(0).normal(size=(n_rows, 4))
    params = {"n_members": n_members, "early_stopping": n_members > 1, "max_epochs": 1}
    fitted = paper_classifier(**params, random_state=0).fit(X, np.arange(n_rows) % n_classes)
    n_fit = sum(seen)
    proba = fitted.predict_proba(X)
    assert max(seen) == n_members * n_classes * 64
    assert sum(seen) - n_fit >= n_members * n_rows * n_classes  # each row was run
    assert np.array_equal(proba[70:75], fitted.predict_proba(X[70:75]))
