"""The optimal return of classic control tasks with two state variables, by dynamic programming on a
grid, and the exact return of a policy there.

    V_0 = 0,   V_k(s) = max_a [ r(s, a) + V_{k-1}(s') ]   on a grid of states, s' = f(s, a)

V between grid points is bilinear interpolation, so a step to s' is as good as one to its four
neighbours with the weights as probabilities: the tasks become a Markov decision process. The policy
that is greedy in these values, k steps before the time limit, is then played from a dense grid of
starts in the true dynamics. What it earns on average is a lower bound on the optimum, up to the
spacing of the starts; the values themselves are an estimate with an error of both signs. Where the
two agree, there is little room left.

Source: Kushner & Dupuis 2001, Numerical Methods for Stochastic Control Problems in Continuous Time,
section 3.2. The dynamics are those of gymnasium's classic_control, for many states at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlbook.agent import Agent
from rlbook.interaction.environments import EnvRecipe

STARTS = 400
"""The number of starts over which a policy's return is averaged."""

State = tuple[NDArray, NDArray]
"""Position or angle, and velocity: two arrays of one shape."""


class ControlTask(NamedTuple):
    """A task with two state variables, for many states at once."""

    # state, action → next state, reward, whether it has ended
    step: Callable[[State, NDArray], tuple[State, NDArray, NDArray]]
    observe: Callable[[State], NDArray]  # [N] states → [N, O]
    low: tuple[float, float]  # of the grid
    high: tuple[float, float]
    actions: NDArray  # a grid of forces, such as the middle one at 0
    start_low: tuple[float, float]  # states that an episode begins in, uniformly
    start_high: tuple[float, float]
    horizon: int  # the time limit, in steps
    discrete: bool = False  # the environment's actions are 0, 1, …, indices of `actions`


def pendulum_step(state: State, torque: NDArray) -> tuple[State, NDArray, NDArray]:
    """Pendulum-v1: θ in radians from the top, its velocity, a torque in [-2, 2]."""
    angle, velocity = state
    from_top = _wrap_angle(angle)
    reward = -(from_top**2 + 0.1 * velocity**2 + 0.001 * torque**2)
    velocity = np.clip(velocity + (15.0 * np.sin(angle) + 3.0 * torque) * 0.05, -8.0, 8.0)
    angle = _wrap_angle(angle + velocity * 0.05)
    return (angle, velocity), reward, np.zeros(angle.shape, bool)


def mountain_car_step(state: State, force: NDArray) -> tuple[State, NDArray, NDArray]:
    """MountainCar-v0: a position, its velocity, a force of -1, 0 or 1."""
    state, ended = _drive(state, force, power=0.001, goal=0.5)
    return state, np.full(ended.shape, -1.0), ended


def continuous_car_step(state: State, force: NDArray) -> tuple[State, NDArray, NDArray]:
    """MountainCarContinuous-v0: the same with a force in [-1, 1], which costs its square."""
    state, ended = _drive(state, np.clip(force, -1.0, 1.0), power=0.0015, goal=0.45)
    return state, 100.0 * ended - 0.1 * np.broadcast_to(force, ended.shape) ** 2, ended


def _drive(state: State, force: NDArray, power: float, goal: float) -> tuple[State, NDArray]:
    position, velocity = state
    velocity = np.clip(velocity + force * power - 0.0025 * np.cos(3 * position), -0.07, 0.07)
    position = np.clip(position + velocity, -1.2, 0.6)
    velocity = np.where((position == -1.2) & (velocity < 0), 0.0, velocity)
    return (position, velocity), (position >= goal) & (velocity >= 0)


def _wrap_angle(angle: NDArray) -> NDArray:
    return (angle + np.pi) % (2 * np.pi) - np.pi


def _show_angle(state: State) -> NDArray:
    angle, velocity = state
    return np.stack([np.cos(angle), np.sin(angle), velocity], axis=-1).astype(np.float32)


def _show(state: State) -> NDArray:
    return np.stack(state, axis=-1).astype(np.float32)


VALLEY = ((-1.2, -0.07), (0.6, 0.07))
TASKS: dict[str, ControlTask] = {
    "Pendulum-v1": ControlTask(
        *(pendulum_step, _show_angle, (-np.pi, -8.0), (np.pi, 8.0)),
        *(np.linspace(-2.0, 2.0, 21), (-np.pi, -1.0), (np.pi, 1.0), 200),
    ),
    "MountainCar-v0": ControlTask(
        *(mountain_car_step, _show, *VALLEY, np.array([-1.0, 0.0, 1.0])),
        *((-0.6, 0.0), (-0.4, 0.0), 200, True),
    ),
    "MountainCarContinuous-v0": ControlTask(
        *(continuous_car_step, _show, *VALLEY),  # small forces are cheap, and closer together
        *(np.sign(force := np.linspace(-1.0, 1.0, 31)) * force**2, (-0.6, 0.0), (-0.4, 0.0), 999),
    ),
}


def grid_optimum(task: ControlTask, points: int) -> tuple[float, float]:
    """The mean return of the optimal policy, in reward units: estimated by the values on a grid of
    `points` × `points` states, and the lower bound achieved by their greedy policy."""
    starts, values = start_states(task), grid_values(task, points)
    return float(interpolate(task, values[-1], starts).mean()), float(
        greedy_returns(task, values, starts).mean()
    )


def grid_values(task: ControlTask, points: int) -> list[NDArray]:
    """V_0 … V_H on the grid, each [points, points], in reward units."""
    from scipy.sparse import csr_matrix

    axes = _axes(task, points)
    grid = tuple(axis.reshape(-1, 1) for axis in np.meshgrid(*axes, indexing="ij"))
    after, reward, ended = task.step(grid, task.actions[None])  # type: ignore[arg-type]
    corners, weights = _corners(task, points, after)
    weights = weights * ~ended[..., None]
    count = points * points
    to = csr_matrix(
        (weights.ravel(), corners.astype(np.int32).ravel(), np.arange(0, corners.size + 1, 4)),
        shape=(reward.size, count),
    )
    found = [np.zeros(count)]
    for _ in range(task.horizon):
        found.append((reward + (to @ found[-1]).reshape(reward.shape)).max(axis=1))
    return [values.reshape(points, points) for values in found]


def greedy_returns(task: ControlTask, values: list[NDArray], starts: State) -> NDArray:
    """The return of the policy that is greedy with respect to the values, from each start, [N],
    under the true dynamics."""

    def act(state: State, left: int) -> NDArray:
        before = (state[0][:, None], state[1][:, None])
        after, reward, ended = task.step(before, task.actions[None])
        following = interpolate(task, values[left - 1], after)
        return task.actions[(reward + following * ~ended).argmax(axis=1)]

    return play(task, act, starts)


def play(task: ControlTask, act: Callable[[State, int], NDArray], starts: State) -> NDArray:
    """The return of an episode from each start, [N].

    Args:
        task: the task.
        act: [N] states and the steps that are left → [N] forces.
        starts: [N] states.
    """
    state, total = starts, np.zeros(starts[0].shape)
    live = np.ones(total.shape, bool)
    for left in range(task.horizon, 0, -1):
        state, reward, ended = task.step(state, act(state, left))
        total += reward * live
        live &= ~ended
        if not live.any():
            break
    return total


def start_states(task: ControlTask, count: int = STARTS) -> State:
    """About `count` evenly spaced starts: the centres of as many cells."""
    still = task.start_low[1] == task.start_high[1]
    of_velocity = 1 if still else max(1, round((count / 4) ** 0.5))
    middles = [
        low + (high - low) * (np.arange(size) + 0.5) / size
        for low, high, size in zip(
            task.start_low, task.start_high, (count // of_velocity, of_velocity), strict=True
        )
    ]
    position, velocity = np.meshgrid(*middles, indexing="ij")
    return position.ravel(), velocity.ravel()


def interpolate(task: ControlTask, values: NDArray, state: State) -> NDArray:
    """Values [points, points] interpolated between the grid's points, with the state's shape."""
    corners, weights = _corners(task, len(values), state)
    return (values.ravel()[corners] * weights).sum(axis=-1)


def _corners(task: ControlTask, points: int, state: State) -> tuple[NDArray, NDArray]:
    """The grid points around each state and their weights, both with a last axis of four."""
    below, parts = [], []
    for axis, value in zip(_axes(task, points), state, strict=True):
        place = (value - axis[0]) / (axis[1] - axis[0])
        below.append(np.clip(np.floor(place).astype(np.int64), 0, points - 2))
        parts.append(np.clip(place - below[-1], 0.0, 1.0))
    first, (x, y) = below[0] * points + below[1], parts
    corners = np.stack([first, first + 1, first + points, first + points + 1], axis=-1)
    weights = [(1 - x) * (1 - y), (1 - x) * y, x * (1 - y), x * y]
    return corners, np.stack(weights, axis=-1)


def _axes(task: ControlTask, points: int) -> list[NDArray]:
    return [np.linspace(*ends, points) for ends in zip(task.low, task.high, strict=True)]


def control_task(recipe: EnvRecipe) -> ControlTask | None:
    """The task behind an environment as gymnasium registers it; None for any other, or if anything
    about it was changed."""
    if recipe.kwargs or recipe.preprocessing.is_used or recipe.written_id != recipe.id:
        return None
    return TASKS.get(recipe.name)


def control_return(agent: Agent, recipe: EnvRecipe) -> float | None:
    """The expected return of greedy play, in reward units, averaged over evenly spaced starts: a
    mean of twenty episodes of Pendulum has an error of about 20 reward units.

    None where the task is none of these, or the agent cannot be asked for so many actions: it
    searches before each, or remembers its episodes.
    """
    task = control_task(recipe)
    if task is None or agent.searches or not agent.knows_env or agent.new_memory() is not None:
        return None

    def act(state: State, left: int) -> NDArray:
        chosen = np.asarray(agent.predict(task.observe(state)))
        return task.actions[chosen] if task.discrete else chosen.reshape(len(chosen))

    return float(play(task, act, start_states(task)).mean())
