"""The page that tells the study: its tables stand between marks, and are made from rows."""

import pathlib
import re

from benchmarks._writing import write_text

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "tables.md"


def marks_of(name: str) -> tuple[str, str]:
    """The lines before and after a block."""
    return f"<!-- tables: {name} -->", f"<!-- end of {name} -->"


def block_of(page: str, name: str) -> str:
    r"""What stands between the marks of a block.

    Examples
    --------
    >>> block_of("<!-- tables: x -->\n\nhere\n\n<!-- end of x -->", "x")
    'here'
    """
    begin, end = marks_of(name)
    found = re.findall(f"{re.escape(begin)}\n\n(.*?)\n\n{re.escape(end)}", page, flags=re.DOTALL)
    if len(found) != 1:
        raise ValueError(
            f"Got a page without the marks of {name!r}, but expected one line {begin} and one "
            f"line {end}."
        )
    return found[0]


def fill(page: str, name: str, text: str) -> str:
    r"""The page with a block made anew.

    Examples
    --------
    >>> fill("<!-- tables: x -->\n\nold\n\n<!-- end of x -->", "x", "new").splitlines()[2]
    'new'
    """
    begin, end = marks_of(name)
    before = f"{begin}\n\n{block_of(page, name)}\n\n{end}"
    return page.replace(before, f"{begin}\n\n{text}\n\n{end}")


def write(name: str, text: str, path: pathlib.Path = PAGE) -> None:
    """Write a block into the page."""
    write_text(path, fill(path.read_text(), name, text))
