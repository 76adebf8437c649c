"""Formulas as MathML, which browsers draw themselves: the site needs no script, no font from elsewhere and no LaTeX.

The translation from LaTeX is docutils' own; what it cannot read is an error of the build.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)


def translated(latex: str, *, block: bool) -> str:
    """LaTeX as a <math> element. Raises MathError."""
    if r"\operatorname*" in latex:                   # docutils would draw the star
        raise MathError(r"\operatorname* cannot be drawn; write \underset{…}{\mathrm{…}}")
    latex = latex.replace(r"\dots", r"\ldots")
    return tex2mathml(_with_spaces(_with_primes(latex)), as_block=block)


def _with_primes(latex: str) -> str:
    r"""s' as s^{\prime}, which is what TeX makes of it."""
    return re.sub(r"(?<!\\)'+", lambda match: "^{" + r"\prime" * len(match[0]) + "}", latex)


def _with_spaces(latex: str) -> str:
    r"""The thin space that TeX leaves between \log and what follows, unless that is a bracket, an index or an exponent."""
    return re.sub(r"(\\(?:log|ln)(?![a-zA-Z]))\s*(?!\s|\\[bB]igl|\\left|[({_^])", r"\1\\,", latex)


def inline(translator: Any, node: nodes.math) -> None:
    _append(translator, node, block=False)


def block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(translator.starttag(node, "div", CLASS="math-block"))
    _append(translator, node, block=True)
    translator.body.append("</div>\n")
    raise nodes.SkipNode


def _append(translator: Any, node: Any, *, block: bool) -> None:
    try:
        translator.body.append(translated(node.astext(), block=block))
    except MathError as error:
        logger.warning("cannot translate the formula %r: %s", node.astext(), error, location=node)
    if not block:
        raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
