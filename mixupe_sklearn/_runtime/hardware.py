"""Which device, how many threads, whether gradients are kept, and what is compiled."""

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import torch

from mixupe_sklearn._utils.parameter_rules import Choice, check_rules
from mixupe_sklearn._utils.warnings import warn_user

# Multiplications of one pass (weights times rows) that are worth a thread: some 4 ms of a training
# step. Where cores are free, two threads gain a third from 40 million on; on a crowded machine,
# where threads wait for each other, they made a tiny step 180 times as long and a large one twice.
# The choice is by size and not by a clock: sums depend on the number of threads in their last bits,
# and equal seeds are to give equal results.
WORK_A_THREAD = 2**26
# What torch.compile translates to, and for how many networks in one process: beyond torch's own 8
# a search over widths would run as it is without a word.
BACKEND: str | Callable[..., Any] = "inductor"
MAX_COMPILED = 64
# Modules that could not be compiled are not tried again with every call of partial_fit.
_refused: WeakSet[torch.nn.Module] = WeakSet()


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


class _Threads:
    """torch's number of threads, lent out: each Python thread has its own, and gets it back.

    A new Python thread starts with what was set last, perhaps by a fit that runs beside it. So
    what the first one in has found is the user's number for all who come while it is inside.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_inside = 0
        self._found = 1
        self._here = threading.local()

    @contextmanager
    def lent(self) -> Iterator[int]:
        """Run a block that may set the number; it is told the user's own."""
        outer = getattr(self._here, "found", None)
        is_own = threading.current_thread() is threading.main_thread()
        with self._lock:
            # Not before the lock: one who is leaving would be gone, and its number taken for the
            # user's.
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
    # Not without need: what is set here is also what new Python threads start with.
    if torch.get_num_threads() != n_threads:
        torch.set_num_threads(n_threads)


def multiplications(module: torch.nn.Module, X: torch.Tensor) -> int:
    """Run a module: how many multiplications its linear layers and convolutions make for a row.

    Examples
    --------
    >>> import torch
    >>> multiplications(torch.nn.Conv2d(3, 8, 3, padding=1), torch.zeros(2, 3, 10, 10))
    21600
    """
    n_each: list[int] = []

    def count(layer: Any, inputs: Any, output: Any) -> None:
        # Each number of the output is a sum over the weights that lead to it.
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
    """How many threads a pass of some rows through a module is worth.

    Parameters
    ----------
    module : torch.nn.Module
        The network. Where its work is not known, it is taken to be that of linear layers: a
        multiplication for each weight and row.
    n_rows : int
        Rows of one pass.
    at_most : int
        The number that may be used.
    work : int or None, default=None
        Multiplications for a row, where they are known.

    Examples
    --------
    >>> import torch
    >>> n_threads_for(torch.nn.Linear(16, 128), n_rows=200, at_most=8)
    1
    >>> n_threads_for(torch.nn.Linear(1024, 1024), n_rows=200, at_most=8)
    3
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
    """Run a block with the number of threads that its work is worth, then restore the one found.

    Parameters
    ----------
    module : torch.nn.Module
        The network that the block runs.
    n_rows : int
        Rows of one pass, the clean ones of MixupE included.
    n_threads : int or None, default=None
        Use exactly this many. None chooses, and never more than torch has: this is where a user's
        ``torch.set_num_threads``, ``OMP_NUM_THREADS`` and the shares of joblib's processes arrive.
    work : int or None, default=None
        Multiplications for a row, where they are known.

    Examples
    --------
    >>> import torch
    >>> before = torch.get_num_threads()
    >>> with threads_for(torch.nn.Linear(2, 2), n_rows=100):
    ...     torch.get_num_threads()
    1
    >>> torch.get_num_threads() == before
    True
    """
    with _threads.lent() as found:
        chosen = n_threads_for(module, n_rows, found, work) if n_threads is None else n_threads
        _set_threads(chosen)
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


def compile_module(
    module: torch.nn.Module, parts: Sequence[torch.nn.Module], try_out: Callable[[], Any]
) -> None:
    """Compile parts of a module in place; where that fails, warn once and leave it as it is.

    Names of weights do not change, and copies and pickles are without the compiled form.

    Parameters
    ----------
    module : torch.nn.Module
        The network.
    parts : sequence of torch.nn.Module
        What training calls: the module itself, or its stages.
    try_out : callable
        Runs the module as training will, backward too, since torch compiles (and fails) only then.
        It leaves no trace in gradients, statistics and random numbers.

    Examples
    --------
    >>> import torch
    >>> module = torch.nn.Linear(2, 1)
    >>> compile_module(module, [], lambda: module(torch.ones(3, 2)).sum().backward())
    >>> is_compiled(module), module.weight.grad
    (False, None)
    """
    if module in _refused:
        return
    try:
        # torch warns of its own deprecated parts; a user can do nothing about these.
        with warnings.catch_warnings(action="ignore"), _left_as_found(module):
            for part in parts:
                _compile(part)
            try_out()
    except Exception as error:  # compilers fail in many ways
        drop_compiled(module)
        _refused.add(module)
        warn_user(
            f"Got compile=True, but torch.compile failed ({_reason(error)}); the module runs as it "
            f"is."
        )


def _compile(part: torch.nn.Module) -> None:
    # By a function of ours: Module.compile passes over modules of torch, such as Sequential.
    def call(*args: Any, **kwargs: Any) -> Any:
        return part._call_impl(*args, **kwargs)

    # Sizes stay open, since the last batch is smaller than the others. The limit is documented, but
    # not in torch's types.
    part._compiled_call_impl = torch.compile(  # type: ignore[call-overload]
        call, backend=BACKEND, dynamic=True, recompile_limit=MAX_COMPILED
    )


def is_compiled(module: torch.nn.Module) -> bool:
    """Whether the module or a part of it runs in a compiled form."""
    return any(part._compiled_call_impl is not None for part in module.modules())


def drop_compiled(module: torch.nn.Module) -> None:
    """Let a module run as it was written."""
    for part in module.modules():
        part._compiled_call_impl = None  # as torch's own copies and pickles do


@contextmanager
def _left_as_found(module: torch.nn.Module) -> Iterator[None]:
    """Undo what a trial leaves behind: gradients, statistics, modes and used random numbers."""
    gradients = [(parameter, parameter.grad) for parameter in module.parameters()]
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    modes = [(part, part.training) for part in module.modules()]
    devices = {p.device for p, _ in gradients if p.device.type == "cuda"}
    try:
        with torch.random.fork_rng(devices=list(devices)):
            yield
    finally:
        for parameter, gradient in gradients:
            parameter.grad = gradient
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)
        for part, is_training in modes:
            part.training = is_training


def _reason(error: BaseException) -> str:
    """What an error says, without what torch wraps it in, in a few words."""
    error = getattr(error, "inner_exception", error)
    line = (str(error).strip() or "no reason given").splitlines()[0]
    return f"{type(error).__name__}: {line if len(line) <= 100 else line[:97] + '...'}"
