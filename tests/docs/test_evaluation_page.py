"""The page on evaluation: what it works out by hand is what the code says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "llm" / "evaluation.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize(
    ("code", "claims"), [*zip(BLOCKS, (7, 2, 8), strict=True)], ids=["tries", "choices", "judge"]
)
def test_the_numbers_by_hand_are_the_codes(code: str, claims: int) -> None:
    if "classify(" in code:
        pytest.importorskip("sklearn")
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    assert code.count("assert ") >= claims
