"""The processes that ``torchrun`` started: how they join, and the error if one is lost."""

import atexit
import datetime
import functools
import os
import re
import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch import distributed as dist

# How long a process waits for the others before it fails.
TIME_LIMIT = datetime.timedelta(minutes=10)
# Parts of error messages of torch's transports about a lost process; there is no class for them.
_LOST = ("gloo", "nccl", "connection closed", "connection reset", "broken pipe")
# The outcome of a process that stops training as planned.
_STOP = "stop"


def is_distributed() -> bool:
    """Whether ``torchrun`` started several processes."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_main() -> bool:
    """Whether this is the main process, which prints and writes."""
    return int(os.environ.get("RANK", "0")) == 0


def trains_together(distributed: bool | str) -> bool:
    """Whether an estimator with this ``distributed`` trains in several processes here."""
    if distributed is True and not is_distributed():
        raise ValueError(
            "Got distributed=True in a single process, but expected several: start the program "
            "with torchrun --nproc-per-node 2, or use distributed='auto'."
        )
    return distributed is not False and is_distributed()


def own_device(device: torch.device) -> torch.device:
    """Join the other processes; return the device of this one: the GPU with its local rank."""
    if is_distributed():
        join(device.type)
    if device.type != "cuda" or device.index is not None:
        return device
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


@functools.cache
def join(device_type: str = "cpu") -> Any:
    """Join the other processes, once, and return their ``accelerate.Accelerator``."""
    try:
        import accelerate
        from accelerate.utils import InitProcessGroupKwargs
    except ImportError as error:
        raise ImportError(
            "Got several processes, but accelerate is missing: pip install "
            "mixupe-sklearn[distributed]."
        ) from error
    n_threads, was_joined = torch.get_num_threads(), dist.is_initialized()
    with report_lost_process(lambda: "while the processes joined"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "OMP_NUM_THREADS")  # restored below
        accelerator = accelerate.Accelerator(
            cpu=device_type == "cpu",
            device_placement=False,
            dataloader_config=accelerate.DataLoaderConfiguration(split_batches=True),
            kwargs_handlers=[InitProcessGroupKwargs(timeout=TIME_LIMIT)],
        )
    torch.set_num_threads(n_threads)
    if not was_joined:
        atexit.register(_leave)
    return accelerator


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def same_seed(device_type: str = "cpu") -> int:
    """A new seed, the same in all processes; all of them must call this."""
    seeds = [secrets.randbits(32)]
    if is_distributed():
        join(device_type)
        with report_lost_process(lambda: "before training"):
            dist.broadcast_object_list(seeds, src=0)
    return seeds[0]


@contextmanager
def report_lost_process(when: Callable[[], str]) -> Iterator[None]:
    """Turn errors about a lost process into a ConnectionError that names the time."""
    try:
        yield
    except RuntimeError as error:
        text = str(error)
        if not (isinstance(error, dist.DistError) or any(word in text.lower() for word in _LOST)):
            raise
        # The first sentence of torch's message, without its source location.
        reason = re.sub(r"^\[\S*\]\s*", "", text).splitlines()[0].split(". ")[0].rstrip(".")
        raise ConnectionError(
            f"Got no answer from another process {when()} ({reason}), but expected "
            f"{os.environ.get('WORLD_SIZE')} processes: one has ended; start all of them again."
        ) from error


def from_all(value: Any) -> list[Any]:
    """The values of all processes, in all of them; all of them must call this."""
    if not dist.is_initialized():
        return [value]
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def check_same(found: Mapping[str, Any]) -> None:
    """Raise a ValueError in all processes if values that must be equal differ.

    Arrays may differ by rounding, as between machines.
    """
    everyone = from_all(dict(found))
    for name in dict.fromkeys(name for others in everyone for name in others):
        values = [others.get(name) for others in everyone]
        if all(_is_same(values[0], value) for value in values):
            continue
        is_plain = not any(isinstance(value, np.ndarray) for value in values)
        listed = f" ({', '.join(map(repr, values))})" if is_plain else ""
        raise ValueError(
            f"Got different {name} in the processes{listed}, but expected the same in all: they "
            f"train one network on the same data, of which each takes its shard."
        )


def _is_same(first: Any, second: Any) -> bool:
    if not (isinstance(first, np.ndarray) and isinstance(second, np.ndarray)):
        return repr(first) == repr(second)
    if first.shape != second.shape:
        return False
    rounding = 1e-3 * np.abs(first).max(initial=0.0)
    return np.allclose(first, second, rtol=0, atol=rounding, equal_nan=True)


@contextmanager
def synchronised(when: Callable[[], str]) -> Iterator[None]:
    """Run a block that needs no other process, then wait for all processes to finish it.

    The main process decides whether training stops (KeyboardInterrupt, as in skorch). An error in
    one process ends all of them.
    """
    own: BaseException | None = None
    try:
        yield
    except BaseException as error:
        own = error
    outcomes = from_all(_outcome(own))
    if own is not None and not isinstance(own, KeyboardInterrupt):
        raise own
    for rank, outcome in enumerate(outcomes):
        if outcome not in (None, _STOP):
            raise ConnectionError(
                f"Got an error in process {rank} {when()} ({outcome}), but expected none in "
                f"all {len(outcomes)} processes: training has ended in all of them."
            )
    if outcomes[0] == _STOP:
        raise own or KeyboardInterrupt


def _outcome(error: BaseException | None) -> str | None:
    if error is None:
        return None
    is_stop = isinstance(error, KeyboardInterrupt)
    return _STOP if is_stop else " ".join(f"{type(error).__name__}: {error}".split())


def total_over_all(values: Tensor) -> Tensor:
    """Sum a tensor over all processes, in place."""
    dist.all_reduce(values)
    return values


class Launched:
    """Stands in for an accelerator outside of training, and in a single process."""

    num_processes = 1

    @property
    def is_main_process(self) -> bool:
        """Whether this process writes files."""
        return is_main()
