"""Which KL estimator gives which gradient, in the reward and in the loss, where the policy is a
table of three logits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, near
from steps import loss_of

from rlbook.algorithms.policy.kl_penalty import KLPenalty
from rlbook.functional.schedules import Linear
from rlbook.registry import agent_class

Make = Callable[..., Any]
# sums over at most 81 rows, of rewards up to 1 and of 0.7 times log-ratios up to 1.4
SUMS: dict[str, Any] = {"dtype": "float32", "terms": 81, "size": 2}


def exact_kl(logits: np.ndarray, reference: np.ndarray) -> float:
    """KL(π ‖ π_ref) of two softmax policies over three actions."""
    log_p, log_q = (x - math.log(np.exp(x).sum()) for x in (logits, reference))
    return float((np.exp(log_p) * (log_p - log_q)).sum())


def kl_gradient(logits: np.ndarray, reference: np.ndarray, h: float = 1e-5) -> np.ndarray:
    return np.array(
        [
            (exact_kl(logits + h * e, reference) - exact_kl(logits - h * e, reference)) / (2 * h)
            for e in np.eye(3)
        ]
    )


def expected_gradient(theatre: Any, algorithm: str) -> np.ndarray:
    """E over a ~ π of the loss's gradient in the three logits: every arm is pulled once and counts
    π(a). No reward but the penalty."""
    agent = theatre.agent
    for _ in range(200):  # pull until every arm has come up
        theatre.collect(1) if algorithm == "ppo" else theatre.round()
        batch, _ = agent.prepare()
        if set(batch.action.flatten().tolist()) == {0, 1, 2}:
            break
        agent.rollout_data.clear()
    rows = torch.stack([(batch.action.flatten() == arm).nonzero()[0, 0] for arm in range(3)])
    one_each = batch[rows]
    one_each.weight = one_each.log_prob.exp()
    (gradient,) = torch.autograd.grad(loss_of(agent, one_each)[0], [agent.policy.actor.weights[-1]])
    return gradient.double().numpy()


def test_the_penalty_is_taken_off_each_step_and_its_mean_is_over_the_steps_that_were_taken() -> (
    None
):
    """Episodes of one step and of three; what stands in the padding does not count."""
    config = agent_class("ppo").Config(kl_coef=0.5, kl_in="reward", kl_estimator="k1")
    valid = torch.tensor([[True, True], [False, True], [False, True]])  # [T, N]
    own = torch.tensor([[-1.0, 50.0, 50.0], [-2.0, -1.0, -3.0]])  # [N, T]
    reference = torch.tensor([[-3.0, -9.0, -9.0], [-2.5, -1.0, -2.0]])
    rollout: Any = SimpleNamespace(tensor={"valid": valid}.__getitem__)
    policy: Any = SimpleNamespace(batch=lambda *_: SimpleNamespace(log_prob=own))
    other: Any = SimpleNamespace(evaluate=lambda *_, **__: (reference, None, None))
    penalty = KLPenalty(config)
    paid, known = penalty.penalize(torch.ones(3, 2), policy, other, rollout, 0.5)
    assert penalty.kl == (2.0 + 0.5 + 0.0 - 1.0) / 4
    assert paid[valid].tolist() == [1 - 0.5 * 2.0, 1 - 0.5 * 0.5, 1.0, 1 + 0.5 * 1.0]
    assert torch.equal(known, reference.T)


def test_beta_moves_by_the_rollouts_share_of_the_horizon() -> None:
    """The KL is over its target by more than a fifth: 500 rows of 2000 make that a quarter of a
    fifth, 4000 rows two fifths; within the bounds."""
    config = agent_class("ppo").Config(
        kl_coef=0.5, kl_target=0.1, kl_horizon=2000, kl_coef_min=0.4, kl_coef_max=0.72
    )
    penalty, coefs = KLPenalty(config), []
    for rows, kl in ((500, 0.3), (4000, 0.3), (4000, 0.3), (4000, 0.0), (4000, 0.0)):
        penalty.kl = kl
        assert penalty.adapt(rows) == {"kl_coef": [0.5, *coefs][-1]}
        coefs.append(penalty.coef)
    expected = [0.5 * 1.05, 0.72, 0.72, 0.72 * 0.6, 0.4]
    assert coefs == near(expected, terms=4)


@pytest.mark.parametrize("algorithm", ["ppo", "grpo"])
@pytest.mark.parametrize(
    ("where", "estimator"),
    [("reward", "k1"), ("loss", "k2"), ("loss", "k3"), ("loss", "k1+"), ("loss", "k3+")],
)
def test_k1_in_the_reward_and_the_gradient_of_k2_in_the_loss_descend_the_kl(
    stage: Make, arms: Make, algorithm: str, where: str, estimator: str
) -> None:
    """The exact gradient of β KL(π ‖ π_ref), by central differences; k3's is that of KL(π_ref ‖
    π)."""
    group = (
        {"group_size": 16, "scale": "none"}
        if algorithm == "grpo"
        else {"rollout_steps": 1, "value_coef": 0.0}
    )
    theatre = stage(
        algorithm,
        arms((0.0, 0.0, 0.0)),
        num_envs=16,
        hidden_sizes=(),
        kl_coef=0.7,
        kl_in=where,
        kl_estimator=estimator,
        **group,
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
    if estimator == "k3":
        p, q = (np.exp(x) / np.exp(x).sum() for x in (logits, before))
        assert_near(found, 0.7 * (p - q), **SUMS)  # ∇ -Σ q log p = p - q
        assert np.abs(found - exact).max() > 0.01
    else:
        assert_near(found, exact, **SUMS)


@pytest.mark.parametrize("algorithm", ["ppo", "grpo"])
def test_k1_in_the_loss_is_refused(algorithm: str) -> None:
    """E[∇ log π(a)] = Σ π ∇ log π = ∇ Σ π = ∇ 1 = 0: it would hold the policy to nothing."""
    config = agent_class(algorithm).Config
    with pytest.raises(
        ValueError,
        match=(
            r"kl_estimator must be one of 'k2', 'k3', 'k1\+', 'k3\+' where kl_in is 'loss', got"
            r" 'k1'"
        ),
    ):
        config(kl_coef=0.1, kl_in="loss", kl_estimator="k1")
    assert config(kl_coef=0.1, kl_in="loss", kl_estimator="k1+").kl_estimator == "k1+"
    assert config(kl_coef=0.1, kl_in="reward", kl_estimator="k1").kl_estimator == "k1"


@pytest.mark.parametrize("algorithm", ["ppo", "gail"])
def test_an_estimator_of_a_penalty_without_weight_is_refused(algorithm: str) -> None:
    config: Any = agent_class(algorithm).Config
    for setting in ({"kl_estimator": "k3"}, {"kl_clamp": 10.0}):
        with pytest.raises(ValueError, match=r"has no effect without kl_coef; leave it out"):
            config(**setting)
    penalty = {"kl_estimator": "k3", "kl_clamp": 10.0, "kl_coef": Linear(0.1, 0.0)}
    if algorithm == "ppo":
        assert config(**penalty).resolve(1.0).kl_coef == 0.0, "a weight may fall to 0"


# ---- a bandit of three tokens, of which the first is paid 1: the weight of the penalty is what it says

G = 3


def optimum(beta: float, estimator: str) -> np.ndarray:
    """The policy at which the gradients of E[r] and of the penalty cancel, by hand; π_ref is
    uniform.

    k2, k1+, k3+: max E[r] - β KL(π ‖ π_ref) has p ∝ exp(r / β). k3: p_i (r_i - E[r]) = β (p_i -
    1/3), so p_i = (β / 3) / (λ - r_i) with λ = β + E[r]; Σ p_i = 1 makes λ² - (1 + β) λ + 2β/3 = 0.
    """
    reward = np.array([1.0, 0.0, 0.0])
    if estimator != "k3":
        return np.exp(reward / beta) / np.exp(reward / beta).sum()
    root = (1 + beta + math.sqrt((1 + beta) ** 2 - 8 * beta / 3)) / 2
    return beta / 3 / (root - reward)


def gradient_at(
    stage: Make, arms: Make, p: np.ndarray, *, where: str = "loss", **options: Any
) -> np.ndarray:
    """E[∇ loss] in the three logits where π = p: all 3^G groups of actions, each with its
    probability. No sample, no noise."""
    groups = list(itertools.product(range(3), repeat=G))
    theatre = stage(
        "grpo",
        arms((1.0, 0.0, 0.0)),
        num_envs=G * len(groups),
        group_size=G,
        hidden_sizes=(),
        scale="none",
        kl_coef=0.5,
        kl_in=where,
        **options,
    )
    agent = theatre.agent
    with torch.no_grad():
        for policy, logits in ((agent.reference, np.zeros(3)), (agent.policy, np.log(p))):
            policy.actor.weights[0].zero_()
            policy.actor.weights[1].copy_(torch.from_numpy(logits))
    (step,) = theatre.round()
    action = np.array(groups).reshape(-1)
    agent.rollout_data.steps = [step._replace(action=action, reward=np.float32(action == 0))]
    agent.rollout_data.log_probs = [np.log(p)[action].astype(np.float32)]
    batch, _ = agent.prepare()
    chance = torch.from_numpy(p[np.array(groups)].prod(1).repeat(G) / G)
    batch.weight = chance.float().reshape(batch.mask.shape)
    (gradient,) = torch.autograd.grad(loss_of(agent, batch)[0], [agent.policy.actor.weights[1]])
    return gradient.double().numpy()


@pytest.mark.parametrize("estimator", ["k2", "k3", "k1+", "k3+"])
def test_the_penalty_in_the_loss_weighs_beta_with_the_mean_of_the_others_and_more_with_the_mean_of_all(
    stage: Make, arms: Make, estimator: str
) -> None:
    """β = .5, and G = 3 makes the other baseline's weight .5 · 3/2 = .75. For k3, p of the paid
    token is .7287 and .6404."""
    right, heavier = optimum(0.5, estimator), optimum(0.5 * G / (G - 1), estimator)
    if estimator == "k3":
        assert (round(right[0], 4), round(heavier[0], 4)) == (0.7287, 0.6404)
    for baseline, p, other in (("leave-one-out", right, heavier), ("mean", heavier, right)):
        options = {"baseline": baseline, "kl_estimator": estimator}
        assert_near(gradient_at(stage, arms, p, **options), np.zeros(3), **SUMS)
        assert np.abs(gradient_at(stage, arms, other, **options)).max() > 0.02


@pytest.mark.parametrize("baseline", ["mean", "leave-one-out"])
def test_the_penalty_in_the_reward_weighs_beta_with_either_baseline(
    stage: Make, arms: Make, baseline: str
) -> None:
    """It goes through the baseline with the reward, so that the factor is common to both: p ∝ exp(r
    / β)."""
    found = gradient_at(
        stage, arms, optimum(0.5, "k1"), where="reward", kl_estimator="k1", baseline=baseline
    )
    assert_near(found, np.zeros(3), **SUMS)
