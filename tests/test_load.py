"""Much at once: many classes, many columns, many fits, and many threads with one fitted model."""

import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from paper import paper_classifier
from scipy.io import wavfile

from mixupe_sklearn._signals import sound_files

N_THREADS = 8


@pytest.fixture
def _often():
    """Let Python change from thread to thread as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


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


def make_deep(n_features, n_outputs):
    """A module with many parts that do one thing in training and another after it."""
    parts = [torch.nn.Linear(n_features, 8)]
    for _ in range(20):
        parts += [torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5)]
    return torch.nn.Sequential(*parts, torch.nn.Linear(8, n_outputs))


@pytest.mark.usefixtures("_often")
def test_the_first_predictions_after_fit_may_come_all_at_once(iris):
    X, y = iris
    fitted = paper_classifier(module=make_deep, max_epochs=1, random_state=0).fit(X, y)
    expected = fitted.predict_proba(X)
    statistics = {name: value.clone() for name, value in fitted.net_.module_.named_buffers()}
    for _ in range(10):
        fitted.net_.module_.train()  # as fit leaves it
        for found in at_once(fitted.predict_proba, *[X] * N_THREADS):
            assert np.array_equal(found, expected)
    for name, value in fitted.net_.module_.named_buffers():
        assert torch.equal(value, statistics[name])


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
        except ValueError as error:
            assert "ends before the length" in str(error)
            return False

    assert at_once(is_whole, *[whole, cut] * 20) == [True, False] * 20
    assert warnings.filters == before
