"""The preprocessing as ONNX operators, in double precision, which skl2onnx lacks or rounds."""

from typing import Any

import numpy as np
from numpy.polynomial import chebyshev
from scipy.special import ndtri
from skl2onnx.common.data_types import DoubleTensorType
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.preprocessing import OneHotEncoder, TargetEncoder

from mixupe_sklearn._export.onnx.builder import Emit, Graph, converter, declares
from mixupe_sklearn._preprocessing import dates
from mixupe_sklearn._preprocessing.scalers import (
    ClippingScaler,
    PiecewiseLinearEncoder,
    QuantileScaler,
)

# Beyond this ratio the square would overflow; the result is the limit to the last bit.
_HUGE = 1e150
# scikit-learn's QuantileTransformer maps values this close to an end to the end.
_MARGIN = 1e-7


def _where_known(graph: Graph, x: str, result: str, out: str) -> None:
    # Runtimes compare NaN differently, so missing values stay missing explicitly.
    graph.op("Where", graph.op("IsNaN", x), x, result, out=out)


def _bounded(graph: Graph, x: str, low: float, high: float) -> str:
    return graph.op("Clip", x, np.array(low), np.array(high))


def _clipping(graph: Graph, scaler: Any, x: str, out: str) -> None:
    centre, scale = (np.asarray(part, np.float64) for part in (scaler.center_, scaler.scale_))
    share = graph.op("Div", graph.op("Sub", x, centre), scale * scaler.limit)
    share = _bounded(graph, share, -_HUGE, _HUGE)
    length = graph.op("Sqrt", graph.op("Add", graph.op("Mul", share, share), np.array(1.0)))
    result = graph.op("Mul", graph.op("Div", share, length), np.array(float(scaler.limit)))
    _where_known(graph, x, result, out)


def _ramps(graph: Graph, encoder: Any, x: str, out: str) -> None:
    low, high = (np.asarray(part, np.float64) for part in (encoder.low_, encoder.high_))
    source = graph.op("Gather", x, encoder.source_.astype(np.int64), axis=1)
    share = graph.op("Div", graph.op("Sub", source, low), high - low)
    _where_known(graph, source, _bounded(graph, share, 0.0, 1.0), out)


def _quantiles(graph: Graph, scaler: Any, x: str, out: str) -> None:
    """Rank of each value among the quantiles of its column, then the normal quantile of it."""
    transformer = scaler.transformer_
    references = transformer.references_
    columns = [
        _place(graph, graph.op("Gather", x, np.array([number]), axis=1), quantiles, references)
        for number, quantiles in enumerate(transformer.quantiles_.T)
    ]
    place = graph.joined(columns)
    # As in scikit-learn: the two ends would be infinite.
    edge = _MARGIN - np.spacing(1)
    place = _bounded(graph, place, edge, 1 - edge)
    _where_known(graph, x, _normal_quantile(graph, place), out)


def _place(graph: Graph, x: str, quantiles: np.ndarray, references: np.ndarray) -> str:
    """The fraction of samples below: the mean of interpolation from the left and from the right.

    They differ if several quantiles are equal.
    """
    low, high = quantiles[0], quantiles[-1]
    left = _interpolated(graph, x, quantiles, references, side="left")
    right = _interpolated(graph, x, quantiles, references, side="right")
    place = graph.op("Mul", graph.op("Add", left, right), np.array(0.5))
    at_end = graph.op("Greater", graph.op("Add", x, np.array(_MARGIN)), np.array(high))
    at_start = graph.op("Less", graph.op("Sub", x, np.array(_MARGIN)), np.array(low))
    # In this order: the value of a constant column is at its start.
    place = graph.op("Where", at_end, np.array(1.0), place)
    return graph.op("Where", at_start, np.array(0.0), place)


def _interpolated(
    graph: Graph, x: str, quantiles: np.ndarray, references: np.ndarray, *, side: str
) -> str:
    """Linear interpolation, from the point at or before x, or from the one at or after it.

    If x equals several points, these are the last and the first of them.
    """
    steps = np.diff(quantiles)
    # A step of zero width is used only if x is at its end.
    grads = np.diff(references) / np.where(steps > 0, steps, np.inf)
    grads = np.append(grads, 0.0) if side == "right" else np.insert(grads, 0, 0.0)
    compare = "LessOrEqual" if side == "right" else "Less"
    below = graph.cast(graph.op(compare, quantiles[None, :], x), np.int64)
    count = graph.op("ReduceSum", below, np.array([1]), keepdims=1)
    point = graph.op("Sub", count, np.array(1)) if side == "right" else count
    point = graph.op("Clip", point, np.array(0), np.array(len(quantiles) - 1))
    distance = graph.op("Sub", x, graph.op("Gather", quantiles, point))
    rise = graph.op("Mul", distance, graph.op("Gather", grads, point))
    return graph.op("Add", graph.op("Gather", references, point), rise)


def _normal_quantile(graph: Graph, place: str) -> str:
    """Normal quantiles, which ONNX lacks: a polynomial in ``sqrt(-2 log p)``, for p <= 1/2.

    They are smooth in that variable from the median to the tail, and the polynomial is within 1e-10
    of them, close to the limit of double precision.
    """
    low, high = np.sqrt(-2 * np.log(0.5)), np.sqrt(-2 * np.log(_MARGIN / 2))
    series = chebyshev.Chebyshev.interpolate(
        lambda t: ndtri(np.exp(-t * t / 2)), 30, domain=[low, high]
    )
    coefficients = chebyshev.cheb2poly(series.coef)
    tail = graph.op("Min", place, graph.op("Sub", np.array(1.0), place))
    far = graph.op("Sqrt", graph.op("Mul", graph.op("Log", tail), np.array(-2.0)))
    centred = graph.op("Sub", far, np.array((low + high) / 2))
    variable = graph.op("Div", centred, np.array((high - low) / 2))
    number: Any = np.array(coefficients[-1])
    for coefficient in coefficients[-2::-1]:  # Horner's rule
        number = graph.op("Add", graph.op("Mul", number, variable), np.array(coefficient))
    is_upper = graph.op("Greater", place, np.array(0.5))
    return graph.op("Where", is_upper, graph.op("Neg", number), number)


def _imputer(graph: Graph, imputer: Any, x: str, out: str) -> None:
    if imputer.add_indicator:
        raise ValueError(
            "Got a SimpleImputer with add_indicator=True, but expected add_indicator=False."
        )
    fill = imputer.statistics_
    if fill.dtype.kind in "OU":
        is_missing = graph.op("Equal", x, np.array([[graph.missing]], dtype=object))
        graph.op("Where", is_missing, np.asarray(fill, dtype=object)[None, :], x, out=out)
        return
    if not _is_nan(imputer.missing_values):
        raise ValueError(
            f"Got a SimpleImputer with missing_values={imputer.missing_values!r}, but expected NaN."
        )
    fill = fill.astype(np.float64)
    if np.isnan(fill).any():  # scikit-learn drops a column without values
        kept = np.flatnonzero(~np.isnan(fill))
        x, fill = graph.op("Gather", x, kept, axis=1), fill[kept]
    graph.op("Where", graph.op("IsNaN", x), fill, x, out=out)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value


def _one_hot(graph: Graph, encoder: Any, x: str, out: str) -> None:
    if encoder.drop is not None:
        raise ValueError(f"Got a OneHotEncoder with drop={encoder.drop!r}, but expected drop=None.")
    rare = getattr(encoder, "infrequent_categories_", None) or []
    rare = list(rare) or [None] * len(encoder.categories_)
    parts = []
    for number, levels in enumerate(encoder.categories_):
        column = graph.op("Gather", x, np.array([number]), axis=1)
        parts.append(_one_column(graph, encoder, column, levels, rare[number]))
    graph.op("Concat", *parts, axis=1, out=out)


def _one_column(graph: Graph, encoder: Any, column: str, levels: np.ndarray, rare: Any) -> str:
    """One-hot columns of a single column: one for each level, the last for infrequent ones."""
    is_rare = np.zeros(len(levels), bool) if rare is None else np.isin(levels, rare)
    place = np.where(is_rare, (~is_rare).sum(), np.cumsum(~is_rare) - 1)
    n_places = int(place.max()) + 1
    joins = encoder.handle_unknown in ("infrequent_if_exist", "warn") and is_rare.any()
    elsewhere = n_places - 1 if joins else -1  # -1 means no column
    if levels.dtype.kind in "OU":
        found = graph.op(
            "LabelEncoder",
            column,
            keys_strings=_texts(graph, levels),
            values_int64s=place.tolist(),
            default_int64=elsewhere,
        )
    else:
        is_level = graph.op("Equal", column, levels[None, :].astype(np.float64))
        if np.isnan(levels).any():  # NaN, the last level, equals nothing
            is_missing = graph.op("And", graph.op("IsNaN", column), np.isnan(levels)[None, :])
            is_level = graph.op("Or", is_level, is_missing)
        numbers = graph.op("Mul", graph.cast(is_level, np.int64), place[None, :] + 1)
        found = graph.op("ReduceMax", numbers, np.array([1]), keepdims=1)
        found = graph.op("Sub", found, np.array(1))
        if elsewhere >= 0:
            is_none = graph.op("Less", found, np.array(0))
            found = graph.op("Where", is_none, np.array(elsewhere), found)
    hot = graph.cast(graph.op("Equal", found, np.arange(n_places)[None, :]), np.float64)
    if encoder.handle_unknown != "error":
        return hot
    # A graph cannot raise, so unknown categories give NaN.
    return graph.op("Where", graph.op("Less", found, np.array(0)), np.array(np.nan), hot)


def _indicator(graph: Graph, indicator: Any, x: str, out: str) -> None:
    if indicator.features != "all" or not _is_nan(indicator.missing_values):
        raise ValueError(
            "Got a MissingIndicator with other parameters, but expected features='all' and "
            "missing_values=NaN."
        )
    graph.cast(graph.op("IsNaN", x), np.float64, out=out)


def _date_parts(graph: Graph, parts: Any, x: str, out: str) -> None:
    """The arithmetic of ``DateParts``, column by column."""
    columns = []
    for number in range(parts.n_features_in_):
        seconds = graph.op("Gather", x, np.array([number]), axis=1)
        days = graph.op("Floor", graph.op("Div", seconds, np.array(dates.DAY)))
        since_monday = graph.op("Add", days, np.array(3.0))
        weeks = graph.op("Floor", graph.op("Div", since_monday, np.array(7.0)))
        weekday = graph.op("Sub", since_monday, graph.op("Mul", weeks, np.array(7.0)))
        columns += [*_year_and_month(graph, days), weekday]
    graph.op("Concat", *columns, axis=1, out=out)


def _year_and_month(graph: Graph, days: str) -> tuple[str, str]:
    """The steps of ``dates.year_and_month`` as operators."""

    def minus(a: str, b: Any) -> str:
        return graph.op("Sub", a, b)

    def plus(a: str, b: Any) -> str:
        return graph.op("Add", a, np.array(b) if isinstance(b, float) else b)

    def times(a: str, b: float) -> str:
        return graph.op("Mul", a, np.array(b))

    def over(a: str, b: float) -> str:
        return graph.op("Floor", graph.op("Div", a, np.array(b)))

    days = plus(days, dates.EPOCH)
    cycle = over(days, dates.CYCLE)
    of_cycle = minus(days, times(cycle, dates.CYCLE))
    leap = minus(over(of_cycle, dates.FOUR_YEARS), over(of_cycle, dates.CENTURY))
    leap = plus(leap, over(of_cycle, dates.CYCLE - 1))
    year = over(minus(of_cycle, leap), dates.YEAR)
    before = minus(plus(times(year, dates.YEAR), over(year, 4.0)), over(year, 100.0))
    month = over(plus(times(minus(of_cycle, before), 5.0), 2.0), 153.0)
    is_late = graph.op("GreaterOrEqual", month, np.array(10.0))
    month = graph.op("Where", is_late, plus(month, -9.0), plus(month, 3.0))
    year = plus(year, times(cycle, 400.0))
    return plus(year, graph.cast(is_late, np.float64)), month


def _target_means(graph: Graph, encoder: Any, x: str, out: str) -> None:
    """The mean target of each level, by its number; an unknown level has the overall mean."""
    n_parts = len(encoder.encodings_) // len(encoder.categories_)  # one, or one for each class
    overall = np.broadcast_to(encoder.target_mean_, n_parts)
    columns = []
    for number, levels in enumerate(encoder.categories_):
        found = graph.op(
            "LabelEncoder",
            graph.op("Gather", x, np.array([number]), axis=1),
            keys_strings=_texts(graph, levels),
            values_int64s=list(range(len(levels))),
            default_int64=len(levels),
        )
        means = encoder.encodings_[number * n_parts : (number + 1) * n_parts]
        columns += [
            graph.op("Gather", np.append(mean, own).astype(np.float64), found)
            for mean, own in zip(means, overall, strict=True)
        ]
    graph.op("Concat", *columns, axis=1, out=out)


def _texts(graph: Graph, levels: np.ndarray) -> list[str]:
    return [graph.missing if level is None or _is_nan(level) else str(level) for level in levels]


_WRITERS = {
    ClippingScaler: _clipping,
    PiecewiseLinearEncoder: _ramps,
    QuantileScaler: _quantiles,
    SimpleImputer: _imputer,
    OneHotEncoder: _one_hot,
    MissingIndicator: _indicator,
    dates.DateParts: _date_parts,
    TargetEncoder: _target_means,
}
PARSERS: dict[type, Emit] = {
    **dict.fromkeys(_WRITERS, declares(("variable", DoubleTensorType))),
    SimpleImputer: declares(("variable", "same")),
}


def converters_for(missing: str) -> dict[type, Emit]:
    """Converters of preprocessing steps; ``missing`` is the text of a missing category."""
    return {kind: converter(write, missing) for kind, write in _WRITERS.items()}
