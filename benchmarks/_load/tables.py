"""Large tables: many classes, many columns, many rows in a file, many levels of a category."""

import pathlib
import tempfile
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.metrics import log_loss

from benchmarks._load.finding import Finding
from benchmarks._speed.memory import BLOCK
from mixupe_sklearn import MixupEClassifier, make_mixupe_pipeline, preset

# Rows that are predicted in one call where a result for all would be large.
PART = 1_000


def blobs(n_classes: int, n_rows: int, n_features: int = 32) -> tuple[np.ndarray, np.ndarray]:
    """Rows around a centre for each class, and one class more that has a single row."""
    rng = np.random.default_rng(0)
    y = np.append(np.arange(n_rows - 1) % (n_classes - 1), n_classes - 1)
    rng.shuffle(y)
    centres = rng.standard_normal((n_classes, n_features), dtype=np.float32)
    noise = rng.standard_normal((n_rows, n_features), dtype=np.float32)
    return centres[y] + 0.1 * noise, y


def many_classes(n_classes: int, n_rows: int, **params: Any) -> Finding:
    """Classes around as many centres, of which one has a single row."""
    X, y = blobs(n_classes, n_rows)
    classifier = MixupEClassifier(**params, random_state=0).fit(X, y)
    n_right, losses, are_good = 0, [], True
    for start in range(0, n_rows, PART):
        part = slice(start, start + PART)
        proba = classifier.predict_proba(X[part])
        are_good &= proba.shape[1] == n_classes and np.allclose(proba.sum(axis=1), 1)
        n_right += int((classifier.classes_[proba.argmax(axis=1)] == y[part]).sum())
        losses.append(log_loss(y[part], proba, labels=classifier.classes_) * len(proba))
    accuracy, loss = n_right / n_rows, sum(losses) / n_rows
    return Finding(
        size=f"{n_classes:,} classes, {n_rows:,} x {X.shape[1]}",
        settings=params,
        checks={
            "probabilities of all classes sum to one": bool(are_good),
            f"accuracy {accuracy:.3f} is 100 times chance": accuracy > 100 / n_classes,
            f"log loss {loss:.2f} is below chance": loss < np.log(n_classes),
            "an epoch has a record of numbers": _are_numbers(classifier.history_),
        },
    )


def _are_numbers(history: list[dict[str, Any]]) -> bool:
    kinds = (int, float, np.number)
    return all(isinstance(value, kinds) for row in history for value in row.values())


def topics(n_rows: int, n_columns: int, n_classes: int = 20) -> tuple[sparse.csr_array, np.ndarray]:
    """Rows of 60 words: ten of a topic's two hundred, the others any."""
    rng = np.random.default_rng(0)
    y = np.arange(n_rows) % n_classes
    of_topic = rng.permutation(n_columns)[: n_classes * 200].reshape(n_classes, 200)
    own = np.take_along_axis(of_topic[y], rng.integers(200, size=(n_rows, 10)), axis=1)
    words = np.hstack([own, rng.integers(n_columns, size=(n_rows, 50))]).ravel()
    places = np.repeat(np.arange(n_rows), 60)
    ones = np.ones(len(words), dtype=np.float32)
    return sparse.csr_array((ones, (places, words)), shape=(n_rows, n_columns)), y


def many_columns(n_rows: int, n_columns: int, **params: Any) -> Finding:
    """A sparse table whose dense form would not fit; the last rows are kept for the test."""
    X, y = topics(n_rows, n_columns)
    before = _sum_of(X.data, X.indices, X.indptr)
    n_train = n_rows * 9 // 10
    classifier = MixupEClassifier(**params, random_state=0).fit(X[:n_train], y[:n_train])
    proba = classifier.predict_proba(X[n_train:])
    few = X[n_train : n_train + 20]
    accuracy = (proba.argmax(axis=1) == y[n_train:]).mean()
    one = classifier.predict_proba(few[:1])
    return Finding(
        size=f"{n_rows:,} x {n_columns:,} sparse, dense {4 * n_rows * n_columns / 2**30:.1f} GiB",
        settings=params,
        checks={
            f"accuracy {accuracy:.3f} on unseen rows is above 0.5": accuracy > 0.5,
            "dense rows give the same bits": np.array_equal(
                classifier.predict_proba(few.toarray()), proba[:20]
            ),
            "one row alone gives the same bits": np.array_equal(one, proba[:1]),
            "input unchanged": _sum_of(X.data, X.indices, X.indptr) == before,
        },
    )


def _sum_of(*arrays: np.ndarray) -> int:
    total = 0
    for array in arrays:
        total = zlib.crc32(array.tobytes(), total)
    return total


def sum_of_file(path: pathlib.Path) -> int:
    """A sum that changes with any byte of a file."""
    total = 0
    with path.open("rb") as file:
        while block := file.read(2**24):
            total = zlib.crc32(block, total)
    return total


def write_rows(path: pathlib.Path, n_rows: int, n_features: int) -> np.ndarray:
    """Write normal numbers to a file, block by block; the labels are a rule of the first two."""
    rng = np.random.default_rng(0)
    X = np.memmap(path, dtype=np.float32, mode="w+", shape=(n_rows, n_features))
    y = np.empty(n_rows, dtype=np.int8)
    for start in range(0, n_rows, BLOCK):
        part = X[start : start + BLOCK]
        part[:] = rng.standard_normal(part.shape, dtype=np.float32)
        y[start : start + BLOCK] = part[:, 0] + part[:, 1] > 0
    X.flush()
    return y


def many_rows(n_rows: int, n_features: int, **params: Any) -> Finding:
    """Rows that stay in their file."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "rows.bin"
        y = write_rows(path, n_rows, n_features)
        before = sum_of_file(path)
        X = np.memmap(path, dtype=np.float32, mode="r", shape=(n_rows, n_features))
        classifier = MixupEClassifier(**params, random_state=0).fit(X, y)
        accuracy = (classifier.predict(X) == y).mean()
        return Finding(
            size=f"{n_rows:,} x {n_features} in a file of {X.nbytes / 2**20:.0f} MiB",
            settings=params,
            checks={
                f"accuracy {accuracy:.3f} of all rows is above 0.95": accuracy > 0.95,
                "one epoch": classifier.n_iter_ == 1,
                "file unchanged": sum_of_file(path) == before,
            },
        )


def many_levels(n_rows: int, n_levels: int, **params: Any) -> Finding:
    """One column of names beside one of numbers: each name goes one way or the other."""
    rng = np.random.default_rng(0)
    level = rng.permutation(np.arange(n_rows) % n_levels)
    frame = pd.DataFrame({"name": level.astype(str), "size": rng.normal(size=n_rows)})
    y = level % 2
    pipeline = make_mixupe_pipeline(**params, random_state=0).fit(frame, y)
    accuracy = pipeline.score(frame, y)
    width = pipeline[0].transform(frame[:5]).shape[1]
    unseen = pipeline.predict_proba(frame[:5].assign(name="never seen"))
    return Finding(
        size=f"{n_rows:,} rows, {n_levels:,} levels",
        settings=params,
        checks={
            f"accuracy {accuracy:.3f} is above 0.9": accuracy > 0.9,
            f"{width:,} columns": width == n_levels + 1,
            "an unseen level has probabilities": np.allclose(unseen.sum(axis=1), 1),
        },
    )


ONE = preset("paper") | {"batch_size": 500}
# Each case in its full size, and in one for tests.
CASES: dict[str, dict[str, Callable[[], Finding]]] = {
    "classes": {
        "full": lambda: many_classes(
            10_000,
            30_001,
            **ONE | {"max_epochs": 3, "lr": 0.003, "early_stopping": True},
        ),
        "small": lambda: many_classes(200, 1_001, **ONE | {"max_epochs": 20, "batch_size": 50}),
    },
    "classes, eight members": {
        "full": lambda: many_classes(
            10_000,
            20_001,
            max_epochs=2,
            min_steps=0,
            module_params={"d_hidden": (64, 64)},
        ),
        "small": lambda: many_classes(200, 801, max_epochs=10, min_steps=0),
    },
    "columns": {
        "full": lambda: many_columns(
            20_000, 100_000, **ONE | {"max_epochs": 3, "module_params": {"d_hidden": (32,)}}
        ),
        "small": lambda: many_columns(1_000, 5_000, **ONE | {"max_epochs": 5, "batch_size": 50}),
    },
    "columns, eight members": {
        "full": lambda: many_columns(
            2_000, 100_000, max_epochs=2, min_steps=0, module_params={"d_hidden": (32,)}
        ),
        "small": lambda: many_columns(500, 5_000, max_epochs=5, min_steps=0),
    },
    "rows in a file": {
        "full": lambda: many_rows(
            10**7,
            10,
            **ONE
            | {"max_epochs": 1, "batch_size": 10_000, "module_params": {"d_hidden": (32, 32)}},
        ),
        "small": lambda: many_rows(20_000, 10, **ONE | {"max_epochs": 1, "batch_size": 100}),
    },
    "levels": {
        "full": lambda: many_levels(
            100_000,
            50_000,
            **ONE | {"max_epochs": 2, "lr": 0.01, "module_params": {"d_hidden": (32,)}},
        ),
        "small": lambda: many_levels(400, 100, **ONE | {"max_epochs": 40, "batch_size": 20}),
    },
}
