"""Text of strangers on its way to a reader: one function for each language it is written in.

Names of data sets, columns, classes and methods, and messages of errors, may hold anything. Pages
of HTML are escaped by jinja2 and ``html.escape``. CSV files are for programs, and hold names as
they are.
"""

import re

_LATEX = {
    **{char: "\\" + char for char in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''"},
    **{"±": r"$\pm$", "·": r"$\cdot$", "…": r"\ldots{}", "`": r"\textasciigrave{}"},
    **{"“": "``", "”": "''"},
    # After the end of a row, a bare one would be taken as an option of it.
    **{"[": "{[}", "*": "{*}"},
}
# What begins a list, a rule, a heading, a comment, a fence or a target at the start of a line.
_BEGIN = re.compile(r"[-+](?=[-+\s]|$)|[=%:]|\((?=[^)]*\)=)")
_NUMBERED = re.compile(r"(\d+)([.)])(?=\s|$)")
# Renderers make links of these by themselves.
_ADDRESS = re.compile(r"(?<=\w)(:)(?=//)|(?<=\bwww)(\.)", re.IGNORECASE)


def printable(text: str) -> str:
    r"""Text in one line without control characters, so that a terminal obeys none of it.

    Examples
    --------
    >>> printable("two\nlines"), printable("\x1b[31mred")
    ('two lines', '[31mred')
    """
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def printable_lines(text: str) -> str:
    r"""Text without control characters that keeps its lines.

    Examples
    --------
    >>> printable_lines("two\nlines\x07")
    'two\nlines'
    """
    return "\n".join(map(printable, text.splitlines()))


def escape_markdown(text: str) -> str:
    r"""Text that Markdown shows as it is, wherever in a line it stands.

    Examples
    --------
    >>> print(escape_markdown("<b>&_|"))
    \<b\>\&\_\|
    >>> print(escape_markdown("1. https://x"))
    1\. https\://x
    """
    text = re.sub(r"([\\`*_{}\[\]<>&|#~$!])", r"\\\1", printable(text))
    text = _ADDRESS.sub(lambda match: "\\" + match[0], text)
    if _BEGIN.match(text):
        return "\\" + text
    return _NUMBERED.sub(r"\1\\\2", text, count=1) if _NUMBERED.match(text) else text


def markdown_code(text: str) -> str:
    """Text as a piece of code in Markdown, between as many marks as it needs.

    Examples
    --------
    >>> markdown_code("a`b"), markdown_code("ab")
    ('``a`b``', '`ab`')
    """
    text = printable(text)
    longest = max(map(len, re.findall("`+", text)), default=0)
    mark = "`" * (longest + 1)
    pad = " " if text.startswith("`") or text.endswith("`") or not text else ""
    return f"{mark}{pad}{text}{pad}{mark}"


def escape_latex(text: str) -> str:
    r"""Text that LaTeX prints as it is.

    Examples
    --------
    >>> print(escape_latex("50 % of a_b"))
    50 \% of a\_b
    """
    text = re.sub(r"(?<![\w.])-(?=\d)", "\N{MINUS SIGN}", printable(text))
    text = "".join(_LATEX.get(char, char) for char in text)
    # Two hyphens would be joined to a dash.
    return re.sub("-(?=-)", "-{}", text).replace("\N{MINUS SIGN}", "$-$")
