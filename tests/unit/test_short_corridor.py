"""The short corridor: the coin's values by formula and by linear solve, and what the agent can see."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import rlbook
from rlbook.envs.mdp import TabularMDP
from rlbook.envs.short_corridor import ShortCorridor, ShortCorridorVector
from rlbook.plots.optimum import optimal_return


def value_of(right: float) -> float:
    """V(start) of a policy that goes right with this probability, by the model."""
    return float(ShortCorridor().model().policy_values(np.tile([1 - right, right], (4, 1)), 1.0)[0])


@pytest.mark.parametrize("p", [0.05, 0.3, 0.5, 2 - math.sqrt(2), 0.95])
def test_the_value_of_a_coin_is_the_formula(p: float) -> None:
    """v₁ = -1 + p v₂ + (1 - p) v₁, v₂ = -1 + p v₁ + (1 - p) v₃, v₃ = -1 + (1 - p) v₂ give v₁ = (2p - 4) / (p (1 - p))."""
    assert value_of(p) == pytest.approx((2 * p - 4) / (p * (1 - p)), rel=1e-12)


def test_the_docstring_states_the_known_answer() -> None:
    doc = ShortCorridor.__doc__ or ""
    grid = np.linspace(0.001, 0.999, 999)
    best = grid[np.argmax([value_of(p) for p in grid])]
    assert best == pytest.approx(2 - math.sqrt(2), abs=0.0005)
    assert f"2 - √2 = {2 - math.sqrt(2):.6f}" in doc
    assert value_of(2 - math.sqrt(2)) == pytest.approx(-(6 + 4 * math.sqrt(2)), abs=1e-12)
    assert f"value -(6 + 4√2) = {value_of(2 - math.sqrt(2)):.6f}" in doc
    assert f"it is {value_of(0.95):.4f} with right" in doc and f"action and\n    {value_of(0.05):.4f} with left" in doc
    model = ShortCorridor(observable=True).model()
    assert model.policy_values(np.array([1, 0, 1, 0]), 1.0)[0] == -3.0 and "V*(start) = -3" in doc
    headings = [line.removeprefix("    ## ") for line in doc.splitlines() if line.startswith("    ## ")]
    assert headings[:6] == ["Description", "Action Space", "Observation Space", "Rewards", "Starting State", "Episode End"]
    assert headings[6:] == ["Arguments", "Known answer", "Version History"]


@pytest.mark.parametrize(("observable", "seen"), [(False, [0, 0, 0, 0]), (True, [0, 1, 2, 3])])
def test_three_steps_lead_to_the_goal_and_may_not_be_told_apart(observable: bool, seen: list[int]) -> None:
    env = ShortCorridor(observable)
    assert env.observation_space.n == max(seen) + 1
    shown: list[Any] = [env.reset(seed=0)[0]]
    steps = [env.step(action)[:3] for action in (1, 0, 1)]
    assert shown + [state for state, *_ in steps] == seen
    assert [(reward, terminated) for _, reward, terminated in steps] == [(-1.0, False), (-1.0, False), (-1.0, True)]


def test_the_second_place_exchanges_the_actions_and_the_wall_holds() -> None:
    env = ShortCorridor(observable=True)
    env.reset(seed=0)
    assert [env.step(action)[0] for action in (0, 1, 1, 1, 0, 0)] == [0, 1, 0, 1, 2, 1]


def test_a_table_that_always_does_the_same_never_arrives() -> None:
    for action in (0, 1):
        env = ShortCorridor()
        env.reset(seed=0)
        assert not any(env.step(action)[2] for _ in range(100))


def test_tossed_coins_take_as_long_as_the_values_say() -> None:
    envs, rng = ShortCorridorVector(4000), np.random.default_rng(0)
    envs.reset(seed=0)
    returns = np.zeros(4000)
    for _ in range(400):
        returns += envs.step((rng.random(4000) < 2 - math.sqrt(2)).astype(int))[1]
    assert returns.mean() == pytest.approx(-(6 + 4 * math.sqrt(2)), abs=4 * returns.std() / 4000**0.5)


def test_planning_is_refused_where_places_look_alike_and_works_where_they_do_not() -> None:
    with pytest.raises(rlbook.RequestError, match="acts by the state's number, and here the observation does not tell which state it is"):
        rlbook.train("value_iteration", "ShortCorridor-v0")
    run = rlbook.train("value_iteration", "ShortCorridor-v0", env_kwargs={"observable": True}, gamma=1.0)
    assert rlbook.evaluate(run, episodes=3).mean == -3.0


def test_the_best_return_is_that_of_what_can_be_seen() -> None:
    recipe = rlbook.interaction.environments.Recipe.of("ShortCorridor-v0")
    assert optimal_return(recipe) == pytest.approx(-11.656854, abs=1e-6)
    assert optimal_return(rlbook.interaction.environments.Recipe.of("ShortCorridor-v0", kwargs={"observable": True})) == -3.0


def test_the_model_says_whether_its_states_are_seen() -> None:
    assert not TabularMDP.from_env(ShortCorridor()).observable
    assert TabularMDP.from_env(ShortCorridor(observable=True)).observable


def test_only_true_and_false_switch_the_sight() -> None:
    with pytest.raises(ValueError, match=r"^observable must be true or false, got 'no'\.$"):
        ShortCorridor(observable="no")  # type: ignore[arg-type]


def test_the_drawing_shows_the_agent_and_the_place_that_exchanges_the_actions() -> None:
    env = ShortCorridor()
    assert [env.draw_text(state) for state in range(4)] == ["A..G", "SA.G", "S.AG", "S..A"]
    centres = env.draw_pixels(3)[24, 24::48]
    assert len(np.unique(centres, axis=0)) == 4, "start, exchanged, free and the agent"
    assert env.grid_shape == (1, 4) and not env.grid_walls.any()
