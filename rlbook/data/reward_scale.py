"""Rewards divided by how much the return varies, for continuous control."""

from __future__ import annotations

import torch
from torch import Tensor

from rlbook.agent import State


class RewardScale:
    """Divides rewards by the running standard deviation of the discounted return, and clips them to ±10 (detail 9; continuous control)."""

    def __init__(self, num_envs: int, gamma: float) -> None:
        self.gamma = gamma
        self.running = torch.zeros(num_envs)             # discounted return so far, in each environment
        self.moments = torch.zeros(3, dtype=torch.float64)  # count, mean, sum of squared deviations

    def __call__(self, reward: Tensor, ended: Tensor) -> Tensor:
        """reward [T, N], ended [T, N] bool → [T, N]. Takes the rewards in first."""
        returns, self.running = [], self.running.to(reward.device)
        for r, over in zip(reward, ended, strict=True):
            self.running = self.gamma * self.running + r
            returns.append(self.running)
            self.running = self.running.masked_fill(over, 0.0)
        batch = torch.stack(returns).double().flatten()
        count, mean, squares = self.moments.tolist()
        total, delta = count + len(batch), float(batch.mean()) - mean
        squares += float(batch.var(unbiased=False)) * len(batch) + delta**2 * count * len(batch) / total
        self.moments = torch.tensor([total, mean + delta * len(batch) / total, squares], dtype=torch.float64)
        return (reward / (squares / total + 1e-8) ** 0.5).clamp(-10.0, 10.0)

    def state_dict(self) -> State:
        return {"running": self.running, "moments": self.moments}

    def load_state_dict(self, state: State) -> None:
        self.running, self.moments = state["running"], state["moments"]
