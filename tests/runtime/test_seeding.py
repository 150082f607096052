import threading

import numpy as np
import torch

from mixupe_sklearn._runtime.torch_state import seeded


def global_states():
    return np.random.get_state()[1].copy(), torch.get_rng_state()


def same(first, second):
    return (first[0] == second[0]).all() and torch.equal(first[1], second[1])


def test_seeded_blocks_repeat_and_restore_the_state():
    before = global_states()
    draws = []
    for _ in range(2):
        with seeded(7):
            draws.append((torch.rand(2).tolist(), np.random.rand(2).tolist()))
    assert draws[0] == draws[1]
    assert same(before, global_states())


def test_an_error_restores_the_state():
    before = global_states()
    try:
        with seeded(0):
            torch.rand(3)
            raise KeyError
    except KeyError:
        pass
    assert same(before, global_states())


def test_overlapping_blocks_in_threads_restore_the_first_state():
    before = global_states()
    inside, leave = threading.Barrier(2), threading.Event()

    def other():
        with seeded(1):
            inside.wait()
            leave.wait()

    thread = threading.Thread(target=other)
    with seeded(2):
        thread.start()
        inside.wait()
    assert not same(before, global_states())
    leave.set()
    thread.join()
    assert same(before, global_states())
