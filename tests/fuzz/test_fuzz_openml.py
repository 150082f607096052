"""Random and damaged files of OpenML are read, or refused with a reason."""

import numpy as np
import pandas as pd
from fuzz import flipped, tried
from hypothesis import example, given
from hypothesis import strategies as st
from openml_server import make_folds, make_table, to_arff, to_parquet, to_splits

from mixupe_sklearn.datasets._openml.load import (
    read_arff,
    read_folds,
    read_parquet,
    set_dtypes,
    split_target,
)
from mixupe_sklearn.datasets._openml.metadata import (
    InvalidFileError,
    TaskMetadata,
    read_description,
    read_features,
    read_n_rows,
    read_suite,
    read_task,
    split_names,
)

HEAD = '<?xml version="1.0" encoding="UTF-8"?>'
NAMESPACE = 'xmlns:oml="http://openml.org/openml"'
TASK = f"""{HEAD}<oml:task {NAMESPACE}><oml:task_id>59</oml:task_id><oml:task_type_id>1</oml:task_type_id>
<oml:task_type>Supervised Classification</oml:task_type><oml:input name="source_data"><oml:data_set>
<oml:data_set_id>61</oml:data_set_id><oml:target_feature>class</oml:target_feature></oml:data_set></oml:input>
<oml:input name="estimation_procedure"><oml:estimation_procedure><oml:type>crossvalidation</oml:type>
<oml:data_splits_url>http://localhost/s.arff</oml:data_splits_url><oml:parameter name="number_repeats">1
</oml:parameter><oml:parameter name="number_folds">3</oml:parameter></oml:estimation_procedure></oml:input></oml:task>"""
DATA = f"""{HEAD}<oml:data_set_description {NAMESPACE}><oml:id>61</oml:id><oml:name>table</oml:name>
<oml:format>ARFF</oml:format><oml:url>http://localhost/t.arff</oml:url><oml:status>active</oml:status>
<oml:default_target_attribute>class</oml:default_target_attribute><oml:ignore_attribute>secret</oml:ignore_attribute>
<oml:md5_checksum>0cc175b9c0f1b6a831c399e269772661</oml:md5_checksum></oml:data_set_description>"""
FEATURES = f"""{HEAD}<oml:data_features {NAMESPACE}><oml:feature><oml:name>size</oml:name>
<oml:data_type>numeric</oml:data_type></oml:feature><oml:feature><oml:name>class</oml:name>
<oml:data_type>nominal</oml:data_type><oml:nominal_value>no</oml:nominal_value><oml:is_ignore>false</oml:is_ignore>
</oml:feature></oml:data_features>"""
QUALITIES = f"""{HEAD}<oml:data_qualities {NAMESPACE}><oml:quality><oml:name>NumberOfInstances</oml:name>
<oml:value>60.0</oml:value></oml:quality></oml:data_qualities>"""
SUITE = f"""{HEAD}<oml:study {NAMESPACE}><oml:id>99</oml:id><oml:tasks><oml:task_id>59</oml:task_id>
<oml:task_id>60</oml:task_id></oml:tasks></oml:study>"""
READERS = {
    "task": (TASK, lambda content: read_task(content, task_id=59)),
    "description": (DATA, lambda content: read_description(content, data_id=61)),
    "features": (FEATURES, read_features),
    "qualities": (QUALITIES, read_n_rows),
    "suite": (SUITE, lambda content: read_suite(content, suite_id=99)),
}
kinds = st.sampled_from(list(READERS))
BOMB = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY c SYSTEM "file:///etc/hostname">]>'
# Texts in the place of a number or a name.
insides = st.text(max_size=4) | st.sampled_from(
    [
        "²",
        "٣",
        "-1",
        "1e400",
        "inf",
        "nan",
        "9" * 5000,
        "&amp;",
        "&a;",
        "&c;",
        "<x/>",
        "",
        "\n",
        "&#0;",
    ]
)


@given(kinds, st.data())
def test_a_damaged_file_is_read_or_refused(kind, data):
    content, read = READERS[kind]
    damaged = data.draw(flipped(content.encode()))
    assert tried(lambda: read(damaged), InvalidFileError).kind in (
        None,
        InvalidFileError,
        ValueError,
    )


@given(kinds, st.data(), insides, st.sampled_from(["", BOMB]))
@example("task", None, "²", "")
@example("suite", None, "²", "")
@example("qualities", None, "inf", "")
@example("qualities", None, "9" * 5000, "")
def test_any_text_in_an_element_is_read_or_refused(kind, data, inside, doctype):
    content, read = READERS[kind]
    parts = content.replace(HEAD, HEAD + doctype).split("</oml:")
    for number in (
        range(len(parts) - 1) if data is None else [data.draw(st.integers(0, len(parts) - 2))]
    ):
        before, bracket, _ = parts[number].rpartition(">")
        changed = "</oml:".join([*parts[:number], before + bracket + inside, *parts[number + 1 :]])
        try:
            encoded = changed.encode()
        except UnicodeEncodeError:
            continue
        found = tried(lambda encoded=encoded: read(encoded), InvalidFileError)
        assert found.kind in (None, InvalidFileError, ValueError), found


@given(
    kinds,
    st.sampled_from(
        ["UTF-7", "UTF-16", "utf-32", "latin-1", "", "x", "idna", "base64", "big5", "é"]
    ),
)
@example("task", "utf-7")
@example("task", "no-such-encoding")
def test_any_encoding_is_read_or_refused(kind, encoding):
    content, read = READERS[kind]
    changed = content.replace("UTF-8", encoding).encode()
    assert tried(lambda: read(changed), InvalidFileError).kind in (None, InvalidFileError)


@given(st.binary(max_size=60), kinds)
def test_random_bytes_are_refused(content, kind):
    assert tried(lambda: READERS[kind][1](content), InvalidFileError).kind is InvalidFileError


CV = TaskMetadata("crossvalidation", 1, "class", "", n_repeats=1, n_folds=3)
SPLITS = to_splits(make_folds(12, 1, 3), 3)


@given(
    flipped(SPLITS),
    st.sampled_from([CV, TaskMetadata("holdout", 1, "class", "", None, None)]),
)
def test_damaged_splits_are_complete_or_refused(content, task):
    found = tried(lambda: read_folds(content, 12, task), InvalidFileError)
    for train, test in found.answer or []:
        assert not set(train) & set(test)
        assert set(train) | set(test) <= set(range(12))
    if found.refusal is None and task is CV:
        tested = np.concatenate([test for _, test in found.answer])
        assert sorted(tested.tolist()) == list(range(12))


TABLE = make_table(12, seed=0)
PARQUET, ARFF = to_parquet(TABLE), to_arff(TABLE)


@given(flipped(PARQUET) | st.binary(max_size=40))
def test_a_damaged_parquet_file_is_read_or_refused(content):
    assert tried(lambda: read_parquet(content, 12, 6), InvalidFileError).kind in (
        None,
        InvalidFileError,
    )


@given(flipped(ARFF), st.none() | st.text("0123456789abcdef", max_size=32))
def test_a_damaged_arff_file_has_its_checksum_or_is_refused(content, md5):
    found = tried(lambda: read_arff(content, None, md5), InvalidFileError)
    assert (found.refusal is None) <= (b"@data" in content.lower() and not md5)


@given(st.text(max_size=12), st.lists(st.text(max_size=3), max_size=3))
def test_names_in_a_text_are_split(text, columns):
    found = split_names(text, columns)
    assert found == [text] or all(name in text for name in found)


values = (
    st.none()
    | st.floats(-3, 3)
    | st.sampled_from(["a", "A", "b", "1", "true", True, False, 1, 2.0, np.nan])
)


@given(
    st.lists(values, min_size=1, max_size=6),
    st.sampled_from(["numeric", "nominal", "string", "date"]),
    st.lists(
        st.sampled_from(["a", "A", "b", "1", "1.0", "true", "False"]), max_size=4, unique=True
    ),
    st.sampled_from(["x", "y", None]),
)
def test_a_column_keeps_its_rows_whatever_the_features_say(cells, kind, declared, target):
    frame = pd.DataFrame(
        {"x": pd.Series(cells, dtype=object), "y": ["n", "m"] * 3 if len(cells) == 6 else "n"}
    )
    before = frame.copy()

    def read():
        return split_target(set_dtypes(frame, {"x": kind}, {"x": declared}), target, 61)

    found = tried(read)
    assert frame.equals(before)
    if found.refusal is None:
        X, y = found.answer
        assert len(X) == len(y) == len(cells)
        if target == "y":
            assert X["x"].isna().tolist() == pd.Series(cells, dtype=object).isna().tolist()
