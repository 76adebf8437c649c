"""Which KL estimator gives which gradient, in the reward and in the loss, where the policy is a table of three logits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

Make = Callable[..., Any]


def exact_kl(logits: np.ndarray, reference: np.ndarray) -> float:
    """KL(π ‖ π_ref) of two softmax policies over three actions."""
    log_p, log_q = (x - math.log(np.exp(x).sum()) for x in (logits, reference))
    return float((np.exp(log_p) * (log_p - log_q)).sum())


def kl_gradient(logits: np.ndarray, reference: np.ndarray, h: float = 1e-5) -> np.ndarray:
    return np.array([(exact_kl(logits + h * e, reference) - exact_kl(logits - h * e, reference)) / (2 * h) for e in np.eye(3)])


def expected_gradient(theatre: Any, algorithm: str) -> np.ndarray:
    """E over a ~ π of the loss's gradient in the three logits: every arm is pulled once and counts π(a). No reward but the penalty."""
    agent = theatre.agent
    for _ in range(200):                                       # pull until every arm has come up
        theatre.collect(1) if algorithm == "ppo" else theatre.round()
        batch, _ = agent.prepare()
        if set(batch.action.flatten().tolist()) == {0, 1, 2}:
            break
        agent.rollout_data.clear()
    rows = torch.stack([(batch.action.flatten() == arm).nonzero()[0, 0] for arm in range(3)])
    one_each = batch[rows]
    one_each.weight = one_each.log_prob.exp()
    (gradient,) = torch.autograd.grad(agent.loss(one_each)[0], [agent.policy.actor.weights[-1]])
    return gradient.double().numpy()


@pytest.mark.parametrize("algorithm", ["ppo", "grpo"])
@pytest.mark.parametrize(("where", "estimator"), [("reward", "k1"), ("loss", "k1"), ("loss", "k2"), ("loss", "k3")])
def test_k1_in_the_reward_and_k2_in_the_loss_descend_the_kl(
    stage: Make, arms: Make, algorithm: str, where: str, estimator: str
) -> None:
    """The exact gradient of β KL(π ‖ π_ref), by central differences. k1 in the loss has none; k3's is that of KL(π_ref ‖ π)."""
    group = {"group_size": 16, "scale": "none"} if algorithm == "grpo" else {"rollout_steps": 1, "value_coef": 0.0}
    theatre = stage(
        algorithm, arms((0.0, 0.0, 0.0)), num_envs=16, hidden_sizes=(), kl_coef=0.7, kl_in=where, kl_estimator=estimator, **group
    )
    agent = theatre.agent
    assert [tuple(w.shape) for w in agent.policy.actor.weights] == [(3, 1), (3,)]
    before = sum(w.detach().double().reshape(3).numpy() for w in agent.policy.actor.weights)
    with torch.no_grad():
        agent.policy.actor.weights[-1].copy_(torch.tensor([0.8, 0.0, -0.8]))
    logits = sum(w.detach().double().reshape(3).numpy() for w in agent.policy.actor.weights)
    found = expected_gradient(theatre, algorithm)
    exact = 0.7 * kl_gradient(logits, before)
    assert np.abs(exact).max() > 0.1
    if (where, estimator) == ("loss", "k1"):
        np.testing.assert_allclose(found, 0.0, atol=1e-6)
    elif estimator == "k3":
        p, q = (np.exp(x) / np.exp(x).sum() for x in (logits, before))
        np.testing.assert_allclose(found, 0.7 * (p - q), atol=1e-6)       # ∇ -Σ q log p = p - q
        assert np.abs(found - exact).max() > 0.01
    else:
        np.testing.assert_allclose(found, exact, atol=1e-5)
