"""The pages' English: no slip that proselint or the book's own list knows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("proselint")
sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
import prose

PAGE = """# A page

It is right in the mean. `in the mean` is code, and [here](in-the-mean.md) a target.

```text
for ever
```

Whoever reads on, reads on for ever. The sum of the the two is 3.

## Read on

- A title for ever.
"""


def test_slips_are_found_where_they_stand_and_code_and_titles_are_left_alone() -> None:
    found = prose.slips(PAGE)
    assert {line for line, _ in found} == {3, 9}
    said = " ".join(words for _, words in found)
    assert "on average" in said and "archaic" in said and "Whoever" in said
    assert "repeated" in said


@pytest.mark.slow
def test_no_page_has_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert prose.main() == 0, capsys.readouterr().out
