"""What is finished stays, whatever happens: files are written whole or not at all."""

import errno
import os
import pathlib
import signal
import stat
import subprocess
import sys
import threading

import pytest

from mixupe_sklearn import _files
from mixupe_sklearn._files import replacing


def put(path, content, then=lambda: None):
    with replacing(path) as file:
        file.write(content)
        then()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def raise_no_room(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def interrupt():
    raise KeyboardInterrupt


CALLS = {"open": (pathlib.Path, "open"), "sync": (os, "fsync"), "replace": (os, "replace")}
BLOCKS = {"write": raise_no_room, "interrupt": interrupt}


@pytest.mark.parametrize("before", [None, b"old"], ids=["new", "there"])
@pytest.mark.parametrize("step", [*CALLS, *BLOCKS])
def test_a_step_that_fails_leaves_all_as_it_was(tmp_path, monkeypatch, before, step):
    path = tmp_path / "file"
    if before is not None:
        path.write_bytes(before)
    if step in CALLS:
        monkeypatch.setattr(*CALLS[step], raise_no_room)
    with pytest.raises(KeyboardInterrupt if step == "interrupt" else OSError):
        put(path, b"new" * 10_000, BLOCKS.get(step, lambda: None))
    monkeypatch.undo()
    assert names(tmp_path) == ([] if before is None else ["file"])
    assert before is None or path.read_bytes() == before
    put(path, b"new")
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["file"]


def test_the_old_content_is_there_until_the_new_is_whole_and_synced(tmp_path, monkeypatch):
    path = tmp_path / "file"
    put(path, b"old")
    seen, sync = [], os.fsync

    def watch(handle):
        is_folder = stat.S_ISDIR(os.fstat(handle).st_mode)
        seen.append((is_folder, os.fstat(handle).st_size if not is_folder else path.read_bytes()))
        assert is_folder or path.read_bytes() == b"old"
        sync(handle)

    monkeypatch.setattr(_files.os, "fsync", watch)
    put(path, b"newer")
    assert seen == [(False, 5), (True, b"newer")]


def test_permissions_are_those_of_the_file_before_or_the_usual_ones(tmp_path):
    mask = os.umask(0o027)
    try:
        put(tmp_path / "file", b"1")
        assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640
        (tmp_path / "file").chmod(0o600)
        put(tmp_path / "file", b"2")
        assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600
    finally:
        os.umask(mask)


def test_a_link_is_followed_and_stays(tmp_path):
    (tmp_path / "link").symlink_to("folder/file")
    (tmp_path / "folder").mkdir()
    for content in (b"new", b"newer"):
        put(tmp_path / "link", content)
        assert os.readlink(tmp_path / "link") == "folder/file"
        assert (tmp_path / "folder" / "file").read_bytes() == content


def test_what_is_no_file_is_refused_and_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", pathlib.Path(os.devnull)):
        with pytest.raises(OSError, match=r"^Got '.*', but expected the name of a file\.$"):
            put(path, b"")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    with pytest.raises(FileNotFoundError):
        put(tmp_path / "nowhere" / "file", b"")


def test_pieces_of_killed_writers_go_and_those_of_living_ones_stay(tmp_path):
    path = tmp_path / "a[0]*"
    code = f"""
import os, signal
from mixupe_sklearn._files import replacing
with replacing({str(path)!r}) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert done.returncode == -signal.SIGKILL
    (dead,) = names(tmp_path)
    (tmp_path / ".a[0]*.mine.part").write_text("somebody's")
    with replacing(path) as file:
        alive = pathlib.Path(file.name).name
        assert names(tmp_path) == sorted([".a[0]*.mine.part", alive])
        put(path, b"one")
        assert names(tmp_path) == sorted([".a[0]*.mine.part", alive, "a[0]*"])
        file.write(b"two")
    assert dead not in names(tmp_path)
    assert names(tmp_path) == [".a[0]*.mine.part", "a[0]*"]
    assert path.read_bytes() == b"two"


def test_writers_at_once_leave_one_whole_content(tmp_path):
    path = tmp_path / "file"
    contents = [bytes([65 + number]) * 50_000 for number in range(4)]
    wrong = []

    def write(content):
        for _ in range(15):
            put(path, content)
            if path.read_bytes() not in contents:
                wrong.append(content[:1])

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert path.read_bytes() in contents
    assert names(tmp_path) == ["file"]
