"""Assignment ppo_maze: proximal policy optimisation, from random walking to the shortest path.

Fill in what raises NotImplementedError, and keep every name and argument: the tests call them. The
page ppo_maze.md says what each part is worth. NumPy and PyTorch are all that may be imported.

Source: Schulman et al. 2017, arXiv:1707.06347, equation 7 and algorithm 1; the advantages are those
of Schulman et al. 2016, arXiv:1506.02438, equation 16.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn


class MazeRollout(NamedTuple):
    """T consecutive steps, which may belong to several episodes."""

    obs: Tensor  # [T] int64, the state that the action was taken in
    action: Tensor  # [T] int64
    log_prob: Tensor  # [T], log π(action | obs) under the policy that acted, without gradient
    reward: Tensor  # [T] float32
    next_obs: Tensor  # [T] int64, what the step led to, also at the end of an episode
    terminated: Tensor  # [T] bool
    truncated: Tensor  # [T] bool, the time limit


def gae(
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    gamma: float,
    lam: float,
) -> Tensor:
    """Generalised advantage estimates of a rollout, [T], in reward units.

    A_t = δ_t + γ λ A_{t+1} within an episode, where δ_t = r_t + γ V(s_{t+1}) − V(s_t).

    value [T] are those of the states before each step, next_value [T] those of the states that the
    steps led to. A terminated episode is worth nothing afterwards. One that the time limit cut
    would have gone on, so the value of its last state counts. In either case the next row belongs
    to another episode. The rollout's last step has no next row.
    """
    ### BEGIN SOLUTION
    error = reward + gamma * next_value * ~terminated - value
    advantage, following = torch.zeros_like(reward), torch.tensor(0.0)
    for step in reversed(range(len(reward))):
        goes_on = not (terminated[step] or truncated[step])
        following = error[step] + gamma * lam * goes_on * following
        advantage[step] = following
    return advantage
    ### END SOLUTION


def policy_loss(log_prob: Tensor, old_log_prob: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """PPO's clipped loss, a scalar to be minimised.

    L = −mean( min(ρ A, clip(ρ, 1−ε, 1+ε) A) ), where ρ = exp(log_prob − old_log_prob)

    log_prob, old_log_prob and advantage are [T]. The gradient flows through log_prob alone.
    """
    ### BEGIN SOLUTION
    old_log_prob, advantage = old_log_prob.detach(), advantage.detach()
    ratio = (log_prob - old_log_prob).exp()
    clipped = ratio.clamp(1 - clip, 1 + clip)
    return -torch.minimum(ratio * advantage, clipped * advantage).mean()
    ### END SOLUTION


class MazeLearner:
    """A policy and a value function, each a table of weights."""

    def __init__(
        self,
        num_states: int,
        num_actions: int,
        *,
        gamma: float = 0.97,
        lam: float = 0.9,
        clip: float = 0.2,
        entropy_coef: float = 0.02,
        epochs: int = 6,
        learning_rate: float = 0.03,
        seed: int = 0,
    ) -> None:
        torch.manual_seed(seed)
        self.logits = nn.Parameter(torch.zeros(num_states, num_actions))  # [S, A]
        self.values = nn.Parameter(torch.zeros(num_states))  # [S]
        self.optimizer = torch.optim.Adam([self.logits, self.values], lr=learning_rate)
        self.gamma, self.lam, self.clip = gamma, lam, clip
        self.entropy_coef, self.epochs = entropy_coef, epochs
        self.rng = np.random.default_rng(seed)

    def log_probs(self, obs: Tensor) -> Tensor:
        """log π(a | obs) of every action: [T, A] for obs [T]."""
        return torch.log_softmax(self.logits[obs], dim=-1)

    def act(self, obs: int) -> tuple[int, float]:
        """An action drawn from the policy with self.rng, and its log-probability."""
        ### BEGIN SOLUTION
        with torch.no_grad():
            log_prob = self.log_probs(torch.tensor(obs)).numpy()
        drawn = self.rng.random() < np.exp(log_prob).cumsum()
        action = int(drawn.argmax()) if drawn.any() else len(log_prob) - 1
        return action, float(log_prob[action])
        ### END SOLUTION

    def update(self, rollout: MazeRollout) -> None:
        """`epochs` steps of the optimiser, each on the whole rollout.

        The advantages are gae's, computed once and brought to mean 0 and standard deviation 1 (divide by
        the standard deviation plus 1e-8). A step minimises
        policy_loss + 0.5 · mean (V − target)² − entropy_coef · mean entropy,
        where the target is the advantage, as it was before that, plus the value.
        """
        ### BEGIN SOLUTION
        with torch.no_grad():
            value, next_value = self.values[rollout.obs], self.values[rollout.next_obs]
            advantage = gae(
                rollout.reward,
                value,
                next_value,
                rollout.terminated,
                rollout.truncated,
                self.gamma,
                self.lam,
            )
            target = advantage + value
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        for _ in range(self.epochs):
            log_probs = self.log_probs(rollout.obs)
            log_prob = log_probs.gather(1, rollout.action[:, None])[:, 0]
            entropy = -(log_probs.exp() * log_probs).sum(dim=1).mean()
            loss = (
                policy_loss(log_prob, rollout.log_prob, advantage, self.clip)
                + 0.5 * ((self.values[rollout.obs] - target) ** 2).mean()
                - self.entropy_coef * entropy
            )
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        ### END SOLUTION


def train(
    env: Any, *, steps: int, rollout_steps: int = 256, gamma: float = 0.97, seed: int = 0
) -> MazeLearner:
    """Learns for a number of environment steps, and returns the learner.

    Collect `rollout_steps` steps, update, and begin again, without resetting the environment in
    between. `env.reset(seed=…)` returns (obs, info), and `env.step(action)` returns
    (obs, reward, terminated, truncated, info); an observation is the number of a state, and an
    episode is over after either flag.
    """
    ### BEGIN SOLUTION
    learner = MazeLearner(
        int(env.observation_space.n), int(env.action_space.n), gamma=gamma, seed=seed
    )
    obs = int(env.reset(seed=seed)[0])
    for _ in range(steps // rollout_steps):
        rows = []
        for _ in range(rollout_steps):
            action, log_prob = learner.act(obs)
            next_obs, reward, terminated, truncated, _ = env.step(action)
            rows.append(
                (obs, action, log_prob, float(reward), int(next_obs), terminated, truncated)
            )
            obs = int(env.reset()[0]) if terminated or truncated else int(next_obs)
        learner.update(MazeRollout(*(torch.tensor(column) for column in zip(*rows, strict=True))))
    return learner
    ### END SOLUTION


def main() -> None:
    """Trains on the maze, and says what the greedy policy's return is."""
    import gymnasium

    env = gymnasium.make("rlbook.envs:rlbook/Maze-v0")
    learner = train(env, steps=20_000)
    obs, total, over = int(env.reset(seed=1_000)[0]), 0.0, False
    while not over:
        obs, reward, terminated, truncated, _ = env.step(int(learner.logits[int(obs)].argmax()))
        total, over = total + float(reward), terminated or truncated
    print(f"return {total:g}, the best is 3")


if __name__ == "__main__":
    main()
