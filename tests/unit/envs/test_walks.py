"""The random walk and the two states of maximization bias: what their docstrings state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from closeness import assert_near, near

import rlbook
from rlbook.envs import TabularMDP
from rlbook.envs.maximization_bias import MaximizationBias, MaximizationBiasVector
from rlbook.envs.random_walk import RandomWalk, RandomWalkVector

LEFT, RIGHT = range(2)


def walk_values(model: TabularMDP) -> np.ndarray:
    """V of uniformly random actions for γ = 1, by a dense solve over the states between the
    ends."""
    num_states = model.num_states
    chain = model.transitions.toarray().reshape(num_states, 2, num_states).mean(axis=1)
    inner = slice(1, num_states - 1)
    values = np.zeros(num_states)
    values[inner] = np.linalg.solve(
        np.eye(num_states - 2) - chain[inner, inner], model.rewards.mean(axis=1)[inner]
    )
    return values


@pytest.mark.parametrize(
    ("length", "left", "right"), [(5, 0.0, 1.0), (19, -1.0, 1.0), (1, 0.0, 1.0), (40, 2.0, -3.0)]
)
def test_the_values_of_a_walk_lie_on_a_line(length: int, left: float, right: float) -> None:
    """The gambler's ruin: the right end is reached first with probability s / (length + 1)."""
    values = walk_values(RandomWalk(length, left_reward=left, right_reward=right).model())
    # twice the steps of a walk from the middle
    state, condition = (
        np.arange(1, length + 1),
        2 * (length + 1) ** 2 / 4,
    )
    line = left + (right - left) * state / (length + 1)
    assert_near(values[1:-1], line, terms=length, size=condition * max(abs(left), abs(right)))


def test_the_walk_of_a_thousand_states_has_the_stated_values() -> None:
    model, doc = (
        RandomWalk(length=1000, step=100, left_reward=-1).model(),
        " ".join((RandomWalk.__doc__ or "").split()),
    )
    values = walk_values(model)
    uniform = np.full((1002, 2), 0.5)
    condition = 2 * float(model.expected_steps(uniform).max())
    assert_near(values[1:-1], -values[-2:0:-1], terms=1000, size=condition)
    for state in (1, 250, 500, 1000):
        assert f"V({state}) = {values[state]:.6f}" in doc
    assert_near(model.policy_values(uniform, 1.0), values, terms=1000, size=condition)


@pytest.mark.parametrize(("length", "step"), [(5, 1), (7, 3), (4, 9)])
def test_what_would_lead_beyond_an_end_leads_to_the_end(length: int, step: int) -> None:
    model = RandomWalk(length, step, left_reward=-2, right_reward=3).model()
    for state in range(1, length + 1):
        for action, sign in ((LEFT, -1), (RIGHT, 1)):
            expected = np.zeros(length + 2)
            for distance in range(1, step + 1):
                expected[min(max(state + sign * distance, 0), length + 1)] += 1 / step
            assert_near(model.transitions[[state * 2 + action]].toarray()[0], expected, terms=step)
            assert model.rewards[state, action] == near(
                -2 * expected[0] + 3 * expected[-1], terms=step, size=3.0
            )
            assert model.ends[state, action] == near(expected[0] + expected[-1], terms=step)


@pytest.mark.parametrize(("length", "middle"), [(5, 3), (19, 10), (1000, 500), (1, 1)])
def test_a_walk_begins_in_the_middle(length: int, middle: int) -> None:
    assert RandomWalk(length).reset(seed=0)[0] == middle


def test_the_whole_walk_to_the_right_pays_once() -> None:
    env = RandomWalk()
    env.reset(seed=0)
    assert [env.step(RIGHT)[:3] for _ in range(3)] == [
        (4, 0.0, False),
        (5, 0.0, False),
        (6, 1.0, True),
    ]


@pytest.mark.parametrize(
    ("left", "right", "best"), [(0.0, 1.0, 1.0), (2.0, -1.0, 2.0), (-2.0, -1.0, 0.0)]
)
def test_the_best_walk_leads_to_the_larger_reward_or_goes_on_for_ever(
    left: float, right: float, best: float
) -> None:
    model, values = RandomWalk(5, left_reward=left, right_reward=right).model(), np.zeros(7)
    for _ in range(10):
        values = model.backup(values, 1.0).max(axis=1)
    assert values[1:-1].tolist() == [best] * 5


def test_states_of_a_group_look_alike_and_the_ends_do_not() -> None:
    env = RandomWalk(7, group=3)
    assert env.views is not None and env.views.tolist() == [0, 1, 1, 1, 2, 2, 2, 3, 4]
    assert env.observation_space.n == 5
    assert env.reset(seed=0)[0] == 2
    assert [env.step(RIGHT)[0] for _ in range(4)] == [2, 2, 3, 4]
    many = RandomWalkVector(2, length=7, group=3)
    many.reset(seed=0)
    assert [many.step(np.array([LEFT, RIGHT]))[0].tolist() for _ in range(4)] == [
        [1, 2],
        [1, 2],
        [1, 3],
        [0, 4],
    ]
    assert RandomWalk(1000, step=100, group=100).observation_space.n == 12


def test_planning_where_states_look_alike_is_refused() -> None:
    assert not RandomWalk(7, group=3).model().observable
    with pytest.raises(rlbook.RequestError, match="the observation does not identify the state"):
        rlbook.train(
            "value_iteration", "RandomWalk-v0", env_kwargs={"length": 7, "group": 3}, gamma=0.9
        )


def test_long_walks_are_drawn_in_several_lines() -> None:
    assert RandomWalk().draw_text(3) == "T..A..T"
    lines = RandomWalk(100).draw_text(41).splitlines()
    assert [len(line) for line in lines] == [40, 40, 22]
    assert lines[1] == ".A" + "." * 38
    image = RandomWalk(100).draw_pixels(41)
    assert image.shape[1] * 3 == image.shape[0] * 40


def test_left_is_worse_than_right_however_it_looks() -> None:
    model, doc = MaximizationBias().model(), MaximizationBias.__doc__ or ""
    best = np.zeros(3)
    for _ in range(3):
        best = model.backup(best, 1.0).max(axis=1)
    assert best.tolist() == [0.0, -0.1, 0.0]
    assert "V*(A) = 0 and V*(B) = -0.1" in doc
    assert model.policy_values(np.full((3, 10), 0.1), 1.0)[0] == near(-0.05, terms=10)
    epsilon, chosen = 0.1, model.backup(best, 1.0)[0] == 0
    share = epsilon * (~chosen).mean()
    assert share == near(0.05, terms=10)
    assert "5 % of its" in doc


def test_rewards_in_b_are_noisy_and_those_of_a_are_not() -> None:
    """10 000 draws of N(-.1, 1): the mean's standard error is .01, that of the standard deviation
    .01/√2."""
    env = MaximizationBiasVector(10_000, actions=4)
    env.reset(seed=0)
    observations, rewards, terminated, _, _ = env.step(np.arange(10_000) % 4)
    assert (observations == np.where(np.arange(10_000) % 4 < 2, 1, 2)).all()
    assert not rewards.any()
    assert (terminated == (observations == 2)).all()
    env.restore(
        env.snapshot()
        | {"state": np.ones(10_000, dtype=int), "terminated": np.zeros(10_000, dtype=bool)}
    )
    observations, rewards, terminated, _, _ = env.step(np.arange(10_000) % 4)
    assert abs(rewards.mean() + 0.1) < 4 * 0.01
    assert abs(rewards.std() - 1) < 4 * 0.01
    assert terminated.all()


def test_the_three_states_are_drawn_in_a_row() -> None:
    assert [MaximizationBias().draw_text(state) for state in range(3)] == [
        " B [A] T ",
        "[B] A  T ",
        " B  A [T]",
    ]
    image = MaximizationBias().draw_pixels(0)
    assert image.shape[1] == 3 * image.shape[0]


@pytest.mark.parametrize(
    ("form", "options", "complaint"),
    [
        (RandomWalk, {"length": 0}, "length must be an integer of at least 1, got 0."),
        (RandomWalkVector, {"step": 1.5}, "step must be an integer of at least 1, got 1.5."),
        (RandomWalk, {"group": True}, "group must be an integer of at least 1, got True."),
        (
            RandomWalk,
            {"left_reward": float("nan")},
            "left_reward must be a finite number, got nan.",
        ),
        (RandomWalk, {"right_reward": "much"}, "right_reward must be a finite number, got 'much'."),
        (MaximizationBias, {"actions": 5}, "actions must be an even integer of at least 2, got 5."),
        (
            MaximizationBiasVector,
            {"actions": 0},
            "actions must be an even integer of at least 2, got 0.",
        ),
    ],
)
def test_a_bad_option_is_answered_in_one_sentence(
    form: Any, options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValueError) as error:
        form(**options)
    assert str(error.value) == complaint
