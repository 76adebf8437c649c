"""The imitation ladder on the slippery maze: the returns of a clone and of DAgger from equally many
labels, beside the exact expert.

Every fifth move goes sideways, so that even the expert is carried to cells off its way. A recording
shows few of them; DAgger asks the expert in the cells that it comes to itself. The maze has a
model, so each greedy policy's expected return within the time limit is computed from the
distribution of its states, step by step, and nothing is sampled.

Source: Ross, Gordon & Bagnell 2011, arXiv:1011.0686, section 5; the maze is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

import rlbook
from rlbook.algorithms.planning.policy_iteration import PolicyIteration
from rlbook.book.experiments.compounding_errors import Array, expected_returns
from rlbook.registry import model_of

LABELS = (16, 64, 256, 1024)
LIMIT = 100  # steps of an episode
FITS, UPDATES = 8, 504  # of DAgger, and minibatches of either


@dataclass(frozen=True)
class LadderReturns:
    """Expected returns of greedy policies, undiscounted, in reward units."""

    labels: NDArray[np.int64]  # [K]
    clone: Array  # [R, K]
    dagger: Array  # [R, K]
    expert: float
    chance: float  # of moves at random


def run(seeds: int = 3, first: int = 0, labels: tuple[int, ...] = LABELS) -> LadderReturns:
    """Trains both learners on each number of labels.

    Args:
        seeds: R.
        first: the first of the seeds.
        labels: how many states the expert labels for either; multiples of 8, or DAgger takes more
            gradient steps than the clone.
    """
    model = model_of(rlbook.make("Maze-v0", slip=0.2))
    cells, actions = model.rewards.shape

    def exact_return(policy: NDArray[np.number]) -> float:
        return float(expected_returns(model, policy, LIMIT)[-1])

    def learned_return(algorithm: str, seed: int, **settings: Any) -> float:
        agent = rlbook.train(
            algorithm, "Maze-v0", env_kwargs={"slip": 0.2}, seed=seed, eval_every=0, **settings
        ).agent
        return exact_return(agent.act(np.eye(cells, dtype=np.float32), explore=False))

    clone, dagger = np.empty((2, seeds, len(labels)))
    for row, place in np.ndindex(clone.shape):
        count, seed = labels[place], first + row
        clone[row, place] = learned_return(
            "behavior_cloning", seed, demonstrations=count, steps=UPDATES
        )
        dagger[row, place] = learned_return(
            "dagger",
            seed,
            steps=count,
            num_envs=1,
            rollout_steps=count // FITS,
            gradient_steps=UPDATES // FITS,
        )
    best = PolicyIteration.solve(model, gamma=0.99).greedy_policy()
    return LadderReturns(
        np.array(labels),
        clone,
        dagger,
        exact_return(best),
        exact_return(np.full((cells, actions), 1 / actions)),
    )


def measurements(ladder: LadderReturns) -> dict[str, float]:
    """Medians over the seeds."""
    of_clones, of_dagger = (np.median(found, axis=0) for found in (ladder.clone, ladder.dagger))
    each = {
        f"{count} labels: {who}": float(found[place])
        for place, count in enumerate(ladder.labels)
        for who, found in (("clone", of_clones), ("DAgger", of_dagger))
    }
    return each | {"expert": ladder.expert, "moves at random": ladder.chance}


def draw(ladder: LadderReturns) -> Figure:
    """How much each learner loses against the expert, over the number of labels; at 0 it is as
    good."""
    from rlbook.book.figures.axes import curve_colour, draw_median, labelled_figure, legend

    figure, axes = labelled_figure(
        6.4, 4.0, "states that the expert labelled", "return lost to the expert, in reward units"
    )
    for place, (label, found) in enumerate(
        (("behaviour cloning", ladder.clone), ("DAgger", ladder.dagger))
    ):
        lost = ladder.expert - found
        dots = {"marker": "o", "markersize": 4}
        draw_median(axes, ladder.labels, lost, curve_colour(place), label, **dots)
    axes.axhline(
        ladder.expert - ladder.chance,
        color=curve_colour(4),
        linestyle="--",
        linewidth=1.2,
        label="moves at random",
    )
    axes.set_xscale("log", base=2)
    axes.set_xticks(ladder.labels, [str(each) for each in ladder.labels])
    axes.set_yscale("symlog", linthresh=1)
    axes.set(
        yticks=[0, 1, 10, 100, 1000], yticklabels=["0", "1", "10", "100", "1000"], ylim=(-0.1, 5000)
    )
    legend(axes, "upper right")
    return figure
