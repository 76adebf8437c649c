"""Figure 13.2: REINFORCE on the short corridor without and with a baseline, γ = 1, 100 runs.

Without a baseline every return is negative, so every action that was taken is made less likely, and
only the differences teach anything. The baseline is one number that follows the mean return, with α
= 2⁻⁶; then the policy's steps may be sixteen times as large, 2⁻⁹.

Source: Sutton & Barto 2018, section 13.4, figure 13.2. As in figure 13.1, the first policy is ours.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from rlbook.book.figures.corridor import CorridorReturns, numbers, picture, play

ALPHAS = {"with baseline, α = 2⁻⁹": (2.0**-9, 2.0**-6), "without, α = 2⁻¹³": (2.0**-13, None)}


def run(seed: int = 0, runs: int = 100, episodes: int = 1_000) -> CorridorReturns:
    """Two learners; the book's sizes."""
    return play(ALPHAS, seed, runs, episodes)


def measurements(result: CorridorReturns) -> dict[str, float]:
    """Mean returns early and late."""
    return numbers(result)


def draw(result: CorridorReturns) -> Figure:
    """A curve for each learner."""
    return picture(result, list(ALPHAS))
