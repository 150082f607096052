"""From raw samples to logits, by one network or several, chunk by chunk."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mixupe_sklearn._data.rows import centred_block, in_chunks
from mixupe_sklearn._engine.network import is_plain, run_stacked
from mixupe_sklearn._method.forward import as_logits, set_to_predict
from mixupe_sklearn._runtime.device import threads_for


def float_type(net: Any) -> torch.dtype:
    """Return the floating type of the module: float32, unless the user's module differs."""
    return _float_type(net.module_) or torch.float32


def _float_type(module: torch.nn.Module) -> torch.dtype | None:
    # In the order of ``parameters()``, which takes as long as a layer for one sample.
    for parameter in module._parameters.values():
        if parameter is not None and parameter.is_floating_point():
            return parameter.dtype
    types = (_float_type(part) for part in module._modules.values() if part is not None)
    return next((dtype for dtype in types if dtype is not None), None)


def n_module_outputs(net: Any, X: Any, X_mean: np.ndarray) -> int:
    """Run a new module on two samples; return the width of its output."""
    with torch.no_grad():  # not in inference mode: a lazy module creates its weights here
        return int(_logits([net], X[:2], X_mean).shape[2])


def predicted(
    nets: Sequence[Any],
    X: Any,
    X_mean: np.ndarray,
    finish: Callable[[Tensor], np.ndarray],
    n_outputs: int,
) -> np.ndarray:
    """Return ``finish(logits)`` of raw samples, in chunks, as an array with samples first.

    ``finish`` gets logits of shape (n_members, n_rows, n_outputs).
    """
    width = max(X.shape[1], len(nets) * n_outputs)
    first, *others = in_chunks(X.shape[0], width, len(nets))
    with torch.inference_mode(), threads_for(nets[0].module_, first.stop):
        values = finish(_logits(nets, X[first], X_mean))
        if not others:
            return values
        # One array for all: small arrays between the chunks would keep freed chunks from being
        # reused, and memory would grow with the number of samples.
        whole = np.empty((X.shape[0], *values.shape[1:]), dtype=values.dtype)
        whole[first] = values
        for part in others:
            whole[part] = finish(_logits(nets, X[part], X_mean))
        return whole


def _logits(nets: Sequence[Any], X: Any, X_mean: np.ndarray) -> Tensor:
    rows = centred_block(X, X_mean, float_type(nets[0]))
    return forward_all(nets, rows)[:, : X.shape[0]]


def forward_all(nets: Sequence[Any], X: Tensor) -> Tensor:
    """Return the logits of centred samples by each net, in double precision.

    Parameters
    ----------
    nets : sequence of MixupENet
        The members.
    X : Tensor of shape (n_rows, n_features) or (n_members, n_rows, n_features)
        The same samples for all members, or different ones.

    Returns
    -------
    logits : Tensor of shape (n_members, n_rows, n_outputs)
    """
    modules = [net.module_ for net in nets]
    if len(nets) > 1 and all(is_plain(module) for module in modules):
        return run_stacked(modules, X.to(torch.device(nets[0].device))).cpu().double()
    outputs = []
    for number, module in enumerate(modules):
        set_to_predict(module)
        rows = X if X.ndim == 2 else X[number]
        # To the CPU before double precision, which some devices lack.
        outputs.append(as_logits(module(rows.to(torch.device(nets[number].device)))).cpu().double())
    return torch.stack(outputs) if len(outputs) > 1 else outputs[0][None]
