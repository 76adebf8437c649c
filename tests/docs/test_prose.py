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


MODULE = '''"""What stands behind the end counts for nothing: a time limit
is no end."""

in_the_place_of = "in the place of"  # taken in the place of `x`; there
# is no end of it, and it lies faint behind a line


class Kept:
    """Made anew."""

    NOTE = """Made anew."""
'''


def test_comments_and_docstrings_of_a_module_are_read_and_its_code_is_not() -> None:
    found = prose.own_slips(prose.prose(prose.words_of(MODULE)))
    assert [line for line, _ in sorted(found)] == [1, 1, 2, 4, 9]


@pytest.mark.parametrize(
    "sentence",
    [
        "Texts are written behind each other.",
        "Six of ten sums are answered rightly.",
        "KL is no distance.",
        "It takes the shortest way.",
        "The target contains the estimate, and so the target moves.",
        "The agent has made 400 steps.",
    ],
)
def test_a_slip_of_the_book_is_found(sentence: str) -> None:
    assert len(prose.own_slips(sentence)) == 1


@pytest.mark.parametrize(
    "sentence",
    [
        "The curve stands faint behind it, and the car is stuck behind a lorry.",
        "There is no end of the episode. There\nis no number for it.",
        "The first returns are low, rightly so, and so are the others.",
        "The baseline makes the steps vary less.",
    ],
)
def test_what_only_looks_like_a_slip_is_left_alone(sentence: str) -> None:
    assert prose.own_slips(sentence) == []


@pytest.mark.slow
def test_no_page_has_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert prose.main() == 0, capsys.readouterr().out
