"""Render formulas as MathML when the site is built.

Sphinx's default loads MathJax from another host whenever a page opens. Browsers display MathML
natively, so pages need no script for their formulas.
"""

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)


def to_mathml(node: nodes.Element, display: str) -> str:
    """Return the MathML of a formula; an invalid formula gives a warning, which fails the build."""
    latex = node.astext()
    try:
        return convert(latex, display=display)
    except Exception as error:  # the library has no common base class for its errors
        logger.warning(
            "Got the formula %r, which cannot be converted: %r", latex, error, location=node
        )
        return f"<code>{latex}</code>"


def visit_inline(translator: HTML5Translator, node: nodes.math) -> None:
    """Render an inline formula."""
    translator.body.append(f'<span class="math">{to_mathml(node, "inline")}</span>')
    raise nodes.SkipNode


def visit_block(translator: HTML5Translator, node: nodes.math_block) -> None:
    """Render a display formula in a box that scrolls on narrow screens."""
    translator.body.append(translator.starttag(node, "div", CLASS="math math-block"))
    translator.body.append(to_mathml(node, "block") + "</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer; ``html_math_renderer = "mathml"`` selects it."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
