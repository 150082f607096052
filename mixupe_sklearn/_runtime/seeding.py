"""Seeds for a fit, and the global generators restored after it.

Our own draws come from numpy Generators that belong to a fit. Module initialisation and dropout
draw from torch's global generator, and a user's callback may draw from numpy's. A fit seeds both
and restores them at its end.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch


class SavedState:
    """Saves a global state when the first thread enters; restores it when the last one leaves."""

    def __init__(self, read: Callable[[], Any], write: Callable[[Any], Any]):
        self.read = read
        self.write = write
        self._lock = threading.Lock()
        self._n_inside = 0
        self._found: Any = None

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Run a block, then restore the state found before it."""
        with self._lock:
            if self._n_inside == 0:
                self._found = self.read()
            self._n_inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._n_inside -= 1
                if self._n_inside == 0:
                    self.write(self._found)


# Held while a thread seeds or draws initial weights.
_seeding = threading.RLock()
_numpy_state = SavedState(np.random.get_state, np.random.set_state)
_torch_state = SavedState(torch.get_rng_state, torch.set_rng_state)
_device_states: dict[torch.device, SavedState] = {}


def new_seed(rng: np.random.Generator) -> int:
    """Draw a seed that both torch's and numpy's global generators accept."""
    return int(rng.integers(2**32))


class Streams(NamedTuple):
    """The generators of one network: draws from one of them do not affect the others."""

    order: np.random.Generator
    mixing: np.random.Generator
    torch: np.random.Generator
    split: np.random.Generator


def streams_of(seed: int | None, n_networks: int) -> list[Streams]:
    """Streams for each network; those of the first do not depend on ``n_networks``."""
    root = np.random.default_rng(seed)
    return [Streams(*root.spawn(len(Streams._fields))) for _ in range(n_networks)]


def remember_streams(streams: Iterable[Streams]) -> Callable[[], None]:
    """Return a function that restores the current state of the generators."""
    states = [(rng, rng.bit_generator.state) for own in streams for rng in own]

    def undo() -> None:
        for rng, state in states:
            rng.bit_generator.state = state

    return undo


def generator_like_torch(random_state: int | np.random.Generator | None) -> np.random.Generator:
    """Turn a seed into a numpy Generator; ``None`` draws the seed from torch's global generator.

    As torch users expect, ``torch.manual_seed`` makes a run reproducible.

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


def _states_of(device: torch.device) -> list[SavedState]:
    """The generators that training on this device draws from."""
    if device.type == "cpu":
        return [_numpy_state, _torch_state]
    if device not in _device_states:
        library = torch.cuda if device.type == "cuda" else torch.mps
        where = (device,) if device.type == "cuda" else ()
        _device_states[device] = SavedState(
            lambda: library.get_rng_state(*where),
            lambda state: library.set_rng_state(state, *where),
        )
    return [_numpy_state, _torch_state, _device_states[device]]


def _seed(seed: int, device: torch.device) -> None:
    np.random.seed(seed)
    # torch.manual_seed would also seed devices that are not in use yet.
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)


@contextmanager
def alone(seed: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Seed and run a block while no other thread can seed, so that initial weights reproduce.

    Use it within ``seeded``, which restores the generators.
    """
    with _seeding:
        _seed(seed, torch.device(device))
        yield


@contextmanager
def seeded(seed: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Run a block with seeded global generators, then restore their state."""
    device = torch.device(device)
    with ExitStack() as stack:
        for state in _states_of(device):
            stack.enter_context(state.kept())
        with _seeding:
            _seed(seed, device)
        yield
