"""Readers of what reports write: Markdown by a real parser, LaTeX by undoing its escapes."""

import re

from markdown_it import MarkdownIt

# What escaped text may be made of, and what it stands for.
LATEX = {
    **{f"\\{char}": char for char in "&%$#_{}"},
    **{r"\textbackslash{}": "\\", r"\textasciitilde{}": "~", r"\textasciicircum{}": "^"},
    **{r"\textless{}": "<", r"\textgreater{}": ">", r"\textbar{}": "|", "{[}": "[", "{*}": "*"},
    **{r"$\pm$": "±", r"$\cdot$": "·", r"\ldots{}": "…", r"\textasciigrave{}": "`"},
    **{"-{}": "-", "$-$": "-", "``": "“"},
}
PIECE = re.compile("|".join(map(re.escape, sorted(LATEX, key=len, reverse=True))))
# Characters that mean something to LaTeX.
ACTIVE = set("\\{}$&#%_^~")


def undo_latex(text):
    """The text that LaTeX prints, and the active characters in it that no escape accounts for."""
    left = PIECE.sub("", text)
    return PIECE.sub(lambda match: LATEX[match[0]], text), set(left) & ACTIVE


def markdown_tokens(text):
    """All tokens of a page with tables, outer and inner, as a renderer that lets HTML pass has them."""
    parser = MarkdownIt("commonmark", {"html": True}).enable("table")
    outer = parser.parse(text)
    return [inner for token in outer for inner in [token, *(token.children or [])]]


def markdown_text(text):
    """What a reader sees of a page, its pieces joined."""
    return "".join(t.content for t in markdown_tokens(text) if t.type in ("text", "code_inline"))
