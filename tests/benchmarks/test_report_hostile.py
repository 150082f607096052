"""A report on a dataset with hostile names: every format shows them as plain text."""

import contextlib
import io
import re

import numpy as np
import pandas as pd
import pytest
from reading_back import markdown_text, markdown_tokens, undo_latex
from test_report_in_browser import Visit

from benchmarks import tabular
from benchmarks._harness.report_tables import printable
from benchmarks._harness.results_file import read_rows
from benchmarks._tabular.protocol import FITS
from benchmarks._tabular.report import make_report

NAMES = [
    "<script>alert(1)</script>",
    r"\input{x}",
    '"><img src=x onerror=alert(1)>',
    r"$\write18$",
    "a|b",
    "=1+1",
    "two\nlines",
    "javascript:alert(1)",
    "[x](javascript:alert(1))",
    "![x](http://127.0.0.1:9/x.png)",
    "' onmouseover='alert(1)",
    "--><svg onload=alert(1)>",
    "</style><script>alert(1)</script>",
    "{{ 7 * 7 }}{% raw %}",
    "# **bold** `code` &lt; &#60;",
    "\x1b[2J\x07\u202e",
    "^^5cinput{x} % ~ #1",
]
SHOWN = [name for name in map(printable, NAMES) if name]
TARGET = NAMES[0]
# A file name has no slash.
FILE = r"<img src=x onerror=alert(1)> \input{x} $a$ a|b.csv"


def write_table(path):
    """Write a CSV file whose columns and classes have these names."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, len(NAMES) - 1)).round(2)
    frame = pd.DataFrame(X, columns=NAMES[1:])
    frame[NAMES[2]] = rng.choice(NAMES, 60)  # a column of text
    frame[TARGET] = np.array([NAMES[0], NAMES[1], NAMES[4]])[np.arange(60) % 3]
    frame.to_csv(path, index=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The output of the command for such a file."""
    folder = tmp_path_factory.mktemp("hostile")
    write_table(folder / FILE)
    arguments = ["--csv", folder / FILE, "--target", TARGET, "--output", folder / "out"]
    arguments += ["--methods", "erm", "mixup", "mixupe", "--grid", "reduced", "--seeds", "2"]
    arguments += ["--epochs", "1", "--jobs", "1", "--quiet"]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert tabular.main(list(map(str, arguments))) == 0
    (folder / "out" / "printed.txt").write_text(printed.getvalue())
    return folder / "out"


@pytest.fixture(scope="module")
def report(folder, tmp_path_factory):
    """A report on rows in which all texts are hostile: datasets, methods and errors."""
    rows = read_rows(folder / "rows.csv", FITS)
    assert (rows["error"] == "").all()
    parts = [rows]
    for number, name in enumerate([" ".join(NAMES[start::3]) for start in range(3)]):
        own = rows.assign(dataset=name, data=name, commit=name, versions=name)
        others = rows[rows["method"] == "erm"].assign(method=name, test_error=number)
        failed = rows.head(1).assign(split=9, error=name, method=name)
        parts += [own, others, failed, others.assign(dataset=name, data=name)]
    not_run = {name: name for name in NAMES}
    target = tmp_path_factory.mktemp("report")
    return make_report(pd.concat(parts), target, command=" ".join(NAMES), not_run=not_run)


def without_policy(path):
    """A copy of a page without its content security policy."""
    text, n_found = re.subn("<meta http-equiv=.*", "", path.read_text())
    assert n_found == 1
    copy = path.with_name("without_policy.html")
    copy.write_text(text)
    return copy


# Elements and attributes that could run or load something.
LIVE = """() => [
    ...document.querySelectorAll(
        "script, img, iframe, object, embed, form, input, base, foreignObject, a:not([href^='#'])"
    ),
    ...[...document.querySelectorAll("*")].filter(element =>
        [...element.attributes].some(({name, value}) =>
            name.startsWith("on") || /^(xlink:)?href$|^src$/.test(name) && !/^(#|data:,|data:image.png;base64,)/.test(value))),
].map(element => element.outerHTML)"""


@pytest.mark.parametrize(
    ("which", "has_policy"), [("of the command", True), ("of rows", True), ("of rows", False)]
)
def test_a_browser_shows_the_names_and_runs_nothing(browser, folder, report, which, has_policy):
    path = report.html if which == "of rows" else folder / "report.html"
    visit = Visit(browser, path if has_policy else without_policy(path), "wide", "light")
    try:
        visit.page.wait_for_load_state("networkidle")
        assert visit.messages == []
        assert visit.requests == []
        assert visit.page.evaluate(LIVE) == []
        text = visit.page.locator("main").text_content()
        names = SHOWN if which == "of rows" else [TARGET, FILE.removesuffix(".csv")]
        assert [name for name in names if name not in text] == []
        assert visit.page.locator("svg[role=img]").count() > 0
    finally:
        visit.context.close()


def test_the_policy_blocks_scripts(browser, folder, tmp_path):
    page = tmp_path / "with_script.html"
    page.write_text((folder / "report.html").read_text() + "<script>alert(1)</script>")
    visit = Visit(browser, page, "wide", "light")
    try:
        assert not any(message.startswith("alert") for message in visit.messages)
        assert any("Content Security Policy" in message for message in visit.messages)
    finally:
        visit.context.close()


def test_markdown_shows_the_names_without_tags_and_links(report, folder):
    for path in (report.markdown, folder / "report.md"):
        page = path.read_text()
        kinds = {token.type for token in markdown_tokens(page)}
        assert not kinds & {"html_inline", "html_block", "link_open", "image", "fence"}
        assert "table_open" in kinds
    shown = markdown_text(report.markdown.read_text())
    assert [name for name in SHOWN if name not in shown] == []


# The commands of our tables.
COMMANDS = {"begin", "end", "centering", "caption", "label", "toprule", "midrule", "bottomrule"}
COMMANDS |= {"multicolumn", "textbf", "par", "smallskip"}
COMMANDS |= {
    f"text{name}" for name in ("backslash", "asciitilde", "asciicircum", "less", "greater")
}
COMMANDS |= {"textbar", "textasciigrave", "textquotedbl"}


def test_latex_shows_the_names_with_our_own_commands_alone(report, folder):
    for path in (folder / "report.tex", report.latex):
        lines = [line for line in path.read_text().splitlines() if not line.startswith("%")]
        text = "\n".join(lines)
        assert set(re.findall(r"\\([A-Za-z]+)", text)) <= COMMANDS
        assert not re.search(r"(?<!\\)%|\^\^|(?<!\\)#", text)
        assert text.count("{") == text.count("}")
    shown = undo_latex(text)[0]
    assert [name for name in SHOWN if name not in shown] == []


def test_the_terminal_output_has_no_control_characters(report, folder):
    printed = (folder / "printed.txt").read_text()
    assert "Test error in percent" in printed
    for text in (report.terminal, printed):
        assert all(line.isprintable() for line in text.split("\n"))


def test_an_error_message_has_no_control_characters(tmp_path, capsys):
    path = tmp_path / "a\x1b[2Jb.csv"
    path.write_text("x,\x1b[31my\n1,2\n")
    assert tabular.main(["--csv", str(path), "--target", "\x1b[31mz", "--quiet"]) == 2
    message = capsys.readouterr().err
    assert message.startswith("Error: Got target=")
    assert message.strip().isprintable()
