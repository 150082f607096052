"""Large inputs and many calls: ``python -m benchmarks.reliability.load [--cases fits threads]``.

Each case runs in its own process, so that memory, threads and open files are its own.
"""

import argparse
import ctypes
import gc
import hashlib
import json
import pathlib
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

import joblib
import numpy as np
import pandas as pd
import torch
from scipy import sparse
from sklearn.metrics import log_loss
from torch import nn

from benchmarks._harness.docs_tables import fill_block
from benchmarks._harness.environment import ROOT, commit, n_cores, versions_of
from benchmarks._harness.labels import present_label
from benchmarks._harness.report_tables import plain_markdown
from benchmarks._harness.resources import (
    MEGABYTE,
    Usage,
    can_measure,
    memory_of_process,
    private_memory_samples,
    reset_peak,
)
from benchmarks._harness.results_file import write_text
from benchmarks._harness.subprocesses import call_in_child
from mixupe_sklearn import (
    MixupEClassifier,
    MixupEImageClassifier,
    make_mixupe_pipeline,
    make_preprocessor,
    preset,
)

ROWS = ROOT / "benchmarks" / "results" / "load" / "rows.csv"
PAGE = ROOT / "docs" / "benchmarks" / "load.md"
PART = 1_000  # rows that are predicted in one call where a result for all would be large
BLOCK = 10_000
MOST_GROWTH = 4.0  # MiB that memory may grow by after the first fits: pieces that malloc keeps
N_THREADS = 16


class Finding(NamedTuple):
    """The size of a case in words, what must hold and whether it does; growth from ``start`` on."""

    size: str
    checks: dict[str, bool]
    start: Usage | None = None


def blobs(n_classes: int, n_rows: int, n_features: int = 32) -> tuple[np.ndarray, np.ndarray]:
    """Samples around a centre for each class; the last class has a single sample."""
    rng = np.random.default_rng(0)
    y = np.append(np.arange(n_rows - 1) % (n_classes - 1), n_classes - 1)
    rng.shuffle(y)
    centres = rng.standard_normal((n_classes, n_features), dtype=np.float32)
    noise = rng.standard_normal((n_rows, n_features), dtype=np.float32)
    return centres[y] + 0.1 * noise, y


def many_classes(n_classes: int, n_rows: int, **params: Any) -> Finding:
    """Many classes, one of which has a single sample."""
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
    values = [value for row in classifier.history_ for value in row.values()]
    return Finding(
        size=f"{n_classes:,} classes, {n_rows:,} x {X.shape[1]}",
        checks={
            "probabilities of all classes sum to one": bool(are_good),
            f"accuracy {accuracy:.3f} is 100 times chance": accuracy > 100 / n_classes,
            f"log loss {loss:.2f} is below chance": loss < np.log(n_classes),
            "an epoch has a record of numbers": all(
                isinstance(value, int | float | np.number) for value in values
            ),
        },
    )


def topics(n_rows: int, n_columns: int, n_classes: int = 20) -> tuple[sparse.csr_array, np.ndarray]:
    """Samples of 60 words: ten of a topic's two hundred, the others any."""
    rng = np.random.default_rng(0)
    y = np.arange(n_rows) % n_classes
    of_topic = rng.permutation(n_columns)[: n_classes * 200].reshape(n_classes, 200)
    own = np.take_along_axis(of_topic[y], rng.integers(200, size=(n_rows, 10)), axis=1)
    words = np.hstack([own, rng.integers(n_columns, size=(n_rows, 50))]).ravel()
    places = np.repeat(np.arange(n_rows), 60)
    ones = np.ones(len(words), dtype=np.float32)
    return sparse.csr_array((ones, (places, words)), shape=(n_rows, n_columns)), y


def many_columns(n_rows: int, n_columns: int, **params: Any) -> Finding:
    """A sparse table that would not fit into memory as a dense one; the last rows are the test."""
    X, y = topics(n_rows, n_columns)
    before = joblib.hash(X)
    n_train = n_rows * 9 // 10
    classifier = MixupEClassifier(**params, random_state=0).fit(X[:n_train], y[:n_train])
    proba = classifier.predict_proba(X[n_train:])
    few = X[n_train : n_train + 20]
    accuracy = (proba.argmax(axis=1) == y[n_train:]).mean()
    one = classifier.predict_proba(few[:1])
    return Finding(
        size=f"{n_rows:,} x {n_columns:,} sparse, dense {4 * n_rows * n_columns / 2**30:.1f} GiB",
        checks={
            f"accuracy {accuracy:.3f} on unseen rows is above 0.5": accuracy > 0.5,
            "dense rows give the same bits": np.array_equal(
                classifier.predict_proba(few.toarray()), proba[:20]
            ),
            "one row alone gives the same bits": np.array_equal(one, proba[:1]),
            "input unchanged": joblib.hash(X) == before,
        },
    )


def _digest(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_rows(path: pathlib.Path, n_rows: int, n_features: int) -> np.ndarray:
    """Write normal features to a file, block by block; labels depend on the first two."""
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
    """Rows in a mapped file."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "rows.bin"
        y = write_rows(path, n_rows, n_features)
        before = _digest(path)
        X = np.memmap(path, dtype=np.float32, mode="r", shape=(n_rows, n_features))
        classifier = MixupEClassifier(**params, random_state=0).fit(X, y)
        accuracy = (classifier.predict(X) == y).mean()
        return Finding(
            size=f"{n_rows:,} x {n_features} in a file of {X.nbytes / 2**20:.0f} MiB",
            checks={
                f"accuracy {accuracy:.3f} of all rows is above 0.95": accuracy > 0.95,
                "one epoch": classifier.n_iter_ == 1,
                "file unchanged": _digest(path) == before,
            },
        )


def many_levels(n_rows: int, n_levels: int, **params: Any) -> Finding:
    """A categorical column with many levels, which decide on the class, and a numeric one."""
    rng = np.random.default_rng(0)
    level = rng.permutation(np.arange(n_rows) % n_levels)
    frame = pd.DataFrame({"name": level.astype(str), "size": rng.normal(size=n_rows)})
    y = level % 2
    preprocessor = make_preprocessor(max_categories=None, n_bins=0)  # a column for each level
    pipeline = make_mixupe_pipeline(preprocessor=preprocessor, **params, random_state=0)
    accuracy = pipeline.fit(frame, y).score(frame, y)
    width = pipeline[0].transform(frame[:5]).shape[1]
    unseen = pipeline.predict_proba(frame[:5].assign(name="never seen"))
    return Finding(
        size=f"{n_rows:,} rows, {n_levels:,} levels",
        checks={
            f"accuracy {accuracy:.3f} is above 0.9": accuracy > 0.9,
            f"{width:,} columns": width == n_levels + 1,
            "an unseen level has probabilities": np.allclose(unseen.sum(axis=1), 1),
        },
    )


def make_rows(n_rows: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Ten normal features, and three classes."""
    X = np.random.default_rng(0).normal(size=(n_rows, 10)).astype(np.float32)
    return X, (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)


def many_fits(n_fits: int, **params: Any) -> Finding:
    """Fits and predictions, one after the other; memory counts after the first tenth."""
    X, y = make_rows()
    marks: dict[int, Usage] = {}
    losses = []
    for number in range(1, n_fits + 1):
        classifier = MixupEClassifier(**params, random_state=number % 10).fit(X, y)
        losses.append(classifier.loss_curve_[-1])
        classifier.predict_proba(X)
        if number in (n_fits // 10, n_fits // 2, n_fits):
            marks[number] = Usage.now()
    start, *_, end = marks.values()
    shown = ", ".join(f"{usage.private:.0f} after {number:,}" for number, usage in marks.items())
    return Finding(
        size=f"{n_fits:,} fits of {len(X)} x {X.shape[1]}",
        checks={
            "equal seeds give equal losses": len(set(losses)) == min(10, n_fits),
            f"MiB without pages of files: {shown}": end.private - start.private <= MOST_GROWTH,
            "as many threads": end.threads == start.threads,
            "as many open files": end.files == start.files,
        },
        start=start,
    )


class Deep(nn.Sequential):
    """A network with BatchNorm and dropout, which differ between training and inference."""

    def __init__(self, n_features: int, n_outputs: int):
        blocks = [[nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Dropout(0.5)] for _ in range(20)]
        parts = [layer for block in blocks for layer in block]
        super().__init__(nn.Linear(n_features, 16), *parts, nn.Linear(16, n_outputs))


def make_models() -> dict[str, Callable[[], tuple[Any, Any]]]:
    """Functions that fit a small model of some kind, and return it with its data."""
    X, y = make_rows(600)
    frame = pd.DataFrame(X, columns=[f"number {k}" for k in range(X.shape[1])])
    frame["city"] = np.array(["Oslo", "Bonn", "Rome"])[(y + np.arange(len(y))) % 3]
    images = np.random.default_rng(0).random((120, 3, 16, 16)).astype(np.float32)
    few, one = {"max_epochs": 2, "min_steps": 0}, preset("paper") | {"max_epochs": 1}

    def fitted(data: Any, **params: Any) -> tuple[Any, Any]:
        return MixupEClassifier(**params, random_state=0).fit(data, y), data

    def image_model() -> tuple[Any, Any]:
        model = MixupEImageClassifier(module="lenet", max_epochs=1, random_state=0)
        return model.fit(images, np.arange(120) % 3), images

    return {
        "eight members": partial(fitted, X, **few),
        "one network": partial(fitted, X, **one),
        "a wide network": partial(fitted, X, **one | {"module_params": {"d_hidden": (1024, 1024)}}),
        "BatchNorm and dropout": partial(fitted, X, **one | {"module": Deep}),
        "pipeline": lambda: (make_mixupe_pipeline(**few, random_state=0).fit(frame, y), frame),
        "images": image_model,
    }


def parts_of(rows: Any, n_parts: int) -> list[Any]:
    """Different samples for each call, from one to all."""
    sizes = 1 + np.arange(n_parts) * 37 % len(rows)
    index = [np.random.default_rng(k).permutation(len(rows))[:n] for k, n in enumerate(sizes)]
    return [rows.iloc[i] if hasattr(rows, "iloc") else rows[i] for i in index]


def call_in_threads(
    function: Callable[[Any], Any], arguments: Sequence[Any], n_threads: int = N_THREADS
) -> list[Any]:
    """Results of a function for each argument, by threads that start at the same time."""
    gate = threading.Barrier(n_threads)

    def call(number: int, argument: Any) -> Any:
        if number < n_threads:
            gate.wait()
        return function(argument)

    with ThreadPoolExecutor(n_threads) as pool:
        return list(pool.map(call, range(len(arguments)), arguments))


def n_differences(make: Callable[[], tuple[Any, Any]], n_calls: int) -> int:
    """How many concurrent calls differ, in any bit, from the same calls alone."""
    model, rows = make()
    parts = parts_of(rows, n_calls)
    found = call_in_threads(model.predict_proba, parts)  # the first predictions of this model
    alone, _ = make()
    expected = [alone.predict_proba(part) for part in parts]
    return sum(not np.array_equal(*pair) for pair in zip(found, expected, strict=True))


def many_calls(n_calls: int, names: Sequence[str] | None = None) -> Finding:
    """Concurrent predictions against one model alone; memory counts after a first round."""
    models = {name: make for name, make in make_models().items() if name in (names or [name])}
    n_before = torch.get_num_threads()
    n_first = sum(n_differences(make, N_THREADS) for make in models.values())
    start, checks = Usage.now(), {"a first round of each equal to the bit": n_first == 0}
    for name in models:
        n_wrong = n_differences(models[name], n_calls)
        checks[f"{name}: {n_calls - n_wrong} of {n_calls} equal to the bit"] = n_wrong == 0
    checks["torch's number of threads as before"] = torch.get_num_threads() == n_before
    in_thread = call_in_threads(lambda _: torch.get_num_threads(), [0], 1)
    checks["a new thread has it too"] = in_thread == [n_before]
    return Finding(f"{n_calls} calls by {N_THREADS} threads", checks, start)


ONE = preset("paper") | {"batch_size": 500}
SMALL = preset("paper") | {"batch_size": 50}
SHORT = {"max_epochs": 2, "batch_size": 50}
FEW = {"max_epochs": 2, "min_steps": 0}
NARROW = {"module_params": {"d_hidden": (32,)}}
LARGE_FILE = {"max_epochs": 1, "batch_size": 10_000, "module_params": {"d_hidden": (32, 32)}}
FAST = {"max_epochs": 3, "lr": 0.003, "early_stopping": True}
CASES: dict[str, tuple[partial[Finding], partial[Finding]]] = {
    "classes": (
        partial(many_classes, 10_000, 30_001, **ONE | FAST),
        partial(many_classes, 200, 1_001, **SMALL | {"max_epochs": 20}),
    ),
    "classes, eight members": (
        partial(many_classes, 10_000, 20_001, **FEW, module_params={"d_hidden": (64, 64)}),
        partial(many_classes, 200, 801, max_epochs=10, min_steps=0),
    ),
    "columns": (
        partial(many_columns, 20_000, 100_000, **ONE | {"max_epochs": 3} | NARROW),
        partial(many_columns, 1_000, 5_000, **SMALL | {"max_epochs": 5}),
    ),
    "columns, eight members": (
        partial(many_columns, 2_000, 100_000, **FEW, **NARROW),
        partial(many_columns, 500, 5_000, max_epochs=5, min_steps=0),
    ),
    "rows in a file": (
        partial(many_rows, 10**7, 10, **ONE | LARGE_FILE),
        partial(many_rows, 20_000, 10, **SMALL | {"max_epochs": 1, "batch_size": 100}),
    ),
    "levels": (
        partial(many_levels, 100_000, 50_000, **ONE | {"max_epochs": 2, "lr": 0.01} | NARROW),
        partial(many_levels, 400, 100, **SMALL | {"max_epochs": 40, "batch_size": 20}),
    ),
    "fits": (
        partial(many_fits, 1_000, **preset("paper") | SHORT),
        partial(many_fits, 60, **preset("paper") | SHORT),
    ),
    "fits, eight members": (
        partial(many_fits, 1_000, **SHORT, min_steps=0),
        partial(many_fits, 20, **SHORT, min_steps=0),
    ),
    "threads": (
        partial(many_calls, 200),
        partial(many_calls, 50, ["eight members", "one network", "pipeline"]),
    ),
}


def measure_case(name: str, scale: str) -> dict[str, Any]:
    """Run a case in this process: its figures. One of the threads samples the memory."""
    X = np.zeros((20, 2), dtype=np.float32)  # so that imports on the way are not counted
    params = preset("paper") | {"max_epochs": 1, "batch_size": 10, "early_stopping": True}
    MixupEClassifier(**params).fit(X, np.arange(20) % 2).predict_proba(X)
    case = CASES[name][scale == "small"]
    with private_memory_samples() as samples:
        before = Usage.now()
        reset_peak()
        clock = time.perf_counter()
        finding = case()
        seconds = time.perf_counter() - clock
        most = memory_of_process()["most"]
        # Where the C library is glibc, it returns free memory.
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            gc.collect()
            trim(0)
        end = Usage.now()
    start = finding.start or before
    return {
        "case": name,
        "size": finding.size,
        "settings": json.dumps(case.keywords, sort_keys=True),
        "checked": json.dumps(list(finding.checks)),
        "wrong": json.dumps([name for name, holds in finding.checks.items() if not holds]),
        "seconds": round(seconds, 1),
        "memory_start": start.memory,
        "memory_end": end.memory,
        "memory_peak": round(most / MEGABYTE, 1),
        "private_peak": round(max(samples) / MEGABYTE, 1),
        "threads_start": start.threads,
        "threads_end": end.threads,
        "files_start": start.files,
        "files_end": end.files,
        "scale": scale,
        "cores": n_cores(),
        "versions": versions_of(),
        "commit": commit(),
        "run": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def load_table(rows: pd.DataFrame) -> str:
    """One row per case: size, checks that hold, seconds, memory, threads and open files."""
    header = ["case", "size", "right", "seconds"]
    header += ["MiB at start", "at end", "peak", "peak without pages of files"]
    header += ["threads at start", "at end", "open files at start", "at end"]
    lines = []
    for _, row in rows.iterrows():
        checked, wrong = json.loads(row["checked"]), json.loads(row["wrong"])
        line = [row["case"], row["size"], f"{len(checked) - len(wrong)} of {len(checked)}"]
        memory = ("seconds", "memory_start", "memory_end", "memory_peak", "private_peak")
        counts = ("threads_start", "threads_end", "files_start", "files_end")
        line += [f"{row[name]:,.0f}" for name in memory]
        lines.append(line + [str(int(row[name])) for name in counts])
    return plain_markdown(header, lines)


def checks_list(rows: pd.DataFrame) -> str:
    """What was checked in each case, and what failed."""
    lines = []
    for case, checked, wrong in zip(rows["case"], rows["checked"], rows["wrong"], strict=True):
        marks = dict.fromkeys(json.loads(wrong), "**wrong**: ")
        checks = [marks.get(text, "") + present_label(text) for text in json.loads(checked)]
        lines.append(f"- *{case}*: {'; '.join(checks)}.")
    return "\n".join(lines)


def fill(page: str, rows: pd.DataFrame) -> str:
    """The page with the table between its markers replaced."""
    return fill_block(page, "table", load_table(rows), kind="load")


def measure(names: Sequence[str], scale: str, path: pathlib.Path) -> pd.DataFrame:
    """Run cases one after the other; the row of a case is written, or replaced, when it ends."""
    rows = pd.read_csv(path).to_dict("records") if path.exists() else []
    by_case = {row["case"]: row for row in rows}
    for name in names:
        print(f"{name} ...", flush=True)
        by_case[name] = call_in_child("benchmarks.reliability.load", "measure_case", name, scale)
        rows = pd.DataFrame([by_case[case] for case in CASES if case in by_case])
        write_text(path, rows.to_csv(index=False))
    return pd.read_csv(path)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.reliability.load", description=(__doc__ or "").splitlines()[0]
    )
    made.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="CASE")
    made.add_argument("--quick", action="store_true", help="small sizes")
    words = f"file of the rows ({ROWS.name} of the repository, build/load.csv with --quick)"
    made.add_argument("--output", type=pathlib.Path, help=words)
    made.add_argument("--report-only", action="store_true", help="run nothing, read the rows")
    made.add_argument("--docs", action="store_true", help="write the table into the docs")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases, write their rows, print the table; return 1 if a check failed."""
    options = parser().parse_args(arguments)
    if not options.report_only and not can_measure():
        print("Got a system that does not report memory, but expected Linux.", file=sys.stderr)
        return 2
    path = options.output or (pathlib.Path("build/load.csv") if options.quick else ROWS)
    scale = "small" if options.quick else "full"
    rows = pd.read_csv(path) if options.report_only else measure(options.cases, scale, path)
    print(f"\n{load_table(rows)}\n\n{checks_list(rows)}\n\nRows: {path}")
    if options.docs:
        write_text(PAGE, fill(PAGE.read_text(), rows))
    return int(any(json.loads(wrong) for wrong in rows["wrong"]))


if __name__ == "__main__":
    sys.exit(main())
