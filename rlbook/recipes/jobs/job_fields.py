"""Records which of a run's settings a job has used: unused ones are listed, never dropped
silently."""

from __future__ import annotations

import dataclasses
from typing import Any

from rlbook.errors import RequestError
from rlbook.functional.schedules import Constant, Cosine, Linear, Schedule, parse_schedule
from rlbook.hyperparameters import Hyperparameters


class JobFields:
    """The hyper-parameters of a run, each to be used once.

    Attributes:
        left_out: what the job does without → why, or what it does in its place.
    """

    def __init__(self, config: Hyperparameters) -> None:
        self.values = {item.name: getattr(config, item.name) for item in dataclasses.fields(config)}
        self._defaults = {item.name: item.default for item in dataclasses.fields(config)}
        self._read: set[str] = set()
        self.left_out: dict[str, str] = {}

    def take(self, name: str, default: object = None) -> Any:
        """A hyper-parameter, or `default` where the algorithm has none of this name."""
        self._read.add(name)
        return self.values.get(name, default)

    def leave(self, name: str, reason: str, *, without_effect: object = None) -> None:
        """Lists a hyper-parameter as left out, unless its value has no effect."""
        value = self.take(name, without_effect)
        if value != without_effect:
            self.left_out[name] = f"{value}: {reason}"

    def ignore(self, *names: str) -> None:
        """Marks hyper-parameters that have no effect on a language model, or none in this job."""
        self._read.update(names)

    def translate(self, name: str, allowed: dict[Any, Any], target: str) -> Any:
        """The target's name for a value.

        Raises:
            RequestError: the target has none, and the method would be another.
        """
        value = self.take(name)
        if value not in allowed:
            known = ", ".join(map(str, allowed))
            raise RequestError(f"{target} has no {name} {value!r} here (it has: {known})")
        return allowed[value]

    def list_unread(self, target: str) -> None:
        """Lists the unused settings that are not at their default."""
        for name in self.values.keys() - self._read:
            if self.values[name] != self._defaults[name]:
                self.left_out[name] = f"{self.values[name]}: {target} has no counterpart"

    def learning_rate(self) -> tuple[float, str, float, float]:
        """The learning rate as (largest, kind of its schedule, least, share of warm-up): the kind is
        "constant", "linear" or "cosine"."""
        schedule: Schedule = parse_schedule(self.take("learning_rate"))
        anneals = bool(self.take("anneal_learning_rate", False))
        if isinstance(schedule, Constant):
            return schedule.value, "linear" if anneals else "constant", 0.0, 0.0
        if isinstance(schedule, Linear) and schedule.end == 0.0 and schedule.fraction == 1.0:
            return schedule.start, "linear", 0.0, 0.0
        if isinstance(schedule, Cosine) and schedule.fraction == 1.0:
            return schedule.start, "cosine", schedule.end, schedule.warmup
        first = schedule(0.0)
        self.left_out["learning_rate"] = f"{schedule}: constant at {first:g} in its place"
        return first, "constant", 0.0, 0.0
