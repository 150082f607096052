"""Downloads from an OpenML server: bounded in time and size, checked, and retried."""

import functools
import ipaddress
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from typing import Any, TypeVar
from urllib.parse import urljoin, urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.utils import select_proxy

from mixupe_sklearn.datasets._openml.metadata import InvalidFileError, child_text, parse_xml

Result = TypeVar("Result")

# Seconds before the second try. Each further wait is twice as long.
BACKOFF_SECONDS = 1.0
# Answers below 500 that are worth another try: too slow, too early, too many.
RETRY_STATUSES = (408, 425, 429)
# OpenML's own code for a database that it cannot reach at the moment.
BUSY_DATABASE = "107"
CHUNK_BYTES = 2**16
# The largest tables of OpenML have a fraction of this size.
MAX_BYTES = 2**31
MAX_REDIRECTS = 5
# IPv6: what is assigned to hosts, and IPv4 addresses behind a translator.
GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
NAT64 = ipaddress.ip_network("64:ff9b::/96")
NOT_REQUESTED = "the address {!r} is not requested: it is not public https"
TOO_SLOW = "no complete answer within {:g} s"
# Checksums are of the uncompressed bytes.
HEADERS = {"Accept-Encoding": "identity", "User-Agent": "mixupe-sklearn"}


class RefusedError(Exception):
    """The server has answered, and another try would not change its answer."""


class DownloadError(Exception):
    """No usable answer after the last try."""


class _Pinned(HTTPAdapter):
    """Connects to one address, whatever the name in a URL resolves to by then."""

    def __init__(self, address: str):
        self.address = address
        super().__init__()

    def build_connection_pool_key_attributes(
        self, request: Any, verify: Any, cert: Any = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The address in the place of the name, which the certificate must still have."""
        target, options = super().build_connection_pool_key_attributes(request, verify, cert)
        if target["scheme"] == "https":
            options["server_hostname"] = target["host"]
        return {**target, "host": self.address}, options

    def add_headers(self, request: Any, **_: Any) -> None:
        """Name the server, as a connection by name does."""
        request.headers["Host"] = urlsplit(request.url).netloc.rpartition("@")[2]


def resolve(host: str) -> list[str]:
    """The addresses of a host. The system's resolver also reads forms such as 127.1."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def is_public(address: str) -> bool:
    """Whether an address is of the public network, and not of this machine."""
    ip = ipaddress.ip_address(address)
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour
        if ip in NAT64:
            inner = ipaddress.IPv4Address(int(ip) % 2**32)
        if inner is not None:
            return is_public(str(inner))
        if ip not in GLOBAL_UNICAST:
            return False
    return ip.is_global and not ip.is_multicast and not _is_own(address)


def _is_own(address: str) -> bool:
    """Whether a public address is one of this machine's. Nothing is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))  # only chooses the address of this end
            return bool(probe.getsockname()[0] == address)
    except OSError:  # there is no way to it
        return False


@functools.cache
def server_addresses(host: str) -> list[str]:
    """The addresses of the configured server, looked up once: its owner cannot move it to us."""
    addresses = resolve(host)
    return [address for address in addresses if is_public(address)] or addresses


def checked_addresses(url: str, server: str, has_proxy: bool = False) -> list[str]:
    """The addresses to request a URL from. Raises a ``ValueError`` if it is not to be requested.

    The configured server may be anywhere, also on another port of its machine. All other servers
    must have public addresses and https: no answer can send us to this machine or its network.
    A proxy may know names that have no address here.
    """
    own, other = urlsplit(server), urlsplit(url)
    if not own.hostname or not other.hostname or other.scheme not in ("http", "https"):
        raise ValueError(url)
    is_own = (own.scheme, own.hostname, own.port) == (other.scheme, other.hostname, other.port)
    try:
        addresses = (server_addresses if is_own else resolve)(other.hostname)
        is_elsewhere = all(map(is_public, addresses))
        # Another port of the configured server's machine, in a private network.
        is_own = is_own or (
            not is_elsewhere and set(addresses) <= set(server_addresses(own.hostname))
        )
    except socket.gaierror:
        if not has_proxy:
            raise
        addresses, is_elsewhere = [""], True
    if is_own or (is_elsewhere and other.scheme == "https"):
        return addresses
    raise ValueError(url)


def fetch(
    url: str,
    read: Callable[[bytes], Result],
    *,
    server: str,
    timeout: float,
    n_tries: int,
    api_key: str = "",
) -> tuple[bytes, Result]:
    """Download a file that ``read`` accepts: its content, and the result of ``read``.

    ``read`` checks the content of every try and raises ``InvalidFileError``. ``urllib3.util.Retry``
    could not do that: it does not see a truncated body, an HTML page or a wrong checksum.
    ``timeout`` limits one try, from the name lookup to the last byte. ``api_key`` is sent to the
    configured ``server`` only, and is part of no message.
    """
    start = time.monotonic()
    reason = ""
    for n_failed in range(n_tries):
        if n_failed:
            time.sleep(BACKOFF_SECONDS * 2 ** (n_failed - 1))
        try:
            content = _call_within(timeout, lambda: _download(url, server, timeout, api_key))
            return content, read(content)
        except RefusedError as error:
            raise RefusedError(f"{url}: {error}") from None
        except InvalidFileError as error:
            reason = str(error)
    times = "once" if n_tries == 1 else f"{n_tries} times"
    raise DownloadError(f"{url}: {reason}; tried {times} in {time.monotonic() - start:.1f} s")


def _call_within(seconds: float, call: Callable[[], bytes]) -> bytes:
    # A socket's time-out bounds neither the name lookup nor a header that arrives byte by byte.
    # An abandoned thread ends at the deadline of its download.
    future: Future[bytes] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return future.result(timeout=seconds)
    except TimeoutError:
        raise InvalidFileError(TOO_SLOW.format(seconds)) from None


def _download(url: str, server: str, timeout: float, api_key: str) -> bytes:
    """One try. Each redirect is checked before it is followed, and gets no key."""
    deadline = time.monotonic() + timeout
    for _ in range(MAX_REDIRECTS + 1):
        try:
            response, content = _get(url, server, timeout, deadline, api_key)
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            # Not chained: the text of these errors holds the address with the key.
            raise InvalidFileError(_reason(error, timeout)) from None
        if not response.is_redirect:
            _check_status(response.status_code, response.reason, content)
            return content
        try:
            url, api_key = urljoin(url, response.headers["location"]), ""
        except ValueError:  # such as a bracket without its partner
            raise RefusedError(NOT_REQUESTED.format(response.headers["location"])) from None
    raise RefusedError(f"it redirects more than {MAX_REDIRECTS} times")


def _get(
    url: str, server: str, timeout: float, deadline: float, api_key: str
) -> tuple[requests.Response, bytes]:
    """The answer to one request, from the first checked address that accepts a connection."""
    with requests.Session() as session:
        try:
            request = session.prepare_request(requests.Request("GET", url, HEADERS))
            prepared = str(request.url)
            options = session.merge_environment_settings(prepared, {}, True, None, None)
            proxy = select_proxy(prepared, options["proxies"])
            addresses = checked_addresses(prepared, server, has_proxy=bool(proxy))
        except ValueError:  # of requests, urlsplit and the codec of names, too
            raise RefusedError(NOT_REQUESTED.format(url)) from None
        is_own = not proxy and all(ipaddress.ip_address(one).is_loopback for one in addresses)
        if api_key and url.startswith(f"{server}/") and (url.startswith("https:") or is_own):
            request.prepare_url(prepared, {"api_key": api_key})
        failure: Exception | None = None
        for address in addresses:
            # Not by the session: it reads the whole body of a redirect, however long.
            with closing(HTTPAdapter() if proxy else _Pinned(address)) as adapter:
                try:
                    with adapter.send(request, timeout=timeout, **options) as response:
                        return response, _read_body(response.raw, deadline)
                except requests.ConnectionError as error:
                    failure = error
        raise failure or OSError("no address")


def _read_body(raw: Any, deadline: float) -> bytes:
    chunks, n_bytes = [], 0
    while chunk := raw.read1(CHUNK_BYTES):
        chunks.append(chunk)
        n_bytes += len(chunk)
        if n_bytes > MAX_BYTES:
            raise RefusedError(f"it sends more than {MAX_BYTES:,} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError
    return b"".join(chunks)


def _reason(error: Exception, timeout: float) -> str:
    """Why a request failed, without its address."""
    if isinstance(error, TimeoutError | requests.Timeout | urllib3.exceptions.TimeoutError):
        return TOO_SLOW.format(timeout)
    cause = error.args[0] if error.args else None
    if any(isinstance(e, urllib3.exceptions.ProtocolError) for e in (error, cause)):
        return "the answer was cut short"
    text = getattr(cause, "reason", None) or getattr(error, "strerror", None)
    reason = str(text or type(error).__name__)
    return reason.rpartition(": ")[2].lower()


def _check_status(status: int, reason: str, content: bytes) -> None:
    if status == 200:
        return
    code = message = ""
    try:
        root = parse_xml(content, "error")
        code, message = (child_text(root, name) or "" for name in ("code", "message"))
    except InvalidFileError:  # not an error of OpenML's own
        pass
    text = ", ".join(filter(None, [f"{status} {reason}", " ".join(message.split())]))
    if status >= 500 or status in RETRY_STATUSES or code == BUSY_DATABASE:
        raise InvalidFileError(text)
    raise RefusedError(text)
