"""Bounds on V's distance from the fixed point of a Bellman operator, from a sweep's change of V.

For γ < 1 every sweep V → V' proves

    V' + γ l / (1 - γ) ≤ V* ≤ V' + γ h / (1 - γ)

where l and h are the smallest and the largest change of a value, with 0 counted among the changes
if episodes can end. For γ = 1 no sweep proves such a bound; the error is then estimated as the sum
of the remaining changes, assuming that they keep shrinking as in the last two sweeps.

Source: MacQueen 1966, doi:10.1016/0022-247X(66)90060-9; Puterman 1994, theorem 6.6.3.
"""

from __future__ import annotations

import math

import numpy as np

from rlbook.agent import Metrics, State
from rlbook.algorithms.planning.greedy import TIE

EPS = 2.0**-52
"""Relative size of rounding in float64."""


def half_width(low: float, high: float, gamma: float) -> float:
    """Half the width of the interval that contains V*: the error of its midpoint, in reward units.
    γ < 1."""
    return gamma / (1 - gamma) * (high - low) / 2


def shift_to_middle(low: float, high: float, gamma: float) -> float:
    """The shift from V' to the middle of the interval, in reward units; 0 for γ = 1."""
    return gamma / (1 - gamma) * (low + high) / 2 if gamma < 1 else 0.0


def from_largest_change(change: float, gamma: float) -> float:
    """γ / (1 - γ) · max |V' - V|: the bound that holds for sweeps in place too. γ < 1."""
    return gamma / (1 - gamma) * change


def extrapolate(change: float, last_change: float, apart: int = 1) -> float:
    """The sum of the changes of later sweeps if they keep shrinking at this rate; ∞ if they grow.

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


def largest_absolute(numbers: np.ndarray) -> float:
    """The largest absolute value."""
    return max(float(numbers.max()), -float(numbers.min()))


class ErrorBound:
    """What the sweeps so far prove about the values and their greedy policy.

    Args:
        gamma: γ, in [0, 1].
    """

    def __init__(self, gamma: float) -> None:
        self.gamma = gamma
        self.in_place = False  # whether sweeps overwrite the values that they read
        self.can_end = True  # whether an episode may end
        self.change = self.error = math.inf
        self.travelled = 0.0  # the changes so far, added up: no |V| is larger
        self._extremes = (0.0, 0.0)
        self._loss = math.inf

    @property
    def centers_values(self) -> bool:
        """Whether V is finally moved to the middle of the interval."""
        return not (self.can_end or self.in_place)

    def record_sweep(self, low: float, high: float, *, apart: int = 1) -> None:
        """Records the extreme changes of a sweep, `apart` sweeps after the last one recorded."""
        if self.can_end:
            low, high = min(low, 0.0), max(high, 0.0)
        gamma, last_change, self.change = self.gamma, self.change, max(abs(low), abs(high))
        self.travelled += self.change
        if gamma == 1:
            self.error = extrapolate(self.change, last_change, apart)
            return
        self._extremes = (low, high)
        self.error = from_largest_change(self.change, gamma)
        if self.centers_values:
            self.error = half_width(low, high, gamma)
        self._loss = 2 * self.error if self.in_place else gamma * (high - low)

    def is_reached(self, tolerance: float, values: np.ndarray) -> bool:
        """Whether the error is within the tolerance, or no larger than the rounding of `values`
        [S]."""
        if self.error <= tolerance:
            return True
        return self.is_rounding(self.travelled) and self.is_rounding(largest_absolute(values))

    @property
    def shift(self) -> float:
        """The shift from V to the middle of the interval, if V is to be moved there; in reward
        units."""
        return shift_to_middle(*self._extremes, self.gamma) if self.centers_values else 0.0

    @property
    def policy_loss(self) -> float:
        """An upper bound on V* minus the greedy policy's value, in reward units; ∞ where
        unknown."""
        if self._loss == math.inf:
            return math.inf
        return (self._loss + self.tie_tolerance(self.travelled)) / (1 - self.gamma)

    def is_rounding(self, largest_value: float) -> bool:
        """Whether the last change is within float64 rounding of values with this largest
        magnitude."""
        return self.change <= 4 * EPS * largest_value

    def tie_tolerance(self, largest_value: float) -> float:
        """The difference up to which action values count as equal, in reward units.

        That is less than V is known by, and no more than `TIE` of the largest value.
        """
        usual = TIE * largest_value
        if self.gamma == 1:
            return usual
        return min(usual, max((1 - self.gamma) * self.error, 16 * EPS * largest_value))

    def metrics(self) -> Metrics:
        """`change`, and `bound` and `policy_loss_bound` where they are known, in reward units."""
        proved = {"bound": self.error, "policy_loss_bound": self.policy_loss}
        known = {name: value for name, value in proved.items() if math.isfinite(value)}
        return {"change": self.change} | known

    def state_dict(self) -> State:
        return {"change": self.change, "error": self.error, "travelled": self.travelled}

    def load_state_dict(self, state: State) -> None:
        self.change, self.error = float(state["change"]), float(state["error"])
        self.travelled = float(state["travelled"])
