"""Tables in a docs page: each stands between two comments and is generated from results."""

import pathlib
import re

from benchmarks._harness.results_file import write_text


def markers_of(name: str, kind: str = "tables") -> tuple[str, str]:
    """Return the comments before and after a block."""
    return f"<!-- {kind}: {name} -->", f"<!-- end of {name} -->"


def block_of(page: str, name: str, kind: str = "tables") -> str:
    r"""Return the text between the markers of a block.

    Examples
    --------
    >>> block_of("<!-- tables: x -->\n\nhere\n\n<!-- end of x -->", "x")
    'here'
    """
    begin, end = markers_of(name, kind)
    found = re.findall(f"{re.escape(begin)}\n\n(.*?)\n\n{re.escape(end)}", page, flags=re.DOTALL)
    if len(found) != 1:
        raise ValueError(
            f"Got a page without the markers of {name!r}, but expected one line {begin} and one "
            f"line {end}."
        )
    return found[0]


def fill_block(page: str, name: str, text: str, kind: str = "tables") -> str:
    r"""Return the page with the text of one block replaced.

    Examples
    --------
    >>> fill_block("<!-- tables: x -->\n\nold\n\n<!-- end of x -->", "x", "new").splitlines()[2]
    'new'
    """
    begin, end = markers_of(name, kind)
    before = f"{begin}\n\n{block_of(page, name, kind)}\n\n{end}"
    return page.replace(before, f"{begin}\n\n{text}\n\n{end}")


def write_block(path: pathlib.Path, name: str, text: str) -> None:
    """Replace one block of a page on disk."""
    write_text(path, fill_block(path.read_text(), name, text))
