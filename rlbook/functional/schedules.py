"""Numbers that change while training goes on. A schedule maps progress, the fraction of the budget used so far, to a value.

A number alone is a constant schedule; in text, `linear(1.0, 0.05, 0.1)` goes from 1.0 to 0.05 over the first tenth and stays there.
"""

from __future__ import annotations

import math
import re
from dataclasses import astuple, dataclass
from typing import Any


def _check(name: str, value: Any, *, above: float = -math.inf, most: float = math.inf) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if number and above < value <= most:
        return
    allowed = "a finite number" if above == -math.inf else "a number above 0" if most == math.inf else "a number in (0, 1]"
    raise ValueError(f"{name} of a schedule must be {allowed}, got {value!r}")


def _used(progress: float, fraction: float) -> float:
    """How much of the way is done, in [0, 1]."""
    return min(max(progress / fraction, 0.0), 1.0)


@dataclass(frozen=True)
class Constant:
    """Always the same."""

    value: float                             # in the unit of what is scheduled

    def __post_init__(self) -> None:
        _check("value", self.value)

    def __call__(self, progress: float) -> float:
        return float(self.value)

    @property
    def range(self) -> tuple[float, float]:
        """The lowest and the highest value it takes."""
        return float(self.value), float(self.value)

    def __str__(self) -> str:
        return repr(float(self.value))


@dataclass(frozen=True)
class Linear:
    """In a straight line from start to end; from there on it stays."""

    start: float                             # value at progress 0
    end: float                               # value from progress = fraction on
    fraction: float = 1.0                    # share of the budget that the way takes, in (0, 1]

    def __post_init__(self) -> None:
        _check("start", self.start)
        _check("end", self.end)
        _check("fraction", self.fraction, above=0.0, most=1.0)

    def __call__(self, progress: float) -> float:
        used = _used(progress, self.fraction)
        return (1.0 - used) * self.start + used * self.end

    @property
    def range(self) -> tuple[float, float]:
        """The lowest and the highest value it takes."""
        return float(min(self.start, self.end)), float(max(self.start, self.end))

    def __str__(self) -> str:
        return _text("linear", self)


@dataclass(frozen=True)
class Exponential:
    """By the same factor in equal times, from start to end; from there on it stays. Both are above 0."""

    start: float                             # value at progress 0, > 0
    end: float                               # value from progress = fraction on, > 0
    fraction: float = 1.0                    # share of the budget that the way takes, in (0, 1]

    def __post_init__(self) -> None:
        _check("start", self.start, above=0.0)
        _check("end", self.end, above=0.0)
        _check("fraction", self.fraction, above=0.0, most=1.0)

    def __call__(self, progress: float) -> float:
        used = _used(progress, self.fraction)
        return float(self.start ** (1.0 - used) * self.end**used)

    @property
    def range(self) -> tuple[float, float]:
        """The lowest and the highest value it takes."""
        return float(min(self.start, self.end)), float(max(self.start, self.end))

    def __str__(self) -> str:
        return _text("exponential", self)


Schedule = Constant | Linear | Exponential
"""progress in [0, 1] → value."""

NAMES: dict[str, type[Constant] | type[Linear] | type[Exponential]] = {"constant": Constant, "linear": Linear, "exponential": Exponential}


def _text(name: str, schedule: Linear | Exponential) -> str:
    return f"{name}({', '.join(repr(float(number)) for number in astuple(schedule))})"


def parse_schedule(text: str | float | Schedule) -> Schedule:
    """A schedule from a number, from text such as "0.1" or "linear(1.0, 0.05, 0.1)", or from a schedule. `str` is the inverse.

    Raises:
        ValueError: in one sentence, if it is none of these.
    """
    if isinstance(text, Schedule):
        return text
    if not isinstance(text, str):
        return Constant(text)
    call = re.fullmatch(r"\s*(\w+)\s*\((.*)\)\s*", text)
    try:
        if call is None:
            return Constant(float(text))
        kind = NAMES[call[1].lower()]
        numbers = [float(number) for number in call[2].split(",")]
        if (len(numbers) == 1) != (kind is Constant) or len(numbers) > 3:
            raise KeyError
    except (ValueError, KeyError):
        forms = "a number, linear(START, END[, FRACTION]) or exponential(START, END[, FRACTION])"
        raise ValueError(f"a schedule must be {forms}, got {text!r}") from None
    return kind(*numbers)
