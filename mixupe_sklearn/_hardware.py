"""Which device, how many threads, and whether gradients are kept."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from mixupe_sklearn._checks import Choice, check_rules
from mixupe_sklearn._random import Borrowed

# Up to this many weights a second thread is not worth waking: a step of the paper's network was no
# faster with two, and threads of several processes fight over the cores.
SMALL_MODULE = 1_000_000
# Each Python thread has a number of its own, and new ones start with what was set last.
_n_threads = Borrowed(torch.get_num_threads, torch.set_num_threads, by_each=True)


def resolve_device(device: str | torch.device) -> torch.device:
    """Turn ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or ``"mps"`` into a torch device.

    ``"auto"`` is a GPU of the CUDA kind where there is one, else the processor.

    Examples
    --------
    >>> resolve_device("cpu")
    device(type='cpu')
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


@contextmanager
def few_threads(module: torch.nn.Module) -> Iterator[None]:
    """Train a small module with one thread, and restore the number found.

    Examples
    --------
    >>> import torch
    >>> before = torch.get_num_threads()
    >>> with few_threads(torch.nn.Linear(2, 2)):
    ...     torch.get_num_threads()
    1
    >>> torch.get_num_threads() == before
    True
    """
    n_weights = sum(parameter.numel() for parameter in module.parameters())
    if n_weights > SMALL_MODULE:
        yield
        return
    with _n_threads.kept():
        torch.set_num_threads(1)
        yield


@contextmanager
def gradients_on() -> Iterator[None]:
    """Train also where a user has switched gradients off.

    Examples
    --------
    >>> import torch
    >>> with torch.inference_mode(), gradients_on():
    ...     torch.ones(1, requires_grad=True).exp().requires_grad
    True
    """
    with torch.inference_mode(False), torch.enable_grad():
        yield
