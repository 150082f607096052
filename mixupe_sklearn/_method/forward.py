"""How a module runs: its stages, its running statistics, and the shapes of inputs and outputs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


def stages_of(module: Any) -> list[Callable[..., Any]]:
    """The stages between which a module can mix: its ``stages``, or ``encode`` and ``head``."""
    stages = getattr(module, "stages", None)
    if stages is not None:
        return list(stages)
    if callable(getattr(module, "encode", None)) and callable(getattr(module, "head", None)):
        return [module.encode, module.head]
    return [module]


def hidden_stages(module: Any) -> list[Callable[..., Any]]:
    """The stages of a module for ``mix_at="hidden"``; raises if it has fewer than two."""
    stages = stages_of(module)
    if len(stages) < 2:
        raise ValueError(
            f"Got mix_at='hidden' with a {type(module).__name__}, but expected a module with "
            f"at least two 'stages', or with 'encode' and 'head'."
        )
    return stages


def run_stages(stages: list[Callable[..., Any]], X: Any, module_params: dict[str, Any]) -> Any:
    """Run stages in order; the first one gets the inputs (a dict as keywords) and parameters."""
    first, *others = stages
    state = first(**X, **module_params) if isinstance(X, dict) else first(X, **module_params)
    for stage in others:
        state = stage(state)
    return state


def mixable(state: Any) -> Tensor:
    """Check that a state can be mixed sample by sample: it is a floating-point tensor."""
    if isinstance(state, Tensor) and state.is_floating_point():
        return state
    kind = f"{state.dtype} tensor" if isinstance(state, Tensor) else type(state).__name__
    raise TypeError(
        f"Got a {kind} to mix, but expected a floating-point tensor: pass a data frame as a float "
        f"array, and irregular inputs with mix_at='hidden' and a module with 'encode' and 'head'."
    )


def differentiable(state: Any) -> Tensor:
    """The clean samples as a separate tensor, so that a derivative along them is theirs alone."""
    state = mixable(state)
    return state.view_as(state) if state.requires_grad else state.detach().requires_grad_()


def set_to_predict(module: nn.Module) -> None:
    """Set a module to evaluation mode, its children first.

    ``Module.eval`` sets the module itself first. A second thread that predicts at the same time
    would find the module ready and run children that are still in training mode, with random
    dropout and changing statistics.

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
    """Let normalisation layers use batch statistics without updating the running ones."""
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
    """Convert targets to the shape and dtype of the logits; class indices become one-hot."""
    n_samples, n_outputs = logits.shape
    if len(y) != n_samples or n_samples == 0:
        raise ValueError(f"Got {len(y)} targets for {n_samples} samples, but expected one each.")
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


def check_weights(sample_weight: Tensor | None, logits: Tensor) -> Tensor | None:
    """Weights in the dtype of the logits, one per sample; other shapes would broadcast silently."""
    if sample_weight is None:
        return None
    if sample_weight.shape != logits.shape[:1]:
        raise ValueError(
            f"Got sample_weight of shape {tuple(sample_weight.shape)}, but expected "
            f"({len(logits)},), one weight per sample."
        )
    return sample_weight.to(logits.dtype)


def as_logits(output: Any) -> Tensor:
    """Check that a module returns one row of logits per sample; a single column may be flat."""
    output = output[0] if isinstance(output, tuple) else output
    if not isinstance(output, Tensor) or output.ndim not in (1, 2):
        shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise ValueError(f"Got module output {shape}, but expected shape (n_samples, n_outputs).")
    if output.dtype in (torch.float16, torch.bfloat16):
        output = output.float()  # sums over classes and samples need more digits
    return output[:, None] if output.ndim == 1 else output
