"""An OpenML server, the key to it, and how openml-python's requests get there.

The client sends without a time-out, sends again what may have arrived, and puts the key into
addresses, which end up in logs. So what it sends goes through :class:`Server` instead.
"""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit
from xml.parsers.expat import ExpatError  # nosec B406 # the error alone, which the client raises

import openml
import requests
import urllib3

from mixupe_sklearn.datasets._openml.metadata import FaultError, parse_xml
from mixupe_sklearn.datasets._openml.web import is_loopback

KEY_VARIABLE = "OPENML_API_KEY"
# OpenML's codes for no key, a wrong key, and a key that may only read; and that of an empty list.
KEY_CODES, NO_RUNS = (102, 103, 104), 512
PIECE = 2**16
# An answer to what was sent is a few lines.
MOST_BYTES = 2**24


class Refused(Exception):  # noqa: N818
    """What was sent was not taken, or there is no telling.

    Parameters
    ----------
    reason : str
        What came back, as a part of a sentence.
    code : int or None, default=None
        OpenML's number for it.
    is_key : bool, default=False
        Whether it is the key that was refused, so that nothing else would be taken either.
    is_sure : bool, default=True
        Whether it is certain that nothing was taken.
    """

    def __init__(
        self, reason: str, *, code: int | None = None, is_key: bool = False, is_sure: bool = True
    ):
        super().__init__(reason)
        self.code, self.is_key, self.is_sure = code, is_key, is_sure


@dataclass(frozen=True)
class Answer:
    """What the client reads of an answer; it grumbles at each one that was not compressed."""

    text: str
    status_code: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Encoding": "gzip"})


@dataclass(frozen=True, eq=False)
class Server:
    """A server, the key to it, and how many seconds to wait for each of its answers."""

    url: str
    key: str = field(repr=False)
    timeout: float

    def send(
        self,
        request_method: str,
        url: str,
        data: Mapping[str, Any],
        files: Mapping[str, Any] | None = None,
        md5_checksum: str | None = None,
    ) -> Answer:
        """Send one request, once; the arguments are those of the client's own function."""
        # In the body alone, never in the address.
        fields = {**data, "api_key": self.key} if request_method == "post" else None
        try:
            status, text = self._exchange(request_method, url, fields, files)
        except (requests.Timeout, urllib3.exceptions.TimeoutError):
            raise Refused(
                f"no whole answer within {self.timeout:g} seconds", is_sure=False
            ) from None
        except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
            kind = type(error).__name__
            raise Refused(f"no connection, or one that broke ({kind})", is_sure=False) from None
        if status != 200:
            raise _refusal(status, text)
        return Answer(text)

    def _exchange(self, method: str, url: str, fields: Any, files: Any) -> tuple[int, str]:
        with requests.request(
            method,
            url,
            data=fields,
            files=files,
            headers={"Accept-Encoding": "identity", "User-Agent": "mixupe-sklearn"},
            timeout=self.timeout,
            stream=True,
            # A redirected POST would become a GET, and the key would go where nobody sent it.
            allow_redirects=False,
        ) as response:
            # The time-out above is that of each single byte; this is one for all of the answer.
            deadline, parts = time.monotonic() + self.timeout, []
            while part := response.raw.read1(PIECE):
                parts.append(part)
                if sum(map(len, parts)) > MOST_BYTES:
                    raise Refused(f"an answer of more than {MOST_BYTES:,} bytes", is_sure=False)
                if time.monotonic() > deadline:
                    raise requests.Timeout
        return response.status_code, b"".join(parts).decode("utf-8", errors="replace")

    def without_key(self, text: str) -> str:
        """A text for users: a server might have put the key into its answer."""
        return text.replace(self.key, "(the key)")

    def find_run(self, ticket: str) -> int | None:
        """Number of the run with a tag, or None."""
        try:
            answer = self.send("get", f"{self.url}/run/list/tag/{ticket}/show_errors/true", {})
        except Refused as refused:
            if refused.code == NO_RUNS:
                return None
            raise
        with understood():
            return int(_texts(answer.text, "runs", "run/{*}run_id")[0])


def _refusal(status: int, text: str) -> Refused:
    """What an answer that is not "200 OK" means."""
    code, reason = None, f"status {status} without a reason"
    with contextlib.suppress(ValueError, IndexError):
        code = int(_texts(text, "error", "code")[0])
        words = [
            *_texts(text, "error", "message"),
            *_texts(text, "error", "additional_information"),
        ]
        told = " ".join(": ".join(words).split())[:300].rstrip(".")
        reason = f"status {status}, code {code}, {told!r}"
    is_key = status in (401, 403) or code in KEY_CODES
    return Refused(reason, code=code, is_key=is_key, is_sure=status < 500)


def _texts(text: str, name: str, path: str) -> list[str]:
    """Texts of some elements in an answer, whose outermost element must have a name."""
    try:
        root = parse_xml(text.encode(), name)
    except FaultError as fault:
        raise ValueError(f"Got {fault}, but expected an answer of OpenML's.") from None
    return [node.text or "" for node in root.findall(f"{{*}}{path}")]


@contextlib.contextmanager
def understood() -> Iterator[None]:
    """Say of an answer that is not what the protocol promises that it is not understood."""
    try:
        yield
    except (ExpatError, KeyError, TypeError, IndexError, ValueError):
        raise Refused("an answer that is not OpenML's XML", is_sure=False) from None


def checked_address(server: str | None) -> str:
    """The address of a server's interface; None is the one in openml's configuration.

    Examples
    --------
    >>> checked_address("https://test.openml.org/api/v1/xml/")
    'https://test.openml.org/api/v1/xml'
    """
    url = (openml.config.server if server is None else server).rstrip("/")
    parts = urlsplit(url)
    is_private = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(url))
    if not is_private or "/api/" not in f"{parts.path}/":
        raise ValueError(
            f"Got server={url!r}, but expected the address of an OpenML interface that begins with "
            f"https, so that nobody on the way reads the key: https://www.openml.org/api/v1/xml."
        )
    return url


def find_key(api_key: str | None, url: str) -> tuple[str, str]:
    """The key to a server, and where it was found."""
    # The key in openml's configuration belongs to the server there, and is sent to no other one.
    configured = openml.config.apikey if url == openml.config.server.rstrip("/") else ""
    for key, origin in (
        (api_key, "the one given"),
        (os.environ.get(KEY_VARIABLE), f"from {KEY_VARIABLE}"),
        (configured, "from openml's configuration"),
    ):
        if key and key.strip():
            return key.strip(), origin
    raise ValueError(
        f"Got no API key for {url}, but expected that of your account there: set the environment "
        f"variable {KEY_VARIABLE}, or run `openml configure apikey`."
    )


def check_publishing(server: str | None = None, api_key: str | None = None) -> None:
    """Refuse a server's address, or a missing key, as :func:`publish` would; nobody is asked.

    Examples
    --------
    >>> check_publishing("https://test.openml.org/api/v1/xml", api_key="mine")
    """
    find_key(api_key, checked_address(server))


@contextlib.contextmanager
def openml_settings(url: str, cache: str) -> Iterator[None]:
    """Let openml work with a server and a cache, and put its configuration back as found.

    It knows no key meanwhile: what it loads is public, and :class:`Server` has its own.
    """
    names = {"server": url, "apikey": "", "_root_cache_directory": cache}
    before = {name: getattr(openml.config, name) for name in names}
    try:
        openml.config.server, openml.config.apikey = url, ""
        openml.config.set_root_cache_directory(cache)
        yield
    finally:
        for name, value in before.items():
            setattr(openml.config, name, value)


@contextlib.contextmanager
def sent_through(server: Server) -> Iterator[None]:
    """Let all that openml sends go through a server's ``send``."""
    calls: Any = openml._api_calls
    before = calls._send_request
    calls._send_request = server.send
    try:
        yield
    finally:
        calls._send_request = before
