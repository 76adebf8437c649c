"""A run's log in the form that the doctor's rules read."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ROSE = 0.3  # of the range of returns, by which a run that learns gets better
FEW = 6  # reports or episodes from which nothing can be told


@dataclass(frozen=True)
class Log:
    """The input of the rules."""

    reports: list[dict[str, float | None]]
    episodes: list[tuple[int, float, int]]  # step, return, length
    time_limit: int | None  # in environment steps
    usual_limit: int | None  # of the environment as it is registered
    best: float | None  # the optimal return, where it is known
    settings: Mapping[str, object]  # the hyper-parameters
    # standard deviation of each component of an observation, where that is known
    scales: Sequence[float]
    # tokens that a completion may have at most, where the episodes are texts
    completion_limit: int | None = None
    # largest |ρ - 1| of freshly sampled tokens, if it was measured
    ratio_error: float | None = None
    # the exact mean return of greedy play, where it can be computed
    expected: float | None = None
    # a sentence with settings that were measured to reach the optimum here, or to solve it
    better: str | None = None
    # the mean return from which the environment counts as solved, where the optimum is unknown
    solved_from: float | None = None
    # the mean return from which greedy play counts as optimal; None is within 2 % of `best`
    enough: float | None = None

    def values(self, name: str) -> list[float]:
        """The values of a metric in all reports that have it."""
        return [value for report in self.reports if (value := report.get(name)) is not None]

    def first_third(self, name: str) -> list[float]:
        """The values in the first third; empty if there are too few."""
        values = self.values(name)
        return values[: len(values) // 3] if len(values) >= FEW else []

    def last_third(self, name: str) -> list[float]:
        """The values in the last third; empty if there are too few."""
        values = self.values(name)
        return values[-(len(values) // 3) :] if len(values) >= FEW else []

    def is_optimal(self, value: float) -> bool:
        """Whether a mean return counts as optimal."""
        if self.best is None:
            return False
        close = self.best - 0.02 * max(1.0, abs(self.best))
        return value >= (close if self.enough is None else self.enough)

    @property
    def is_done(self) -> bool:
        """Whether greedy play is optimal in the end: on average, where that is known, or in the
        last evaluation."""
        greedy = self.values("eval_return") if self.expected is None else [self.expected]
        return bool(greedy) and self.is_optimal(greedy[-1])

    @property
    def is_stuck(self) -> bool:
        """Whether the last third of the episodes is hardly better than the first ones, and not
        optimal."""
        returns = [item[1] for item in self.episodes]
        if len(returns) < 2 * FEW or self.is_done:
            return False
        start = statistics.fmean(returns[: max(FEW, len(returns) // 20)])
        end = statistics.fmean(returns[-(len(returns) // 3) :])
        return end - start <= ROSE * (max(returns) - min(returns)) and not self.is_optimal(end)

    def quarters(self) -> tuple[list[float], list[float]]:
        """The returns of the episodes that ended in the third quarter of the run's steps, and in
        the last quarter; quarters of the episodes where most of them ended in the last one, because
        then a few long episodes took most of the steps."""
        returns, end = [item[1] for item in self.episodes], self.episodes[-1][0]
        half, last = (
            sum(step <= share * end for step, _, _ in self.episodes) for share in (0.5, 0.75)
        )
        if last < len(returns) / 2:
            half, last = len(returns) // 2, 3 * len(returns) // 4
        return returns[half:last], returns[last:]

    def evaluations(self) -> tuple[list[float], list[float]]:
        """The greedy returns of the third quarter of the evaluations, and of the last."""
        values = self.values("eval_return")
        part = len(values) // 4
        return values[-2 * part : -part or None], values[-part:] if part else []

    @property
    def span(self) -> float:
        """The range of all returns."""
        seen = [
            *(item[1] for item in self.episodes),
            *self.values("return"),
            *self.values("eval_return"),
        ]
        return max(seen) - min(seen)

    def number(self, name: str) -> float | None:
        """A numeric hyper-parameter."""
        value = self.settings.get(name)
        return (
            float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
        )
