"""Scales rewards by the standard deviation of the return, so that one step size suits rewards of
any unit."""

from __future__ import annotations

import torch
from torch import Tensor

from rlbook.agent import State
from rlbook.functional.moments import merged_moments


class RewardScale:
    """Divides rewards by the running standard deviation of the discounted return, and clips them to
    ±10 (detail 9; continuous control).

    Only an agent that learns calls it, so evaluation leaves it alone and counts the rewards as the
    environment pays them.
    """

    def __init__(self, num_envs: int, gamma: float) -> None:
        self.gamma = gamma
        self.running = torch.zeros(num_envs)  # discounted return so far, in each environment
        # of the returns so far: count, mean, variance
        self.moments = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)

    def __call__(self, reward: Tensor, ended: Tensor, valid: Tensor) -> Tensor:
        """Updates the statistics with the valid rewards, then scales: reward [T, N], ended and
        valid [T, N] bool → [T, N]."""
        returns, self.running = [], self.running.to(reward.device)
        for r, over in zip(reward, ended, strict=True):
            self.running = self.gamma * self.running + r
            returns.append(self.running)
            self.running = self.running.masked_fill(over, 0.0)
        held = self.moments.to(reward.device)
        self.moments = torch.stack(merged_moments(*held, torch.stack(returns)[valid].double()))
        return (reward / (self.moments[2] + 1e-8).sqrt().float()).clamp(-10.0, 10.0)

    def state_dict(self) -> State:
        return {"running": self.running, "moments": self.moments}

    def load_state_dict(self, state: State) -> None:
        self.running, self.moments = state["running"], state["moments"]
