"""Each of the 13 core details of PPO can be switched, and changes what it should.

Numbers as in Huang et al. 2022, "The 37 Implementation Details of PPO". Detail 5 (GAE) stands in
test_ppo.py, the arithmetic of the losses in test_functional_policy_losses.py.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, near, rounding_bound, widths
from flat_parameters import flat_gradient, flat_weights
from steps import loss_of, train_on

import rlbook
from rlbook.algorithms.policy.ppo import PPOConfig, ppo_loss
from rlbook.data.rollout import Batch
from rlbook.networks.optimizer import LossOutput

Make = Callable[..., Any]


@pytest.fixture
def ready(stage: Make, scripted: Make) -> Callable[..., tuple[Any, Batch]]:
    """An agent with a full rollout of 25 steps in 4 streams, and the batch made of it."""

    def make(*, continuous: bool = False, seed: int = 0, **config: Any) -> tuple[Any, Batch]:
        theatre = stage("ppo", scripted(continuous), rollout_steps=25, seed=seed, **config)
        theatre.collect(25)
        return theatre.agent, theatre.agent.prepare()[0]

    return make


def weights(agent: Any) -> torch.Tensor:
    return flat_weights(agent.optimizer)


def test_detail_1_a_rollout_is_so_many_steps_of_every_stream(stage: Make, scripted: Make) -> None:
    for steps, num_envs in ((8, 3), (5, 1)):
        theatre = stage("ppo", scripted(), num_envs=num_envs, rollout_steps=steps)
        sizes: list[int] = []
        update = theatre.agent.update
        theatre.agent.update = lambda batch, sizes=sizes, update=update: (
            sizes.append(len(batch)),
            update(batch),
        )[1]
        theatre.learn(3)
        assert sizes == [steps * num_envs] * 3 and theatre.interaction.steps == 3 * steps * num_envs


def test_a_rollout_tells_how_much_of_its_targets_the_critic_explained(
    stage: Make, scripted: Make
) -> None:
    """1 - Var(target - V) / Var(target), of V before the update."""
    theatre = stage("ppo", scripted(), rollout_steps=25)
    theatre.collect(25)
    batch, metrics = theatre.agent.prepare()
    value, target = (field.double().numpy() for field in (batch.value, batch.target))
    left, whole = (target - value).var(ddof=1), target.var(ddof=1)
    assert left > 0.1 * whole
    assert metrics["explained_variance"] == near(
        1 - left / whole, dtype="float32", terms=len(batch), size=1 + left / whole
    )


def test_detail_2_orthogonal_weights_start_with_a_nearly_uniform_policy(ready: Make) -> None:
    """Gain 0.01 in front of the logits: the entropy starts at ln 3. Uniform weights of torch's size
    do not."""
    gaps = {}
    for orthogonal in (True, False):
        agent, batch = ready(orthogonal_init=orthogonal)
        gaps[orthogonal] = math.log(3) - agent.policy.evaluate(batch)[1].mean().item()
    # Rows of length 0.01 over 64 outputs of tanh: |z| ≤ 0.01 √64, and ln 3 - H ≤ |z|² / 2.
    assert gaps[True] < 0.08**2 / 2 < gaps[False] and gaps[False] > 100 * gaps[True]


def test_detail_3_adams_epsilon_reaches_adam(ready: Make) -> None:
    """The first step of Adam moves θ by η g / (|g| + ε)."""
    for eps in (1e-5, 1.0):
        agent, batch = ready(adam_eps=eps, learning_rate=1e-3, anneal_learning_rate=False)
        before = weights(agent)
        train_on(agent, batch)
        g = flat_gradient(agent.optimizer)
        size = float(before.abs().max())  # the step is added to weights of this size
        assert_near(weights(agent), before - 1e-3 * g / (g.abs() + eps), terms=8, size=size)


@pytest.mark.parametrize(("anneal", "rate"), [(True, 0.25e-3), (False, 1e-3)])
def test_detail_4_the_step_size_falls_linearly_to_zero(
    ready: Make, anneal: bool, rate: float
) -> None:
    agent, batch = ready(learning_rate=1e-3, anneal_learning_rate=anneal, adam_eps=1e-12)
    agent.progress = 0.75
    before = weights(agent)
    agent.config = dataclasses.replace(agent.config, epochs=1)
    metrics = agent.update(batch)
    assert metrics["learning_rate"] == near(rate, terms=2)
    rounded: Any = {"dtype": "float32", "size": float(before.abs().max())}
    # Adam's first step is ±η
    assert (weights(agent) - before).abs().max().item() == near(rate, **rounded)


@pytest.mark.parametrize(("size", "epochs"), [(100, 1), (32, 3), (1, 1), (1000, 2)])
def test_detail_6_every_epoch_goes_through_all_rows_once_in_a_new_order(
    ready: Make, size: int, epochs: int
) -> None:
    agent, batch = ready(batch_size=size, epochs=epochs)
    batch.log_prob = torch.arange(100.0)  # a name for each row
    seen: list[list[float]] = []
    agent.loss = lambda policy, rows, **options: (
        seen.append(rows.log_prob.tolist()),
        ppo_loss(policy, rows, **options),
    )[1]
    agent.update(batch)
    assert [len(rows) for rows in seen] == (
        [size] * (100 // size) + [100 % size] * (100 % size > 0) if size <= 100 else [100]
    ) * epochs
    orders = np.array([row for rows in seen for row in rows]).reshape(epochs, 100)
    assert (np.sort(orders, axis=1) == np.arange(100)).all()
    if 1 < size < 100:
        assert not (orders[0] == orders[1]).all()


def test_detail_7_advantages_are_standardised_within_each_minibatch(ready: Make) -> None:
    for switch in (True, False):
        agent, batch = ready(normalize_advantage=switch, batch_size=30, epochs=1)
        batch.advantage = torch.linspace(-5.0, 20.0, 100)
        seen: list[torch.Tensor] = []
        agent.loss = lambda policy, rows, seen=seen, **options: (
            seen.append(rows.advantage),
            ppo_loss(policy, rows, **options),
        )[1]
        agent.update(batch)
        assert [len(part) for part in seen] == [30, 30, 30, 10]
        # sums of 25 deviations at most, of size 2
        rounded: Any = {
            "dtype": "float32",
            "terms": 30,
            "size": 25 / 2,
        }
        standard = [
            (part.mean().item(), part.std().item()) == near((0.0, 1.0), **rounded) for part in seen
        ]
        assert all(standard) if switch else not any(standard)


def test_whitened_rewards_keep_their_mean(stage: Make, scripted: Make) -> None:
    """With γ = 0 the critic's target is the reward: its distance from the mean divided by its
    deviation, and the mean as it was."""
    theatre = stage("ppo", scripted(), whiten_reward=True, rollout_steps=12, gamma=0.0)
    reward = np.concatenate([step.reward for step in theatre.collect(12)])
    batch, _ = theatre.agent.prepare()
    expected = (reward - reward.mean()) / np.sqrt(reward.var(ddof=1) + 1e-8) + reward.mean()
    assert abs(reward.mean()) > 0.01
    assert_near(batch.target, expected, dtype="float32", terms=reward.size, size=10.0)


def test_the_critic_learns_returns_where_advantages_are_standardised_over_the_rollout(
    ready: Make,
) -> None:
    """The targets are advantage + value before the advantages are divided by their deviation."""
    raw, standardised = (ready(normalize_over=over)[1] for over in ("minibatch", "rollout"))
    size = float((raw.advantage.abs() + raw.value.abs()).max())
    assert_near(raw.target, raw.advantage + raw.value, terms=2, size=size)
    assert_near(standardised.target, raw.target, terms=2, size=size)
    one = near(1.0, dtype="float32", terms=len(raw))
    assert standardised.advantage.std().item() == one and raw.advantage.std().item() != one


def test_a_last_minibatch_of_one_row_does_no_harm(ready: Make) -> None:
    agent, batch = ready(batch_size=33, epochs=1)  # 33, 33, 33, 1
    metrics = agent.update(batch)
    assert (
        all(math.isfinite(value) for value in metrics.values())
        and torch.isfinite(weights(agent)).all()
    )


@pytest.mark.parametrize(
    ("shift", "advantage", "moves"),
    [(0.3, 1.0, False), (0.3, -1.0, True), (-0.3, 1.0, True), (-0.3, -1.0, False)],
)
def test_detail_8_a_ratio_outside_the_clip_gains_nothing_more(
    ready: Make, shift: float, advantage: float, moves: bool
) -> None:
    """ρ = e^±.3 = 1.35 or .74, outside of [.8, 1.2]. Only what would lead back in has a
    gradient."""
    for options, expected in (
        ({"clip": 0.2}, moves),
        ({"clip": 0.5}, True),
        ({"clip": 0.2, "clip_high": 0.5}, moves or shift > 0),
    ):
        agent, batch = ready(normalize_advantage=False, value_coef=0.0, **options)
        batch.log_prob -= shift
        batch.advantage = torch.full((100,), advantage)
        train_on(agent, batch)
        assert bool(flat_gradient(agent.optimizer).any()) == expected


def test_the_ratio_is_to_the_policy_that_acted(ready: Make) -> None:
    """ρ = e^.3 = 1.35 and A = 1: the loss is -1.35 without a clip and -1.2 with one. A ratio of the
    policy to itself would give -1."""
    for clip, loss in ((0.5, -math.exp(0.3)), (0.2, -1.2)):
        agent, batch = ready(normalize_advantage=False, clip=clip)
        batch.log_prob -= 0.3
        batch.advantage = torch.ones(100)
        terms = len(batch) + widths(agent.policy)
        assert loss_of(agent, batch).metrics["policy_loss"].item() == near(
            loss, dtype="float32", terms=terms
        )


def test_detail_9_the_value_may_be_held_near_its_old_value(ready: Make) -> None:
    """V 1 above V_old and the target far above both: clipped at 0.2, ½ (V_old + .2 - y)² is larger
    than ½ (V - y)² and has no gradient."""
    for clip_value, expected in ((None, True), (0.2, False), (2.0, True)):
        agent, batch = ready(clip_value=clip_value, normalize_advantage=False)
        batch.value = batch.value - 1.0
        batch.target, batch.advantage = batch.value + 10.0, torch.zeros(100)
        train_on(agent, batch)
        assert bool(flat_gradient(agent.optimizer).any()) == expected


def test_detail_10_the_loss_is_policy_plus_value_minus_entropy(ready: Make) -> None:
    for value_coef, entropy_coef in ((1.0, 0.0), (0.5, 0.02), (0.0, 1.0)):
        agent, batch = ready(value_coef=value_coef, entropy_coef=entropy_coef)
        total, parts = loss_of(agent, batch)
        policy_loss, value_loss, entropy = (
            parts[name].item() for name in ("policy_loss", "value_loss", "entropy")
        )
        rounded: Any = {"dtype": "float32", "terms": len(batch) + widths(agent.policy)}
        squares = (batch.target.abs() + batch.value.abs()).square().mean().item()
        expected = 0.5 * (batch.target - batch.value).square().mean().item()
        assert value_loss == near(expected, **rounded, size=squares)
        # as in detail 2
        assert math.log(3) - 0.08**2 / 2 < entropy < math.log(3) + rounding_bound(**rounded)
        size = abs(policy_loss) + value_coef * value_loss + entropy_coef * entropy
        expected = policy_loss + value_coef * value_loss - entropy_coef * entropy
        assert total.item() == near(expected, **rounded, size=size)


def test_the_entropy_bonus_raises_the_entropy(ready: Make) -> None:
    agent, batch = ready(
        entropy_coef=1.0, value_coef=0.0, normalize_advantage=False, learning_rate=1e-2
    )
    with torch.no_grad():
        agent.policy.actor.weights[-1].copy_(torch.tensor([2.0, 0.0, 0.0]))
    batch.advantage = torch.zeros(100)
    before = agent.policy.evaluate(batch)[1].mean()
    agent.update(batch)
    assert agent.policy.evaluate(batch)[1].mean() > before + 0.01


def test_detail_11_a_long_gradient_is_cut(ready: Make) -> None:
    for limit in (0.5, 1e9):
        agent, batch = ready(max_grad_norm=limit, value_coef=100.0)
        reported = train_on(agent, batch)["grad_norm"].item()
        assert reported > 1.0
        norm = flat_gradient(agent.optimizer).norm().item()
        assert norm == near(min(limit, reported), dtype="float32", terms=len(weights(agent)))


def test_detail_12_the_diagnostics_are_what_they_say(ready: Make) -> None:
    """Old log-probabilities moved by -.3 and +.1: ρ = e^.3 and e^-.1; KL(π_old ‖ π) ≈ mean(ρ - 1 -
    ln ρ); half are outside, all of them above, where the clip holds those with A > 0."""
    agent, batch = ready()
    batch.log_prob = batch.log_prob + torch.tensor([-0.3, 0.1]).repeat(50)
    _, parts = loss_of(agent, batch)
    expected = ((math.exp(0.3) - 1.3) + (math.exp(-0.1) - 0.9)) / 2
    terms = len(batch) + widths(agent.policy)
    assert parts["approx_kl"].item() == near(
        expected, dtype="float32", terms=terms, size=math.exp(0.3) + 1.3
    )
    held = (batch.advantage[::2] > 0).sum().item() / 100
    assert 0.1 < held < 0.4 and parts["clip_fraction"].item() == near(
        held, dtype="float32", terms=100
    )


def test_an_update_logs_the_mean_of_its_last_epoch(ready: Make) -> None:
    agent, batch = ready(batch_size=50, epochs=3)
    steps = range(6)
    numbered = [
        LossOutput(torch.zeros((), requires_grad=True), {"value_loss": torch.tensor(float(step))})
        for step in steps
    ]
    agent.loss = lambda policy, rows, **options: numbered.pop(0)
    assert agent.update(batch)["value_loss"] == (4 + 5) / 2


@pytest.mark.parametrize("target_kl", [None, 1e-4, 1e3])
def test_an_update_may_stop_when_the_policy_has_moved_far_enough(
    ready: Make, target_kl: float | None
) -> None:
    agent, batch = ready(
        batch_size=50, epochs=8, learning_rate=3e-2, target_kl=target_kl, anneal_learning_rate=False
    )
    agent.update(batch)
    epochs = agent.optimizer.steps / 2
    assert 1 <= epochs < 8 if target_kl == 1e-4 else epochs == 8


def test_detail_13_the_networks_are_separate_or_share_their_layers(ready: Make) -> None:
    """Separate: the value's loss leaves the policy as it is. Shared: it moves the policy's hidden
    layers too."""
    sizes = {}
    for separate in (True, False):
        agent, batch = ready(separate_networks=separate, normalize_advantage=False)
        batch.advantage = torch.zeros(100)  # the value's loss alone
        body = agent.policy.actor.layers[0].weight
        before = body.detach().clone()
        train_on(agent, batch)
        assert torch.equal(body, before) == separate
        sizes[separate] = len(flat_weights(agent.optimizer))
    assert sizes[True] - sizes[False] == 3 * 64 + 64 + 64 * 64 + 64


def test_observations_are_standardised_by_what_was_seen_before_this_rollout(
    stage: Make, scripted: Make
) -> None:
    theatre = stage("ppo", scripted(), normalize_observation=True, rollout_steps=25)
    seen = []
    for _ in range(2):
        played = theatre.collect(24)
        normalizer = theatre.agent.policy.normalizer
        known = np.concatenate(seen) if seen else np.zeros((0, 3))
        assert normalizer.count.item() == len(known)
        if len(known):
            known = known.astype(np.float64)
            size = float(np.square(known).max())
            assert_near(normalizer.mean, known.mean(0), terms=len(known), size=size)
            assert_near(normalizer.variance, known.var(0), terms=len(known), size=size)
        step = theatre.interaction.step(theatre.agent.act(theatre.interaction.obs))
        theatre.agent.learn(step)  # the 25th: now the rollout is full
        theatre.interaction.reset_finished()
        seen += [one.obs for one in (*played, step)]


def test_an_infinite_bound_switches_clipping_off() -> None:
    options: dict[str, Any] = {"steps": 64, "num_envs": 2, "rollout_steps": 16, "eval_every": 0}
    bounds = {"clip": float("inf"), "clip_value": float("inf"), "max_grad_norm": float("inf")}
    metrics = rlbook.train("ppo", "Maze-v0", **options, **bounds).metrics[-1]
    assert metrics["clip_fraction"] == 0.0 and np.isfinite(metrics["grad_norm"])
    with pytest.raises(ValueError, match="clip must be a number above 0, got nan"):
        PPOConfig(clip=float("nan"))
