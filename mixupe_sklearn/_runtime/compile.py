"""torch.compile for the modules that training runs."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import torch

from mixupe_sklearn._runtime.torch_state import drop_compiled
from mixupe_sklearn._utils.warnings import warn_user

# The backend of torch.compile, and how many networks one process may compile. torch's own limit is
# 8; beyond it a search over widths would silently run uncompiled.
BACKEND: str | Callable[..., Any] = "inductor"
MAX_COMPILED = 64
# Modules that failed to compile. ``partial_fit`` does not try them again.
_refused: WeakSet[torch.nn.Module] = WeakSet()


def compile_module(
    module: torch.nn.Module, parts: Sequence[torch.nn.Module], try_out: Callable[[], Any]
) -> None:
    """Compile parts of a module in place; if that fails, warn once and leave the module as it is.

    Names of parameters do not change. Copies and pickles do not hold the compiled form. ``parts``
    is what training calls: the module itself, or its stages. ``try_out`` runs the module forward
    and backward as training will: torch compiles, and fails, only then.
    """
    if module in _refused:
        return
    try:
        # Ignore torch's warnings about its own deprecated parts: no user can act on them.
        with warnings.catch_warnings(action="ignore"), _left_as_found(module):
            for part in parts:
                _compile(part)
            try_out()
    except Exception as error:  # compilers raise many types
        drop_compiled(module)
        _refused.add(module)
        warn_user(
            f"Got compile=True, but torch.compile failed ({_reason(error)}); the module runs "
            f"uncompiled."
        )


def _compile(part: torch.nn.Module) -> None:
    # A function of our own, since Module.compile skips modules that torch defines (Sequential).
    def call(*args: Any, **kwargs: Any) -> Any:
        return part._call_impl(*args, **kwargs)

    # Dynamic sizes, since the last batch is smaller. The limit is documented, but torch's type
    # hints lack it.
    part._compiled_call_impl = torch.compile(  # type: ignore[call-overload]
        call, backend=BACKEND, dynamic=True, recompile_limit=MAX_COMPILED
    )


@contextmanager
def _left_as_found(module: torch.nn.Module) -> Iterator[None]:
    """Restore gradients, buffers, modes and random generators after a trial run."""
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
    """The first line of an error message, without torch's wrapper, cut to 100 characters."""
    error = getattr(error, "inner_exception", error)
    line = (str(error).strip() or "no reason given").splitlines()[0]
    return f"{type(error).__name__}: {line if len(line) <= 100 else line[:97] + '...'}"
