"""Figure 9.1: gradient Monte Carlo with ten groups of states: a step function fitted to a thousand
values.

Within a group all states have one value, near the mean of the true ones, weighted by the time spent
in each. That is why the outermost groups bend towards the middle: in the leftmost one, walks are
more often at its right end.

Source: Sutton & Barto 2018, example 9.1, figure 9.1. The book's α is 2 · 10⁻⁵ over 100 000
episodes; here 2 · 10⁻⁴ over 10 000.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from rlbook.book.figures.axes import curve_colour, labelled_figure, legend
from rlbook.book.figures.thousand_states import (
    LENGTH,
    MONTE_CARLO,
    exact_values,
    learned_values,
    learner,
    state_distribution,
    walk_model,
    walks,
)
from rlbook.plots.colours import GREY, fraction_rgb
from rlbook.plots.figure import words

GROUPS = 10


@dataclass(frozen=True)
class StateAggregationValues:
    """Figure 9.1, for states 1 to 1000."""

    exact: np.ndarray  # [1000], V in reward units
    values: np.ndarray  # [1000], what was learned
    time: np.ndarray  # [1000], share of the steps spent in each state


def run(seed: int = 0, episodes: int = 10_000, alpha: float = 2e-4) -> StateAggregationValues:
    """One run of Monte Carlo with state aggregation."""
    model = walk_model()
    agent = learner(model, features="aggregate", bins=GROUPS, alpha=alpha, n=MONTE_CARLO)
    for steps in walks(model, seed, episodes):
        values = learned_values(agent, steps)
    return StateAggregationValues(exact_values(model), values, state_distribution())


def monte_carlo_limit(result: StateAggregationValues) -> np.ndarray:
    """[10]: the limit of Monte Carlo, the mean of V in each group weighted by the time spent in
    each state."""
    weighted = (result.time * result.exact).reshape(GROUPS, -1).sum(axis=1)
    return weighted / result.time.reshape(GROUPS, -1).sum(axis=1)


def measurements(result: StateAggregationValues) -> dict[str, float]:
    """The outermost groups, beside the means they tend to, and √VE, beside the least possible."""
    groups, limits = result.values.reshape(GROUPS, -1)[:, 0], monte_carlo_limit(result)
    each = {
        f"√VE, {name}": float(np.sqrt(result.time @ (np.repeat(heights, 100) - result.exact) ** 2))
        for name, heights in (("learned", groups), ("least possible", limits))
    }
    return {
        "V of the first group": float(groups[0]),
        "V of the first group, limit": float(limits[0]),
        "V of the last group": float(groups[-1]),
        "V of the last group, limit": float(limits[-1]),
        **each,
    }


def draw(result: StateAggregationValues) -> Figure:
    """Values above, the time spent in each state below."""
    figure, axes = labelled_figure(7.0, 4.6, "State", "Value")
    states = np.arange(1, LENGTH + 1)
    axes.plot(states, result.exact, color=curve_colour(1), linewidth=1.5, label="true value")
    axes.plot(
        states,
        result.values,
        color=curve_colour(0),
        linewidth=1.5,
        label="gradient Monte Carlo, 10 groups",
    )
    axes.set(ylim=(-1.05, 1.05), xlim=(1, LENGTH))
    below = axes.twinx()
    below.fill_between(states, result.time, color=fraction_rgb(GREY), alpha=0.35, linewidth=0)
    below.set_ylim(0, 4 * result.time.max())
    below.set_ylabel("Share of the steps (grey)", **words(fontsize=10))
    below.spines[["top", "left", "bottom"]].set_visible(False)
    below.tick_params(labelsize=8)
    legend(axes, loc="upper left")
    return figure
