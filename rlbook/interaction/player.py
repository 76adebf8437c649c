"""An agent that plays without learning: for evaluation, watching or recording."""

from __future__ import annotations

from functools import partial
from typing import Any

from rlbook.agent import Agent, Step


class Player:
    """Lets an agent act outside training, with a separate memory if the agent has one. It is passed
    to `act_step_reset`:

        player = Player(agent)
        act_step_reset(interaction, player.act, player.observe, player.begin)

    Args:
        agent: nothing in it changes, unless it explores.
        explore: act as in training.
    """

    def __init__(self, agent: Agent, *, explore: bool = False) -> None:
        self.memory = agent.new_memory()
        given: dict[str, Any] = {} if self.memory is None else {"memory": self.memory}
        self.act = partial(agent.act, explore=explore, **given)
        """observation → action, and takes an action mask where the agent does."""

    def begin(self) -> None:
        """All environments start a new episode."""
        if self.memory is not None:
            self.memory.clear()

    def observe(self, step: Step) -> None:
        """Drops the memory of episodes that have ended."""
        if self.memory is not None:
            self.memory.forget(step.terminated | step.truncated)
