"""Columns, classes and splits are as OpenML's metadata declares them, in whichever file."""

import re

import numpy as np
import pandas as pd
import pytest
from openml_server import (
    API,
    arff_path,
    element,
    features_of,
    instead,
    parquet_path,
    status,
    to_arff,
    to_parquet,
)

from mixupe_sklearn.datasets.openml import load_dataset, load_task

TASK, DATA, FEATURES = f"{API}/task/59", f"{API}/data/61", f"{API}/data/features/61"


def change(server, path, *replacements):
    """Serve a page with other text in it."""
    content = server.pages[path].content.decode()
    for old, new in replacements:
        assert old in content
        content = content.replace(old, new)
    server.fault(path, instead(content.encode()))


def serve(server, table):
    """Serve another table as dataset 61, in both formats."""
    server.fault(FEATURES, instead(features_of(table).content))
    server.fault(parquet_path(61), instead(to_parquet(table)))
    server.fault(arff_path(61), instead(to_arff(table)))
    checksum = re.search(
        r"<oml:md5_checksum>.*</oml:md5_checksum>", server.pages[DATA].content.decode()
    )
    change(server, DATA, (checksum[0], ""))


IGNORED = element("ignore_attribute", "secret")


@pytest.mark.parametrize(
    "lists",
    [
        element("ignore_attribute", "secret,size"),
        element("ignore_attribute", "'secret', \"size\""),
        element("ignore_attribute", "secret") + element("ignore_attribute", "size"),
    ],
    ids=["commas", "quotes", "elements"],
)
def test_columns_that_the_description_ignores_are_dropped(server, tmp_path, lists):
    change(server, DATA, (IGNORED, lists))
    assert list(load_dataset(61, cache_dir=tmp_path).X) == ["count", "colour"]


def test_a_name_with_a_comma_is_one_name(server, tmp_path):
    table = server.tables[61].rename(columns={"size": "size, count"})
    serve(server, table)
    server.fault(DATA, lambda answer: answer)
    change(server, DATA, (IGNORED, element("ignore_attribute", "size, count")))
    assert list(load_dataset(61, cache_dir=tmp_path).X) == ["count", "colour"]


def test_columns_that_features_xml_ignores_are_dropped(server, tmp_path):
    change(server, DATA, (IGNORED, ""), (element("row_id_attribute", "row"), ""))
    assert list(load_dataset(61, cache_dir=tmp_path).X) == ["size", "count", "colour"]


def test_a_named_target_is_kept_even_if_it_is_ignored(server, tmp_path):
    change(server, DATA, (IGNORED, element("ignore_attribute", "secret,count")))
    assert list(load_dataset(61, cache_dir=tmp_path).X) == ["size", "colour"]
    assert load_dataset(61, target="count", cache_dir=tmp_path).n_rows == 60


@pytest.mark.parametrize("words", [("false", "true"), ("TRUE", "FALSE"), ("False", "True")])
@pytest.mark.parametrize("stored", ["text", "booleans"])
def test_nominal_values_are_spelled_as_openml_declares_them(server, tmp_path, words, stored):
    is_second = np.arange(60) % 3 > 0
    values = pd.Categorical(np.array(words)[is_second.astype(int)], words)
    table = server.tables[61].assign(**{"class": values, "colour": values})
    serve(server, table)
    if stored == "booleans":
        flags = table["class"].str.lower() == "true"
        content = to_parquet(table.assign(**{"class": flags, "colour": flags}))
        server.fault(parquet_path(61), instead(content))
    parquet = load_dataset(61, cache_dir=tmp_path / "parquet")
    server.fault(parquet_path(61), status(404))
    arff = load_dataset(61, cache_dir=tmp_path / "arff")
    for loaded in (parquet, arff):
        assert loaded.y.tolist() == loaded.X["colour"].tolist() == list(values)
    assert parquet.fingerprint == arff.fingerprint


def test_nominal_values_stored_as_numbers_are_text(server, tmp_path):
    table = server.tables[61].assign(**{"class": pd.Categorical(["1", "2"] * 30)})
    serve(server, table)
    content = to_parquet(table.assign(**{"class": table["class"].astype(float)}))
    server.fault(parquet_path(61), instead(content))
    assert load_dataset(61, cache_dir=tmp_path).y.tolist() == ["1", "2"] * 30


@pytest.mark.parametrize("procedure", ["testontrainingdata", "learningcurve"])
def test_a_procedure_without_training_and_test_rows_is_refused(server, tmp_path, procedure):
    change(server, TASK, (element("type", "crossvalidation"), element("type", procedure)))
    sentence = f"Got task_id=59, whose rows are split by '{procedure}', but"
    with pytest.raises(ValueError, match=sentence):
        load_task(59, cache_dir=tmp_path)
    assert dict(server.counts) == {f"GET {TASK}": 1}


def test_a_dataset_with_one_class_is_refused(server, tmp_path):
    serve(server, server.tables[61].assign(**{"class": pd.Categorical(["yes"] * 60)}))
    with pytest.raises(ValueError, match="dataset 61 with one class only, 'yes', but expected two"):
        load_dataset(61, cache_dir=tmp_path)
