"""The deep sea: the best return by planning and by walking, and how rarely chance finds the
treasure."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from closeness import near

import rlbook
from rlbook.envs.deep_sea import DeepSea, DeepSeaVector, deep_sea_model, right_actions


def walk(env: DeepSea, actions: list[int]) -> tuple[float, list[int]]:
    """The return and the states of an episode."""
    state, _ = env.reset(seed=0)
    total, seen, over = 0.0, [state], False
    for action in actions:
        assert not over
        state, reward, over, _, _ = env.step(action)
        total, seen = total + reward, [*seen, state]
    assert over
    return total, seen


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("seed", [None, 0, 7])
def test_always_right_earns_the_treasure_less_its_cost(size: int, seed: int | None) -> None:
    env = DeepSea(size, seed)
    way, state = [], 0
    for row in range(size):
        way.append(int(env.right[state]))
        state = (row + 1) * size + row + 1
    total, seen = walk(env, way)
    assert seen == [*(row * size + row for row in range(size)), size**2]
    assert total == near(0.99, terms=size + 1, size=1.01)
    kwargs = {"size": size, "seed": seed}
    planned: Any = rlbook.train("value_iteration", "DeepSea-v0", env_kwargs=kwargs, gamma=1.0)
    best = planned.agent.action_values()[0].max()
    assert best == near(total, terms=size + 1, size=1.01) and env.optimal_return == 0.99


def test_by_hand_in_three_rows() -> None:
    """Right, left, left: to columns 1, 0 and, at the edge, straight down; it costs 0.01 / 3."""
    total, seen = walk(DeepSea(3, None), [1, 0, 0])
    assert seen == [0, 3 + 1, 6 + 0, 9] and total == near(-0.01 / 3)
    assert DeepSea(3, None).draw_text(4) == "S..\n.@.\n..G"


def test_a_random_policy_finds_the_treasure_in_one_of_two_to_the_n_episodes() -> None:
    """n = 6: the value is 2⁻⁶ less half of the cost of going right, each exactly."""
    size = 6
    model = deep_sea_model(size, right_actions(size, 3))
    value = model.policy_values(np.full((size**2 + 1, 2), 0.5), 1.0)[0]
    assert value == near(2.0**-size - 0.01 / 2, terms=size**2, size=1.0)
    doc = " ".join((DeepSea.__doc__ or "").split())
    assert f"10 rows {2**10:,}, with 20 rows {2**20:,}" in doc


def test_the_seed_draws_the_actions_and_many_environments_agree_with_one() -> None:
    assert (right_actions(4, None) == 1).all()
    assert (right_actions(4, 0) == right_actions(4, 0)).all()
    assert (right_actions(4, 0) != right_actions(4, 1)).any()
    many: Any = DeepSeaVector(num_envs=3, size=4)
    obs, _ = many.reset(seed=0)
    assert obs.tolist() == [0, 0, 0] and many.single_observation_space.n == 17


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        ({"size": 0}, "size must be an integer of at least 1, got 0"),
        ({"seed": -1}, "seed must be None or an integer of at least 0, got -1"),
    ],
)
def test_a_sea_that_cannot_be_is_refused(settings: dict[str, int], refusal: str) -> None:
    with pytest.raises(ValueError, match=refusal):
        DeepSea(**settings)
