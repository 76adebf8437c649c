"""Assignment find_the_bug: an actor-critic on the maze, in which one thing is wrong.

The file runs, and may even learn something. Find it, mend it, and leave everything else as it
is: names and arguments are called by the tests. The docstrings say what the code should do. The
page find_the_bug.md says how it is graded.

Source: Mnih et al. 2016, arXiv:1602.01783, algorithm S3, with one worker.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn


class WalkRollout(NamedTuple):
    """T consecutive steps, which may belong to several episodes."""

    obs: Tensor  # [T] int64, the state that the action was taken in
    action: Tensor  # [T] int64
    reward: Tensor  # [T] float32
    next_obs: Tensor  # [T] int64, what the step led to, also at the end of an episode
    terminated: Tensor  # [T] bool
    truncated: Tensor  # [T] bool, the time limit


def n_step_returns(
    reward: Tensor, next_value: Tensor, terminated: Tensor, truncated: Tensor, gamma: float
) -> Tensor:
    """The return of each step up to the end of its episode or of the rollout, [T].

    Where an episode terminates nothing follows. Where it is cut, by the time limit or because the
    rollout is over, the value of the state that the step led to stands for what would have
    followed.
    """
    returns, following = torch.zeros_like(reward), next_value[-1]
    for step in reversed(range(len(reward))):
        if truncated[step]:
            following = next_value[step]
        if terminated[step]:
            following = torch.zeros(())
        following = reward[step] + gamma * following
        returns[step] = following
    return returns


def actor_critic_loss(
    log_probs: Tensor, action: Tensor, value: Tensor, returns: Tensor, entropy_coef: float
) -> Tensor:
    """A scalar to be minimised:

    L = −mean( log π(a_t|s_t) (G_t − V(s_t)) ) + mean( (G_t − V(s_t))² ) − c · mean entropy

    log_probs [T, A] are of all actions, action [T] is what was taken, value and returns are [T].
    The returns G carry no gradient, and the first term trains the policy alone.
    """
    returns = returns.detach()
    advantage = (returns - value).detach()
    taken = log_probs.gather(1, action[:, None])[:, 0]
    entropy = -(log_probs.exp() * log_probs).sum(dim=1)
    critic = ((returns - value) ** 2).mean()
    return -(taken * advantage).mean() + critic - entropy_coef * entropy.mean()


class WalkLearner:
    """A policy and a value function, each a table of weights."""

    def __init__(
        self,
        num_states: int,
        num_actions: int,
        *,
        gamma: float = 0.97,
        entropy_coef: float = 0.3,
        learning_rate: float = 0.03,
        seed: int = 0,
    ) -> None:
        torch.manual_seed(seed)
        self.logits = nn.Parameter(torch.zeros(num_states, num_actions))  # [S, A]
        self.values = nn.Parameter(torch.zeros(num_states))  # [S]
        self.optimizer = torch.optim.Adam([self.logits, self.values], lr=learning_rate)
        self.gamma, self.entropy_coef = gamma, entropy_coef
        self.rng = np.random.default_rng(seed)

    def act(self, obs: int) -> int:
        """An action drawn from the policy with self.rng."""
        with torch.no_grad():
            probs = torch.softmax(self.logits[obs].double(), dim=0).numpy()
        return int(self.rng.choice(len(probs), p=probs / probs.sum()))

    def update(self, rollout: WalkRollout) -> None:
        """One step of the optimiser on the whole rollout."""
        with torch.no_grad():
            returns = n_step_returns(
                rollout.reward,
                self.values[rollout.next_obs],
                rollout.terminated,
                rollout.truncated,
                self.gamma,
            )
        log_probs = torch.log_softmax(self.logits[rollout.obs], dim=1)
        value = self.values[rollout.obs]
        loss = actor_critic_loss(log_probs, rollout.action, value, returns, self.entropy_coef)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def collect(env: Any, learner: WalkLearner, obs: int, steps: int) -> tuple[WalkRollout, int]:
    """Takes some steps from an observation on, and resets the environment after each episode.

    Returns the rollout, and the observation to go on from.
    """
    rows = []
    for _ in range(steps):
        action = learner.act(obs)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        rows.append((obs, action, float(reward), int(next_obs), terminated, truncated))
        obs = int(next_obs)
        if terminated or truncated:
            obs = int(env.reset()[0])
    return WalkRollout(*(torch.tensor(column) for column in zip(*rows, strict=True))), obs


def train(env: Any, *, steps: int, gamma: float = 0.97, seed: int = 0) -> WalkLearner:
    """Learns for a number of environment steps, and returns the learner."""
    learner = WalkLearner(
        int(env.observation_space.n), int(env.action_space.n), gamma=gamma, seed=seed
    )
    obs = int(env.reset(seed=seed)[0])
    for _ in range(steps // 32):
        rollout, obs = collect(env, learner, obs, 32)
        learner.update(rollout)
    return learner


def main() -> None:
    """Trains on the maze, and says what the greedy policy's return is."""
    import gymnasium

    env = gymnasium.make("rlbook.envs:rlbook/Maze-v0")
    learner = train(env, steps=30_000)
    obs, total, over = int(env.reset(seed=1_000)[0]), 0.0, False
    while not over:
        obs, reward, terminated, truncated, _ = env.step(int(learner.logits[int(obs)].argmax()))
        total, over = total + float(reward), terminated or truncated
    print(f"return {total:g}, the best is 3")


if __name__ == "__main__":
    main()
