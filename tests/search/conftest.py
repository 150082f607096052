"""A real database server for the tests of shared studies."""

import pathlib
import tempfile

import pytest


@pytest.fixture(scope="session")
def postgresql_uri():
    """A PostgreSQL server in a folder outside of pytest's, whose permissions every run resets."""
    pgserver = pytest.importorskip("pgserver")
    with tempfile.TemporaryDirectory(prefix="mixupe-postgresql-") as folder:
        server = pgserver.get_server(pathlib.Path(folder) / "pg")
        yield server.get_uri()
        server.cleanup()
