"""Tasks and datasets of OpenML from a loopback server, with and without faults."""

import re
import shutil
import sys
import traceback

import numpy as np
import openml
import pandas as pd
import pytest
from openml_programs import files
from openml_server import (
    API,
    GARBAGE,
    HTML,
    OpenMLServer,
    arff_path,
    cut,
    element,
    error,
    instead,
    parquet_path,
    slow,
    splits_path,
    status,
    to_arff,
    to_parquet,
    to_splits,
    trickle,
    trickle_header,
)

from mixupe_sklearn.datasets._openml import transport
from mixupe_sklearn.datasets.openml import (
    load_dataset,
    load_task,
    tasks_of_suite,
)

COLUMNS = ["size", "count", "colour"]
TASK, DATA = f"{API}/task/59", f"{API}/data/61"
KEY = "0123456789abcdef"


def assert_equals_server(table, server, data_id):
    expected = server.tables[data_id]
    pd.testing.assert_frame_equal(
        table.X, expected[COLUMNS], check_dtype=False, check_categorical=False
    )
    assert table.X["colour"].dtype == "category"
    assert table.X[["size", "count"]].dtypes.map(pd.api.types.is_numeric_dtype).all()
    assert table.y.tolist() == expected["class"].tolist()
    assert (table.name, table.source, table.data_id) == (f"table-{data_id}", "openml", data_id)


@pytest.mark.parametrize(("task_id", "data_id"), [(59, 61), (60, 62)], ids=["parquet", "ARFF"])
def test_a_task_equals_the_table_on_the_server(server, cache, task_id, data_id):
    table = load_task(task_id, cache_dir=cache)
    assert_equals_server(table, server, data_id)
    assert table.task_id == task_id
    assert len(table.folds) == len(server.folds[task_id])
    for fold, expected in zip(table.folds, server.folds[task_id], strict=True):
        np.testing.assert_array_equal(fold[0], expected[0])
        np.testing.assert_array_equal(fold[1], expected[1])


def test_a_dataset_has_no_folds_and_takes_another_target(server, cache):
    table = load_dataset(61, cache_dir=cache)
    assert_equals_server(table, server, 61)
    assert table.folds is table.task_id is None
    other = load_dataset(61, target="count", cache_dir=cache)
    assert other.y.dtype == np.int64
    assert other.y.tolist() == server.tables[61]["count"].tolist()
    assert list(other.X) == ["size", "colour", "class"]


def test_a_column_of_missing_values_is_numeric(server, cache):
    table = server.tables[62].assign(size=np.nan)
    change = instead(to_arff(table), "text/plain")
    server.fault(arff_path(62), change)
    page = server.pages[f"{API}/data/62"].content
    server.fault(f"{API}/data/62", instead(re.sub(rb"<oml:md5.*?/oml:md5_checksum>", b"", page)))
    X = load_dataset(62, cache_dir=cache).X
    assert X["size"].isna().all()
    assert X["size"].dtype == float


# The client does not close a file of splits.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_openml_python_loads_the_same_task_from_its_own_cache_and_from_ours(
    server, full, tmp_path, monkeypatch
):
    table = load_task(59, cache_dir=full.parents[4])
    options = {"download_data": True, "download_splits": True, "download_features_meta_data": True}
    for root, n_requests in (
        (tmp_path / "of-its-own", 6),
        (shutil.copytree(full.parents[4], tmp_path / "copy"), 0),
    ):
        monkeypatch.setattr(openml.config, "_root_cache_directory", root)
        server.reset()
        task = openml.tasks.get_task(59, **options)
        X, y, *_ = task.get_dataset(
            **{k: v for k, v in options.items() if k != "download_splits"}
        ).get_data("class")
        assert sum(server.counts.values()) == n_requests
        pd.testing.assert_frame_equal(X, table.X)
        assert y.tolist() == table.y.tolist()
        assert task.get_split_dimensions() == (2, 3, 1)
        for number, (train, test) in enumerate(table.folds):
            repeat, fold = divmod(number, 3)
            theirs = task.get_train_test_split_indices(repeat=repeat, fold=fold)
            np.testing.assert_array_equal(theirs[0], train)
            np.testing.assert_array_equal(theirs[1], test)


SHORT = 0.5  # seconds
FAULTS = {
    "503": (status(503), "503 Service Unavailable"),
    "slow": (slow(30), "no complete answer within 0.5 s"),
    "trickle": (trickle(0.2), "no complete answer within 0.5 s"),
    "header": (trickle_header(0.1), "no complete answer within 0.5 s"),
    "cut": (cut, "the answer was cut short"),
    "html": (HTML, "an XML file of <html>|unsafe XML|not an|checksum"),
    "garbage": (GARBAGE, "not well-formed|not an"),
    "busy": (lambda answer: error(107, "Database connection error"), "Database connection error"),
}
PATHS = {
    "tasks/59/task.xml": TASK,
    "datasets/61/description.xml": DATA,
    "datasets/61/features.xml": f"{API}/data/features/61",
    "datasets/61/qualities.xml": f"{API}/data/qualities/61",
    "datasets/61/dataset_61.pq": parquet_path(61),
    "tasks/59/datasplits.arff": splits_path(59),
}
SLOW = ("slow", "trickle", "header")
# Time-outs take time, so they are tested on one file only.
CASES = [
    (fault, name) for fault in FAULTS for name in PATHS if fault not in SLOW or name.endswith(".pq")
]


@pytest.mark.parametrize(("fault", "name"), CASES)
def test_a_fault_is_retried_and_reported_and_leaves_the_cache_alone(
    server, full, cache, fault, name
):
    change, words = FAULTS[fault]
    (full / name).unlink()
    if name.endswith("qualities.xml"):
        (full / "datasets/61/dataset_61.pq").unlink()  # it is downloaded only along with the data
    before = files(cache)
    server.fault(PATHS[name], change)
    server.fault(arff_path(61), status(404))
    with pytest.raises(ConnectionError, match=words) as caught:
        load_task(59, cache_dir=cache, timeout=SHORT if fault in SLOW else 30, n_tries=2)
    assert server.counts[f"GET {PATHS[name]}"] == 2
    for part in ("Got task_id=59", PATHS[name], "tried 2 times in", str(cache), "OPENML_CACHE_DIR"):
        assert part in str(caught.value)
    assert files(cache) == before
    server.reset()
    assert_equals_server(load_task(59, cache_dir=cache), server, 61)


def shorter(server, path):
    table, folds = server.tables[61], server.folds[59]
    if path == parquet_path(61):
        return to_parquet(table[:50]), "it has 50 rows, but expected 60"
    if path == arff_path(62):
        return to_arff(server.tables[62][:50]), "its checksum is"
    return to_splits(folds[:5], 3), "it has 5 folds, but expected the 6 folds"


@pytest.mark.parametrize("path", [parquet_path(61), arff_path(62), splits_path(59)])
def test_a_file_with_too_few_rows_or_folds_is_refused(server, cache, path):
    content, words = shorter(server, path)
    server.fault(path, instead(content))
    server.fault(arff_path(61), status(404))
    with pytest.raises(ConnectionError, match=words):
        load_task(60 if path == arff_path(62) else 59, cache_dir=cache)
    assert server.counts[f"GET {path}"] == 3
    assert not files(cache)


def lines_changed(server, change):
    lines = server.pages[splits_path(59)].content.decode().splitlines()
    return "\n".join(change(lines)).encode()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lines: lines[:-1], "fold 2 of repeat 1 has 59 of 60 rows"),
        (lambda lines: [*lines[:-1], "TEST,60,1,2"], "it names the rows 0 to 60 of 60 rows"),
        (lambda lines: [*lines[:-1], lines[-1][:5]], "a line is incomplete"),
        (lambda lines: [*lines, lines[-1].replace("TEST", "TRAIN")], "on the same rows"),
        (lambda lines: [*lines, lines[-1]], "twice in one repeat"),
        (
            lambda lines: [line for line in lines if not line.endswith(",0,1")],
            "it has 5 folds, but expected the 6 folds of the task",
        ),
        (lambda lines: [line.replace("TEST", "TRAIN") for line in lines], "has no test rows"),
        (lambda lines: lines[:3], "not an ARFF file of splits"),
    ],
)
def test_invalid_splits_are_refused(server, full, cache, change, words):
    content = lines_changed(server, change)
    server.fault(splits_path(59), instead(content))
    with pytest.raises(ConnectionError, match=words):
        load_task(59, cache_dir=cache / "other", n_tries=1)
    path = full / "tasks/59/datasplits.arff"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=words) as caught:
        load_task(59, cache_dir=cache)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == content


def test_transient_faults_are_retried(server, cache):
    for path in PATHS.values():
        server.fault(path, status(503), times=2)
    assert_equals_server(load_task(59, cache_dir=cache), server, 61)
    assert {server.counts[f"GET {path}"] for path in PATHS.values()} == {3}


def test_arff_is_used_if_there_is_no_parquet(server, cache):
    server.fault(parquet_path(61), status(404))
    assert_equals_server(load_task(59, cache_dir=cache), server, 61)
    assert server.counts[f"GET {parquet_path(61)}"] == 1
    server.reset()
    assert_equals_server(load_task(59, cache_dir=cache, offline=True), server, 61)


@pytest.mark.parametrize(
    ("number", "words"), [(77, "412 .*, Unknown number"), (78, "404 Not Found")]
)
def test_an_unknown_id_is_requested_once(server, cache, number, words):
    with pytest.raises(
        ValueError, match=f"Got task_id={number}, but the server refuses it .*{words}"
    ):
        load_task(number, cache_dir=cache)
    assert server.counts[f"GET {API}/task/{number}"] == 1
    with pytest.raises(ValueError, match=f"Got data_id={number}, but the server refuses it"):
        load_dataset(number, cache_dir=cache)


def test_without_network_and_cache_the_message_names_both_remedies(cache, monkeypatch):
    with OpenMLServer() as gone:
        pass
    monkeypatch.setattr(openml.config, "server", gone.url)
    monkeypatch.setattr(transport, "BACKOFF_SECONDS", 0.1)
    with pytest.raises(ConnectionError) as caught:
        load_task(59, cache_dir=cache)
    message = str(caught.value)
    seconds = float(re.search(r"connection refused; tried 3 times in ([\d.]+) s: ", message)[1])
    assert seconds >= 0.3  # two waits, the second twice as long
    assert "connect to the network and run it again, or copy a cache" in message
    assert "set cache_dir or OPENML_CACHE_DIR to the copy." in message


def test_the_key_is_sent_to_the_server_only_and_is_in_no_message(server, cache, monkeypatch):
    monkeypatch.setattr(openml.config, "apikey", KEY)
    with OpenMLServer() as elsewhere:
        page = server.pages[DATA].content.replace(server.base.encode(), elsewhere.base.encode())
        server.fault(DATA, instead(page))
        load_task(59, cache_dir=cache)
        assert {request.query.get("api_key") for request in server.requests} == {KEY}
        assert [request.query for request in elsewhere.requests] == [{}]
    monkeypatch.setattr(openml.config, "server", elsewhere.url)
    with pytest.raises(ConnectionError) as caught:
        load_dataset(62, cache_dir=cache)
    assert KEY not in "".join(traceback.format_exception(caught.value))


def test_a_suite_lists_its_tasks_and_is_cached(server, cache):
    assert tasks_of_suite(99, cache_dir=cache) == [59, 60]
    assert tasks_of_suite(99, cache_dir=cache, offline=True) == [59, 60]
    assert openml.study.get_suite(99).tasks == [59, 60]
    with pytest.raises(ValueError, match="Got suite_id=98, but the server refuses it"):
        tasks_of_suite(98, cache_dir=cache)


def test_a_target_must_be_a_column_of_classes_without_missing_values(server, cache):
    with pytest.raises(
        ValueError, match="Got target='clas', but expected .* dataset 61, such as .*'class'"
    ):
        load_dataset(61, target="clas", cache_dir=cache)
    with pytest.raises(ValueError, match="Got target='size', which is missing in 9 of 60 rows"):
        load_dataset(61, target="size", cache_dir=cache)
    broken = server.tables[61].assign(count=np.linspace(0.25, 1, 60))
    server.fault(parquet_path(61), instead(to_parquet(broken)))
    with pytest.raises(ValueError, match="Got target='count' of dataset 61 with numbers such as"):
        load_dataset(61, target="count", cache_dir=cache / "other")
    page = server.pages[DATA].content.replace(
        element("default_target_attribute", "class").encode(), b""
    )
    server.fault(DATA, instead(page))
    with pytest.raises(
        ValueError, match="Got target=None, but expected one of the 4 columns of dataset 61"
    ):
        load_dataset(61, cache_dir=cache / "third")


def test_an_unsupported_format_or_kind_of_task_is_refused(server, cache):
    with pytest.raises(
        ValueError, match="Got data_id=63, which is not available as parquet or dense"
    ):
        load_dataset(63, cache_dir=cache)
    with pytest.raises(
        ValueError, match="Got task_id=58, which is a task of 'Supervised Regression'"
    ):
        load_task(58, cache_dir=cache)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: load_task(0), "Got task_id=0, but expected an integer >= 1."),
        (lambda: load_task("59"), "Got task_id='59', but expected"),
        (lambda: load_dataset(True), "Got data_id=True, but expected"),
        (lambda: load_task(59, timeout=0), "Got timeout=0, but expected a number of seconds > 0."),
        (lambda: tasks_of_suite(99, n_tries=1.5), "Got n_tries=1.5, but expected"),
    ],
)
def test_invalid_arguments_are_refused(call, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        call()


def test_without_openml_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "openml", None)
    monkeypatch.delitem(sys.modules, "mixupe_sklearn.datasets._openml.load", raising=False)
    with pytest.raises(ImportError, match=r"pip install mixupe-sklearn\[openml\]"):
        load_task(59)
