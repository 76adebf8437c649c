"""Counting a model and planning in it: the frequencies by hand, the fixed point of batch TD, what
was never seen, and resuming."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from closeness import assert_near

import rlbook
from rlbook.agent import Step
from rlbook.algorithms.exact_metrics import EXACT_METRICS
from rlbook.algorithms.model_based.certainty_equivalence import (
    CertaintyEquivalence,
    CertaintyEquivalenceConfig,
)
from rlbook.envs import TabularMDP
from rlbook.envs.tabular.estimate import TransitionCounts

# state, action, reward, successor, terminated
STEPS = [
    (0, 0, 1.0, 1, False),
    (0, 0, 3.0, 1, False),
    (0, 0, 5.0, 0, False),
    (0, 0, 2.0, 1, True),
    (1, 1, -1.0, 0, False),
]


class Spaces:
    """As much of an environment as a tabular agent looks at."""

    def __init__(self, num_states: int, num_actions: int) -> None:
        self.observation_space = gymnasium.spaces.Discrete(num_states)
        self.action_space = gymnasium.spaces.Discrete(num_actions)


def agent_on(num_states: int, num_actions: int, **config: Any) -> CertaintyEquivalence:
    env: Any = Spaces(num_states, num_actions)
    return CertaintyEquivalence(env, CertaintyEquivalenceConfig(**config))


def counted(steps: list[Any], num_states: int, num_actions: int) -> TransitionCounts:
    counts = TransitionCounts(num_states, num_actions)
    counts.add(*zip(*steps, strict=True))
    return counts


def test_the_model_is_frequencies_and_mean_rewards() -> None:
    """(0, 0) was tried four times: once to 0, three times to 1, of which one ended; it paid (1 + 3
    + 5 + 2) / 4 = 2.75."""
    counts = counted(STEPS, 2, 2)
    model = counts.model()
    assert model.transitions.toarray()[0].tolist() == [1 / 4, 3 / 4]
    assert model.continues_by_state.toarray()[0].tolist() == [1 / 4, 2 / 4]
    assert model.rewards.tolist() == [[2.75, 0.0], [0.0, -1.0]]
    assert model.ends.tolist() == [
        [1 / 4, 1.0],
        [1.0, 0.0],
    ], "a pair that was never tried ends, and is worth 0"
    assert counts.known_pairs.tolist() == [0, 3] and counts.seen_states.tolist() == [0, 1]
    assert counts.model(unseen_value=7.0).rewards.tolist() == [[2.75, 7.0], [7.0, -1.0]]


def test_counting_in_parts_gives_what_counting_at_once_gives_bit_for_bit() -> None:
    rng = np.random.default_rng(0)
    columns = (
        rng.integers(7, size=500),
        rng.integers(3, size=500),
        rng.normal(size=500),
        rng.integers(7, size=500),
        rng.random(500) < 0.1,
    )
    whole, parts = TransitionCounts(7, 3), TransitionCounts(7, 3)
    whole.add(*columns)
    for first in range(0, 500, 37):
        parts.add(*(column[first : first + 37] for column in columns))
    for name, table in whole.snapshot().items():
        assert np.asarray(table).tobytes() == np.asarray(parts.snapshot()[name]).tobytes(), name


def test_a_model_of_the_states_seen_has_the_values_of_the_model_of_all_states() -> None:
    rng = np.random.default_rng(1)
    states, successors = rng.choice([2, 3, 5, 9, 11], size=(2, 200))
    counts = TransitionCounts(30, 2)
    counts.add(
        states, rng.integers(2, size=200), rng.normal(size=200), successors, rng.random(200) < 0.1
    )
    seen = counts.seen_states
    assert seen.tolist() == [2, 3, 5, 9, 11]
    small, large = np.zeros(5), np.zeros(30)
    for _ in range(300):
        small = counts.model(1.0, seen).backup(small, 0.9).max(axis=1)
        large = counts.model(1.0).backup(large, 0.9).max(axis=1)
    # a sweep's rounding is carried on for 1 / (1 - γ) = 10 sweeps
    assert_near(small, large[seen], terms=5, size=10 * float(np.abs(large).max()))
    assert (large[np.setdiff1d(np.arange(30), seen)] == 1.0).all()


def test_the_values_of_the_estimated_model_are_the_fixed_point_of_batch_td() -> None:
    """Sutton & Barto, section 6.3. Episodes of the five-state walk, V of the model by a linear
    solve against TD(0) replayed for long.

    Batch TD: α times the sum of all δ over the data, again and again. With α = 0.01 and about 150
    steps it contracts, here by .965 a sweep: nothing is left of the start after 3 000, and a
    sweep's rounding is carried on for 1 / .035 = 29. γ = 1. Which way the walk goes is chance, so
    there is one action.
    """
    env, rng = rlbook.make("RandomWalk-v0"), np.random.default_rng(0)
    num_states, gamma = int(env.observation_space.n), 1.0  # type: ignore[attr-defined]
    steps: list[Any] = []
    for seed in range(15):
        state, over = env.reset(seed=seed)[0], False
        while not over:
            successor, reward, terminated, truncated, _ = env.step(int(rng.integers(2)))
            steps.append((state, 0, float(reward), successor, terminated))
            state, over = successor, terminated or truncated
    model = counted(steps, num_states, 1).model()
    expected = model.policy_values(np.zeros(num_states, dtype=np.int64), gamma)
    states, _, rewards, successors, ended = (
        np.array(column) for column in zip(*steps, strict=True)
    )
    values = np.zeros(num_states)
    for _ in range(3_000):
        delta = rewards + gamma * np.where(ended, 0.0, values[successors]) - values[states]
        values += 0.01 * np.bincount(states, weights=delta, minlength=num_states)
    assert_near(values, expected, terms=len(steps), size=29.0)
    assert 0.05 < expected[np.unique(states)].min() < expected.max() < 1, "it is not trivial"


@pytest.mark.thorough
def test_with_enough_steps_the_estimate_is_the_true_model() -> None:
    """50 000 uniform steps on the frozen lake: a frequency of 1/3 counted from N tries has standard
    error √(2/9 / N)."""
    run = rlbook.train(
        "certainty_equivalence",
        "FrozenLake-v1",
        steps=50_000,
        plan_every=50_000,
        epsilon=1.0,
        eval_every=0,
    )
    agent: Any = run.agent
    truth = TabularMDP.from_env(rlbook.make("FrozenLake-v1"))
    known = agent.counts.known_pairs
    counts = np.bincount(agent.counts.keys // 32, weights=agent.counts.counts)[known]
    error = np.abs((agent.model().transitions - truth.transitions).toarray())[known].max(axis=1)
    assert len(known) == 11 * 4 and counts.min() > 50
    assert (error < 5 * np.sqrt((1 / 3) * (2 / 3) / counts)).all()
    assert agent.counts.starts.tolist() == [
        *[len(run.episode_returns) + 1],
        *[0] * 15,
    ], "the last episode has begun too"


def test_a_time_limit_is_no_end_of_the_model() -> None:
    """One state, r = 1, truncated every 10 steps: 1 / (1 - .9) = 10. Counting the limit as an end
    gives less."""
    agent = agent_on(1, 1, gamma=0.9, plan_every=50, tolerance=1e-9)
    for time in range(50):
        if time % 10 == 0:
            agent.begin()
        agent.learn(Step(0, 0, 1.0, 0, False, time % 10 == 9))
    assert agent.values()[0] == pytest.approx(10.0, rel=0, abs=1e-9)  # the tolerance
    assert agent.counts.starts.tolist() == [5]


def test_what_was_never_tried_is_worth_nothing_or_everything() -> None:
    """State 0 with two actions; the first pays 1 and stays. γ = .5: V = 2 forever. Optimistic: the
    other is 1 / (1 - .5) = 2 as well, a tie; with a reward of 3 seen elsewhere it is 6, and the
    plan goes there."""
    steps = [Step(0, 0, 1.0, 0, False, False), Step(1, 0, 3.0, 0, True, False)]
    zero, optimistic = (
        agent_on(3, 2, gamma=0.5, plan_every=2, unseen=unseen, tolerance=1e-9)
        for unseen in ("zero", "optimistic")
    )
    for step in steps:
        zero.learn(step)
        optimistic.learn(step)
    np.testing.assert_allclose(zero.values(), [2.0, 3.0, 0.0], rtol=0, atol=1e-9)  # the tolerance
    np.testing.assert_allclose(optimistic.values(), [6.0, 6.0, 6.0], rtol=0, atol=1e-9)
    assert (zero.act(0, explore=False), optimistic.act(0, explore=False)) == (0, 1)
    expected = [[1 + 0.5 * 6, 6], [3, 6], [6, 6]]
    # the tolerance
    np.testing.assert_allclose(optimistic.action_values(), expected, rtol=0, atol=1e-9)


def test_it_plans_every_so_many_steps_and_epsilon_is_the_probability_of_a_random_action() -> None:
    agent = agent_on(1, 4, plan_every=3, epsilon=0.4)
    told = [set(agent.learn(Step(0, 2, 1.0, 0, False, False))) for _ in range(4)]
    assert [("sweeps" in names) for names in told] == [False, False, True, True]
    assert told[-1] == set(CertaintyEquivalence.METRICS) - set(EXACT_METRICS)
    share = np.bincount([agent.act(0) for _ in range(20_000)], minlength=4) / 20_000
    expected = np.array([0.1, 0.1, 0.7, 0.1])
    standard_error = np.sqrt(expected * (1 - expected) / 20_000)
    assert (np.abs(share - expected) < 4 * standard_error).all()


def test_a_restored_agent_goes_on_exactly_as_the_saved_one() -> None:
    first, second = agent_on(6, 3, plan_every=40), agent_on(6, 3, plan_every=40)
    script = np.random.default_rng(0).integers(6, size=(300, 3)).tolist()

    def live(agent: CertaintyEquivalence, part: list[list[int]]) -> list[int]:
        actions = []
        for state, reward, successor in part:
            actions.append(agent.act(state))
            agent.learn(Step(state, actions[-1], reward / 7, successor, reward == 0, False))
            if reward == 0:
                agent.begin()
        return actions

    live(first, script[:150])
    second.load_state_dict(first.state_dict())
    assert live(first, script[150:]) == live(second, script[150:])
    assert first.values().tobytes() == second.values().tobytes()
    assert first.counts.starts.tolist() == second.counts.starts.tolist()


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        (
            {"gamma": 1.0, "unseen": "optimistic"},
            "gamma must be below 1 where unseen is 'optimistic'",
        ),
        ({"unseen": "best"}, "unseen must be one of 'zero', 'optimistic', got 'best'"),
        ({"plan_every": 0}, "plan_every must be an integer of at least 1, got 0"),
        ({"epsilon": 1.5}, r"epsilon must be a number in \[0, 1\] at all times, got 1.5"),
        ({"tolerance": 0.0}, "tolerance must be a number above 0, got 0.0"),
    ],
)
def test_hyper_parameters_out_of_range_are_refused(config: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        CertaintyEquivalenceConfig(**config)


def test_without_discount_a_counted_model_without_finite_values_is_told() -> None:
    """From state 0 both actions were seen to pay 1 and stay."""
    agent = agent_on(2, 2, gamma=1.0, plan_every=2)
    agent.learn(Step(0, 0, 1.0, 0, False, False))
    with pytest.raises(
        rlbook.TrainingError,
        match=(
            "certainty_equivalence cannot plan in the model counted so far: with gamma 1 no policy"
        ),
    ):
        agent.learn(Step(0, 1, 1.0, 0, False, False))


def test_a_plan_that_was_cut_short_is_said_in_the_log() -> None:
    options = {"steps": 400, "eval_every": 0}
    runs = [
        rlbook.train("certainty_equivalence", "FrozenLake-v1", max_sweeps=limit, **options)
        for limit in (1, 10_000)
    ]
    assert [run.metrics[-1]["converged"] for run in runs] == [0.0, 1.0]
