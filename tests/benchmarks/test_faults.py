"""Finished work survives faults: files are written completely or not at all."""

import errno
import io
import itertools
import os
import pathlib
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time

import numpy as np
import optuna
import pandas as pd
import pytest
import torch
from openml_programs import files
from paper import paper_classifier

from benchmarks._harness.docs_tables import block_of
from benchmarks._harness.environment import ROOT
from benchmarks.reliability._workloads import WORKLOADS, work
from benchmarks.reliability.faults import FAULTS, PAGE, RESULTS, Tally, Trial, as_markdown
from mixupe_sklearn import MixupESearchCV
from mixupe_sklearn._search import storage as storage_module
from mixupe_sklearn._search.heartbeats import LostTrials
from mixupe_sklearn._search.study import CLAIMED
from mixupe_sklearn._utils import atomic_files as _files
from mixupe_sklearn._utils.atomic_files import replacing

DAY = 24 * 3600
SENTENCE = "^Got storage='.*search.db', which failed during the search .database or disk is full."


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


def die_half_way(path):
    with replacing(path) as file:
        file.write(b"half")
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)


def test_partial_files_of_killed_writers_go_and_those_of_running_ones_stay(tmp_path, processes):
    path = tmp_path / "a[0]*"
    process = processes.Process(target=die_half_way, args=(path,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
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


def test_parameters_of_a_net_are_written_whole(small_digits, tmp_path, monkeypatch):
    X, y = small_digits
    net = paper_classifier(max_epochs=1, random_state=0).fit(X, y).net_
    names_of = {"f_params": tmp_path / "params.pt", "f_history": str(tmp_path / "history.json")}
    net.save_params(**names_of)
    before = files(tmp_path)
    save = torch.save

    def save_half(content, name):
        save(content, name)
        os.truncate(name, 100)
        raise_no_room()

    monkeypatch.setattr(torch, "save", save_half)
    with pytest.raises(OSError, match="No space"):
        net.save_params(**names_of)
    assert files(tmp_path) == before
    monkeypatch.undo()
    net.load_params(**names_of)
    stream = io.BytesIO()
    net.save_params(stream)  # skorch takes open files as well
    assert torch.load(io.BytesIO(stream.getvalue())).keys() == net.module_.state_dict().keys()


@pytest.fixture
def jumping(monkeypatch):
    """A wall clock that jumps by days, forwards and backwards, between any two readings."""
    clock, jumps = time.time, itertools.cycle([0.0, 3 * DAY, -2 * DAY, DAY])
    monkeypatch.setattr(time, "time", lambda: clock() + next(jumps))


def test_durations_do_not_follow_the_wall_clock(small_digits, jumping):
    classifier = paper_classifier(max_epochs=6, random_state=0).fit(*small_digits)
    assert all(0 <= seconds < 100 for seconds in classifier.net_.history[:, "dur"])


def test_a_timeout_does_not_follow_the_wall_clock(iris, monkeypatch):
    clock = time.time

    def set_the_clock(estimator, X, y):
        monkeypatch.setattr(time, "time", lambda: clock() + 30 * DAY)
        return estimator.score(X, y)

    search = MixupESearchCV(
        paper_classifier(max_epochs=1),
        {"alpha": [0.1, 0.5, 1.0]},
        cv=2,
        timeout=3600,
        vectorize=False,
        scoring=set_the_clock,
        refit=False,
    )
    assert len(search.fit(*iris).cv_results_["params"]) == 3


@pytest.fixture
def _quick(monkeypatch):
    monkeypatch.setattr(storage_module, "HEARTBEAT", 1)
    monkeypatch.setattr(storage_module, "GRACE", 1)


@pytest.mark.usefixtures("_quick")
def test_a_heartbeat_from_the_future_does_not_keep_a_dead_worker_alive(tmp_path):
    with storage_module.open_for_search(tmp_path / "search.db") as storage, storage_module.quiet():
        study = optuna.create_study(storage=storage)
        trial = study.ask()
        storage.record_heartbeat(trial._trial_id)
        with storage.engine.begin() as connection:  # then the clock is set back
            connection.exec_driver_sql(
                "UPDATE trial_heartbeats SET heartbeat = datetime('now', '+3 days')"
            )
        trial.set_user_attr(CLAIMED, [trial.number, "a worker that is dead"])
        lost_trials = LostTrials(study, storage)
        for _ in range(100):
            lost_trials.requeue()
            if len(study.get_trials()) == 2:
                break
            time.sleep(0.1)
        assert [t.state.name for t in study.get_trials()] == ["FAIL", "WAITING"]


@pytest.mark.usefixtures("_quick")
@pytest.mark.filterwarnings("ignore:Study .* has trials of other processes")
def test_a_storage_that_fails_during_a_search_is_an_error(iris, tmp_path, monkeypatch):
    path = tmp_path / "search.db"
    search = MixupESearchCV(
        paper_classifier(max_epochs=1, batch_size=75),
        {"alpha": [0.1 * number for number in range(1, 31)]},
        cv=2,
        storage=path,
        refit=False,
    )
    begin = sqlite3.connect

    def full(*arguments, **options):
        connection = begin(*arguments, **options)
        connection.execute("PRAGMA max_page_count=1")  # what it has now: no room for any more
        return connection

    with storage_module.open_for_search(path):
        pass  # the tables are made
    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", full)
        with pytest.raises(OSError, match=SENTENCE):
            search.fit(*iris)
    assert list(search.fit(*iris).cv_results_["state"]) == ["complete"] * 30


def test_a_damaged_page_of_a_database_is_noticed(tmp_path):
    """And so is a file that ends in the middle of a page."""
    path = tmp_path / "search.db"
    with storage_module.open_for_search(path) as storage, storage_module.quiet():
        optuna.create_study(storage=storage)
    content, rng = path.read_bytes(), np.random.default_rng(0)
    n_pages = len(content) // 4096
    assert n_pages > 20
    for page in rng.choice(np.arange(1, n_pages), 5, replace=False):
        start = 4096 * page
        path.write_bytes(content[:start] + rng.bytes(4096) + content[start + 4096 :])
        with pytest.raises(ValueError, match="search.db', which is not a complete SQLite database"):
            storage_module.open_storage(path)
    path.write_bytes(content[: -2 * 4096 - 10])
    with pytest.raises(ValueError, match="search.db', which is not a complete SQLite database"):
        storage_module.open_storage(path)
    path.write_bytes(content)
    with storage_module.open_for_search(path) as storage:
        assert len(optuna.get_all_study_names(storage)) == 1


@pytest.mark.parametrize("is_replaced", [True, False], ids=["replaced", "deleted"])
def test_a_search_ends_if_its_database_is_replaced_or_deleted(tmp_path, is_replaced):
    """It would go on in the old file, which has no name any more."""
    path, copy = tmp_path / "search.db", tmp_path / "copy.db"
    with storage_module.open_for_search(path) as storage, storage_module.quiet():
        optuna.create_study(storage=storage)
    shutil.copy(path, copy)

    def search():
        with storage_module.open_for_search(path) as storage, storage_module.quiet():
            study = optuna.create_study(storage=storage)
            study.tell(study.ask(), 1.0)
            copy.replace(path) if is_replaced else path.unlink()
            study.tell(study.ask(), 2.0)

    with pytest.raises(OSError, match="failed during the search .another file has taken its place"):
        search()


def test_the_page_names_the_grace_period():
    assert f"{storage_module.GRACE} seconds after its last heartbeat" in PAGE.read_text()


def test_what_is_doubled_or_lost_is_counted(tmp_path):
    tally = Tally("none", "benchmark")
    trial = Trial(tally, tmp_path, np.random.default_rng(0))
    work(trial.reported.__setitem__, "benchmark", tmp_path)
    trial.count()
    n_units = WORKLOADS["benchmark"].n_units
    assert (tally.n_kept, tally.n_doubled, tally.n_lost) == (n_units, 0, 0)
    head, _, second, *others = (tmp_path / "rows.csv").read_text().splitlines()
    (tmp_path / "rows.csv").write_text("\n".join([head, second, second, *others, ""]))
    (tmp_path / ".rows.csv.0123456789abcdef.part").touch()
    tally.n_kept = 0
    trial.count()
    assert (tally.n_kept, tally.n_doubled, tally.n_lost) == (n_units - 1, 2, 1)
    (tmp_path / "rows.csv").write_bytes(b"\0")
    tally.n_kept = 0
    trial.count()
    assert (tally.n_kept, tally.n_lost) == (0, 1 + n_units)


MAY_MOUNT = subprocess.run(["unshare", "-Urm", "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not MAY_MOUNT, reason="no mount namespace is available")
@pytest.mark.parametrize(
    ("works", "faults"),
    [
        (("fit with checkpoints", "OpenML cache"), list(FAULTS)),
        (("search", "search with two workers"), ["dying worker", "replaced database"]),
    ],
    ids=["training and cache", "search"],
)
def test_each_fault_once(tmp_path, works, faults):
    """The command: every kind of fault happens to a training, a cache or a search."""
    command = [sys.executable, "-m", "benchmarks.reliability.faults", "--times", "1"]
    command += ["--work", *works, "--only", *faults]
    command += ["--output", str(tmp_path / "faults.csv")]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    rows = pd.read_csv(tmp_path / "faults.csv")
    assert set(rows["fault"]) == {name for name in faults if set(works) & set(FAULTS[name][1])}
    assert (rows["tries"] == 1).all()
    assert not rows[["doubled", "lost"]].any(axis=None)
    assert len(result.stdout.splitlines()) == 2 + len(rows)


def test_the_table_of_the_page_is_that_of_the_committed_rows():
    rows = pd.read_csv(RESULTS, dtype=str)
    assert block_of(PAGE.read_text(), "faults") == as_markdown(rows.iloc[:, :6].values.tolist())
    assert set(rows["doubled"]) == set(rows["lost"]) == {"0"}
