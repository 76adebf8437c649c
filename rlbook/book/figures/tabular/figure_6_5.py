"""Figure 6.5: maximization bias. How often Q-learning and double Q-learning go left from A, α = ε =
0.1, γ = 1.

Left of A is B, whose ten actions pay N(-0.1, 1): on average a loss. The largest of ten noisy
estimates is a gain for a long time, and Q-learning believes it; double Q-learning lets one table
choose the action and the other say what it is worth.

The book's A has one action to the left and one to the right, while a table has as many in each
state. So in A the agents here choose between two columns of their table alone; all else, the
updates included, is the library's.

Source: Sutton & Barto 2018, example 6.7, figure 6.5. The book says that B has many actions; 10
gives its curves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from numpy.random import Generator

from rlbook.algorithms.tabular.control_agent import ControlAgent
from rlbook.algorithms.tabular.double_q_learning import DoubleQLearning
from rlbook.algorithms.tabular.exploration import epsilon_greedy
from rlbook.algorithms.tabular.q_learning import QLearning
from rlbook.algorithms.tabular.records import ControlMemory, ControlSettings
from rlbook.book.figures.axes import curve_colour, labelled_figure, legend
from rlbook.book.figures.learners import learners
from rlbook.envs.maximization_bias import START, MaximizationBias
from rlbook.functional.schedules import Constant
from rlbook.plots.colours import GREY, fraction_rgb
from rlbook.plots.figure import words

ACTIONS = 10
EPSILON = ALPHA = 0.1
LEFT, RIGHT = 0, ACTIONS - 1


def choose_of_two(
    memory: ControlMemory, settings: ControlSettings, rng: Generator, state: int
) -> int:
    """ε-greedy: in A between left and right, in B among all actions."""
    if state != START:
        return epsilon_greedy(memory, settings, rng, state)
    lead = memory.q[START][LEFT] - memory.q[START][RIGHT]
    if lead == 0.0 or rng.random() < settings.fixed_epsilon:
        return LEFT if rng.random() < 0.5 else RIGHT
    return LEFT if lead > 0.0 else RIGHT


class TwoActionQLearning(QLearning):
    """Q-learning with two actions in A."""

    choose = staticmethod(choose_of_two)


class TwoActionDoubleQLearning(DoubleQLearning):
    """Double Q-learning with two actions in A."""

    choose = staticmethod(choose_of_two)


LEARNERS: dict[str, type[ControlAgent]] = {
    "Q-learning": TwoActionQLearning,
    "Double Q-learning": TwoActionDoubleQLearning,
}


@dataclass(frozen=True)
class LeftShares:
    """Figure 6.5."""

    left: dict[str, np.ndarray]  # algorithm → [episodes]: share of runs that went left
    runs: int  # how many


def run(seed: int = 0, runs: int = 10_000, episodes: int = 300) -> LeftShares:
    """For each episode whether it went left, which takes two steps."""
    return LeftShares(
        {name: _share(kind, seed, runs, episodes) for name, kind in LEARNERS.items()}, runs
    )


def _share(kind: type[ControlAgent], seed: int, runs: int, episodes: int) -> np.ndarray:
    config = kind.Config(gamma=1.0, alpha=Constant(ALPHA), epsilon=Constant(EPSILON))
    count = np.zeros(episodes)
    for _, finished in learners(
        kind, config, MaximizationBias(ACTIONS).model(), episodes=episodes, runs=runs, seed=seed
    ):
        count += finished[:, 1] == 2
    return count / runs


def measurements(result: LeftShares) -> dict[str, float]:
    """Shares of runs that went left; at an episode, over the five up to it."""
    numbers: dict[str, float] = {}
    for name, left in result.left.items():
        numbers[f"{name}, at most"] = (
            float(np.convolve(left, np.full(5, 0.2), mode="valid").max())
            if len(left) > 4
            else float(left.max())
        )
        told = [episode for episode in (100, 200, 300) if episode <= len(left)]
        numbers |= {
            f"{name}, episode {episode}": float(left[episode - 5 : episode].mean())
            for episode in told
        }
    return numbers


def draw(result: LeftShares) -> Figure:
    """Both curves, and the optimum for ε = 0.1."""
    figure, axes = labelled_figure(6.6, 4.4, "Episodes", "% left actions from A")
    for place, (name, left) in enumerate(result.left.items()):
        axes.plot(
            np.arange(1, len(left) + 1),
            100 * left,
            color=curve_colour(place),
            linewidth=1.5,
            label=name,
        )
    episodes = len(result.left["Q-learning"])
    axes.axhline(100 * EPSILON / 2, color=fraction_rgb(GREY), linestyle=":", linewidth=1.5)
    axes.text(
        episodes, 100 * EPSILON / 2 - 1.2, "optimal", ha="right", va="top", **words(fontsize=9)
    )
    axes.set(
        xlim=(1, episodes),
        xticks=[1, *range(100, episodes + 1, 100)],
        ylim=(0, 100),
        yticks=[0, 5, 25, 50, 75, 100],
        yticklabels=["0", "5 %", "25 %", "50 %", "75 %", "100 %"],
    )
    legend(axes, loc="upper right")
    return figure
