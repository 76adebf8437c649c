"""A maze that rewards only the goal, and rewards that help to find it sooner: a potential, and a
bonus without the matching penalty.

    found = run()
    found.steps["potential"]                 # [R, E], steps of each episode of Q-learning, for R seeds
    measurements(found)["best actions changed by the potential"]       # 0

A potential is a guess of how good a state is; a step earns what it gains by it, and pays what it
loses. It cannot change which actions are best, however wrong it is. A bonus for every step that
comes nearer, without a price for going away, can be earned forever by walking back and forth.

Source: Ng, Harada & Russell 1999, theorem 1 and the bicycle of section 1, which rode in circles.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

import rlbook
from rlbook.envs.tabular.mdp import TabularMDP

Array = NDArray[np.float64]

SIZE, GAMMA, SEEDS, EPISODES = 8, 0.98, 10, 150
BONUS = 0.05  # reward units for a step that comes nearer
TIES = 1e-9  # reward units; a smaller difference between two actions is none
NAMES = ("the goal alone", "potential", "potential V*", "bonus")


@dataclass(frozen=True)
class ShapingComparison:
    """The results of learning from each reward, and the optimum of each."""

    steps: dict[str, Array]  # [R, E], of each episode, for R seeds
    changed: dict[str, int]  # states with other best actions than those for the goal alone
    distance: float  # largest |Q' + Φ - Q| over states and actions, in reward units
    arriving: dict[str, float]  # share of the states from which the best policy arrives
    shortest: int  # steps from the start


def sparse_reward_model() -> TabularMDP:
    """The maze's dynamics with reward 1 for entering the goal, and 0 for any other step."""
    model = rlbook.make("Maze-v0", size=SIZE, seed=0).unwrapped.model()  # type: ignore[attr-defined]
    return TabularMDP.from_arrays(
        model.transitions, model.ends * 1.0, terminal=model.terminal, initial=model.initial
    )


def straight_line_values() -> Array:
    """γ^d, [S]: the value of a state if there were no walls, where d is the distance to the goal in
    rows and columns."""
    layout = rlbook.make("Maze-v0", size=SIZE, seed=0).unwrapped.tables.layout  # type: ignore[attr-defined]
    row, column = np.divmod(np.arange(layout.num_states), layout.columns)
    goal_row, goal_column = divmod(layout.goal, layout.columns)
    return GAMMA ** (np.abs(row - goal_row) + np.abs(column - goal_column)).astype(np.float64)


def add_potential(model: TabularMDP, potential: Array) -> TabularMDP:
    """The same model with r' = r + γ E[Φ(s')] - Φ(s); a state that ends the episode has the
    potential 0."""
    return _replace_rewards(
        model, model.rewards + GAMMA * model.expectation(potential) - potential[:, None]
    )


def add_bonus(model: TabularMDP, potential: Array) -> TabularMDP:
    """The same model with a bonus for every step to a larger potential, and no penalty for a step
    to a smaller one."""
    nearer = model.expectation(potential) > potential[:, None]
    return _replace_rewards(model, model.rewards + BONUS * nearer.astype(np.float64))


def _replace_rewards(model: TabularMDP, rewards: Array) -> TabularMDP:
    return TabularMDP.from_arrays(
        model.transitions, rewards, terminal=model.terminal, initial=model.initial
    )


def optimal_action_values(model: TabularMDP) -> Array:
    """Q*, [S, A], exact: greedy policies are evaluated and improved until none is better."""
    values = np.zeros(model.num_states)
    while True:
        action_values = model.backup(values, GAMMA)
        improved = model.policy_values(action_values.argmax(axis=1), GAMMA)
        if np.abs(improved - values).max() < TIES:
            return action_values
        values = improved


def best_actions(action_values: Array) -> NDArray[np.bool_]:
    """[S, A]: the actions whose value is the largest."""
    return action_values > action_values.max(axis=1, keepdims=True) - TIES


def reaches_end(model: TabularMDP, policy: NDArray[np.int64]) -> NDArray[np.bool_]:
    """[S]: the states from which a policy reaches the end of the episode, without slips."""
    chain = model.chain(policy)[0]
    inside = np.linalg.matrix_power(chain.toarray(), model.num_states).sum(axis=1)
    return inside < TIES


def run(seeds: int = SEEDS, first: int = 0, episodes: int = EPISODES) -> ShapingComparison:
    """Q-learning with each reward, and the exact solutions."""
    model, crow = sparse_reward_model(), straight_line_values()
    own = optimal_action_values(model)
    crow[model.terminal] = 0.0
    models = {
        "the goal alone": model,
        "potential": add_potential(model, crow),
        "potential V*": add_potential(model, own.max(axis=1)),
        "bonus": add_bonus(model, crow),
    }
    exact = {name: optimal_action_values(each) for name, each in models.items()}
    free = model.reachable() & ~model.terminal
    changed = {
        name: int((best_actions(q) != best_actions(own))[free].any(axis=1).sum())
        for name, q in exact.items()
    }
    arriving = {
        name: float(reaches_end(model, q.argmax(axis=1))[free].mean()) for name, q in exact.items()
    }
    distance = float(np.abs(exact["potential"] + crow[:, None] - own)[free].max())
    steps = {
        name: np.array([lengths(each, seed, episodes) for seed in range(first, first + seeds)])
        for name, each in models.items()
    }
    start = int(model.initial.argmax())
    shortest = round(float(np.log(own[start].max()) / np.log(GAMMA))) + 1
    return ShapingComparison(steps, changed, distance, arriving, shortest)


def lengths(model: TabularMDP, seed: int, episodes: int) -> Array:
    """The length of each training episode of Q-learning, which is truncated after 1 000 steps."""
    run = rlbook.train(
        "q_learning",
        model,
        episodes=episodes,
        seed=seed,
        gamma=GAMMA,
        alpha=0.5,
        epsilon=0.1,
        eval_every=0,
    )
    return np.array(run.episode_lengths[:episodes], dtype=np.float64)


def measurements(result: ShapingComparison) -> dict[str, float]:
    """Means over the seeds."""
    numbers = {
        "steps of the shortest path": float(result.shortest),
        "largest distance of Q' + Φ from Q": result.distance,
    }
    for name in NAMES[1:]:
        numbers[f"{name}: states whose best actions change"] = float(result.changed[name])
    for name in NAMES:
        numbers[f"{name}: steps of the first ten episodes"] = float(
            result.steps[name][:, :10].mean()
        )
        numbers[f"{name}: of the last ten"] = float(result.steps[name][:, -10:].mean())
        numbers[f"{name}: states from which its best policy arrives"] = result.arriving[name]
    return numbers


def draw(result: ShapingComparison) -> Figure:
    """The episode length during learning, a moving mean over ten, and the number of states from
    which the optimal policy of each reward arrives."""
    from rlbook.book.figures.axes import curve_colour, label_axes, legend
    from rlbook.plots.figure import new_figure

    figure = new_figure(9.0, 3.6)
    learning, arriving = figure.subplots(1, 2, width_ratios=[2, 1])
    label_axes(learning, "episodes", "steps of an episode")
    label_axes(arriving, "share of the states from which\nits best policy arrives", "")
    for place, name in enumerate(NAMES):
        mean = result.steps[name].mean(axis=0)
        window = min(10, len(mean))
        smooth = np.convolve(mean, np.full(window, 1 / window), "valid")
        across = np.arange(len(smooth)) + window
        learning.plot(across, smooth, color=curve_colour(place), label=name)
        arriving.barh([place], [result.arriving[name]], color=curve_colour(place))
    learning.axhline(result.shortest, color="grey", linestyle="--", linewidth=1.0)
    learning.set_yscale("log")
    arriving.set_yticks(range(len(NAMES)), NAMES)
    arriving.invert_yaxis()
    legend(learning, "upper right")
    return figure
