"""Memory in a process of its own: the peak of fit with its data, and what predictions add."""

import pathlib
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks._harness.resources import (
    MEGABYTE,
    added_by,
    can_measure,
    memory_of_process,
    private_memory_samples,
    reset_peak,
)
from benchmarks._harness.subprocesses import call_in_child
from mixupe_sklearn import MixupEClassifier, preset

N_FEATURES, N_CLASSES, BLOCK = 100, 26, 10_000


def make_rows(n_rows: int, dtype: Any = np.float32) -> np.ndarray:
    """Normal features, written block by block, so that no second table is allocated."""
    rng = np.random.default_rng(0)
    X = np.empty((n_rows, N_FEATURES), dtype=dtype)
    for start in range(0, n_rows, BLOCK):
        part = X[start : start + BLOCK]
        part[:] = 10 * rng.standard_normal(part.shape, dtype=np.float32)
    return X


def make_file(n_rows: int) -> np.ndarray:
    """A mapped file that is already unlinked: it ends with the process."""
    with tempfile.TemporaryDirectory() as folder:
        name = pathlib.Path(folder) / "rows.npy"
        np.save(name, make_rows(n_rows))
        return np.load(name, mmap_mode="r")


def make_sparse(n_rows: int) -> sparse.csr_array:
    """Few values in many columns, and a fifth of the rows."""
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
    """Bytes of the arrays of a table."""
    return sum(one.nbytes for one in ((X.data, X.indices, X.indptr) if sparse.issparse(X) else [X]))


def measure_kind(kind: str, n_rows: int) -> dict[str, Any]:
    """MiB of the data, of the peak of fit, and of what predictions add, in this process."""
    params = preset("paper") | {"max_epochs": 1, "batch_size": 1_000}
    classifier = MixupEClassifier(**params, random_state=0)
    small = KINDS[kind](5_000)  # so that imports on the way are not counted
    classifier.fit(small, np.arange(small.shape[0]) % N_CLASSES).predict_proba(small)
    base = memory_of_process()
    X = KINDS[kind](n_rows)
    y = np.arange(X.shape[0]) % N_CLASSES
    reset_peak()
    with private_memory_samples() as samples:
        classifier.fit(X, y)
    found = {
        "data": n_bytes_of(X) + y.nbytes,
        "fit": memory_of_process()["most"] - base["now"],
        "fit_private": max(samples) - base["private"],
        **{name: added_by(getattr(classifier, name), X) for name in ("predict", "predict_proba")},
    }
    mebibytes = {name: round(n_bytes / MEGABYTE, 2) for name, n_bytes in found.items()}
    return {"rows": X.shape[0], "features": X.shape[1], **mebibytes}


def measure_memory(n_rows: int, kinds: Sequence[str]) -> dict[str, Any]:
    """Figures of each kind of table from a new process; empty where Linux is not the system."""
    if not can_measure():
        return {}
    return {kind: call_in_child(__name__, "measure_kind", kind, n_rows) for kind in kinds}
