"""n-step transitions from a replay buffer, for n-step targets."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlbook.agent import State
from rlbook.checks import saved_array
from rlbook.data.replay import ReplayBuffer, Transitions
from rlbook.functional.rainbow import n_step_reward


class NStepTransitions:
    """Combines up to n consecutive stored steps of the same environment into one transition.

    N environments write N rows a step, so the next row of the same one is N places on. The look
    ahead covers m ≤ n rows and stops early at the end of an episode, termination or time limit, and
    at the newest row. The successor is then that of the last row covered, which after a time limit
    is the state that was reached, not the one that the next episode began in.

    Args:
        replay: the buffer.
        num_envs: N.
        n: steps, at least 1.
        gamma: γ, discount per environment step, in [0, 1].
    """

    def __init__(self, replay: ReplayBuffer, num_envs: int, n: int, gamma: float) -> None:
        self.replay, self.num_envs, self.n, self.gamma = replay, num_envs, n, gamma
        self.ended = np.zeros(replay.capacity, dtype=bool)  # whether its episode ends with the row

    def rows_at(self, places: NDArray[np.int64]) -> tuple[Transitions, Tensor]:
        """The m-step transitions that start at these buffer indices, and γᵐ [B].

        The reward is the discounted sum of m rewards; next_obs, its mask and terminated are the
        last row's.
        """
        ring = self.replay
        assert ring.rows is not None
        ahead = np.arange(self.n) * self.num_envs
        covered = (places[:, None] + ahead) % ring.capacity  # [B, n]
        left = (ring.position - 1 - places) % ring.capacity  # rows that were written later
        counted = ahead <= left[:, None]
        counted[:, 1:] &= ~np.logical_or.accumulate(self.ended[covered[:, :-1]], axis=1)
        last = covered[np.arange(len(places)), counted.sum(1) - 1]
        earned = ring.rows.reward[torch.from_numpy(covered)]
        reward, discount = n_step_reward(earned, torch.from_numpy(counted), self.gamma)
        rows = ring.rows_at(places, last)._replace(reward=reward.to(ring.device))
        return rows, discount.to(ring.device)

    def state_dict(self) -> State:
        return {"ended": self.ended.copy()}

    def load_state_dict(self, state: State) -> None:
        self.ended = saved_array("ends of episodes", state["ended"], bool, self.ended.shape)
