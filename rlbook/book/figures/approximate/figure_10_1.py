"""Figure 10.1: the mountain car's cost-to-go, -max_a q(s, a), during one run.

In the first episode the places that were visited look worse than those that were not, which drives
the car to new ones. In the end a spiral remains: from the bottom of the valley the way to the goal
goes back and forth.

Source: Sutton & Barto 2018, example 10.1, figure 10.1. Ours ends with episode 1000, the book's with
9000.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from rlbook.algorithms.value.semi_gradient_sarsa import SemiGradientSarsa
from rlbook.book.figures.mountain_car import drive
from rlbook.plots.figure import new_figure, words

POSITIONS, SPEEDS = np.linspace(-1.2, 0.5, 40), np.linspace(-0.07, 0.07, 40)
EARLY = 428
"""The number of steps after which the first picture is taken, in the first episode."""


@dataclass(frozen=True)
class CostsToGo:
    """Figure 10.1."""

    costs: dict[str, np.ndarray]  # when → [positions, speeds]: -max_a q, in steps
    lengths: np.ndarray  # [episodes]: steps of each


def run(seed: int = 0, episodes: Sequence[int] = (12, 104, 1000), alpha: float = 0.3) -> CostsToGo:
    """One run, evaluated after these episodes and early in the first."""
    costs, lengths = {}, []
    for agent, interaction in drive(seed, max(episodes), 100_000, alpha=alpha):
        if interaction.steps == EARLY:
            costs[f"step {EARLY}"] = cost_to_go(agent)
        if interaction.episodes > len(lengths):
            lengths.append(interaction.finished[-1][2])
            if interaction.episodes in episodes:
                costs[f"episode {interaction.episodes}"] = cost_to_go(agent)
    return CostsToGo(costs, np.array(lengths))


def cost_to_go(agent: SemiGradientSarsa) -> np.ndarray:
    """[positions, speeds], in steps."""
    grid = np.stack(np.meshgrid(POSITIONS, SPEEDS, indexing="ij"), axis=-1)
    return -agent.value(grid.reshape(-1, 2)).reshape(grid.shape[:2])


def measurements(result: CostsToGo) -> dict[str, float]:
    """The highest cost at each time, and the lengths of the first and the last episodes."""
    highest = {f"{when}, highest cost": float(costs.max()) for when, costs in result.costs.items()}
    last = {"steps, last 100 episodes": float(result.lengths[-100:].mean())}
    return highest | {"steps of the first episode": float(result.lengths[0])} | last


def draw(result: CostsToGo) -> Figure:
    """A surface for each time."""
    figure = new_figure(6.4, 5.4)
    panels = figure.subplots(2, 2, subplot_kw={"projection": "3d"}).flat
    across, deep = np.meshgrid(POSITIONS, SPEEDS, indexing="ij")
    for axes, (when, costs) in zip(panels, result.costs.items(), strict=False):
        axes.plot_surface(
            across,
            deep,
            costs,
            rstride=3,
            cstride=3,
            cmap="viridis",
            linewidth=0.3,
            edgecolor="0.25",
        )
        axes.set_title(f"{when}: up to {costs.max():.0f}", **words(fontsize=10))
        axes.set_xlabel("Position", **words(fontsize=8))
        axes.set_ylabel("Velocity", **words(fontsize=8))
        axes.tick_params(labelsize=8)
        axes.view_init(elev=38, azim=-58)
    return figure
