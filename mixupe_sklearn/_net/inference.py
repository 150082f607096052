"""From raw rows to logits, by one network or by several, a chunk at a time."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mixupe_sklearn._data.rows import centred_block, in_chunks
from mixupe_sklearn._engine.eligibility import is_plain
from mixupe_sklearn._engine.network import run_stacked
from mixupe_sklearn._method.forward import as_logits, set_to_predict
from mixupe_sklearn._runtime.device import threads_for


def float_type(net: Any) -> torch.dtype:
    """The floating type that the module computes in: float32, unless the user's module differs."""
    return _float_type(net.module_) or torch.float32


def _float_type(module: torch.nn.Module) -> torch.dtype | None:
    # In the order of ``parameters()``, which takes as long as a layer of one row.
    for parameter in module._parameters.values():
        if parameter is not None and parameter.is_floating_point():
            return parameter.dtype
    types = (_float_type(part) for part in module._modules.values() if part is not None)
    return next((dtype for dtype in types if dtype is not None), None)


def n_module_outputs(net: Any, X: Any, X_mean: np.ndarray) -> int:
    """Run the new module on two rows to learn how wide its output is."""
    with torch.no_grad():  # not in inference mode: a lazy module makes its weights now
        return int(_logits([net], X[:2], X_mean).shape[2])


def predicted(
    nets: Sequence[Any],
    X: Any,
    X_mean: np.ndarray,
    finish: Callable[[Tensor], np.ndarray],
    n_outputs: int,
) -> np.ndarray:
    """What ``finish`` makes of the logits of raw rows, (n_members, n_rows, n_outputs), in chunks.

    It gives an array with rows first.
    """
    width = max(X.shape[1], len(nets) * n_outputs)
    first, *others = in_chunks(X.shape[0], width, len(nets))
    with torch.inference_mode(), threads_for(nets[0].module_, first.stop):
        values = finish(_logits(nets, X[first], X_mean))
        if not others:
            return values
        # One piece of memory for all: small ones between the chunks would keep the freed chunks
        # from being used again, and memory would grow with the rows.
        whole = np.empty((X.shape[0], *values.shape[1:]), dtype=values.dtype)
        whole[first] = values
        for part in others:
            whole[part] = finish(_logits(nets, X[part], X_mean))
        return whole


def _logits(nets: Sequence[Any], X: Any, X_mean: np.ndarray) -> Tensor:
    rows = centred_block(X, X_mean, float_type(nets[0]))
    return forward_all(nets, rows)[:, : X.shape[0]]


def forward_all(nets: Sequence[Any], X: Tensor) -> Tensor:
    """Logits of centred rows by each net, (n_members, n_rows, n_outputs), in double precision.

    Parameters
    ----------
    nets : sequence of MixupENet
        The members.
    X : Tensor of shape (n_rows, n_features) or (n_members, n_rows, n_features)
        The same rows for all, or other ones for each.
    """
    modules = [net.module_ for net in nets]
    if len(nets) > 1 and all(is_plain(module) for module in modules):
        return run_stacked(modules, X.to(torch.device(nets[0].device))).cpu().double()
    outputs = []
    for number, module in enumerate(modules):
        set_to_predict(module)
        rows = X if X.ndim == 2 else X[number]
        # To the processor before double precision, which not every device has.
        outputs.append(as_logits(module(rows.to(torch.device(nets[number].device)))).cpu().double())
    return torch.stack(outputs) if len(outputs) > 1 else outputs[0][None]
