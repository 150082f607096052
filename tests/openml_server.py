"""A small OpenML server on the loopback interface: real HTTP, synthetic data, and faults.

    with OpenMLServer() as server:
        openml.config.server = server.url
        server.fault("/api/v1/xml/task/59", status(503), times=2)
        ...
        server.counts["GET /api/v1/xml/task/59"]

``server.pages`` maps a path to what is served there, and may be changed at any time.

A test of publishing adds functions by method and path::

    server.routes["POST", "/api/v1/xml/run/"] = take_run

``Request.form()`` parses the multipart body that the client sends.
"""

import email.message
import email.parser
import email.policy
import hashlib
import io
import re
import threading
import urllib.parse
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pandas as pd

API = "/api/v1/xml"
NAMESPACE = 'xmlns:oml="http://openml.org/openml"'


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: email.message.Message
    body: bytes

    def form(self) -> dict[str, bytes]:
        """The parts of a multipart body, by their names."""
        head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        parser = email.parser.BytesParser(policy=email.policy.HTTP)
        parts = parser.parsebytes(head + self.body).iter_parts()
        return {
            part.get_param("name", header="content-disposition"): part.get_payload(decode=True)
            for part in parts
        }


@dataclass
class Answer:
    content: bytes
    status: int = 200
    kind: str = "text/xml"
    # Faults change these: how much of the content is sent, and how slowly.
    n_sent: int | None = None
    wait: float = 0.0
    wait_per_byte: float = 0.0
    wait_per_header_byte: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)


Route = Callable[[Request], Answer]
Fault = Callable[[Answer], Answer]


def error(code: int, message: str, status: int = 412) -> Answer:
    """An error as OpenML writes it."""
    text = f"<oml:code>{code}</oml:code><oml:message>{message}</oml:message>"
    return Answer(f"<oml:error {NAMESPACE}>{text}</oml:error>".encode(), status)


def status(code: int) -> Fault:
    return lambda answer: Answer(b"no", code, "text/plain")


def slow(seconds: float) -> Fault:
    return lambda answer: replace(answer, wait=seconds)


def trickle(seconds_per_byte: float) -> Fault:
    return lambda answer: replace(answer, wait_per_byte=seconds_per_byte)


def trickle_header(seconds_per_byte: float) -> Fault:
    """A header without end: each byte arrives in time, but the answer does not."""
    return lambda answer: replace(answer, wait_per_header_byte=seconds_per_byte)


def cut(answer: Answer) -> Answer:
    """Half of the content, with the Content-Length of all of it."""
    return replace(answer, n_sent=len(answer.content) // 2)


def instead(content: bytes, kind: str = "text/xml") -> Fault:
    """Another complete file."""
    return lambda answer: Answer(content, kind=kind)


HTML = instead(b"<!DOCTYPE html><html><body>Down for maintenance</body></html>", "text/html")
GARBAGE = instead(bytes(range(256)))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # the MinIO client keeps its connection

    def do_GET(self):
        self.answer()

    do_HEAD = do_POST = do_GET  # noqa: N815

    def answer(self) -> None:
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        asked = dict(urllib.parse.parse_qsl(query))
        request = Request(self.command, path, asked, self.headers, body)
        answer = self.server.owner.answer(request)
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted and answer.status == 200:
            size, first = len(answer.content), int(wanted[1])
            last = min(int(wanted[2] or size), size - 1)
            answer.content, answer.status = answer.content[first : last + 1], 206
            answer.headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        self.send(answer)

    def send(self, answer: Answer) -> None:
        closing = self.server.owner.closing
        closing.wait(answer.wait)
        if answer.wait_per_header_byte:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while not closing.wait(answer.wait_per_header_byte):
                self.wfile.write(b".")
            return
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.content)))
        self.send_header("ETag", f'"{hashlib.md5(answer.content).hexdigest()}"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        content = answer.content[: answer.n_sent]
        if answer.n_sent is not None:
            self.close_connection = True
        if not answer.wait_per_byte:
            self.wfile.write(content)
        for number in range(len(content) if answer.wait_per_byte else 0):
            if closing.wait(answer.wait_per_byte):
                return
            self.wfile.write(content[number : number + 1])

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:  # the client has closed the connection after a time-out
            self.close_connection = True

    def log_message(self, format, *args) -> None:
        pass


class OpenMLServer:
    """See the module's docstring. ``tables`` holds the data frames by dataset."""

    def __init__(self) -> None:
        self.pages: dict[str, Answer] = {}
        self.routes: dict[tuple[str, str], Route] = {}
        self.counts: Counter[str] = Counter()
        self.requests: list[Request] = []
        self.closing = threading.Event()
        self._faults: dict[str, list] = {}
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._http.owner = self
        self.base = f"http://127.0.0.1:{self._http.server_port}"
        self.url = self.base + API
        self.tables: dict[int, pd.DataFrame] = {}
        self.folds: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
        fill(self)

    def __enter__(self) -> "OpenMLServer":
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def fault(self, path: str, change: Fault, times: int | None = None) -> None:
        """Change the answer to a path: always, or the next ``times`` times."""
        self._faults[path] = [change, times]

    def reset(self) -> None:
        """Remove all faults and reset the counts."""
        self._faults.clear()
        self.counts.clear()
        self.requests.clear()

    def answer(self, request: Request) -> Answer:
        with self._lock:
            self.counts[f"{request.method} {request.path}"] += 1
            self.requests.append(request)
            change, times = self._faults.get(request.path, (None, 0))
            if change and times is not None:
                self._faults[request.path][1] -= 1
                change = change if times > 0 else None
        answer = self._route(request)
        return change(answer) if change else answer

    def _route(self, request: Request) -> Answer:
        route = self.routes.get((request.method, request.path))
        if route:
            return route(request)
        page = self.pages.get(request.path)
        if page and request.method in ("GET", "HEAD"):
            return Answer(page.content, page.status, page.kind)
        return Answer(b"not found", 404, "text/plain")


def make_table(n_rows: int, seed: int) -> pd.DataFrame:
    """Numbers and categories with missing values, a row id, an ignored column, and classes."""
    rng = np.random.default_rng(seed)
    size = np.round(rng.normal(size=n_rows), 3)
    size[::7] = np.nan
    colour = pd.Series(rng.choice(["red", "green", "blue"], n_rows)).where(
        np.arange(n_rows) % 5 > 0
    )
    return pd.DataFrame(
        {
            "row": np.arange(n_rows, dtype=float),
            "size": size,
            "count": rng.integers(0, 1000, n_rows).astype(float),
            "colour": pd.Categorical(colour, ["red", "green", "blue"]),
            "secret": np.round(rng.normal(size=n_rows), 3),
            "class": pd.Categorical(np.array(["no", "yes"])[np.arange(n_rows) % 2], ["no", "yes"]),
        }
    )


def make_folds(n_rows: int, n_repeats: int, n_folds: int) -> list[tuple[np.ndarray, np.ndarray]]:
    folds = []
    for repeat in range(n_repeats):
        order = np.random.default_rng(repeat).permutation(n_rows)
        for fold in range(n_folds):
            test = np.sort(order[fold::n_folds])
            folds.append((np.setdiff1d(np.arange(n_rows), test), test))
    return folds


def to_parquet(table: pd.DataFrame) -> bytes:
    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False)
    return buffer.getvalue()


def to_arff(table: pd.DataFrame) -> bytes:
    lines = ["@relation table"]
    for name, dtype in table.dtypes.items():
        is_category = isinstance(dtype, pd.CategoricalDtype)
        kind = "{" + ",".join(dtype.categories) + "}" if is_category else "numeric"
        lines.append(f"@attribute {name} {kind}")
    body = table.to_csv(header=False, index=False, na_rep="?")
    return ("\n".join([*lines, "@data"]) + "\n" + body).encode()


def to_splits(folds: list[tuple[np.ndarray, np.ndarray]], n_folds: int) -> bytes:
    lines = ["@relation splits", "@attribute type {TRAIN,TEST}"]
    lines += [f"@attribute {name} numeric" for name in ("rowid", "repeat", "fold")] + ["@data"]
    for number, pair in enumerate(folds):
        repeat, fold = divmod(number, n_folds)
        for kind, rows in zip(("TRAIN", "TEST"), pair, strict=True):
            lines += [f"{kind},{row},{repeat},{fold}" for row in rows]
    return ("\n".join(lines) + "\n").encode()


def element(name: str, inside: object, /, **attributes: str) -> str:
    extra = "".join(f' {key}="{value}"' for key, value in attributes.items())
    return f"<oml:{name}{extra}>{inside}</oml:{name}>"


def document(name: str, inside: str) -> Answer:
    return Answer(f"<oml:{name} {NAMESPACE}>{inside}</oml:{name}>".encode())


def describe(server: OpenMLServer, number: int, form: str, has_parquet: bool, md5: str) -> Answer:
    texts = {"id": number, "name": f"table-{number}", "version": 1, "format": form}
    texts["url"] = f"{server.base}/data/v1/download/{number}/table.arff"
    if has_parquet:
        texts["parquet_url"] = server.base + parquet_path(number)
    texts |= {"default_target_attribute": "class", "row_id_attribute": "row"}
    texts |= {"ignore_attribute": "secret", "md5_checksum": md5}
    inside = "".join(element(name, text) for name, text in texts.items())
    return document("data_set_description", inside)


def features_of(table: pd.DataFrame) -> Answer:
    nodes = []
    for index, (name, dtype) in enumerate(table.dtypes.items()):
        is_category = isinstance(dtype, pd.CategoricalDtype)
        values = dtype.categories if is_category else []
        inside = element("index", index) + element("name", name)
        inside += element("data_type", "nominal" if is_category else "numeric")
        inside += "".join(element("nominal_value", value) for value in values)
        for flag, column in (("target", "class"), ("ignore", "secret"), ("row_identifier", "row")):
            inside += element(f"is_{flag}", str(name == column).lower())
        n_missing = int(table[name].isna().sum())
        nodes.append(element("feature", inside + element("number_of_missing_values", n_missing)))
    return document("data_features", "".join(nodes))


def task_of(
    server: OpenMLServer, number: int, data_id: int, kind: str, n: tuple[int, int]
) -> Answer:
    data = element("data_set_id", data_id) + element("target_feature", "class")
    inside = element("id", 1) + element("type", "crossvalidation")
    inside += element("data_splits_url", f"{server.base}{splits_path(number)}")
    inside += element("parameter", n[0], name="number_repeats")
    inside += element("parameter", n[1], name="number_folds")
    names = {"1": "Supervised Classification", "2": "Supervised Regression"}
    text = element("task_id", number) + element("task_type_id", kind)
    text += element("task_type", names[kind])
    text += element("input", element("data_set", data), name="source_data")
    text += element("input", element("estimation_procedure", inside), name="estimation_procedure")
    return document("task", text)


def parquet_path(number: int) -> str:
    return f"/datasets/0000/{number:04}/dataset_{number}.pq"


def arff_path(number: int) -> str:
    return f"/data/v1/download/{number}/table.arff"


def splits_path(number: int) -> str:
    return f"/api_splits/get/{number}/Task_{number}_splits.arff"


def fill(server: OpenMLServer) -> None:
    """Datasets 61 (parquet and ARFF), 62 (ARFF only), 63 (sparse ARFF only); tasks on them."""
    for number, form in ((61, "ARFF"), (62, "ARFF"), (63, "Sparse_ARFF")):
        table = server.tables[number] = make_table(60, seed=number)
        arff = to_arff(table)
        md5 = hashlib.md5(arff).hexdigest()
        has_parquet = number == 61
        server.pages[f"{API}/data/{number}"] = describe(server, number, form, has_parquet, md5)
        server.pages[f"{API}/data/features/{number}"] = features_of(table)
        quality = element("name", "NumberOfInstances") + element("value", f"{len(table)}.0")
        page = document("data_qualities", element("quality", quality))
        server.pages[f"{API}/data/qualities/{number}"] = page
        server.pages[arff_path(number)] = Answer(arff, kind="text/plain")
        if has_parquet:
            content = to_parquet(table)
            server.pages[parquet_path(number)] = Answer(content, kind="application/octet-stream")
    for number, data_id, kind, n in (
        (59, 61, "1", (2, 3)),
        (60, 62, "1", (1, 5)),
        (58, 61, "2", (1, 2)),
    ):
        folds = server.folds[number] = make_folds(60, *n)
        server.pages[f"{API}/task/{number}"] = task_of(server, number, data_id, kind, n)
        server.pages[splits_path(number)] = Answer(to_splits(folds, n[1]), kind="text/plain")
    tasks = element("tasks", "".join(element("task_id", number) for number in (59, 60)))
    texts = {"id": 99, "alias": "small", "main_entity_type": "task", "name": "Small suite"}
    texts |= {"description": "Two tasks", "status": "active", "creation_date": "2026-01-01"}
    inside = "".join(element(name, text) for name, text in (texts | {"creator": 1}).items())
    server.pages[f"{API}/study/99"] = document("study", inside + tasks)
    for name in ("task/77", "data/77"):
        answer = error(111, "Unknown number")
        server.pages[f"{API}/{name}"] = answer
