"""What a fit sets in torch and restores: device, gradients, threads, and random generators.

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

from mixupe_sklearn._utils.parameter_rules import Choice, check_rules

# Multiplications of one pass (weights times samples) that justify one more thread: about 4 ms of a
# training step. On idle cores two threads save a third from 40 million on. On a busy machine, where
# threads wait for each other, a tiny step took 180 times as long and a large one twice as long.
# The size decides, not a clock: the number of threads changes the last bits of a sum, and equal
# seeds must give equal results.
WORK_A_THREAD = 2**26


def resolve_device(device: str | torch.device) -> torch.device:
    """Turn ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or ``"mps"`` into a torch device.

    ``"auto"`` is a CUDA GPU if there is one, else the CPU.
    """
    kind = device.type if isinstance(device, torch.device) else str(device).split(":")[0]
    check_rules({"device": kind}, {"device": Choice(("auto", "cpu", "cuda", "mps"))})
    if kind == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    available = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if not available[kind]:
        usable = ", ".join(repr(name) for name, is_here in available.items() if is_here)
        raise ValueError(f"Got device={str(device)!r}, but this machine has only {usable}.")
    try:
        return torch.device(device)
    except RuntimeError:
        raise ValueError(
            f"Got device={device!r}, but expected 'auto', 'cpu', 'cuda', 'cuda:N' or 'mps'."
        ) from None


class _Threads:
    """Changes torch's number of threads for a block, then restores it, for each Python thread.

    A new Python thread starts with the number that was set last, perhaps by a concurrent fit. So
    the number that the first block finds counts as the user's for all blocks that overlap with it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_inside = 0
        self._found = 1
        self._here = threading.local()

    @contextmanager
    def restored(self) -> Iterator[int]:
        """Run a block that may set the number; yield the user's own."""
        outer = getattr(self._here, "found", None)
        is_own = threading.current_thread() is threading.main_thread()
        with self._lock:
            # Inside the lock: a block that ends just now would otherwise leave its own number here
            # and no trace, and that number would count as the user's.
            before = torch.get_num_threads()
            if self._n_inside == 0:
                self._found = before
            self._n_inside += 1
            if outer is None and not is_own:
                before = self._found
        self._here.found = before if outer is None else outer
        try:
            yield self._here.found
        finally:
            self._here.found = outer
            _set_threads(before)
            with self._lock:
                self._n_inside -= 1


_threads = _Threads()


def _set_threads(n_threads: int) -> None:
    # Only if needed: new Python threads start with the number that is set here.
    if torch.get_num_threads() != n_threads:
        torch.set_num_threads(n_threads)


def multiplications(module: torch.nn.Module, X: torch.Tensor) -> int:
    """Run a module and count the multiplications of its linear layers and convolutions per sample.

    Examples
    --------
    >>> import torch
    >>> multiplications(torch.nn.Conv2d(3, 8, 3, padding=1), torch.zeros(2, 3, 10, 10))
    21600
    """
    n_each: list[int] = []

    def count(layer: Any, inputs: Any, output: Any) -> None:
        # Each output value is a sum over the weights that lead to it.
        n_each.append(output[0].numel() * layer.weight[0].numel())

    kinds = (torch.nn.Linear, torch.nn.modules.conv._ConvNd)
    layers = [layer for layer in module.modules() if isinstance(layer, kinds)]
    hooks = [layer.register_forward_hook(count) for layer in layers]
    try:
        module(X)
    finally:
        for hook in hooks:
            hook.remove()
    return sum(n_each)


def n_threads_for(
    module: torch.nn.Module, n_rows: int, at_most: int, work: int | None = None
) -> int:
    """Choose the number of threads for a pass of some samples through a module.

    ``work`` is the number of multiplications per sample; None counts one per weight.
    """
    if at_most == 1:
        return 1
    if work is None:
        work = sum(parameter.numel() for parameter in module.parameters())
    return max(1, min(at_most, work * n_rows // WORK_A_THREAD))


@contextmanager
def threads_for(
    module: torch.nn.Module,
    n_rows: int,
    n_threads: int | None = None,
    work: int | None = None,
    n_together: int = 1,
) -> Iterator[int]:
    """Run a block with as many threads as its work justifies, then restore the number found.

    ``n_rows`` counts the samples of one pass, including the clean ones of MixupE. Without
    ``n_threads`` the choice goes up to torch's own number, which reflects
    ``torch.set_num_threads``, ``OMP_NUM_THREADS`` and the limits of joblib's workers. Networks that
    train together are spread over Python threads instead, each with one thread of torch: the block
    gets the number of Python threads.
    """
    with _threads.restored() as found:
        if n_together > 1:
            _set_threads(1)
            yield found if n_threads is None else n_threads
            return
        chosen = n_threads_for(module, n_rows, found, work) if n_threads is None else n_threads
        _set_threads(chosen)
        yield 1


@contextmanager
def gradients_on() -> Iterator[None]:
    """Enable gradients, even inside the user's ``no_grad`` or ``inference_mode``."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


def is_compiled(module: torch.nn.Module) -> bool:
    """Whether the module or one of its parts is compiled."""
    return any(part._compiled_call_impl is not None for part in module.modules())


def drop_compiled(module: torch.nn.Module) -> None:
    """Remove the compiled form of a module."""
    for part in module.modules():
        part._compiled_call_impl = None  # torch's own copies and pickles do the same


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
