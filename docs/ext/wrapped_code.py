"""Code on narrow pages: nothing is cut, nothing is scrolled sideways, and Python still reads as
Python.

A long line goes on below, after its own indentation: before a point or after a bracket if there
is no space, and never within a word with strokes in it, such as `--out` or `1e-3`. A drawing made
of text stays whole and becomes smaller. What is set in far, such as a remark below a remark, is
set in less on a phone. A long name may be broken after a point, a stroke or an equals sign, before
a quotation, and a ClassOfManyWords before a capital; a name is long at 13 characters in a table,
and at 27 elsewhere.
"""

from __future__ import annotations

import html
import re
from typing import Any

from sphinx.application import Sphinx

BLOCK = re.compile(
    r'(<div class="highlight-([\w-]+)[^"]*"><div class="highlight">)<pre>(.*?)(</pre>)',
    flags=re.DOTALL,
)
CODE = re.compile(r'<code class="([^"]*">(.*?)</code>)', flags=re.DOTALL)
TABLE = re.compile(r"<table.*?</table>", flags=re.DOTALL)
NAME = re.compile(r'(?<=<span class="pre">)[^<]{13,}(?=</span>)|(?<=>)rlbook\.[\w.]+(?=<)')
LONG_NAME = re.compile(r'(?:(?<=<span class="pre">)|(?<=<code>))[^<]{27,}(?=</)')
WITH_STROKES = re.compile(r'<span class="pre">(?=[^<]*-)(?=[^<]{2,26}</span>)')
TEXT = re.compile(r"(?:^|(?<=>))[^<]+")
STROKED = re.compile(r"(?<![^\s])(?!-&gt;)(?=\S*\w)(?=\S*-)\S{2,26}(?![^\s])")
COMMENT = re.compile(r'(<span class="c1?">)(# [^\s</]+/?)([^\s<]*)')
JOINT = re.compile(r'(?=<span class="o">\.</span>)|(?<=\(</span>)(?=<)|(?<=\[</span>)(?=<)')
SHORT = 40  # characters that have room on every page
# characters up to which a plain text is made smaller instead; what has boxes in it, always
FITTING = 64
FURTHER = 4  # characters by which the rest of a line is set in
WORDS = re.compile(r"[A-Za-z]{20,}")  # a class whose name alone is as wide as a column
INDENT = 20  # characters by which a line is set in at most, where it goes on below or on a phone
FAR = re.compile(rf"^((?:<[^>]+>)*)( {{{INDENT}}})( +)")


def fitted(body: str) -> str:
    """The HTML of a page. The text of its code stays what it was."""
    body = TABLE.sub(_cells, BLOCK.sub(_block, body))
    return WITH_STROKES.sub('<span class="pre whole">', LONG_NAME.sub(_breakable, body))


def _cells(table: re.Match[str]) -> str:
    """A table whose long names may be broken, and whose first column marks what is longer than a
    column: book.css keeps the others there on one line."""
    marked = CODE.sub(
        lambda code: code[0] if len(_text(code[2])) <= SHORT else f'<code class="long {code[1]}',
        table[0],
    )
    return NAME.sub(_breakable, marked)


def _block(found: re.Match[str]) -> str:
    head, language, code, end = found.groups()
    columns = max(map(len, _text(code).splitlines()), default=0)
    if language == "text" and columns > SHORT and (columns <= FITTING or "+--" in code):
        return f'{head}<pre class="drawing" style="--columns: {columns}">{code}{end}'
    return f"{head}<pre>{''.join(map(_hanging, code.splitlines(keepends=True)))}{end}"


def _text(code: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", code))


def _hanging(line: str) -> str:
    text = _text(line).rstrip("\n")
    if len(text) <= SHORT:
        return line
    indent = min(len(text) - len(text.lstrip(" ")), INDENT) + FURTHER
    line = FAR.sub(r'\1\2<span class="far">\3</span>', line)
    line = COMMENT.sub(_comment, line)
    line = TEXT.sub(
        lambda part: STROKED.sub(r'<span class="whole">\g<0></span>', part[0]),
        JOINT.sub("<wbr>", line),
    )
    return f'<span class="hanging" style="--in: {indent}ch">{line}</span>'


def _comment(found: re.Match[str]) -> str:
    begin, first, rest = found.groups()
    return f'{begin}<span class="whole">{first}</span>{re.sub(r"(?<=/)", "<wbr>", rest)}'


def _breakable(name: re.Match[str]) -> str:
    words = WORDS.sub(lambda word: re.sub("(?<=[a-z])(?=[A-Z])", "<wbr>", word[0]), name[0])
    return re.sub(r"(?<=[_./=,])(?=\w)|(?<=\()(?=&quot;)", "<wbr>", words)


def fit(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    if "body" in context and app.builder.name != "epub":
        context["body"] = fitted(context["body"])


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", fit)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
