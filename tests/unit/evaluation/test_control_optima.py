"""Near-optimal returns of classic control by dynamic programming, and the exact return of a policy
there."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from closeness import near

import rlbook
from rlbook.envs.descriptions import GRID_OPTIMA, SOLVED_FROM
from rlbook.evaluation.catalogue import read_catalogue
from rlbook.evaluation.control_optima import (
    TASKS,
    control_return,
    grid_optimum,
    grid_values,
    interpolate,
    start_states,
)
from rlbook.evaluation.optimal_return import optimal_return, solving_return
from rlbook.interaction.environments import EnvRecipe

PENDULUM, CAR, FORCED_CAR = TASKS
COARSE, FINE = {PENDULUM: 201, CAR: 301}, {PENDULUM: 401, CAR: 601, FORCED_CAR: 201}


def put(env: gymnasium.Env, position: float, velocity: float) -> None:
    """Sets the environment to a state."""
    env.reset(seed=0)
    env.unwrapped.state = np.array([position, velocity])  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", TASKS)
def test_a_step_is_gymnasiums(name: str) -> None:
    """Also at the walls, at the largest speed and where the goal is reached."""
    task, env, rng = TASKS[name], gymnasium.make(name).unwrapped, np.random.default_rng(0)
    states = rng.uniform(task.low, task.high, (500, 2))
    ends = [(task.high[0], task.high[1]), (task.low[0], task.low[1]), (0.49, 0.03), (0.499, 0.0)]
    states = np.concatenate([states, ends])
    chosen = rng.integers(len(task.actions), size=len(states))
    forces = task.actions[chosen]
    after, rewards, ended = task.step((states[:, 0], states[:, 1]), forces)
    shown = task.observe(after)
    for row, (position, velocity) in enumerate(states):
        put(env, position, velocity)
        action: Any = chosen[row] if task.discrete else np.array([forces[row]])
        obs, reward, terminated, _, _ = env.step(action)
        assert obs == near(shown[row], terms=20, size=8.0, dtype=np.float32)
        assert float(reward) == near(rewards[row], terms=20, size=100.0)
        assert terminated == ended[row]
    assert ended.any() == (name != PENDULUM)


def test_interpolation_by_hand() -> None:
    """Linear in both variables: exact between the points of a grid of two."""
    task = TASKS[CAR]
    values = np.array([[0.0, 1.0], [10.0, 11.0]])  # 10 from left to right, 1 from slow to fast
    state = (np.array([-1.2, 0.6, -0.3, 5.0]), np.array([-0.07, 0.07, 0.035, 0.0]))
    expected = [0.0, 11.0, 10 * 0.5 + 0.75, 10.5]  # beyond the grid it is the edge that counts
    assert interpolate(task, values, state).tolist() == near(expected, terms=10, size=11.0)


def test_starts_lie_in_the_middles_of_equal_cells() -> None:
    position, velocity = start_states(TASKS[PENDULUM], 400)
    assert position.shape == (400,) and len(set(velocity.tolist())) == 10
    assert float(position.min()) == near(-np.pi + 2 * np.pi / 80, terms=10, size=4.0)
    assert float(velocity.max()) == near(0.9, terms=10)
    assert start_states(TASKS[CAR], 4)[0].tolist() == near(
        [-0.575, -0.525, -0.475, -0.425], terms=9
    )


def test_the_last_step_is_worth_its_best_reward() -> None:
    """V_1 of the pendulum: no torque is best, and costs θ² + 0.1 θ̇²."""
    task = TASKS[PENDULUM]._replace(horizon=1)
    values = grid_values(task, 3)[-1]  # angles -π, 0, π and velocities -8, 0, 8
    swing = np.pi**2
    expected = [-swing - 6.4, -swing, -swing - 6.4, -6.4, 0.0, -6.4]
    assert values[:2].ravel().tolist() == near(expected, terms=10, size=20.0)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "points", "share"),
    [
        *((name, points, 0.01) for name, points in COARSE.items()),
        *(pytest.param(*item, 0.005, marks=pytest.mark.slow) for item in FINE.items()),
    ],
)
def test_the_estimate_and_the_policy_agree_with_each_other_and_with_what_is_stated(
    name: str, points: int, share: float
) -> None:
    """A coarse grid within 1 %, a finer one within half a percent. The stated one is finer still, so
    no policy of these earns more, but for the rounding."""
    estimate, earned = grid_optimum(TASKS[name], points)
    stated = GRID_OPTIMA[name]
    assert abs(estimate - earned) <= share * abs(stated)
    assert stated - share * abs(stated) <= earned <= stated + 0.001 * abs(stated)


@pytest.mark.thorough
def test_what_an_agent_earns_on_average_is_what_it_earns_in_gymnasium() -> None:
    run = rlbook.train("semi_gradient_sarsa", CAR, episodes=60, eval_every=0)
    expected = control_return(run.agent, run.request.recipe)
    env, returns = run.make_env(), []
    for position, velocity in zip(*start_states(TASKS[CAR]), strict=True):
        put(env, position, velocity)
        obs, total, over = np.array([position, velocity], np.float32), 0.0, False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(run.predict(obs))
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    assert expected == near(float(np.mean(returns)), terms=400, size=200.0)
    assert expected != -200.0


@pytest.mark.parametrize(
    "recipe",
    [
        EnvRecipe("CartPole-v1"),
        EnvRecipe("Pendulum-v1", {"g": 9.81}),
        EnvRecipe("MountainCar-v0", {"max_episode_steps": 1000}),
        EnvRecipe.from_env(gymnasium.wrappers.ClipReward(gymnasium.make("Pendulum-v1"), -1.0, 1.0)),
    ],
)
def test_a_changed_task_has_no_known_optimum(recipe: EnvRecipe) -> None:
    assert optimal_return(recipe) is None and solving_return(recipe) is None


def test_a_threshold_says_what_solves_a_task_whose_optimum_was_computed_on_a_grid() -> None:
    """Pendulum's is 98 % of the way from random play, and the cars' are gymnasium's."""
    known = read_catalogue().environments
    for name, optimum in GRID_OPTIMA.items():
        recipe = EnvRecipe.from_env(name)
        assert optimal_return(recipe) == known[name].optimum == optimum
        assert solving_return(recipe) == known[name].target
    assert SOLVED_FROM[PENDULUM] == round(-137.2 - 0.02 * (1256 - 137.2), -1)
    assert [known[name].target for name in (CAR, FORCED_CAR)] == [-110.0, 90.0]
    assert solving_return(EnvRecipe.from_env("Maze-v0")) == near(
        3.0 - 0.02 * 3.0, terms=10, size=3.0
    )


def test_an_agent_that_searches_is_not_asked_for_hundreds_of_episodes() -> None:
    run = rlbook.train("world_model", PENDULUM, steps=60, eval_every=0, learning_starts=40)
    assert control_return(run.agent, run.request.recipe) is None
