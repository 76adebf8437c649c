"""Potentials leave the best policy as it is, whatever they say; a bonus without its price does
not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from closeness import assert_near, near, rounding_bound

from rlbook.book.experiments import reward_shaping as shaping
from rlbook.functional.shaping import shaped_reward

CONDITION = (1 + shaping.GAMMA) / (1 - shaping.GAMMA)  # of I - γ P, at most


def test_a_step_earns_what_it_gains_in_potential_and_the_end_has_none() -> None:
    """γ = 0.9: 0 + 0.9 · 1 - 0.9 = 0; 1 + 0 - 1 = 0 into the goal, whatever Φ says there; and a
    bump -0.09."""
    reward, before, after = (
        torch.tensor([0.0, 1.0, 0.0]),
        torch.tensor([0.9, 1.0, 0.9]),
        torch.tensor([1.0, 7.0, 0.9]),
    )
    found = shaped_reward(reward, before, after, torch.tensor([False, True, False]), gamma=0.9)
    assert_near(found, [0.0, 0.0, 0.9 * 0.9 - 0.9], terms=3, size=1.0)


def test_over_an_episode_nothing_is_left_but_the_first_potential() -> None:
    """Σ γ^t r'_t = Σ γ^t r_t - Φ(s_0), for any states in between."""
    generator = torch.Generator().manual_seed(0)
    reward, potential = torch.randn(9, generator=generator), torch.randn(10, generator=generator)
    ended, discount = torch.arange(9) == 8, 0.9 ** torch.arange(9.0)
    found = shaped_reward(reward, potential[:-1], potential[1:], ended, gamma=0.9)
    size = float((discount * (reward.abs() + 2 * potential.abs().max())).sum())
    assert_near(
        (discount * found).sum(), (discount * reward).sum() - potential[0], terms=9 * 3, size=size
    )


@pytest.mark.parametrize("seed", range(3))
def test_no_potential_changes_which_actions_are_best(seed: int) -> None:
    model = shaping.sparse_reward_model()
    own, free = shaping.optimal_action_values(model), model.reachable() & ~model.terminal
    potential = np.random.default_rng(seed).normal(size=model.num_states) * ~model.terminal
    shaped = shaping.optimal_action_values(shaping.add_potential(model, potential))
    assert_near(
        (shaped + potential[:, None])[free],
        own[free],
        terms=model.num_states,
        size=CONDITION * (1 + np.abs(potential).max()),
    )
    assert (shaping.best_actions(shaped) == shaping.best_actions(own))[free].all()


def test_with_the_exact_values_as_potential_a_best_action_earns_nothing_and_any_other_less() -> (
    None
):
    model = shaping.sparse_reward_model()
    own, free = shaping.optimal_action_values(model), model.reachable() & ~model.terminal
    paid = shaping.add_potential(model, own.max(axis=1)).rewards
    assert_near(
        paid[free],
        (own - own.max(axis=1, keepdims=True))[free],
        terms=model.num_states,
        size=CONDITION,
    )


def test_the_model_pays_what_the_formula_says() -> None:
    model = shaping.sparse_reward_model()
    potential = np.arange(model.num_states) * 0.1 * ~model.terminal
    shaped = shaping.add_potential(model, potential)
    state = int(model.initial.argmax())
    for action in range(model.num_actions):
        after = int(model.transitions[[state * model.num_actions + action]].indices[0])
        values = (
            torch.tensor(float(x))
            for x in (model.rewards[state, action], potential[state], potential[after])
        )
        expected = shaped_reward(*values, torch.tensor(False), gamma=shaping.GAMMA)
        assert shaped.rewards[state, action] == near(
            expected.item(), dtype="float32", terms=3, size=1 + np.abs(potential).max()
        )


def test_a_bonus_without_its_price_is_collected_for_ever() -> None:
    model = shaping.sparse_reward_model()
    potential = shaping.straight_line_values() * ~model.terminal
    for shaped, arriving in (
        (shaping.add_potential(model, potential), True),
        (shaping.add_bonus(model, potential), False),
    ):
        policy = shaping.optimal_action_values(shaped).argmax(axis=1)
        assert shaping.reaches_end(model, policy)[int(model.initial.argmax())] == arriving


def test_learning_with_a_potential_finds_the_goal_sooner() -> None:
    found = shaping.run(seeds=1, episodes=20)
    first = {name: each[0, :10].mean() for name, each in found.steps.items()}
    assert first["potential"] < first["the goal alone"] / 3
    assert found.changed["potential"] == 0 and found.shortest > 10
    assert found.distance <= rounding_bound(
        "float64", terms=shaping.sparse_reward_model().num_states, size=CONDITION * 2
    )


@pytest.mark.parametrize(("episodes", "points"), [(3, [3]), (12, [10, 11, 12])])
def test_the_moving_mean_is_over_ten_episodes_or_as_many_as_there_are(
    episodes: int, points: list[int]
) -> None:
    found = shaping.run(seeds=1, episodes=episodes)
    learning, _ = shaping.draw(found).axes
    line = learning.get_lines()[0]
    assert np.asarray(line.get_xdata()).tolist() == points
    last = found.steps[shaping.NAMES[0]][0, -10:]
    assert float(np.asarray(line.get_ydata())[-1]) == near(last.mean(), terms=10)
