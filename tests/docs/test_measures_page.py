"""The page of measures: what it works out by hand is what the code says, and so are its answers."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from closeness import near

from rlbook.evaluation.classification import classify, measure_classes
from rlbook.evaluation.detection import average_precision

PAGE = Path(__file__).parents[2] / "docs" / "measures.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
pytestmark = pytest.mark.skipif(find_spec("sklearn") is None, reason="needs scikit-learn")


@pytest.mark.parametrize(
    ("code", "claims"),
    [*zip(BLOCKS, (8, 4, 6, 4), strict=True)],
    ids=["classes", "judges", "boxes", "perplexity"],
)
def test_the_numbers_by_hand_are_the_codes(code: str, claims: int) -> None:
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    assert code.count("assert ") >= claims


def test_a_program_that_always_says_no() -> None:
    found = measure_classes([1] * 5 + [0] * 95, [0] * 100)
    assert (found.overall_accuracy, found.average_accuracy) == (0.95, 0.5)


def test_the_answers_to_the_exercises() -> None:
    more = measure_classes(list("aaabbbcccdd"), list("aabbbaccbcd"))
    assert more.overall_accuracy == near(7 / 11, terms=4)
    assert more.average_accuracy == near((2 / 3 * 3 + 1 / 2) / 4, terms=8)
    judge = classify(
        np.array([True, True, True, False, False]), np.array([0.1, 0.2, 0.9, 0.7, 0.8]), 0.85
    )
    assert judge.measures["precision"] == 1.0
    assert judge.measures["recall"] == near(1 / 3, terms=2)
    hit, score = np.array([False, True, True]), np.array([3.0, 2.0, 1.0])
    for way in ("area", "11 points", "101 points"):
        assert average_precision(hit, score, 2, way) == near(2 / 3, terms=202)
