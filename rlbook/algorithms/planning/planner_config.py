"""What every planner can be told for environments without a model, where one is estimated.

See `rlbook.runs.planning_models`.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlbook.checks import at_least, check_fields, positive_int


@dataclass(frozen=True)
class PlannerConfig:
    """Hyper-parameters that all planners share."""

    # where there is no model: environment steps that one is estimated from, at least 1
    sampled_steps: int = 20_000
    # cells per dimension that continuous observations are cut into, at least 1
    bins: int = 8
    # values per dimension that continuous actions are chosen from, at least 2
    action_bins: int = 5

    def __post_init__(self) -> None:
        check_fields(self, sampled_steps=positive_int, bins=positive_int, action_bins=at_least(2))
