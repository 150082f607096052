"""Large tables: no copy of the data in memory, and none between devices for each batch."""

import contextlib
import gc
import json
import mmap
import os
import pathlib
import subprocess
import sys

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from paper import paper_classifier, paper_regressor
from scipy import sparse
from torch.utils._python_dispatch import TorchDispatchMode

from mixupe_sklearn import MixupENet
from mixupe_sklearn._data import rows as _rows
from mixupe_sklearn._data.batches import Batches
from mixupe_sklearn._data.rows import (
    SMALL_COPY,
    CentredRows,
    Rows,
    Standardisation,
    as_tensors,
    centre,
    centred,
    in_chunks,
    is_copied,
    is_mapped,
    on_device,
)
from mixupe_sklearn.modules import MLP

META = torch.device("meta")
# Memory of a fit or a prediction beyond data and result; each table is larger.
ALLOWED = 48 * 2**20
# With these settings, freed large arrays return to the system. By default, glibc's malloc keeps up
# to 64 MiB of them, which the limit does not count, or which is too fragmented for a chunk.
STEADY = {"MALLOC_MMAP_THRESHOLD_": str(2**16), "MALLOC_ARENA_MAX": "1"}
N_ROWS, N_FEATURES = 200_000, 100
CASES = (
    "rows by rows",
    "columns by columns",
    "integers",
    "a file",
    "a file of float64",
    "a net and a file",
    "sparse",
    "many classes",
)


# Run in a separate process with limited memory.


@contextlib.contextmanager
def at_most(n_bytes):
    """Limit the additional private memory of the process; pages of a file do not count."""
    import resource

    gc.collect()  # garbage of an earlier case would be extra memory for this one
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    used = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData"))
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (used + n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def make_table(case, folder):
    if case == "sparse":
        return sparse.random_array((20_000, 5_000), density=0.0005, format="csr", rng=0)
    shape = (N_ROWS, N_FEATURES)
    if case == "integers":
        return np.resize(np.arange(251, dtype=np.uint8), (N_ROWS, 4 * N_FEATURES))
    values = np.resize(np.random.default_rng(0).normal(size=10_007).astype(np.float32), shape)
    if case == "columns by columns":
        return np.asfortranarray(values)
    if "file" in case:
        values = values.astype(np.float64) if "float64" in case else values
        np.save(f"{folder}/{case}.npy", values)
        del values
        return np.load(f"{folder}/{case}.npy", mmap_mode="r")
    return values


def make_classifier():
    return paper_classifier(
        method="erm",
        module_params={"d_hidden": (8,)},
        max_epochs=1,
        batch_size=1000,
        random_state=0,
    )


def run_net(X, y):
    net = MixupENet(
        MLP,
        module__n_features=X.shape[1],
        module__n_outputs=2,
        module__d_hidden=(8,),
        max_epochs=1,
        batch_size=1000,
        train_split=None,
        verbose=0,
    )
    net.fit(X, y)


def run_case(case, folder):
    X = make_table(case, folder)
    y = np.arange(X.shape[0]) % 2
    if case == "many classes":  # their logits would be 150 MiB
        known = make_classifier().fit(X[:1000], np.arange(1000) % 100)
    with at_most(ALLOWED):
        if case == "many classes":
            known.predict(X)
        elif case == "a net and a file":
            run_net(X, y)
        else:
            make_classifier().fit(X, y).predict_proba(X)


def run_all(folder):
    """Print the error of each case as JSON, an empty string without one."""
    torch.set_num_threads(1)
    small = np.random.default_rng(0).normal(size=(1000, 3))
    make_classifier().fit(small, np.arange(1000) % 2).predict_proba(small)
    run_net(small.astype(np.float32), np.arange(1000) % 2)
    found = {}
    for case in CASES:
        try:
            run_case(case, folder)
            found[case] = ""
        except Exception as error:
            found[case] = repr(error)
    X = make_table("rows by rows", folder)
    try:
        with at_most(ALLOWED):
            X.copy()
        found["a copy"] = "is made"
    except MemoryError:
        found["a copy"] = "is refused"
    print(json.dumps(found))


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    if sys.platform != "linux":
        pytest.skip("Only Linux limits the memory that a process takes.")
    program = "import sys, test_large_tables; test_large_tables.run_all(sys.argv[1])"
    command = [sys.executable, "-W", "error::UserWarning", "-c", program]
    result = subprocess.run(
        [*command, str(tmp_path_factory.mktemp("tables"))],
        cwd=pathlib.Path(__file__).parent,
        env=os.environ | STEADY | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.parametrize("case", CASES)
def test_fit_and_predict_make_no_copy_of_the_data(found, case):
    assert found[case] == ""


def test_the_memory_limit_works(found):
    assert found["a copy"] == "is refused"


# Batches of large tables equal those of small ones.


@pytest.fixture
def by_batch(monkeypatch):
    """Return a function that makes every table count as large."""
    return lambda: monkeypatch.setattr(_rows, "SMALL_COPY", 0)


@pytest.mark.parametrize(
    "layout",
    [
        np.ascontiguousarray,
        np.asfortranarray,
        lambda X: np.repeat(X, 2, axis=1)[:, ::2],
        lambda X: X[::-1],
        lambda X: X.astype(np.float64),
        lambda X: X.astype(np.float16),
        lambda X: (100 * X).astype(np.int8),
        lambda X: X > 0,
    ],
    ids=["C", "F", "strided", "backward", "float64", "float16", "int8", "bool"],
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_samples_by_batch_equal_those_of_the_copy_to_the_bit(layout, dtype):
    X = layout(np.random.default_rng(0).normal(size=(40, 7)).astype(np.float32))
    X_mean = X.mean(axis=0, dtype=np.float64)
    numbers = np.array([3, 39, 0, 3])
    with_sign = torch.float32 if dtype == torch.bfloat16 else dtype
    expected = torch.from_numpy(X.astype(np.float64) - X_mean).to(with_sign).to(dtype)
    assert torch.equal(centre(X, Standardisation(X_mean), dtype), expected)
    rows = CentredRows(X, Standardisation(X_mean), dtype)
    for index in (numbers, torch.from_numpy(numbers), numbers.tolist(), numbers.astype(np.uint8)):
        assert torch.equal(rows[index], expected[numbers])
    assert torch.equal(rows[5:9], expected[5:9])
    assert torch.equal(rows[np.arange(40) < 4], expected[:4])
    assert torch.equal(rows[-1], expected[-1])
    out = torch.full((4, 7), 9.0, dtype=dtype)
    assert rows.take(numbers, out) is out
    assert torch.equal(out, expected[numbers])


def test_duplicate_sparse_entries_are_summed():
    entries = sparse.coo_array(([1.0, 2.0, 4.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 3))
    X = sparse.csr_array((entries.data, entries.coords[1], [0, 2, 3]), shape=(2, 3))
    X_mean = np.array([0.5, 0.0, -1.0])
    rows = CentredRows(X, Standardisation(X_mean))
    assert rows.take(np.array([1, 0]), torch.empty(2, 3)).tolist() == [[3.5, 0, 1], [-0.5, 3, 1]]
    assert X.nnz == 3


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("number", [-1, 4])
def test_sample_numbers_out_of_range_raise(kind, number):
    rows = CentredRows(kind(np.eye(4)), Standardisation(np.zeros(4)))
    with pytest.raises(IndexError, match=f"{number}.*but expected 0 to 3"):
        rows[np.array([0, number])]


@pytest.mark.parametrize("kind", [np.ascontiguousarray, np.asfortranarray, pd.DataFrame])
@pytest.mark.parametrize(
    "settings", [{}, {"early_stopping": True}, {"penalty": "directional"}], ids=str
)
def test_a_fit_by_batch_equals_that_of_the_copy_to_the_bit(small_digits, by_batch, kind, settings):
    X, y = small_digits
    X, weight = kind(X.astype(np.float32)), 1.0 + (y % 3)
    classifier = paper_classifier(max_epochs=2, random_state=0, **settings)
    expected = classifier.fit(X, y, sample_weight=weight).predict_proba(X)
    losses = classifier.loss_curve_
    by_batch()
    assert np.array_equal(classifier.fit(X, y, sample_weight=weight).predict_proba(X), expected)
    assert classifier.loss_curve_ == losses


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float16, bool])
def test_integers_give_the_result_of_equal_floats(small_digits, dtype):
    X, y = small_digits
    X = (16 * X).astype(dtype)
    one, other = (
        paper_regressor(max_epochs=2, random_state=0).fit(rows, y, X_val=rows, y_val=y)
        for rows in (X, X.astype(np.float64))
    )
    assert np.array_equal(one.X_mean_, other.X_mean_)
    assert np.array_equal(one.predict(X), other.predict(X.astype(np.float64)))


def test_predictions_in_chunks_equal_those_of_single_samples(small_digits, monkeypatch):
    X, y = small_digits
    labels = np.array(["zero", "one", "two", "three", "four", *"56789"])[y]
    classifier = paper_classifier(max_epochs=1, random_state=0).fit(X, labels)
    whole = [getattr(classifier, name)(X) for name in ("predict", "predict_proba")]
    monkeypatch.setattr(_rows, "MAX_ROWS", 32)
    in_parts = [getattr(classifier, name)(X) for name in ("predict", "predict_proba")]
    for one, other in zip(whole, in_parts, strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)


def test_chunks_cover_all_samples_once_within_their_limits():
    for shape in ((0, 3), (1, 1), (16_385, 100), (50, 10**6), (50, 10**7)):
        parts = list(in_chunks(*shape))
        assert [i for part in parts for i in range(part.start, part.stop)] == [*range(shape[0])]
        assert all(part.stop - part.start <= 16 or shape[1] <= 2**18 for part in parts)


# Conditions of a copy.


def large(dtype):
    """A table of a shape that is slightly too large, with a single number in memory."""
    return np.broadcast_to(np.zeros((), dtype), (SMALL_COPY // 400 + 1, 100))


@pytest.mark.parametrize(
    ("dtype", "is_worth_it"), [(np.float32, False), (np.float64, True), (np.uint8, False)]
)
def test_a_large_table_is_copied_if_the_copy_has_half_its_size(dtype, is_worth_it):
    assert is_copied(large(dtype), torch.float32) is is_worth_it
    assert is_copied(large(dtype)[1:], torch.float32)  # small enough


def test_memory_mapped_arrays_are_recognised_through_views(tmp_path):
    name = str(tmp_path / "rows.npy")
    np.save(name, np.zeros((8, 2)))
    joblib.dump(np.zeros((8, 2)), f"{name}.joblib")
    mapped = np.load(name, mmap_mode="r")
    with open(name, "rb") as file:
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    by_joblib = joblib.load(f"{name}.joblib", mmap_mode="r")
    for X in (mapped, np.asarray(mapped)[1:].T, by_joblib, np.frombuffer(pages, dtype=np.uint8)):
        assert is_mapped(X)
    assert not is_mapped(np.array(mapped))


@pytest.mark.parametrize("mode", ["r", "c", "r+"])
def test_read_only_files_give_no_warning(tmp_path, mode, small_digits, by_batch):
    X, y = small_digits
    np.save(tmp_path / "rows.npy", X.astype(np.float32))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode=mode)
    by_batch()
    fitted = paper_classifier(max_epochs=1, random_state=0).fit(mapped, y)
    assert np.array_equal(fitted.predict(mapped), fitted.predict(X.astype(np.float32)))


def test_values_out_of_range_raise_by_batch_too(by_batch):
    X = np.array([[3e38], [-3e38], [3e38], [3e38]], dtype=np.float32)
    by_batch()
    for data in (X, sparse.csr_array(X)):
        with pytest.raises(ValueError, match="value of size 3e\\+38, but expected at most 3.4e"):
            centred(data, Standardisation(np.array([1.5e38])), torch.float32, by_batch=True)
    # Huge numbers are accepted as long as they stay in range.
    rows = centred(np.abs(X), Standardisation(np.array([3e38])), torch.float32, by_batch=True)
    assert isinstance(rows, CentredRows)


# Devices. The meta device has shapes without data, and represents a device other than the CPU.


class Copies(TorchDispatchMode):
    """Count copies from one device to another."""

    def __init__(self):
        super().__init__()
        self.sizes = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        tensors = [part for part in args if isinstance(part, torch.Tensor)]
        if func is torch.ops.aten._to_copy.default and result.device != tensors[0].device:
            self.sizes.append(len(result))
        if func is torch.ops.aten.copy_.default and tensors[0].device != tensors[1].device:
            self.sizes.append(len(result))
        return result


def make_data(n_rows=100, n_features=3):
    X = torch.arange(float(n_rows * n_features)).reshape(n_rows, n_features)
    return X, torch.arange(n_rows), torch.ones(n_rows)


@pytest.mark.parametrize("indices", [None, np.arange(20, 90)], ids=["all", "some"])
def test_batches_on_a_device_copy_only_the_sample_numbers_once_per_epoch(indices):
    X, y, weight = on_device(make_data(), META, n_free=10**6)
    batches = Batches(
        {"X": X, "sample_weight": weight}, y, indices=indices, batch_size=10, shuffle=True
    )
    for _ in range(2):
        with Copies() as copies:
            for X_batch, y_batch in batches:
                parts = [X_batch["X"], X_batch["sample_weight"], y_batch]
                assert {part.device for part in parts} == {META}
                assert {len(part) for part in parts} == {10}
        assert copies.sizes == [batches.n_samples]


def test_batches_without_an_order_copy_nothing():
    X, y, _ = on_device(make_data(), META, n_free=10**6)
    with Copies() as copies:
        assert sum(len(X_batch) for X_batch, _ in Batches(X, y, batch_size=7)) == 100
    assert copies.sizes == []


def test_a_batch_that_is_moved_separately_is_counted():
    X, y, _ = make_data()
    with Copies() as copies:
        for X_batch, _ in Batches(X, y, batch_size=50, shuffle=True):
            X_batch.to(META)
    assert copies.sizes == [50, 50]


def test_data_is_moved_completely_or_not_at_all():
    data = make_data()  # 1200 + 800 + 400 bytes; half of the free memory may be used
    for n_free, device in ((4800, "meta"), (4799, "cpu")):
        assert [part.device.type for part in on_device(data, META, n_free)] == [device] * 3
    assert on_device((data[0], None), META, n_free=10**6)[1] is None


def test_samples_by_batch_are_moved_to_a_device_chunk_by_chunk(monkeypatch):
    monkeypatch.setattr(_rows, "MAX_ROWS", 32)
    rows = CentredRows(make_data()[0].numpy(), Standardisation(np.zeros(3)))
    with Copies() as copies:
        (moved,) = on_device((rows,), META, n_free=10**6)
    assert (moved.device, moved.shape, moved.dtype) == (META, (100, 3), torch.float32)
    assert set(copies.sizes) == {32, 4}
    (same,) = on_device((rows,), torch.device("cpu"), n_free=10**6)
    assert torch.equal(same, rows[:])


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("n_free", [0, 10**6])
def test_the_data_of_a_fit_is_on_the_device_of_its_net_if_it_fits(monkeypatch, kind, n_free):
    X, y, weight = (part.numpy() for part in make_data())
    monkeypatch.setattr(_rows, "free_memory", lambda device: n_free)
    monkeypatch.setattr(_rows, "SMALL_COPY", 0)
    place = torch.float32, META
    data = as_tensors(
        Rows(kind(X), y, weight), Standardisation(X.mean(axis=0)), *place, by_batch=True
    )
    is_there = n_free > 0 and kind is np.asarray
    assert isinstance(data[0], torch.Tensor if is_there else CentredRows)
    assert {part.device for part in data[1:]} == {META if is_there else torch.device("cpu")}
