"""PPO's update: what it is given, what it makes of it, and that it starts where the data were
drawn."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, near, widths
from flat_parameters import flat_gradient, flat_weights
from steps import train_on
from torch import Tensor

import rlbook
from rlbook.agent import Step
from rlbook.algorithms.policy.ppo import PPO, policy_change, standardize_advantages
from rlbook.data.reward_scale import RewardScale
from rlbook.data.rollout import Batch
from rlbook.functional.averages import Average, constant, per_sequence, per_token
from rlbook.functional.policy_losses import policy_gradient_loss

Make = Callable[..., Any]
PLAIN: dict[str, Any] = {
    "rollout_steps": 25,
    "normalize_advantage": False,
    "max_grad_norm": 1e9,
    "anneal_learning_rate": False,
}


def gradient_of(agent: Any, loss: Tensor) -> Tensor:
    """∂loss/∂θ as one vector, in the order of the optimiser."""
    gradients = torch.autograd.grad(
        loss, list(agent.policy.parameters()), allow_unused=True, materialize_grads=True
    )
    return torch.cat([g.reshape(-1) for g in gradients])


# ---- the data fit the policy that drew them


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.6},
        {"temperature": 2.5},
        {"separate_networks": False},
        {"normalize_observation": True},
        {"orthogonal_init": False, "normalize_reward": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("continuous", [False, True], ids=["discrete", "continuous"])
def test_the_ratio_is_one_for_every_row_before_the_first_step(
    stage: Make, scripted: Make, continuous: bool, options: dict[str, Any]
) -> None:
    theatre = stage("ppo", scripted(continuous), rollout_steps=20, learning_rate=1e-2, **options)
    theatre.learn(3)
    theatre.collect(20)
    batch, _ = theatre.agent.prepare()
    log_prob, _, _ = theatre.agent.policy.evaluate(batch)
    assert len(batch) == 80
    assert_near(log_prob, batch.log_prob, terms=widths(theatre.agent.policy))


def test_the_action_is_clipped_for_the_environment_and_kept_as_drawn(
    stage: Make, scripted: Make
) -> None:
    """σ = 5 in a box of ±1: nearly every action lies outside. Were the clipped one stored, its
    density would not be the old one."""
    theatre = stage("ppo", scripted(continuous=True), rollout_steps=50)
    with torch.no_grad():
        theatre.agent.policy.log_std.fill_(math.log(5.0))
    played = theatre.collect(50)
    stored = np.stack([step.action for step in played])  # [T, N, 2]
    taken = np.stack(
        [recorder.env.unwrapped.taken for recorder in theatre.env.unwrapped.envs], axis=1
    )
    assert (np.abs(stored) > 1).mean() > 0.8 and np.abs(stored).max() > 5
    np.testing.assert_array_equal(taken, np.clip(stored, -1, 1))
    batch, _ = theatre.agent.prepare()
    log_prob, _, _ = theatre.agent.policy.evaluate(batch)
    assert_near(log_prob, batch.log_prob, terms=widths(theatre.agent.policy))
    np.testing.assert_array_equal(batch.action, stored.reshape(-1, 2))


# ---- advantages


def assert_are_advantages(advantage: Tensor, expected: np.ndarray, agent: Any) -> None:
    """Sums of at most nine TD errors, each no larger than the largest advantage."""
    size = 9 * float(np.abs(expected).max())
    assert_near(
        advantage.view(expected.shape), expected, terms=9 * 3 + widths(agent.policy), size=size
    )


def advantages_by_definition(
    agent: Any, played: list[Step], *, terminal_limits: bool = False
) -> np.ndarray:
    """A_t = Σ_l (γλ)^l δ_{t+l} up to the episode's end, with V asked for each state alone: [T,
    N]."""
    gamma, decay = agent.config.gamma, agent.config.gamma * agent.config.gae_lambda

    def value(obs: np.ndarray) -> float:
        return agent.policy.value(torch.from_numpy(obs[None])).item()

    advantage = np.zeros((len(played), len(played[0].reward)))
    for i in range(advantage.shape[1]):
        for start in range(len(played)):
            for t in range(start, len(played)):
                step = played[t]
                stops = step.terminated[i] or (terminal_limits and step.truncated[i])
                bootstrap = 0.0 if stops else gamma * value(step.next_obs[i])
                advantage[start, i] += decay ** (t - start) * (
                    step.reward[i] + bootstrap - value(step.obs[i])
                )
                if step.terminated[i] or step.truncated[i]:
                    break
    return advantage


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("gamma", "lam"), [(0.9, 0.8), (0.99, 0.0), (0.9, 1.0), (0.0, 0.5)])
def test_advantages_are_those_of_the_definition(
    stage: Make, scripted: Make, gamma: float, lam: float, shared: bool
) -> None:
    """Episodes end in every way, within the rollout and at its last step; V is of the true
    successor (detail 5)."""
    theatre = stage(
        "ppo",
        scripted(),
        num_envs=6,
        gamma=gamma,
        gae_lambda=lam,
        separate_networks=not shared,
        **PLAIN,
    )
    for _ in range(2):  # the second rollout begins amid episodes
        theatre.agent.rollout_data.clear()
        played = theatre.collect(25)
        ends = np.array([[step.terminated, step.truncated] for step in played])
        assert ends[:-1, 0].any() and ends[:-1, 1].any() and not ends[-1].all()
        batch, _ = theatre.agent.prepare()
        assert_are_advantages(
            batch.advantage, advantages_by_definition(theatre.agent, played), theatre.agent
        )
        size = float((batch.advantage.abs() + batch.value.abs()).max())
        assert_near(batch.target, batch.advantage + batch.value, terms=2, size=size)
        assert_near(
            batch.value,
            theatre.agent.policy.value(batch.obs),
            terms=widths(theatre.agent.policy),
            size=1.0,
        )


@pytest.mark.parametrize("kind", ["terminated", "truncated", "running"])
def test_the_last_step_of_a_rollout_bootstraps_unless_it_is_terminal(
    stage: Make, scripted: Make, kind: str
) -> None:
    theatre = stage("ppo", scripted(), num_envs=2, gamma=0.9, **PLAIN)
    obs = np.ones((2, 3), np.float32)
    flags = {name: np.full(2, name == kind) for name in ("terminated", "truncated")}
    step = Step(
        obs,
        np.zeros(2, np.int64),
        np.full(2, 2.0, np.float32),
        2 * obs,
        **flags,
        valid=np.ones(2, bool),
    )
    theatre.agent.rollout_data.add(step, np.zeros(2, np.float32))
    batch, _ = theatre.agent.prepare()
    value, successor = (theatre.agent.policy.value(torch.from_numpy(x)) for x in (obs, 2 * obs))
    expected = 2.0 + (0.0 if kind == "terminated" else 0.9) * successor - value
    assert_near(batch.advantage, expected, terms=widths(theatre.agent.policy), size=4.0)


def test_a_time_limit_may_be_made_an_end(stage: Make, scripted: Make) -> None:
    theatre = stage("ppo", scripted(), num_envs=6, gamma=0.9, truncation="terminal", **PLAIN)
    played = theatre.collect(25)
    batch, _ = theatre.agent.prepare()
    assert any(step.truncated.any() for step in played)
    expected = advantages_by_definition(theatre.agent, played, terminal_limits=True)
    assert_are_advantages(batch.advantage, expected, theatre.agent)


# ---- the gradient


@pytest.mark.parametrize("continuous", [False, True], ids=["discrete", "continuous"])
def test_without_a_clip_one_pass_over_everything_is_actor_critic(
    stage: Make, scripted: Make, continuous: bool
) -> None:
    """At ρ = 1 the surrogate's gradient is the policy gradient: A2C is PPO with one epoch of one
    minibatch."""
    theatre = stage(
        "ppo",
        scripted(continuous),
        clip=1e9,
        epochs=1,
        batch_size=100,
        value_coef=0.5,
        entropy_coef=0.01,
        **PLAIN,
    )
    agent = theatre.agent
    theatre.collect(25)
    batch, _ = agent.prepare()
    log_prob, entropy, value = agent.policy.evaluate(batch)
    loss = (
        policy_gradient_loss(log_prob, batch.advantage)
        + 0.5 * 0.5 * (value - batch.target).square().mean()
        - 0.01 * entropy.mean()
    )
    expected = gradient_of(agent, loss)
    agent.update(batch)
    assert_near(flat_gradient(agent.optimizer), expected, terms=len(batch) + widths(agent.policy))


@pytest.mark.parametrize("average", [per_token, per_sequence, constant(2)])
def test_on_texts_the_clip_fraction_counts_tokens_whatever_the_loss_averages_over(
    average: Average,
) -> None:
    """ρ is e, 1, 1, 1 and A > 0: one token of four is held; the KL is the mean of ρ - 1 - log ρ."""
    mask = torch.tensor([[True, True, True], [True, False, False]])
    zero, moved = torch.zeros(2, 3), torch.tensor([[1.0, 0.0, 0.0], [0.0, 9.0, 9.0]])
    batch = Batch(None, zero.long(), zero, mask, advantage=torch.ones(2, 3)).weigh(average)
    found = policy_change(moved, batch, PPO.Config(clip=0.2))
    assert found["clip_fraction"].item() == 0.25
    assert found["approx_kl"].item() == near((math.e - 2) / 4, dtype="float32", terms=4, size=2.0)


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("size", [1, 7, 64, 100])
def test_micro_batches_do_not_change_the_gradient(stage: Make, scripted: Make, size: int) -> None:
    gradients, diagnostics = [], []
    options = {
        "entropy_coef": 0.01,
        "kl_coef": 0.1,
        "kl_in": "loss",
        "kl_estimator": "k3",
    }
    for micro in (None, size):
        theatre = stage(
            "ppo",
            scripted(),
            micro_batch_size=micro,
            max_grad_norm=1e9,
            rollout_steps=25,
            **options,
        )
        with torch.no_grad():  # away from the reference, so that the KL has a gradient
            theatre.agent.policy.actor.weights[-1].copy_(torch.tensor([0.5, 0.0, -0.5]))
        theatre.collect(25)
        batch, _ = theatre.agent.prepare()
        diagnostics.append(
            train_on(
                theatre.agent,
                standardize_advantages(batch, theatre.agent.policy, theatre.agent.config),
            )
        )
        gradients.append(flat_gradient(theatre.agent.optimizer))
    terms = len(batch) + widths(theatre.agent.policy)
    assert_near(gradients[0], gradients[1], terms=terms)
    first, second = ({name: value.item() for name, value in found.items()} for found in diagnostics)
    assert first == near(second, dtype="float32", terms=terms)


def test_rates_may_follow_schedules(stage: Make, scripted: Make) -> None:
    """At progress .5 the clip is .3, the entropy bonus .05 and the step size (1 + cos(π/2)) / 2 of
    its start."""
    schedules = {
        "clip": "linear(0.4, 0.2)",
        "entropy_coef": "linear(0.1, 0.0)",
        "learning_rate": "cosine(1e-3)",
    }
    fixed = {"clip": 0.3, "entropy_coef": 0.05, "learning_rate": 0.5e-3}
    updated = []
    for rates in (schedules, fixed):
        theatre = stage("ppo", scripted(), rollout_steps=25, anneal_learning_rate=False, **rates)
        theatre.collect(25)
        theatre.agent.progress = 0.5
        batch, _ = theatre.agent.prepare()
        batch.log_prob = batch.log_prob - 0.3  # so that the clip matters
        metrics = theatre.agent.update(batch)
        assert metrics["learning_rate"] == near(0.5e-3, terms=3, size=1e-3)
        updated.append(flat_weights(theatre.agent.optimizer))
    # each adds one rounded step
    assert_near(updated[0], updated[1], terms=theatre.agent.optimizer.steps)


# ---- the reference policy


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_penalty_in_the_reward_is_taken_off_each_step(
    stage: Make, scripted: Make, estimator: str
) -> None:
    """With γ = 0 the critic's target is the reward alone: r - β k(x), x = log π - log π_ref."""
    theatre = stage(
        "ppo", scripted(), gamma=0.0, kl_coef=0.3, kl_in="reward", kl_estimator=estimator, **PLAIN
    )
    with torch.no_grad():
        theatre.agent.policy.actor.weights[-1].copy_(torch.tensor([1.0, 0.0, -1.0]))
    theatre.collect(25)
    batch, metrics = theatre.agent.prepare()
    reference, _, _ = theatre.agent.reference.evaluate(batch)
    x = batch.log_prob - reference
    k = {"k1": x, "k2": x**2 / 2, "k3": torch.exp(-x) - 1 + x}[estimator]
    reward = theatre.agent.rollout_data.tensor("reward").reshape(-1)
    assert x.abs().max() > 0.5
    rounded: Any = {
        "terms": len(batch) + widths(theatre.agent.policy),
        "size": float((reward.abs() + x.exp() + k).max()),
    }
    assert_near(batch.target, reward - 0.3 * k, **rounded)
    assert metrics["reference_kl"] == near(k.mean().item(), dtype="float32", **rounded)


def test_the_reference_never_moves(stage: Make, scripted: Make, fingerprint: Make) -> None:
    theatre = stage(
        "ppo",
        scripted(),
        kl_coef=0.1,
        learning_rate=1e-2,
        normalize_observation=True,
        rollout_steps=10,
    )
    first, started = fingerprint(theatre.agent.reference), fingerprint(theatre.agent.policy)
    assert first == started
    theatre.learn(5)
    assert fingerprint(theatre.agent.reference) == first
    assert all(
        now != then for now, then in zip(fingerprint(theatre.agent.policy), started, strict=True)
    )


# ---- scaled rewards


def test_rewards_are_divided_by_the_deviation_of_the_running_discounted_return() -> None:
    rng = np.random.default_rng(0)
    scale, gamma = RewardScale(3, 0.9), 0.9
    running, seen = np.zeros(3), []
    for _ in range(4):  # four rollouts of 50 steps
        reward, ended = rng.normal(2.0, 3.0, size=(50, 3)), rng.random((50, 3)) < 0.1
        for r, over in zip(reward, ended, strict=True):
            running = gamma * running + r
            seen.append(running.copy())
            running[over] = 0.0
        scaled = scale(
            torch.from_numpy(reward).float(),
            torch.from_numpy(ended),
            torch.ones(50, 3, dtype=torch.bool),
        )
        expected = np.clip(reward / np.concatenate(seen).std(), -10, 10)
        assert_near(scaled, expected, terms=np.size(seen))


def test_scaled_rewards_keep_within_ten() -> None:
    scale = RewardScale(1, 0.0)
    every = torch.ones(1000, 1, dtype=torch.bool)
    out = scale(torch.tensor([[0.0]] * 999 + [[1e4]]), every, every)
    assert out[-1].item() == 10.0  # one in a thousand: 31.6 deviations


def test_the_scale_is_saved_with_the_agent(stage: Make, scripted: Make) -> None:
    theatre = stage("ppo", scripted(), normalize_reward=True, rollout_steps=10)
    theatre.learn(2)
    other = stage("ppo", scripted(), normalize_reward=True, rollout_steps=10, seed=1)
    other.agent.load_state_dict(theatre.agent.state_dict())
    step = torch.ones(5, 4), torch.zeros(5, 4, dtype=torch.bool), torch.ones(5, 4, dtype=torch.bool)
    assert torch.equal(theatre.agent.reward_scale(*step), other.agent.reward_scale(*step))


def test_ppo_values_the_environments_own_observations() -> None:
    run = rlbook.train("ppo", "Maze-v0", steps=600, num_envs=4, rollout_steps=32, eval_every=0)
    agent: Any = run.agent
    one_hot = torch.eye(run.agent.policy.critic.weights[0].shape[1])[[0, 7]]
    values = agent.policy.value(one_hot)
    assert_near(agent.value(np.array([0, 7])), values, terms=widths(agent.policy), size=1.0)


def test_values_may_be_asked_of_observations_in_double_precision(stage: Make) -> None:
    agent, states = (
        stage("ppo", "CartPole-v1", num_envs=2).agent,
        np.linspace(-0.1, 0.1, 12).reshape(3, 4),
    )
    np.testing.assert_array_equal(agent.value(states), agent.value(states.astype(np.float32)))
