"""One file from a server: within a time limit, checked, and asked for again where that may help."""

import importlib
import ipaddress
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit

from mixupe_sklearn.datasets._openml.metadata import FaultError, child_text, parse_xml

# Seconds before the second try; each further wait is twice as long.
FIRST_WAIT = 1.0
# Answers below 500 that are worth another try: too slow, too early, too many.
PASSING = (408, 425, 429)
# OpenML's own number for a database that it cannot reach at the moment.
BUSY_DATABASE = "107"
PIECE = 2**16
# More is taken for a server that means harm: the largest tables there have a fraction of it.
MOST_BYTES = 2**31
MOST_REDIRECTS = 5
TOO_SLOW = "no whole answer within {:g} s"


class RefusedError(Exception):
    """The server has answered, and another try would not change its answer."""


class OutOfReachError(Exception):
    """No usable answer after the last try; says how often and how long it was tried."""


def is_loopback(url: str) -> bool:
    """Whether an address is on this machine.

    Examples
    --------
    >>> is_loopback("http://127.0.0.1:80/x"), is_loopback("https://www.openml.org")
    (True, False)
    """
    name = _parts(url).hostname or ""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


def may_ask(url: str, server: str) -> bool:
    """Whether an address that a server names is asked: its own, or others by https.

    A server elsewhere may not send us to a service on this machine.

    Examples
    --------
    >>> may_ask("https://data.openml.org/61.pq", "https://www.openml.org")
    True
    >>> may_ask("file:///etc/passwd", "https://www.openml.org")
    False
    """
    own, asked = _parts(server), _parts(url)
    if (asked.scheme, asked.netloc) == (own.scheme, own.netloc):
        return True
    if is_loopback(url):
        return is_loopback(server) and asked.scheme in ("http", "https")
    return asked.scheme == "https"


def _parts(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:  # such as brackets that do not close
        return urlsplit("")


def fetch(
    url: str,
    check: Callable[[bytes], Any],
    *,
    server: str,
    timeout: float,
    n_tries: int,
    query: Mapping[str, str] | None = None,
) -> bytes:
    """The content of an address, once it passes a check that raises ``FaultError`` otherwise.

    ``server`` is who named the address: see :func:`may_ask`. ``timeout`` limits one try, from
    looking up the name to the last byte. What ``query`` holds (a key) is sent, and is never part
    of a message.
    """
    start = time.monotonic()
    for number in range(1, n_tries + 1):
        try:
            content = _within(timeout, lambda: _ask(url, server, query or {}, timeout))
            check(content)
            return content
        except RefusedError as refusal:
            raise RefusedError(f"{url}: {refusal}") from None
        except FaultError as fault:
            reason = str(fault)
        if number < n_tries:
            time.sleep(FIRST_WAIT * 2 ** (number - 1))
    seconds = time.monotonic() - start
    times = "once" if n_tries == 1 else f"{n_tries} times"
    raise OutOfReachError(f"{url}: {reason}; tried {times} in {seconds:.1f} s")


def _within(seconds: float, call: Callable[[], bytes]) -> bytes:
    # Only a thread bounds everything: a name server and the lines of a header may stall as well,
    # and no time-out of a socket sees a trickle. A thread left behind ends at its own limit.
    answers: queue.SimpleQueue = queue.SimpleQueue()

    def answer() -> None:
        try:
            answers.put((call(), None))
        except Exception as error:
            answers.put((b"", error))

    threading.Thread(target=answer, daemon=True).start()
    try:
        content, error = answers.get(timeout=seconds)
    except queue.Empty:
        raise FaultError(TOO_SLOW.format(seconds)) from None
    if error is not None:
        raise error
    return content


def _ask(url: str, server: str, query: Mapping[str, str], timeout: float) -> bytes:
    """Ask, and follow where the answer points, without the key."""
    deadline = time.monotonic() + timeout
    for _ in range(MOST_REDIRECTS + 1):
        if not may_ask(url, server):
            raise RefusedError(f"it points to {url!r}, which is not asked: it has no https")
        status, reason, target, content = _ask_once(url, query, timeout, deadline)
        if target is None:
            _check_status(status, reason, content)
            return content
        url, query = urljoin(url, target), {}
    raise RefusedError(f"it points elsewhere more than {MOST_REDIRECTS} times")


def _ask_once(
    url: str, query: Mapping[str, str], timeout: float, deadline: float
) -> tuple[int, str, str | None, bytes]:
    """Status, reason, where else to look, and the content of an answer."""
    requests: Any = importlib.import_module("requests")
    urllib3: Any = importlib.import_module("urllib3")
    # Checksums are of the plain bytes. urllib3 itself counts them against Content-Length.
    headers = {"Accept-Encoding": "identity", "User-Agent": "mixupe-sklearn"}
    try:
        with requests.get(
            url,
            params=dict(query),
            headers=headers,
            timeout=timeout,
            stream=True,
            allow_redirects=False,  # the next address is looked at first
        ) as response:
            content = _body(response.raw, deadline)
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
        # Not chained: the text of these errors holds the address with the user's key.
        raise FaultError(_phrase(error, timeout)) from None
    target = response.headers["location"] if response.is_redirect else None
    return response.status_code, response.reason, target, content


def _body(raw: Any, deadline: float) -> bytes:
    pieces, n_bytes = [], 0
    while piece := raw.read1(PIECE):
        pieces.append(piece)
        n_bytes += len(piece)
        if n_bytes > MOST_BYTES:
            raise RefusedError(f"it sends more than {MOST_BYTES:,} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError  # nobody waits for it any more
    return b"".join(pieces)


def _phrase(error: BaseException, timeout: float) -> str:
    """What went wrong, in a few words and without the address."""
    names = {type(e).__name__ for e in _causes(error)}
    if names & {"IncompleteRead", "ProtocolError", "ChunkedEncodingError"}:
        return "the answer was cut short"
    if names & {"ConnectTimeout", "ReadTimeout", "ConnectTimeoutError", "TimeoutError"}:
        return TOO_SLOW.format(timeout)
    if names & {"gaierror", "NameResolutionError"}:
        return "its name cannot be resolved"
    texts = [e.strerror for e in _causes(error) if isinstance(e, OSError) and e.strerror]
    return texts[-1].lower() if texts else type(error).__name__


def _causes(error: BaseException) -> list[BaseException]:
    """The errors inside an error, outermost first, whether chained or given as arguments."""
    found: list[BaseException] = []
    waiting: list[Any] = [error]
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, BaseException) and one not in found:
            found.append(one)
            waiting += [*one.args, getattr(one, "reason", None), one.__cause__, one.__context__]
    return found


def _check_status(status: int, reason: str, content: bytes) -> None:
    if status == 200:
        return
    code, message = _openml_error(content)
    text = f"{status} {reason}" + (f", {message}" if message else "")
    if status >= 500 or status in PASSING or code == BUSY_DATABASE:
        raise FaultError(text)
    raise RefusedError(text)


def _openml_error(content: bytes) -> tuple[str, str]:
    try:
        root = parse_xml(content, "error")
    except FaultError:
        return "", ""
    texts = (child_text(root, "code"), child_text(root, "message"))
    return texts[0] or "", " ".join((texts[1] or "").split())
