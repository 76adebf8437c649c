"""The cost of mistakes over a horizon of T steps: T² for a clone, T for DAgger.

A road, and a field beside it. On the road each step shows one of many sights, common ones and rare
ones, and each sight calls for one of four actions. Any other action leads into the field, three
lanes deep. There nothing but a fifth action, "back", leads towards the road, a lane a step. A step
in the field costs 1. The expert never leaves the road, so its recording says nothing about the
field.

    costs = run(seeds=5)                         both learners, with as many labels and as many gradient steps
    costs.clone                                  [R, T], what the greedy clones are expected to cost
    costs.exponents(costs.clone)                 [R], p of cost ~ T^p

Both learners are the library's own, and err on the road because rare sights are missing in their
data. What they cost is computed from the distribution of their states, step by step; nothing is
sampled.

Source: Ross & Bagnell 2010, AISTATS, theorem 2.1; Ross, Gordon & Bagnell 2011, arXiv:1011.0686,
theorem 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

import rlbook
from rlbook.agent import Agent
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.seeding import rng_for

Array = NDArray[np.float64]

SIGHTS, DEPTH = 256, 3
BACK = 4
HORIZONS = (8, 16, 32, 64, 128)


class Road(NamedTuple):
    """The model and the expert's actions. States: the sights, the field's lanes outwards from the
    road, and an end."""

    model: TabularMDP
    right: NDArray[np.int64]  # [S], the expert's action


def road(seed: int = 0, ends: float = 0.01) -> Road:
    """The road.

    Args:
        seed: of the action that each sight calls for.
        ends: probability that a step is the episode's last, whatever is done.
    """
    states = SIGHTS + DEPTH + 1
    shown = np.zeros(states)
    # the second sight half as often as the first, and so on
    shown[:SIGHTS] = 1 / np.arange(1, SIGHTS + 1)
    shown /= shown.sum()
    right = np.full(states, BACK)
    right[:SIGHTS] = rng_for(seed, "environment").integers(BACK, size=SIGHTS)
    lost = np.eye(states)[SIGHTS + DEPTH - 1]
    transitions = np.tile((1 - ends) * lost, (states, BACK + 1, 1))
    for state in range(states - 1):
        nearer = shown if state <= SIGHTS else np.eye(states)[state - 1]
        transitions[state, right[state]] = (1 - ends) * nearer
    transitions[:, :, -1] = ends
    rewards = np.zeros((states, BACK + 1))
    rewards[SIGHTS:-1] = -1.0
    return Road(
        TabularMDP.from_arrays(
            transitions, rewards, terminal=np.arange(states) == states - 1, initial=shown
        ),
        right,
    )


def expected_returns(model: TabularMDP, policy: NDArray[np.number], steps: int) -> Array:
    """The undiscounted expected return of a policy, [S] or [S, A], within 1, 2, …, `steps` steps:
    [steps], in reward units."""
    chain, rewards = model.chain(policy)
    visits, paid = model.initial, []
    for _ in range(steps):
        paid.append(visits @ rewards)
        visits = visits @ chain
    return np.cumsum(paid)


def mistake_rate(
    road: Road, policy: NDArray[np.int64], acting: NDArray[np.int64], steps: int
) -> float:
    """The share of mistakes of `policy` [S] in the states that `acting` [S] visits within `steps`
    steps."""
    chain, _ = road.model.chain(acting)
    visits, wrong, total = road.model.initial, policy != road.right, 0.0
    for _ in range(steps):
        total += float(visits[wrong].sum())
        visits = visits @ chain
    return total / steps


@dataclass(frozen=True)
class Costs:
    """The costs of R learners of each kind, evaluated at K horizons."""

    horizons: NDArray[np.int64]  # [K], T in steps
    clone: Array  # [R, K], J(clone) - J(expert) in T steps
    dagger: Array  # [R, K]
    clone_mistakes: Array  # [R], ε: share of mistakes in the expert's states
    dagger_mistakes: Array  # [R, K], ε: share of mistakes in its own states

    def exponents(self, costs: Array) -> Array:
        """p of cost ~ T^p, by least squares on logarithms: [R, K] → [R]; NaN for a learner without
        a mistake, which costs 0."""
        exponents, costly = np.full(len(costs), np.nan), (costs > 0).all(axis=1)
        if costly.any():
            exponents[costly] = np.polyfit(np.log(self.horizons), np.log(costs[costly]).T, 1)[0]
        return exponents


def run(seeds: int = 5, first: int = 0, labels: int = 4_000) -> Costs:
    """Trains a clone and DAgger on equally many labels and gradient steps, for several seeds.

    Args:
        seeds: R.
        first: the first of the seeds.
        labels: how many states the expert labels for either; a multiple of 80, or the two differ
            in labels or gradient steps.
    """
    found = [_costs(seed, labels) for seed in range(first, first + seeds)]
    return Costs(np.array(HORIZONS), *map(np.array, zip(*found, strict=True)))


def _costs(seed: int, labels: int) -> tuple[Array, Array, float, Array]:
    learned, judged = road(seed), road(seed, ends=0.0)
    fits, updates = 10, labels // 4
    clone = greedy_actions(
        rlbook.train(
            "behavior_cloning",
            learned.model,
            demonstrations=labels,
            steps=updates,
            seed=seed,
            eval_every=0,
        ).agent
    )
    dagger = greedy_actions(
        rlbook.train(
            "dagger",
            learned.model,
            steps=labels,
            num_envs=8,
            rollout_steps=labels // (8 * fits),
            gradient_steps=updates // fits,
            seed=seed,
            eval_every=0,
        ).agent
    )
    at = np.array(HORIZONS)
    costs = [
        -expected_returns(judged.model, policy, int(at[-1]))[at - 1] for policy in (clone, dagger)
    ]
    own = [mistake_rate(judged, dagger, dagger, int(steps)) for steps in at]
    return costs[0], costs[1], mistake_rate(judged, clone, judged.right, 1), np.array(own)


def greedy_actions(agent: Agent) -> NDArray[np.int64]:
    """The greedy action of an agent with one-hot states in each state: [S]."""
    return agent.act(np.eye(SIGHTS + DEPTH + 1, dtype=np.float32), explore=False)


def measurements(costs: Costs) -> dict[str, float]:
    """The exponents of cost ~ T^p and the mistake rates behind them: medians over the seeds."""
    last = costs.horizons[-1]
    return {
        "clone: mistakes in the expert's states, ε": float(np.median(costs.clone_mistakes)),
        "clone: p": float(np.median(costs.exponents(costs.clone))),
        f"clone: cost of {last} steps": float(np.median(costs.clone[:, -1])),
        "DAgger: mistakes in its own states, ε": float(np.median(costs.dagger_mistakes)),
        "DAgger: p": float(np.median(costs.exponents(costs.dagger))),
        f"DAgger: cost of {last} steps": float(np.median(costs.dagger[:, -1])),
    }


def draw(costs: Costs) -> Figure:
    """Both costs over the horizon, on logarithmic axes, with their upper bounds."""
    from rlbook.book.figures.axes import curve_colour, draw_median, labelled_figure, legend

    figure, axes = labelled_figure(6.4, 4.0, "horizon T, in steps", "cost, in steps in the field")
    at = costs.horizons
    bounds = (
        np.median(costs.clone_mistakes) * at**2,
        DEPTH * np.median(costs.dagger_mistakes, axis=0) * at,
    )
    named = ("behaviour cloning", costs.clone, "ε T²"), ("DAgger", costs.dagger, "u ε T, u = 3")
    for place, ((label, found, bound), limit) in enumerate(zip(named, bounds, strict=True)):
        draw_median(axes, at, found, curve_colour(place), label, marker="o", markersize=4)
        axes.plot(
            at,
            limit,
            color=curve_colour(place),
            linestyle="--",
            linewidth=1.2,
            label=f"bound {bound}",
        )
    axes.set_xscale("log", base=2)
    axes.set(yscale="log", xticks=at, xticklabels=[str(each) for each in at])
    legend(axes, "upper left")
    return figure
