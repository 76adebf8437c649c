"""Figure 4.2: Jack's car rental by policy iteration. The sequence of policies, from never moving a
car to the optimal one, and its values.

Source: Sutton & Barto 2018, example 4.2, figure 4.2. The policies are the book's; its Poisson sums
are not cut off here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d.axes3d import Axes3D

from rlbook.algorithms.planning.policy_iteration import PolicyIteration
from rlbook.envs.car_rental import COUNTS, FURTHEST, CarRental
from rlbook.envs.tabular.tabular_env import TabularEnv
from rlbook.plots.colours import CURVES, INK, PAPER, RAMP, fraction_rgb
from rlbook.plots.figure import is_narrow, new_figure, words

GAMMA = 0.9
ACROSS, UP = "Cars at second location", "Cars at first location"


@dataclass(frozen=True)
class CarRentalPolicies:
    """Figure 4.2. P policies."""

    moved: np.ndarray  # [P, 21, 21] int: cars driven from the first location to the second
    values: np.ndarray  # [21, 21]: V of the last, in dollars


def run() -> CarRentalPolicies:
    """Policy iteration from the policy that moves no cars."""
    env = CarRental()
    model = env.model()
    planner = PolicyIteration(TabularEnv(model), PolicyIteration.Config(gamma=GAMMA))
    # action 5 drives no car
    planner.load_state_dict(planner.state_dict() | {"actions": np.full(model.num_states, FURTHEST)})
    policies = [planner.state_dict()["actions"].copy()]
    for _ in planner.plan(model):
        policies.append(planner.state_dict()["actions"].copy())
    # the last changed nothing
    moved = np.array([env.moved[np.arange(model.num_states), policy] for policy in policies[:-1]])
    return CarRentalPolicies(
        moved.reshape(-1, COUNTS, COUNTS), planner.values().reshape(COUNTS, COUNTS)
    )


def measurements(result: CarRentalPolicies) -> dict[str, float]:
    """The number of improvements, and values of the optimal policy, in dollars."""
    best = result.moved[-1]
    return {
        "improvements": float(len(result.moved) - 1),
        "value of no cars": float(result.values[0, 0]),
        "value of 10 and 10 cars": float(result.values[10, 10]),
        "value of 20 and 20 cars": float(result.values[20, 20]),
        "cars driven from 20 and 0": float(best[20, 0]),
        "cars driven from 0 and 20": float(best[0, 20]),
    }


def draw(result: CarRentalPolicies) -> Figure:
    """A panel per policy, with lines around equal numbers of cars; then the values as a surface."""
    figure = new_figure(10.2, 6.9, narrow_height=18.0)
    places = iter(figure.add_gridspec(*((6, 1) if is_narrow() else (2, 3))))
    for number, policy in enumerate(result.moved[:5]):
        _draw_policy(figure.add_subplot(next(places)), policy, f"π{'₀₁₂₃₄'[number]}")
    axes: Any = figure.add_subplot(next(places), projection="3d")
    _draw_surface(axes, result.values, f"V of π{'₀₁₂₃₄'[min(len(result.moved), 5) - 1]}, in $")
    return figure


def _draw_policy(axes: Axes, policy: np.ndarray, title: str) -> None:
    ends = [fraction_rgb(CURVES[1]), fraction_rgb(PAPER), fraction_rgb(CURVES[0])]
    colours = LinearSegmentedColormap.from_list("cars", ends)
    axes.imshow(
        policy,
        origin="lower",
        cmap=colours,
        vmin=-1.4 * FURTHEST,
        vmax=1.4 * FURTHEST,
        extent=(-0.5, 20.5, -0.5, 20.5),
    )
    for row, column in np.ndindex(COUNTS, COUNTS):
        if row + 1 < COUNTS and policy[row, column] != policy[row + 1, column]:
            axes.plot(
                [column - 0.5, column + 0.5], [row + 0.5] * 2, color=fraction_rgb(INK), linewidth=1
            )
        if column + 1 < COUNTS and policy[row, column] != policy[row, column + 1]:
            axes.plot(
                [column + 0.5] * 2, [row - 0.5, row + 0.5], color=fraction_rgb(INK), linewidth=1
            )
    for cars in np.unique(policy):
        _draw_number(axes, policy == cars, str(cars).replace("-", "−"))
    axes.set_title(title, **words(fontsize=12))
    axes.set_xlabel(ACROSS, **words(fontsize=9))
    axes.set_ylabel(UP, **words(fontsize=9))
    axes.set(xticks=[0, 5, 10, 15, 20], yticks=[0, 5, 10, 15, 20])
    axes.tick_params(labelsize=8, labelcolor=words()["color"])


def _draw_number(axes: Axes, region: np.ndarray, text: str) -> None:
    """Places a region's number in its cell furthest from the edge."""
    depth, within = np.zeros(region.shape, dtype=int), np.pad(region, 1)
    while within.any():
        depth += within[1:-1, 1:-1]
        within[1:-1, 1:-1] &= (
            within[:-2, 1:-1] & within[2:, 1:-1] & within[1:-1, :-2] & within[1:-1, 2:]
        )
    deepest = np.argwhere(depth == depth.max())
    row, column = deepest[len(deepest) // 2]
    axes.text(column, row, text, ha="center", va="center", **words(fontsize=8))


def _draw_surface(axes: Axes3D, values: np.ndarray, title: str) -> None:
    first, second = np.indices(values.shape)
    ramp = LinearSegmentedColormap.from_list("ramp", [fraction_rgb(colour) for colour in RAMP])
    axes.plot_surface(
        first,
        second,
        values,
        cmap=ramp,
        rcount=COUNTS,
        ccount=COUNTS,
        edgecolor="white",
        linewidth=0.3,
    )
    axes.view_init(elev=28, azim=-135)
    axes.set_title(title, **words(fontsize=12))
    axes.set_xlabel(UP, **words(fontsize=8))
    axes.set_ylabel(ACROSS, **words(fontsize=8))
    axes.set(xticks=[0, 10, 20], yticks=[0, 10, 20])
    axes.tick_params(labelsize=8, pad=-1, labelcolor=words()["color"])
    axes.set_box_aspect(None, zoom=0.7 if is_narrow() else 0.95)  # type: ignore[arg-type]
