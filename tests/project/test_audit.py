"""The audit of packages, against a local service that answers like OSV."""

import importlib.util
import json
import pathlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

PATH = pathlib.Path(__file__).parents[2] / ".ci" / "audit.py"
spec = importlib.util.spec_from_file_location("audit", PATH)
audit = importlib.util.module_from_spec(spec)
spec.loader.exec_module(audit)

WEAK = {
    "id": "PYSEC-0000-1",
    "details": "It runs what it reads.",
    "affected": [
        {
            "package": {"name": "feeble", "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "2.0"}]}],
            "versions": ["1.0"],
        }
    ],
}


class Service(BaseHTTPRequestHandler):
    def do_POST(self):
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = question["package"]["name"]
        self.send_response(500 if name == "broken" else 200)
        self.end_headers()
        answer = {"vulns": [WEAK]} if name == "feeble" else {}
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, format, *args):
        """Print nothing."""


@pytest.fixture(scope="module")
def service():
    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1/query"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def silent():
    """A service that accepts the request and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"


def run(tmp_path, text, service, first="5"):
    requirements = tmp_path / "constraints.txt"
    requirements.write_text(text)
    return audit.main(["--requirements", str(requirements), "--service", service, "--first", first])


def test_a_missing_service_is_reported_and_does_not_fail(tmp_path, capsys, silent):
    for address, first in (("http://127.0.0.1:9/", "5"), (silent, "0.2")):
        assert run(tmp_path, "feeble==1.0\n", address, first) == 0
        assert capsys.readouterr().out == audit.NOT_RUN + "\n"


def test_packages_without_known_vulnerabilities_pass(tmp_path, capsys, service):
    assert run(tmp_path, "# a comment\nsturdy==1.0\nsolid==2.0\n", service) == 0
    assert capsys.readouterr().out == "pip-audit: no known weakness in 2 packages\n"


def test_a_known_vulnerability_fails(tmp_path, capsys, service):
    assert run(tmp_path, "sturdy==1.0\nfeeble==1.0\n", service) == 1
    told = "pip-audit: feeble 1.0 has known weaknesses: PYSEC-0000-1\n"
    assert capsys.readouterr().out == told


def test_a_lost_connection_is_reported(tmp_path, capsys, service):
    assert run(tmp_path, "sturdy==1.0\nbroken==1.0\n", service) == 0
    assert "pip-audit: not run to its end, the service was lost: " in capsys.readouterr().out


def test_an_unreadable_list_fails(tmp_path, capsys, service):
    assert run(tmp_path, "sturdy>=1.0\n", service) == 1
    assert capsys.readouterr().out.startswith("pip-audit: not run to its end, ")
