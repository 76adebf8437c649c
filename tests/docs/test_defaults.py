"""The table of default settings: its page and what the doctor recommends follow from what was
measured."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rlbook.diagnosis.better_settings import solved_by_default
from rlbook.registry import ALGORITHMS

PATH = Path(__file__).parents[2] / "docs" / "default_settings.py"


@pytest.fixture(scope="module")
def settings() -> ModuleType:
    spec = importlib.util.spec_from_file_location("default_settings", PATH)
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    return module


def item(returns: list[float], seconds: float = 1.0) -> dict[str, Any]:
    return {
        "returns": returns,
        "seconds": seconds,
        "optimum": 2.0,
        "random": -2.0,
        "machine": "here",
        "seeds": list(range(10, 10 + len(returns))),
    }


def test_the_page_and_the_doctors_file_are_those_of_the_measurements(settings: ModuleType) -> None:
    known, page = settings.read_defaults(), settings.PAGE.read_text(encoding="utf-8")
    assert page == settings.with_tables(page, known), "run docs/measure.py -"
    assert solved_by_default() == settings.solved_everywhere(known), "run docs/measure.py -"


def test_every_pair_was_measured_with_ten_seeds_that_chose_no_setting(settings: ModuleType) -> None:
    """A network with five."""
    known = settings.read_defaults()
    assert set(known) <= set(settings.ENVIRONMENTS)
    assert {*settings.LEARNERS, *settings.NETWORKS} <= set(ALGORITHMS)
    for env, items in known.items():
        for algorithm, found in items.items():
            count = 5 if algorithm in settings.NETWORKS else 10
            assert found["seeds"] == list(range(10, 10 + count)), (env, algorithm)
            best = float(f"{found['optimum']:.6g}")  # with as many digits as the returns have
            assert len(found["returns"]) == count and max(found["returns"]) <= best


def test_a_row_by_hand(settings: ModuleType) -> None:
    """Returns of 2 and 1 between -2 and 2: shares 1 and 3/4, and one of the two at the optimum."""
    table = settings.table_of("Maze-v0", {"sarsa": item([2.0, 1.0])})
    assert "Optimum 2, random play −2." in table
    assert "| `sarsa` | 1.5 | 87.5% | 1 of 2 | 1 |" in table


def test_only_what_always_gets_there_is_recommended_the_fastest_first(settings: ModuleType) -> None:
    """Within 2 % of an optimum of 2 counts: 1.96 does, 1.95 does not."""
    known = {
        "Maze-v0": {
            "sarsa": item([2.0, 1.96], 3.0),
            "q_learning": item([2.0, 2.0], 1.0),
            "dyna_q": item([2.0, 1.95], 0.1),
        }
    }
    assert settings.solved_everywhere(known) == {"Maze-v0": ["q_learning", "sarsa"]}


def test_a_page_keeps_its_words(settings: ModuleType) -> None:
    text = "Before.\n<!-- defaults -->\nold\n<!-- end of defaults -->\nAfter.\n"
    again = settings.with_tables(text, {"Maze-v0": {"sarsa": item([2.0])}})
    assert re.fullmatch(
        r"Before\.\n<!-- defaults -->\n.*<!-- end of defaults -->\nAfter\.\n", again, re.S
    )
    assert "old" not in again and "Measured on here." in again
