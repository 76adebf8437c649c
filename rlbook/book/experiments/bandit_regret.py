"""The regret of three bandit algorithms on machines with rewards 0 or 1, beside the theoretical
bounds.

    found = run(runs=500)
    found.regret["Thompson"]          # [runs, times], the reward missed up to each of some times

Regret counts the means of the machines that were pulled, not the rewards, so that luck with the
rewards does not enter. ε-greedy pulls a random machine at a constant rate, so its regret grows in
proportion to time; that of UCB and of Thompson sampling grows with ln t, and no method that is good
at all such problems can in the long run have a smaller factor than that of Lai and Robbins.

Source: Auer et al. 2002, doi:10.1023/A:1013689704352; Agrawal & Goyal 2012, arXiv:1111.1797; Lai &
Robbins 1985, doi:10.1016/0196-8858(85)90002-8.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from rlbook.algorithms.tabular.bandit import BanditConfig, choose, empty_memory, update
from rlbook.functional.bandits import lai_robbins_rate
from rlbook.functional.schedules import Constant
from rlbook.seeding import rng_for

Array = NDArray[np.float64]

MEANS = np.array([0.5, 0.4, 0.4, 0.3, 0.2])  # probabilities of a 1
LEARNERS = {
    "ε-greedy, ε = 0.1": BanditConfig(epsilon=Constant(0.1)),
    "UCB, c = √2": BanditConfig(method="ucb", confidence=2.0**0.5),
    "Thompson": BanditConfig(method="thompson", prior="beta"),
}
STEPS = 10_000
POINTS = 60  # times at which the regret is noted


@dataclass(frozen=True)
class BanditRegret:
    """Regret over time, by learner, in reward units."""

    times: NDArray[np.int64]  # [K]
    regret: dict[str, Array]  # [runs, K]
    ucb_bound: Array  # [K]: what the regret of UCB is at most
    lower_rate: float  # per ln t, in the long run at least


def run(seed: int = 0, runs: int = 500, *, steps: int = STEPS) -> BanditRegret:
    """Runs all learners on the same machines, with the same draws of the rewards."""
    times = np.unique(np.geomspace(1, steps, POINTS).round().astype(np.int64))
    gaps = MEANS.max() - MEANS
    worse = gaps[gaps > 0]
    bound = (8 * np.log(times)[:, None] / worse + (1 + np.pi**2 / 3) * worse).sum(axis=1)
    return BanditRegret(
        times,
        {
            name: missed_reward(config, seed, runs, steps)[:, times - 1]
            for name, config in LEARNERS.items()
        },
        bound,
        lai_robbins_rate(MEANS),
    )


def missed_reward(config: BanditConfig, seed: int, runs: int, steps: int) -> Array:
    """The regret of `runs` learners after each step: [runs, steps], in reward units."""
    exploration, coins = rng_for(seed, "exploration"), rng_for(seed, "environment")
    memory = empty_memory((runs, len(MEANS)), config)
    missed = np.empty((runs, steps))
    for step in range(steps):
        action = choose(memory, config, exploration, config.epsilon(0.0))
        update(memory, config, action, (coins.random(runs) < MEANS[action]).astype(np.float64))
        missed[:, step] = MEANS.max() - MEANS[action]
    return missed.cumsum(axis=1)


def growth(result: BanditRegret) -> dict[str, float]:
    """How much the mean regret grew per unit of ln t in the last decade of time, by learner; none
    where there is a single time."""
    start = int(np.searchsorted(result.times, result.times[-1] / 10))
    if start == len(result.times) - 1:
        return {}
    span = np.log(result.times[-1] / result.times[start])
    return {
        name: float((regret[:, -1] - regret[:, start]).mean() / span)
        for name, regret in result.regret.items()
    }


def measurements(result: BanditRegret) -> dict[str, float]:
    """The mean regret at the end, its growth, and the two bounds."""
    return (
        {
            f"{name}: regret after {result.times[-1]:,} pulls": float(regret[:, -1].mean())
            for name, regret in result.regret.items()
        }
        | {f"{name}: growth per ln t": value for name, value in growth(result).items()}
        | {"least growth per ln t": result.lower_rate, "bound of UCB": float(result.ucb_bound[-1])}
    )


def draw(result: BanditRegret) -> Figure:
    """Mean regret over the logarithm of time, with its middle 80 % as a band."""
    from rlbook.book.figures.axes import curve_colour, labelled_figure, legend

    figure, axes = labelled_figure(6.6, 4.2, "pulls", "regret, in reward units")
    for place, (name, regret) in enumerate(result.regret.items()):
        colour = curve_colour(place)
        axes.plot(result.times, regret.mean(axis=0), color=colour, label=name)
        axes.fill_between(
            result.times, *np.quantile(regret, (0.1, 0.9), axis=0), color=colour, alpha=0.15, lw=0
        )
    late = result.times >= 100
    slope = result.lower_rate * np.log(result.times[late] / 100)
    axes.plot(result.times[late], slope, "--", color="0.4", label="least growth, Lai and Robbins")
    axes.set(
        xscale="log",
        xlim=(1, result.times[-1]),
        ylim=(0, 1.1 * max(regret[:, -1].mean() for regret in result.regret.values())),
    )
    legend(axes, "upper left")
    return figure
