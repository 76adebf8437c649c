"""Figure 9.10: one grid of wide tiles against fifty displaced ones, both with gradient Monte Carlo.

A tile of 200 states lets learning reach far, but alone it cannot tell any two of its states apart.
Fifty tilings, each displaced by 4 states against the one before, reach just as far and tell states
apart every 4 states.

Source: Sutton & Barto 2018, figure 9.10. The book averages 30 runs, here 4. Its step sizes are
0.0001 and 0.0001/50 a weight, which are α = 0.0001 here for both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from rlbook.book.figures.axes import curve_colour, labelled_figure, legend
from rlbook.book.figures.thousand_states import (
    MONTE_CARLO,
    exact_values,
    learned_values,
    learner,
    state_distribution,
    walk_model,
    walks,
)

TILINGS = {"one tiling": 1, "50 tilings": 50}


@dataclass(frozen=True)
class TilingErrors:
    """Figure 9.10."""

    # which tilings → [runs, episodes]: √VE after each episode, in reward units
    errors: dict[str, np.ndarray]
    least: float  # √VE that one tiling has at the least


def run(seed: int = 0, runs: int = 4, episodes: int = 5_000, alpha: float = 1e-4) -> TilingErrors:
    """Tiles of 200 states."""
    model, time = walk_model(), state_distribution()
    exact, errors = exact_values(model), {name: np.empty((runs, episodes)) for name in TILINGS}
    for index in range(runs):
        agents = {
            name: learner(
                model, features="tiles", tilings=tilings, bins=5, alpha=alpha, n=MONTE_CARLO
            )
            for name, tilings in TILINGS.items()
        }
        for episode, steps in enumerate(walks(model, seed + index, episodes)):
            for name, agent in agents.items():
                errors[name][index, episode] = np.sqrt(
                    time @ (learned_values(agent, steps) - exact) ** 2
                )
    groups = (time * exact).reshape(5, -1).sum(axis=1) / time.reshape(5, -1).sum(axis=1)
    return TilingErrors(errors, float(np.sqrt(time @ (np.repeat(groups, 200) - exact) ** 2)))


def measurements(result: TilingErrors) -> dict[str, float]:
    """√VE at the end, the mean over the last 100 episodes, and the smallest possible error of one
    tiling."""
    last = {
        f"{name}, √VE, last 100 episodes": float(errors[:, -100:].mean())
        for name, errors in result.errors.items()
    }
    return last | {"one tiling, √VE, least possible": result.least}


def draw(result: TilingErrors) -> Figure:
    """A curve for each."""
    figure, axes = labelled_figure(6.6, 4.6, "Episodes", "√VE")
    for place, (name, errors) in enumerate(result.errors.items()):
        axes.plot(
            np.arange(1, errors.shape[1] + 1),
            errors.mean(axis=0),
            color=curve_colour(place),
            linewidth=1.4,
            label=name,
        )
    axes.set(ylim=(0, 0.5), xlim=(0, None))
    legend(axes, loc="upper right")
    return figure
