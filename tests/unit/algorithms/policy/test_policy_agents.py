"""What all agents with a policy do alike with their settings: one place in the code each, and a
test for every agent."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, near, widths
from flat_parameters import flat_gradient
from steps import loss_of, train_on

from rlbook.seeding import rng_state

Make = Callable[..., Any]
AGENTS: dict[str, dict[str, Any]] = {
    "reinforce": {},
    "a2c": {"rollout_steps": 4},
    "ppo": {"rollout_steps": 4},
    "grpo": {"group_size": 4},
    "dpo": {"group_size": 4},
}


@pytest.mark.parametrize("algorithm", AGENTS)
def test_the_gradient_is_clipped_to_max_grad_norm(
    stage: Make, scripted: Make, algorithm: str
) -> None:
    theatre = stage(algorithm, scripted(), num_envs=8, max_grad_norm=1e-3, **AGENTS[algorithm])
    (metrics,) = theatre.learn(1)
    assert metrics["grad_norm"] > 1e-2
    clipped = flat_gradient(theatre.agent.optimizer)  # g · 1e-3 / (‖g‖ + 1e-6)
    expected = 1e-3 * metrics["grad_norm"] / (metrics["grad_norm"] + 1e-6)
    assert clipped.norm().item() == near(expected, dtype="float32", terms=len(clipped))


@pytest.mark.parametrize("algorithm", ["ppo", "dqn", "sac"])
def test_what_is_drawn_for_actions_is_not_drawn_again_for_minibatches(
    stage: Make, scripted: Make, algorithm: str
) -> None:
    agent = stage(algorithm, scripted()).agent
    other = agent.shuffling if algorithm == "ppo" else agent.sampling
    assert not set(agent.exploration.random(4)) & set(other.random(4))


@pytest.mark.parametrize("algorithm", ["a2c", "ppo", "grpo", "reinforce"])
def test_the_entropy_bonus_descends_minus_its_coefficient_times_the_entropy(
    stage: Make, arms: Make, algorithm: str
) -> None:
    """Every arm pays the same, so that nothing but the bonus has a gradient: -c ∂H/∂logit_i = c p_i
    (log p_i + H)."""
    options = AGENTS[algorithm] | ({"value_coef": 0.0} if algorithm in ("a2c", "ppo") else {})
    theatre = stage(
        algorithm,
        arms((0.0, 0.0, 0.0)),
        num_envs=8,
        hidden_sizes=(),
        entropy_coef=0.3,
        max_grad_norm=1e9,
        **options,
    )
    actor = theatre.agent.policy.actor
    with torch.no_grad():
        actor.weights[0].zero_()
        actor.weights[1].copy_(torch.tensor([1.0, 0.0, -1.0]))
    p = np.exp([1.0, 0.0, -1.0]) / np.exp([1.0, 0.0, -1.0]).sum()
    expected = 0.3 * p * (np.log(p) - (p * np.log(p)).sum())
    theatre.collect(4) if algorithm in ("a2c", "ppo") else theatre.round()
    prepared = theatre.agent.prepare()
    batch = prepared if algorithm == "reinforce" else prepared[0]
    batch.weight = batch.mask / batch.mask.sum()
    if algorithm in ("a2c", "ppo"):
        batch.advantage = torch.zeros_like(batch.advantage)
    (gradient,) = torch.autograd.grad(loss_of(theatre.agent, batch)[0], [actor.weights[1]])
    assert np.abs(expected).max() > 0.05
    assert_near(gradient, expected, terms=len(batch) + 3)


@pytest.mark.parametrize("algorithm", ["ppo", "grpo"])
def test_a_bad_step_costs_at_most_the_dual_clip(
    stage: Make, scripted: Make, algorithm: str
) -> None:
    """A = -1 and ρ = e² = 7.39: the clip from below does not bound ρ A, c = 3 does, and then no
    gradient is left."""
    options = AGENTS[algorithm] | (
        {"normalize_advantage": False, "value_coef": 0.0} if algorithm == "ppo" else {}
    )
    for dual_clip, loss in ((None, math.exp(2)), (3.0, 3.0)):
        theatre = stage(algorithm, scripted(), num_envs=8, dual_clip=dual_clip, **options)
        theatre.round() if algorithm == "grpo" else theatre.collect(4)
        batch, _ = theatre.agent.prepare()
        batch.log_prob, batch.advantage = batch.log_prob - 2.0, -torch.ones_like(batch.advantage)
        batch.weight = theatre.agent.config.averaging()(batch.mask)
        parts = train_on(theatre.agent, batch)
        terms = len(batch) + widths(theatre.agent.policy)
        # ρ = e², to 2 ε
        assert parts["policy_loss"].item() == near(
            loss, dtype="float32", terms=terms, size=2 * loss
        )
        assert bool(flat_gradient(theatre.agent.optimizer).any()) == (dual_clip is None)


@pytest.mark.parametrize("algorithm", AGENTS)
def test_a_saved_agents_generators_are_those_of_the_copy(
    stage: Make, scripted: Make, algorithm: str
) -> None:
    """What acts, and what shuffles; they are not the same."""
    agent, other = (
        stage(algorithm, scripted(), num_envs=8, seed=seed, **AGENTS[algorithm]) for seed in (0, 1)
    )
    agent.learn(2)
    other.agent.load_state_dict(agent.agent.state_dict())
    for name in ("exploration", "shuffling"):
        assert rng_state(getattr(other.agent, name)) == rng_state(getattr(agent.agent, name)), name
    assert rng_state(agent.agent.exploration) != rng_state(agent.agent.shuffling)
