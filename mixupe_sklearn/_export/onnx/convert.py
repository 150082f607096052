"""Convert a fitted estimator or pipeline to an ONNX model, by skl2onnx and our own converters."""

import json
from typing import Any

import onnx
from skl2onnx import convert_sklearn
from skl2onnx.common.data_types import DoubleTensorType, StringTensorType
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    RobustScaler,
    StandardScaler,
    TargetEncoder,
)
from sklearn.utils.validation import check_is_fitted

from mixupe_sklearn._export.onnx import estimators, preprocessing
from mixupe_sklearn._export.onnx.builder import IR_VERSION, OPSET, keep_shape
from mixupe_sklearn._export.onnx.inputs import KEY, Described
from mixupe_sklearn._preprocessing.dates import DateParts
from mixupe_sklearn._preprocessing.scalers import (
    ClippingScaler,
    PiecewiseLinearEncoder,
    QuantileScaler,
)
from mixupe_sklearn._preprocessing.table import ColumnsToNumbers, TablePreprocessor

_TYPES = {
    **dict.fromkeys(("numbers", "times", "dates", "durations"), DoubleTensorType),
    "categories": StringTensorType,
}

# Steps whose conversion equals scikit-learn. skl2onnx converts more, but some in single precision
# or without one of their options.
STEPS = (
    *(ClippingScaler, PiecewiseLinearEncoder, QuantileScaler, StandardScaler, MinMaxScaler),
    *(MaxAbsScaler, RobustScaler, SimpleImputer, OneHotEncoder, PCA, TruncatedSVD),
    *(DateParts, MissingIndicator, TargetEncoder),
)


def make_model(estimator: Any, missing: str, version: str) -> onnx.ModelProto:
    """The model, checked; its metadata describe its inputs and its classes."""
    if not isinstance(missing, str):
        raise ValueError(f"Got missing={missing!r}, but expected text.")
    steps = (
        [step for _, step in estimator.steps] if isinstance(estimator, Pipeline) else [estimator]
    )
    steps = [step for step in steps if step is not None and not isinstance(step, str)]
    if steps and isinstance(steps[0], TablePreprocessor):
        check_is_fitted(steps[0])
        steps[0] = steps[0].transformer_
    *before, last = steps or [None]
    if type(last) not in estimators.CONVERTERS:
        raise ValueError(
            f"Got a {type(last).__name__}, but expected a MixupEClassifier or "
            f"MixupERegressor, or a pipeline that ends with one."
        )
    check_is_fitted(last, "net_")
    if before and type(before[0]) is ColumnsToNumbers:
        before[0], described = _without_readers(before[0], missing)
    else:
        names = getattr(steps[0], "feature_names_in_", None)
        described = Described(None, None, None if names is None else list(names), missing)
    for step in before:
        check_step(step)
    if described.kinds is None:
        types = [("X", DoubleTensorType([None, steps[0].n_features_in_]))]
    else:
        kinds = enumerate(described.kinds.values())
        types = [(f"column{number}", _TYPES[kind]([None, 1])) for number, kind in kinds]
    named = [(f"step{number}", step) for number, step in enumerate([*before, last])]
    converters = {**preprocessing.converters_for(missing), **estimators.CONVERTERS}
    model = convert_sklearn(
        Pipeline(named),
        name="mixupe_sklearn",
        initial_types=types,
        target_opset=OPSET,
        custom_parsers={**preprocessing.PARSERS, **estimators.PARSERS},
        custom_shape_calculators=dict.fromkeys(converters, keep_shape),
        custom_conversion_functions=converters,
    )
    if described.kinds is not None:
        _rename_inputs(model.graph, list(described.kinds))
    model.ir_version = IR_VERSION
    model.producer_name, model.producer_version = "mixupe-sklearn", version
    properties = {f"{KEY}.version": version, f"{KEY}.inputs": json.dumps(described._asdict())}
    if hasattr(last, "classes_"):
        properties[f"{KEY}.classes"] = json.dumps(last.classes_.tolist(), default=str)
    onnx.helper.set_model_props(model, properties)
    onnx.checker.check_model(model, full_check=True)
    return model


def _rename_inputs(graph: Any, names: list[str]) -> None:
    """Rename inputs to their columns; skl2onnx would change such names.

    Anything else in the graph with such a name, perhaps an output, gets a trailing underscore.
    """
    parts = [*graph.input, *graph.output, *graph.initializer, *graph.value_info]
    taken = {*names, *(part.name for part in parts)}
    taken.update(name for node in graph.node for name in (*node.input, *node.output))
    new_name = dict(zip((part.name for part in graph.input), names, strict=True))
    for name in set(names) & (taken - set(new_name)):
        free = f"{name}_"
        while free in taken:
            free += "_"
        new_name[name] = free
    for part in parts:
        part.name = new_name.get(part.name, part.name)
    for own in (own for node in graph.node for own in (node.input, node.output)):
        own[:] = [new_name.get(name, name) for name in own]


def _without_readers(reader: Any, missing: str) -> tuple[Any, Described]:
    """The column transformer without its first steps, since ``onnx_inputs`` reads the columns.

    Only columns that are used become inputs.
    """
    check_is_fitted(reader)
    names: Any = getattr(reader, "feature_names_in_", None)
    used: dict[int, str] = {}
    parts = []
    for part, pipeline, chosen in reader.transformers_:
        if isinstance(pipeline, str) or not len(chosen):
            continue
        (_, first), *steps = pipeline.steps
        _check_missing(steps, missing)
        found = [list(names).index(one) if isinstance(one, str) else int(one) for one in chosen]
        used |= dict.fromkeys(found, first.kw_args["kind"])
        parts.append((part, Pipeline(steps), found))
    order = sorted(used)
    new_place = {position: place for place, position in enumerate(order)}
    plain = ColumnTransformer([])
    # skl2onnx reads only this fitted attribute.
    plain.transformers_ = [
        (name, steps, [new_place[position] for position in found]) for name, steps, found in parts
    ]
    labels = [f"x{position}" if names is None else str(names[position]) for position in order]
    kinds = {label: used[position] for label, position in zip(labels, order, strict=True)}
    return plain, Described(kinds, order, None, missing)


def _check_missing(steps: list[tuple[str, Any]], missing: str) -> None:
    levels = [own for _, step in steps for own in getattr(step, "categories_", ())]
    if any(missing in own.tolist() for own in levels):
        raise ValueError(
            f"Got missing={missing!r}, which is a category of the training data, but expected a "
            f"text that is not."
        )


def check_step(step: Any) -> None:
    """Raise a ValueError for a step, or a part of it, whose conversion would differ."""
    if isinstance(step, (Pipeline, FeatureUnion, ColumnTransformer)):
        names = ("steps", "transformer_list", "transformers_")
        for _, part, *chosen in next(getattr(step, name) for name in names if hasattr(step, name)):
            is_used = part is not None and not isinstance(part, str)
            if is_used and all(len(columns) for columns in chosen):
                check_step(part)
        return
    if type(step) not in STEPS:
        raise ValueError(
            f"Got a {type(step).__name__}, but expected the steps of make_preprocessor, or a "
            f"StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler, SimpleImputer, "
            f"OneHotEncoder, PCA or TruncatedSVD."
        )
    if getattr(step, "clip", False):
        raise ValueError(f"Got a {type(step).__name__} with clip=True, but expected clip=False.")
