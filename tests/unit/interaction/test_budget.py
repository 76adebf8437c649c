"""How much of a budget is used up."""

from __future__ import annotations

from rlbook.interaction.budget import Budget


def test_of_several_limits_the_nearest_counts() -> None:
    budget = Budget(steps=100, episodes=10)
    assert budget.progress(50, 2) == 0.5  # half of the steps, a fifth of the episodes
    assert budget.progress(20, 9) == 0.9
    assert budget.progress(120, 3) == 1.0
    assert Budget(None, None, passes=4).progress(1_000, 1_000, 1.0) == 0.25
    assert Budget(None, None).progress(1_000, 1_000) == 0.0
