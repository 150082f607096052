"""Much at once: many classes, many columns, many fits, and many threads with one fitted model."""

import copy
import json
import sys
import time
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from paper import paper_classifier
from scipy.io import wavfile

from benchmarks.reliability import load
from benchmarks.reliability.load import MOST_GROWTH, checks_list, fill, load_table
from mixupe_sklearn import preset
from mixupe_sklearn._audio import files as audio_files
from mixupe_sklearn._data import rows as _inputs
from mixupe_sklearn._engine import network as _network
from mixupe_sklearn._engine import trainer as _trainer
from mixupe_sklearn._net import net as _net

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
    for found in load.call_in_threads(fitted.predict_proba, [X] * load.N_THREADS):
        assert np.array_equal(found, alone.predict_proba(X))
    buffers = [dict(one.net_.module_.named_buffers()) for one in (fitted, alone)]
    assert all(torch.equal(value, buffers[1][name]) for name, value in buffers[0].items())


def test_audio_files_are_read_in_threads_without_sharing_warnings(tmp_path, monkeypatch):
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
            return len(audio_files.read_file(path, path.name).values) == 800
        except ValueError:
            return False

    assert load.call_in_threads(is_whole, [whole, cut] * 20) == [True, False] * 20
    assert warnings.filters == before


# Many classes.


@pytest.mark.parametrize("n_members", [1, 3])
def test_no_more_logits_are_made_at_once_than_a_chunk_may_have(n_members, monkeypatch):
    n_classes, n_rows, seen = 300, 1200, []

    def recorded(function):
        def run(*args):
            logits = function(*args)
            seen.append(logits.numel())
            return logits

        return run

    monkeypatch.setattr(_net, "forward_all", recorded(_net.forward_all))
    monkeypatch.setattr(_network.Network, "predict", recorded(_network.Network.predict))
    for module in (_trainer, _inputs):
        monkeypatch.setattr(module, "CHUNK", n_members * n_classes * 64)
    X = np.random.default_rng(0).normal(size=(n_rows, 4))
    params = {"n_members": n_members, "early_stopping": n_members > 1, "max_epochs": 1}
    fitted = paper_classifier(**params, random_state=0).fit(X, np.arange(n_rows) % n_classes)
    n_fit = sum(seen)
    proba = fitted.predict_proba(X)
    assert max(seen) == n_members * n_classes * 64
    assert sum(seen) - n_fit >= n_members * n_rows * n_classes  # each row was run
    assert np.array_equal(proba[70:75], fitted.predict_proba(X[70:75]))


# The benchmark and its page.


@pytest.fixture(scope="module")
def committed():
    return pd.read_csv(load.ROWS)


def test_the_page_has_the_table_of_the_committed_rows(committed):
    page = load.PAGE.read_text()
    assert fill(page, committed) == page


def test_all_cases_were_run_in_full_and_all_was_right(committed):
    assert committed["case"].tolist() == list(load.CASES)
    assert set(committed["scale"]) == {"full"}
    assert [name for wrong in committed["wrong"] for name in json.loads(wrong)] == []


def test_what_the_page_says_of_fits_and_threads_is_so_in_the_committed_rows(committed):
    of_fits = committed[committed["case"].str.startswith("fits")]
    assert (of_fits["threads_end"] == of_fits["threads_start"]).all()
    assert (of_fits["files_end"] == of_fits["files_start"]).all()
    assert (of_fits["memory_end"] - of_fits["memory_start"] <= MOST_GROWTH).all()
    of_columns = committed[committed["case"] == "columns"].iloc[0]
    assert of_columns["memory_peak"] < 20_000 * 100_000 * 4 / 2**20 / 2  # half of the dense table


def test_a_page_without_marks_is_refused(committed):
    with pytest.raises(ValueError, match="without the markers of 'table'"):
        fill("# Under load", committed)


def test_what_is_wrong_shows_in_the_table_and_in_the_list():
    row = {"case": "fits", "size": "2 fits", "checked": '["fine", "files"]', "wrong": '["files"]'}
    names = ("seconds", "memory_start", "memory_end", "memory_peak", "private_peak")
    counts = ("threads_start", "threads_end", "files_start", "files_end")
    rows = pd.DataFrame([row | dict.fromkeys([*names, *counts], 1)])
    assert "| fits | 2 fits | 1 of 2 | 1 |" in load_table(rows)
    assert checks_list(rows) == "- *fits*: fine; **wrong**: files."


@pytest.mark.skipif(sys.platform != "linux", reason="Only Linux reports the memory of a process.")
def test_sixty_fits_in_a_process_leave_no_thread_no_file_and_no_memory(tmp_path, capsys):
    path = tmp_path / "new" / "rows.csv"
    assert load.main(["--quick", "--cases", "fits", "--output", str(path)]) == 0
    rows = pd.read_csv(path)
    assert rows[["case", "size"]].values.tolist() == [["fits", "60 fits of 200 x 10"]]
    assert load_table(rows) in capsys.readouterr().out
    assert load.main(["--report-only", "--output", str(path)]) == 0


# The cases themselves, in small.


def wrong_in(finding):
    return [name for name, is_so in finding.checks.items() if not is_so]


@pytest.mark.parametrize(
    "params",
    [{"n_members": 1, "max_epochs": 15}, {"n_members": 4, "max_epochs": 5}],
    ids=["one", "members"],
)
def test_many_classes_of_few_rows_and_one_of_a_single_row(params):
    how = {"min_steps": 0, "batch_size": 50, "early_stopping": True} | params
    assert wrong_in(load.many_classes(300, 1_501, **how)) == []


def test_sparse_columns_are_learned_from_and_give_the_bits_of_dense_ones():
    params = preset("paper") | {"max_epochs": 5, "batch_size": 50}
    assert wrong_in(load.many_columns(1_000, 5_000, **params)) == []


def test_each_level_of_a_category_is_learned():
    params = preset("paper") | {"max_epochs": 40, "batch_size": 20}
    assert wrong_in(load.many_levels(400, 100, **params)) == []


def test_a_file_of_rows_is_not_changed():
    params = preset("paper") | {"max_epochs": 1, "batch_size": 100}
    assert wrong_in(load.many_rows(20_000, 10, **params)) == []


@pytest.mark.parametrize("name", ["eight members", "one network", "pipeline", "images"])
def test_threads_that_predict_at_once_get_what_each_would_get_alone(name):
    assert wrong_in(load.many_calls(50, [name])) == []
