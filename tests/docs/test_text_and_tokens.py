"""The chapter on tokens and the page on text and tokens: each block of code prints what stands under
it."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("page", "least"), [("llm/text-and-tokens.md", 5), ("chapters/tokens.md", 4)]
)
def test_every_block_prints_what_the_page_says(page: str, least: int) -> None:
    blocks = re.findall(
        r"```python\n((?:(?!```).)*)```\n\n```text\n(.*?)```",
        (DOCS / page).read_text(encoding="utf-8"),
        re.DOTALL,
    )
    assert len(blocks) >= least
    names: dict[str, Any] = {}
    for code, expected in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, page, "exec"), names)
        assert printed.getvalue() == expected, code
