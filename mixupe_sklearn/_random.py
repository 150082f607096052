"""Seed in, previous global state out.

Our own draws come from numpy Generators that belong to a fit. Module initialisation and dropout
know only torch's global generator (and a user's callback perhaps numpy's), so those are seeded for
the time of a fit and put back as found. Fits may overlap in threads: the first one in remembers
the state, the last one out restores it.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

_lock = threading.Lock()
_n_inside = 0
_found: dict[str, Any] = {}


def new_seed(rng: np.random.Generator) -> int:
    """Draw a seed that both torch's and numpy's global generators accept."""
    return int(rng.integers(2**32))


def generator_like_torch(random_state: int | np.random.Generator | None) -> np.random.Generator:
    """Turn a seed into a numpy Generator; ``None`` draws the seed from torch's global generator.

    This is what torch users expect: after ``torch.manual_seed`` a run is reproducible.

    Examples
    --------
    >>> import torch
    >>> first = torch.manual_seed(0) and generator_like_torch(None).random()
    >>> first == (torch.manual_seed(0) and generator_like_torch(None).random())
    True
    """
    if random_state is None:
        random_state = int(torch.randint(2**63 - 1, ()))
    return np.random.default_rng(random_state)


def _read_state(device: torch.device) -> dict[str, Any]:
    state: dict[str, Any] = {"numpy": np.random.get_state(), "torch": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    elif device.type == "mps":
        state["mps"] = torch.mps.get_rng_state()
    return state


def _write_state(state: dict[str, Any], device: torch.device) -> None:
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
    if "mps" in state:
        torch.mps.set_rng_state(state["mps"])


def _seed(seed: int, device: torch.device) -> None:
    np.random.seed(seed)
    # Not torch.manual_seed: that would also leave a seed behind for devices not yet in use.
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)


@contextmanager
def seeded(seed: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Run a block with seeded global generators, then leave them as they were found.

    Examples
    --------
    >>> import torch
    >>> before = torch.get_rng_state()
    >>> with seeded(0):
    ...     draw = torch.rand(3)
    >>> torch.equal(torch.get_rng_state(), before)
    True
    """
    global _n_inside, _found
    device = torch.device(device)
    with _lock:
        if _n_inside == 0:
            _found = _read_state(device)
        _n_inside += 1
        _seed(seed, device)
    try:
        yield
    finally:
        with _lock:
            _n_inside -= 1
            if _n_inside == 0:
                _write_state(_found, device)
                _found = {}
