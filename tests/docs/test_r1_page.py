"""The tables of the page on R1 are those of docs/results.json: of the last stages with judges."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from rlbook.functional.intervals import t_interval

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "llm" / "r1.md").read_text(encoding="utf-8")
KNOWN = json.loads((DOCS / "results.json").read_text(encoding="utf-8"))["measurements"][
    "r1_scenarios"
]
STAGES = ("base", "reasoning_rl", "second_sft", "all_scenarios_rl")
MEASURES = ("sums", "programs", "helpful", "harmless", "refused")


def shown(values: list[float]) -> str:
    """The mean in per cent, and half of its 95 % interval over the seeds."""
    low, high = t_interval(np.array(values))
    return f"{100 * np.mean(values):.1f} ± {50 * (high - low):.1f} %"


@pytest.mark.parametrize("stage", STAGES)
def test_the_table_of_the_last_stages_states_what_was_measured(stage: str) -> None:
    (line,) = re.findall(rf"^\| `{stage}`.*\|$", PAGE, re.MULTILINE)
    after = [
        [seed[1] for seed in KNOWN["before and after"][f"{stage}: {measure}"]]
        for measure in MEASURES
    ]
    assert [cell.strip() for cell in line.strip("|").split("|")][1:] == list(map(shown, after))


def test_what_the_filter_says_of_its_judge_is_what_was_measured() -> None:
    lines = re.findall(r"^\| `((?:both|judge|people)[a-z, ]+)` \|.*\| (.+) \|$", PAGE, re.MULTILINE)
    assert len(lines) == 5
    for name, told in lines:
        assert told == shown(KNOWN["made"][f"kept: {name}"])
    count = len(KNOWN["seeds"])
    assert f"seeds {KNOWN['seeds'][0]} to {KNOWN['seeds'][-1]}" in PAGE
    assert all(len(values) == count for values in KNOWN["made"].values())
