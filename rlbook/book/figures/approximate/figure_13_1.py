"""Figure 13.1: REINFORCE on the short corridor with three step sizes, γ = 1, 100 runs.

Each step of an episode moves the preferences by α times the return from there on. For the first
step of an episode this return is around -80 at first, and never above -3. The largest step size
takes such long strides that some runs end up near always doing the same, where an episode hardly
ends: here it is cut after 1000 steps.

Source: Sutton & Barto 2018, section 13.3, figure 13.1. The book does not say how the policy begins;
here it goes right with probability 0.05.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from rlbook.book.figures.corridor import CorridorReturns, numbers, picture, play

ALPHAS = {"α = 2⁻¹³": (2.0**-13, None), "α = 2⁻¹⁴": (2.0**-14, None), "α = 2⁻¹²": (2.0**-12, None)}


def run(seed: int = 0, runs: int = 100, episodes: int = 1_000) -> CorridorReturns:
    """Three learners; the book's sizes."""
    return play(ALPHAS, seed, runs, episodes)


def measurements(result: CorridorReturns) -> dict[str, float]:
    """Mean returns early and late."""
    return numbers(result)


def draw(result: CorridorReturns) -> Figure:
    """A curve for each step size."""
    return picture(result, list(ALPHAS))
