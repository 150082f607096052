"""Layers that know their gradient, one file each, for several networks at once.

A file defines ``LAYER``. The engine finds it by ``LAYER.kind``, the torch module that it computes.
States have the shape (n_members, n_rows, width). A layer has these attributes:

- ``kind``: the class of the torch module;
- ``saves``: what ``backward`` needs, ``"input"`` or ``"output"``;
- ``has_weights``: whether it has parameters; all others keep the width;
- ``forward(state, out=...)``: writes the output in training;
- ``backward(grad, saved, grad_input=...)``: writes the gradient of the input, and of the
  parameters; ``grad_input`` is None where nobody needs it;
- ``function(state)``: returns the output in prediction, differentiable by autograd.

A layer without parameters and without state is an ``Elementwise``. Any other is a class, which the
engine calls as ``LAYER(module, weights, grads)``: the module of the first member, and the views of
each parameter and of its gradient, with the members first.
"""

import pkgutil
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from torch import Tensor, nn


class Elementwise(NamedTuple):
    """A function of each entry. Where it saves its output, it may overwrite its input.

    In training it gets the padded memory of a state (``State.padded``), so that it works on whole
    blocks of each member.
    ``expected`` names attributes that the torch module must have with these values.
    """

    kind: type[nn.Module]
    forward: Callable[..., Any]
    backward: Callable[..., Any]
    function: Callable[[Tensor], Tensor]
    saves: str = "output"
    expected: Mapping[str, Any] = {}
    has_weights: bool = False


def _found() -> dict[type[nn.Module], Any]:
    names = [info.name for info in pkgutil.iter_modules(__path__)]
    layers = [import_module(f"{__name__}.{name}").LAYER for name in names]
    return {layer.kind: layer for layer in layers}


LAYERS = _found()
