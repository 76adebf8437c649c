"""How long a run trains."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """The training budget: environment steps, finished episodes or passes over recorded data;
    training stops at whichever is reached first."""

    steps: int | None
    episodes: int | None
    passes: int | None = None

    def progress(self, steps: int, episodes: int, passes: float = 0.0) -> float:
        """The fraction used so far, in [0, 1]."""
        by_steps = steps / self.steps if self.steps else 0.0
        by_episodes = episodes / self.episodes if self.episodes else 0.0
        by_passes = passes / self.passes if self.passes else 0.0
        return min(1.0, max(by_steps, by_episodes, by_passes))
