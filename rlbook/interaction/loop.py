"""The loop: an agent acts, an environment answers, the agent learns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from rlbook.agent import Agent, Metrics, Totals

if TYPE_CHECKING:
    from rlbook.interaction.interaction import SingleInteraction, VectorInteraction


@dataclass(frozen=True)
class Budget:
    """How long to train: environment steps, finished episodes, or whichever is used up first."""

    steps: int | None
    episodes: int | None

    def progress(self, steps: int, episodes: int) -> float:
        """The fraction used so far, in [0, 1]."""
        by_steps = steps / self.steps if self.steps else 0.0
        by_episodes = episodes / self.episodes if self.episodes else 0.0
        return min(1.0, max(by_steps, by_episodes))


@runtime_checkable
class Chunked(Protocol):
    """Streams that take many steps at once."""

    def advance(self, agent: Any, budget: Budget) -> Totals: ...


def loop(agent: Agent, streams: SingleInteraction | VectorInteraction, budget: Budget) -> Iterator[Metrics | Totals]:
    """Acts and learns until the budget is used up; one item a (vector) step. Between two items everything may be saved.

    The same loop serves every algorithm: planners have planned before it, TD learns at each step, PPO when its rollout is full.
    An agent with a table has a stream that does the same for many steps at once (`rlbook.fast.table_interaction`).
    """
    if streams.obs is None:
        streams.start()
        agent.begin()
    agent.progress = budget.progress(streams.steps, streams.episodes)
    while isinstance(streams, Chunked) and agent.progress < 1.0:
        yield streams.advance(agent, budget)
    while agent.progress < 1.0:
        step = streams.step(agent.act(streams.obs))
        metrics = agent.learn(step)
        if streams.reset_finished():
            agent.begin()
        agent.progress = budget.progress(streams.steps, streams.episodes)
        yield metrics
