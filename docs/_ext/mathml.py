"""Formulas as MathML, made when the site is built.

Sphinx's own way loads MathJax from another host whenever a page is opened. Browsers show MathML by
themselves, so a page needs no script for its formulas, and none from elsewhere.
"""

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)


def to_mathml(node: nodes.Element, display: str) -> str:
    """The MathML of a formula; one that is not understood gives a warning: ``make docs`` fails."""
    latex = node.astext()
    try:
        return convert(latex, display=display)
    except Exception as error:  # the library has no common base for what it raises
        logger.warning(
            "Got the formula %r, which is not understood: %r", latex, error, location=node
        )
        return f"<code>{latex}</code>"


def visit_inline(translator: HTML5Translator, node: nodes.math) -> None:
    """A formula within a line."""
    translator.body.append(f'<span class="math">{to_mathml(node, "inline")}</span>')
    raise nodes.SkipNode


def visit_block(translator: HTML5Translator, node: nodes.math_block) -> None:
    """A formula by itself, which scrolls in its own box where the screen is narrow."""
    translator.body.append(translator.starttag(node, "div", CLASS="math math-block"))
    translator.body.append(to_mathml(node, "block") + "</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer: ``html_math_renderer = "mathml"`` chooses it."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
