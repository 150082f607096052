"""The pipeline as a flow, and its predictions on a task's own folds as a run, for OpenML."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import openml
from openml.extensions.sklearn import SklearnExtension

from benchmarks._tabular.publish.server import Refused, Server, sent_through, understood
from benchmarks._tabular.running import versions_of
from mixupe_sklearn import MixupEClassifier, make_mixupe_pipeline
from mixupe_sklearn.datasets import Table
from mixupe_sklearn.datasets.openml import load_task

FLOW_NAME = "mixupe_sklearn.make_mixupe_pipeline"

Lines = list[list[Any]]


def make_flow() -> openml.OpenMLFlow:
    """The pipeline as a flow: one part, whose parameters are those of the classifier.

    openml's extension can turn neither the preprocessing into a flow (it refuses two imputers in
    one flow, and functions with arguments) nor does it need to: the name of the function that makes
    the whole pipeline, and flat parameters, are enough for ``flow_to_model`` to make it again.
    """
    extension = SklearnExtension()
    logger = logging.getLogger("openml.extensions.sklearn.extension")
    before = logger.level
    logger.setLevel(logging.ERROR)  # it warns of docstrings that differ from scikit-learn's
    try:
        flow = extension.model_to_flow(MixupEClassifier())
    finally:
        logger.setLevel(before)
    flow.name = flow.class_name = FLOW_NAME
    flow.custom_name = FLOW_NAME.rsplit(".", maxsplit=1)[-1]
    flow.description = (
        "Raw columns are filled, one-hot encoded, centred and scaled by make_preprocessor() as it "
        "comes, then MixupEClassifier learns from them; all parameters are the classifier's."
    )
    flow.model = None
    return flow


def parameter_settings(params: Mapping[str, Any], flow_id: int) -> list[dict[str, Any]]:
    """All parameters of the classifier, as a run states them."""
    values = MixupEClassifier(**params).get_params()
    return [
        {"oml:name": name, "oml:value": json.dumps(value), "oml:component": flow_id}
        for name, value in values.items()
    ]


def publish_flow(server: Server) -> openml.OpenMLFlow:
    """The flow with the number that the server knows it by; sent if the server has it not."""
    with sent_through(server), understood():
        try:
            return make_flow().publish()
        except ValueError as error:
            if "inconsistent with the local flow" not in str(error):
                raise
            raise Refused("a flow of this name and version with other parameters") from None


@dataclass(frozen=True, eq=False)
class Task:
    """A task as the server has it: its rows and folds, and all classes, even those without rows."""

    table: Table
    labels: Sequence[str]
    n_folds: int

    @property
    def folds(self) -> list[tuple[int, int, np.ndarray, np.ndarray]]:
        """Numbers of repeat and fold, and the rows to train with and to test with."""
        pairs = self.table.folds or ()
        return [(*divmod(number, self.n_folds), *pair) for number, pair in enumerate(pairs)]


def fetch_task(server: Server, task_id: int, cache: str) -> Task:
    """Load a task from the server that it is to be published to, into a cache of its own."""
    table = load_task(task_id, cache_dir=cache, timeout=server.timeout)
    with sent_through(server):
        task: Any = openml.tasks.get_task(task_id)
    # From the description: the client reads the splits as well, but leaves their file open.
    told = task.estimation_procedure["parameters"]
    n_repeats, n_pairs = int(told.get("number_repeats") or 1), len(table.folds or ())
    n_folds = int(told.get("number_folds") or n_pairs // n_repeats)
    unknown = sorted(set(map(str, table.y)) - set(task.class_labels))
    if unknown or n_pairs != n_repeats * n_folds:
        raise ValueError(
            f"Got task {task_id} with {n_pairs} of {n_repeats} x {n_folds} folds and the unknown "
            f"classes {unknown}, but expected all folds, and classes that the server lists."
        )
    return Task(table, task.class_labels, n_folds)


def predict_folds(task: Task, params: Mapping[str, Any]) -> tuple[Lines, dict[int, dict]]:
    """Train on each fold: lines of the predictions' file, and accuracies by repeat and fold."""
    lines: Lines = []
    accuracies: dict[int, dict[int, float]] = {}
    X, y = task.table.X, task.table.y
    for repeat, fold, train, test in task.folds:
        pipeline = make_mixupe_pipeline(**params)
        # An interrupt ends it all, instead of publishing what a half-trained network predicts.
        pipeline["classifier"]._keeps_interrupted = False
        pipeline.fit(X.iloc[train], y[train])
        proba = pipeline.predict_proba(X.iloc[test])
        predicted = pipeline.classes_[proba.argmax(axis=1)]
        columns = {str(label): column for column, label in enumerate(pipeline.classes_)}
        for row, label, p in zip(test, predicted, proba, strict=True):
            # A class that has no row to train with has no column.
            shares = [float(p[columns[name]]) if name in columns else 0.0 for name in task.labels]
            lines.append([repeat, fold, 0, int(row), str(label), str(y[row]), *shares])
        accuracies.setdefault(repeat, {})[fold] = float(np.mean(predicted == y[test]))
    return lines, accuracies


def make_run(
    task: Task, params: Mapping[str, Any], flow: openml.OpenMLFlow, ticket: str
) -> openml.OpenMLRun:
    """Train, and put together all that a run on OpenML holds."""
    lines, accuracies = predict_folds(task, params)
    versions = versions_of()
    return openml.OpenMLRun(
        task_id=task.table.task_id or 0,
        flow_id=flow.flow_id,
        dataset_id=task.table.data_id,
        setup_string=versions,
        description_text=versions,
        tags=["openml-python", "mixupe-sklearn", ticket],
        data_content=lines,
        flow=flow,
        parameter_settings=parameter_settings(params, int(flow.flow_id or 0)),
        fold_evaluations={"predictive_accuracy": accuracies},
    )


def publish_run(server: Server, run: openml.OpenMLRun) -> int:
    """Send a run, once, and return its number."""
    with sent_through(server), understood():
        run.publish()
    return int(run.run_id or 0)
