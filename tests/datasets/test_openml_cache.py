"""The cache of OpenML's files is read and added to. No file in it is changed or deleted."""

import os
import re
import shutil
import tempfile
from pathlib import Path

import openml_programs
import pytest
from openml_programs import files
from openml_server import API, instead, splits_path, status, to_splits

from mixupe_sklearn.datasets.openml import Item, load_dataset, load_task, prefetch


def test_cached_files_are_neither_requested_nor_changed(server, full, cache):
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
@pytest.mark.parametrize("damage", ["cut", "garbage", "html", "empty"])
def test_a_corrupt_file_in_the_cache_is_reported_and_left_alone(server, full, cache, name, damage):
    path = full / name
    content = path.read_bytes()
    damaged = {"cut": content[: len(content) * 2 // 3], "garbage": bytes(range(256)), "empty": b""}
    path.write_bytes(damaged.get(damage, b"<html>sorry</html>"))
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
    """A read-only copy outside of pytest's folders, which other users cannot enter."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        copy = shutil.copytree(cache, Path(folder, "cache"))
        for path in (copy, *copy.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        yield copy
        for path in (copy, *copy.rglob("*")):
            path.chmod(0o755)


def test_a_read_only_cache_can_be_read(server, open_to_all, processes):
    program = openml_programs.load_as_nobody
    n_rows, message = in_processes(processes, 1, program, server, open_to_all)[0]
    assert n_rows == 60
    assert message.startswith(
        f"OSError: Got the folder {str(open_to_all)!r} as cache, but it cannot be"
    )
    assert "(Permission denied): free some space, make it writable" in message


def test_a_full_disk_is_reported_and_leaves_no_partial_files(server, cache, processes):
    comments = b"% a long comment\n" * 5000
    server.fault(splits_path(59), instead(comments + server.pages[splits_path(59)].content))
    program = openml_programs.load_with_a_file_size_limit
    message = in_processes(processes, 1, program, server, cache, 50_000)[0]
    assert re.search(
        r"OSError: Got .* as cache, but it cannot be written \(File too large\): free", message
    )
    assert "datasplits.arff" not in " ".join(files(cache))  # nor a part of it
    assert load_task(59, cache_dir=cache).n_rows == 60


def test_offline_never_opens_a_socket(server, full, cache, processes):
    n_rows, message = in_processes(
        processes, 1, openml_programs.load_without_sockets, server, cache
    )[0]
    assert n_rows == 60
    assert "FileNotFoundError: Got task_id=60, but the cache has no file" in message
    assert "connect to the network" in message
    assert "cache_dir or OPENML_CACHE_DIR" in message
    assert not server.counts


def test_two_processes_that_prefetch_download_each_file_once(server, cache, processes):
    barrier = processes.Barrier(2)
    answers = in_processes(
        processes, 2, openml_programs.prefetch_concurrently, server, cache, barrier
    )
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


def test_an_interrupted_prefetch_is_resumed(server, cache):
    items = [Item("dataset", 62), Item("task", 59)]
    server.fault(splits_path(59), status(503))
    with pytest.raises(ConnectionError, match="Got task_id=59"):
        prefetch(items, cache_dir=cache)
    server.reset()
    assert [table.data_id for table in prefetch(items, cache_dir=cache)] == [62, 61]
    assert f"GET {API}/data/62" not in server.counts
    assert [table.n_rows for table in prefetch(items, cache_dir=cache, offline=True)] == [60, 60]


def test_a_cache_may_hold_the_first_folds_only(server, full, cache):
    (full / "tasks/59/datasplits.arff").write_bytes(to_splits(server.folds[59][:4], 3))
    with pytest.warns(UserWarning, match="Got 4 of the 6 folds of task 59"):
        table = load_task(59, cache_dir=cache)
    assert len(table.folds) == 4


def test_a_broken_link_in_the_cache_is_not_replaced(server, full, cache):
    path = full / "datasets/61/dataset_61.pq"
    path.unlink()
    path.symlink_to("nowhere")
    assert load_task(59, cache_dir=cache).n_rows == 60
    assert os.readlink(path) == "nowhere"
