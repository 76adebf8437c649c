"""Tables and networks on one axis: the distance of a policy from the best one, by hand, and what is
told of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from closeness import near, rounding_bound

import rlbook
from rlbook.agent import Agent
from rlbook.book.experiments import one_axis
from rlbook.book.experiments.one_axis import (
    LearningCurves,
    command,
    draw,
    greedy_policy,
    learning_curves,
    quartile_bands,
    settings_of,
    steps_to_optimum,
)
from rlbook.cli.train import parse_train
from rlbook.envs import TabularMDP
from rlbook.registry import model_of
from rlbook.runs.exact_evaluation import ExactEvaluation
from rlbook.runs.request import Request


def solving(model: TabularMDP) -> dict[str, float]:
    """What rounds values v with (I - γ P) v = r: that matrix has a condition of at most 199.

    It is (1 + γ) / (1 - γ) with γ = .99. No value is larger than 100.
    """
    return {"terms": model.num_states, "size": 199 * 100}


class Fixed(Agent):
    """Has made up its mind, for states that are shown one by one or as one-hot vectors."""

    batched = True

    def __init__(self, policy: list[int]) -> None:
        self.policy = np.array(policy)

    def adapt_observations(self, observations: np.ndarray) -> np.ndarray:
        return np.eye(len(self.policy))[observations]

    def act(self, observation: np.ndarray, *, explore: bool = True) -> np.ndarray:
        assert not explore
        return observation.astype(int) @ self.policy

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@pytest.mark.parametrize("env", one_axis.WORLDS)
def test_the_best_policy_has_the_distance_0(env: str) -> None:
    """In every world of the page: the planner's policy, through the same questions that a network
    is asked."""
    model = model_of(rlbook.make(env))
    planner: Any = rlbook.train("value_iteration", env).agent
    best = planner.greedy_policy()
    asked = greedy_policy(Fixed(best.tolist()), model.num_states)
    assert ExactEvaluation(model, 0.99).regret(asked) == near(0.0, **solving(model))


def test_the_distance_of_a_policy_by_hand() -> None:
    """Beside the cliff, γ = 0.99. The best way has 13 steps of -1; one row further up it has 15.

    A sum of n steps is -(1 - γⁿ) / (1 - γ), so the distance of the second from the first is (γ¹³ -
    γ¹⁵) / (1 - γ) = γ¹³ (1 + γ). Always going up never ends: its value is -100, its distance 100
    γ¹³.
    """
    model, gamma = model_of(rlbook.make("CliffWalking-v1")), 0.99
    exact = ExactEvaluation(model, gamma)
    detour = np.ones(48, dtype=int)  # right
    detour[[36, 24]] = 0  # up, twice
    detour[[23, 35]] = 2  # down, twice
    assert exact.regret(detour) == near(gamma**13 * (1 + gamma), **solving(model))
    assert exact.regret(np.zeros(48, dtype=int)) == near(100 * gamma**13, **solving(model))


def test_a_table_and_a_network_are_asked_the_same() -> None:
    """The table's own greedy policy; the network's action in each state, one state at a time."""
    table: Any = rlbook.train("q_learning", "FrozenLake-v1", steps=2_000, seed=0).agent
    assert greedy_policy(table, 16).tolist() == table.greedy_policy().tolist()
    network = rlbook.train("ppo", "FrozenLake-v1", steps=1_024, seed=0, eval_every=0).agent
    one_by_one = [
        int(network.act(network.adapt_observations(np.array([state])), explore=False)[0])
        for state in range(16)
    ]
    assert greedy_policy(network, 16).tolist() == one_by_one


def test_a_learner_comes_from_far_away_to_the_best_policy() -> None:
    curves = learning_curves("q_learning", "Maze-v0", seeds=2)
    assert (
        curves.distance.shape == (2, len(curves.steps))
        and curves.steps[-1] == one_axis.TABLE["Maze-v0"]["steps"]
    )
    maze = solving(model_of(rlbook.make("Maze-v0")))
    rounding = rounding_bound("float64", **maze)
    ten_decimals = 5e-11
    assert curves.best == pytest.approx(2.5271882698, rel=0, abs=ten_decimals + rounding)
    assert (curves.distance[:, 0] > 50).all() and curves.distance[:, -1] == near([0.0, 0.0], **maze)
    assert (curves.distance >= -rounding).all(), "no policy is better than the best one"
    assert np.isfinite(curves.first_step_within(0.01)).all()


def test_what_is_told_of_curves_by_hand() -> None:
    """V* = -10, so 1 % is 0.1. Seeds are near after 20, 30 steps and never; then two of three
    never."""
    distance = np.array([[5.0, 0.1, 7.0], [5.0, 5.0, 0.0], [5.0, 4.0, 3.0]])
    curves = LearningCurves(np.array([1_000, 2_000, 3_000]), distance, -10.0)
    assert curves.first_step_within(0.01).tolist() == [2_000, 3_000, np.inf]
    assert steps_to_optimum(curves) == "3 000 (2 000 to never)"
    assert (
        steps_to_optimum(LearningCurves(curves.steps, distance[[0, 2, 2]], -10.0))
        == "not in 3 000: 3 away in the end"
    )
    again = LearningCurves.from_lists(curves.as_lists())
    assert (
        again.steps.tolist() == curves.steps.tolist()
        and again.distance.tolist() == distance.tolist()
        and again.best == -10.0
    )


def test_a_line_is_the_median_between_two_marks() -> None:
    """Ten marks to a factor of ten: 100 and 110 lie between the same two, 1 000 alone. Nearer than
    the floor is on the floor."""
    curves = LearningCurves(
        np.array([100, 110, 1_000]), np.array([[1.0, 3.0, 0.0], [2.0, 8.0, 0.0]]), 1.0
    )
    steps, low, middle, high = quartile_bands(curves, 0.001)
    assert steps == near([np.sqrt(100 * 110), 1_000], terms=2)
    assert middle.tolist() == [2.5, 0.001] and low[0] < 2.5 < high[0]
    worlds = {env: {"q_learning": curves, "ppo": curves} for env in one_axis.WORLDS}
    assert len(draw(worlds).axes) == 4


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("env", one_axis.WORLDS)
@pytest.mark.parametrize("algorithm", one_axis.LEARNERS)
def test_the_command_is_what_is_trained(algorithm: str, env: str) -> None:
    given = parse_train(command(algorithm, env).split()[2:])
    asked = Request.build(algorithm, env, **given.options, hyperparameters=given.hyperparameters)
    steps = {
        name: value
        for name, value in settings_of(algorithm, env).items()
        if name in ("steps", "num_envs")
    }
    others = {
        name: value for name, value in settings_of(algorithm, env).items() if name not in steps
    }
    assert asked == Request.build(algorithm, env, **steps, hyperparameters=others)


def best_trembling(env: str, epsilon: float) -> np.ndarray:
    """[S]: what the best ε-greedy policy does when it does not explore; by policy iteration among
    such policies."""
    model = model_of(rlbook.make(env))
    states, actions = np.arange(model.num_states), model.num_actions
    policy = np.zeros(model.num_states, dtype=int)
    rounding = rounding_bound("float64", **solving(model))
    for _ in range(100):
        q = model.backup(
            model.policy_values(epsilon / actions + (1 - epsilon) * np.eye(actions)[policy], 0.99),
            0.99,
        )
        better = np.where(q[states, policy] > q.max(axis=1) - rounding, policy, q.argmax(axis=1))
        if (better == policy).all():
            return policy
        policy = better
    raise AssertionError("no end")


@pytest.mark.parametrize(
    ("env", "epsilon", "distance"),
    [
        ("CliffWalking-v1", 0.005, 0.0),
        ("CliffWalking-v1", 0.05, 1.7463),
        ("CliffWalking-v1", 0.2, 3.4578),
        ("FrozenLake-v1", 0.05, 0.0),
        ("FrozenLake-v1", 0.1, 0.0095),
    ],
)
def test_the_best_policy_of_one_who_goes_on_exploring_is_not_the_best_policy(
    env: str, epsilon: float, distance: float
) -> None:
    """What the page says of the on-policy learners: their distances in the end are these."""
    exact = ExactEvaluation(model_of(rlbook.make(env)), 0.99)
    regret = exact.regret(best_trembling(env, epsilon))
    assert regret == near(distance, decimals=4)
