"""Addresses that the loader of OpenML's data requests, and the size of what it accepts."""

import re
import socket
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import openml
import pytest
from openml_server import API, Answer, instead, parquet_path, splits_path

from mixupe_sklearn.datasets._openml import transport
from mixupe_sklearn.datasets._openml.transport import MAX_REDIRECTS
from mixupe_sklearn.datasets.openml import load_task

PUBLIC, LOCAL = "https://www.openml.org", "http://127.0.0.1:8080"
ELSEWHERE = "93.184.215.14"  # nothing is sent there: the resolver below only names it
NAMES = {
    "www.openml.org": [ELSEWHERE],
    "data.openml.org": [ELSEWHERE, "2606:2800:21f::1"],
    "openml.intranet": ["10.0.0.4"],
    "files.intranet": ["10.0.0.4"],
    "other.intranet": ["10.0.0.5"],
    "private.evil.org": ["10.0.0.4"],
    "half.evil.org": [ELSEWHERE, "127.0.0.1"],
}
OWN_ADDRESSES = ["127.0.0.1", "127.9.9.9", "0.0.0.0", "0.1.2.3", "127.1", "0", "2130706433"]
OWN_ADDRESSES += ["0x7f000001", "0x7f.1", "0177.0.0.1", "[::1]", "[::]", "[::ffff:127.0.0.1]"]
OWN_ADDRESSES += ["[::127.0.0.1]", "[2002:7f00:1::]", "[64:ff9b::127.0.0.1]", "[64:ff9b:1::7f00:1]"]
OWN_ADDRESSES += ["localhost", "LOCALHOST", socket.gethostname()]
PRIVATE_ADDRESSES = ["10.0.0.5", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"]
PRIVATE_ADDRESSES += ["192.0.2.1", "224.0.0.1", "255.255.255.255", "[fd00::1]", "[fe80::1]"]
PRIVATE_ADDRESSES += ["[fec0::1]", "[ff02::1]", "[::ffff:10.0.0.5]", "[2002:a00:5::]"]
PRIVATE_ADDRESSES += ["[64:ff9b::a9fe:a9fe]", "[2001::1]", "[2001:db8::1]"]
connect = socket.socket.connect


@pytest.fixture
def names(monkeypatch):
    """A resolver that knows these names, and reads addresses as the system's does."""
    known, system = dict(NAMES), transport.resolve

    def resolve(host):
        if host in known:
            found = known[host]
            return found.pop(0) if isinstance(found[0], list) else found
        if re.search("[g-wyz]", host) and host not in map(str.lower, OWN_ADDRESSES):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return system(host)

    monkeypatch.setattr(transport, "resolve", resolve)
    transport.server_addresses.cache_clear()
    yield known
    transport.server_addresses.cache_clear()


@pytest.fixture(autouse=True)
def _only_loopback(monkeypatch):
    """A connection to another machine is an error. A datagram socket sends nothing by itself."""

    def refuse(self, address):
        is_stream = self.type == socket.SOCK_STREAM
        assert not is_stream or address[0].startswith(("127.", "::1")), address
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.parametrize(
    ("url", "server", "is_requested"),
    [
        ("https://data.openml.org/x", PUBLIC, True),
        ("https://8.8.8.8/x", PUBLIC, True),
        ("https://[2606:2800:21f::1]/x", PUBLIC, True),
        ("https://[64:ff9b::808:808]/x", PUBLIC, True),
        ("http://data.openml.org/x", PUBLIC, False),
        ("http://www.openml.org:8080/x", PUBLIC, False),
        ("file:///etc/passwd", PUBLIC, False),
        ("ftp://www.openml.org/x", PUBLIC, False),
        ("javascript:alert(1)", PUBLIC, False),
        ("//data.openml.org/x", PUBLIC, False),
        ("", PUBLIC, False),
        ("https://[::1", PUBLIC, False),
        ("https://data.openml.org:x/", PUBLIC, False),
        ("https://private.evil.org/x", PUBLIC, False),
        ("https://half.evil.org/x", PUBLIC, False),
        # The configured server, and other ports of its machine in a private network.
        ("http://openml.intranet:8080/x", "http://openml.intranet:8080", True),
        ("http://openml.intranet:9/x", "http://openml.intranet:8080", True),
        ("http://files.intranet/x", "http://openml.intranet:8080", True),
        ("http://other.intranet:8080/x", "http://openml.intranet:8080", False),
        ("https://10.0.0.5/x", "https://10.0.0.4", False),
        ("http://127.0.0.1/x", "http://openml.intranet:8080", False),
        ("http://127.0.0.1:9/x", LOCAL, True),
        ("http://127.0.0.2:9/x", LOCAL, False),
        ("file://127.0.0.1/etc/passwd", LOCAL, False),
        ("http://data.openml.org/x", LOCAL, False),
        ("http://127.0.0.1@data.openml.org/x", LOCAL, False),
    ],
)
def test_only_public_https_and_the_configured_server_are_requested(
    url, server, is_requested, names
):
    try:
        addresses = transport.checked_addresses(url, server)
    except ValueError:
        addresses = []
    assert bool(addresses) == is_requested


@pytest.mark.parametrize("host", OWN_ADDRESSES + PRIVATE_ADDRESSES)
def test_no_form_of_an_address_of_this_machine_or_its_network_is_requested(host, names):
    for scheme in ("http", "https"):
        with pytest.raises(ValueError, match=re.escape(host)):
            transport.checked_addresses(f"{scheme}://{host}/x", PUBLIC)


def test_a_public_address_of_this_machine_is_recognized(monkeypatch):
    assert transport._is_own("127.0.0.1")
    assert not transport._is_own(ELSEWHERE)
    monkeypatch.setattr(transport, "_is_own", lambda address: address == "8.8.4.4")
    assert [transport.is_public(one) for one in ("8.8.8.8", "8.8.4.4")] == [True, False]


def redirect(target, body=b""):
    def change(answer):
        return Answer(body, 302, headers={"Location": target})

    return change


def test_a_redirect_is_followed_without_the_key(server, cache, monkeypatch):
    monkeypatch.setattr(openml.config, "apikey", "a" * 32)
    server.pages["/moved"] = server.pages[f"{API}/task/59"]
    server.fault(f"{API}/task/59", redirect("/moved"))
    assert load_task(59, cache_dir=cache).n_rows == 60
    asked = {request.path: request.query for request in server.requests}
    assert asked[f"{API}/task/59"] == {"api_key": "a" * 32}
    assert asked["/moved"] == {}


@pytest.mark.parametrize(
    ("server", "proxy", "has_key"),
    [
        ("http://openml.intranet", "", False),
        ("https://openml.intranet", "", True),
        ("http://127.0.0.1:9", "", True),
        ("http://127.0.0.1:9", "http://127.0.0.1:8", False),
        ("http://only.the.proxy.knows", "http://127.0.0.1:8", False),
    ],
)
def test_the_key_is_not_sent_without_encryption_into_a_network(
    names, monkeypatch, server, proxy, has_key
):
    sent = []

    def send(self, request, **options):
        sent.append(request.url)
        raise transport.requests.ConnectionError("no connection")

    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.setenv(name, proxy)
        monkeypatch.setenv(name.upper(), proxy)
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setattr(transport.HTTPAdapter, "send", send)
    with pytest.raises(transport.InvalidFileError):
        transport._download(f"{server}/x", server, 1.0, "a" * 32)
    assert [("api_key=" + "a" * 32) in url for url in sent] == [has_key]


@pytest.fixture
def listeners():
    """Two servers with the same port: what they are asked for, by their address."""
    asked = {"127.0.0.1": [], "127.0.0.2": []}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked[self.server.server_address[0]].append((self.headers["Host"], self.path))
            _, is_redirect, target = self.path.partition("/to/")
            self.send_response(302 if is_redirect else 200)
            self.send_header("Location" if is_redirect else "Server", target or "a listener")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, format, *args):
            pass

    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Handler)]
    port = servers[0].server_port
    servers.append(ThreadingHTTPServer(("127.0.0.2", port), Handler))
    threads = [threading.Thread(target=one.serve_forever, args=(0.02,)) for one in servers]
    for thread in threads:
        thread.start()
    yield servers, port, asked
    for one, thread in zip(servers, threads, strict=True):
        one.shutdown()
        one.server_close()
        thread.join()


def download(url, server):
    return transport._download(url, server, 10.0, "")


def test_a_name_that_changes_its_address_is_not_asked_at_the_new_one(
    listeners, names, monkeypatch, tmp_path
):
    """The address that was checked is the one connected to, by the name of the certificate."""
    servers, port, asked = listeners
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=data.example"]
    command += ["-addext", "subjectAltName=DNS:data.example", "-keyout", key, "-out", certificate]
    subprocess.run(command, check=True, capture_output=True)
    context, requested = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), []
    context.load_cert_chain(certificate, key)
    context.sni_callback = lambda _, name, __: requested.append(name)
    for one in servers:
        one.socket = context.wrap_socket(one.socket, server_side=True)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    # For this test, the second address counts as public.
    monkeypatch.setattr(transport, "is_public", lambda address: address == "127.0.0.2")
    names["data.example"] = names["other.example"] = [["127.0.0.2"], ["127.0.0.1"]]
    assert download(f"https://data.example:{port}/x", PUBLIC) == b"ok"
    assert asked == {"127.0.0.1": [], "127.0.0.2": [(f"data.example:{port}", "/x")]}
    assert requested == ["data.example"]
    with pytest.raises(transport.RefusedError, match="it is not public https"):
        download(f"https://data.example:{port}/x", PUBLIC)
    names["other.example"] = ["127.0.0.2"]
    with pytest.raises(transport.InvalidFileError, match="mismatch|doesn't match|not valid"):
        download(f"https://other.example:{port}/x", PUBLIC)
    assert asked["127.0.0.1"] == []
    assert len(asked["127.0.0.2"]) == 1


def test_the_configured_server_keeps_its_first_address(listeners, names):
    _, port, asked = listeners
    server = f"http://evil.example:{port}"
    names["evil.example"] = [["127.0.0.2"], ["127.0.0.1"]]
    for _ in range(2):
        assert download(f"{server}/x", server) == b"ok"
    assert asked == {"127.0.0.1": [], "127.0.0.2": [(f"evil.example:{port}", "/x")] * 2}
    with pytest.raises(transport.RefusedError):
        download(f"http://127.0.0.1:{port}/x", server)
    names["half.example"] = [ELSEWHERE, "127.0.0.1"]
    assert transport.server_addresses("half.example") == [ELSEWHERE]


def test_all_addresses_of_a_server_are_tried(listeners, names):
    _, port, asked = listeners
    names["two.example"] = ["127.0.0.3", "127.0.0.2"]  # nothing listens at the first
    assert download(f"http://two.example:{port}/x", f"http://two.example:{port}") == b"ok"
    assert asked["127.0.0.2"] == [(f"two.example:{port}", "/x")]


def test_a_redirect_does_not_lead_to_this_machine(listeners, names, monkeypatch):
    """Whatever form its address has."""
    _, port, asked = listeners
    server = f"http://openml.example:{port}"
    monkeypatch.setattr(transport, "is_public", lambda address: address == "127.0.0.2")
    names["openml.example"] = ["127.0.0.2"]
    names["rebound.example"] = ["127.0.0.1"]
    assert download(f"{server}/to/{server}/x", server) == b"ok"
    for host in [*OWN_ADDRESSES, "rebound.example"]:
        for scheme in ("http", "https"):
            with pytest.raises((transport.RefusedError, transport.InvalidFileError)):
                download(f"{server}/to/{scheme}://{host}:{port}/x", server)
    assert asked["127.0.0.1"] == []
    assert len(asked["127.0.0.2"]) == 2 + 2 * (len(OWN_ADDRESSES) + 1)


def test_the_body_of_a_redirect_is_limited_too(server, cache, monkeypatch):
    monkeypatch.setattr(transport, "MAX_BYTES", 10**5)
    server.fault(f"{API}/task/59", redirect("/x", bytes(2 * 10**5)))
    with pytest.raises(ValueError, match="it sends more than 100,000 bytes"):
        load_task(59, cache_dir=cache)


def test_a_name_without_an_address_is_tried_again(names, monkeypatch):
    monkeypatch.setattr(transport, "BACKOFF_SECONDS", 0.01)
    with pytest.raises(transport.DownloadError, match="name or service not known; tried 2 times"):
        transport.fetch(f"{PUBLIC}.nowhere/x", bytes, server=PUBLIC, timeout=5, n_tries=2)


@pytest.mark.parametrize(
    "target", ["file:///etc/passwd", "http://8.8.8.8/x", "gopher://x", "https://[::1"]
)
def test_a_redirect_to_a_forbidden_address_is_not_followed(server, cache, target):
    server.fault(f"{API}/task/59", redirect(target))
    message = re.escape(f"the address {target!r} is not requested: it is not public https")
    with pytest.raises(ValueError, match=message):
        load_task(59, cache_dir=cache)
    assert len(server.requests) == 1


def test_the_number_of_redirects_is_limited(server, cache):
    server.fault(f"{API}/task/59", redirect(f"{API}/task/59"))
    with pytest.raises(ValueError, match=f"redirects more than {MAX_REDIRECTS} times"):
        load_task(59, cache_dir=cache)
    assert len(server.requests) == MAX_REDIRECTS + 1


def test_an_address_in_metadata_is_checked_too(server, cache):
    page = server.pages[f"{API}/task/59"].content
    address = f"{server.base}{splits_path(59)}".encode()
    assert address in page
    server.fault(f"{API}/task/59", instead(page.replace(address, b"file:///etc/passwd")))
    with pytest.raises(ValueError, match="file:///etc/passwd: .* is not requested"):
        load_task(59, cache_dir=cache)
    assert not list(cache.rglob("*.xml"))


def test_an_answer_above_the_size_limit_is_refused(server, cache, monkeypatch):
    n_bytes = len(server.pages[parquet_path(61)].content)
    largest = max(len(page.content) for page in server.pages.values())
    monkeypatch.setattr(transport, "MAX_BYTES", largest)
    assert load_task(59, cache_dir=cache).n_rows == 60
    monkeypatch.setattr(transport, "MAX_BYTES", n_bytes // 2)
    monkeypatch.setattr(transport, "CHUNK_BYTES", 64)
    with pytest.raises(ValueError, match=f"it sends more than {n_bytes // 2:,} bytes"):
        load_task(59, cache_dir=cache.parent / "other", offline=False)
