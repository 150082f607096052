"""torch modules as ONNX operators: sequences of known layers."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mixupe_sklearn._export.onnx.builder import Graph
from mixupe_sklearn.modules import MLP
from mixupe_sklearn.modules.embedded_mlp import EmbeddedMLP, RowEmbedding

_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
# Modules whose forward only runs their stages in order.
_IN_STAGES = (MLP.forward, EmbeddedMLP.forward)


def _numbers(values: Tensor) -> np.ndarray:
    return values.detach().cpu().numpy()


def _linear(graph: Graph, layer: Any, x: str) -> str:
    # Gemm takes matrices only, but embedded columns have one more dimension.
    product = graph.op("MatMul", x, _numbers(layer.weight).T)
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


def _row_embedding(graph: Graph, layer: Any, x: str) -> str:
    count = layer.n_numbers
    bounds = [np.array([value]) for value in (0, count, np.iinfo(np.int64).max)]
    axis = np.array([1])
    numbers = graph.op("Slice", x, bounds[0], bounds[1], axis)
    levels = graph.op("Slice", x, bounds[1], bounds[2], axis)
    if layer.numbers is not None:
        numbers = graph.op("Flatten", add_layer(graph, layer.numbers, numbers), axis=1)
    if layer.levels is not None:
        levels = add_layer(graph, layer.levels, levels)
    return graph.op("Concat", numbers, levels, axis=1)


def _periodic(graph: Graph, layer: Any, x: str) -> str:
    """Sines and cosines of learned frequencies, a linear layer shared by all columns, ReLU."""
    frequencies = _numbers(layer.periodic.weight)
    turns = frequencies * frequencies.dtype.type(2 * np.pi)
    angles = graph.op("Mul", graph.op("Unsqueeze", x, np.array([-1])), turns)
    parts = graph.op("Concat", graph.op("Cos", angles), graph.op("Sin", angles), axis=-1)
    mixed = add_layer(graph, layer.linear, parts)
    return mixed if layer.activation is None else add_layer(graph, layer.activation, mixed)


_LAYERS: dict[type, Callable[[Graph, Any, str], str]] = {
    nn.Linear: _linear,
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
    RowEmbedding: _row_embedding,
}
if find_spec("rtdl_num_embeddings") is not None:
    from rtdl_num_embeddings import PeriodicEmbeddings

    _LAYERS[PeriodicEmbeddings] = _periodic


def add_layer(graph: Graph, layer: nn.Module, x: str) -> str:
    """Add the operators of a module; raises a ValueError that names an unsupported layer."""
    if any(getattr(layer, name) for name in _HOOKS):
        raise ValueError(
            f"Got a {type(layer).__name__} with hooks, but expected a module without: to_onnx "
            f"cannot express hooks; use to_torch."
        )
    if type(layer).forward in _IN_STAGES:
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
