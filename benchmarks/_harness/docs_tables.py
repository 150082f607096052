"""Tables in a docs page: each stands between two comments and is generated from results."""

import pathlib
import re

from benchmarks._harness.results_file import write_text


def block_of(page: str, name: str, kind: str = "tables") -> str:
    """Return the text between the markers of a block."""
    begin, end = f"<!-- {kind}: {name} -->", f"<!-- end of {name} -->"
    found = re.findall(f"{begin}\n\n(.*?)\n\n{end}", page, flags=re.DOTALL)
    if len(found) != 1:
        raise ValueError(
            f"Got a page without the markers of {name!r}, but expected one line {begin} and one "
            f"line {end}."
        )
    return found[0]


def fill_block(page: str, name: str, text: str, kind: str = "tables") -> str:
    """Return the page with the text of one block replaced."""
    begin = f"<!-- {kind}: {name} -->\n\n"
    return page.replace(begin + block_of(page, name, kind), begin + text)


def write_block(path: pathlib.Path, name: str, text: str) -> None:
    """Replace one block of a page on disk."""
    write_text(path, fill_block(path.read_text(), name, text))
