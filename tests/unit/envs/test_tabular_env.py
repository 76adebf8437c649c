"""Environments that are their tables: drawn as gymnasium draws, alone and side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import gymnasium
import numpy as np
import pytest
from closeness import near
from scipy import sparse

import rlbook
from rlbook.envs import Maze, TabularEnv, TabularMDP, TabularVectorEnv
from rlbook.envs.tabular.mdp_arrays import from_entries
from rlbook.envs.tabular.outcome_lists import OutcomeLists, OutcomeRows
from rlbook.envs.tabular.outcomes import Entries, standard_normal
from rlbook.evaluation.optimal_return import optimal_return
from rlbook.interaction.environments import EnvRecipe

TOY_TEXT: list[tuple[str, dict[str, Any]]] = [
    ("FrozenLake-v1", {"map_name": "8x8"}),
    ("FrozenLake-v1", {"is_slippery": False}),
    ("CliffWalking-v1", {}),
    ("CliffWalkingSlippery-v1", {}),
    ("Taxi-v4", {}),
    ("Taxi-v4", {"is_rainy": True}),
]


def walk(env: Any, actions: np.ndarray, seed: int) -> list[Any]:
    """Everything that is shown: observation, reward, terminated; a finished episode is followed by
    the next."""
    shown: list[Any] = [env.reset(seed=seed)[0]]
    for action in actions:
        shown.append(env.step(action)[:3])
        if shown[-1][2]:
            shown.append(env.reset()[0])
    return shown


@pytest.mark.parametrize(("env_id", "options"), TOY_TEXT)
def test_a_table_of_gymnasium_gives_the_same_episodes_bit_for_bit(
    env_id: str, options: dict[str, Any]
) -> None:
    theirs = gymnasium.make(env_id, **options).unwrapped
    ours = TabularEnv(TabularMDP.from_env(theirs))
    actions = np.random.default_rng(0).integers(ours.action_space.n, size=4000)
    for seed in range(3):
        assert walk(ours, actions, seed) == walk(theirs, actions, seed)


@pytest.mark.parametrize("slip", [0.3, 1.0])
def test_the_model_of_a_slippery_maze_gives_the_same_episodes_bit_for_bit(slip: float) -> None:
    """A reset of the table draws where to begin, which the maze has no need of: it is seeded where
    the table's generator then stands."""
    theirs = Maze(slip=slip)
    ours = TabularEnv(theirs.model())
    actions = np.random.default_rng(1).integers(4, size=500)
    ours.reset(seed=5)
    theirs.reset(seed=5)
    theirs.np_random.random()
    for action in actions:
        one, other = ours.step(action)[:3], theirs.step(action)[:3]
        assert one == other
        if one[2]:
            ours.reset()
            theirs.reset()
            theirs.np_random.random()


def test_without_slip_an_action_of_the_maze_has_one_outcome() -> None:
    outcomes = Maze().model().outcomes
    assert np.diff(outcomes.first).tolist() == [1] * 25 * 4
    assert np.diff(Maze(slip=0.5).model().outcomes.first).tolist() == [3] * 25 * 4
    assert outcomes.reward[outcomes.first[0 * 4 + 0]] == -5.0, "up from the corner is a bump"


def test_a_taxi_whose_passenger_changes_their_mind_is_more_than_its_table() -> None:
    with pytest.raises(
        ValueError,
        match=(
            "Taxi-v4 with fickle_passenger has no model to plan with: the passenger's change of"
            " mind"
        ),
    ):
        TabularMDP.from_env(gymnasium.make("Taxi-v4", fickle_passenger=True))


class Always:
    """A generator that draws one number only."""

    def __init__(self, number: float) -> None:
        self.random = lambda: number


def test_entries_stay_apart_and_in_their_order() -> None:
    """State 0: .25 to itself paying 1, .5 to state 1 ending with 2, nothing with probability 0, .25
    to itself paying 3."""
    entries = [
        (1, 0, 1, 1.0, 0.0, True),
        (0, 0, 0, 0.25, 1.0, False),
        (0, 0, 1, 0.5, 2.0, True),
        (0, 0, 1, 0.0, 9.0, False),
        (0, 0, 0, 0.25, 3.0, False),
    ]
    model = from_entries(entries, 2, 1, initial=[0.75, 0.25])
    outcomes = model.outcomes
    assert outcomes.first.tolist() == [0, 3, 4]
    assert outcomes.cumulative.tolist() == [0.25, 0.75, 1.0, 1.0]
    assert outcomes.successor.tolist() == [0, 1, 0, 1]
    assert outcomes.reward.tolist() == [1.0, 2.0, 3.0, 0.0]
    assert outcomes.ends.tolist() == [False, True, False, True]
    assert (outcomes.start_cumulative.tolist(), outcomes.start_state.tolist()) == (
        [0.75, 1.0],
        [0, 1],
    )
    assert model.rewards[0, 0] == 0.25 * 1 + 0.5 * 2 + 0.25 * 3
    rows, numbers = np.array([0, 0, 0, 0, 1]), np.array([0.0, 0.25, 0.7499, 0.75, 0.999])
    assert outcomes.pick(rows, numbers).tolist() == [0, 1, 1, 2, 3]
    for number, successor in ((0.0, 0), (0.25, 1), (0.7499, 1), (0.75, 0)):
        assert OutcomeLists(outcomes).step(cast(Any, Always(number)), 0, 0)[0] == successor, (
            "a bound belongs to what comes after it"
        )
    columns = Entries(*(np.array(column) for column in zip(*entries, strict=True)))
    for ours, theirs in zip(
        from_entries(columns, 2, 1, initial=[0.75, 0.25]).outcomes, outcomes, strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_arrays_pay_their_expected_reward_and_terminal_states_stay() -> None:
    transitions = np.array(
        [[0.5, 0.25, 0.25], [0, 0, 1], [1, 0, 0], [1, 0, 0], [1, 0, 0], [1, 0, 0]]
    )
    rewards = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    outcomes = TabularMDP.from_arrays(
        transitions, rewards, terminal=np.array([False, False, True])
    ).outcomes
    assert outcomes.first.tolist() == [0, 3, 4, 5, 6, 7, 8]
    assert outcomes.successor.tolist() == [0, 1, 2, 2, 0, 0, 2, 2]
    assert outcomes.cumulative.tolist() == [0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert outcomes.reward.tolist() == [1, 1, 1, 2, 3, 4, 0, 0]
    assert outcomes.ends.tolist() == [False, False, True, True, False, False, True, True]


@pytest.mark.parametrize("terminal", [None, np.arange(30) % 7 == 3])
def test_a_model_too_large_for_lists_is_drawn_from_in_the_same_way(
    terminal: np.ndarray | None,
) -> None:
    """Rows of 4 successors in no order, one of them named twice, drawn from the matrices and from
    the lists."""
    rng = np.random.default_rng(3)
    successor = rng.integers(30, size=(60, 4))
    successor[:, 3] = successor[:, 0]
    rows = sparse.csr_array(
        (rng.dirichlet(np.ones(4), size=60).ravel(), successor.ravel(), np.arange(0, 241, 4)),
        shape=(60, 30),
    )
    model = TabularMDP.from_arrays(rows, rng.normal(size=(30, 2)), terminal=terminal)
    lists, matrices = OutcomeLists(model.outcomes), OutcomeRows(model)
    one, other = np.random.default_rng(0), np.random.default_rng(0)
    assert [lists.start(one) for _ in range(50)] == [matrices.start(other) for _ in range(50)]
    for state, action in rng.integers([30, 2], size=(3000, 2)).tolist():
        assert lists.step(one, state, action) == matrices.step(other, state, action)


def test_wide_rows_are_searched_as_narrow_ones_are() -> None:
    rng = np.random.default_rng(0)
    model = TabularMDP.from_arrays(rng.dirichlet(np.ones(57), size=57 * 2), np.zeros((57, 2)))
    rows, numbers = rng.integers(57 * 2, size=2000), rng.random(2000)
    outcomes = model.outcomes
    for row, number, chosen in zip(rows, numbers, outcomes.pick(rows, numbers), strict=True):
        mine = outcomes.cumulative[outcomes.first[row] : outcomes.first[row + 1]]
        assert chosen - outcomes.first[row] == np.argmax(mine > number)


def test_noise_on_rewards_has_the_mean_and_the_spread_asked_for() -> None:
    """10 000 draws of N(2, 3²): the mean's standard error is .03, that of the standard deviation
    .03/√2."""
    model = from_entries(Entries([0], [0], [0], [1.0], [2.0], [False], [3.0]), 1, 1)
    env = TabularVectorEnv(100, model=model)
    env.reset(seed=0)
    rewards = np.array([env.step(np.zeros(100, dtype=int))[1] for _ in range(100)])
    assert abs(rewards.mean() - 2.0) < 4 * 0.03
    assert abs(rewards.std() - 3.0) < 4 * 0.03
    assert standard_normal(0.5, 0.0) == near(np.sqrt(2 * np.log(2)), terms=2)


def noisy_model() -> TabularMDP:
    """5 states in a ring, 3 actions, uneven outcomes, some of which are noisy and some of which end
    the episode."""
    rng = np.random.default_rng(7)
    state, action, way = (
        grid.ravel()
        for grid in np.meshgrid(np.arange(5), np.arange(3), np.arange(4), indexing="ij")
    )
    probability = rng.dirichlet(np.ones(4), size=15).ravel()
    successor, std = (state + action + way) % 5, np.where((state + way) % 3 == 0, 2.0, 0.0)
    ends = (way == 3) & (state == 4)
    entries = Entries(state, action, successor, probability, rng.normal(size=60), ends, std)
    return from_entries(entries, 5, 3, initial=[0.5, 0, 0.25, 0.25, 0])


def test_side_by_side_each_stream_shows_what_it_would_alone() -> None:
    model, seeds, limit = noisy_model(), [3, 3, 1, 4], 40
    many = TabularVectorEnv(4, max_episode_steps=limit, model=model)
    alone = [gymnasium.wrappers.TimeLimit(TabularEnv(model), limit) for _ in seeds]
    observations, _ = many.reset(seed=seeds)
    assert observations.tolist() == [
        env.reset(seed=seed)[0] for env, seed in zip(alone, seeds, strict=True)
    ]
    ended_by = {"terminated": 0, "truncated": 0}
    for actions in np.random.default_rng(0).integers(3, size=(1000, 4)):
        observations, rewards, terminated, truncated, _ = many.step(actions)
        for i, env in enumerate(alone):
            observation, reward, ended, late, _ = env.step(actions[i])
            assert (observations[i], rewards[i], terminated[i], truncated[i]) == (
                observation,
                reward,
                ended,
                late and not ended,
            )
        ended_by = {
            "terminated": ended_by["terminated"] + terminated.sum(),
            "truncated": ended_by["truncated"] + truncated.sum(),
        }
        over = terminated | truncated
        if over.any():
            observations, _ = many.reset(options={"reset_mask": over})
            for i in np.flatnonzero(over):
                assert observations[i] == alone[i].reset()[0]
    assert min(ended_by.values()) > 5


def test_a_stream_that_has_ended_waits() -> None:
    entries = [
        (0, 0, 1, 1.0, 7.0, True),
        (0, 1, 0, 1.0, 1.0, False),
        (1, 0, 1, 1.0, 0.0, True),
        (1, 1, 1, 1.0, 0.0, True),
    ]
    model = from_entries(entries, 2, 2, initial=[1, 0])
    env = TabularVectorEnv(2, max_episode_steps=3, model=model)
    env.reset(seed=0)
    shown = [[column.tolist() for column in env.step(np.array([0, 1]))[:4]] for _ in range(4)]
    assert [rewards for _, rewards, _, _ in shown] == [[7, 1], [0, 1], [0, 1], [0, 0]]
    assert [terminated for _, _, terminated, _ in shown] == [[True, False]] * 4
    assert [truncated for _, _, _, truncated in shown] == [[False, False]] * 2 + [[False, True]] * 2
    assert env.reset(options={"reset_mask": np.array([True, False])})[0].tolist() == [0, 0]
    assert env.step(np.array([1, 1]))[3].tolist() == [False, True]


def test_a_snapshot_in_the_middle_of_an_episode_brings_back_the_same_future() -> None:
    model = noisy_model()
    one, many = TabularEnv(model), TabularVectorEnv(6, max_episode_steps=200, model=model)
    one.reset(seed=4)
    many.reset(seed=4)
    actions = np.random.default_rng(2).integers(3, size=(160, 6))
    for row in actions[:25]:
        one.step(row[0])
        many.step(row)
    snapshots = one.snapshot(), many.snapshot()
    futures = (
        [one.step(row[0])[:3] for row in actions[25:]],
        [many.step(row)[:4] for row in actions[25:]],
    )
    fresh, others = TabularEnv(model), TabularVectorEnv(6, max_episode_steps=200, model=model)
    fresh.restore(snapshots[0])
    others.restore(snapshots[1])
    assert [fresh.step(row[0])[:3] for row in actions[25:]] == futures[0]
    for row, expected in zip(actions[25:], futures[1], strict=True):
        for left, right in zip(others.step(row)[:4], expected, strict=True):
            np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("action", [-1, 3])
def test_an_action_that_does_not_exist_is_refused(action: int) -> None:
    env, envs = TabularEnv(noisy_model()), TabularVectorEnv(2, model=noisy_model())
    env.reset(seed=0)
    envs.reset(seed=0)
    with pytest.raises(ValueError, match=f"action must be an integer from 0 to 2, got {action}"):
        env.step(action)
    with pytest.raises(ValueError, match="actions must be integers from 0 to 2, got values from"):
        envs.step(np.array([0, action]))


def chain() -> TabularMDP:
    """4 states: action 1 goes right with probability .8, from state 2 to the end, which pays 1;
    action 0 goes left; -.1 a step."""
    entries = []
    for state in range(3):
        entries += [(state, 0, max(state - 1, 0), 1.0, -0.1, False)]
        entries += [
            (state, 1, state + 1, 0.8, -0.1 + (state == 2), state == 2),
            (state, 1, state, 0.2, -0.1, False),
        ]
    entries += [(3, action, 3, 1.0, 0.0, True) for action in range(2)]
    return from_entries(entries, 4, 2, initial=[1, 0, 0, 0])


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("value_iteration", {"eval_every": 1}),
        ("q_learning", {"steps": 3000}),
        ("dqn", {"steps": 500}),
    ],
)
def test_algorithms_train_on_a_model_as_on_an_environment(
    algorithm: str, options: dict[str, Any]
) -> None:
    """3 successes with .8 each take 3 / .8 = 3.75 steps: V*(0) = 1 - 3.75 · .1 = .625, and always
    going right is the way."""
    run = rlbook.train(algorithm, chain(), gamma=1.0, **options)
    agent: Any = run.agent
    assert run.request.recipe.name == "TabularMDP"
    # 3.75 steps, of size 1
    assert optimal_return(run.request.recipe) == near(0.625, terms=4 * 4, size=1.0)
    assert run.metrics[-1]["eval_return"] <= 1 - 3 * 0.1
    if algorithm != "dqn":
        assert agent.greedy_policy()[:3].tolist() == [1, 1, 1]
    if algorithm == "value_iteration":
        assert agent.values()[0] == pytest.approx(0.625, rel=0, abs=1e-8)  # the tolerance


class Stopped(Exception):
    """Raised at a report, as a reader who has seen enough would stop the run."""


def test_a_run_on_a_model_goes_on_where_it_stopped(tmp_path: Path) -> None:
    def stop(run: Any) -> None:
        if run.steps >= 900:
            raise Stopped

    options: dict[str, Any] = {"steps": 2000, "seed": 3, "eval_every": 300}
    whole = rlbook.train("q_learning", noisy_model(), **options)
    with pytest.raises(Stopped):
        rlbook.train("q_learning", noisy_model(), out=tmp_path / "run", on_report=stop, **options)
    with pytest.raises(
        rlbook.RequestError,
        match="this run's environment was made without an id or in wrappers; give env",
    ):
        rlbook.load(tmp_path / "run")
    again = rlbook.train("q_learning", noisy_model(), out=tmp_path / "run", resume=True, **options)
    assert again.steps == 2000
    agent, expected = cast(Any, again.agent), cast(Any, whole.agent)
    assert agent.action_values().tolist() == expected.action_values().tolist()
    assert again.episode_returns[-20:] == whole.episode_returns[-20:]


def test_many_streams_of_a_model_run_in_the_vector_form() -> None:
    recipe = EnvRecipe.from_env(chain())
    envs = recipe.make_native_vector(3)
    assert isinstance(envs, TabularVectorEnv) and envs.max_episode_steps == 1000
    assert recipe.time_limit == 1000
    with pytest.raises(
        rlbook.RequestError,
        match="a class or function that makes one, or a TabularMDP, got ndarray",
    ):
        EnvRecipe.from_env(np.zeros(3))
