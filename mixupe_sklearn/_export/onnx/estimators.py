"""The estimators as ONNX operators: centring, members, heads, labels or target scale."""

from typing import Any

import numpy as np
import torch
from skl2onnx.common.data_types import DoubleTensorType

from mixupe_sklearn._estimators.classifier import MixupEClassifier
from mixupe_sklearn._estimators.regressor import MixupERegressor
from mixupe_sklearn._export.onnx.builder import Emit, Graph, declares
from mixupe_sklearn._export.onnx.layers import add_layer
from mixupe_sklearn._export.torch_module import has_single_logit
from mixupe_sklearn._net.net import float_type


def _mean(graph: Graph, estimator: Any, x: str) -> str:
    """Weighted mean of the members: each runs in its own precision, the mean in double."""
    own_type = np.float32 if float_type(estimator.net_) == torch.float32 else np.float64
    rows = graph.op("Sub", x, np.asarray(estimator.X_mean_, np.float64))
    if estimator.X_scale_ is not None:
        rows = graph.op("Div", rows, np.asarray(estimator.X_scale_, np.float64))
    rows = graph.cast(rows, own_type)
    means = []
    for net, weight in zip(estimator.nets_, estimator.member_weights_, strict=True):
        logits = graph.cast(add_layer(graph, net.module_, rows), np.float64)
        head = net.criterion_.head
        if head == "softmax":
            logits = graph.op("Softmax", logits, axis=1)
        elif head == "sigmoid":
            logits = graph.op("Sigmoid", logits)
        means.append(graph.op("Mul", logits, np.array(float(weight))))
    return means[0] if len(means) == 1 else graph.op("Sum", *means)


def _classifier(scope: Any, operator: Any, container: Any) -> None:
    graph, estimator = Graph(scope, container), operator.raw_operator
    label, probabilities = (variable.full_name for variable in operator.outputs)
    mean = _mean(graph, estimator, graph.joined(operator.inputs))
    if has_single_logit(estimator):
        mean = graph.op("Concat", graph.op("Sub", np.array(1.0), mean), mean, axis=1)
    graph.op("Identity", mean, out=probabilities)
    if estimator._labels.are_several:
        graph.cast(graph.op("Greater", mean, np.array(0.5)), np.int64, out=label)
        return
    classes = np.asarray(estimator.classes_.tolist())
    classes = classes.astype(np.int64) if classes.dtype.kind in "bi" else classes
    graph.op("Gather", classes, graph.op("ArgMax", mean, axis=1, keepdims=0), out=label)


def _regressor(scope: Any, operator: Any, container: Any) -> None:
    graph, estimator = Graph(scope, container), operator.raw_operator
    mean = _mean(graph, estimator, graph.joined(operator.inputs))
    scaled = graph.op("Mul", mean, np.asarray(estimator.y_scale_))
    graph.op("Add", scaled, np.asarray(estimator.y_mean_), out=operator.outputs[0].full_name)


PARSERS: dict[type, Emit] = {
    MixupEClassifier: declares(("label", "label"), ("probabilities", DoubleTensorType)),
    MixupERegressor: declares(("variable", DoubleTensorType)),
}
CONVERTERS: dict[type, Emit] = {MixupEClassifier: _classifier, MixupERegressor: _regressor}
