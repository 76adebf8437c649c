"""TD(λ), SARSA(λ) and Watkins's Q(λ): by hand, against tables of all traces, against the λ-returns,
and at both ends of λ."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from closeness import assert_near, near

import rlbook
from rlbook.agent import Step
from rlbook.algorithms.tabular.prediction.td_lambda import TDLambda
from rlbook.algorithms.tabular.sarsa_lambda import SarsaLambda
from rlbook.algorithms.tabular.watkins_q_lambda import WatkinsQLambda
from rlbook.functional.schedules import Constant, Inverse

ONLINE = ("accumulating", "replacing", "true-online")


class Spaces:
    """As much of an environment as a tabular agent looks at."""

    def __init__(self, num_states: int, num_actions: int) -> None:
        self.observation_space = gymnasium.spaces.Discrete(num_states)
        self.action_space = gymnasium.spaces.Discrete(num_actions)


def predictor(values: Any, **config: Any) -> TDLambda:
    env: Any = Spaces(len(values), 2)
    agent = TDLambda(env, TDLambda.Config(**config))
    agent.memory.v[:] = values
    return agent


def episode(
    agent: Any, path: list[int], rewards: list[float], *, truncated: bool = False
) -> list[np.ndarray]:
    """Goes along `path` with action 0. Returns the values after each step."""
    values = []
    for time, reward in enumerate(rewards):
        over = time == len(rewards) - 1
        agent.learn(
            Step(path[time], 0, reward, path[time + 1], over and not truncated, over and truncated)
        )
        values.append(agent.values())
    return values


def walk(
    rng: np.random.Generator, length: int, num_states: int = 5
) -> tuple[list[int], list[float]]:
    return rng.integers(num_states, size=length + 1).tolist(), rng.normal(size=length).tolist()


@pytest.mark.parametrize(
    ("traces", "key"),
    [("accumulating", "acc"), ("replacing", "rep"), ("true-online", "true_online")],
)
def test_an_episode_that_comes_back_to_a_state_gives_the_recorded_values(
    fixtures: dict[str, Any], traces: str, key: str
) -> None:
    """States 0, 1, 0, 2, rewards 1, 0, 2, 3; the 99 of the state after them must not show.

    Accumulating, V(0): δ = 1 + .9·1 - .5 = 1.4 gives 1.2; δ = 0 + .9·1.2 - 1 = .08 times .45 · .5
    gives 1.218; then the trace is 1 + .45² = 1.2025 and δ = 2 + .9·2 - 1.218 = 2.582, which gives
    2.7704...; δ = 3 - 2 = 1 times .45 · 1.2025 · .5 gives 3.04099.
    """
    known = fixtures["td_lambda_revisit"]
    config = {
        "alpha": Constant(known["alpha"]),
        "gamma": known["gamma"],
        "trace_decay": known["lambda"],
    }
    agent = predictor([*known["V0"], 99.0], traces=traces, **config)
    episode(agent, [*known["states"], 3], known["rewards"])
    assert_near(agent.values()[:3], known[key], decimals=5, terms=4 * 5)
    assert agent.values()[3] == 99.0


def test_without_a_return_accumulating_and_true_online_agree_and_offline_moves_to_the_lambda_returns(
    fixtures: dict[str, Any],
) -> None:
    """G_2 = 3; G_1 = 0 + .9 (.5·2 + .5·3) = 2.25; G_0 = 1 + .9 (.5·1 + .5·2.25) = 2.4625."""
    known = fixtures["td_lambda_fixture"]
    start = np.array(known["V0"])
    config = {
        "alpha": Constant(known["alpha"]),
        "gamma": known["gamma"],
        "trace_decay": known["lambda"],
    }
    expected = {name: known[name.replace("-", "_")] for name in ("accumulating", "true-online")}
    expected["offline"] = start + known["alpha"] * (np.array(known["lambda_returns"]) - start)
    for traces, values in expected.items():
        agent = predictor([*start, 99.0], traces=traces, **config)
        episode(agent, [0, 1, 2, 3], known["rewards"])
        assert_near(agent.values(), [*values, 99.0], terms=3 * 5, size=3.0)


@pytest.mark.parametrize("traces", ONLINE)
@pytest.mark.parametrize("truncated", [False, True])
def test_the_list_of_traces_does_what_a_table_of_all_traces_does(
    traces: str, truncated: bool
) -> None:
    """The boxes of the book with vectors over all states, α outside of the trace."""
    rng = np.random.default_rng(0)
    alpha, gamma, decay, values = 0.3, 0.9, 0.7, rng.normal(size=5)
    agent = predictor(values, traces=traces, alpha=Constant(alpha), gamma=gamma, trace_decay=decay)
    for length in (1, 2, 5, 20, 60):
        path, rewards = walk(rng, length)
        shown = episode(agent, path, rewards, truncated=truncated)
        trace, before = np.zeros(5), 0.0
        for time, reward in enumerate(rewards):
            here = np.eye(5)[path[time]]
            value, next_value = (
                values @ here,
                values[path[time + 1]] if truncated or time < length - 1 else 0.0,
            )
            error = reward + gamma * next_value - value
            trace = gamma * decay * trace
            if traces == "true-online":
                trace = trace + (1.0 - alpha * trace[path[time]]) * here
                values = (
                    values
                    + alpha * (error + value - before) * trace
                    - alpha * (value - before) * here
                )
            else:
                trace = trace + here if traces == "accumulating" else np.where(here > 0, 1.0, trace)
                values = values + alpha * error * trace
            before = next_value
            assert_near(shown[time], values, terms=88 * 5)  # steps until then, at most


def truncated_lambda_returns(
    start: np.ndarray,
    path: list[int],
    rewards: list[float],
    values: list[np.ndarray],
    decay: float,
    gamma: float,
    ended: bool,
) -> np.ndarray:
    """V after learning from the λ-returns cut off at the last of `rewards`; values[t] is V when
    state t + 1 was met (eq. 12.10)."""
    horizon, table = len(rewards), start.copy()
    for time in range(horizon):
        total, weight = 0.0, 1.0
        for end in range(time + 1, horizon + 1):
            at_the_end = 0.0 if ended and end == horizon else values[end - 1][path[end]]
            n_step = (
                sum(gamma ** (i - time) * rewards[i] for i in range(time, end))
                + gamma ** (end - time) * at_the_end
            )
            share = weight if end == horizon else weight * (1 - decay)
            total, weight = total + share * n_step, weight * decay
        table[path[time]] += 0.2 * (total - table[path[time]])
    return table


@pytest.mark.parametrize("decay", [0.0, 0.6, 1.0])
def test_true_online_is_the_online_lambda_return_algorithm_at_every_step(decay: float) -> None:
    """Source: Sutton & Barto 2018, sections 12.4 and 12.5: all updates of the episode done again at
    each step, with later returns."""
    rng = np.random.default_rng(1)
    start = rng.normal(size=4)
    path, rewards = walk(rng, 12, num_states=4)
    shown = episode(
        predictor(start, traces="true-online", alpha=Constant(0.2), gamma=0.9, trace_decay=decay),
        path,
        rewards,
    )
    values = [start, *shown]  # V when state t + 1 was met is V after t updates
    for horizon in range(1, 13):
        expected = truncated_lambda_returns(
            start, path, rewards[:horizon], values, decay, 0.9, ended=horizon == 12
        )
        assert_near(shown[horizon - 1], expected, terms=12 * 12)


@pytest.mark.parametrize("decay", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("ended", [False, True])
def test_the_offline_algorithm_is_the_forward_view(decay: float, ended: bool) -> None:
    """Each λ-return as the sum over all n of its n-step returns (eq. 12.3), all of them from the V
    that the episode began with."""
    rng = np.random.default_rng(2)
    start = rng.normal(size=4)
    path, rewards = walk(rng, 12, num_states=4)
    agent = predictor(start, traces="offline", alpha=Constant(0.2), gamma=0.9, trace_decay=decay)
    shown = episode(agent, path, rewards, truncated=not ended)
    expected = truncated_lambda_returns(start, path, rewards, [start] * 12, decay, 0.9, ended)
    assert_near(shown[-1], expected, terms=12 * 12)
    np.testing.assert_array_equal(shown[:-1], [start] * 11)


def learned(algorithm: str, env: Any, **settings: Any) -> np.ndarray:
    agent: Any = rlbook.train(algorithm, env, eval_every=0, **settings).agent
    return agent.memory.v if hasattr(agent.memory, "v") else agent.memory.q


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("env", ["Maze-v0", "FrozenLake-v1"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"exploration": "ucb", "alpha": "inverse(1.0, 0.7)"},
        {"epsilon": "inverse(1.0, 0.5)", "alpha": "linear(0.5, 0.1)"},
    ],
    ids=str,
)
def test_without_traces_sarsa_lambda_is_sarsa_and_watkins_is_q_learning_to_the_bit(
    env: str, settings: dict[str, Any]
) -> None:
    """Walls make steps from a state to itself, where the true online form has a correction that
    must vanish exactly."""
    settings = {"alpha": 0.3, "steps": 3000, "seed": 1} | settings
    sarsa, q_learning = learned("sarsa", env, **settings), learned("q_learning", env, **settings)
    for traces in ONLINE:
        np.testing.assert_array_equal(
            learned("sarsa_lambda", env, trace_decay=0.0, traces=traces, **settings), sarsa
        )
    for traces in ONLINE[:2]:
        np.testing.assert_array_equal(
            learned("watkins_q_lambda", env, trace_decay=0.0, traces=traces, **settings), q_learning
        )
    assert (learned("watkins_q_lambda", env, trace_decay=0.5, **settings) != q_learning).any()


@pytest.mark.parametrize("alpha", ["0.3", "inverse(1.0)", "linear(0.5, 0.1)"])
def test_without_traces_td_lambda_is_td_prediction_to_the_bit(alpha: str) -> None:
    for env in ("Maze-v0", "RandomWalk-v0"):
        settings = {"alpha": alpha, "steps": 3000, "seed": 1}
        expected = learned("td_prediction", env, **settings)
        for traces in ONLINE:
            np.testing.assert_array_equal(
                learned("td_lambda", env, trace_decay=0.0, traces=traces, **settings), expected
            )
        assert (
            learned("td_lambda", env, trace_decay=0.0, traces="offline", **settings) != expected
        ).any()


@pytest.mark.parametrize("alpha", ["0.2", "inverse(1.0)"])
def test_lambda_one_is_monte_carlo(alpha: str) -> None:
    """Offline to the bit; true online up to rounding, as what it adds up step by step is a sum that
    telescopes."""
    settings = {"alpha": alpha, "episodes": 100, "gamma": 0.9, "seed": 1}
    monte_carlo = learned("mc_prediction", "RandomWalk-v0", visits="every", **settings)
    np.testing.assert_array_equal(
        learned("td_lambda", "RandomWalk-v0", trace_decay=1.0, traces="offline", **settings),
        monte_carlo,
    )
    online = learned(
        "td_lambda", "RandomWalk-v0", trace_decay=1.0, traces="true-online", **settings
    )
    assert_near(online, monte_carlo, terms=100 * 20, size=1.0)  # 100 episodes of about 20 steps


def test_each_visit_keeps_the_step_size_of_its_time() -> None:
    """α = 1/N per state, λ = γ = 1: V is the average of the returns, 7 and 4 from state 0, 5 and 1
    from state 1."""
    agent = predictor(
        np.zeros(3), traces="true-online", alpha=Inverse(1.0), gamma=1.0, trace_decay=1.0
    )
    episode(agent, [0, 1, 2], [2.0, 5.0])
    episode(agent, [0, 1, 2], [3.0, 1.0])
    assert_near(agent.values(), [(7 + 4) / 2, (5 + 1) / 2, 0.0], terms=4 * 5, size=7.0)


@pytest.mark.parametrize("traces", [*ONLINE, "offline"])
def test_a_time_limit_still_bootstraps(traces: str) -> None:
    """One state, r = 1, γ = .9, a limit of 10 steps: V = 1 / (1 - .9) = 10."""
    agent = predictor([0.0], traces=traces, alpha=Constant(0.2), gamma=0.9, trace_decay=0.5)
    for _ in range(400):
        episode(agent, [0] * 11, [1.0] * 10, truncated=True)
    # an error shrinks by α (1 - γ) a step
    assert agent.values()[0] == near(10.0, terms=5, size=10 / (0.2 * (1 - 0.9)))


@pytest.mark.parametrize("truncated", [False, True])
@pytest.mark.parametrize("traces", [*ONLINE, "offline"])
def test_an_episode_has_no_share_in_what_happens_in_the_next(traces: str, truncated: bool) -> None:
    agent = predictor(np.zeros(4), traces=traces, alpha=Constant(0.5), gamma=1.0, trace_decay=1.0)
    episode(agent, [0, 1, 2], [1.0, 1.0], truncated=truncated)
    before = agent.values()
    episode(agent, [3, 3], [100.0], truncated=truncated)
    assert agent.values()[:3].tolist() == before[:3].tolist()
    assert agent.values()[3] >= 50.0


def q_agent(kind: type, table: Any, **config: Any) -> Any:
    q = np.array(table, dtype=float)
    env: Any = Spaces(*q.shape)
    agent = kind(env, kind.Config(**config))
    agent.q[:] = q
    return agent


def test_sarsa_lambda_passes_an_error_back_along_the_path() -> None:
    """γλ = .5, α = .5: the last δ = 8 moves the pairs of the path by 4, 2 and 1, and no other."""
    agent = q_agent(
        SarsaLambda,
        np.zeros((4, 1)),
        alpha=Constant(0.5),
        gamma=1.0,
        trace_decay=0.5,
        traces="accumulating",
    )
    for state, reward in enumerate((0.0, 0.0, 8.0)):
        agent.learn(Step(state, 0, reward, state + 1, state == 2, False))
    assert agent.q.ravel().tolist() == [1.0, 2.0, 4.0, 0.0]


def test_sarsa_lambda_learns_of_the_action_it_takes_next() -> None:
    for seed in range(20):
        env: Any = Spaces(2, 4)
        agent = SarsaLambda(
            env, SarsaLambda.Config(alpha=Constant(1.0), gamma=1.0, epsilon=Constant(1.0)), seed
        )
        agent.q[1] = [10.0, 20.0, 30.0, 40.0]
        agent.learn(Step(0, 0, 0.5, 1, False, False))
        assert agent.act(1) == (agent.q[0, 0] - 0.5) / 10 - 1


@pytest.mark.parametrize(("taken", "passed_back"), [(0, 4.0), (1, 4.0), (2, 0.0)])
def test_watkins_traces_end_at_an_action_that_is_not_a_best_one(
    taken: int, passed_back: float
) -> None:
    """In state 1 the actions 0 and 1 tie for the best, 2 is worse. δ = 8 - Q(1, taken) is passed
    back by α γ λ = .5 · 1 · 1, or not."""
    agent = q_agent(
        WatkinsQLambda,
        [[0.0, 0.0, 0.0], [0.0, 0.0, -1.0], [9, 9, 9]],
        alpha=Constant(0.5),
        gamma=1.0,
        trace_decay=1.0,
    )
    agent.learn(Step(0, 0, 0.0, 1, False, False))
    agent.learn(Step(1, taken, 8.0, 2, True, False))
    assert agent.q[0, 0] == passed_back
    assert agent.q[1, taken] == (4.0 if taken < 2 else -1.0 + 0.5 * (8.0 + 1.0))


def test_watkins_bootstraps_from_the_best_action_whatever_is_taken() -> None:
    agent = q_agent(
        WatkinsQLambda, [[0.0, 0.0], [3.0, 1.0]], alpha=Constant(1.0), gamma=0.5, trace_decay=0.9
    )
    agent.learn(Step(0, 1, 1.0, 1, False, False))
    assert agent.q[0, 1] == 1.0 + 0.5 * 3.0


def consistent(memory: Any) -> bool:
    """Whether list and table say the same, and every listed trace is above 0."""
    active = int(memory.active[0])
    listed = np.zeros(memory.place.shape, dtype=int)
    listed[memory.traced_states[:active], memory.traced_actions[:active]] = np.arange(1, active + 1)
    return bool((listed == memory.place).all() and (memory.traces[:active] > 0).all())


@pytest.mark.parametrize("kind", [SarsaLambda, WatkinsQLambda, TDLambda])
def test_traces_that_are_zero_leave_the_list_and_no_other_does(kind: Any) -> None:
    """γλ = .001: .1 · .001^t is below the smallest number, 5e-324, after 108 steps."""
    env: Any = Spaces(1000, 3)
    agent = kind(
        env, kind.Config(alpha=Constant(0.1), gamma=1.0, trace_decay=0.001, traces="accumulating")
    )
    for time in range(500):
        agent.learn(Step(time, 0, 0.0, time + 1, False, False))
        assert agent.memory.active[0] == min(time + 1, 107)
        assert consistent(agent.memory)
    agent.begin()
    assert agent.memory.active[0] == 0
    assert not agent.memory.place.any()


@pytest.mark.parametrize("kind", [SarsaLambda, WatkinsQLambda])
def test_a_restored_agent_goes_on_in_the_middle_of_an_episode(kind: Any) -> None:
    env: Any = Spaces(6, 3)
    first, second = (kind(env, kind.Config(epsilon=Constant(0.02)), seed) for seed in (1, 2))
    rng = np.random.default_rng(0)
    columns = *rng.integers(6, size=(3, 300)), rng.random(300) < 0.05
    script = [(int(s), float(r), int(t), bool(e)) for s, r, t, e in zip(*columns, strict=True)]

    def live(agent: Any, part: list[tuple[int, float, int, bool]]) -> list[int]:
        actions = []
        for state, reward, next_state, ended in part:
            actions.append(agent.act(state))
            agent.learn(Step(state, actions[-1], reward, next_state, ended, False))
        return actions

    live(first, script[:155])
    assert first.memory.active[0] > 1
    second.load_state_dict(first.state_dict())
    assert live(first, script[155:]) == live(second, script[155:])
    np.testing.assert_array_equal(first.q, second.q)


@pytest.mark.parametrize(
    ("kind", "config", "complaint"),
    [
        (TDLambda, {"trace_decay": 1.1}, r"trace_decay must be a number in \[0, 1\], got 1.1"),
        (SarsaLambda, {"trace_decay": -0.1}, r"trace_decay must be a number in \[0, 1\], got -0.1"),
        (
            SarsaLambda,
            {"traces": "offline"},
            "traces must be one of 'accumulating', 'replacing', 'true-online', got 'offline'",
        ),
        (
            WatkinsQLambda,
            {"traces": "true-online"},
            "traces must be one of 'accumulating', 'replacing', got 'true-online'",
        ),
    ],
)
def test_hyper_parameters_out_of_range_are_refused(
    kind: Any, config: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        kind.Config(**config)
