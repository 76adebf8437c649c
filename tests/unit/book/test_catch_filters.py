"""What a network sees in Catch: the exact values beside it are a planner's, and a network that has
seen little is drawn like any other."""

from __future__ import annotations

import numpy as np
from closeness import assert_near

import rlbook
from rlbook.book.experiments.catch_filters import (
    GAMMA,
    draw,
    exact_values,
    is_optimal,
    measurements,
    moments,
    run,
)


def test_the_exact_values_are_those_of_a_planner() -> None:
    planner = rlbook.train("value_iteration", "Catch-v0", env_kwargs={"pixels": False}, gamma=GAMMA)
    planned = planner.agent.action_values()[:225]  # type: ignore[attr-defined]
    assert_near(exact_values(), planned, terms=9)
    assert is_optimal(planned.argmax(axis=1), exact_values()).all()


def test_a_game_of_the_best_player_catches_the_ball() -> None:
    """In the last moment ball and paddle are in the left column: row 8 of the ball, 0 and 0."""
    shown = moments(exact_values().astype(np.float32))
    assert shown[0] == 2 and shown[-1] == 8 * 25


def test_a_network_that_has_learned_little_is_further_from_the_exact_values() -> None:
    found = run(1, steps=60, learning_starts=32)
    assert found.maps.shape == (4, 2, 5, 3) and found.values.shape == (4, 3)
    assert found.error[0] > 0.3 and found.maps.min() >= 0  # a value near 0, where it is 0.92 to 1
    assert set(measurements(found).values()) == {found.error[0], found.right[0]}
    assert len(draw(found).axes) == 16
