"""How far V may be from the fixed point of a Bellman operator, told by how much one application of it changed V.

For γ < 1 every sweep V → V' proves V' + γ l / (1 - γ) ≤ V* ≤ V' + γ h / (1 - γ), where l and h are the smallest and the largest change
of a value, with 0 taken among them where episodes can end. For γ = 1 no sweep proves anything of the kind; then the error is estimated
by what the changes add up to if they go on shrinking as in the last two sweeps.

Source: MacQueen 1966, doi:10.1016/0022-247X(66)90060-9; Puterman 1994, theorem 6.6.3.
"""

from __future__ import annotations

import math

EPS = 2.0**-52
"""Relative size of rounding in float64."""


def half_width(low: float, high: float, gamma: float) -> float:
    """Half of the interval that V* is known to lie in, in reward units: the error of its middle at most. γ < 1."""
    return gamma / (1 - gamma) * (high - low) / 2


def middle(low: float, high: float, gamma: float) -> float:
    """From V' to the middle of the interval, in reward units; 0 for γ = 1."""
    return gamma / (1 - gamma) * (low + high) / 2 if gamma < 1 else 0.0


def from_largest_change(change: float, gamma: float) -> float:
    """γ / (1 - γ) · max |V' - V|: the bound that holds for sweeps in place too. γ < 1."""
    return gamma / (1 - gamma) * change


def extrapolated(change: float, last_change: float) -> float:
    """What the changes of later sweeps add up to if each is to the one before it as `change` to `last_change`; ∞ where they grow."""
    if change == 0:
        return 0.0
    if not change < last_change < math.inf:
        return math.inf
    rate = change / last_change
    return change * rate / (1 - rate)
