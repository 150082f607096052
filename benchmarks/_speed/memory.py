"""Memory of fit and predict on one table: ``python -m benchmarks._speed.memory --kind float32``.

Each table has a process of its own: one epoch in batches of 1,000 rows, then ``predict`` and
``predict_proba``. Fit is told as the most memory that the process had beyond what it had before,
data included; predictions as what they add to data and result.

Linux tells a process how much memory it has (VmRSS) and had at most (VmHWM); the latter can be
set back. Both count the pages of a mapped file, which the system can take back at any time, so the
memory without these (RssAnon) is told too; nobody keeps its peak, so it is looked at often.
"""

import argparse
import contextlib
import json
import pathlib
import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import sparse

from mixupe_sklearn import MixupEClassifier, preset

STATUS = pathlib.Path("/proc/self/status")
MEGABYTE = 2**20
N_FEATURES, N_CLASSES, BLOCK = 100, 26, 10_000
# Seconds between two looks at the memory without pages of files.
PAUSE = 0.005


def can_measure() -> bool:
    """Whether the system tells how much memory a process has."""
    return STATUS.exists()


def memory_of_process() -> dict[str, int]:
    """Bytes in use now, at most since the last ``forget_peak``, and now without pages of files."""
    text = STATUS.read_text()
    names = {"now": "VmRSS", "most": "VmHWM", "private": "RssAnon"}
    return {
        word: 1024 * int(re.findall(rf"{name}:\s+(\d+) kB", text)[0])
        for word, name in names.items()
    }


def forget_peak() -> None:
    """Let the highest use be that of now; where that is not allowed, it stays the whole life's."""
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/self/clear_refs").write_text("5")


@contextlib.contextmanager
def watched() -> Iterator[list[int]]:
    """Run a block, and look from aside at its memory without pages of files."""
    seen, is_over = [memory_of_process()["private"]], threading.Event()

    def look() -> None:
        while not is_over.wait(PAUSE):
            seen.append(memory_of_process()["private"])

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        is_over.set()
        thread.join()


def make_rows(n_rows: int, dtype: Any = np.float32) -> np.ndarray:
    """Normal numbers, written block by block: no second table is made on the way."""
    rng = np.random.default_rng(0)
    X = np.empty((n_rows, N_FEATURES), dtype=dtype)
    for start in range(0, n_rows, BLOCK):
        part = X[start : start + BLOCK]
        part[:] = 10 * rng.standard_normal(part.shape, dtype=np.float32)
    return X


def make_file(n_rows: int) -> np.ndarray:
    """The rows in a file that has no name any more: it goes when the process goes."""
    with tempfile.TemporaryDirectory() as folder:
        name = pathlib.Path(folder) / "rows.npy"
        np.save(name, make_rows(n_rows))
        return np.load(name, mmap_mode="r")


def make_sparse(n_rows: int) -> sparse.csr_array:
    """Few numbers in many columns, and a fifth of the rows."""
    shape = (n_rows // 5, 50 * N_FEATURES)
    return sparse.random_array(shape, density=0.001, format="csr", dtype=np.float32, rng=0)


KINDS: dict[str, Callable[[int], Any]] = {
    "float32": make_rows,
    "float64": lambda n_rows: make_rows(n_rows, np.float64),
    "int8": lambda n_rows: make_rows(n_rows, np.int8),
    "float32, mapped file": make_file,
    "sparse": make_sparse,
}


def n_bytes_of(X: Any) -> int:
    """Bytes of a table's arrays."""
    arrays = (X.data, X.indices, X.indptr) if sparse.issparse(X) else (X,)
    return sum(array.nbytes for array in arrays)


def measure(kind: str, n_rows: int) -> dict[str, Any]:
    """MiB of the data, of fit at its peak, and of what predictions add."""
    params = preset("paper") | {"max_epochs": 1, "batch_size": 1_000}
    classifier = MixupEClassifier(**params, random_state=0)
    small = KINDS[kind](5_000)  # so that what is imported on the way is not counted
    classifier.fit(small, np.arange(small.shape[0]) % N_CLASSES).predict_proba(small)
    base = memory_of_process()
    X = KINDS[kind](n_rows)
    y = np.arange(X.shape[0]) % N_CLASSES
    forget_peak()
    with watched() as seen:
        classifier.fit(X, y)
    found = {
        "data": n_bytes_of(X) + y.nbytes,
        "fit": memory_of_process()["most"] - base["now"],
        "fit_private": max(seen) - base["private"],
        **{name: added_by(getattr(classifier, name), X) for name in ("predict", "predict_proba")},
    }
    mebibytes = {name: round(n_bytes / MEGABYTE, 2) for name, n_bytes in found.items()}
    return {"rows": X.shape[0], "features": X.shape[1], **mebibytes}


def added_by(predict: Callable[[Any], np.ndarray], X: Any) -> int:
    """Bytes that a prediction takes at its peak, beyond its result."""
    forget_peak()
    before = memory_of_process()["now"]
    result = predict(X)
    # A result may lie in memory that fit has left behind.
    return max(0, memory_of_process()["most"] - before - result.nbytes)


def main() -> None:
    """Measure one kind of table in this process, and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kind", choices=KINDS, default="float32")
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    print(json.dumps(measure(options.kind, options.rows)))


if __name__ == "__main__":
    main()
