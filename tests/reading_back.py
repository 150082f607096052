"""Read reports back: Markdown by a real parser, LaTeX by undoing its escapes."""

import re

from markdown_it import MarkdownIt

# Each escape, and the text that it stands for.
LATEX = {
    **{f"\\{char}": char for char in "&%$#_{}"},
    **{r"\textbackslash{}": "\\", r"\textasciitilde{}": "~", r"\textasciicircum{}": "^"},
    **{r"\textless{}": "<", r"\textgreater{}": ">", r"\textbar{}": "|", "{[}": "[", "{*}": "*"},
    **{r"\textasciigrave{}": "`", r"\textquotedbl{}": '"', "-{}": "-", "$-$": "-"},
}
PIECE = re.compile("|".join(map(re.escape, sorted(LATEX, key=len, reverse=True))))
# Characters with a meaning in LaTeX.
ACTIVE = set("\\{}$&#%_^~")


def undo_latex(text):
    """Return the text that LaTeX prints, and the active characters that are not part of an escape."""
    left = PIECE.sub("", text)
    return PIECE.sub(lambda match: LATEX[match[0]], text), set(left) & ACTIVE


def markdown_tokens(text):
    """Return all tokens of a page with tables, outer and inner, with HTML allowed."""
    parser = MarkdownIt("commonmark", {"html": True}).enable("table")
    outer = parser.parse(text)
    return [inner for token in outer for inner in [token, *(token.children or [])]]


def markdown_text(text):
    """Return the visible text of a page."""
    return "".join(t.content for t in markdown_tokens(text) if t.type in ("text", "code_inline"))
