"""Four tables with text, two of them with missing values, from scikit-learn's own test data."""

import gzip
import pathlib
from typing import NamedTuple

import pandas as pd
import pytest
import sklearn

FOLDER = pathlib.Path(sklearn.__file__).parent / "datasets" / "tests" / "data" / "openml"


class Table(NamedTuple):
    """A file, its target, and the columns to drop: they reveal the target or identify a sample."""

    file: str
    target: str
    dropped: tuple[str, ...] = ()
    is_regression: bool = False


TABLES = {
    "titanic": Table(
        "id_40945/data-v1-dl-16826755.arff.gz", "survived", ("name", "ticket", "boat", "body")
    ),
    "penguins": Table("id_42585/data-v1-dl-21854866.arff.gz", "species"),
    "zoo": Table("id_62/data-v1-dl-52352.arff.gz", "type", ("animal",)),
    "cpu": Table("id_561/data-v1-dl-52739.arff.gz", "class", is_regression=True),
}


def load_table(name):
    """Features and targets; skips the test if the file or its reader is not installed."""
    arff = pytest.importorskip("arff")
    table = TABLES[name]
    path = FOLDER / table.file
    if not path.exists():
        pytest.skip("scikit-learn is installed without its test data")
    with gzip.open(path, "rt") as file:
        content = arff.load(file)
    frame = pd.DataFrame(content["data"], columns=[column for column, _ in content["attributes"]])
    return frame.drop(columns=[table.target, *table.dropped]), frame[table.target].to_numpy()
