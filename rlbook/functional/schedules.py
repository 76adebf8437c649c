"""Schedules for hyper-parameters that change during training.

A schedule maps progress, the fraction of the budget used so far, to a value. A number alone is a
constant schedule. In text, `linear(1.0, 0.05, 0.1)` goes from 1.0 to 0.05 over the first tenth of
the budget and stays there. `inverse(1.0)` follows a count in place of the budget: with step size
1/N, an entry that was updated N times is the average of N targets.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields, replace
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar, NamedTuple

CONSTANT, LINEAR, EXPONENTIAL, INVERSE, COSINE = range(5)


class ScheduleNumbers(NamedTuple):
    """A schedule as plain numbers, for compiled code."""

    kind: int  # CONSTANT, LINEAR, EXPONENTIAL, INVERSE or COSINE
    start: float
    end: float = 0.0  # of an inverse schedule: the power
    fraction: float = 1.0
    warmup: float = 0.0


def scheduled_value(numbers: ScheduleNumbers, progress: float, count: int) -> float:
    """The value of any schedule at a given progress.

    Args:
        numbers: the schedule.
        progress: the fraction of the budget used so far, in [0, 1].
        count: at least 1; only an inverse schedule reads it.

    Source: inverse: Robbins & Monro 1951, doi:10.1214/aoms/1177729586; cosine: Loshchilov &
    Hutter 2017, arXiv:1608.03983, eq. 5.
    """
    if numbers.kind == CONSTANT:
        return numbers.start
    if numbers.kind == INVERSE:
        return numbers.start / float(count) ** numbers.end
    if progress < numbers.warmup:
        return numbers.start * progress / numbers.warmup
    used = min(max((progress - numbers.warmup) / (numbers.fraction - numbers.warmup), 0.0), 1.0)
    if numbers.kind == COSINE:
        return numbers.end + (numbers.start - numbers.end) * (1.0 + math.cos(math.pi * used)) / 2.0
    if numbers.kind == LINEAR:
        return (1.0 - used) * numbers.start + used * numbers.end
    return numbers.start ** (1.0 - used) * numbers.end**used


def _check(name: str, value: float, *, above: float = -math.inf, most: float = math.inf) -> None:
    number = isinstance(value, Real) and not isinstance(value, bool)
    if number and math.isfinite(value) and above < value <= most:
        return
    allowed = "a number above 0" if most == math.inf else "a number in (0, 1]"
    if above == -math.inf:
        allowed = "a finite number"
    raise ValueError(f"{name} of a schedule must be {allowed}, got {value!r}")


@dataclass(frozen=True)
class _NumberedSchedule:
    """The common base of schedules. Their fields are numbers, in the order of `ScheduleNumbers`."""

    kind: ClassVar[int]

    def __call__(self, progress: float, count: int = 1) -> float:
        """The value at this progress; `count` is used by an inverse schedule."""
        return scheduled_value(self.numbers, progress, count)

    @cached_property
    def numbers(self) -> ScheduleNumbers:
        """The schedule as plain numbers, for compiled code."""
        return ScheduleNumbers(
            self.kind, *(float(getattr(self, item.name)) for item in fields(self))
        )

    @property
    def range(self) -> tuple[float, float]:
        """The lowest and the highest value of the schedule, after a warm-up."""
        ends = self.numbers.start, self.numbers.end
        return min(ends), max(ends)

    def __str__(self) -> str:
        numbers = ", ".join(repr(float(getattr(self, item.name))) for item in fields(self))
        return f"{type(self).__name__.lower()}({numbers})"


@dataclass(frozen=True)
class Constant(_NumberedSchedule):
    """The same value throughout training."""

    kind = CONSTANT
    value: float  # in the unit of what is scheduled

    def __post_init__(self) -> None:
        _check("value", self.value)

    @property
    def range(self) -> tuple[float, float]:
        return float(self.value), float(self.value)

    def __str__(self) -> str:
        return repr(float(self.value))


@dataclass(frozen=True)
class Linear(_NumberedSchedule):
    """Linear interpolation from start to end, constant afterwards."""

    kind = LINEAR
    start: float  # value at progress 0
    end: float  # value from progress = fraction on
    fraction: float = 1.0  # share of the budget that the way takes, in (0, 1]

    def __post_init__(self) -> None:
        _check("start", self.start)
        _check("end", self.end)
        _check("fraction", self.fraction, above=0.0, most=1.0)


@dataclass(frozen=True)
class Exponential(_NumberedSchedule):
    """Geometric interpolation from start to end, constant afterwards; both must be positive."""

    kind = EXPONENTIAL
    start: float  # value at progress 0, > 0
    end: float  # value from progress = fraction on, > 0
    fraction: float = 1.0  # share of the budget that the way takes, in (0, 1]

    def __post_init__(self) -> None:
        _check("start", self.start, above=0.0)
        _check("end", self.end, above=0.0)
        _check("fraction", self.fraction, above=0.0, most=1.0)


@dataclass(frozen=True)
class Cosine(_NumberedSchedule):
    """Cosine annealing from start to end, constant afterwards.

    With a warm-up, a straight line from 0 to start comes first.
    """

    kind = COSINE
    start: float  # value after the warm-up
    end: float = 0.0  # value from progress = fraction on
    # share of the budget until it reaches the end, in (0, 1]
    fraction: float = 1.0
    # share of the budget in which it rises from 0 to start, in [0, fraction)
    warmup: float = 0.0

    def __post_init__(self) -> None:
        _check("start", self.start)
        _check("end", self.end)
        _check("fraction", self.fraction, above=0.0, most=1.0)
        _check("warmup", self.warmup)
        if not 0.0 <= self.warmup < self.fraction:
            raise ValueError(
                f"warmup of a schedule must be a number in [0, {self.fraction:g}), "
                f"got {self.warmup!r}"
            )


@dataclass(frozen=True)
class Inverse(_NumberedSchedule):
    """Inverse power decay: start / N^power, where N counts from 1.

    Of a step size, N counts the updates of this entry; of ε, the visits of this state. Step
    sizes with power in (0.5, 1] have an infinite sum and a finite sum of squares, which is what
    convergence needs (Robbins & Monro 1951, doi:10.1214/aoms/1177729586).
    """

    kind = INVERSE
    start: float  # value at N = 1, > 0
    power: float = 1.0  # how fast it falls, in (0, 1]

    def __post_init__(self) -> None:
        _check("start", self.start, above=0.0)
        _check("power", self.power, above=0.0, most=1.0)

    @property
    def range(self) -> tuple[float, float]:
        """The smallest positive number as the lower bound, and the highest value."""
        return math.ulp(0.0), float(self.start)


Schedule = Constant | Linear | Exponential | Cosine | Inverse
"""progress in [0, 1] → value; `Inverse` follows a count instead."""

NAMES: dict[str, Any] = {
    "constant": Constant,
    "linear": Linear,
    "exponential": Exponential,
    "cosine": Cosine,
    "inverse": Inverse,
}


def parse_schedule(text: str | float | Schedule) -> Schedule:
    """Parses a schedule from a number or from text such as "linear(1.0, 0.05, 0.1)"; a schedule is
    returned unchanged.

    `str` is the inverse.

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
        *parts, last = call[2].split(",")
        named = re.fullmatch(r"\s*warmup\s*=(.*)", last) if kind is Cosine else None
        numbers = [float(number) for number in (parts if named else [*parts, last])]
        warmup = {"warmup": float(named[1])} if named else {}
        least = 2 if kind in (Linear, Exponential) else 1
        if len(numbers) < least or len(numbers) + len(warmup) > len(fields(kind)):
            raise KeyError
    except (ValueError, KeyError):
        forms = (
            "a number, linear(START, END[, FRACTION]), exponential(START, END[, FRACTION]), "
            "cosine(START[, END[, FRACTION]][, warmup=FRACTION]) or inverse(START[, POWER])"
        )
        raise ValueError(f"a schedule must be {forms}, got {text!r}") from None
    return kind(*numbers, **warmup)


def hold_schedule(schedule: Schedule, share: float) -> Schedule:
    """The same schedule in a larger budget: it ends where it ended before, and keeps its last value
    for the rest.

    Args:
        schedule: of the old budget.
        share: old budget / new budget, in (0, 1].
    """
    if isinstance(schedule, Constant | Inverse):
        return schedule
    if isinstance(schedule, Cosine):
        schedule = replace(schedule, warmup=schedule.warmup * share)
    return replace(schedule, fraction=schedule.fraction * share)
