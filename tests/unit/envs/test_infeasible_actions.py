"""Actions that cannot be taken in some states, written as rewards of -∞: planners never choose
them, and nothing becomes NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from closeness import near

import rlbook
from rlbook.algorithms.planning.policy_evaluation import PolicyEvaluation
from rlbook.algorithms.tabular.bandit import Bandit
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.envs.tabular.tabular_env import TabularEnv
from rlbook.envs.tabular.tabular_vector import TabularVectorEnv
from rlbook.fast_forms import use_plain_forms
from rlbook.registry import agent_class

PLANNERS = (
    "value_iteration",
    "policy_iteration",
    "modified_policy_iteration",
    "prioritized_sweeping",
)
STOCK, HARVEST, BETA = 10, 5, 0.9


def within(values: list[float], more: float = 0.0) -> Any:
    """Equal up to the planners' own tolerance, 1e-8 reward units, and `more`, half a unit of the
    last digit that is printed."""
    return pytest.approx(values, rel=0.0, abs=1e-8 + more)  # derived: the planners' tolerance


def growth() -> TabularMDP:
    """QuantEcon's example of DiscreteDP: of a stock s a part a ≤ min(s, 5) is stored, s - a is
    eaten and pays √(s - a), and the next stock is a plus 0 to 10, all alike. Storing more than
    there is pays -∞."""
    states, actions = STOCK + HARVEST + 1, HARVEST + 1
    left = np.arange(states)[:, None] - np.arange(actions)
    rewards = np.where(left >= 0, np.sqrt(np.maximum(left, 0)), -np.inf)
    transitions = np.zeros((states, actions, states))
    for action in range(actions):
        transitions[:, action, action : action + STOCK + 1] = 1 / (STOCK + 1)
    return TabularMDP.from_arrays(transitions, rewards)


def exact(model: TabularMDP, gamma: float) -> np.ndarray:
    """Q* [S, A] by 2 000 plain sweeps over the actions that can be taken."""
    values = np.zeros(model.num_states)
    rows = model.transitions.toarray().reshape(model.num_states, model.num_actions, -1)
    for _ in range(2_000):
        action_values = np.where(
            np.isneginf(model.rewards), -np.inf, model.rewards + gamma * rows @ values
        )
        values = action_values.max(axis=1)
    return action_values


def test_what_is_written_into_a_mask_changes_no_model() -> None:
    model = growth()
    env: Any = TabularEnv(model)
    feasible = np.isfinite(model.rewards)
    for mask in (env.reset(seed=0)[1]["action_mask"], env.action_mask(0), env.step(0)[4]):
        mask = mask["action_mask"] if isinstance(mask, dict) else mask
        mask[:] = ~mask
    np.testing.assert_array_equal(model.feasible, feasible)
    vector: Any = TabularVectorEnv(2, model=model)
    vector.reset(seed=0)[1]["action_mask"][:] = False
    np.testing.assert_array_equal(model.feasible, feasible)


@pytest.mark.fast_form
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("planner", PLANNERS)
def test_planners_find_the_optimum_among_what_can_be_done(planner: str, plain: bool) -> None:
    """V* and σ* are those of QuantEcon's documentation, to the digits that it prints."""
    model = growth()
    with use_plain_forms(plain):
        agent: Any = agent_class(planner).solve(model, gamma=BETA)  # type: ignore[attr-defined]
    assert agent.greedy_policy().tolist() == [0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 4, 5, 5, 5, 5]
    assert agent.values()[[0, 1, 15]].tolist() == within(
        [19.01740222, 20.01740222, 23.27761762], more=5e-9
    )
    expected = exact(model, BETA)
    np.testing.assert_array_equal(np.isneginf(agent.action_values()), np.isneginf(expected))
    possible = np.isfinite(expected)
    assert agent.action_values()[possible].tolist() == within(expected[possible].tolist())


@pytest.mark.parametrize("gamma", [0.9, 1.0])
def test_where_episodes_end_the_impossible_way_out_is_not_taken(gamma: float) -> None:
    """State 0 has a way out that pays 100 and cannot be taken; the other one leads through state
    1."""
    transitions = np.zeros((3, 2, 3))
    transitions[0, 1, 1] = transitions[1, 0, 2] = transitions[1, 1, 0] = 1.0
    rewards = np.array([[-np.inf, -1.0], [2.0, -1.0], [0.0, 0.0]])
    model = TabularMDP.from_arrays(transitions, rewards, terminal=np.array([False, False, True]))
    for planner in PLANNERS:
        agent: Any = agent_class(planner).solve(model, gamma=gamma)  # type: ignore[attr-defined]
        assert agent.greedy_policy()[:2].tolist() == [1, 0]
        assert agent.values().tolist() == within([gamma * 2.0 - 1.0, 2.0, 0.0])
    assert model.expected_steps(np.array([1, 0, 0])).tolist() == near([2.0, 1.0, 0.0], terms=3)


@pytest.mark.parametrize("planner", PLANNERS)
def test_a_state_to_rest_in_may_lack_its_first_action(planner: str) -> None:
    """State 0 can stay, unpaid, but only by action 1; the way into it costs 2."""
    transitions = np.zeros((2, 2, 2))
    transitions[0, :, 0] = transitions[1, :, 0] = 1.0
    model = TabularMDP.from_arrays(transitions, [[-np.inf, 0.0], [-2.0, -3.0]])
    agent: Any = agent_class(planner).solve(model, gamma=1.0)  # type: ignore[attr-defined]
    assert agent.values().tolist() == within([0.0, -2.0])
    assert agent.greedy_policy().tolist() == [1, 0]


def test_what_only_a_forbidden_action_leads_to_is_not_reachable() -> None:
    transitions = np.zeros((3, 2, 3))
    transitions[0, 0, 0] = transitions[0, 1, 1] = transitions[1, :, 2] = transitions[2, :, 2] = 1.0
    model = TabularMDP.from_arrays(transitions, np.zeros((3, 2)), initial=[1.0, 0.0, 0.0])
    allowed = np.array([[True, False], [True, True], [True, True]])
    assert model.reachable().tolist() == [True, True, True]
    assert model.with_actions(allowed).reachable().tolist() == [True, False, False]


def test_acting_at_random_is_acting_at_random_among_what_can_be_done() -> None:
    model = growth()
    policy = PolicyEvaluation.solve(model, gamma=BETA, method="linear").policy(model)
    assert policy[0].tolist() == [1, 0, 0, 0, 0, 0] and policy[2].tolist() == near(
        [1 / 3] * 3 + [0.0] * 3, terms=1
    )
    values = PolicyEvaluation.solve(model, gamma=BETA).values()
    assert np.isfinite(values).all() and values.tolist() == within(
        model.policy_values(model.uniform_policy, BETA).tolist()
    )
    epsilon = PolicyEvaluation.solve(model, gamma=BETA, policy="epsilon-greedy", epsilon=0.5)
    assert (
        np.isfinite(epsilon.values()).all()
        and (epsilon.policy(model)[np.isneginf(model.rewards)] == 0).all()
    )


def test_a_policy_that_takes_an_impossible_action_is_one_sentence() -> None:
    model = growth()
    for policy in (np.full(16, 3), np.full((16, 6), 1 / 6)):
        with pytest.raises(
            ValueError,
            match=(
                r"policy takes an action in state 0 that cannot be taken there \(its reward is"
                r" -inf\)"
            ),
        ):
            model.policy_values(policy, BETA)


def test_what_is_wrong_with_rewards_is_one_sentence() -> None:
    stay = np.ones((2, 2, 1)) @ np.array([[0.5, 0.5]])
    with pytest.raises(
        ValueError,
        match="each state must have a possible action, but all actions of state 1 have reward -inf",
    ):
        TabularMDP.from_arrays(stay, [[1.0, 0.0], [-np.inf, -np.inf]])
    for wrong in (np.inf, np.nan):
        with pytest.raises(
            ValueError,
            match=(
                r"rewards must be finite, or -inf for an action that cannot be taken, but state 1,"
                r" action 0"
            ),
        ):
            TabularMDP.from_arrays(stay, [[1.0, 0.0], [wrong, -np.inf]])


def test_the_row_of_an_impossible_action_is_ignored() -> None:
    rows = np.array([[[0.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [7.0, -3.0]]])
    model = TabularMDP.from_arrays(rows, [[-np.inf, 1.0], [2.0, -np.inf]])
    assert model.feasible is not None and model.feasible.tolist() == [[False, True], [True, False]]
    assert model.policy_values(np.array([1, 0]), 0.5).tolist() == near([8 / 3, 10 / 3], terms=2)
    assert (
        not model.can_end
        and TabularMDP.from_arrays(rows[:, :1] * 0 + 0.5, [[1.0], [2.0]]).feasible is None
    )


def test_an_environment_of_such_a_model_says_what_can_be_done() -> None:
    model = growth()
    env = TabularEnv(model)
    for seed in range(20):
        state, info = env.reset(seed=seed)
        assert info["action_mask"].tolist() == [action <= state for action in range(6)]
        state, reward, *_, info = env.step(min(state, 5))
        assert np.isfinite(reward) and info["action_mask"].tolist() == [
            action <= state for action in range(6)
        ]
    many = TabularVectorEnv(8, model=model)
    states, info = many.reset(seed=0)
    np.testing.assert_array_equal(info["action_mask"], np.arange(6) <= states[:, None])
    states, *_, info = many.step(np.minimum(states, 5))
    np.testing.assert_array_equal(info["action_mask"], np.arange(6) <= states[:, None])
    assert (
        "action_mask"
        not in TabularEnv(TabularMDP.from_arrays(np.full((2, 1, 2), 0.5), [[1.0], [2.0]])).reset(
            seed=0
        )[1]
    )


def test_an_observation_of_several_states_has_no_mask_of_its_own() -> None:
    """`action_mask(observation)` would be that of the state which has this number."""
    model = growth()
    assert hasattr(TabularEnv(model), "action_mask")
    assert not hasattr(TabularEnv(model, np.zeros(model.num_states, np.int64)), "action_mask")


def savings() -> TabularMDP:
    """Deterministic: of a stock s a part a ≤ s is kept, s - a is eaten and pays √(s - a), and the
    next stock is a + 1, or 0 after a = 5."""
    stock, kept = np.arange(6)[:, None], np.arange(6)
    transitions = np.eye(6)[(kept + 1) % 6][None].repeat(6, axis=0)
    return TabularMDP.from_arrays(
        transitions, np.where(kept <= stock, np.sqrt(np.maximum(stock - kept, 0)), -np.inf)
    )


@pytest.mark.thorough
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("algorithm", ["q_learning", "dyna_q"])
def test_what_is_learned_from_a_model_keeps_to_what_can_be_done(
    algorithm: str, plain: bool
) -> None:
    """With α = 1 each visit of a pair makes the error of its value γ times the largest of the
    others at most."""
    model = savings()
    with use_plain_forms(plain):
        run = rlbook.train(
            algorithm, model, steps=4_000, eval_every=0, alpha=1.0, epsilon=1.0, gamma=0.5
        )
    expected = exact(model, 0.5)
    learned = run.agent.action_values()  # type: ignore[attr-defined]
    np.testing.assert_array_equal(np.isneginf(learned), kept_too_much := np.isneginf(expected))
    assert learned[~kept_too_much].tolist() == near(expected[~kept_too_much].tolist(), terms=4)
    assert run.agent.greedy_policy().tolist() == expected.argmax(axis=1).tolist()  # type: ignore[attr-defined]
    assert np.isfinite(run.episode_returns).all() and np.isfinite(
        rlbook.evaluate(run, episodes=3).mean
    )


def test_an_action_that_cannot_be_taken_is_refused_in_one_sentence() -> None:
    model = growth()
    env, many = TabularEnv(model), TabularVectorEnv(4, model=model)
    env.reset(seed=0)
    many.reset(seed=0)
    env._state, many._state[:] = 2, [5, 5, 1, 5]
    with pytest.raises(
        ValueError,
        match=r'^action 3 cannot be taken in state 2; info\["action_mask"\] says which can$',
    ):
        env.step(3)
    with pytest.raises(
        ValueError,
        match=r'^action 3 cannot be taken in state 1; info\["action_mask"\] says which can$',
    ):
        many.step(np.full(4, 3))

    class Careless(Bandit):
        """Its act knows of no masks."""

        def act(self, observation: Any, *, explore: bool = True) -> int:  # type: ignore[override]
            return 3

    with pytest.raises(rlbook.TrainingError, match=r"action 3 cannot be taken in state \d"):
        rlbook.train(Careless, model, steps=500, eval_every=0)
