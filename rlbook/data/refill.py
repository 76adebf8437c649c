"""Groups of episodes whose returns differ, gathered round after round until there are enough to learn from."""

from __future__ import annotations

import dataclasses

from torch import Tensor

from rlbook.agent import State
from rlbook.data.rollout import Batch, joined


class Refill:
    """Keeps the groups that can teach something, and says when a round of them is full.

    Source: Yu et al. 2025 (DAPO), arXiv:2503.14476, section 3.2 (dynamic sampling).

    Args:
        group_size: G; each group's rows are neighbours.
        rounds: after so many the round is as full as it gets.
    """

    def __init__(self, group_size: int, rounds: int) -> None:
        self.group_size, self.rounds = group_size, rounds
        self.kept: list[Batch] = []
        self.played = 0

    def add(self, batch: Batch, returns: Tensor) -> Batch | None:
        """Takes in a round of episodes and their returns [N].

        Returns:
            The episodes to learn from, no more than a round has, the first that were played: once there are enough of them, or once
            the limit on rounds is reached. None before that, and where the limit is reached and no group is left.
        """
        rows = differ(returns, self.group_size).repeat_interleave(self.group_size).nonzero().squeeze(1)
        self.played += 1
        if len(rows):
            self.kept.append(batch[rows])
        full = sum(map(len, self.kept)) >= len(batch)
        if not full and self.played < self.rounds:
            return None
        kept, self.kept, self.played = self.kept, [], 0
        return joined(kept)[: len(batch)] if kept else None

    def state_dict(self) -> State:
        """What is kept so far."""
        kept = [{field.name: getattr(batch, field.name) for field in dataclasses.fields(batch)} for batch in self.kept]
        return {"kept": kept, "played": self.played}

    def load_state_dict(self, state: State) -> None:
        """The inverse of `state_dict`."""
        self.kept, self.played = [Batch(**fields) for fields in state["kept"]], state["played"]


def differ(score: Tensor, group_size: int) -> Tensor:
    """Whether the scores of a group are not all equal: [B] → bool [B / G]."""
    groups = score.view(-1, group_size)
    return (groups != groups[:, :1]).any(1)
