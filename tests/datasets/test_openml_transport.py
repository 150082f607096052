"""Addresses that the loader of OpenML's data requests, and the size of what it accepts."""

import openml
import pytest
from openml_server import API, Answer, instead, parquet_path, splits_path

from mixupe_sklearn.datasets._openml import transport
from mixupe_sklearn.datasets._openml.transport import MAX_REDIRECTS, is_local, may_request
from mixupe_sklearn.datasets.openml import load_task

PUBLIC, LOCAL = "https://www.openml.org", "http://127.0.0.1:8080"


@pytest.mark.parametrize(
    ("url", "server", "is_requested"),
    [
        ("https://data.openml.org/x", PUBLIC, True),
        ("http://data.openml.org/x", PUBLIC, False),
        ("file:///etc/passwd", PUBLIC, False),
        ("ftp://www.openml.org/x", PUBLIC, False),
        ("javascript:alert(1)", PUBLIC, False),
        ("//data.openml.org/x", PUBLIC, False),
        ("", PUBLIC, False),
        ("https://[::1", PUBLIC, False),
        ("http://127.0.0.1:631/jobs", PUBLIC, False),
        ("https://localhost/x", PUBLIC, False),
        ("http://[::1]/x", PUBLIC, False),
        ("https://10.0.0.5/x", PUBLIC, False),
        ("https://192.168.1.1/x", PUBLIC, False),
        ("https://169.254.169.254/latest/meta-data", PUBLIC, False),
        ("https://[fd00::1]/x", PUBLIC, False),
        ("https://8.8.8.8/x", PUBLIC, True),
        ("https://10.0.0.5/x", "https://10.0.0.4", True),
        ("http://127.0.0.1:9/x", LOCAL, True),
        ("file://127.0.0.1/etc/passwd", LOCAL, False),
        ("http://data.openml.org/x", LOCAL, False),
        # The configured server.
        ("http://openml.intranet:8080/x", "http://openml.intranet:8080", True),
        ("http://other.intranet:8080/x", "http://openml.intranet:8080", False),
        ("http://127.0.0.1@evil.org/x", LOCAL, False),
    ],
)
def test_only_public_https_and_the_configured_server_are_requested(url, server, is_requested):
    assert may_request(url, server) == is_requested


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "[::1]", "localhost", "LOCALHOST"])
def test_local_hosts_are_recognized(host):
    assert is_local(f"http://{host}:80/x")
    assert not is_local(f"http://{host.strip('[]')}.evil.org/x")


def redirect(target):
    def change(answer):
        return Answer(b"", 302, headers={"Location": target})

    return change


def test_a_redirect_is_followed_without_the_key(server, cache, monkeypatch):
    monkeypatch.setattr(openml.config, "apikey", "a" * 32)
    server.pages["/moved"] = server.pages[f"{API}/task/59"]
    server.fault(f"{API}/task/59", redirect("/moved"))
    assert load_task(59, cache_dir=cache).n_rows == 60
    asked = {request.path: request.query for request in server.requests}
    assert asked[f"{API}/task/59"] == {"api_key": "a" * 32}
    assert asked["/moved"] == {}


def test_the_key_is_not_sent_without_encryption_into_a_network(monkeypatch):
    sent = []

    def get(url, params, **options):
        sent.append((url, params))
        raise OSError("no connection")

    monkeypatch.setattr(transport.requests, "get", get)
    for server in ("http://10.0.0.5", "https://10.0.0.5", "http://127.0.0.1:9"):
        with pytest.raises(transport.InvalidFileError):
            transport._download(f"{server}/x", server, 1.0, "a" * 32)
    assert [bool(params) for _, params in sent] == [False, True, True]


@pytest.mark.parametrize("target", ["file:///etc/passwd", "http://openml.example/x", "gopher://x"])
def test_a_redirect_to_a_forbidden_address_is_not_followed(server, cache, target):
    server.fault(f"{API}/task/59", redirect(target))
    message = f"the address {target!r} is not requested: it is not public https"
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
