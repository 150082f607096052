"""Search the repository for words that the project does not use.

One concept has one name, the name that the field uses: image, not "picture"; missing value, not
"hole". Identifiers are split at underscores and case changes, and their parts are compared with
each word and its plural, so that "whole" or "example" do not match.

    python .ci/words.py

prints ``file:line: word`` for each match and exits with 1 if there is one.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
# What is written in the project's own words. Results of benchmarks are data and are not searched.
FOLDERS = ("mixupe_sklearn", "benchmarks", "tests", "docs", ".ci")
FILES = ("README.md", "SECURITY.md", "Makefile", "pyproject.toml")
SUFFIXES = {".py", ".md", ".toml", ".rst", ".cff", ".html", ".css", ".js", ".yml", ".yaml", ".sh"}
SKIPPED = ("benchmarks/results/", "docs/_build/", "docs/api/", "docs/gallery/")
# Each word, and what to write instead. Several words match in sequence.
WORDS = {
    "picture": "image; figure or plot for matplotlib",
    "hole": "missing value",
    "slope": "gradient",
    "steepness": "gradient",
    "exam": "validation fold, held-out samples",
    "crew": "ensemble members, group",
    "team": "ensemble members, group",
    "loan": "parameter view",
    "borrow": "parameter view",
    "borrowed": "parameter view",
    "borrowing": "parameter view",
    "pay back": "restore",
    "pays back": "restore",
    "paid back": "restore",
    "portion": "shard",
    "shelf": "cache",
    "shelves": "cache",
    "hiccup": "transient storage error",
    "sign of life": "heartbeat",
    "signs of life": "heartbeat",
    "whole number": "integer",
    "truth value": "boolean",
    "set aside": "held-out samples",
    "sets aside": "held-out samples",
    "setting aside": "held-out samples",
    "data set": "dataset",
    "peer": "baseline",
}
# Lines that may hold a word: the file, the word, a part of the line, and the reason.
EXCEPTIONS = (
    (".ci/words.py", None, "", "this list itself"),
    ("tests/project/test_words.py", None, "", "the cases of its test"),
    (None, "slope", "negative_slope", "a parameter of torch's LeakyReLU"),
    ("docs/development/changelog.md", "hole", "hole=", "names the old parameter"),
    ("docs/development/changelog.md", "peer", "`peers`", "names the old extra"),
    ("docs/development/changelog.md", "peer", "results/peers", "names the old folder"),
    (None, "data set", "data_set", "an element of OpenML's XML"),
    (None, "peer", "closed by peer", "an error message of gloo and of sockets"),
    (None, "peer", "reset by peer", "an error message of sockets"),
)
_CASE_CHANGE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_PATTERNS = {word: re.compile(rf"(?<![a-z]){word.replace(' ', ' +')}s?(?![a-z])") for word in WORDS}


def plain(line: str) -> str:
    """A line in lower case, with identifiers split at underscores, hyphens and case changes.

    Examples
    --------
    >>> plain("PictureFiles whole_numbers data-set HTTPPeer")
    'picture files whole numbers data set http peer'
    """
    return re.sub(r"[_-]", " ", _CASE_CHANGE.sub(" ", line)).lower()


def words_in(line: str) -> list[str]:
    """The words of the list that a line holds, in the singular or the plural.

    Examples
    --------
    >>> words_in("the examples fill a whole shelf with dataSets")
    ['shelf', 'data set']
    >>> words_in("proportions of wholesale loanwords, data = set(), and a steamer's preamble")
    []
    """
    text = plain(line)
    return [word for word, pattern in _PATTERNS.items() if pattern.search(text)]


def words_across(first: str, second: str) -> list[str]:
    """The words that are broken over two lines of prose, comments or strings.

    Examples
    --------
    >>> words_across('    # large data', '    # sets')
    ['data set']
    """
    end = first.rstrip(" \"'").rsplit(" ", 1)[-1]
    start = re.sub(r"""^[\s#>*]*f?["']?""", "", second).split(" ", 1)[0]
    inside = [*words_in(end), *words_in(start)]
    return [word for word in words_in(f"{end} {start}") if " " in word and word not in inside]


def is_excepted(path: str, word: str, line: str) -> bool:
    """Whether the list of exceptions allows the word in this line."""
    return any(
        file in (None, path) and own in (None, word) and part.lower() in line.lower()
        for file, own, part, _ in EXCEPTIONS
    )


def files() -> Iterator[Path]:
    """The files to search."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            is_text = path.suffix in SUFFIXES or (folder == ".ci" and not path.suffix)
            if path.is_file() and is_text and not name.startswith(SKIPPED):
                yield path
    yield from (ROOT / name for name in FILES)


def find() -> list[str]:
    """``file:line: word`` for each match in the repository, names of files included."""
    found = []
    for path in files():
        name = path.relative_to(ROOT).as_posix()
        found += [f"{name}:0: {word} (the name of the file)" for word in words_in(name)]
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, start=1):
            across = words_across(lines[number - 2], line) if number > 1 else []
            for word in dict.fromkeys([*words_in(line), *across]):
                if not is_excepted(name, word, line):
                    found.append(f"{name}:{number}: {word}")
    return found


def main() -> int:
    """Print all matches; return 1 if there are any."""
    found = find()
    print("\n".join(found) or "None of the words is in use.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
