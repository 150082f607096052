"""How a module is run: its stages, its statistics, and the shapes of what goes in and comes out."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


def stages_of(module: Any) -> list[Callable[..., Any]]:
    """The steps between which a module can be mixed: its ``stages``, or ``encode`` and ``head``."""
    stages = getattr(module, "stages", None)
    if stages is not None:
        return list(stages)
    if callable(getattr(module, "encode", None)) and callable(getattr(module, "head", None)):
        return [module.encode, module.head]
    return [module]


def hidden_stages(module: Any) -> list[Callable[..., Any]]:
    """The same, for a module that is to be mixed between them."""
    stages = stages_of(module)
    if len(stages) < 2:
        raise ValueError(
            f"Got mix_at='hidden' with a {type(module).__name__}, but expected a module with "
            f"at least two 'stages', or with 'encode' and 'head'."
        )
    return stages


def run_stages(stages: list[Callable[..., Any]], X: Any, module_params: dict[str, Any]) -> Any:
    """Run stages in turn; the first one gets the inputs (a dict as keywords) and parameters."""
    first, *others = stages
    state = first(**X, **module_params) if isinstance(X, dict) else first(X, **module_params)
    for stage in others:
        state = stage(state)
    return state


def mixable(state: Any) -> Tensor:
    """Check that this can be blended row by row: a floating-point tensor."""
    if isinstance(state, Tensor) and state.is_floating_point():
        return state
    kind = f"{state.dtype} tensor" if isinstance(state, Tensor) else type(state).__name__
    raise TypeError(
        f"Got a {kind} to mix, but expected a floating-point tensor: pass a data frame as a float "
        f"array, and irregular inputs with mix_at='hidden' and a module with 'encode' and 'head'."
    )


def differentiable(state: Any) -> Tensor:
    """The clean rows as a tensor of their own, so that a derivative along them is theirs alone."""
    state = mixable(state)
    return state.view_as(state) if state.requires_grad else state.detach().requires_grad_()


def set_to_predict(module: nn.Module) -> None:
    """Take a module out of training, its parts before itself.

    ``Module.eval`` begins with the module itself. Another thread, which comes to predict as well,
    would take the whole for ready and run parts that still train: dropout at random, and
    statistics that change.

    Examples
    --------
    >>> from torch import nn
    >>> module = nn.Sequential(nn.Dropout(0.5))
    >>> set_to_predict(module)
    >>> module.training, module[0].training
    (False, False)
    """
    if module.training:
        for part in module.children():
            part.eval()
        module.eval()


@contextmanager
def frozen_statistics(module: Any) -> Iterator[None]:
    """Let normalisation layers use their batch's statistics without remembering them."""
    layers = [
        layer
        for layer in module.modules()
        if layer.training and getattr(layer, "track_running_stats", False)
    ]
    for layer in layers:
        layer.track_running_stats = False
    try:
        yield
    finally:
        for layer in layers:
            layer.track_running_stats = True


def encode_targets(y: Tensor, logits: Tensor, head: str) -> Tensor:
    """Bring targets to the shape and type of the logits: one-hot rows for class numbers."""
    n_samples, n_outputs = logits.shape
    if len(y) != n_samples or n_samples == 0:
        raise ValueError(f"Got {len(y)} targets for {n_samples} rows, but expected one a row.")
    if head == "softmax" and y.ndim == 1 and not y.is_floating_point():
        try:
            return nn.functional.one_hot(y.long(), n_outputs).to(logits.dtype)
        except RuntimeError:
            raise ValueError(
                f"Got class numbers from {int(y.min())} to {int(y.max())}, but expected 0 to "
                f"{n_outputs - 1}, since the module has {n_outputs} outputs."
            ) from None
    y = y[:, None] if y.ndim == 1 else y
    if y.shape != logits.shape:
        raise ValueError(
            f"Got targets of shape {tuple(y.shape)}, but expected {tuple(logits.shape)}, the shape "
            f"of the module's output."
        )
    if head != "squared" and not bool(((y >= 0) & (y <= 1)).all()):
        raise ValueError(
            f"Got targets from {y.min().item()} to {y.max().item()}, but expected 0 to 1."
        )
    return y.to(logits.dtype)


def check_row_weights(sample_weight: Tensor | None, logits: Tensor) -> Tensor | None:
    """Weights in the type of the logits, one a row; anything else would be broadcast in silence."""
    if sample_weight is None:
        return None
    if sample_weight.shape != logits.shape[:1]:
        raise ValueError(
            f"Got sample_weight of shape {tuple(sample_weight.shape)}, but expected "
            f"({len(logits)},), a weight a row."
        )
    return sample_weight.to(logits.dtype)


def as_logits(output: Any) -> Tensor:
    """Check that a module's output is one row of logits a sample; a single column may be flat."""
    output = output[0] if isinstance(output, tuple) else output
    if not isinstance(output, Tensor) or output.ndim not in (1, 2):
        shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise ValueError(f"Got module output {shape}, but expected shape (n_samples, n_outputs).")
    if output.dtype in (torch.float16, torch.bfloat16):
        output = output.float()  # sums over classes and rows need more digits
    return output[:, None] if output.ndim == 1 else output
