"""The site as it was built: every link leads somewhere, and pages look right in a real browser.

``make docs`` builds it and runs this file. Nothing here builds anything.
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
    *("index", "user_guide", "method", "searching", "gallery/index"),
    *(f"gallery/{name}" for name in EXAMPLES),
    "api/mixupe_sklearn.MixupEClassifier",
]
# The theme keeps a template among its files that ends in .html.
PATHS = [path.relative_to(SITE) for path in SITE.rglob("*.html")]
ALL = sorted(path.with_suffix("").as_posix() for path in PATHS if path.parts[0] != "_static")


# --- Links, without a browser ---------------------------------------------------------------------


class Links(html.parser.HTMLParser):
    """What a page offers (names of places) and what it refers to."""

    def __init__(self):
        super().__init__()
        self.places, self.links, self.loaded = set(), [], []

    def handle_starttag(self, tag, attrs):
        own = dict(attrs)
        self.places |= {own[name] for name in ("id", "name") if own.get(name)}
        if tag == "a" and own.get("href"):
            self.links.append(own["href"])
        for name in ("src", "srcset") if tag != "a" else ():
            # One address, or several with their widths.
            self.loaded += [part.split()[0] for part in (own.get(name) or "").split(",") if part]
        if tag == "link" and own.get("rel") in ("stylesheet", "icon", "preload", "modulepreload"):
            self.loaded.append(own["href"])


@functools.cache
def read(path):
    links = Links()
    links.feed(path.read_text(encoding="utf-8"))
    return links


def is_elsewhere(address):
    return bool(urllib.parse.urlsplit(address).scheme) or address.startswith("//")


def broken(path, site):
    """The addresses of a page that lead nowhere within the site."""
    page, found = read(path), []
    for address in [*page.links, *page.loaded]:
        if is_elsewhere(address):
            continue
        parts = urllib.parse.urlsplit(address)
        target = path.parent / urllib.parse.unquote(parts.path) if parts.path else path
        target = target.resolve()
        if not target.is_file() or not target.is_relative_to(site.resolve()):
            found.append(address)
        elif target.suffix == ".html" and parts.fragment:
            place = urllib.parse.unquote(parts.fragment)
            found += [] if place in read(target).places else [address]
    return found


@pytest.mark.parametrize("page", ALL)
def test_every_link_within_the_site_leads_somewhere(page):
    assert broken(SITE / f"{page}.html", SITE) == []


def test_nothing_is_loaded_from_another_host():
    loaded = {address for page in ALL for address in read(SITE / f"{page}.html").loaded}
    assert len(loaded) > 20
    assert not [a for a in loaded if is_elsewhere(a) and not a.startswith("data:")]


def test_the_watch_notices_what_is_broken(tmp_path):
    (tmp_path / "b.html").write_text("<p id='there'>")
    (tmp_path / "a.html").write_text(
        "<a href='b.html#there'></a><a href='#top' id='top'></a><a href='https://x.org/y#z'></a>"
        "<a href='b.html#not'></a><a href='c.html'></a><img src='d.png'><a href='../e.html'></a>"
    )
    (tmp_path.parent / "e.html").write_text("")
    found = broken(tmp_path / "a.html", tmp_path)
    assert found == ["b.html#not", "c.html", "../e.html", "d.png"]


def test_every_page_can_be_reached_from_the_first_one():
    seen, waiting = set(), collections.deque(["index"])
    while waiting:
        page = waiting.popleft()
        if page in seen:
            continue
        seen.add(page)
        path = SITE / f"{page}.html"
        for address in read(path).links:
            parts = urllib.parse.urlsplit(address)
            if not is_elsewhere(address) and parts.path.endswith(".html"):
                target = (path.parent / urllib.parse.unquote(parts.path)).resolve()
                waiting.append(target.relative_to(SITE.resolve()).with_suffix("").as_posix())
    # Sphinx's lists of all names are offered by its search, not by a link.
    assert set(ALL) - seen <= {"genindex", "py-modindex", "search"}


def test_names_of_other_projects_are_links():
    page = read(SITE / "api" / "mixupe_sklearn.make_mixupe_pipeline.html")
    wanted = "scikit-learn.org/stable/modules/generated/sklearn.pipeline.Pipeline.html"
    assert any(wanted in address for address in page.links)


def test_an_inventory_has_no_name_that_no_page_uses():
    links = {address for page in ALL for address in read(SITE / f"{page}.html").links}
    for path in (SITE.parents[1] / "inventories").glob("*.inv"):
        lines = zlib.decompress(path.read_bytes().split(b"\n", 4)[-1]).decode().splitlines()
        places = {line.split()[3] for line in lines}
        assert not {place for place in places if not any(a.endswith(place) for a in links)}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_was_run_and_shows_a_figure(name):
    page = (SITE / "gallery" / f"{name}.html").read_text(encoding="utf-8")
    assert re.search(r'<img[^>]+class ?= ?"sphx-glr-(single|multi)-img', page)
    outputs = re.findall(r'class="sphx-glr-script-out(.*?)</pre>', page, flags=re.DOTALL)
    assert not [text for text in outputs if "Warning" in text or "Traceback" in text]


def test_formulas_are_there_without_a_script():
    path = SITE / "method.html"
    assert path.read_text(encoding="utf-8").count("<math") > 30
    assert not [address for address in read(path).loaded if "mathjax" in address.lower()]


# --- In a browser ---------------------------------------------------------------------------------


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves the site, and says nothing about it."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, directory=str(SITE), **kwargs)

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    """A server to which nobody has to listen to the end: a browser that leaves a page hangs up."""

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


class Visitor:
    """A window of one size and scheme, and what went wrong on the page that it shows."""

    def __init__(self, browser, address, size, scheme):
        width, height = SIZES[size]
        self.address, self.scheme = address, scheme
        # A phone's pixels are small, so that it loads the finer pictures.
        self.context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            device_scale_factor=2 if size == "phone" else 1,
        )
        self.context.route("**/*", self._decide)
        self.page = self.context.new_page()
        self.troubles = []
        self.page.on("console", self._listen)
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("requestfailed", lambda request: self.troubles.append(request.url))
        self.page.on("response", self._look)

    def _decide(self, route):
        if route.request.url.startswith((self.address, "data:")):
            route.continue_()
        else:
            self.troubles.append(route.request.url)
            route.abort()

    def _listen(self, message):
        if message.type == "error":
            self.troubles.append(message.text)

    def _look(self, response):
        if response.status >= 400:
            self.troubles.append(f"{response.status} {response.url}")

    def open(self, name, query=""):
        self.troubles.clear()
        self.page.goto(f"{self.address}{name}.html{query}")
        return self.page


@pytest.fixture(
    scope="module",
    params=[(size, scheme) for size in SIZES for scheme in ("light", "dark")],
    ids="-".join,
)
def visitor(request, browser, address):
    visitor = Visitor(browser, address, *request.param)
    yield visitor
    visitor.context.close()


@pytest.fixture(scope="module")
def on_a_phone(browser, address):
    visitor = Visitor(browser, address, "phone", "light")
    yield visitor
    visitor.context.close()


# Pictures further down wait until somebody scrolls; here all are asked for.
BROKEN_IMAGES = """async () => {
    const pictures = [...document.images];
    for (const picture of pictures) picture.loading = "eager";
    await Promise.all(pictures.map(picture => picture.decode().catch(() => null)));
    return pictures.filter(picture => picture.naturalWidth === 0).map(picture => picture.src);
}"""
WIDTHS = "() => [document.scrollingElement.scrollWidth, window.innerWidth]"


def check_width(page):
    inner, outer = page.evaluate(WIDTHS)
    assert inner <= outer + 1


@pytest.mark.parametrize("name", SHOWN)
def test_a_page_opens_without_trouble(visitor, name):
    page = visitor.open(name)
    assert page.evaluate(BROKEN_IMAGES) == []
    page.wait_for_load_state("networkidle")
    assert visitor.troubles == []
    assert page.evaluate("() => document.documentElement.dataset.theme") == visitor.scheme
    check_width(page)


@pytest.mark.parametrize("name", [name for name in ALL if name not in SHOWN])
def test_no_page_scrolls_sideways_on_a_phone(on_a_phone, name):
    check_width(on_a_phone.open(name))


def test_the_watch_notices_trouble(browser, address, tmp_path):
    visitor = Visitor(browser, address, "phone", "light")
    try:
        visitor.open("index")
        visitor.page.set_content(
            "<img src='http://127.0.0.1:9/x.png'><script>nothing.here</script>"
            "<div style='width: 5000px'>wide</div>"
        )
        assert visitor.page.evaluate(BROKEN_IMAGES) == ["http://127.0.0.1:9/x.png"]
        assert any("nothing is not defined" in trouble for trouble in visitor.troubles)
        assert "http://127.0.0.1:9/x.png" in visitor.troubles
        with pytest.raises(AssertionError):
            check_width(visitor.page)
    finally:
        visitor.context.close()


def test_the_reader_can_choose_dark(visitor):
    page = visitor.open("index")
    page.evaluate("() => localStorage.setItem('mode', 'dark')")
    page.reload()
    try:
        assert page.evaluate("() => document.documentElement.dataset.theme") == "dark"
        ground = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        assert sum(int(part) for part in ground[4:-1].split(",")) < 150
    finally:
        page.evaluate("() => localStorage.clear()")


def test_the_search_finds_a_page(on_a_phone):
    page = on_a_phone.open("search", "?q=calibration")
    page.wait_for_selector("#search-results li")
    assert on_a_phone.troubles == []
