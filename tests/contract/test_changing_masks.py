"""Masks that do not follow from what is shown, and actions of several parts: honoured, or refused
in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from closeness import rounding_bound
from gymnasium import spaces
from masked_doors import GAMMA, OPEN, Doors, DoorsTable, exact_action_values

import rlbook
from rlbook.algorithms.planning.value_iteration import ValueIteration
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.interaction.action_masks import UNUSED
from rlbook.interaction.action_spaces import adapt_actions, joint_number
from rlbook.registry import agent_class

CONTROL = (
    "q_learning",
    "sarsa",
    "expected_sarsa",
    "double_q_learning",
    "n_step_sarsa",
    "sarsa_lambda",
    "watkins_q_lambda",
    "mc_control",
    "off_policy_mc",
    "dyna_q",
    "dyna_q_plus",
)


class OneAllowed(gymnasium.Env):
    """Allows one of three actions, another one each time; the two states say nothing of it. Another
    action raises."""

    def __init__(self, numbers: bool = False) -> None:
        self.numbers = numbers
        self.observation_space = (
            spaces.Box(-1.0, 1.0, (1,), np.float32) if numbers else spaces.Discrete(2)
        )
        self.action_space = spaces.Discrete(3)
        self.allowed = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._shown()

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if action != self.allowed:
            raise RuntimeError(f"action {action} is forbidden, {self.allowed} is allowed")
        obs, info = self._shown()
        return obs, 1.0, bool(self.np_random.random() < 0.1), False, info

    def _shown(self) -> tuple[Any, dict[str, Any]]:
        self.allowed = int(self.np_random.integers(3))
        obs = (
            self.np_random.uniform(-1.0, 1.0, 1).astype(np.float32)
            if self.numbers
            else int(self.np_random.integers(2))
        )
        return obs, {"action_mask": (np.arange(3) == self.allowed).astype(np.int8)}


@pytest.mark.parametrize("numbers", [False, True])
@pytest.mark.parametrize("name", CONTROL)
def test_a_table_says_that_the_masks_of_a_state_differ(name: str, numbers: bool) -> None:
    options = {"bins": 2} if numbers else {}
    with pytest.raises(
        rlbook.TrainingError,
        match=r"^the action mask of state \d was \[.*a table of action values needs masks",
    ):
        rlbook.train(name, OneAllowed(numbers), steps=200, eval_every=0, seed=1, **options)


@pytest.mark.parametrize("name", ["q_learning", "double_q_learning"])
def test_a_run_that_is_taken_up_again_knows_what_was_forbidden(name: str, tmp_path: Path) -> None:
    rlbook.train(name, Doors(), steps=100, eval_every=0, out=tmp_path / "run")
    agent: Any = rlbook.load(tmp_path / "run", env=Doors()).agent
    for room in range(4):
        agent.forbid(room, OPEN[room])
        with pytest.raises(rlbook.TrainingError, match=f"the action mask of state {room} was"):
            agent.forbid(room, ~OPEN[room])


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("name", ["mcts", "alphazero"])
@pytest.mark.parametrize("stochastic", ["auto", "chance", "open-loop"])
def test_searches_keep_to_masks_that_do_not_follow_from_what_is_shown(
    name: str, stochastic: str
) -> None:
    run = rlbook.train(
        name, OneAllowed(), steps=30, eval_every=0, simulations=20, stochastic=stochastic, seed=1
    )
    assert len(rlbook.evaluate(run, episodes=2).returns) == 2


PARTS = [
    spaces.MultiDiscrete([2, 3], start=[1, -1]),
    spaces.MultiBinary(3),
    spaces.MultiDiscrete([[2, 2], [3, 1]]),
    spaces.MultiBinary((2, 2)),
]


@pytest.mark.parametrize("space", PARTS, ids=str)
def test_the_number_of_a_joint_action_is_the_one_that_makes_it(space: Any) -> None:
    numbered, act = adapt_actions(space, agent_class("dqn"), 5, [])
    assert isinstance(numbered, spaces.Discrete) and act is not None
    numbers = np.arange(numbered.n)
    np.testing.assert_array_equal(joint_number(act(numbers), space), numbers)
    assert all(space.contains(act(number)) for number in numbers)


class Takes(gymnasium.Env):
    """Pays 1 for the largest action, of any space."""

    def __init__(self, action_space: spaces.Space) -> None:
        self.observation_space, self.action_space = spaces.Discrete(2), action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        return 1, float(np.sum(action)), bool(self.np_random.random() < 0.3), False, {}


@pytest.mark.parametrize("space", [*PARTS[:2], spaces.Box(-1.0, 1.0, (), np.float32)], ids=str)
@pytest.mark.parametrize("name", ["rce", "reward_model"])
def test_walks_are_learned_from_whatever_the_actions_are(name: str, space: Any) -> None:
    run = rlbook.train(name, Takes(space), steps=20, eval_every=0, walks=20, hidden_sizes=(8,))
    assert run.steps >= 20


def test_an_expert_with_joint_actions_is_followed() -> None:
    expert = rlbook.train("q_learning", Takes(PARTS[0]), steps=2_000, eval_every=0, seed=0)
    run = rlbook.train("dagger", Takes(PARTS[0]), steps=300, eval_every=0, expert=expert, seed=0)
    np.testing.assert_array_equal(
        [run.agent.act(np.eye(2, dtype=np.float32)[[state]], explore=False)[0] for state in (0, 1)],
        expert.agent.greedy_policy(),  # type: ignore[attr-defined]
    )


@pytest.mark.parametrize("unseen", ["zero", "optimistic"])
def test_certainty_equivalence_plans_with_the_allowed_actions_alone(
    unseen: str, tmp_path: Path
) -> None:
    """The closed doors are never tried, and worth neither 0 nor the largest reward: the values are
    the exact ones over the open doors."""
    settings: dict[str, Any] = {
        "gamma": GAMMA,
        "plan_every": 100,
        "unseen": unseen,
        "tolerance": 1e-9,
        "eval_every": 0,
        "seed": 1,
    }
    run = rlbook.train(
        "certainty_equivalence", Doors(), steps=2_000, out=tmp_path / "run", **settings
    )
    agent: Any = run.agent
    exact = exact_action_values()
    assert UNUSED not in run.notes
    assert np.abs(agent.values() - exact.max(axis=1))[:4].max() <= agent.config.tolerance
    assert np.isneginf(agent.action_values()[:4]).tolist() == (~OPEN[:4]).tolist()
    assert agent.greedy_policy()[:4].tolist() == exact[:4].argmax(axis=1).tolist()
    assert len(rlbook.evaluate(run, episodes=20).returns) == 20
    loaded: Any = rlbook.load(tmp_path / "run", env=Doors()).agent
    np.testing.assert_array_equal(loaded.action_values(), agent.action_values())


@pytest.mark.parametrize("method", ["epsilon-greedy", "ucb", "gradient"])
def test_a_bandit_pulls_the_allowed_arms_alone(method: str) -> None:
    run = rlbook.train("bandit", OneAllowed(), steps=100, eval_every=0, method=method)
    assert UNUSED not in run.notes
    assert len(rlbook.evaluate(run, episodes=5).returns) == 5


def test_a_planner_samples_a_model_with_the_allowed_actions_alone() -> None:
    run = rlbook.train(
        "value_iteration", Doors(), sampled_steps=2_000, gamma=GAMMA, tolerance=1e-9, eval_every=0
    )
    agent: Any = run.agent
    assert (
        np.abs(agent.values() - exact_action_values().max(axis=1))[:4].max()
        <= agent.config.tolerance
    )
    assert len(rlbook.evaluate(run, episodes=20).returns) == 20


@pytest.mark.parametrize(
    "name",
    [
        "value_iteration",
        "policy_iteration",
        "modified_policy_iteration",
        "prioritized_sweeping",
        "policy_evaluation",
    ],
)
def test_planners_plan_with_what_the_environments_own_method_allows(name: str) -> None:
    """A closed door pays best in the table."""
    agent: Any = rlbook.train(name, DoorsTable(), eval_every=0, gamma=GAMMA).agent
    # policy iteration solves 6 equations with numbers up to 9, the others stop at their tolerance
    if name != "policy_evaluation":
        bound = (
            rounding_bound("float64", terms=36, size=9.0 / (1.0 - GAMMA))
            if name == "policy_iteration"
            else agent.config.tolerance
        )
        assert np.abs(agent.values() - exact_action_values().max(axis=1))[:4].max() <= bound
    assert np.isneginf(agent.action_values()[:4]).tolist() == (~OPEN[:4]).tolist()
    assert OPEN[range(4), agent.greedy_policy()[:4]].all()


def test_the_values_of_the_taxi_do_not_depend_on_its_masks() -> None:
    """They forbid only what is never best: driving into walls, and calls for nobody."""
    planned: Any = rlbook.train("value_iteration", "Taxi-v4", eval_every=0).agent
    free = ValueIteration.solve(
        TabularMDP.from_env(rlbook.make("Taxi-v4")), gamma=planned.config.gamma
    )
    assert np.abs(planned.values() - free.values()).max() <= 2 * planned.config.tolerance
    assert np.isneginf(planned.action_values()).any() and np.isfinite(free.action_values()).all()


@pytest.mark.parametrize("name", ["value_iteration", "policy_evaluation"])
def test_a_planner_keeps_to_masks_that_it_could_not_plan_with(name: str) -> None:
    run = rlbook.train(name, OneAllowed(), sampled_steps=200, eval_every=0)
    assert len(rlbook.evaluate(run, episodes=5).returns) == 5
