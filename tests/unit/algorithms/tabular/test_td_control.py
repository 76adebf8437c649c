"""SARSA, expected SARSA and double Q-learning: the updates by hand, which action stands in the
target, two tables."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
from closeness import assert_near, near

import rlbook
from rlbook.agent import Step
from rlbook.algorithms.exact_metrics import EXACT_METRICS
from rlbook.algorithms.tabular.double_q_learning import DoubleQLearning
from rlbook.algorithms.tabular.expected_sarsa import ExpectedSarsa
from rlbook.algorithms.tabular.q_learning import QLearning
from rlbook.algorithms.tabular.sarsa import NONE, Sarsa
from rlbook.functional.schedules import Constant

ON_TABLES = [Sarsa, ExpectedSarsa, DoubleQLearning]


class Spaces:
    """As much of an environment as a tabular agent looks at."""

    def __init__(self, num_states: int, num_actions: int) -> None:
        self.observation_space = gymnasium.spaces.Discrete(num_states)
        self.action_space = gymnasium.spaces.Discrete(num_actions)


class Fixed:
    """A generator whose numbers are known."""

    def __init__(self, *numbers: float) -> None:
        self.numbers = list(numbers)

    def random(self) -> float:
        return self.numbers.pop(0)


def agent_with(kind: Any, table: Any, *, seed: int = 0, rng: Any = None, **config: Any) -> Any:
    q = np.array(table, dtype=float)
    env: Any = Spaces(*q.shape)
    agent = kind(env, kind.Config(**config), seed)
    for name in {"q", "first", "second"} & set(agent.memory._fields):
        getattr(agent.memory, name)[:] = q
    agent.rng = rng or agent.rng
    return agent


def drawing(action: int, num_actions: int) -> tuple[float, float]:
    """Two numbers that make an agent with ε = 1 take this action: the first is below ε, the second
    picks."""
    return 0.0, (action + 0.5) / num_actions


def test_sarsa_scripted_updates_give_the_recorded_table(fixtures: dict[str, Any]) -> None:
    """(0,0): .5 + .5 (1 + .9·-1 - .5) = .3, where Q(1,1) = -1; (1,1): -1 + .5 (2 + .9·.3 + 1) =
    .635; (0,0): .3 + .5 (-1 + .9·2 - .3) = .55; (1,0): 2 + .5 (5 - 2) = 3.5, from the terminal row
    7, 7 nothing."""
    script = fixtures["scripted_updates"]
    steps = script["transitions(s,a,r,s',a',terminated)"]
    numbers = [
        number
        for *_, following, terminated in steps
        if not terminated
        for number in drawing(following, 2)
    ]
    agent = agent_with(
        Sarsa,
        script["init_Q"],
        rng=Fixed(*numbers),
        alpha=script["alpha"],
        gamma=script["gamma"],
        epsilon=1.0,
    )
    for state, action, reward, next_state, _, terminated in steps:
        agent.learn(Step(state, action, reward, next_state, terminated, False))
    assert_near(agent.q, script["sarsa"], terms=4 * 4)


def test_expected_sarsa_scripted_updates_give_the_recorded_table(fixtures: dict[str, Any]) -> None:
    """(0,0): .5 + .5 (1 + .9 (.9·2 + .1·-1) - .5) = 1.515, since with ε = .2 and two actions the
    better one has probability .9."""
    script = fixtures["scripted_updates"]
    config = {
        "alpha": script["alpha"],
        "gamma": script["gamma"],
        "epsilon": script["eps_for_expected_sarsa"],
    }
    agent = agent_with(ExpectedSarsa, script["init_Q"], **config)
    for state, action, reward, next_state, _, terminated in script[
        "transitions(s,a,r,s',a',terminated)"
    ]:
        agent.learn(Step(state, action, reward, next_state, terminated, False))
    assert_near(agent.q, script["esarsa"], terms=4 * 5)


@pytest.mark.parametrize("exploration", ["epsilon-greedy", "softmax", "ucb"])
def test_the_action_in_the_target_of_sarsa_is_the_action_that_is_taken(exploration: str) -> None:
    """α = 1 and γ = 1 leave r + Q(s', a') in the entry, and all entries of s' differ, so the entry
    tells a'. No other action may follow."""
    agent = agent_with(
        Sarsa, np.zeros((6, 4)), alpha=1.0, gamma=1.0, epsilon=0.7, exploration=exploration
    )
    rng = np.random.default_rng(0)
    state, action = 0, agent.act(0)
    agent.begin()
    for _ in range(300):
        next_state = (state + 1 + int(rng.integers(5))) % 6
        agent.q[next_state] = 10.0 * next_state + rng.permutation(4)
        looked_at = agent.q[next_state].tolist()
        agent.learn(Step(state, action, -1.0, next_state, False, False))
        state, before = next_state, agent.q[state, action]
        action = agent.act(state)
        assert agent.act(state) == action
        assert before == -1.0 + looked_at[action]


def test_sarsa_draws_afresh_after_the_end_of_an_episode() -> None:
    for terminated, truncated in ((True, False), (False, True)):
        agent = agent_with(Sarsa, np.zeros((2, 3)), epsilon=1.0)
        agent.learn(Step(0, 0, 0.0, 1, False, False))
        assert agent.memory.pending[0] != NONE
        agent.learn(Step(1, agent.act(1), 0.0, 1, terminated, truncated))
        assert agent.memory.pending[0] == NONE
        assert len({agent.act(0) for _ in range(50)}) == 3


def test_sarsa_bootstraps_at_a_time_limit_from_an_action_it_does_not_take() -> None:
    """0 + .5 (1 + .9·8 - 0) for the action 1 that is drawn."""
    agent = agent_with(
        Sarsa,
        [[0.0, 0.0], [4.0, 8.0]],
        rng=Fixed(*drawing(1, 2)),
        alpha=0.5,
        gamma=0.9,
        epsilon=1.0,
    )
    agent.learn(Step(0, 0, 1.0, 1, False, True))
    assert agent.q[0, 0] == near(0.5 * (1 + 0.9 * 8), terms=4)


def test_sarsa_picks_the_next_action_before_it_updates() -> None:
    """On a self-loop: greedy in (2, 1) means action 0, and the target reads the old 2; after the
    update (2 - 5) action 1 would be best."""
    agent = agent_with(Sarsa, [[2.0, 1.0]], alpha=1.0, gamma=0.5, epsilon=0.0)
    agent.learn(Step(0, 0, -4.0, 0, False, False))
    assert agent.q.tolist() == [[-4.0 + 0.5 * 2.0, 1.0]]
    assert agent.act(0) == 0


def test_the_average_of_sarsas_targets_is_expected_sarsas_target() -> None:
    """20 000 draws of a' with Q(s', ·) = 1, 5, 5, 0 and ε = .4: (1 + 5 + 5 + 0)·.1 + .6·5 = 4.1;
    the standard error is below .02."""
    row = [1.0, 5.0, 5.0, 0.0]
    config: dict[str, Any] = {"alpha": 1.0, "gamma": 1.0, "epsilon": 0.4}
    agent = agent_with(Sarsa, [[0.0] * 4, row], **config)
    targets = []
    for _ in range(20_000):
        agent.learn(Step(0, 0, 0.0, 1, False, False))
        targets.append(agent.q[0, 0])
    expected = agent_with(ExpectedSarsa, [[0.0] * 4, row], **config)
    expected.learn(Step(0, 0, 0.0, 1, False, False))
    assert expected.q[0, 0] == near(4.1, terms=6)
    assert np.mean(targets) == pytest.approx(4.1, rel=0, abs=4 * 0.02)  # 4 standard errors


def test_expected_sarsa_averages_over_softmax_too() -> None:
    """exp(0), exp(ln 3 · 2 / 2): probabilities 1/4 and 3/4 of values 0 and 2 ln 3, at temperature
    2."""
    high = 2.0 * math.log(3.0)
    agent = agent_with(
        ExpectedSarsa,
        [[0.0, 0.0], [0.0, high]],
        alpha=1.0,
        gamma=1.0,
        exploration="softmax",
        temperature=2.0,
    )
    agent.learn(Step(0, 0, 0.0, 1, False, False))
    assert agent.q[0, 0] == near(0.75 * high, terms=6)


def test_expected_sarsa_without_exploration_is_q_learning() -> None:
    rng = np.random.default_rng(0)
    table = rng.normal(size=(5, 3))
    agents = [
        agent_with(kind, table, epsilon=0.0, alpha=0.3) for kind in (ExpectedSarsa, QLearning)
    ]
    for _ in range(200):
        step = Step(
            int(rng.integers(5)),
            int(rng.integers(3)),
            float(rng.normal()),
            int(rng.integers(5)),
            bool(rng.random() < 0.1),
            False,
        )
        for agent in agents:
            agent.learn(step)
    assert_near(agents[0].q, agents[1].q, terms=200 * 5)


def test_expected_sarsa_refuses_a_way_to_act_that_has_no_probabilities() -> None:
    with pytest.raises(
        ValueError,
        match=(
            "exploration must be epsilon-greedy or softmax for expected SARSA: 'ucb' has no"
            " probabilities"
        ),
    ):
        ExpectedSarsa.Config(exploration="ucb")


@pytest.mark.parametrize(("coin", "learned"), [(0.2, (4.0, 0.0)), (0.8, (0.0, 3.5))])
def test_one_table_chooses_and_the_other_judges(coin: float, learned: tuple[float, float]) -> None:
    """Q₁(s') = (1, 9, 2), Q₂(s') = (3, 4, 8). Heads: Q₁ says action 1, Q₂ says 4. Tails: Q₂ says
    action 2, Q₁ says 2.

    α = .5, γ = .5, r = 6, both entries 0: Q₁ ← .5 (6 + .5·4) = 4, or Q₂ ← .5 (6 + .5·2) = 3.5. The
    same table twice would give 5.25 or 5.
    """
    agent = agent_with(DoubleQLearning, np.zeros((2, 3)), rng=Fixed(coin), alpha=0.5, gamma=0.5)
    agent.memory.first[1], agent.memory.second[1] = [1.0, 9.0, 2.0], [3.0, 4.0, 8.0]
    metrics = agent.learn(Step(0, 0, 6.0, 1, False, False))
    assert (agent.memory.first[0, 0], agent.memory.second[0, 0]) == learned
    assert agent.q[0, 0] == sum(learned) / 2
    assert metrics["td_error"] == 2 * max(learned)


def test_double_q_learning_acts_by_and_shows_the_mean_of_its_tables() -> None:
    agent = agent_with(DoubleQLearning, np.zeros((3, 2)), alpha=0.5, epsilon=0.0)
    rng = np.random.default_rng(0)
    for _ in range(300):
        agent.learn(
            Step(
                int(rng.integers(3)),
                int(rng.integers(2)),
                float(rng.normal()),
                int(rng.integers(3)),
                False,
                False,
            )
        )
    mean = (agent.memory.first + agent.memory.second) / 2
    assert np.abs(agent.memory.first - agent.memory.second).max() > 0.1
    np.testing.assert_array_equal(agent.action_values(), mean)
    np.testing.assert_array_equal(agent.greedy_policy(), mean.argmax(axis=1))
    assert [agent.act(state) for state in range(3)] == mean.argmax(axis=1).tolist()


def test_both_tables_of_double_q_learning_learn_equally_often() -> None:
    """2 000 tosses: 1 000 ± 4 · 22.4."""
    agent = agent_with(DoubleQLearning, [[0.0]], alpha="inverse(1.0)", gamma=0.0)
    for _ in range(2_000):
        agent.learn(Step(0, 0, 1.0, 0, True, False))
    assert agent.memory.visits[0, 0] == 2_000
    assert abs(agent.memory.first_visits[0, 0] - 1_000) < 90


def test_with_a_step_size_of_one_over_n_each_table_is_the_average_of_its_own_targets() -> None:
    rewards, coins = [1.0, 4.0, -2.0, 7.0, 3.0], [0.1, 0.9, 0.9, 0.3, 0.2]
    agent = agent_with(DoubleQLearning, [[5.0]], rng=Fixed(*coins), alpha="inverse(1.0)")
    for reward in rewards:
        agent.learn(Step(0, 0, reward, 0, True, False))
    assert agent.memory.first[0, 0] == near((1 + 7 + 3) / 3, terms=9, size=7.0)
    assert agent.memory.second[0, 0] == near((4 - 2) / 2, terms=6, size=4.0)


@pytest.mark.parametrize("kind", [QLearning, Sarsa, ExpectedSarsa])
def test_with_a_step_size_of_one_over_n_an_entry_is_the_average_of_its_own_targets(
    kind: Any,
) -> None:
    """γ = 0: (0, 0) is paid 1 and 3, (0, 1) 2, and (1, 1) 4, -2 and 7. All lead to state 0."""
    agent = agent_with(kind, [[5.0, 5.0], [5.0, 5.0]], alpha="inverse(1.0)", gamma=0.0)
    for state, action, reward in [
        (0, 0, 1.0),
        (1, 1, 4.0),
        (0, 1, 2.0),
        (1, 1, -2.0),
        (1, 1, 7.0),
        (0, 0, 3.0),
    ]:
        agent.learn(Step(state, action, reward, 0, False, False))
    assert_near(agent.memory.q, [[2.0, 2.0], [5.0, 3.0]], terms=9, size=7.0)


@pytest.mark.parametrize("kind", ON_TABLES)
def test_nothing_is_bootstrapped_from_beyond_an_end(kind: Any) -> None:
    agent = agent_with(kind, [[0.0, 0.0], [7.0, 9.0]], alpha=0.5, gamma=0.9)
    agent.learn(Step(0, 0, 2.0, 1, True, False))
    changed = (
        [agent.memory.q]
        if kind is not DoubleQLearning
        else [agent.memory.first, agent.memory.second]
    )
    assert max(table[0, 0] for table in changed) == 0.5 * 2.0


@pytest.mark.parametrize("kind", ON_TABLES)
def test_one_state_with_a_time_limit_is_worth_reward_over_one_minus_gamma(kind: Any) -> None:
    """r = 1 and a limit of 10 steps: 1 / (1 - .9) = 10, not 5.26."""
    agent = agent_with(kind, [[0.0]], alpha=0.5, gamma=0.9)
    for time in range(3_000):
        agent.learn(Step(0, agent.act(0), 1.0, 0, False, time % 10 == 9))
    # an error shrinks by α (1 - γ) a step
    assert agent.values()[0] == near(10, terms=4, size=10 / (0.5 * (1 - 0.9)))


@pytest.mark.parametrize("kind", ON_TABLES)
def test_rewards_times_k_scale_the_table_by_k(kind: Any) -> None:
    """With k = 2 to the bit, since that only moves exponents; acting stays the same."""
    tables = []
    for scale in (1.0, 2.0):
        agent, rng, state = (
            agent_with(kind, np.zeros((4, 3)), alpha=0.3, epsilon=0.3),
            np.random.default_rng(1),
            0,
        )
        for _ in range(400):
            action, next_state, reward = (
                agent.act(state),
                int(rng.integers(4)),
                scale * float(rng.normal()),
            )
            over = bool(rng.random() < 0.1)
            agent.learn(Step(state, action, reward, next_state, over, False))
            state = 0 if over else next_state
        tables.append(agent.action_values())
    np.testing.assert_array_equal(2.0 * tables[0], tables[1])


@pytest.mark.parametrize("kind", ON_TABLES)
def test_a_restored_agent_goes_on_exactly_as_the_saved_one(kind: Any) -> None:
    """In the middle of an episode, where SARSA holds an action ready."""
    first, second = (
        agent_with(kind, np.zeros((6, 3)), seed=1),
        agent_with(kind, np.ones((6, 3)), seed=2),
    )

    def live(agent: Any, seed: int) -> list[int]:
        rng, actions, state = np.random.default_rng(seed), [], 0
        for _ in range(150):
            actions.append(agent.act(state))
            step = Step(
                state,
                actions[-1],
                float(rng.normal()),
                int(rng.integers(6)),
                False,
                bool(rng.random() < 0.05),
            )
            agent.learn(step)
            state = step.next_obs
        return actions

    live(first, 0)
    second.load_state_dict(first.state_dict())
    assert live(first, 1) == live(second, 1)
    np.testing.assert_array_equal(first.q, second.q)


@pytest.mark.parametrize("kind", ON_TABLES)
def test_every_logged_number_is_explained(kind: Any) -> None:
    agent = agent_with(kind, [[1.0]], alpha=Constant(0.5))
    metrics = agent.learn(Step(0, agent.act(0), -2.0, 0, True, False))
    assert set(metrics) == set(kind.METRICS) - {"temperature"} - set(EXACT_METRICS)
    assert metrics["td_error"] == abs(-2.0 - 1.0)


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("algorithm", ["sarsa", "expected_sarsa", "double_q_learning"])
@pytest.mark.parametrize("env", ["Blackjack-v1", "Taxi-v4", "CartPole-v1", "Pendulum-v1"])
def test_it_trains_where_a_table_fits(algorithm: str, env: str) -> None:
    # with the bins of the default each chunk of three steps writes a table of 8^4 states
    few: dict[str, Any] = {"bins": 4} if env == "CartPole-v1" else {}
    run: Any = rlbook.train(
        algorithm, env, steps=300, eval_every=0, epsilon=0.2, simulate=False, **few
    )
    assert run.steps == 300
    assert run.agent.q.any()
