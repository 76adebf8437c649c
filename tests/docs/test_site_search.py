"""What a reader finds who searches the site: the chapter that defines a word, then the page that
is called so, before pages that only use it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from site_search import in_node

SCORER = Path(__file__).parents[2] / "docs" / "ext" / "search_scorer.js"


def test_the_chapter_that_defines_a_word_comes_first_and_the_api_last() -> None:
    """The rows are what Sphinx makes of the query "Q-learning", with its own scores."""
    rows = [
        ["chapters/learning-from-data", "Learning from data", "", None, 15, "", "text"],
        ["api/rlbook", "rlbook > Q-learning", "#q", None, 15, "", "title"],
        ["algorithms/double_q_learning", "Double Q-learning", "", None, 10, "", "title"],
        ["api/q_learning", "rlbook.q_learning", "", None, 15, "", "text"],
        ["chapters/temporal-difference", "Temporal difference", "#term", None, 100, "", "index"],
        ["algorithms/q_learning", "Q-learning", "", None, 16, "", "title"],
    ]
    program = (
        'var location = { protocol: "https:" }, DOCUMENTATION_OPTIONS = {};'
        + SCORER.read_text(encoding="utf-8")
        + "console.log(JSON.stringify(JSON.parse(process.argv[1]).map(Scorer.score)));"
    )
    scores = in_node("-e", program, json.dumps(rows))
    order = sorted(range(len(rows)), key=lambda row: -scores[row])
    assert [rows[row][0] for row in order] == [
        "chapters/temporal-difference",  # 100 + 10
        "algorithms/q_learning",  # 16 * 100 / 15 = 106.7
        "algorithms/double_q_learning",  # 10 * 100 / 15 = 66.7
        "api/rlbook",  # 15 * 100 / 15 - 40
        "chapters/learning-from-data",  # 15 + 10
        "api/q_learning",  # 15 - 40
    ]


@pytest.mark.parametrize(("protocol", "shown"), [("https:", True), ("file:", False)])
def test_on_the_disk_the_results_read_no_other_page(protocol: str, shown: bool) -> None:
    program = (
        "var location = { protocol: process.argv[1] };"
        "var DOCUMENTATION_OPTIONS = { SHOW_SEARCH_SUMMARY: true };"
        + SCORER.read_text(encoding="utf-8")
        + "console.log(JSON.stringify(DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY));"
    )
    assert in_node("-e", program, protocol) is shown
