"""Dynamic sampling: collects groups of episodes whose returns differ, over several rounds, until
there are enough for an update."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from rlbook.agent import State
from rlbook.data.rollout import Batch, concatenate


class Refill:
    """Collects informative groups over several rounds, and returns them once there are enough for
    an update.

    Source: Yu et al. 2025 (DAPO), arXiv:2503.14476, section 3.2 (dynamic sampling).

    Args:
        group_size: G; each group's rows are neighbours.
        rounds: after so many the round is as full as it gets.
    """

    def __init__(self, group_size: int, rounds: int) -> None:
        self.group_size, self.rounds = group_size, rounds
        self.kept: list[Batch] = []
        self.played = 0

    def add(self, batch: Batch, keep: Tensor) -> Batch | None:
        """Adds a round of episodes; `keep` [N / G] marks the groups to keep.

        Returns:
            The episodes to learn from, no more than a round has, the first that were played: once
            there are enough of them, or once the limit on rounds is reached. None before that, and
            where the limit is reached and no group is left.
        """
        rows = keep.repeat_interleave(self.group_size).nonzero().squeeze(1)
        self.played += 1
        if len(rows):
            self.kept.append(batch[rows])
        full = sum(map(len, self.kept)) >= len(batch)
        if not full and self.played < self.rounds:
            return None
        kept, self.kept, self.played = self.kept, [], 0
        return concatenate(kept)[: len(batch)] if kept else None

    def state_dict(self) -> State:
        """The groups kept so far."""
        kept = [
            {field.name: getattr(batch, field.name) for field in dataclasses.fields(batch)}
            for batch in self.kept
        ]
        for fields in kept:
            if fields["action_mask"] is None:  # not written where there are none
                del fields["action_mask"]
        return {"kept": kept, "played": self.played}

    def load_state_dict(self, state: State) -> None:
        """The inverse of `state_dict`."""
        self.kept, self.played = [Batch(**fields) for fields in state["kept"]], state["played"]


def groups_differ(score: Tensor, group_size: int) -> Tensor:
    """Whether the scores within a group are not all equal: [B] → bool [B / G]."""
    groups = score.view(-1, group_size)
    return (groups != groups[:, :1]).any(1)


class SpreadFilter:
    """Selects groups with enough spread: those whose standard deviation is at least a given share
    of the running average.

    The average over rounds is exponential, m ← 0.99 m + 0.01 mean of the groups' deviations. It
    begins with the sixth round, and groups are left out from the eleventh. A prompt that is too
    hard for every episode has a small deviation, and so has one that is too easy.

    Source: Yu et al. 2025 (RLPR), arXiv:2506.18254, section 3.3; the numbers are those of its code.

    Args:
        group_size: G; each group's rows are neighbours.
        share: of the average; 0 keeps all groups.
    """

    DECAY, BEGINS, FILTERS = 0.99, 6, 11

    def __init__(self, group_size: int, share: float) -> None:
        self.group_size, self.share = group_size, share
        self.rounds, self.average = 0, 0.0

    def keep(self, score: Tensor) -> Tensor:
        """Processes the scores of a round: [N] → bool [N / G]."""
        deviation = score.view(-1, self.group_size).std(1)
        self.rounds += 1
        if self.rounds >= self.BEGINS:
            share = 1.0 if self.rounds == self.BEGINS else 1.0 - self.DECAY
            self.average += share * (float(deviation.mean()) - self.average)
        if self.share == 0.0 or self.rounds < self.FILTERS:
            return torch.ones_like(deviation, dtype=torch.bool)
        return deviation >= self.share * self.average

    def state_dict(self) -> State:
        """The running average."""
        return {"rounds": self.rounds, "average": self.average}

    def load_state_dict(self, state: State) -> None:
        """The inverse of `state_dict`."""
        self.rounds, self.average = state["rounds"], state["average"]


class DynamicSampling:
    """Drops groups with little or no spread in their returns, and asks for further rounds until
    enough groups remain.

    Args:
        group_size: G; each group's rows are neighbours.
        rounds: that may be played for one update; 1 plays none again.
        min_spread: share of the average deviation, below which a group is left out.
    """

    def __init__(self, group_size: int, rounds: int, min_spread: float) -> None:
        self.refill = Refill(group_size, rounds)
        self.spread = SpreadFilter(group_size, min_spread)

    def add(self, batch: Batch, returns: Tensor) -> tuple[Batch | None, dict[str, float]]:
        """Adds a round of episodes with their returns [N].

        Returns:
            The episodes to learn from, None until there are enough, and the share of the groups
            that were left out.
        """
        keep = self.spread.keep(returns)
        if self.refill.rounds > 1:
            keep = keep & groups_differ(returns, self.refill.group_size)
        return self.refill.add(batch, keep), {"dropped_groups": 1.0 - float(keep.float().mean())}

    def state_dict(self) -> State:
        """The groups kept so far, and the running average."""
        return {"refill": self.refill.state_dict(), "spread": self.spread.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """The inverse of `state_dict`."""
        self.refill.load_state_dict(state["refill"])
        self.spread.load_state_dict(state["spread"])
