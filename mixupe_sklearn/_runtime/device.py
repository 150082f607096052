"""How a module runs: its device, its threads, with gradients or without, compiled or not."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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
    module: torch.nn.Module, n_rows: int, n_threads: int | None = None, work: int | None = None
) -> Iterator[None]:
    """Run a block with as many threads as its work justifies, then restore the number found.

    ``n_rows`` counts the samples of one pass, including the clean ones of MixupE. Without
    ``n_threads`` the choice goes up to torch's own number, which reflects
    ``torch.set_num_threads``, ``OMP_NUM_THREADS`` and the limits of joblib's workers.
    """
    with _threads.restored() as found:
        chosen = n_threads_for(module, n_rows, found, work) if n_threads is None else n_threads
        _set_threads(chosen)
        yield


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
