import numpy as np
import pytest
import torch
from scipy import sparse

from mixupe_sklearn._data import batches as _batches
from mixupe_sklearn._data.batches import Batches
from mixupe_sklearn._data.rows import CentredRows, Standardisation, centre


def rows_of(batches):
    return torch.cat([X for X, _ in batches])


@pytest.mark.parametrize(
    "data",
    [
        np.arange(20.0).reshape(10, 2),
        torch.arange(20.0).reshape(10, 2),
        sparse.csr_array(np.arange(20.0).reshape(10, 2)),
        sparse.coo_matrix(np.arange(20.0).reshape(10, 2)),
    ],
    ids=["numpy", "torch", "csr", "coo"],
)
@pytest.mark.parametrize("shuffle", [False, True])
def test_every_sample_comes_once_with_its_target(data, shuffle):
    y = np.arange(10)
    batches = Batches(data, y, batch_size=3, shuffle=shuffle, random_state=0)
    seen = torch.cat([y for _, y in batches])
    assert sorted(seen.tolist()) == list(range(10))
    for X, y_batch in batches:
        assert torch.equal(X[:, 0].long(), 2 * y_batch)


def test_dicts_are_indexed_entry_by_entry():
    data = {"X": np.arange(10.0), "sample_weight": np.arange(10.0)}
    for X, _ in Batches(data, np.zeros(10), batch_size=4, shuffle=True, random_state=0):
        assert torch.equal(X["X"], X["sample_weight"])


def test_a_subset_stays_a_subset():
    indices = np.array([1, 5, 7])
    batches = Batches(np.arange(10), None, indices=indices, batch_size=2, shuffle=True)
    assert sorted(rows_of(batches).tolist()) == [1, 5, 7]


@pytest.mark.parametrize("seed", [lambda: 0, lambda: np.random.default_rng(0)])
def test_order_is_new_in_each_iteration_and_follows_the_seed(seed):
    first, second = (Batches(np.arange(50), shuffle=True, random_state=seed()) for _ in range(2))
    epoch = rows_of(first)
    assert torch.equal(epoch, rows_of(second))
    assert not torch.equal(epoch, rows_of(first))


def test_without_a_seed_the_order_follows_torchs_generator():
    batches = Batches(np.arange(50), shuffle=True)
    torch.manual_seed(1)
    epoch = rows_of(batches)
    torch.manual_seed(1)
    assert torch.equal(epoch, rows_of(batches))


@pytest.mark.parametrize(
    ("settings", "sizes"),
    [
        ({}, [3, 3, 3, 1]),
        ({"drop_last": True}, [3, 3, 3]),
        ({"min_rows": 2}, [3, 3, 4]),
        ({"batch_size": 20}, [10]),
        ({"batch_size": 20, "min_rows": 2}, [10]),
    ],
)
def test_sizes_of_batches(settings, sizes):
    batches = Batches(np.zeros((10, 1)), **{"batch_size": 3, **settings})
    assert [len(X) for X, _ in batches] == sizes
    assert len(batches) == len(sizes)


def test_centred_rows_equal_centring_the_dense_matrix():
    rng = np.random.default_rng(0)
    X = sparse.csr_array(rng.normal(size=(30, 5)) * (rng.random((30, 5)) < 0.3))
    how = Standardisation(np.asarray(X.mean(axis=0)).ravel())
    index = np.array([4, 2, 29])
    expected = centre(X.toarray(), how)[index]
    assert torch.equal(CentredRows(X, how)[index], expected)
    assert torch.equal(CentredRows(X, how)[1:3], centre(X.toarray(), how)[1:3])


def test_centring_happens_before_rounding_to_single_precision():
    X = 1e8 + np.arange(4.0)[:, None]
    assert centre(X, Standardisation(X.mean(axis=0))).ravel().tolist() == [-1.5, -0.5, 0.5, 1.5]


def test_a_read_only_array_gives_no_warning():
    X = np.zeros((4, 2))
    X.flags.writeable = False
    assert len(rows_of(Batches(X))) == 4


def test_arrays_that_torch_rejects_are_converted():
    X = np.arange(6.0).reshape(3, 2)
    for other in (X[::-1], X.astype(">f8"), np.asfortranarray(X)[:, ::-1]):
        assert np.array_equal(rows_of(Batches(other)).numpy(), other)


@pytest.mark.parametrize("shuffle", [False, True])
def test_large_arrays_that_torch_rejects_are_converted_batch_by_batch(monkeypatch, shuffle):
    X = np.arange(20.0).reshape(10, 2)
    read_only = X.copy()
    read_only.flags.writeable = False
    settings = {"batch_size": 3, "shuffle": shuffle, "random_state": 0}
    expected = rows_of(Batches(X, **settings)).numpy()
    monkeypatch.setattr(_batches, "SMALL_COPY", 0)
    for other in (read_only, X[::-1].copy()[::-1], X.astype(">f8"), np.asfortranarray(X)):
        batches = Batches(other, **settings)
        assert batches.X is other
        assert np.array_equal(rows_of(batches).numpy(), expected)


@pytest.mark.parametrize("size", [0, 2**20], ids=["large", "small"])
def test_writing_to_a_batch_does_not_reach_a_read_only_array(monkeypatch, size):
    monkeypatch.setattr(_batches, "SMALL_COPY", size)
    X = np.zeros((4, 2))
    X.flags.writeable = False
    for batch, _ in Batches(X, batch_size=2):
        batch += 1
    assert not X.any()
