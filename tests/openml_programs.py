"""Programs that the tests of OpenML's loaders run in other processes."""

import hashlib
import os
import resource
import socket
import traceback

import openml

from mixupe_sklearn.datasets.openml import Item, load_task, prefetch


def files(folder):
    """Checksums of all files but the lock."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def run(program, url, cache_dir, queue, *args):
    """Call a program, and send back its result or its traceback."""
    openml.config.server = url
    try:
        queue.put(program(cache_dir, *args))
    except BaseException:
        queue.put(traceback.format_exc())


def result_of(call, *args, **options):
    try:
        return call(*args, **options).n_rows
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def load_as_nobody(cache_dir):
    """Load from a read-only cache: a task that is in it, and one that is not."""
    load_task(
        59, cache_dir=cache_dir, offline=True
    )  # imports modules before the rights are dropped
    if os.getuid() == 0:  # root may write everywhere
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    return [result_of(load_task, number, cache_dir=cache_dir) for number in (59, 60)]


def load_with_a_file_size_limit(cache_dir, n_bytes):
    """Load with a limit on the size of files: writing fails as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))
    return result_of(load_task, 59, cache_dir=cache_dir)


def load_without_sockets(cache_dir):
    """Load offline while opening a socket is an error."""

    def refuse(*args, **options):
        raise AssertionError("a socket was opened")

    socket.socket = socket.create_connection = socket.getaddrinfo = refuse
    return [result_of(load_task, n, cache_dir=cache_dir, offline=True) for n in (59, 60)]


def prefetch_concurrently(cache_dir, barrier):
    barrier.wait(60)
    tables = prefetch([Item("task", 59), Item("dataset", 62)], cache_dir=cache_dir)
    return [table.fingerprint for table in tables]
