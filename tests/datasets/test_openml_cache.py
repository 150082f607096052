"""The user's cache of OpenML's files is read, added to, and never harmed, whatever happens."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import openml
import openml_programs
import pytest
from openml_programs import files
from openml_server import API, instead, splits_path, status, to_splits

from mixupe_sklearn.datasets.openml import Item, load_dataset, load_task, prefetch


def test_what_is_cached_is_neither_asked_for_nor_changed(server, full, cache):
    before = files(cache)
    table = load_task(59, cache_dir=cache)
    assert table.fingerprint == load_task(59, cache_dir=str(cache), offline=True).fingerprint
    assert not server.counts
    assert files(cache) == before
    assert {Path(path).name for path in before} == {
        *("task.xml", "datasplits.arff", "description.xml", "features.xml"),
        *("qualities.xml", "dataset_61.pq"),
    }


NAMES = ["tasks/59/task.xml", "tasks/59/datasplits.arff"]
NAMES += [
    f"datasets/61/{name}"
    for name in ("description.xml", "features.xml", "qualities.xml", "dataset_61.pq")
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("harm", ["cut", "garbage", "html", "empty"])
def test_a_corrupt_file_in_the_cache_is_named_and_left_alone(server, full, cache, name, harm):
    path = full / name
    content = path.read_bytes()
    harmed = {"cut": content[: len(content) * 2 // 3], "garbage": bytes(range(256)), "empty": b""}
    path.write_bytes(harmed.get(harm, b"<html>sorry</html>"))
    before = files(cache)
    with pytest.raises(
        ValueError, match="in the cache, which is corrupt: .*; delete this file"
    ) as caught:
        load_task(59, cache_dir=cache)
    assert repr(str(path)) in str(caught.value)
    assert files(cache) == before
    assert not server.counts
    path.unlink()
    assert load_task(59, cache_dir=cache).n_rows == 60


def in_processes(processes, n, program, server, cache, *args):
    queue = processes.Queue()
    every = [
        processes.Process(
            target=openml_programs.run, args=(program, server.url, cache, queue, *args)
        )
        for _ in range(n)
    ]
    for process in every:
        process.start()
    answers = [queue.get(timeout=60) for _ in every]
    for process in every:
        process.join()
    return answers


@pytest.fixture
def open_to_all(cache, full):
    """A copy that a user with no rights can reach, which pytest's own folders do not allow."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        copy = shutil.copytree(cache, Path(folder, "cache"))
        for path in (copy, *copy.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        yield copy
        for path in (copy, *copy.rglob("*")):
            path.chmod(0o755)


def test_a_cache_that_cannot_be_written_can_be_read(server, open_to_all, processes):
    program = openml_programs.load_as_nobody
    n_rows, sentence = in_processes(processes, 1, program, server, open_to_all)[0]
    assert n_rows == 60
    assert sentence.startswith(
        f"OSError: Got the folder {str(open_to_all)!r} as cache, but nothing"
    )
    assert "(Permission denied): make room or make it writable" in sentence


@pytest.mark.skipif(os.getuid() != 0, reason="only root can read the file once and then not")
def test_a_file_that_cannot_be_read_is_named(server, open_to_all, processes):
    path = next(open_to_all.rglob("dataset_61.pq"))
    path.chmod(0)
    program = openml_programs.load_as_nobody
    sentence = in_processes(processes, 1, program, server, open_to_all)[0][0]
    assert f"OSError: Got {str(path)!r} in the cache, but it cannot be read (Permission" in sentence


@pytest.mark.parametrize(
    ("n_bytes", "words"), [(50_000, "as cache, but nothing can be kept"), (100, "scratch files")]
)
def test_a_full_disk_gets_a_sentence_and_leaves_no_pieces(server, cache, processes, n_bytes, words):
    comments = b"% a long comment\n" * 5000
    server.fault(splits_path(59), instead(comments + server.pages[splits_path(59)].content))
    program = openml_programs.load_with_little_room
    sentence = in_processes(processes, 1, program, server, cache, n_bytes)[0]
    assert re.search(rf"OSError: Got .*{words}.* \(File too large\): make room", sentence)
    assert not files(cache)


def test_offline_never_opens_a_socket(server, full, cache, processes):
    n_rows, sentence = in_processes(
        processes, 1, openml_programs.load_without_sockets, server, cache
    )[0]
    assert n_rows == 60
    assert "FileNotFoundError: Got task_id=60, but the cache has no file" in sentence
    assert "connect to the network" in sentence
    assert "cache_dir or OPENML_CACHE_DIR" in sentence
    assert not server.counts


def test_of_two_processes_that_prefetch_one_fetches(server, cache, processes):
    barrier = processes.Barrier(2)
    answers = in_processes(processes, 2, openml_programs.prefetch_at_once, server, cache, barrier)
    assert (
        answers[0]
        == answers[1]
        == [
            load_task(59, cache_dir=cache).fingerprint,
            load_dataset(62, cache_dir=cache).fingerprint,
        ]
    )
    assert set(server.counts.values()) == {1}
    assert len(server.counts) == 10


def test_a_prefetch_that_was_stopped_goes_on(server, cache):
    items = [Item("dataset", 62), Item("task", 59)]
    server.fault(splits_path(59), status(503))
    with pytest.raises(ConnectionError, match="Got task_id=59"):
        prefetch(items, cache_dir=cache)
    server.mend()
    assert [table.data_id for table in prefetch(items, cache_dir=cache)] == [62, 61]
    assert f"GET {API}/data/62" not in server.counts
    assert [table.n_rows for table in prefetch(items, cache_dir=cache, offline=True)] == [60, 60]


def test_threads_load_at_once(server, cache):
    prefetch([Item("task", 59), Item("task", 60)], cache_dir=cache)
    names = []
    threads = [
        threading.Thread(target=lambda n=n: names.append(load_task(n, cache_dir=cache).name))
        for n in (59, 60, 59, 60)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(names) == ["table-61", "table-61", "table-62", "table-62"]


def test_the_configuration_is_put_back(server, cache):
    before = openml.config.get_config_as_dict()
    load_task(59, cache_dir=cache)
    assert openml.config.get_config_as_dict() == before
    (next(cache.rglob("dataset_61.pq"))).write_bytes(b"")
    with pytest.raises(ValueError, match="corrupt"):
        load_task(59, cache_dir=cache)
    assert openml.config.get_config_as_dict() == before


def test_whole_folds_are_used_where_a_cache_has_some_of_them(server, full, cache):
    (full / "tasks/59/datasplits.arff").write_bytes(to_splits(server.folds[59][:4], 3))
    with pytest.warns(UserWarning, match="Got 4 of the 6 folds of task 59"):
        table = load_task(59, cache_dir=cache)
    assert len(table.folds) == 4


def test_pieces_of_a_killed_process_are_cleared_away(server, full, cache):
    path = full / "tasks/59/datasplits.arff"
    path.unlink()
    piece = path.with_name(f".{path.name}.0123.part")
    piece.write_bytes(b"half")
    load_task(59, cache_dir=cache)
    assert not piece.exists()
    assert path.is_file()


def test_a_broken_link_is_no_file_and_not_replaced(server, full, cache):
    path = full / "datasets/61/dataset_61.pq"
    path.unlink()
    path.symlink_to("nowhere")
    assert load_task(59, cache_dir=cache).n_rows == 60
    assert os.readlink(path) == "nowhere"


def test_a_folder_that_openml_cannot_make_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    code = "from mixupe_sklearn.datasets.openml import load_task; load_task(59, offline=True)"
    environment = os.environ | {"OPENML_CACHE_DIR": str(tmp_path / "file" / "cache")}
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert re.search(r"OSError: Got '.*file/cache' as a folder of openml", result.stderr)
