"""Every format shows any text as it is, in any position."""

import csv

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reading_back import markdown_text, markdown_tokens, undo_latex

from benchmarks._harness.report_tables import (
    Cell,
    Column,
    ReportTable,
    as_latex,
    as_terminal,
    escape_latex,
    escape_markdown,
    markdown_code,
    plain_markdown,
    printable,
    printable_lines,
)
from benchmarks._tabular.protocol import COLUMNS, FITS, KEY

# Characters with a meaning in some format are more frequent.
SPECIAL = "\\`*_{}[]()<>&|#+-=.!~$%^:;\"'/@\t\n\r\x1b\x00\u202e\u2028 019axw"
TEXTS = st.text(st.one_of(st.sampled_from(SPECIAL), st.characters()), max_size=40)
FEW = settings(max_examples=200, deadline=None)

PLACES = {
    "paragraph": "before\n\n{}\n\nafter",
    "within a line": "before\n\nOn {}, all is well.\n\nafter",
    "heading": "before\n\n## {}\n\nafter",
    "item": "before\n\n- {}\n\nafter",
    "cell": "before\n\n| a | b |\n| --- | --- |\n| {} | c |\n\nafter",
}


def test_plain_markdown_aligns_numbers_to_the_right():
    table = plain_markdown(["method", "seconds"], [["MixupE", "2"]])
    assert table == "| method | seconds |\n|---|--:|\n| MixupE | 2 |"


@pytest.mark.parametrize("place", PLACES)
@FEW
@given(text=TEXTS)
@example(text="<script>alert(1)</script>")
@example(text="![x](javascript:alert(1))")
@example(text="1. https://x <https://y> &lt; www.z")
@example(text="+ a")
@example(text="---")
def test_markdown_shows_text_as_it_is(place, text):
    shown = printable(text)
    page, plain = (PLACES[place].format(words) for words in (escape_markdown(text), "x"))
    assert markdown_text(page) == markdown_text(plain).replace("x", shown or "", 1)
    if shown:
        kinds = [[token.type for token in markdown_tokens(one)] for one in (page, plain)]
        found, expected = ([kind for kind in own if kind != "text"] for own in kinds)
        assert found == expected


@FEW
@given(text=TEXTS)
@example(text="`")
@example(text="a``b`c")
@example(text="`<b>`")
def test_code_in_markdown_shows_text_as_it_is(text):
    tokens = markdown_tokens(f"before {markdown_code(text)} after")
    (code,) = [token for token in tokens if token.type == "code_inline"]
    assert code.content.strip() == printable(text)


@FEW
@given(text=TEXTS)
@example(text=r"\input{x}")
@example(text=r"$\write18$ ^^5cinput")
@example(text="[1pt] *")
@example(text="--- -1 - -")
def test_latex_shows_text_as_it_is(text):
    shown, active = undo_latex(escape_latex(text))
    assert active == set()
    assert shown == printable(text).replace("\N{MINUS SIGN}", "-")


@FEW
@given(text=TEXTS)
@example(text="\x1b]0;title\x07\x1b[2J")
@example(text="\udcff")
def test_printable_text_is_one_line_without_control_characters(text):
    shown = printable(text)
    assert shown.isprintable()
    assert printable(shown) == shown
    assert shown.encode().decode() == shown  # halves of characters are gone
    assert all(line.isprintable() for line in printable_lines(text).split("\n"))


@FEW
@given(text=TEXTS)
@example(text='=cmd|"/C calc"!A1')
@example(text="a\x1b\x85b")
def test_the_key_of_a_row_survives_any_name(text):
    """Otherwise a resumed run would repeat its fits."""
    row = dict.fromkeys(COLUMNS, "") | {"dataset": text, "split": 0, "seed": 0, "error": text}
    line = FITS.as_line(row)
    assert line.count("\n") == 1 == len(line.splitlines())
    (found,) = csv.DictReader([",".join(COLUMNS), line])
    assert found["dataset"] == printable(text)  # names are not changed for spreadsheets
    assert FITS.key_of(found) == FITS.key_of(row)
    assert set(KEY) <= set(COLUMNS)


def test_a_table_on_the_terminal_has_no_control_characters():
    bad = "\x1b[2J\x07na\x00me"
    table = ReportTable("x", bad, [Column(bad, bad), Column("b", bad)], [[Cell(bad), Cell(bad)]])
    assert all(line.isprintable() for line in as_terminal(table).split("\n"))


def test_a_name_in_brackets_is_not_an_option_of_latex():
    rows = [[Cell("a"), Cell("1")], [Cell("[2pt] *"), Cell("2")]]
    table = ReportTable("x", "Caption.", [Column("name"), Column("n")], rows)
    assert "{[}2pt] {*} & 2" in as_latex(table)
