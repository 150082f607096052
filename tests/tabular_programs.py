"""Programs that tests of the tabular benchmark start in other processes and kill."""

import numpy as np
import pandas as pd

from benchmarks._harness.results_file import ResultsFile
from benchmarks._harness.runner import Item, run
from benchmarks._tabular.fits import TabularPlan
from benchmarks._tabular.protocol import FITS
from mixupe_sklearn.datasets import Table

# Enough epochs for a run of some seconds with two processes.
PLAN = TabularPlan(
    ("erm", "mixup", "mixupe"),
    grid="reduced",
    n_seeds=4,
    training={"max_epochs": 12, "batch_size": 10},
)


def two_tables():
    """Yield a numeric dataset with two classes, and one with text, missing values and three classes."""
    rng = np.random.default_rng(0)
    for name, n_rows, n_classes in (("numbers", 120, 2), ("mixed", 150, 3)):
        X = pd.DataFrame(rng.normal(size=(n_rows, 3)), columns=["a", "b", "c"])
        y = np.array(["low", "middle", "high"], dtype=object)[:n_classes][
            np.digitize(X["a"] + 0.3 * X["b"], np.linspace(-1, 1, n_classes + 1)[1:-1])
        ]
        if name == "mixed":
            X["a"] = X["a"].mask(rng.random(n_rows) < 0.1)
            X["city"] = np.where(rng.random(n_rows) < 0.5, "Oslo", "Bonn")
        yield Table(name, X, y, "embedded")


def main(path, n_jobs):
    """Run all fits into a file."""
    items = [Item(table.name, lambda table=table: table) for table in two_tables()]
    with ResultsFile(path, FITS) as file:
        run(items, PLAN, file, n_jobs=n_jobs, is_shown=False)
