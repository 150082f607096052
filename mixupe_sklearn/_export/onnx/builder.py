"""Write ONNX operators: a thin layer over the arguments of a skl2onnx converter."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from skl2onnx.common.data_types import DoubleTensorType, Int64TensorType, StringTensorType

# Every onnxruntime since 1.17 has operators of these versions: the first with Gelu, and with Equal
# for text. onnxruntime refuses later file formats than it knows, so the format is fixed too.
OPSET = {"": 20, "ai.onnx.ml": 3}
IR_VERSION = 9
_LABELS = {str: StringTensorType, int: Int64TensorType, float: DoubleTensorType}
Emit = Callable[..., None]


class Graph:
    """Adds operators one by one; each call returns the name of its output."""

    def __init__(self, scope: Any, container: Any, missing: str = ""):
        self._scope = scope
        self._container = container
        # The text of a missing category.
        self.missing = missing

    def constant(self, values: Any) -> str:
        """Add a constant array of floats, integers, or text as objects."""
        values = np.asarray(values)
        name = self._scope.get_unique_variable_name("constant")
        if values.dtype.kind in "OU":
            encoded = [str(value).encode() for value in values.ravel()]
            tensor = (TensorProto.STRING, list(values.shape), encoded)
            self._container.add_initializer(name, *tensor)
        else:
            content = numpy_helper.from_array(np.ascontiguousarray(values))
            self._container.add_initializer(name, None, None, content)
        return name

    def op(self, kind: str, *inputs: Any, out: str | None = None, **attributes: Any) -> str:
        """Add an operator; arrays among its inputs become constants."""
        names = [one if isinstance(one, str) else self.constant(one) for one in inputs]
        out = out or self._scope.get_unique_variable_name(kind.lower())
        domain = "ai.onnx.ml" if kind == "LabelEncoder" else ""
        self._container.add_node(
            kind,
            names,
            [out],
            op_domain=domain,
            op_version=OPSET[domain],
            name=self._scope.get_unique_operator_name(kind),
            **attributes,
        )
        return out

    def cast(self, value: str, dtype: Any, out: str | None = None) -> str:
        """Cast to another numeric type."""
        to = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.op("Cast", value, to=to, out=out)

    def joined(self, variables: Sequence[Any]) -> str:
        """Concatenate columns to one matrix."""
        names = [getattr(variable, "full_name", variable) for variable in variables]
        return names[0] if len(names) == 1 else self.op("Concat", *names, axis=1)


def converter(write: Callable[[Graph, Any, str, str], None], missing: str) -> Emit:
    """Make a skl2onnx converter from a function that maps a matrix to a matrix."""

    def convert(scope: Any, operator: Any, container: Any) -> None:
        graph = Graph(scope, container, missing)
        out = operator.outputs[0].full_name
        write(graph, operator.raw_operator, graph.joined(operator.inputs), out)

    return convert


def declares(*outputs: tuple[str, Any]) -> Emit:
    """Make a skl2onnx parser from the outputs of an operator, by name and type."""

    def parse(scope: Any, model: Any, inputs: Any, custom_parsers: Any = None) -> Any:
        operator = scope.declare_local_operator(f"Mixupe{type(model).__name__}", model)
        operator.inputs = list(inputs)
        for name, kind in outputs:
            variable = scope.declare_local_variable(name, _type_of(kind, model, inputs))
            operator.outputs.append(variable)
        return operator.outputs

    return parse


def _type_of(kind: Any, model: Any, inputs: Any) -> Any:
    if kind == "label":
        return _label_type(model)([None, None] if model._labels.are_several else [None])
    return (type(inputs[0].type) if kind == "same" else kind)([None, None])


def _label_type(model: Any) -> Any:
    """Type of the labels: text, integers (also for booleans), or floats."""
    labels = model.classes_.tolist()
    for kind, onnx_type in _LABELS.items():
        if all(isinstance(label, kind) for label in labels):
            return onnx_type
    raise ValueError(
        f"Got labels such as {labels[-1]!r}, but expected text, booleans, floats or integers."
    )


def keep_shape(operator: Any) -> None:
    """Shape calculator of skl2onnx; the parser has set the shapes."""
