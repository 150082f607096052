"""Downloads from an OpenML server: bounded in time and size, checked, and retried."""

import ipaddress
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar
from urllib.parse import SplitResult, urljoin, urlsplit

import requests
import urllib3

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
TOO_SLOW = "no complete answer within {:g} s"
# Checksums are of the uncompressed bytes.
HEADERS = {"Accept-Encoding": "identity", "User-Agent": "mixupe-sklearn"}


class RefusedError(Exception):
    """The server has answered, and another try would not change its answer."""


class DownloadError(Exception):
    """No usable answer after the last try."""


def _is_loopback(url: str) -> bool:
    host = _split(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def is_local(url: str) -> bool:
    """Whether an address names this machine or a private network."""
    try:
        return not ipaddress.ip_address(_split(url).hostname or "").is_global
    except ValueError:
        return _is_loopback(url)


def may_request(url: str, server: str) -> bool:
    """Whether to request an address that a server names: its own, or another one by https.

    A public server may not send us to this machine or into a private network.
    """
    own, other = _split(server), _split(url)
    if (other.scheme, other.netloc) == (own.scheme, own.netloc):
        return True
    if is_local(url):
        return is_local(server) and other.scheme in ("http", "https")
    return other.scheme == "https"


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:  # such as a bracket without its partner
        return urlsplit("")


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
    is_safe = url.startswith(f"{server}/") and (url.startswith("https://") or _is_loopback(url))
    params = {"api_key": api_key} if api_key and is_safe else {}
    for _ in range(MAX_REDIRECTS + 1):
        if not may_request(url, server):
            raise RefusedError(f"the address {url!r} is not requested: it is not public https")
        options: dict[str, Any] = {"stream": True, "allow_redirects": False, "headers": HEADERS}
        try:
            with requests.get(url, params=params, timeout=timeout, **options) as response:
                content = _read_body(response.raw, deadline)
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            # Not chained: the text of these errors holds the address with the key.
            raise InvalidFileError(_reason(error, timeout)) from None
        if not response.is_redirect:
            _check_status(response.status_code, response.reason, content)
            return content
        url, params = urljoin(url, response.headers["location"]), {}
    raise RefusedError(f"it redirects more than {MAX_REDIRECTS} times")


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
    reason = str(getattr(cause, "reason", None) or type(error).__name__)
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
