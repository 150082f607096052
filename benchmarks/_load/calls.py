"""Many fits in one process, and many threads that predict with one fitted model."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from benchmarks._load.finding import Finding, State
from mixupe_sklearn import (
    MixupEClassifier,
    MixupEImageClassifier,
    make_mixupe_pipeline,
    preset,
)

# What memory may grow by after the first fits: what malloc keeps of small pieces, and no more.
MOST_GROWTH = 4.0
N_THREADS = 16


def make_rows(n_rows: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Ten columns of normal numbers, and three classes."""
    X = np.random.default_rng(0).normal(size=(n_rows, 10)).astype(np.float32)
    return X, (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)


def many_fits(n_fits: int, **params: Any) -> Finding:
    """Fits and predictions, one after the other; memory is compared from a tenth of them on."""
    X, y = make_rows()
    marks: dict[int, State] = {}
    losses = []
    for number in range(1, n_fits + 1):
        classifier = MixupEClassifier(**params, random_state=number % 10).fit(X, y)
        losses.append(classifier.loss_curve_[-1])
        classifier.predict_proba(X)
        if number in (n_fits // 10, n_fits // 2, n_fits):
            marks[number] = State.now()
    start, *_, end = marks.values()
    told = ", ".join(f"{state.private:.0f} after {number:,}" for number, state in marks.items())
    return Finding(
        size=f"{n_fits:,} fits of {len(X)} x {X.shape[1]}",
        settings=params,
        checks={
            "equal seeds give equal losses": len(set(losses)) == min(10, n_fits),
            f"MiB without pages of files: {told}": end.private - start.private <= MOST_GROWTH,
            "as many threads": end.threads == start.threads,
            "as many open files": end.files == start.files,
        },
        start=start,
    )


class Deep(nn.Sequential):
    """A network with BatchNorm and dropout: in training it does other things than after it."""

    def __init__(self, n_features: int, n_outputs: int):
        blocks = [[nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Dropout(0.5)] for _ in range(20)]
        parts = [layer for block in blocks for layer in block]
        super().__init__(nn.Linear(n_features, 16), *parts, nn.Linear(16, n_outputs))


def _frame(X: np.ndarray, y: np.ndarray) -> pd.DataFrame:
    frame = pd.DataFrame(X, columns=[f"number {k}" for k in range(X.shape[1])])
    return frame.assign(city=np.array(["Oslo", "Bonn", "Rome"])[(y + np.arange(len(y))) % 3])


def make_models() -> dict[str, Callable[[], tuple[Any, Any]]]:
    """Makers of fitted models of several kinds, each with rows to predict; all are small."""
    X, y = make_rows(600)
    frame = _frame(X, y)
    pictures = np.random.default_rng(0).random((120, 3, 16, 16)).astype(np.float32)
    few, one = {"max_epochs": 2, "min_steps": 0}, preset("paper") | {"max_epochs": 1}
    wide = one | {"module_params": {"d_hidden": (1024, 1024)}}
    return {
        "eight members": lambda: (MixupEClassifier(**few, random_state=0).fit(X, y), X),
        "one network": lambda: (MixupEClassifier(**one, random_state=0).fit(X, y), X),
        "a wide network": lambda: (MixupEClassifier(**wide, random_state=0).fit(X, y), X),
        "BatchNorm and dropout": lambda: (
            MixupEClassifier(**one | {"module": Deep}, random_state=0).fit(X, y),
            X,
        ),
        "pipeline": lambda: (make_mixupe_pipeline(**few, random_state=0).fit(frame, y), frame),
        "pictures": lambda: (
            MixupEImageClassifier(module="lenet", max_epochs=1, random_state=0).fit(
                pictures, np.arange(120) % 3
            ),
            pictures,
        ),
    }


def parts_of(rows: Any, n_parts: int) -> list[Any]:
    """Different rows for each call, from one to all."""
    sizes = 1 + np.arange(n_parts) * 37 % len(rows)
    index = [np.random.default_rng(k).permutation(len(rows))[:n] for k, n in enumerate(sizes)]
    return [rows.iloc[i] if hasattr(rows, "iloc") else rows[i] for i in index]


def at_once(
    function: Callable[[Any], Any], arguments: Sequence[Any], n_threads: int = N_THREADS
) -> list[Any]:
    """What a function makes of each argument, by threads that all begin at the same time."""
    gate = threading.Barrier(n_threads)

    def call(number: int, argument: Any) -> Any:
        if number < n_threads:
            gate.wait()
        return function(argument)

    with ThreadPoolExecutor(n_threads) as pool:
        return list(pool.map(call, range(len(arguments)), arguments))


def n_differences(make: Callable[[], tuple[Any, Any]], n_calls: int) -> int:
    """How many calls of threads at once differ, in any bit, from the same calls alone."""
    model, rows = make()
    parts = parts_of(rows, n_calls)
    found = at_once(model.predict_proba, parts)  # the first predictions of this model
    alone, _ = make()
    expected = [alone.predict_proba(part) for part in parts]
    return sum(not np.array_equal(*pair) for pair in zip(found, expected, strict=True))


def many_calls(n_calls: int, names: Sequence[str] | None = None) -> Finding:
    """Threads that predict at once, against a model with equal seeds that predicts alone.

    Memory is compared from a first round on, in which libraries make what they keep.
    """
    models = {name: make for name, make in make_models().items() if name in (names or [name])}
    n_before = torch.get_num_threads()
    n_first = sum(n_differences(make, N_THREADS) for make in models.values())
    start, checks = State.now(), {"a first round of each equal to the bit": n_first == 0}
    for name in models:
        n_wrong = n_differences(models[name], n_calls)
        checks[f"{name}: {n_calls - n_wrong} of {n_calls} equal to the bit"] = n_wrong == 0
    checks["torch's number of threads as before"] = torch.get_num_threads() == n_before
    checks["a new thread has it too"] = at_once(lambda _: torch.get_num_threads(), [0], 1) == [
        n_before
    ]
    return Finding(f"{n_calls} calls by {N_THREADS} threads", {}, checks, start)


SHORT = {"max_epochs": 2, "batch_size": 50}
CASES: dict[str, dict[str, Callable[[], Finding]]] = {
    "fits": {
        "full": lambda: many_fits(1_000, **preset("paper") | SHORT),
        "small": lambda: many_fits(60, **preset("paper") | SHORT),
    },
    "fits, eight members": {
        "full": lambda: many_fits(1_000, **SHORT, min_steps=0),
        "small": lambda: many_fits(20, **SHORT, min_steps=0),
    },
    "threads": {
        "full": lambda: many_calls(200),
        "small": lambda: many_calls(50, ["eight members", "one network", "pipeline"]),
    },
}
