"""A2C: its advantages by hand, and that it is PPO with one epoch, one minibatch and no clip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import rlbook

Make = Callable[..., Any]


def gradient(agent: Any, loss: torch.Tensor) -> torch.Tensor:
    parts = torch.autograd.grad(loss, list(agent.policy.parameters()), allow_unused=True)
    return torch.cat([part.reshape(-1) for part in parts if part is not None])


@pytest.mark.parametrize("continuous", [False, True], ids=["discrete", "continuous"])
@pytest.mark.parametrize("options", [{"gae_lambda": 1.0}, {"gae_lambda": 0.9, "entropy_coef": 0.01, "separate_networks": False}], ids=str)
def test_ppos_first_gradient_on_a_rollout_is_a2cs(stage: Make, scripted: Make, options: dict[str, Any], continuous: bool) -> None:
    """ρ = 1 there, and d ρ A = A d log π; the clip is inactive. With advantages as they are. Float32: 1e-5 of the gradient's norm."""
    both: dict[str, Any] = {"rollout_steps": 16, "value_coef": 0.5, "seed": 3} | options
    one, other = stage("a2c", scripted(continuous), **both), stage("ppo", scripted(continuous), normalize_advantage=False, **both)
    for theatre in (one, other):
        theatre.collect(16)
    ours, theirs = one.agent.prepare()[0], other.agent.prepare()[0]
    assert_close(ours.advantage, theirs.advantage)
    found = gradient(one.agent, one.agent.loss(ours).loss)
    expected = gradient(other.agent, other.agent.loss(other.agent.weighed(theirs)).loss)
    assert (found - expected).norm() < 1e-5 * expected.norm()


def test_ppo_with_one_epoch_and_one_minibatch_is_a2c_on_the_maze() -> None:
    """Ten updates: the same episodes, and weights that differ by float32's rounding."""
    both: dict[str, Any] = {"rollout_steps": 16, "value_coef": 0.5, "learning_rate": 1e-3, "hidden_sizes": (16,), "gae_lambda": 1.0}
    both |= {"max_grad_norm": 0.5, "eval_every": 0, "steps": 10 * 16 * 8, "num_envs": 8, "seed": 3}
    one = rlbook.train("a2c", "Maze-v0", **both)
    other = rlbook.train("ppo", "Maze-v0", epochs=1, batch_size=16 * 8, normalize_advantage=False, **both)
    assert one.episode_returns == other.episode_returns
    pairs = zip(one.agent.policy.parameters(), other.agent.policy.parameters(), strict=True)   # type: ignore[attr-defined]
    assert all((a - b).abs().max() < 1e-5 for a, b in pairs)


def test_what_follows_the_rollout_is_the_critics_estimate_and_nothing_follows_a_termination(stage: Make, scripted: Make) -> None:
    """λ = 1, by hand, backwards: G = r + γ G' within an episode; behind a time limit and behind the rollout G' is V(s'), else 0."""
    theatre = stage("a2c", scripted(), num_envs=3, gamma=0.9, rollout_steps=12)
    agent = theatre.agent
    steps = theatre.collect(12)
    batch, _ = agent.prepare()
    ends = {(bool(t), bool(c)) for step in steps for t, c in zip(step.terminated, step.truncated, strict=True)}
    assert ends == {(False, False), (True, False), (False, True)}
    value = [agent.value(step.obs) for step in steps]
    follows = agent.value(steps[-1].next_obs)
    expected = np.empty((12, 3))
    for t in reversed(range(12)):
        behind = np.where(steps[t].truncated, agent.value(steps[t].next_obs), follows)
        follows = steps[t].reward + 0.9 * np.where(steps[t].terminated, 0.0, behind)
        expected[t] = follows
    assert_close(batch.target, torch.tensor(expected.reshape(-1), dtype=torch.float32), atol=1e-5, rtol=1e-5)
    assert_close(batch.advantage, torch.tensor((expected - np.stack(value)).reshape(-1), dtype=torch.float32), atol=1e-5, rtol=1e-5)


def test_the_gradient_of_the_loss_is_the_sum_of_its_three_parts(stage: Make, scripted: Make) -> None:
    """-mean A log π + c_v ½ mean (V - y)² - c_e mean H, computed here from the distribution itself."""
    theatre = stage("a2c", scripted(), num_envs=4, entropy_coef=0.3, value_coef=0.7, separate_networks=False, hidden_sizes=(8,))
    agent = theatre.agent
    theatre.collect(5)
    batch, _ = agent.prepare()
    pi = torch.distributions.Categorical(logits=agent.policy.distribution(batch.obs).logits)
    value = agent.policy.evaluate(batch)[2]
    parts = -(batch.advantage * pi.log_prob(batch.action)).mean(), 0.5 * ((value - batch.target) ** 2).mean(), -pi.entropy().mean()
    total = parts[0] + 0.7 * parts[1] + 0.3 * parts[2]
    assert_close(agent.loss(batch).loss, total, atol=1e-6, rtol=1e-5)


def test_rows_backpropagated_in_parts_give_the_gradient_of_the_whole(stage: Make, scripted: Make) -> None:
    theatres = [stage("a2c", scripted(), num_envs=4, micro_batch_size=size, max_grad_norm=1e9) for size in (None, 7)]
    for theatre in theatres:
        theatre.learn(3)
    one, other = (torch.cat([p.detach().reshape(-1) for p in theatre.agent.policy.parameters()]) for theatre in theatres)
    assert_close(one, other, atol=2e-6, rtol=1e-4)


def test_a_rollout_larger_than_the_memory_is_refused(stage: Make, scripted: Make) -> None:
    with pytest.raises(ValueError, match="rollout_steps 1,000,000,000,000 needs"):
        stage("a2c", scripted(), rollout_steps=10**12)
