"""A finished page loses indentation and icons around its text, and nothing of the text itself."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("sphinx")

spec = importlib.util.spec_from_file_location(
    "small_frames", Path(__file__).parents[2] / "docs" / "ext" / "small_frames.py"
)
assert spec is not None and spec.loader is not None
small_frames = importlib.util.module_from_spec(spec)
spec.loader.exec_module(small_frames)

CODE = (
    '<dt><em><span class="n"><span class="pre">reward</span></span><span class="p">:</span> <span'
    ' class="pre whole">a-b</span></em></dt><pre><span class="k">if</span><span class="w"> </span>'
    '<span class="n"><a href="b">b</a></span></pre>'
)
TEXT = '<article role="main">\n  <pre>a\n    b</pre>\n  <article>\n  c</article>\n</article>'
PAGE = (
    '<html data-content_root="../">\n<head>\n</head>\n<body>\n  <svg>\n  <symbol id="svg-eye" viewBox="0">\n<path/>\n</symbol>\n'
    '  <symbol id="svg-toc">t</symbol>\n  <symbol id="svg-sun-with-moon">\n  s</symbol></svg>'
    f"\n\n  {TEXT}\n  <footer>\n   d e\n  </footer>\n"
)


def test_the_frame_shrinks_and_the_article_stays() -> None:
    found = small_frames.shrink(PAGE)
    assert found == (
        '<html data-content_root="../">\n<head>\n'
        '<script defer="defer" src="../_static/theme-icons.js"></script>\n</head>\n'
        f"<body>\n<svg>\n</svg>\n{TEXT}\n<footer>\nd e\n</footer>\n"
    )
    assert small_frames.shrink(found) == found, "a page that stands from an earlier build"
    assert small_frames.shrink("<p>\n  no article") == "<p>\n  no article"


def test_pages_are_written_again_after_a_build_of_html_alone(tmp_path: Path) -> None:
    page = tmp_path / "api" / "page.html"
    page.parent.mkdir()
    icons = tmp_path / "_static" / "theme-icons.js"
    icons.parent.mkdir()
    for kind, error, wanted in (
        ("latex", None, PAGE),
        ("html", ValueError(), PAGE),
        ("html", None, small_frames.shrink(PAGE)),
    ):
        page.write_text(PAGE, encoding="utf-8")
        app = SimpleNamespace(builder=SimpleNamespace(format=kind), outdir=tmp_path)
        small_frames.shrink_pages(app, error)
        assert page.read_text(encoding="utf-8") == wanted
    for symbol in (r"svg-toc\">t</symbol>", r"svg-sun-with-moon\">\ns</symbol>"):
        assert symbol in icons.read_text(encoding="utf-8"), "what no page has any more"


def test_code_loses_the_marks_that_no_style_sheet_names() -> None:
    assert small_frames.shrink(CODE) == (
        '<dt><em>reward: <span class="pre whole">a-b</span></em></dt><pre><span class="k">if</span> '
        '<span class="n"><a href="b">b</a></span></pre>'
    )
    broken = '<span class="pre">rlbook.<wbr>llm</span>'
    assert small_frames.shrink(broken) == "rlbook.<wbr>llm"
