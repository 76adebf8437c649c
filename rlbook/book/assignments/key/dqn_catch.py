"""Assignment dqn_catch: deep Q-learning, from pixels to a policy that catches every ball.

Fill in what raises NotImplementedError, and keep every name and argument: the tests call them. The
page dqn_catch.md says what each part is worth. NumPy and PyTorch are all that may be imported.

Source: Mnih et al. 2015, https://doi.org/10.1038/nature14236, algorithm 1.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn


class CatchBatch(NamedTuple):
    """B transitions."""

    obs: Tensor  # [B, O] float32
    action: Tensor  # [B] int64
    reward: Tensor  # [B] float32
    next_obs: Tensor  # [B, O] float32, what the step led to, also at the end of an episode
    terminated: Tensor  # [B] bool


class CatchReplay:
    """The last `capacity` transitions, which are drawn uniformly."""

    def __init__(self, capacity: int, seed: int) -> None:
        self.rows: list[tuple[np.ndarray, int, float, np.ndarray, bool]] = []
        self.capacity, self.count, self.rng = capacity, 0, np.random.default_rng(seed)

    def add(
        self, obs: np.ndarray, action: int, reward: float, next_obs: np.ndarray, terminated: bool
    ) -> None:
        """Stores a transition in place of the oldest one."""
        row = (obs, action, reward, next_obs, terminated)
        if len(self.rows) < self.capacity:
            self.rows.append(row)
        else:
            self.rows[self.count % self.capacity] = row
        self.count += 1

    def sample(self, size: int) -> CatchBatch:
        """`size` transitions, drawn with replacement."""
        rows = [self.rows[index] for index in self.rng.integers(len(self.rows), size=size)]
        obs, action, reward, next_obs, terminated = zip(*rows, strict=True)
        return CatchBatch(
            torch.tensor(np.stack(obs)),
            torch.tensor(action),
            torch.tensor(reward, dtype=torch.float32),
            torch.tensor(np.stack(next_obs)),
            torch.tensor(terminated),
        )


def flatten_pixels(obs: np.ndarray) -> np.ndarray:
    """An observation [10, 5, 1] of bytes as numbers in [0, 1], [O] float32."""
    return np.asarray(obs, dtype=np.float32).reshape(-1) / 255


def td_target(
    target_net: nn.Module, reward: Tensor, next_obs: Tensor, terminated: Tensor, gamma: float
) -> Tensor:
    """The targets of Q-learning, [B], in reward units. They carry no gradient.

    target_net maps [B, O] to action values [B, A]; reward [B], next_obs [B, O], terminated [B] bool
    are a batch's.
    """
    ### BEGIN SOLUTION
    with torch.no_grad():
        following = target_net(next_obs).max(dim=1).values
    return reward + gamma * following * ~terminated
    ### END SOLUTION


def dqn_loss(q_net: nn.Module, target_net: nn.Module, batch: CatchBatch, gamma: float) -> Tensor:
    """The mean over the batch of (target − Q(obs, action))², a scalar; the target is td_target's.

    Its gradient reaches the weights of q_net alone.
    """
    ### BEGIN SOLUTION
    target = td_target(target_net, batch.reward, batch.next_obs, batch.terminated, gamma)
    taken = q_net(batch.obs).gather(1, batch.action[:, None])[:, 0]
    return ((target - taken) ** 2).mean()
    ### END SOLUTION


class CatchLearner:
    """A Q-network, its target network, and how both change."""

    def __init__(
        self,
        num_inputs: int,
        num_actions: int,
        *,
        gamma: float = 0.99,
        learning_rate: float = 1e-3,
        sync_every: int = 100,
        seed: int = 0,
    ) -> None:
        torch.manual_seed(seed)
        self.q_net = nn.Sequential(nn.Linear(num_inputs, 64), nn.ReLU(), nn.Linear(64, num_actions))
        self.target_net = copy.deepcopy(self.q_net)
        self.optimizer = torch.optim.Adam(self.q_net.parameters(), lr=learning_rate)
        self.num_actions, self.gamma, self.sync_every = num_actions, gamma, sync_every
        self.updates = 0
        self.rng = np.random.default_rng(seed)

    def act(self, obs: np.ndarray, epsilon: float) -> int:
        """An action for one observation [O].

        With probability ε it is drawn from all actions alike, otherwise it is the one of the largest
        value. Random numbers come from self.rng.
        """
        ### BEGIN SOLUTION
        if self.rng.random() < epsilon:
            return int(self.rng.integers(self.num_actions))
        with torch.no_grad():
            return int(self.q_net(torch.as_tensor(obs)).argmax())
        ### END SOLUTION

    def update(self, batch: CatchBatch) -> None:
        """One step of the optimiser on dqn_loss. After every `sync_every` such steps the target
        network takes over the weights of the Q-network."""
        ### BEGIN SOLUTION
        loss = dqn_loss(self.q_net, self.target_net, batch, self.gamma)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.updates += 1
        if self.updates % self.sync_every == 0:
            self.target_net.load_state_dict(self.q_net.state_dict())
        ### END SOLUTION


def train(env: Any, *, steps: int, gamma: float = 0.99, seed: int = 0) -> CatchLearner:
    """Learns for a number of environment steps, and returns the learner.

    Act with ε falling from 1 to 0.05 over the first half of the steps. Store every transition.
    From 200 transitions on, draw 32 at every second step and update. `env.reset(seed=…)` returns
    (obs, info), and `env.step(action)` returns (obs, reward, terminated, truncated, info); an
    episode is over after either flag.
    """
    ### BEGIN SOLUTION
    obs = flatten_pixels(env.reset(seed=seed)[0])
    learner = CatchLearner(len(obs), int(env.action_space.n), gamma=gamma, seed=seed)
    replay = CatchReplay(10_000, seed)
    for step in range(steps):
        epsilon = max(0.05, 1 - 0.95 * step / (steps / 2))
        action = learner.act(obs, epsilon)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        next_obs = flatten_pixels(next_obs)
        replay.add(obs, action, float(reward), next_obs, bool(terminated))
        obs = flatten_pixels(env.reset()[0]) if terminated or truncated else next_obs
        if step >= 200 and step % 2 == 0:
            learner.update(replay.sample(32))
    return learner
    ### END SOLUTION


def main() -> None:
    """Trains on Catch, and says how often the greedy policy catches the ball."""
    import gymnasium

    env = gymnasium.make("rlbook.envs:rlbook/Catch-v0")
    learner = train(env, steps=12_000)
    caught = 0
    for game in range(100):
        obs, over, reward = env.reset(seed=1_000 + game)[0], False, 0.0
        while not over:
            obs, reward, terminated, truncated, _ = env.step(
                learner.act(flatten_pixels(obs), epsilon=0.0)
            )
            over = terminated or truncated
        caught += float(reward) > 0
    print(f"caught {caught} of 100")


if __name__ == "__main__":
    main()
