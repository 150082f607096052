"""Whom a loader of OpenML's data asks, and how much it takes: no stranger's word is enough."""

import openml
import pytest
from openml_server import API, Answer, instead, parquet_path, splits_path

from mixupe_sklearn.datasets._openml import web as _openml_web
from mixupe_sklearn.datasets._openml.web import MOST_REDIRECTS, is_loopback, may_ask
from mixupe_sklearn.datasets.openml import load_task

PUBLIC, LOCAL = "https://www.openml.org", "http://127.0.0.1:8080"


@pytest.mark.parametrize(
    ("url", "server", "is_asked"),
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
        ("http://127.0.0.1:9/x", LOCAL, True),
        ("file://127.0.0.1/etc/passwd", LOCAL, False),
        ("http://data.openml.org/x", LOCAL, False),
        # The user has chosen this one.
        ("http://openml.intranet:8080/x", "http://openml.intranet:8080", True),
        ("http://other.intranet:8080/x", "http://openml.intranet:8080", False),
        ("http://127.0.0.1@evil.org/x", LOCAL, False),
    ],
)
def test_addresses_are_asked_by_https_or_where_the_server_is(url, server, is_asked):
    assert may_ask(url, server) == is_asked


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "[::1]", "localhost", "LOCALHOST"])
def test_this_machine_is_known_by_all_its_names(host):
    assert is_loopback(f"http://{host}:80/x")
    assert not is_loopback(f"http://{host.strip('[]')}.evil.org/x")


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


@pytest.mark.parametrize("target", ["file:///etc/passwd", "http://openml.example/x", "gopher://x"])
def test_a_redirect_to_elsewhere_is_not_followed(server, cache, target):
    server.fault(f"{API}/task/59", redirect(target))
    sentence = f"it points to {target!r}, which is not asked: it has no https"
    with pytest.raises(ValueError, match=sentence):
        load_task(59, cache_dir=cache)
    assert len(server.requests) == 1  # and is not tried again


def test_redirects_come_to_an_end(server, cache):
    server.fault(f"{API}/task/59", redirect(f"{API}/task/59"))
    with pytest.raises(ValueError, match=f"points elsewhere more than {MOST_REDIRECTS} times"):
        load_task(59, cache_dir=cache)
    assert len(server.requests) == MOST_REDIRECTS + 1


def test_an_address_in_a_file_of_the_server_is_looked_at_too(server, cache):
    page = server.pages[f"{API}/task/59"].content
    address = f"{server.base}{splits_path(59)}".encode()
    assert address in page
    server.fault(f"{API}/task/59", instead(page.replace(address, b"file:///etc/passwd")))
    with pytest.raises(ValueError, match="file:///etc/passwd: .* is not asked"):
        load_task(59, cache_dir=cache)
    assert not list(cache.rglob("*.xml"))


def test_an_endless_answer_is_cut_off(server, cache, monkeypatch):
    n_bytes = len(server.pages[parquet_path(61)].content)
    largest = max(len(page.content) for page in server.pages.values())
    monkeypatch.setattr(_openml_web, "MOST_BYTES", largest)
    assert load_task(59, cache_dir=cache).n_rows == 60
    monkeypatch.setattr(_openml_web, "MOST_BYTES", n_bytes // 2)
    monkeypatch.setattr(_openml_web, "PIECE", 64)
    with pytest.raises(ValueError, match=f"it sends more than {n_bytes // 2:,} bytes"):
        load_task(59, cache_dir=cache.parent / "other", offline=False)
