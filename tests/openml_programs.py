"""What the tests of OpenML's loaders share, and run in processes of their own."""

import hashlib
import os
import resource
import socket
import traceback

import openml

from mixupe_sklearn.datasets.openml import Item, load_task, prefetch


def files(folder):
    """What every file holds; the lock holds nothing and does not count."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def run(program, url, cache_dir, queue, *args):
    """Call a program, and send back what it returns, or how it failed."""
    openml.config.server = url
    try:
        queue.put(program(cache_dir, *args))
    except BaseException:
        queue.put(traceback.format_exc())


def sentence_of(call, *args, **options):
    try:
        return call(*args, **options).n_rows
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def load_as_nobody(cache_dir):
    """Load what is in a cache that is not ours to write, and something that is not in it."""
    load_task(59, cache_dir=cache_dir, offline=True)  # imports what a nobody may not be able to
    if os.getuid() == 0:  # root may write everywhere
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    return [sentence_of(load_task, number, cache_dir=cache_dir) for number in (59, 60)]


def load_with_little_room(cache_dir, n_bytes):
    """Load while no file may grow beyond a size: writing fails as it does on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))
    return sentence_of(load_task, 59, cache_dir=cache_dir)


def load_without_sockets(cache_dir):
    """Load offline, where opening a connection is an error."""

    def refuse(*args, **options):
        raise AssertionError("a socket was opened")

    socket.socket = socket.create_connection = socket.getaddrinfo = refuse
    return [sentence_of(load_task, n, cache_dir=cache_dir, offline=True) for n in (59, 60)]


def prefetch_at_once(cache_dir, barrier):
    barrier.wait(60)
    tables = prefetch([Item("task", 59), Item("dataset", 62)], cache_dir=cache_dir)
    return [table.fingerprint for table in tables]
