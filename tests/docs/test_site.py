"""The built site: all links resolve, and pages render correctly in a real browser.

``make docs`` builds the site and runs this file.
"""

import collections
import functools
import html.parser
import http.server
import pathlib
import re
import sys
import threading
import urllib.parse
import zlib

import pytest

SITE = pathlib.Path(__file__).parents[2] / "docs" / "_build" / "html"
if not (SITE / "index.html").exists():
    pytest.skip("the site has not been built: make docs", allow_module_level=True)

SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
EXAMPLES = sorted(path.stem for path in (SITE / "gallery").glob("plot_*.html"))
SHOWN = [
    *("index", "getting_started/quickstart", "user_guide/estimators", "user_guide/method"),
    *("user_guide/searching", "benchmarks/speed", "gallery/index"),
    *(f"gallery/{name}" for name in EXAMPLES),
    "api/mixupe_sklearn.MixupEClassifier",
]
# The theme has a template in _static that ends in .html.
PATHS = [path.relative_to(SITE) for path in SITE.rglob("*.html")]
ALL = sorted(path.with_suffix("").as_posix() for path in PATHS if path.parts[0] != "_static")


# --- Links, without a browser ---------------------------------------------------------------------


class Links(html.parser.HTMLParser):
    """The anchors of a page, its links, and the files that it loads."""

    def __init__(self):
        super().__init__()
        self.anchors, self.links, self.loaded = set(), [], []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        for name in ("src", "srcset") if tag != "a" else ():
            # A srcset has several addresses with their widths.
            self.loaded += [part.split()[0] for part in (values.get(name) or "").split(",") if part]
        if tag == "link" and values.get("rel") in (
            "stylesheet",
            "icon",
            "preload",
            "modulepreload",
        ):
            self.loaded.append(values["href"])


@functools.cache
def read(path):
    links = Links()
    links.feed(path.read_text(encoding="utf-8"))
    return links


def is_external(address):
    return bool(urllib.parse.urlsplit(address).scheme) or address.startswith("//")


def broken(path, site):
    """The internal addresses of a page that do not resolve."""
    page, found = read(path), []
    for address in [*page.links, *page.loaded]:
        if is_external(address):
            continue
        parts = urllib.parse.urlsplit(address)
        target = path.parent / urllib.parse.unquote(parts.path) if parts.path else path
        target = target.resolve()
        if not target.is_file() or not target.is_relative_to(site.resolve()):
            found.append(address)
        elif target.suffix == ".html" and parts.fragment:
            anchor = urllib.parse.unquote(parts.fragment)
            found += [] if anchor in read(target).anchors else [address]
    return found


@pytest.mark.parametrize("page", ALL)
def test_every_internal_link_of_a_page_resolves(page):
    assert broken(SITE / f"{page}.html", SITE) == []


def test_nothing_is_loaded_from_another_host():
    loaded = {address for page in ALL for address in read(SITE / f"{page}.html").loaded}
    assert len(loaded) > 20
    assert not [a for a in loaded if is_external(a) and not a.startswith("data:")]


def test_broken_links_are_found(tmp_path):
    (tmp_path / "b.html").write_text("<p id='present'>")
    (tmp_path / "a.html").write_text(
        "<a href='b.html#present'></a><a href='#top' id='top'></a><a href='https://x.org/y#z'></a>"
        "<a href='b.html#missing'></a><a href='c.html'></a><img src='d.png'><a href='../e.html'></a>"
    )
    (tmp_path.parent / "e.html").write_text("")
    found = broken(tmp_path / "a.html", tmp_path)
    assert found == ["b.html#missing", "c.html", "../e.html", "d.png"]


def test_every_page_is_reachable_from_the_index():
    seen, waiting = set(), collections.deque(["index"])
    while waiting:
        page = waiting.popleft()
        if page in seen:
            continue
        seen.add(page)
        path = SITE / f"{page}.html"
        for address in read(path).links:
            parts = urllib.parse.urlsplit(address)
            if not is_external(address) and parts.path.endswith(".html"):
                target = (path.parent / urllib.parse.unquote(parts.path)).resolve()
                waiting.append(target.relative_to(SITE.resolve()).with_suffix("").as_posix())
    # The indexes of Sphinx are reached through the search.
    assert set(ALL) - seen <= {"genindex", "py-modindex", "search"}


def test_names_of_other_projects_are_links():
    page = read(SITE / "api" / "mixupe_sklearn.make_mixupe_pipeline.html")
    wanted = "scikit-learn.org/stable/modules/generated/sklearn.pipeline.Pipeline.html"
    assert any(wanted in address for address in page.links)


def test_an_inventory_has_no_name_that_no_page_uses():
    links = {address for page in ALL for address in read(SITE / f"{page}.html").links}
    for path in (SITE.parents[1] / "inventories").glob("*.inv"):
        lines = zlib.decompress(path.read_bytes().split(b"\n", 4)[-1]).decode().splitlines()
        targets = {line.split()[3] for line in lines}
        assert not {target for target in targets if not any(a.endswith(target) for a in links)}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_shows_a_figure_and_no_warning(name):
    page = (SITE / "gallery" / f"{name}.html").read_text(encoding="utf-8")
    assert re.search(r'<img[^>]+class ?= ?"sphx-glr-(single|multi)-img', page)
    outputs = re.findall(r'class="sphx-glr-script-out(.*?)</pre>', page, flags=re.DOTALL)
    assert not [text for text in outputs if "Warning" in text or "Traceback" in text]


def test_formulas_need_no_script():
    path = SITE / "user_guide" / "method.html"
    assert path.read_text(encoding="utf-8").count("<math") > 30
    assert not [address for address in read(path).loaded if "mathjax" in address.lower()]


# --- In a browser ---------------------------------------------------------------------------------


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serve the site without logging."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, directory=str(SITE), **kwargs)

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    """A server that ignores closed connections: a browser closes them when it leaves a page."""

    def handle_error(self, request, client_address):
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@pytest.fixture(scope="module")
def address():
    with Server(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


class Window:
    """A browser window of one size and colour scheme, and the errors of its page."""

    def __init__(self, browser, address, size, scheme):
        width, height = SIZES[size]
        self.address, self.scheme = address, scheme
        # A phone has a high pixel density, so it loads the images of higher resolution.
        self.context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            device_scale_factor=2 if size == "phone" else 1,
        )
        self.context.route("**/*", self._filter)
        self.page = self.context.new_page()
        self.errors = []
        self.page.on("console", self._record_message)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("requestfailed", lambda request: self.errors.append(request.url))
        self.page.on("response", self._record_response)

    def _filter(self, route):
        if route.request.url.startswith((self.address, "data:")):
            route.continue_()
        else:
            self.errors.append(route.request.url)
            route.abort()

    def _record_message(self, message):
        if message.type == "error":
            self.errors.append(message.text)

    def _record_response(self, response):
        if response.status >= 400:
            self.errors.append(f"{response.status} {response.url}")

    def open(self, name, query=""):
        self.errors.clear()
        self.page.goto(f"{self.address}{name}.html{query}")
        return self.page


@pytest.fixture(
    scope="module",
    params=[(size, scheme) for size in SIZES for scheme in ("light", "dark")],
    ids="-".join,
)
def window(request, browser, address):
    window = Window(browser, address, *request.param)
    yield window
    window.context.close()


@pytest.fixture(scope="module")
def on_a_phone(browser, address):
    window = Window(browser, address, "phone", "light")
    yield window
    window.context.close()


# Images load lazily on scrolling; this loads them all.
BROKEN_IMAGES = """async () => {
    const images = [...document.images];
    for (const image of images) image.loading = "eager";
    await Promise.all(images.map(image => image.decode().catch(() => null)));
    return images.filter(image => image.naturalWidth === 0).map(image => image.src);
}"""
WIDTHS = "() => [document.scrollingElement.scrollWidth, window.innerWidth]"


def check_width(page):
    inner, outer = page.evaluate(WIDTHS)
    assert inner <= outer + 1


@pytest.mark.parametrize("name", SHOWN)
def test_a_page_opens_without_errors(window, name):
    page = window.open(name)
    assert page.evaluate(BROKEN_IMAGES) == []
    page.wait_for_load_state("networkidle")
    assert window.errors == []
    assert page.evaluate("() => document.documentElement.dataset.theme") == window.scheme
    check_width(page)


@pytest.mark.parametrize("name", [name for name in ALL if name not in SHOWN])
def test_no_page_scrolls_sideways_on_a_phone(on_a_phone, name):
    check_width(on_a_phone.open(name))


def test_errors_of_a_page_are_recorded(browser, address, tmp_path):
    window = Window(browser, address, "phone", "light")
    try:
        window.open("index")
        window.page.set_content(
            "<img src='http://127.0.0.1:9/x.png'><script>nothing.here</script>"
            "<div style='width: 5000px'>wide</div>"
        )
        assert window.page.evaluate(BROKEN_IMAGES) == ["http://127.0.0.1:9/x.png"]
        assert any("nothing is not defined" in error for error in window.errors)
        assert "http://127.0.0.1:9/x.png" in window.errors
        with pytest.raises(AssertionError):
            check_width(window.page)
    finally:
        window.context.close()


def test_the_reader_can_select_dark_mode(window):
    page = window.open("index")
    page.evaluate("() => localStorage.setItem('mode', 'dark')")
    page.reload()
    try:
        assert page.evaluate("() => document.documentElement.dataset.theme") == "dark"
        background = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        assert sum(int(part) for part in background[4:-1].split(",")) < 150
    finally:
        page.evaluate("() => localStorage.clear()")


def test_the_search_finds_a_page(on_a_phone):
    page = on_a_phone.open("search", "?q=calibration")
    page.wait_for_selector("#search-results li")
    assert on_a_phone.errors == []
