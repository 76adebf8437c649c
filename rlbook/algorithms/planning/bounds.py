"""How far V may be from the fixed point of a Bellman operator, told by how much one application of it changed V.

For γ < 1 every sweep V → V' proves V' + γ l / (1 - γ) ≤ V* ≤ V' + γ h / (1 - γ), where l and h are the smallest and the largest change
of a value, with 0 taken among them where episodes can end. For γ = 1 no sweep proves anything of the kind; then the error is estimated
by what the changes add up to if they go on shrinking as in the last two sweeps.

Source: MacQueen 1966, doi:10.1016/0022-247X(66)90060-9; Puterman 1994, theorem 6.6.3.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from rlbook.algorithms.planning.greedy import TIE

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


def extrapolated(change: float, last_change: float, apart: int = 1) -> float:
    """What the changes of later sweeps add up to if they go on shrinking; ∞ where they grow.

    Args:
        change, last_change: the largest change of a value in two sweeps, in reward units.
        apart: how many sweeps lie between the two.
    """
    if change == 0:
        return 0.0
    if not change < last_change < math.inf:
        return math.inf
    rate = (change / last_change) ** (1 / apart)
    return change * rate / (1 - rate) if rate < 1 else math.inf


class Stop(NamedTuple):
    """When sweeps that are made in one go have to come back: the error is within the tolerance, a change is next to nothing beside what
    the changes add up to, or the interval has shrunk too little since the last time that it was looked at."""

    factor: float                            # γ / (1 - γ)
    tolerance: float                         # in reward units
    travelled: float                         # the changes so far, added up
    sweeps: int                              # so far
    period: int                              # sweeps from one look to the next
    width: float                             # of the interval, at the last look
    shrinking: float                         # the interval is to have shrunk by this factor; ∞: no matter how


class ErrorBound:
    """What the sweeps so far prove about the values and about the policy that is greedy by them.

    Args:
        gamma: γ, in [0, 1].
        centred: whether V will be moved to the middle of the interval, which must not hold an end.
        in_place: whether sweeps overwrite the values that they read.
    """

    def __init__(self, gamma: float, *, centred: bool = False, in_place: bool = False) -> None:
        self.gamma, self.centred, self.in_place = gamma, centred, in_place
        self.change = self.error = math.inf
        self.travelled = 0.0                   # the changes so far, added up: no value is larger
        self._extremes = (0.0, 0.0)
        self._loss = math.inf

    def swept(self, low: float, high: float, *, apart: int = 1) -> None:
        """Takes in the extreme changes of a sweep, `apart` sweeps after the last one that was taken in."""
        gamma, last_change, self.change = self.gamma, self.change, max(-low, high)
        self.travelled += self.change
        if gamma == 1:
            self.error = extrapolated(self.change, last_change, apart)
            return
        self._extremes = (low, high)
        self.error = half_width(low, high, gamma) if self.centred else from_largest_change(self.change, gamma)
        self._loss = 2 * self.error if self.in_place else gamma * (high - low)

    @property
    def shift(self) -> float:
        """From V to the middle of the interval, where it is to be moved there; in reward units."""
        return middle(*self._extremes, self.gamma) if self.centred else 0.0

    @property
    def policy_loss(self) -> float:
        """V* minus the value of the greedy policy, at most, in reward units; ∞ where that is not known."""
        return (self._loss + self.tie(self.travelled)) / (1 - self.gamma) if self._loss < math.inf else math.inf

    def is_rounding(self, largest: float) -> bool:
        """Whether the last change is no more than float64 rounds values of which the largest is `largest`."""
        return self.change <= 4 * EPS * largest

    def tie(self, largest: float) -> float:
        """Action values that differ by no more, in reward units, count as equal: less than V is known by, and no more than `TIE`."""
        usual = TIE * max(1.0, largest)
        return usual if self.gamma == 1 else min(usual, max((1 - self.gamma) * self.error, 16 * EPS * largest))

    def metrics(self) -> dict[str, float]:
        """`change`, and what is known of `bound` and `policy_loss_bound`, in reward units."""
        proved = {"bound": self.error, "policy_loss_bound": self.policy_loss}
        return {"change": self.change} | {name: value for name, value in proved.items() if math.isfinite(value)}

    def state_dict(self) -> dict[str, Any]:
        return {"change": self.change, "error": self.error, "travelled": self.travelled}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.change, self.error, self.travelled = float(state["change"]), float(state["error"]), float(state["travelled"])
