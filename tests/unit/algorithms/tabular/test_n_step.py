"""n-step TD and n-step SARSA: by hand, against the definition, and at both ends, n = 1 and n ≥
T."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from closeness import assert_near, near

import rlbook
from rlbook.agent import Step
from rlbook.algorithms.tabular.n_step_sarsa import NStepSarsa
from rlbook.algorithms.tabular.prediction.n_step_td import NStepTD
from rlbook.functional.schedules import Constant


class Spaces:
    """As much of an environment as a tabular agent looks at."""

    def __init__(self, num_states: int, num_actions: int) -> None:
        self.observation_space = gymnasium.spaces.Discrete(num_states)
        self.action_space = gymnasium.spaces.Discrete(num_actions)


def predictor(values: Any, **config: Any) -> NStepTD:
    env: Any = Spaces(len(values), 2)
    agent = NStepTD(env, NStepTD.Config(**config))
    agent.memory.v[:] = values
    return agent


def episode(
    agent: Any, states: list[int], rewards: list[float], last: int, *, truncated: bool = False
) -> list[dict[str, float]]:
    """Goes through `states` to `last`, with action 0."""
    shown = []
    for time, (state, next_state) in enumerate(zip(states, [*states[1:], last], strict=True)):
        over = time == len(states) - 1
        shown.append(
            agent.learn(
                Step(
                    state, 0, rewards[time], next_state, over and not truncated, over and truncated
                )
            )
        )
    return shown


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 10**30])
def test_an_episode_that_comes_back_to_a_state_gives_the_recorded_values(
    fixtures: dict[str, Any], n: int
) -> None:
    """States 0, 1, 0, 2, rewards 1, 0, 2, 3; 99 for the state after them would show if anything
    bootstrapped from there.

    n = 2: V(0) = .5 + .5 (1 + .9·0 + .81·.5 - .5) = .9525, V(1) = 1 + .5 (0 + .9·2 + .81·2 - 1) =
    2.21, V(0) = .9525 + .5 (2 + .9·3 - .9525) = 2.82625, V(2) = 2 + .5 (3 - 2) = 2.5.
    """
    known = fixtures["td_lambda_revisit"]
    agent = predictor(
        [*known["V0"], 99.0], n=n, alpha=Constant(known["alpha"]), gamma=known["gamma"]
    )
    episode(agent, known["states"], known["rewards"], 3)
    assert_near(agent.values()[:3], fixtures["nstep_td_revisit"][f"n={min(n, 4)}"], terms=6)
    assert agent.values()[3] == 99.0


def by_definition(
    values: np.ndarray,
    states: list[int],
    rewards: list[float],
    last: int,
    truncated: bool,
    n: int,
    alpha: float,
    gamma: float,
) -> np.ndarray:
    """The box, with every return summed forwards from scratch; the bootstrap after a time limit is
    V(last) when the limit came."""
    values, length, path = values.copy(), len(states), [*states, last]
    at_the_end = None
    for tau in range(length):
        end = min(tau + n, length)
        if end == length and at_the_end is None:
            at_the_end = values[last] if truncated else 0.0
        bootstrap = values[path[end]] if end < length else at_the_end
        total = sum(gamma ** (i - tau) * rewards[i] for i in range(tau, end)) + gamma ** (
            end - tau
        ) * float(bootstrap or 0.0)
        values[states[tau]] += alpha * (total - values[states[tau]])
    return values


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 50])
@pytest.mark.parametrize("truncated", [False, True])
def test_the_window_gives_the_returns_of_the_definition(n: int, truncated: bool) -> None:
    rng = np.random.default_rng(n)
    agent = predictor(rng.normal(size=6), n=n, alpha=Constant(0.3), gamma=0.8)
    for length in (1, 2, 3, 4, 7, 12, 30):
        path, rewards = rng.integers(6, size=length + 1).tolist(), rng.normal(size=length).tolist()
        expected = by_definition(
            agent.values(), path[:-1], rewards, path[-1], truncated, n, 0.3, 0.8
        )
        episode(agent, path[:-1], rewards, path[-1], truncated=truncated)
        # 30 updates by returns of up to 30 rewards below 4, which add up to 4 / (1 - .8) = 20
        assert_near(agent.values(), expected, terms=60, size=20)


def test_nothing_is_learnt_before_n_steps_and_the_rest_when_the_episode_ends() -> None:
    agent = predictor(np.zeros(5), n=3, alpha=Constant(0.5), gamma=1.0)
    shown = episode(agent, [0, 1, 2, 3], [1.0, 1.0, 1.0, 1.0], 4)
    assert [item.get("td_error") for item in shown] == [None, None, 3.0, (3 + 2 + 1) / 3]
    assert agent.values().tolist() == [1.5, 1.5, 1.0, 0.5, 0.0]


@pytest.mark.parametrize("n", [1, 3, 10, 25])
def test_a_time_limit_still_bootstraps(n: int) -> None:
    """One state, r = 1, γ = .9, a limit of 10 steps: V = 1 / (1 - .9) = 10, whatever n."""
    agent = predictor([0.0], n=n, alpha=Constant(0.5), gamma=0.9)
    for _ in range(200):
        episode(agent, [0] * 10, [1.0] * 10, 0, truncated=True)
    # each of the 2 000 updates leaves at most .5 + .5 · .9 of the distance, .95^2000 = 3e-45 in all
    assert agent.values()[0] == near(10.0, terms=10, size=10 / (1 - 0.9))


def learned(algorithm: str, env: Any, **settings: Any) -> np.ndarray:
    agent: Any = rlbook.train(algorithm, env, eval_every=0, **settings).agent
    return agent.memory.v if hasattr(agent.memory, "v") else agent.memory.q


EXPLORING: list[dict[str, Any]] = [
    {},
    {"exploration": "ucb", "alpha": "inverse(1.0, 0.7)"},
    {"exploration": "softmax", "alpha": "linear(0.5, 0.1)"},
    {"epsilon": "inverse(1.0, 0.5)", "gamma": 1.0},
]


@pytest.mark.parametrize("env", ["Maze-v0", "FrozenLake-v1"])
@pytest.mark.parametrize("settings", EXPLORING, ids=str)
def test_one_step_sarsa_is_sarsa_to_the_bit(env: str, settings: dict[str, Any]) -> None:
    """200 steps are the maze's time limit, which both must take alike."""
    settings = {"alpha": 0.3, "steps": 3000, "seed": 1} | settings
    np.testing.assert_array_equal(
        learned("n_step_sarsa", env, n=1, **settings), learned("sarsa", env, **settings)
    )


@pytest.mark.parametrize("alpha", ["0.3", "inverse(1.0)", "linear(0.5, 0.1)"])
def test_one_step_td_is_td_prediction_to_the_bit(alpha: str) -> None:
    for env in ("Maze-v0", "RandomWalk-v0"):
        settings = {"alpha": alpha, "steps": 3000, "seed": 1}
        np.testing.assert_array_equal(
            learned("n_step_td", env, n=1, **settings), learned("td_prediction", env, **settings)
        )


@pytest.mark.parametrize("alpha", ["0.2", "inverse(1.0)"])
def test_as_many_steps_as_the_episode_has_are_monte_carlo_to_the_bit(alpha: str) -> None:
    """Walks of 5 states visit states many times, so the order of updates shows. 2000 is more steps
    than any of these walks has."""
    settings = {"alpha": alpha, "episodes": 100, "gamma": 0.9, "seed": 1}
    monte_carlo = learned("mc_prediction", "RandomWalk-v0", visits="every", **settings)
    for n in (2_000, 10**9):
        np.testing.assert_array_equal(
            learned("n_step_td", "RandomWalk-v0", n=n, **settings), monte_carlo
        )
    assert (learned("n_step_td", "RandomWalk-v0", n=4, **settings) != monte_carlo).any()


def test_n_step_sarsa_with_whole_episodes_is_monte_carlo_control_to_the_bit() -> None:
    settings = {"alpha": 0.2, "epsilon": 0.3, "episodes": 200, "gamma": 0.9, "seed": 1}
    np.testing.assert_array_equal(
        learned("n_step_sarsa", "RandomWalk-v0", n=10_000, **settings),
        learned("mc_control", "RandomWalk-v0", visits="every", **settings),
    )


def test_the_action_in_the_target_is_the_action_taken_next() -> None:
    """With ε = 1 and all Q different, which action the target looked at can be read off: Q(0, 0) =
    r + Q(1, a')."""
    env: Any = Spaces(2, 4)
    for seed in range(20):
        agent = NStepSarsa(
            env, NStepSarsa.Config(n=2, alpha=Constant(1.0), gamma=1.0, epsilon=Constant(1.0)), seed
        )
        agent.q[1] = [10.0, 20.0, 30.0, 40.0]
        agent.learn(Step(0, 0, 1.0, 0, False, False))
        agent.learn(Step(0, 1, 2.0, 1, False, False))
        looked_at = (agent.q[0, 0] - (1.0 + 2.0)) / 10 - 1
        assert agent.act(1) == looked_at
        agent.begin()
        assert len({agent.act(1) for _ in range(50)}) == 4


@pytest.mark.parametrize("kind", [NStepTD, NStepSarsa])
def test_the_error_of_an_episode_shorter_than_n_is_the_mean_over_its_steps(kind: Any) -> None:
    """Rewards 1 and 4, γ = ½, from 0: the returns are 3 and 4."""
    env: Any = Spaces(3, 2)
    agent = kind(env, kind.Config(n=9, alpha=Constant(1.0), gamma=0.5))
    shown = episode(agent, [0, 1], [1.0, 4.0], 2)
    assert [item.get("td_error") for item in shown] == [None, (3 + 4) / 2]


@pytest.mark.parametrize("n", [1, 3, 40])
def test_a_restored_agent_goes_on_in_the_middle_of_an_episode(n: int) -> None:
    env: Any = Spaces(6, 3)
    first, second = (NStepSarsa(env, NStepSarsa.Config(n=n), seed) for seed in (1, 2))
    rng = np.random.default_rng(0)
    columns = *rng.integers(6, size=(3, 300)), rng.random(300) < 0.05
    script = [(int(s), float(r), int(t), bool(e)) for s, r, t, e in zip(*columns, strict=True)]

    def live(agent: NStepSarsa, part: list[tuple[int, float, int, bool]]) -> list[int]:
        actions = []
        for state, reward, next_state, ended in part:
            actions.append(agent.act(state))
            agent.learn(Step(state, actions[-1], reward, next_state, ended, False))
        return actions

    live(first, script[:155])
    second.load_state_dict(first.state_dict())
    assert live(first, script[155:]) == live(second, script[155:])
    np.testing.assert_array_equal(first.q, second.q)


def test_a_large_n_takes_no_more_memory_than_the_episode() -> None:
    agent = predictor(np.zeros(3), n=10**12)
    episode(agent, [0, 1, 2, 1, 0, 1], [0.0] * 6, 2)
    assert len(agent.memory.rewards) < 20


@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_n_is_a_whole_number_from_one_on(value: Any) -> None:
    for kind in (NStepTD, NStepSarsa):
        with pytest.raises(ValueError, match="n must be an integer of at least 1, got"):
            kind.Config(n=value)
