"""Values of states by going back to them: exact on the maze, and the same function on a text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from closeness import near

import rlbook
from rlbook.book.experiments import credit_assignment as credit
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.interaction.resumable import ResumableEnv

GREEDY: Any = rlbook.train("value_iteration", "Maze-v0", gamma=1.0, eval_every=0).agent


def best_way(observation: Any, rng: np.random.Generator) -> int:
    return int(GREEDY.greedy_policy()[observation])


def test_one_new_episode_of_a_policy_without_chance_is_the_value_exactly() -> None:
    """In the maze without slips Monte Carlo from a state is dynamic programming: the same number
    from every state of the way."""
    env = ResumableEnv(rlbook.make("Maze-v0", observation="index"))
    rng, values = np.random.default_rng(0), GREEDY.values()
    walk = credit.play_episode(env, best_way, rng)
    assert walk.reward.sum() == 3.0 and walk.steps == 8
    for left, (state, snapshot) in enumerate(zip(walk.state, walk.snapshots, strict=True)):
        assert credit.vine_value(env, snapshot, best_way, 1, rng) == (values[state], 8 - left)


def test_with_slips_the_mean_comes_to_the_value_and_no_two_episodes_are_the_same_one() -> None:
    """Within four standard errors of the linear system's solution; a snapshot whose generator is
    not replaced would repeat one episode."""
    env = rlbook.make("Maze-v0", slip=0.2, observation="index", max_episode_steps=-1)
    model = TabularMDP.from_env(env)
    policy = np.eye(4)[GREEDY.greedy_policy()]
    exact = model.policy_values(policy, 1.0)
    world, rng = ResumableEnv(env), np.random.default_rng(1)
    world.reset(seed=0)
    start, state = world.snapshot(), int(world.obs)
    returns = np.array([credit.vine_value(world, start, best_way, 1, rng)[0] for _ in range(300)])
    assert len(np.unique(returns)) > 10
    assert abs(returns.mean() - exact[state]) < 4 * returns.std(ddof=1) / 300**0.5


def test_a_text_can_be_gone_back_to_as_well() -> None:
    """After a right beginning of the answer its writer earns 1, after a wrong one 0."""
    env = ResumableEnv(rlbook.make("Addition-v0"))
    rules: Any = env.unwrapped.rules  # type: ignore[attr-defined]

    def writer(observation: Any, rng: np.random.Generator) -> int:
        prompt = (
            rules.codec.decode(observation["tokens"][1 : observation["length"]]).partition("=")[0]
            + "="
        )
        written = observation["length"] - len(prompt) - 1
        return rules.codec.encode_answer(rules.task.answer(prompt))[written]

    env.reset(seed=3)
    right = writer(env.obs, np.random.default_rng(0))
    for first, value in ((right, 1.0), (right + 1, 0.0)):
        env.reset(seed=3)
        env.step(first)
        assert (
            credit.vine_value(env, env.snapshot(), writer, 2, np.random.default_rng(0))[0] == value
        )


def test_an_advantage_is_judged_by_its_distance_and_by_what_stays_in_the_mean() -> None:
    """Errors 1 and 3 at one pair, -2 and -2 at another: the mean square is 18 / 4; of the first
    mean, 1² is sampling noise."""
    walk = credit.ResumableEpisode(
        np.array([0, 0, 1, 1]), np.zeros(4, dtype=np.int64), np.zeros(4), []
    )
    found = credit.estimate_errors(
        [walk], [np.array([1.0, 3.0, -2.0, -2.0])], np.zeros((2, 1)), 1.0
    )
    assert found.error == near((18 / 4) ** 0.5, terms=4)
    assert found.bias == near(((4 - 1 + 4) / 2) ** 0.5, terms=4)


@pytest.mark.slow
def test_more_episodes_from_each_state_come_closer() -> None:
    found = credit.run(groups=10)
    assert found["vine, 16"].error < found["vine, 4"].error < found["vine, 1"].error
    assert found["exact critic, λ 0"].error < found["vine, 16"].error < found["group"].error
    assert found["learned critic, λ .95"].bias > 1.0 > found["vine, 16"].bias
