"""The report's page in a real browser: no errors, no requests, and everything is visible."""

import re

import pytest
from tabular_rows import make_rows, make_tuned_rows

from benchmarks._tabular.baselines import BASELINES
from benchmarks._tabular.report import make_report

SIZES = {"wide": (1400, 1000), "laptop": (1200, 800), "narrow": (400, 800)}
LONG = "a_dataset_whose_name_is_one_long_word_without_any_blank"
TUNED_METHODS = ("mixupe-default", "hist-gradient-boosting", "lightgbm", "xgboost")
# The contrast of text that WCAG 2 requires (level AA).
MIN_CONTRAST = 4.5


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    names = ["iris", "cmc", "letter", "wine", "abalone", LONG]
    rows = make_rows(names, ["erm", "mixup", "mixupe", "logistic", "hist-gradient-boosting"])
    studies = make_tuned_rows(names, TUNED_METHODS, n_trials=16)
    folder = tmp_path_factory.mktemp("page")
    other = {"command": "x" * 300, "not_run": {"volkert": "no copy"}}
    return make_report(rows, folder, tuned=studies, **other).html


class Visit:
    """An open page, with its messages and requests."""

    def __init__(self, browser, path, size, scheme):
        width, height = SIZES[size]
        viewport = {"width": width, "height": height}
        self.context = browser.new_context(viewport=viewport, color_scheme=scheme)
        self.page = self.context.new_page()
        self.messages, self.requests = [], []
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("dialog", self._dismiss)
        self.context.route("**/*", self._decide)
        self.address = path.as_uri()
        self.page.goto(self.address)

    def _dismiss(self, dialog):
        self.messages.append(f"{dialog.type}: {dialog.message}")
        dialog.dismiss()

    def _decide(self, route):
        if route.request.url == self.address:
            route.continue_()
        else:
            self.requests.append(route.request.url)
            route.abort()


@pytest.fixture(
    scope="module",
    params=[(size, scheme) for size in ("wide", "narrow") for scheme in ("light", "dark")],
    ids="-".join,
)
def visit(request, browser, page_file):
    visit = Visit(browser, page_file, *request.param)
    yield visit
    visit.context.close()


def test_the_page_has_no_errors_and_sends_no_requests(visit):
    visit.page.wait_for_load_state("networkidle")
    assert visit.messages == []
    assert visit.requests == []


def test_a_visit_records_requests_messages_and_dialogs(browser, tmp_path):
    path = tmp_path / "bad.html"
    scripts = "<script>alert('here')</script><script>nothing.here</script>"
    path.write_text(f"<img src='http://127.0.0.1:9/x.png'>{scripts}")
    visit = Visit(browser, path, "wide", "light")
    try:
        assert visit.requests == ["http://127.0.0.1:9/x.png"]
        assert "alert: here" in visit.messages
        assert any("nothing is not defined" in message for message in visit.messages)
    finally:
        visit.context.close()


BOXES = """() => [...document.querySelectorAll("svg[role=img]")].map(svg => {
    const {x, width, height} = svg.getBoundingClientRect();
    const isInFigure = svg.parentElement.tagName === "FIGURE";
    const isShown = svg.checkVisibility({opacityProperty: true, visibilityProperty: true});
    return {x, width, height, isInFigure, isShown, n: svg.querySelectorAll("path").length};
})"""


def test_every_figure_is_visible(visit):
    boxes = visit.page.evaluate(BOXES)
    # Ranks of the paper's methods and of all; a map per dataset. Tuned: the same and importances.
    assert len(boxes) == visit.page.locator("figure").count() == 2 + 6 + 1 + 6 + 1
    for box in boxes:
        assert box["isInFigure"]
        assert box["isShown"]
        assert box["width"] > 200
        assert box["height"] > 80
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= visit.page.viewport_size["width"]
        assert box["n"] > 5


LABELS_OUTSIDE = """() => [...document.querySelectorAll("svg[role=img]")].flatMap(svg => {
    const outer = svg.getBoundingClientRect();
    return [...svg.querySelectorAll("text")].filter(text => {
        const inner = text.getBoundingClientRect();
        return inner.left < outer.left - 2 || inner.right > outer.right + 2;
    }).map(text => text.textContent);
})"""


def test_no_label_of_a_figure_is_cut_off(visit):
    assert visit.page.evaluate(LABELS_OUTSIDE) == []


def test_the_page_does_not_scroll_sideways_but_its_tables_can_on_a_narrow_screen(visit):
    size = "() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    inner, outer = visit.page.evaluate(size)
    assert inner <= outer
    if visit.page.viewport_size["width"] > SIZES["narrow"][0]:
        return
    box = visit.page.locator(".scroll").first
    assert box.evaluate("box => box.scrollWidth > box.clientWidth")
    box.evaluate("box => { box.scrollLeft = 10000; }")
    assert box.evaluate("box => box.scrollLeft") > 0
    name = box.locator("tbody th").first.bounding_box()
    assert name["x"] >= box.bounding_box()["x"] - 1  # the names stay in view


@pytest.mark.parametrize(
    "methods",
    [
        ("erm", "mixup", "mixupe"),
        # With a further baseline the table scrolls.
        ("mixupe-default", "mixupe-paper", *(set(BASELINES) - {"mlp-sklearn", "tabm"})),
    ],
    ids=["paper", "baselines"],
)
def test_the_first_table_fits_a_laptop(browser, methods, tmp_path):
    rows = make_rows(["mfeat-morphological", "iris", "arrhythmia"], methods, n_splits=2)
    visit = Visit(browser, make_report(rows, tmp_path).html, "laptop", "light")
    try:
        box = visit.page.locator(".scroll").first
        assert box.evaluate("box => box.scrollWidth <= box.clientWidth")
    finally:
        visit.context.close()


def test_the_tuned_tables_of_four_methods_fit_a_laptop(browser, tmp_path):
    names = ["mfeat-morphological", "iris", "arrhythmia", "letter", "cmc", "abalone"]
    rows = make_tuned_rows(names, TUNED_METHODS, n_trials=16)
    page = make_report(rows.iloc[:0], tmp_path, tuned=rows).html
    visit = Visit(browser, page, "laptop", "light")
    try:
        boxes = visit.page.locator(".scroll")
        fits = boxes.evaluate_all("all => all.map(box => box.scrollWidth <= box.clientWidth)")
        assert fits == [True] * 7
    finally:
        visit.context.close()


def luminance(colour):
    channels = [float(part) / 255 for part in re.findall(r"[\d.]+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(colour, other):
    dark, light = sorted([luminance(colour), luminance(other)])
    return (light + 0.05) / (dark + 0.05)


COLOURS = """([selector, property]) => [...document.querySelectorAll(selector)].map(element => {
    let ground = element;
    while (ground && getComputedStyle(ground).backgroundColor === "rgba(0, 0, 0, 0)")
        ground = ground.parentElement;
    const back = ground ? getComputedStyle(ground).backgroundColor : "rgb(255, 255, 255)";
    return [getComputedStyle(element)[property], back];
})"""


@pytest.mark.parametrize(
    ("selector", "colour"),
    [
        ("p, h1, h2, td, th, caption, figcaption, dt, dd, li, a", "color"),
        ("figure svg text", "fill"),
    ],
    ids=["text", "figures"],
)
def test_text_has_enough_contrast(visit, selector, colour):
    pairs = visit.page.evaluate(COLOURS, [selector, colour])
    assert len(pairs) > 50
    assert min(contrast(*pair) for pair in pairs) >= MIN_CONTRAST


def test_dark_pages_are_dark(visit, request):
    scheme = request.node.callspec.params["visit"][1]
    ground = visit.page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert (luminance(ground) < 0.1) == (scheme == "dark")


def test_a_printed_page_is_light(browser, page_file):
    visit = Visit(browser, page_file, "wide", "dark")
    try:
        visit.page.emulate_media(media="print")
        ground = visit.page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        assert luminance(ground) > 0.9
        assert visit.page.pdf()[:5] == b"%PDF-"
    finally:
        visit.context.close()


def test_headings_captions_and_heads_of_tables_are_marked_up(visit):
    page = visit.page
    assert page.locator("h1").count() == 1
    assert page.locator("table").count() == page.locator("table > caption").count() > 5
    assert page.locator("thead th:not([scope])").count() == 0
    assert page.locator("tbody tr > th[scope=row]").count() == page.locator("tbody tr").count()
    assert page.locator("figure > figcaption").count() == page.locator("figure").count()


def test_the_lowest_errors_are_bold_and_aligned_with_the_others(visit):
    styles = visit.page.evaluate(
        """() => [...document.querySelectorAll("td.best")].map(cell => {
            const style = getComputedStyle(cell);
            return [style.fontWeight, style.textAlign];
        })"""
    )
    assert len(styles) >= 6
    assert set(map(tuple, styles)) == {("700", "right")}
