"""An agent that plays and does not learn from it: evaluated, watched or recorded."""

from __future__ import annotations

from functools import partial
from typing import Any

from rlbook.agent import Agent, Step


class Player:
    """Lets an agent act outside training, with a memory of its own where the agent remembers its
    episodes. What `act_step_reset` takes:

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
        """What is remembered of episodes that have ended is dropped."""
        if self.memory is not None:
            self.memory.forget(step.terminated | step.truncated)
