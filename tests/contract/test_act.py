"""What `act` of an agent with a network says to observations of the wrong shape."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import rlbook
from rlbook.runs.run import Run

NETWORKS = (
    "dqn",
    "ppo",
    "a2c",
    "reinforce",
    "grpo",
    "sac",
    "trpo",
    "dpo",
    "world_model",
    "dagger",
    "behavior_cloning",
    "cql",
    "iql",
)


@cache
def trained(algorithm: str, env: str) -> Run:
    budget = {"passes": 1} if algorithm in ("behavior_cloning", "cql", "iql") else {"steps": 8}
    limit = {"max_episode_steps": 3} if env == "Maze-v0" else {}
    return rlbook.train(algorithm, env, **budget, eval_episodes=1, env_kwargs=limit)


@pytest.mark.parametrize("explore", [False, True])
@pytest.mark.parametrize("algorithm", NETWORKS)
def test_one_observation_is_refused_in_one_sentence(algorithm: str, explore: bool) -> None:
    agent = trained(algorithm, "Maze-v0").agent
    with pytest.raises(ValueError) as error:
        agent.act(np.eye(25, dtype=np.float32)[3], explore=explore)
    assert (
        str(error.value)
        == "act takes a batch of observations, shape [N, 25], got shape [25]; of one,"
        " act(observation[None])[0] is the action"
    )
    assert len(agent.act(np.eye(25, dtype=np.float32)[3][None], explore=False)) == 1


@pytest.mark.parametrize(
    ("given", "got"),
    [
        (np.zeros((2, 5), dtype=np.float32), "shape [2, 5]"),
        (3, "shape []"),
        ([[0.0] * 25], "a list"),
        ({"a": np.zeros(2)}, "'a': shape [2]"),
    ],
)
def test_what_came_and_what_is_expected_is_said(given: Any, got: str) -> None:
    """The environment's own observations among others: numbers of cells, which the network sees
    one-hot."""
    agent = trained("ppo", "Maze-v0").agent
    with pytest.raises(ValueError) as error:
        agent.act(given)
    hint = "agent.adapt_observations(observations) makes them of the environment's, [N, ...]"
    assert (
        str(error.value) == f"act takes a batch of observations, shape [N, 25], got {got}; {hint}"
    )


def test_the_hint_for_one_observation_works_on_a_text() -> None:
    agent = trained("ppo", "Addition-v0").agent
    observation, _ = rlbook.make("Addition-v0").reset(seed=0)
    with pytest.raises(
        ValueError,
        match=r"'length': shape \[N\], 'tokens': shape \[N, 12\], got .*; of one, act\(\{name: ",
    ) as error:
        agent.act(observation)
    code = str(error.value).partition("; of one, act(")[2].partition(")[0] is the action")[0]
    batch = {name: np.array(part)[None] for name, part in observation.items()}
    assert code == "{name: np.array(part)[None] for name, part in observation.items()}"
    assert len(agent.act(batch, explore=False)) == 1


def test_texts_of_any_length_are_read() -> None:
    agent = trained("ppo", "Addition-v0").agent
    observation, _ = rlbook.make("Addition-v0").reset(seed=0)
    batch = {
        "tokens": observation["tokens"][None, :8],
        "length": np.array([min(observation["length"], 8)]),
    }
    assert len(agent.act(batch, explore=False)) == 1


SINGLE = (
    "q_learning",
    "td_prediction",
    "value_iteration",
    "certainty_equivalence",
    "mcts",
    "alphazero",
    "semi_gradient_sarsa",
    "lstd",
)


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("algorithm", SINGLE)
def test_an_agent_of_one_environment_says_which_observation_it_takes(algorithm: str) -> None:
    """A table's among others, to whom the environment's numbers are cells."""
    few = {"sampled_steps": 20} if algorithm == "value_iteration" else {}
    agent = rlbook.train(algorithm, "CartPole-v1", steps=20, eval_every=0, **few).agent
    shown = agent.adaptation
    assert shown is not None
    wanted = (
        r"a whole number from 0 to \d+"
        if isinstance(shown.observation_space, spaces.Discrete)
        else r"numbers of shape \[4\]"
    )
    hint = (
        r"; agent\.adapt_observations\(observation\) makes it of the environment's"
        if shown.observe is not None
        else ""
    )
    for wrong in (
        np.zeros((1, 4), dtype=np.float32),
        np.zeros(5),
        "left",
        [0.0],
        None,
        {"a": 1},
        np.zeros((0, 4)),
    ):
        with pytest.raises(
            ValueError, match=rf"^act takes one observation, {wanted}, got .*{hint}$"
        ):
            agent.act(wrong, explore=False)
    env = rlbook.make("CartPole-v1")
    assert agent.act(agent.adapt_observations(env.reset(seed=0)[0]), explore=False) in (0, 1)


@pytest.mark.parametrize("algorithm", ["q_learning", "value_iteration", "mcts"])
def test_a_state_that_there_is_not_is_refused(algorithm: str) -> None:
    agent = rlbook.train(algorithm, "Maze-v0", steps=20, eval_every=0).agent
    for wrong in (-1, 25, 3.5, True, np.nan):
        with pytest.raises(
            ValueError, match=r"^act takes one observation, a whole number from 0 to 24, got "
        ):
            agent.act(wrong)
    assert agent.act(np.int64(24), explore=False) in range(4)
