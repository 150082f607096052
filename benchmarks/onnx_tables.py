"""How far onnxruntime is from ``predict_proba``: ``python -m benchmarks.onnx_tables``.

Four tables with text, two of them with holes, that come with scikit-learn: its tests have them as
OpenML gives them. The largest difference of any probability, all rows at once and one row alone;
for numbers, of any prediction, in standard deviations of the targets.
"""

import argparse
import gzip
import pathlib
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import sklearn

from benchmarks._candidates import page
from benchmarks._speed.page import table
from mixupe_sklearn import (
    MixupERegressor,
    make_mixupe_pipeline,
    make_preprocessor,
    onnx_inputs,
    to_onnx,
)

BOUND = 1e-5
FOLDER = pathlib.Path(sklearn.__file__).parent / "datasets" / "tests" / "data" / "openml"
PAGE = pathlib.Path(__file__).parents[1] / "docs" / "serving.md"
SCALINGS = ("standard", "robust", "quantile", "splines")


class Source(NamedTuple):
    """A file of scikit-learn's, its target, and columns that tell the target or name the row."""

    file: str
    target: str
    without: tuple[str, ...] = ()
    is_numeric: bool = False


SOURCES = {
    "titanic": Source(
        "id_40945/data-v1-dl-16826755.arff.gz", "survived", ("name", "ticket", "boat", "body")
    ),
    "penguins": Source("id_42585/data-v1-dl-21854866.arff.gz", "species"),
    "zoo": Source("id_62/data-v1-dl-52352.arff.gz", "type", ("animal",)),
    "cpu": Source("id_561/data-v1-dl-52739.arff.gz", "class", is_numeric=True),
}


def load(name: str) -> tuple[pd.DataFrame, np.ndarray]:
    """Rows and targets of a table.

    Examples
    --------
    >>> X, y = load("penguins")
    >>> X.shape, int(X.isna().to_numpy().sum()), y[0]
    ((344, 6), 18, 'Adelie')
    """
    import arff  # type: ignore[import-untyped]  # comes with openml

    source = SOURCES[name]
    with gzip.open(FOLDER / source.file, "rt") as file:
        found = arff.load(file)
    names = [attribute for attribute, _ in found["attributes"]]
    frame = pd.DataFrame(found["data"], columns=names)
    return frame.drop(columns=[source.target, *source.without]), frame[source.target].to_numpy()


def session_of(model: Any) -> Any:
    """A model in onnxruntime, on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    providers = ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers)


def fitted(name: str, scaling: str) -> tuple[Any, pd.DataFrame, np.ndarray]:
    """A pipeline, fitted on two thirds of a table, with the whole of it: some levels are new."""
    X, y = load(name)
    preprocessor = make_preprocessor(scaling=scaling, min_frequency=2)
    pipeline = make_mixupe_pipeline(preprocessor=preprocessor, random_state=0)
    if SOURCES[name].is_numeric:
        pipeline.steps[-1] = ("regressor", MixupERegressor(random_state=0))
    pipeline.set_params(**{f"{pipeline.steps[-1][0]}__max_epochs": 20})
    is_train = np.arange(len(X)) % 3 > 0
    return pipeline.fit(X[is_train], y[is_train]), X, y


def difference(name: str, scaling: str) -> float:
    """The largest difference between onnxruntime and the pipeline itself."""
    pipeline, X, y = fitted(name, scaling)
    session = session_of(to_onnx(pipeline))
    if SOURCES[name].is_numeric:
        output, ours, unit = "variable", pipeline.predict(X)[:, None], np.std(y.astype(float))
    else:
        output, ours, unit = "probabilities", pipeline.predict_proba(X), 1.0
    (theirs,) = session.run([output], onnx_inputs(X, session))
    (alone,) = session.run([output], onnx_inputs(X[:1], session))
    worst = max(np.abs(theirs - ours).max(), np.abs(alone - ours[:1]).max())
    return float(worst / unit)


def report() -> str:
    """All differences, in Markdown."""
    rows = []
    for name in SOURCES:
        X, _ = load(name)
        holes = int(X.isna().to_numpy().sum())
        found = [difference(name, scaling) for scaling in SCALINGS]
        held = f"at most 1e-5: {'held' if max(found) <= BOUND else 'not held'}"
        cells = [f"{value:.1e}" for value in found]
        rows.append([name, f"{len(X):,}", str(X.shape[1]), f"{holes:,}", *cells, held])
    return table(["table", "rows", "columns", "holes", *SCALINGS, ""], rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write the page if asked to."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.onnx_tables", description=(__doc__ or "").splitlines()[0]
    )
    made.add_argument("--docs", action="store_true", help="write the table into its page")
    options = made.parse_args(arguments)
    told = report()
    print(told)
    if options.docs:
        page.write("onnx-tables", told, PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
