"""What OpenML's files say about columns, classes and splits counts, in whichever file they say it."""

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
    """Serve other rows as data set 61, in both forms."""
    server.fault(FEATURES, instead(features_of(table).content))
    server.fault(parquet_path(61), instead(to_parquet(table)))
    server.fault(arff_path(61), instead(to_arff(table)))
    told = re.search(
        r"<oml:md5_checksum>.*</oml:md5_checksum>", server.pages[DATA].content.decode()
    )
    change(server, DATA, (told[0], ""))


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
def test_every_column_that_the_description_says_to_ignore_is_left_out(server, tmp_path, lists):
    change(server, DATA, (IGNORED, lists))
    assert list(load_dataset(61, cache_dir=tmp_path).X) == ["count", "colour"]


def test_a_name_with_a_comma_is_one_name(server, tmp_path):
    table = server.tables[61].rename(columns={"size": "size, count"})
    serve(server, table)
    server.fault(DATA, lambda answer: answer)
    change(server, DATA, (IGNORED, element("ignore_attribute", "size, count")))
    assert list(load_dataset(61, cache_dir=tmp_path).X) == ["count", "colour"]


def test_columns_that_features_xml_marks_are_left_out(server, tmp_path):
    change(server, DATA, (IGNORED, ""), (element("row_id_attribute", "row"), ""))
    assert list(load_dataset(61, cache_dir=tmp_path).X) == ["size", "count", "colour"]


def test_a_target_that_is_named_is_taken_though_it_is_to_be_ignored(server, tmp_path):
    change(server, DATA, (IGNORED, element("ignore_attribute", "secret,count")))
    assert list(load_dataset(61, cache_dir=tmp_path).X) == ["size", "colour"]
    assert load_dataset(61, target="count", cache_dir=tmp_path).n_rows == 60


@pytest.mark.parametrize("words", [("false", "true"), ("TRUE", "FALSE"), ("False", "True")])
@pytest.mark.parametrize("stored", ["text", "truth values"])
def test_classes_are_written_as_openml_writes_them(server, tmp_path, monkeypatch, words, stored):
    is_second = np.arange(60) % 3 > 0
    values = pd.Categorical(np.array(words)[is_second.astype(int)], words)
    table = server.tables[61].assign(**{"class": values, "colour": values})
    serve(server, table)
    if stored == "truth values":
        truth = table["class"].str.lower() == "true"
        content = to_parquet(table.assign(**{"class": truth, "colour": truth}))
        server.fault(parquet_path(61), instead(content))
    parquet = load_dataset(61, cache_dir=tmp_path / "parquet")
    monkeypatch.setenv("OPENML_SKIP_PARQUET", "true")
    arff = load_dataset(61, cache_dir=tmp_path / "arff")
    for loaded in (parquet, arff):
        assert loaded.y.tolist() == loaded.X["colour"].tolist() == list(values)
    assert parquet.fingerprint == arff.fingerprint


def test_numbers_that_stand_for_nominal_values_are_these_values(server, tmp_path):
    table = server.tables[61].assign(**{"class": pd.Categorical(["1", "2"] * 30)})
    serve(server, table)
    content = to_parquet(table.assign(**{"class": table["class"].astype(float)}))
    server.fault(parquet_path(61), instead(content))
    assert load_dataset(61, cache_dir=tmp_path).y.tolist() == ["1", "2"] * 30


SPLITS = element("type", "crossvalidation")
REPEATS = element("parameter", 2, name="number_repeats")


@pytest.mark.parametrize(
    ("replacements", "words"),
    [
        ([(SPLITS, element("type", "testontrainingdata"))], "'testontrainingdata'"),
        ([(SPLITS, element("type", "learningcurve"))], "'learningcurve'"),
        (
            [
                (SPLITS, element("type", "holdout")),
                (REPEATS, REPEATS + element("parameter", 4, name="number_samples")),
            ],
            "'holdout with samples'",
        ),
    ],
)
def test_a_task_without_training_and_test_rows_is_refused_by_name(
    server, tmp_path, replacements, words
):
    change(server, TASK, *replacements)
    with pytest.raises(ValueError, match=f"Got task_id=59, whose rows are split by {words}, but"):
        load_task(59, cache_dir=tmp_path)
    assert dict(server.counts) == {f"GET {TASK}": 1}


def test_a_set_with_one_class_is_refused(server, tmp_path):
    serve(server, server.tables[61].assign(**{"class": pd.Categorical(["yes"] * 60)}))
    with pytest.raises(
        ValueError, match="data set 61 with one class only, 'yes', but expected two"
    ):
        load_dataset(61, cache_dir=tmp_path)


def test_a_deactivated_set_is_loaded_with_a_warning(server, tmp_path):
    change(server, DATA, (IGNORED, IGNORED + element("status", "deactivated")))
    for load in (
        lambda: load_task(59, cache_dir=tmp_path),
        lambda: load_dataset(61, cache_dir=tmp_path),
    ):
        with pytest.warns(
            UserWarning, match="Got data set 61 .*, which OpenML has deactivated"
        ) as found:
            load()
        assert [warning.filename for warning in found] == [__file__]


def test_a_table_counts_its_classes_once(server, tmp_path, monkeypatch):
    table = load_dataset(61, cache_dir=tmp_path)
    assert table.n_classes == 2
    monkeypatch.setattr(np, "unique", None)
    assert table.n_classes == 2
