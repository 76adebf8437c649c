"""Dyna-Q and Dyna-Q+: what planning does to a table by hand, what it draws, and that without it
they are Q-learning."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from closeness import assert_near, near

import rlbook
from rlbook.agent import Step
from rlbook.algorithms.model_based.dyna_q import UNTRIED, DynaQ, DynaQConfig
from rlbook.algorithms.model_based.dyna_q_plus import DynaQPlus, DynaQPlusConfig
from rlbook.functional.schedules import Constant


class Spaces:
    """As much of an environment as a tabular agent looks at."""

    def __init__(self, num_states: int, num_actions: int) -> None:
        self.observation_space = gymnasium.spaces.Discrete(num_states)
        self.action_space = gymnasium.spaces.Discrete(num_actions)


def dyna_q(num_states: int, num_actions: int, **config: Any) -> DynaQ:
    env: Any = Spaces(num_states, num_actions)
    return DynaQ(env, DynaQConfig(**{"alpha": Constant(0.5), "gamma": 0.9} | config))


def dyna_q_plus(num_states: int, num_actions: int, **config: Any) -> DynaQPlus:
    env: Any = Spaces(num_states, num_actions)
    return DynaQPlus(env, DynaQPlusConfig(**{"alpha": Constant(0.5), "gamma": 0.9} | config))


class Script:
    """A generator that answers with these numbers, and then with nothing."""

    def __init__(self, *numbers: float) -> None:
        self.numbers = list(numbers)

    def random(self) -> float:
        return self.numbers.pop(0)


def test_planning_repeats_what_was_seen_by_the_numbers_drawn() -> None:
    """α = .5, γ = .9. The first step: Q(0,1) = .5 (1 - 0) = .5; its one planned update repeats it:
    .5 + .5 (1 - .5) = .75.

    The second: Q(1,0) = .5 · 2 = 1, an end. Planned with u = .4 of the states 0, 1: state 0, its
    one action 1, whose successor is 1: Q(0,1) = .75 + .5 (1 + .9 · 1 - .75) = 1.325.
    """
    agent = dyna_q(3, 2, planning_steps=1)
    agent.rng = Script(0.9, 0.9, 0.4, 0.9)  # type: ignore[assignment]
    agent.learn(Step(0, 1, 1.0, 1, False, False))
    assert agent.q.tolist() == [[0.0, 0.75], [0.0, 0.0], [0.0, 0.0]]
    metrics = agent.learn(Step(1, 0, 2.0, 2, True, False))
    assert_near(agent.q, [[0.0, 1.325], [1.0, 0.0], [0.0, 0.0]], terms=4)
    assert metrics["td_error"] == 2.0 and metrics["known_pairs"] == 2.0
    assert not agent.rng.numbers, "two numbers for each planned update"  # type: ignore[attr-defined]


def test_dyna_q_plus_counts_the_pairs_that_it_knows_and_not_their_states() -> None:
    agent = dyna_q_plus(3, 2, planning_steps=0)
    known = [
        agent.learn(Step(0, action, 1.0, 1, False, False))["known_pairs"] for action in (0, 1, 1)
    ]
    assert known == [1.0, 2.0, 2.0]


def test_planning_never_bootstraps_from_beyond_an_end_and_does_beyond_a_time_limit() -> None:
    """Row 2 is 7 on purpose. Planned often, the end is worth 1, the time limit 1 + .9 · 7.

    An update halves the distance (α = .5). Of the last 100 each pair gets half, and 25 with a
    probability of 1 - 3e-7.
    """
    agent = dyna_q(3, 1, planning_steps=100)
    agent.q[2] = 7.0
    agent.learn(Step(0, 0, 1.0, 2, True, False))
    agent.learn(Step(1, 0, 1.0, 2, False, True))
    assert agent.q[:, 0].tolist() == pytest.approx(
        [1.0, 1.0 + 0.9 * 7.0, 7.0], rel=0, abs=7.3 * 0.5**25
    )


def test_the_model_is_what_a_pair_led_to_last() -> None:
    agent = dyna_q(4, 2, planning_steps=0)
    for step in (
        Step(2, 1, 1.0, 0, False, False),
        Step(3, 0, 2.0, 2, False, False),
        Step(2, 1, -4.0, 3, True, False),
    ):
        agent.learn(step)
    memory = agent.memory
    assert (memory.reward[2, 1], memory.successor[2, 1], memory.ended[2, 1]) == (-4.0, 3, True)
    assert memory.states[: memory.num_states[0]].tolist() == [2, 3], (
        "each state once, in the order of the first visit"
    )
    assert memory.num_tried.tolist() == [0, 0, 1, 1]
    assert (memory.successor == UNTRIED).sum() == 4 * 2 - 2


def test_planning_draws_states_alike_and_then_actions_alike() -> None:
    """State 0 with one action tried, state 1 with three: a fair draw is 1/2 for (0, 0) and 1/6 for
    each pair of state 1, not 1/4 each.

    With α = 1e-9 and nothing to bootstrap from, each planned update adds 1e-9 to its pair, so the
    table counts the draws.
    """
    agent = dyna_q(2, 3, planning_steps=0, alpha=1e-9, gamma=0.0)
    for state, action in ((0, 0), (1, 0), (1, 1), (1, 2)):
        agent.learn(Step(state, action, 1.0, 0, True, False))
    agent.settings = agent.settings._replace(planning_steps=12_000)
    agent.q[:] = 0.0
    agent.learn(Step(0, 0, 1.0, 0, True, False))
    counts = agent.q * 1e9
    share = np.array([[1 / 2, 0, 0], [1 / 6, 1 / 6, 1 / 6]])
    deviation = np.sqrt(12_000 * share * (1 - share))
    curved = 0.05  # what n updates add is n - n²/2 · 1e-9, in 1e-9
    assert (
        np.abs(counts - 12_000 * share) <= 4 * deviation + [[1 + curved, 0, 0], [curved] * 3]
    ).all()
    assert counts.sum() == pytest.approx(12_001, rel=0, abs=curved)


@pytest.mark.parametrize("simulate", [True, False])
@pytest.mark.parametrize("env", ["Maze-v0", "FrozenLake-v1"])
def test_without_planning_it_is_q_learning_bit_for_bit(env: str, simulate: bool) -> None:
    options: dict[str, Any] = {"episodes": 150, "eval_every": 0, "simulate": simulate, "seed": 4}
    options |= {"alpha": 0.1, "epsilon": 0.1, "gamma": 0.99}  # the presets differ
    plain: Any = rlbook.train("q_learning", env, **options)
    for algorithm in ("dyna_q", "dyna_q_plus"):
        run: Any = rlbook.train(algorithm, env, planning_steps=0, **options)
        assert run.agent.q.tobytes() == plain.agent.q.tobytes()
        assert run.episode_returns == plain.episode_returns
        assert run.agent.state_dict()["rng"] == plain.agent.state_dict()["rng"]


def test_the_bonus_is_kappa_root_tau_and_an_untried_action_stays_for_nothing() -> None:
    """One state met, A = 2, κ = .1, γ = .9, α = .5. Three real steps of action 0 without planning:
    τ(0,0) = 0, τ(0,1) = 3 (never tried).

    In the next step, at time 4, planning draws action 1: it stays and pays 0 + .1 √4 = .2. Q(0,·) =
    (x, 0) and x is what action 0 learned, so Q(0,1) = .5 (.2 + .9 x).
    """
    agent = dyna_q_plus(2, 2, planning_steps=0, kappa=0.1)
    for _ in range(3):
        agent.learn(Step(0, 0, 1.0, 1, True, False))
    agent.settings = agent.settings._replace(planning_steps=1)
    agent.rng = Script(0.5, 0.5)  # type: ignore[assignment]
    agent.learn(Step(0, 0, 1.0, 1, True, False))
    x = 1 - 0.5**4
    assert_near(agent.q, [[x, 0.5 * (0.1 * 2 + 0.9 * x)], [0.0, 0.0]], terms=5)
    assert agent.memory.last_tried.tolist() == [[4, 0], [0, 0]]


def test_the_bonus_of_a_pair_just_tried_is_zero_and_real_rewards_get_none() -> None:
    # 200 planned updates, each of which halves the distance, or 100 for each of two pairs
    agent = dyna_q_plus(2, 1, planning_steps=200, kappa=5.0)
    metrics = agent.learn(Step(0, 0, 1.0, 1, True, False))
    assert agent.q[0, 0] == near(1.0, terms=2), "τ = 0"
    assert metrics["td_error"] == 1.0
    agent.learn(Step(1, 0, 0.0, 1, True, False))
    assert agent.q[0, 0] == near(1.0 + 5.0 * 1.0, terms=2), "planned one step later: √1"


def test_planned_updates_count_as_no_visits() -> None:
    agent = dyna_q(3, 2, planning_steps=20, exploration="ucb")
    for _ in range(5):
        agent.learn(Step(0, 1, 1.0, 1, False, False))
    assert agent.memory.visits.tolist() == [[0, 5], [0, 0], [0, 0]]


@pytest.mark.parametrize("kind", [DynaQ, DynaQPlus])
def test_a_restored_agent_goes_on_exactly_as_the_saved_one(kind: Any) -> None:
    env: Any = Spaces(6, 3)
    first, second = kind(env, kind.Config(), 1), kind(env, kind.Config(), 2)
    script = np.random.default_rng(0).integers(6, size=(200, 3)).tolist()

    def live(agent: Any, part: list[list[int]]) -> list[int]:
        actions = []
        for state, reward, next_state in part:
            actions.append(agent.act(state))
            agent.learn(Step(state, actions[-1], float(reward), next_state, reward == 0, False))
        return actions

    live(first, script[:100])
    second.load_state_dict(first.state_dict())
    assert live(first, script[100:]) == live(second, script[100:])
    np.testing.assert_array_equal(first.q, second.q)


@pytest.mark.parametrize(
    ("config", "options", "complaint"),
    [
        (
            DynaQConfig,
            {"planning_steps": -1},
            "planning_steps must be an integer of at least 0, got -1",
        ),
        (DynaQConfig, {"gamma": 2.0}, r"gamma must be a number in \[0, 1\], got 2.0"),
        (DynaQPlusConfig, {"kappa": -0.1}, "kappa must be a number of at least 0, got -0.1"),
        (DynaQPlusConfig, {"alpha": "inverse(1.0)"}, "alpha cannot be inverse"),
    ],
)
def test_hyper_parameters_out_of_range_are_refused(
    config: Any, options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        config(**options)
