"""A2C: its advantages by hand, and that it is PPO with one epoch, one minibatch and no clip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, rounding_bound, widths
from steps import loss_of

import rlbook
from rlbook.algorithms.policy.ppo import standardize_advantages

Make = Callable[..., Any]


def gradient(agent: Any, loss: torch.Tensor) -> torch.Tensor:
    parts = torch.autograd.grad(loss, list(agent.policy.parameters()), allow_unused=True)
    return torch.cat([part.reshape(-1) for part in parts if part is not None])


@pytest.mark.parametrize("continuous", [False, True], ids=["discrete", "continuous"])
@pytest.mark.parametrize(
    "options",
    [{"gae_lambda": 1.0}, {"gae_lambda": 0.9, "entropy_coef": 0.01, "separate_networks": False}],
    ids=str,
)
def test_ppos_first_gradient_on_a_rollout_is_a2cs(
    stage: Make, scripted: Make, options: dict[str, Any], continuous: bool
) -> None:
    """ρ = 1 there, and d ρ A = A d log π; the clip is inactive. With advantages as they are.

    An entry of the gradient is a mean over rows of A or V - y, times what the layers let through,
    of size 2 at most: two matrices of norm √2 and tanh.
    """
    both: dict[str, Any] = {"rollout_steps": 16, "value_coef": 0.5, "seed": 3} | options
    one, other = (
        stage("a2c", scripted(continuous), **both),
        stage("ppo", scripted(continuous), normalize_advantage=False, **both),
    )
    for theatre in (one, other):
        theatre.collect(16)
    ours, theirs = one.agent.prepare()[0], other.agent.prepare()[0]
    terms = len(ours.advantage) + widths(one.agent.policy)
    assert_near(ours.advantage, theirs.advantage, terms=terms)
    found = gradient(one.agent, loss_of(one.agent, ours).loss)
    expected = gradient(
        other.agent,
        loss_of(
            other.agent, standardize_advantages(theirs, other.agent.policy, other.agent.config)
        ).loss,
    )
    size = 2 * ours.advantage.abs().mean().item()
    assert_near(found, expected, terms=terms, size=size)
    assert expected.norm() > 100 * rounding_bound("float32", terms=terms, size=size)


def test_ppo_with_one_epoch_and_one_minibatch_is_a2c_on_the_maze() -> None:
    """Ten updates: the same episodes, and weights that differ by float32's rounding.

    A large ε keeps Adam from amplifying it: the step is 100 g / (√v + 1000) = 0.1 g, with |g| of at
    most .5. Ten of them move the weights by .15.
    """
    both: dict[str, Any] = {
        "rollout_steps": 16,
        "value_coef": 0.5,
        "hidden_sizes": (16,),
        "gae_lambda": 1.0,
    }
    both |= {"learning_rate": 100.0, "adam_eps": 1000.0}
    both |= {"max_grad_norm": 0.5, "eval_every": 0, "steps": 10 * 16 * 8, "num_envs": 8, "seed": 3}
    one = rlbook.train("a2c", "Maze-v0", **both)
    other = rlbook.train(
        "ppo", "Maze-v0", epochs=1, batch_size=16 * 8, normalize_advantage=False, **both
    )
    assert one.episode_returns == other.episode_returns
    ours: Any = one.agent
    theirs: Any = other.agent
    weights = (list(agent.policy.parameters()) for agent in (ours, theirs))
    assert_near(*weights, terms=10 * (16 * 8 + widths(ours.policy)), size=1.0)


def test_what_follows_the_rollout_is_the_critics_estimate_and_nothing_follows_a_termination(
    stage: Make, scripted: Make
) -> None:
    """λ = 1, by hand, backwards: G = r + γ G' within an episode; behind a time limit and behind the
    rollout G' is V(s'), else 0."""
    theatre = stage("a2c", scripted(), num_envs=3, gamma=0.9, rollout_steps=12)
    agent = theatre.agent
    steps = theatre.collect(12)
    batch, _ = agent.prepare()
    ends = {
        (bool(t), bool(c))
        for step in steps
        for t, c in zip(step.terminated, step.truncated, strict=True)
    }
    assert ends == {(False, False), (True, False), (False, True)}
    value = [agent.value(step.obs) for step in steps]
    follows = agent.value(steps[-1].next_obs)
    expected = np.empty((12, 3))
    for t in reversed(range(12)):
        behind = np.where(steps[t].truncated, agent.value(steps[t].next_obs), follows)
        follows = steps[t].reward + 0.9 * np.where(steps[t].terminated, 0.0, behind)
        expected[t] = follows
    rounded: dict[str, Any] = {"terms": 12 + widths(agent.policy), "size": 12.0}
    assert_near(batch.target, expected.reshape(-1), **rounded)
    assert_near(batch.advantage, (expected - np.stack(value)).reshape(-1), **rounded)


def test_the_gradient_of_the_loss_is_the_sum_of_its_three_parts(
    stage: Make, scripted: Make
) -> None:
    """-mean A log π + c_v ½ mean (V - y)² - c_e mean H, computed here from the distribution
    itself."""
    theatre = stage(
        "a2c",
        scripted(),
        num_envs=4,
        entropy_coef=0.3,
        value_coef=0.7,
        separate_networks=False,
        hidden_sizes=(8,),
    )
    agent = theatre.agent
    theatre.collect(5)
    batch, _ = agent.prepare()
    pi = torch.distributions.Categorical(logits=agent.policy.distribution(batch.obs).logits)
    value = agent.policy.evaluate(batch)[2]
    parts = (
        -(batch.advantage * pi.log_prob(batch.action)).mean(),
        0.5 * ((value - batch.target) ** 2).mean(),
        -pi.entropy().mean(),
    )
    total = parts[0] + 0.7 * parts[1] + 0.3 * parts[2]
    assert_near(loss_of(agent, batch).loss, total, terms=20 + widths(agent.policy), size=5.0)


def test_rows_backpropagated_in_parts_give_the_gradient_of_the_whole(
    stage: Make, scripted: Make
) -> None:
    """A large ε makes Adam's step 0.1 of the gradient, so that it does not amplify rounding."""
    linear: dict[str, Any] = {
        "learning_rate": 100.0,
        "adam_eps": 1000.0,
        "anneal_learning_rate": False,
    }
    theatres = [
        stage("a2c", scripted(), num_envs=4, micro_batch_size=size, max_grad_norm=1e9, **linear)
        for size in (None, 7)
    ]
    start = torch.cat([p.detach().reshape(-1) for p in theatres[0].agent.policy.parameters()])
    for theatre in theatres:
        theatre.learn(3)
    one, other = (
        torch.cat([p.detach().reshape(-1) for p in theatre.agent.policy.parameters()])
        for theatre in theatres
    )
    terms = 3 * (20 + widths(theatres[0].agent.policy))
    assert_near(one, other, terms=terms, size=1.0)
    assert (one - start).abs().max() > 100 * rounding_bound("float32", terms=terms)


def test_a_rollout_larger_than_the_memory_is_refused(stage: Make, scripted: Make) -> None:
    with pytest.raises(ValueError, match="rollout_steps 1,000,000,000,000 needs"):
        stage("a2c", scripted(), rollout_steps=10**12)
