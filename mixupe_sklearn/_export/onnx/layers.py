"""torch modules as ONNX operators: sequences of known layers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mixupe_sklearn._export.onnx.builder import Graph
from mixupe_sklearn.modules import MLP
from mixupe_sklearn.modules.mlp import ScaledLinear

_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


def _numbers(values: Tensor) -> np.ndarray:
    return values.detach().cpu().numpy()


def _linear(graph: Graph, layer: Any, x: str) -> str:
    weight = layer.scaled_weight() if isinstance(layer, ScaledLinear) else layer.weight
    product = graph.op("MatMul", x, _numbers(weight).T)
    return product if layer.bias is None else graph.op("Add", product, _numbers(layer.bias))


def _batch_norm(graph: Graph, layer: Any, x: str) -> str:
    if layer.running_mean is None:
        raise ValueError(
            "Got a BatchNorm1d with track_running_stats=False, but expected one with running "
            "statistics: a prediction would depend on the other samples of its batch."
        )
    scale = (layer.running_var.double() + layer.eps).rsqrt()
    offset = -layer.running_mean.double() * scale
    if layer.weight is not None:
        scale = scale * layer.weight.double()
        offset = offset * layer.weight.double() + layer.bias.double()
    kind = layer.running_mean.dtype
    return graph.op("Add", graph.op("Mul", x, _numbers(scale.to(kind))), _numbers(offset.to(kind)))


def _layer_norm(graph: Graph, layer: Any, x: str) -> str:
    weight = torch.ones(layer.normalized_shape) if layer.weight is None else layer.weight
    weights = [_numbers(part) for part in (weight, layer.bias) if part is not None]
    axis = -len(layer.normalized_shape)
    return graph.op("LayerNormalization", x, *weights, axis=axis, epsilon=layer.eps)


def _gelu(graph: Graph, layer: Any, x: str) -> str:
    return graph.op("Gelu", x, approximate=layer.approximate)


def _silu(graph: Graph, layer: Any, x: str) -> str:
    return graph.op("Mul", x, graph.op("Sigmoid", x))


def _sequence(graph: Graph, layer: Any, x: str) -> str:
    for part in layer:
        x = add_layer(graph, part, x)
    return x


def _one(kind: str, **named: str) -> Callable[[Graph, Any, str], str]:
    """A layer that is one operator; ``named`` maps its attributes to those of torch."""

    def add(graph: Graph, layer: Any, x: str) -> str:
        given: dict[str, Any] = {name: float(getattr(layer, own)) for name, own in named.items()}
        return graph.op(kind, x, **given)

    return add


_LAYERS: dict[type, Callable[[Graph, Any, str], str]] = {
    **dict.fromkeys((nn.Linear, ScaledLinear), _linear),
    nn.BatchNorm1d: _batch_norm,
    nn.LayerNorm: _layer_norm,
    nn.Sequential: _sequence,
    nn.ModuleList: _sequence,
    **dict.fromkeys((nn.Identity, nn.Dropout, nn.AlphaDropout), lambda graph, layer, x: x),
    nn.ReLU: _one("Relu"),
    nn.Tanh: _one("Tanh"),
    nn.Sigmoid: _one("Sigmoid"),
    nn.Softsign: _one("Softsign"),
    nn.LeakyReLU: _one("LeakyRelu", alpha="negative_slope"),
    nn.ELU: _one("Elu", alpha="alpha"),
    nn.GELU: _gelu,
    nn.SiLU: _silu,
}


def add_layer(graph: Graph, layer: nn.Module, x: str) -> str:
    """Add the operators of a module; raises a ValueError that names an unsupported layer."""
    if any(getattr(layer, name) for name in _HOOKS):
        raise ValueError(
            f"Got a {type(layer).__name__} with hooks, but expected a module without: to_onnx "
            f"cannot express hooks; use to_torch."
        )
    if type(layer).forward is MLP.forward:  # it runs the stages in order
        return _sequence(graph, layer.stages, x)
    # Exact types only: a subclass may compute anything.
    add = _LAYERS.get(type(layer))
    if add is None:
        raise ValueError(
            f"Got a {type(layer).__name__} in the module, but expected an MLP, or a Sequential of "
            f"linear layers, activations and normalisations: to_onnx cannot express it; use "
            f"to_torch."
        )
    return add(graph, layer, x)
