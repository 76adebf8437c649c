"""Figure 10.4: n-step semi-gradient SARSA on mountain car: how quickly it learns, for each step
size and each n.

As in figure 7.2, something in between is best: n = 4 learns sooner than n = 1, with a smaller step
size. The few runs of the picture do not tell n = 4 from n = 8; over 16 runs they do not differ
either (215.4 ± 2.1 and 218.2 ± 4.1 steps, standard errors).

Source: Sutton & Barto 2018, figure 10.4: steps an episode over the first 50 episodes. The book
averages 100 runs, here 3, with fewer step sizes, and no episode takes more than 5000 steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from rlbook.book.figures.axes import curve_colour, labelled_figure, legend
from rlbook.book.figures.mountain_car import drive

ALPHAS: dict[int, tuple[float, ...]] = {
    1: (0.4, 0.6, 0.9, 1.2, 1.5),
    2: (0.3, 0.5, 0.7, 1.0, 1.4),
    4: (0.2, 0.3, 0.45, 0.65, 0.9, 1.2),
    8: (0.15, 0.25, 0.4, 0.6, 0.9),
    16: (0.1, 0.2, 0.3, 0.45, 0.6),
}


@dataclass(frozen=True)
class MountainCarSteps:
    """Figure 10.4."""

    # n → α → [runs]: steps an episode, the mean of the first 50
    steps: dict[int, dict[float, np.ndarray]]


def run(
    seed: int = 0, runs: int = 3, episodes: int = 50, lengths: tuple[int, ...] = tuple(ALPHAS)
) -> MountainCarSteps:
    """Each n of `lengths` with its step sizes."""

    def curve(n: int) -> dict[float, np.ndarray]:
        return {
            alpha: np.array([_steps(seed + index, episodes, n, alpha) for index in range(runs)])
            for alpha in ALPHAS[n]
        }

    return MountainCarSteps({n: curve(n) for n in lengths})


def _steps(seed: int, episodes: int, n: int, alpha: float) -> float:
    taken = 0
    for _, interaction in drive(seed, episodes, 5_000, n=n, alpha=alpha):
        taken = interaction.steps
    return taken / episodes


def measurements(result: MountainCarSteps) -> dict[str, float]:
    """The smallest number of steps for each n, and its step size."""
    numbers = {}
    for n, curve in result.steps.items():
        alpha = min(curve, key=lambda alpha: curve[alpha].mean())
        numbers |= {f"n = {n}, fewest steps": float(curve[alpha].mean()), f"n = {n}, at α": alpha}
    return numbers


def draw(result: MountainCarSteps) -> Figure:
    """A curve for each n."""
    figure, axes = labelled_figure(
        6.6, 4.8, "Step size α (the book's α × 8 tilings)", "Steps per episode, first 50 episodes"
    )
    for place, (n, curve) in enumerate(result.steps.items()):
        means = [steps.mean() for steps in curve.values()]
        axes.plot(
            list(curve), means, "o-", color=curve_colour(place), markersize=3.5, label=f"n = {n}"
        )
    axes.set(ylim=(180, 320), xlim=(0, 1.6))
    legend(axes, loc="upper right")
    return figure
