"""The number of threads of training: the user's, or one that fits the work; then restored."""

import threading

import joblib
import numpy as np
import pytest
import torch
from paper import paper_classifier
from threadpoolctl import threadpool_limits

from mixupe_sklearn._runtime import torch_state as runtime_device
from mixupe_sklearn._runtime.torch_state import n_threads_for, threads_for
from mixupe_sklearn.modules import MLP

SMALL, LARGE = torch.nn.Linear(10, 10), torch.nn.Linear(1024, 1024)


@pytest.fixture(autouse=True)
def _two_threads():
    """Two threads, as a user may set them, on any machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def fit_threads(small_digits):
    """A function that fits and returns the numbers of threads during training."""

    def fit(**params):
        seen = set()

        class Watch(torch.nn.Linear):
            def forward(self, rows):
                if self.training:
                    seen.add(torch.get_num_threads())
                return super().forward(rows)

        sizes = {"in_features": 64, "out_features": 10}
        paper_classifier(module=Watch, module_params=sizes, max_epochs=1, **params).fit(
            *small_digits
        )
        return seen

    return fit


def within(*args, **kwargs):
    """The number of threads in a block of ``threads_for``."""
    with threads_for(*args, **kwargs):
        return torch.get_num_threads()


def in_a_thread(function):
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


def test_a_small_network_trains_with_one_thread(fit_threads):
    assert fit_threads() == {1}
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("n_threads", [1, 3])
def test_n_threads_is_used_and_the_old_number_restored(fit_threads, n_threads):
    assert fit_threads(n_threads=n_threads) == {n_threads}
    assert torch.get_num_threads() == 2


def test_a_large_network_trains_with_all_threads_of_torch(fit_threads, monkeypatch):
    monkeypatch.setattr(runtime_device, "WORK_A_THREAD", 64 * 10)
    assert fit_threads() == {2}
    torch.set_num_threads(1)
    assert fit_threads() == {1}


def test_the_clean_samples_of_mixupe_count_as_work(fit_threads, monkeypatch):
    monkeypatch.setattr(runtime_device, "WORK_A_THREAD", (64 * 10 + 10) * 100)
    assert fit_threads(method="mixup", batch_size=199) == {1}
    assert fit_threads(method="mixup", batch_size=200) == {2}
    assert fit_threads(method="mixupe", batch_size=100) == {2}


def test_an_error_restores_the_number():
    with pytest.raises(KeyError), threads_for(SMALL, 10):
        raise KeyError
    assert torch.get_num_threads() == 2


def test_the_reference_network_is_small_and_wide_ones_with_large_batches_are_not():
    paper, wide = MLP(16, 26), MLP(784, 26, d_hidden=(512, 512))
    assert n_threads_for(paper, 200, at_most=64) == 1
    assert n_threads_for(wide, 32, at_most=64) == 1
    assert n_threads_for(wide, 200, at_most=64) == 2
    assert n_threads_for(wide, 2000, at_most=64) > 8


def test_more_work_never_reduces_threads_nor_exceeds_the_limit():
    chosen = [n_threads_for(LARGE, n_rows, at_most=4) for n_rows in range(0, 1000, 50)]
    assert chosen == sorted(chosen)
    assert {chosen[0], chosen[-1]} == {1, 4}


def test_the_limit_of_threadpoolctl_is_respected():
    with threadpool_limits(1):
        assert within(LARGE, 1000) == 1
    assert within(LARGE, 1000) == 2


def test_the_limit_of_a_joblib_worker_becomes_torchs_number():
    # Through OMP_NUM_THREADS, which a user may also set. Other tests cover torch's number.
    with joblib.parallel_config("loky", n_jobs=2, inner_max_num_threads=1):
        shares = joblib.Parallel()(joblib.delayed(torch.get_num_threads)() for _ in range(2))
    assert shares == [1, 1]


def test_an_inner_block_restores_the_number_of_the_outer_one():
    with threads_for(SMALL, 10):
        assert within(LARGE, 1000) == 2
        assert torch.get_num_threads() == 1
        assert within(SMALL, 10, n_threads=5) == 5
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2


def test_a_new_thread_uses_the_users_number_beside_another_fit():
    with threads_for(SMALL, 10):
        assert in_a_thread(lambda: within(LARGE, 1000)) == 2
    with threads_for(SMALL, 10, n_threads=5):
        assert in_a_thread(lambda: within(LARGE, 1000)) == 2


def test_the_number_is_restored_in_any_order_of_exit():
    inside, leave = threading.Barrier(2), threading.Event()
    seen = []

    def other():
        with threads_for(SMALL, 10):
            inside.wait()
            leave.wait()
        seen.append(torch.get_num_threads())

    thread = threading.Thread(target=other)
    with threads_for(SMALL, 10):
        thread.start()
        inside.wait()
    leave.set()
    thread.join()
    assert [torch.get_num_threads(), *seen, in_a_thread(torch.get_num_threads)] == [2, 2, 2]


class SlowLock:
    """A lock that delays one thread until the others have left the block."""

    def __init__(self):
        self.lock, self.arrived, self.go = threading.Lock(), threading.Event(), threading.Event()
        self.slow = None

    def __enter__(self):
        if threading.current_thread() is self.slow:
            self.arrived.set()
            self.go.wait()
        self.lock.acquire()

    def __exit__(self, *_):
        self.lock.release()


def test_a_thread_that_enters_as_the_last_one_leaves_finds_the_users_number(monkeypatch):
    lock, seen = SlowLock(), []
    monkeypatch.setattr(runtime_device._threads, "_lock", lock)
    lock.slow = threading.Thread(target=lambda: seen.append(within(LARGE, 1000)))
    with threads_for(SMALL, 10):
        lock.slow.start()
        lock.arrived.wait()
    lock.go.set()
    lock.slow.join()
    assert [*seen, in_a_thread(torch.get_num_threads)] == [2, 2]


def test_nothing_is_set_if_the_number_is_already_right(monkeypatch):
    torch.set_num_threads(1)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: pytest.fail("was set"))
    assert within(SMALL, 10) == 1


def test_threads_change_results_by_rounding_at_most(small_digits):
    X, y = small_digits

    def fit(n_threads):
        params = {"module_params": {"d_hidden": (512, 512)}, "max_epochs": 1, "random_state": 0}
        return paper_classifier(n_threads=n_threads, **params).fit(X, y).predict_proba(X)

    two = fit(2)
    assert np.array_equal(two, fit(2))
    assert np.allclose(fit(1), two, atol=1e-4)


@pytest.mark.parametrize("n_threads", [0, 1.5, "all"])
def test_a_wrong_number_raises(iris, n_threads):
    with pytest.raises(ValueError, match=r"Got n_threads=.*, but expected an? .* from 1 to 1024"):
        paper_classifier(n_threads=n_threads).fit(*iris)


def test_the_main_threads_own_number_is_respected_beside_a_fit():
    before = torch.get_num_threads()
    inside, leave = threading.Event(), threading.Event()

    def other():
        with threads_for(torch.nn.Linear(1, 1), n_rows=1):
            inside.set()
            leave.wait()

    try:
        torch.set_num_threads(2)
        thread = threading.Thread(target=other)
        thread.start()
        inside.wait()
        torch.set_num_threads(1)
        with threads_for(torch.nn.Linear(2**13, 2**13), n_rows=10):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 1
        leave.set()
        thread.join()
    finally:
        torch.set_num_threads(before)
