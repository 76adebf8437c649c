"""The ways to choose an action, against their formulas."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
from closeness import assert_near, near

import rlbook
from rlbook.algorithms.tabular.exploration import (
    FORBIDDEN,
    expected_value,
    probability,
    softmax,
    upper_confidence,
)
from rlbook.algorithms.tabular.q_learning import QLearning
from rlbook.envs.tabular.tabular_env import TabularEnv


def q_learner(row: list[float], **config: Any) -> QLearning:
    """With one state's action values given."""
    spaces = gymnasium.Env()
    spaces.observation_space, spaces.action_space = (
        gymnasium.spaces.Discrete(1),
        gymnasium.spaces.Discrete(len(row)),
    )
    agent = QLearning(spaces, QLearning.Config(**config))
    agent.memory.q[0] = row
    return agent


# four standard errors of a share of 20 000 draws, at most
FOUR_ERRORS = 4 * 0.5 / math.sqrt(20_000)


def shares(choose: Any, agent: QLearning, draws: int = 20_000) -> np.ndarray:
    rng = np.random.default_rng(0)
    picked = [choose(agent.memory, agent.settings, rng, 0) for _ in range(draws)]
    return np.bincount(picked, minlength=agent.num_actions) / draws


def test_softmax_chooses_in_proportion_to_the_exponential_of_the_value_over_the_temperature():
    agent = q_learner([1.0, 2.0, 4.0], exploration="softmax", temperature=2.0)
    weights = np.exp(np.array([0.5, 1.0, 2.0]))  # Q / τ = 1/2, 2/2, 4/2
    expected = weights / weights.sum()
    assert shares(softmax, agent) == pytest.approx(expected, rel=0, abs=FOUR_ERRORS)
    found = [probability(agent.memory, agent.settings, 0, action) for action in range(3)]
    assert_near(np.array(found), expected, terms=3)


def test_softmax_survives_values_whose_exponentials_do_not_fit():
    agent = q_learner([1e4, 1e4, -1e4], exploration="softmax")
    assert shares(softmax, agent, 1_000)[2] == 0.0  # e^(-20 000) of them
    found = [probability(agent.memory, agent.settings, 0, action) for action in range(3)]
    assert found == near([0.5, 0.5, 0.0], terms=3)


def test_the_upper_confidence_bound_is_value_plus_bonus():
    agent = q_learner([1.0, 0.5, 0.0], exploration="ucb", confidence=2.0)
    agent.memory.visits[0] = [10, 4, 2]
    # N = 16, ln 16 = 2.7726:  1 + 2 √(2.7726/10) = 2.0531,  0.5 + 2 √(2.7726/4) = 2.1651,  0 + 2
    # √(2.7726/2) = 2.3548
    assert shares(upper_confidence, agent, 50).tolist() == [0.0, 0.0, 1.0]
    agent.memory.visits[0] = [10, 3, 3]  # 2.0531, 0.5 + 2 √(2.7726/3) = 2.4227, 1.9227
    assert shares(upper_confidence, agent, 50).tolist() == [0.0, 1.0, 0.0]


def test_actions_never_tried_come_first_and_each_is_as_likely():
    agent = q_learner([100.0, 0.0, -100.0], exploration="ucb")
    agent.memory.visits[0] = [5, 0, 0]
    assert shares(upper_confidence, agent) == pytest.approx([0.0, 0.5, 0.5], rel=0, abs=FOUR_ERRORS)


def test_equal_bounds_are_equally_likely():
    agent = q_learner([1.0, 1.0, 1.0], exploration="ucb")
    agent.memory.visits[0] = [2, 2, 2]
    assert shares(upper_confidence, agent) == pytest.approx([1 / 3] * 3, rel=0, abs=FOUR_ERRORS)


def test_epsilon_greedy_probabilities_are_shared_by_the_best():
    agent = q_learner([1.0, 1.0, 0.0, 0.0], epsilon=0.2)
    expected = [0.2 / 4 + 0.8 / 2] * 2 + [0.2 / 4] * 2
    found = [probability(agent.memory, agent.settings, 0, action) for action in range(4)]
    assert found == near(expected, terms=2)
    assert expected_value(agent.memory, agent.settings, 0) == near(2 * (0.2 / 4 + 0.8 / 2), terms=4)


def test_what_is_forbidden_has_no_probability_and_the_others_share_it():
    agent = q_learner([1.0, FORBIDDEN, 5.0, 5.0], epsilon=0.3)
    found = [probability(agent.memory, agent.settings, 0, action) for action in range(4)]
    assert found == near([0.3 / 3, 0.0, 0.3 / 3 + 0.7 / 2, 0.3 / 3 + 0.7 / 2], terms=4)
    value = expected_value(agent.memory, agent.settings, 0)
    assert value == near(0.1 * 1.0 + 0.45 * 5.0 + 0.45 * 5.0, terms=8)


def test_an_inverse_epsilon_is_one_over_one_plus_the_visits_of_the_state():
    agent = q_learner([1.0, 0.0], epsilon="inverse(1.0)")
    agent.memory.visits[0] = [2, 1]  # the fourth time here: ε = 1/4
    assert probability(agent.memory, agent.settings, 0, 1) == near(0.25 / 2, terms=2)


@pytest.mark.thorough
def test_an_optimistic_table_tries_every_action_without_any_randomness():
    env = rlbook.make("Maze-v0")
    model = rlbook.envs.TabularMDP.from_env(env)
    tried = {}
    for start in (-300.0, 20.0):  # returns lie between -200, the time limit, and 10
        config = {"epsilon": 0.0, "alpha": "inverse(1.0)", "initial_value": start, "gamma": 1.0}
        run = rlbook.train(
            "q_learning", TabularEnv(model), episodes=300, seed=0, eval_every=0, **config
        )
        pairs = model.reachable() & ~model.terminal
        tried[start] = (run.agent.memory.visits[pairs] > 0).mean()
    assert tried[20.0] == 1.0
    assert tried[-300.0] < 1.0  # the first thing tried looks best forever
