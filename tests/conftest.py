"""Fixtures: real data, a seed of torch's global generator before every test, processes, servers."""

import multiprocessing
import os
import shutil
import sys
from multiprocessing import forkserver

import numpy as np
import pytest
import torch
from hypothesis import settings
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris

# Random input (tests/fuzz): the same examples in each run of `make test`, and many more with
# --hypothesis-profile=thorough. There are no deadlines, and nothing is kept between runs.
settings.register_profile("test", max_examples=200, derandomize=True, deadline=None, database=None)
settings.register_profile("thorough", max_examples=5000, deadline=None, database=None)
settings.load_profile("test")


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture
def double():
    """Modules in double precision, for comparisons with small tolerances."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def one_thread():
    """One thread for torch: on a busy machine, several threads wait for each other for minutes."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def digits():
    X, y = load_digits(return_X_y=True)
    return X / 16, y


@pytest.fixture(scope="session")
def small_digits(digits):
    X, y = digits
    return X[:300], y[:300]


@pytest.fixture(scope="session")
def iris():
    return load_iris(return_X_y=True)


@pytest.fixture(scope="session")
def cancer():
    """Two classes with names; the columns are scaled but not centred."""
    data = load_breast_cancer()
    return data.data / data.data.std(axis=0), data.target_names[data.target]


@pytest.fixture(scope="session")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return X * 20, y


@pytest.fixture(scope="session")
def multilabel(digits):
    """Three labels of a digit: even, above four, prime."""
    X, y = digits
    return X[:600], np.column_stack([y % 2 == 0, y > 4, np.isin(y, [2, 3, 5, 7])])[:600].astype(int)


@pytest.fixture(scope="session")
def processes():
    """Processes that start quickly: a fork server has imported all libraries and has not run torch.

    Python has a single fork server, which imports the modules that its first user names.
    """
    context = multiprocessing.get_context("forkserver")
    # Late imports of a first fit (torch), of a first study (alembic), and of the programs.
    late = ["torch._dynamo", "alembic.command", "pyarrow.parquet", "psycopg"]
    context.set_forkserver_preload(
        [*late, "search_programs", "tabular_programs", "openml_programs"]
    )
    with pytest.MonkeyPatch.context() as patch:
        # Before Python 3.14, the server does not inherit the module path of this process.
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        forkserver.ensure_running()
    return context


@pytest.fixture(scope="module")
def running():
    """An OpenML server on the loopback interface."""
    from openml_server import OpenMLServer

    with OpenMLServer() as server:
        yield server


@pytest.fixture
def server(running, monkeypatch):
    """The local server as the configured one, without faults, with short waits between retries."""
    import openml

    from mixupe_sklearn.datasets._openml import transport

    running.reset()
    monkeypatch.setattr(openml.config, "server", running.url)
    monkeypatch.setattr(transport, "BACKOFF_SECONDS", 0.01)
    return running


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def full(server, cache):
    """The server's folder in a cache with task 59 and its data."""
    from mixupe_sklearn.datasets.openml import load_task

    load_task(59, cache_dir=cache)
    server.reset()
    return next(cache.rglob("tasks")).parent


@pytest.fixture(scope="module")
def browser():
    """A chromium browser; required where CI is set."""
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next(filter(None, map(shutil.which, names)), None)
    if chromium is None and "CI" not in os.environ:
        pytest.skip("chromium is not installed")
    assert chromium, "Got no chromium, but expected one where CI is set: install it."
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()
