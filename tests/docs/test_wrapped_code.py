"""A long line of code goes on behind its own indentation, and its text stays what it was."""

from __future__ import annotations

import html
import importlib.util
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx")
spec = importlib.util.spec_from_file_location("wrapped_code", Path(__file__).parents[2] / "docs" / "ext" / "wrapped_code.py")
assert spec is not None and spec.loader is not None
wrapped_code = importlib.util.module_from_spec(spec)
sys.modules["wrapped_code"] = wrapped_code
spec.loader.exec_module(wrapped_code)


def test_long_lines_hang_by_their_indentation_and_nothing_is_lost() -> None:
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    long = "    value = reward + gamma * (1.0 - terminated) * next_value  # \"<&>\""
    code = f'def target():\n    """A text\n    of two lines."""\n\n{long}\n    return value\n'
    page = highlight(code, PythonLexer(), HtmlFormatter())
    found = wrapped_code.with_hanging_lines(page)
    assert html.unescape(re.sub(r"<[^>]+>", "", found)).strip("\n") == code.strip("\n")
    assert re.findall(r'style="--in: (\d+)ch"', found) == ["8"], "four of its own, and four further"
    assert found.count("<span") == found.count("</span>")
