"""GRPO: groups, their advantages, the averages, and where the gradient comes from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, near, rounding_bound, widths
from flat_parameters import flat_gradient
from steps import loss_of, train_on
from torch import Tensor

from rlbook.algorithms.policy.grpo import grpo_rows
from rlbook.algorithms.policy.grpo_config import GRPOConfig
from rlbook.algorithms.policy.recorded_groups import recorded_rows
from rlbook.data.episodes import Episode, Groups
from rlbook.data.refill import SpreadFilter, groups_differ
from rlbook.registry import VARIANTS

Make = Callable[..., Any]
PLAIN: dict[str, Any] = {"max_grad_norm": 1e9, "learning_rate": 1e-2}


def terms_of(agent: Any, batch: Any) -> int:
    """What a loss or a gradient adds up: the rows, and the network's layers."""
    return batch.mask.numel() + widths(agent.policy)


def gradient_of(agent: Any, loss: Tensor) -> Tensor:
    return torch.cat(
        [g.reshape(-1) for g in torch.autograd.grad(loss, list(agent.policy.parameters()))]
    )


def tilt(agent: Any) -> None:
    """Moves the policy away from where it (and its reference) began."""
    with torch.no_grad():
        agent.policy.actor.weights[-1].copy_(torch.tensor([0.8, 0.0, -0.8]))


@pytest.mark.parametrize("options", [{}, {"temperature": 0.6}, {"temperature": 2.5}], ids=str)
def test_the_ratio_is_one_for_every_step_before_the_first_update(
    stage: Make, scripted: Make, options: dict[str, Any]
) -> None:
    for continuous in (False, True):
        theatre = stage(
            "grpo", scripted(continuous), num_envs=8, group_size=4, learning_rate=1e-2, **options
        )
        theatre.learn(3)
        theatre.round()
        batch, _ = theatre.agent.prepare()
        log_prob, _, _ = theatre.agent.policy.evaluate(batch)
        assert 8 < batch.mask.sum() < batch.mask.numel()
        terms = widths(theatre.agent.policy)
        assert_near(log_prob[batch.mask], batch.log_prob[batch.mask], terms=terms)


def test_every_step_of_an_episode_has_the_episodes_advantage_within_its_group(
    stage: Make, scripted: Make
) -> None:
    """A_i = (R_i - mean) / (std + 1e-4) with the deviation of a sample (ddof = 1), over
    neighbours."""
    theatre = stage("grpo", scripted(), num_envs=8, group_size=4)
    played = theatre.round()
    returns = sum(step.reward * step.valid for step in played).reshape(2, 4)
    batch, metrics = theatre.agent.prepare()
    expected = (returns - returns.mean(1, keepdims=True)) / (
        returns.std(1, ddof=1, keepdims=True) + 1e-4
    )
    each_step = np.repeat(expected.reshape(8, 1), batch.mask.shape[1], axis=1)
    assert_near(batch.advantage, each_step, terms=9 + 4, size=9 / returns.std(1, ddof=1).min())
    assert batch.mask.sum(1).tolist() == np.stack([step.valid for step in played]).sum(0).tolist()
    assert metrics["group_return"] == near(returns.mean(), dtype="float32", terms=8 * 9, size=9.0)
    assert metrics["zero_std_groups"] == 0.0


def test_pairs_without_a_scale_are_reinforce_with_the_mean_as_baseline(
    stage: Make, scripted: Make
) -> None:
    """∇ of -mean over steps of (R - mean of the group) log π(a|s); one epoch at ρ = 1, so the clip
    is not felt."""
    theatre = stage("grpo", scripted(), num_envs=6, group_size=2, scale="none", **PLAIN)
    agent = theatre.agent
    played = theatre.round()
    returns = torch.from_numpy(sum(step.reward * step.valid for step in played))
    batch, _ = agent.prepare()
    baseline = returns.view(3, 2).mean(1).repeat_interleave(2)
    log_prob, _, _ = agent.policy.evaluate(batch)
    per_episode = (log_prob * batch.mask).sum(1) * (returns - baseline)
    expected = gradient_of(agent, -per_episode.sum() / batch.mask.sum())
    agent.update(batch)
    assert expected.norm() > 0.05
    assert_near(
        flat_gradient(agent.optimizer),
        expected,
        terms=terms_of(agent, batch),
        size=expected.norm().item(),
    )


def averaged(average: str, divisor: int) -> dict[str, Any]:
    """The settings of an average; only the constant one reads the divisor."""
    return {"average": average} | ({"average_divisor": divisor} if average == "constant" else {})


@pytest.mark.parametrize("average", ["token", "sequence", "constant"])
def test_the_three_averages_are_what_their_names_say(
    stage: Make, scripted: Make, average: str
) -> None:
    theatre = stage("grpo", scripted(), num_envs=8, group_size=4, **averaged(average, 5), **PLAIN)
    agent = theatre.agent
    theatre.round()
    batch, _ = agent.prepare()
    log_prob, _, _ = agent.policy.evaluate(batch)
    sums, lengths = (log_prob * batch.advantage * batch.mask).sum(1), batch.mask.sum(1)
    loss = {
        "token": sums.sum() / lengths.sum(),
        "sequence": (sums / lengths).mean(),
        "constant": sums.sum() / (8 * 5),
    }[average]
    expected = gradient_of(agent, -loss)
    train_on(agent, with_weight(agent, batch))
    assert_near(
        flat_gradient(agent.optimizer),
        expected,
        terms=terms_of(agent, batch),
        size=expected.norm().item(),
    )


@pytest.mark.parametrize("average", ["token", "sequence", "constant"])
@pytest.mark.parametrize("size", [1, 3, 8])
def test_micro_batches_do_not_change_the_gradient(
    stage: Make, scripted: Make, size: int, average: str
) -> None:
    options = {"kl_coef": 0.1, "entropy_coef": 0.01, **averaged(average, 5)}
    results = []
    for micro in (None, size):
        theatre = stage(
            "grpo", scripted(), num_envs=8, group_size=4, micro_batch_size=micro, **options, **PLAIN
        )
        tilt(theatre.agent)
        theatre.round()
        batch = theatre.agent.prepare()[0]
        metrics = train_on(theatre.agent, with_weight(theatre.agent, batch))
        results.append(
            (metrics, torch.cat([p.grad.flatten() for p in theatre.agent.policy.parameters()]))
        )
    (parts, gradient), (others, other) = results
    terms = terms_of(theatre.agent, batch)
    for name in parts:
        assert_near(parts[name], others[name], dtype="float32", terms=terms, size=2.0)
    assert_near(gradient, other, terms=terms, size=gradient.norm().item())


def test_what_follows_an_ending_changes_nothing(stage: Make, scripted: Make) -> None:
    theatre = stage("grpo", scripted(), num_envs=8, group_size=4, kl_coef=0.1, **PLAIN)
    tilt(theatre.agent)
    theatre.round()
    batch, _ = theatre.agent.prepare()
    total, parts = loss_of(theatre.agent, with_weight(theatre.agent, batch))
    gradient, outside = gradient_of(theatre.agent, total), ~batch.mask
    for field in (batch.log_prob, batch.reference_log_prob, batch.advantage):
        field[outside] = torch.nan
    batch.obs[outside] = 100.0
    again, others = loss_of(theatre.agent, with_weight(theatre.agent, batch))
    terms = terms_of(theatre.agent, batch)
    assert_near(total, again, terms=terms, size=2.0)
    for name in parts:
        assert_near(parts[name], others[name], dtype="float32", terms=terms, size=2.0)
    assert_near(
        gradient, gradient_of(theatre.agent, again), terms=terms, size=gradient.norm().item()
    )


def with_weight(agent: Any, batch: Any) -> Any:
    batch.weight = agent.config.averaging()(batch.mask)
    return batch


def test_a_group_of_equals_teaches_exactly_nothing(stage: Make, arms: Make) -> None:
    theatre = stage("grpo", arms((0.3, 0.3, 0.3)), num_envs=8, group_size=4)
    (metrics,) = theatre.learn(1)
    assert metrics["zero_std_groups"] == 1.0 and metrics["grad_norm"] == 0.0


def test_a_group_starts_from_one_place_and_other_groups_from_others(
    stage: Make, scripted: Make
) -> None:
    theatre = stage("grpo", scripted(), num_envs=8, group_size=4)
    for _ in range(2):
        first = theatre.round()[0].obs
        assert (
            (first[:4] == first[0]).all()
            and (first[4:] == first[4]).all()
            and not (first[0] == first[4]).any()
        )
        theatre.agent.rollout_data.clear()


def test_episodes_cut_short_may_be_left_out(stage: Make, scripted: Make) -> None:
    for switch in (True, False):
        theatre = stage("grpo", scripted(), num_envs=12, group_size=2, mask_truncated=switch)
        played = theatre.round()
        cut = np.stack([step.truncated for step in played]).any(0)
        assert 0 < cut.sum() < 12
        batch, _ = theatre.agent.prepare()
        assert (batch.mask.any(1).numpy() == (~cut if switch else True)).all()


def test_the_upper_clip_may_be_wider(stage: Make, scripted: Make) -> None:
    for clip_high, moves in ((None, False), (0.5, True)):
        theatre = stage("grpo", scripted(), num_envs=8, group_size=4, clip=0.2, clip_high=clip_high)
        theatre.round()
        batch, _ = theatre.agent.prepare()
        # ρ = 1.35, A > 0
        batch.log_prob, batch.advantage = (
            batch.log_prob - 0.3,
            torch.ones_like(batch.advantage),
        )
        train_on(theatre.agent, with_weight(theatre.agent, batch))
        assert bool(flat_gradient(theatre.agent.optimizer).any()) == moves


@pytest.mark.parametrize(
    "options", [{}, {"clip": 0.05, "clip_high": 0.6}, {"dual_clip": 1.05}], ids=str
)
def test_the_loss_and_its_diagnostics_are_what_they_say(
    stage: Make, scripted: Make, options: dict[str, Any]
) -> None:
    """With ρ = π / π_old away from 1: KL(π_old ‖ π) is the mean of ρ - 1 - log ρ, and the loss the
    clipped one, from below too."""
    theatre = stage("grpo", scripted(), num_envs=8, group_size=4, **options)
    theatre.round()
    batch = with_weight(theatre.agent, theatre.agent.prepare()[0])
    tilt(theatre.agent)
    total, parts = loss_of(theatre.agent, batch)
    with torch.no_grad():
        log_ratio = (theatre.agent.policy.evaluate(batch)[0] - batch.log_prob)[batch.mask]
    ratio, advantage = log_ratio.exp(), batch.advantage[batch.mask]
    low, high = 1 - options.get("clip", 0.2), 1 + options.get("clip_high", 0.2)
    gain = torch.minimum(ratio * advantage, ratio.clamp(low, high) * advantage)
    if "dual_clip" in options:
        gain = torch.where(
            advantage < 0, torch.maximum(gain, options["dual_clip"] * advantage), gain
        )
        assert (ratio[advantage < 0] > 1.05).any()
    cut = ((ratio > high) & (advantage > 0)) | ((ratio < low) & (advantage < 0))
    sums: dict[str, Any] = {
        "dtype": "float32",
        "terms": terms_of(theatre.agent, batch),
        "size": 4.0,
    }
    assert parts["approx_kl"].item() == near((ratio - 1 - log_ratio).mean().item(), **sums)
    assert (1 / ratio - 1 + log_ratio).mean() != near(
        (ratio - 1 - log_ratio).mean().item(), **sums
    ), "nor the other way round"
    assert (
        parts["clip_fraction"].item() == near(cut.float().mean().item(), **sums)
        and 0 < cut.float().mean() < 1
    )
    assert total.item() == parts["policy_loss"].item() == near(-gain.mean().item(), **sums)


@pytest.mark.parametrize("size", [None, 3])
@pytest.mark.parametrize("average", ["token", "sequence", "constant"])
def test_what_is_logged_counts_steps_whatever_the_loss_averages_over(
    stage: Make, scripted: Make, average: str, size: int | None
) -> None:
    """verl's `pg_clipfrac` and TRL's `clip_ratio` are means over all tokens of the minibatch."""
    options = {**averaged(average, 2), "micro_batch_size": size, **PLAIN}
    theatre = stage("grpo", scripted(), num_envs=8, group_size=4, clip=0.01, **options)
    theatre.round()
    agent, (batch, _) = theatre.agent, theatre.agent.prepare()
    tilt(agent)
    with torch.no_grad():
        log_ratio = (agent.policy.evaluate(batch)[0] - batch.log_prob)[batch.mask]
    ratio, advantage = log_ratio.exp(), batch.advantage[batch.mask]
    cut = ((ratio > 1.01) & (advantage > 0)) | ((ratio < 0.99) & (advantage < 0))
    parts = train_on(agent, batch.weigh(agent.config.averaging()))
    sums = {"dtype": "float32", "terms": terms_of(agent, batch), "size": 2.0}
    assert 0.1 < cut.float().mean() < 0.9
    assert float(parts["clip_fraction"]) == near(cut.float().mean().item(), **sums)
    assert float(parts["approx_kl"]) == near((ratio - 1 - log_ratio).mean().item(), **sums)


def test_equal_returns_with_another_penalty_are_no_equals(stage: Make, arms: Make) -> None:
    """The penalty in the reward is part of what a group compares."""
    shares = []
    for options in ({"kl_in": "reward"}, {"kl_in": "loss"}):
        theatre = stage(
            "grpo",
            arms((1.0, 1.0, 1.0)),
            num_envs=8,
            group_size=8,
            kl_coef=0.5,
            kl_estimator="k2",
            **options,
        )
        tilt(theatre.agent)
        theatre.round()
        shares.append(theatre.agent.prepare()[1]["zero_std_groups"])
    assert shares == [0.0, 1.0]


@pytest.mark.parametrize(("epochs", "size", "steps"), [(1, None, 1), (3, None, 3), (2, 3, 2 * 3)])
def test_a_round_is_so_many_passes_over_its_episodes(
    stage: Make, scripted: Make, epochs: int, size: int | None, steps: int
) -> None:
    theatre = stage("grpo", scripted(), num_envs=8, group_size=4, epochs=epochs, batch_size=size)
    theatre.learn(1)
    assert theatre.agent.optimizer.steps == steps


# ---- the KL penalty


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_penalty_in_the_reward_is_taken_off_the_return(
    stage: Make, scripted: Make, estimator: str
) -> None:
    theatre = stage(
        "grpo",
        scripted(),
        num_envs=8,
        group_size=4,
        scale="none",
        kl_coef=0.3,
        kl_in="reward",
        kl_estimator=estimator,
    )
    tilt(theatre.agent)
    played = theatre.round()
    batch, metrics = theatre.agent.prepare()
    x = (batch.log_prob - theatre.agent.reference.evaluate(batch)[0]).masked_fill(~batch.mask, 0.0)
    k = {"k1": x, "k2": x**2 / 2, "k3": torch.exp(-x) - 1 + x}[estimator]
    returns = torch.from_numpy(sum(step.reward * step.valid for step in played)) - 0.3 * k.sum(1)
    expected = returns - returns.view(2, 4).mean(1).repeat_interleave(4)
    # returns of 9 rewards, and log-ratios of two log-probabilities of size 1.1
    rounded: dict[str, Any] = {"dtype": "float32", "terms": terms_of(theatre.agent, batch)}
    assert_near(batch.advantage[:, 0], expected, **rounded, size=9 * (1 + 0.3 * 2.2))
    assert metrics["reference_kl"] == near((k.sum() / batch.mask.sum()).item(), **rounded, size=2.2)
    paid = float(sum(step.reward * step.valid for step in played).mean())
    assert metrics["group_return"] == near(paid, **rounded, size=9.0)


@pytest.mark.parametrize("estimator", ["k2", "k3", "k1+", "k3+"])
@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_the_penalty_in_the_loss_adds_its_own_gradient(
    stage: Make, scripted: Make, algorithm: str, estimator: str
) -> None:
    gradients = {}
    for coef in (0.5, 1e-12):
        options = {"num_envs": 8, "kl_coef": coef, "kl_in": "loss", "kl_estimator": estimator}
        theatre = stage(
            algorithm,
            scripted(),
            **options,
            **({"group_size": 4} if algorithm == "grpo" else {"rollout_steps": 10}),
        )
        agent = theatre.agent
        tilt(agent)
        theatre.round() if algorithm == "grpo" else theatre.collect(10)
        batch = with_weight(agent, agent.prepare()[0])
        gradients[coef] = torch.autograd.grad(loss_of(agent, batch)[0], agent.policy.actor.weights)
        x = agent.policy.evaluate(batch)[0] - batch.reference_log_prob
        k = torch.exp(-x) - 1 + x if estimator == "k3" else x**2 / 2  # what has the gradient
        penalty = torch.autograd.grad(0.5 * k[batch.mask].mean(), agent.policy.actor.weights)
    for with_it, without, alone in zip(gradients[0.5], gradients[1e-12], penalty, strict=True):
        size = with_it.norm().item()
        assert_near(with_it - without, alone, terms=terms_of(agent, batch), size=size)
        assert alone.norm() > 100 * rounding_bound(
            "float32", terms=terms_of(agent, batch), size=size
        )


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_the_penalty_in_the_reward_is_not_in_the_loss_as_well(
    stage: Make, scripted: Make, algorithm: str
) -> None:
    options = {"group_size": 4} if algorithm == "grpo" else {"rollout_steps": 10, "value_coef": 0.0}
    theatre = stage(
        algorithm, scripted(), num_envs=8, kl_coef=0.5, kl_in="reward", kl_estimator="k2", **options
    )
    tilt(theatre.agent)
    theatre.round() if algorithm == "grpo" else theatre.collect(10)
    total, parts = loss_of(theatre.agent, with_weight(theatre.agent, theatre.agent.prepare()[0]))
    assert total.item() == parts["policy_loss"].item()


def test_the_reference_never_moves(stage: Make, scripted: Make, fingerprint: Make) -> None:
    theatre = stage("grpo", scripted(), num_envs=8, group_size=4, kl_coef=0.1, learning_rate=1e-2)
    first, started = fingerprint(theatre.agent.reference), fingerprint(theatre.agent.policy)
    assert first == started
    theatre.learn(5)
    assert fingerprint(theatre.agent.reference) == first
    assert all(
        now != then for now, then in zip(fingerprint(theatre.agent.policy), started, strict=True)
    )


def test_without_a_penalty_there_is_no_reference(stage: Make, scripted: Make) -> None:
    assert stage("grpo", scripted(), num_envs=8, group_size=4).agent.reference is None


# ---- what the loss may be


def test_the_ratio_of_an_episode_moves_all_its_steps_alike(stage: Make, scripted: Make) -> None:
    """ρ = exp(mean log ratio): ∇ = A ρ / T Σ ∇ log π within the clip, nothing outside it."""
    for shift, moves in ((0.1, True), (0.5, False)):
        theatre = stage(
            "grpo",
            scripted(),
            num_envs=8,
            group_size=4,
            ratio="sequence",
            average="sequence",
            **PLAIN,
        )
        agent = theatre.agent
        theatre.round()
        batch, _ = agent.prepare()
        batch.log_prob, batch.advantage = batch.log_prob - shift, torch.ones_like(batch.advantage)
        log_prob, _, _ = agent.policy.evaluate(batch)
        expected = gradient_of(
            agent, -((log_prob * batch.mask).sum(1) / batch.mask.sum(1) * np.exp(shift)).mean()
        )
        train_on(agent, with_weight(agent, batch))
        size = expected.norm().item()
        assert_near(
            flat_gradient(agent.optimizer),
            expected * moves,
            terms=terms_of(agent, batch),
            size=size,
        )


def test_cispo_never_switches_a_step_off(stage: Make, scripted: Make) -> None:
    """At ρ = e^0.5 = 1.65 the surrogate with ε = .2 has no gradient for A > 0; CISPO has 1.2 A ∇
    log π."""
    theatre = stage("grpo", scripted(), num_envs=8, group_size=4, ratio="cispo", clip=0.2, **PLAIN)
    agent = theatre.agent
    theatre.round()
    batch, _ = agent.prepare()
    batch.log_prob, batch.advantage = batch.log_prob - 0.5, torch.ones_like(batch.advantage)
    log_prob, _, _ = agent.policy.evaluate(batch)
    expected = gradient_of(agent, -1.2 * (log_prob * batch.mask).sum() / batch.mask.sum())
    train_on(agent, with_weight(agent, batch))
    assert_near(
        flat_gradient(agent.optimizer),
        expected,
        terms=terms_of(agent, batch),
        size=expected.norm().item(),
    )


@pytest.mark.parametrize("of", ["token", "sequence"])
def test_what_another_program_sampled_is_weighed_and_the_ratio_is_to_the_learner(
    stage: Make, scripted: Make, of: str
) -> None:
    theatre = stage(
        "grpo", scripted(), num_envs=8, group_size=4, importance_cap=2.0, importance_of=of, **PLAIN
    )
    agent = theatre.agent
    theatre.round()
    noise = np.random.default_rng(0)
    agent.rollout_data.log_probs = [
        (log_prob + noise.normal(0, 0.8, log_prob.shape)).astype(np.float32)
        for log_prob in agent.rollout_data.log_probs
    ]
    sampled = agent.rollout_data.tensor("log_prob").T
    batch, metrics = agent.prepare()
    difference = (batch.log_prob - sampled) * batch.mask
    weight = (
        (difference if of == "token" else difference.sum(1, keepdim=True).expand_as(difference))
        .exp()
        .clamp(max=2.0)
    )
    terms = terms_of(agent, batch)
    mean = weight[batch.mask].mean().item()
    assert metrics["importance"] == near(mean, dtype="float32", terms=terms, size=2 * 9 * 1.1)
    assert (weight == 2.0).any()
    log_prob, _, _ = agent.policy.evaluate(batch)
    expected = gradient_of(
        agent, -(log_prob * batch.advantage * weight * batch.mask).sum() / batch.mask.sum()
    )
    metrics = train_on(agent, with_weight(agent, batch))
    assert_near(flat_gradient(agent.optimizer), expected, terms=terms, size=expected.norm().item())
    assert metrics["clip_fraction"] == 0.0  # ρ is 1: the learner's own numbers are compared


# ---- REINFORCE++

PLUS_PLUS = VARIANTS["reinforce_plus_plus"] | {"kl_coef": 0.3}


def test_reinforce_plus_plus_charges_a_step_for_what_comes_after_it(
    stage: Make, scripted: Make
) -> None:
    """A = whiten over all steps of Σ_{k ≥ t} (r_k - β (log π - log π_ref)); far from any number of
    a whole episode."""
    theatre = stage("grpo", scripted(), num_envs=8, group_size=4, **PLUS_PLUS)
    tilt(theatre.agent)
    played = theatre.round()
    batch, metrics = theatre.agent.prepare()
    valid = np.stack([step.valid for step in played]).T
    paid = (
        np.stack([step.reward for step in played]).T
        - 0.3 * (batch.log_prob - batch.reference_log_prob).numpy()
    )
    to_go = np.where(valid, paid, 0.0)[:, ::-1].cumsum(1)[:, ::-1]
    counted = to_go[valid]
    expected = np.where(valid, (to_go - counted.mean()) / np.sqrt(counted.var(ddof=1) + 1e-8), 0.0)
    assert_near(batch.advantage, expected, dtype="float32", terms=2 * valid.size)
    assert metrics["reference_kl"] != 0.0 and np.ptp(expected[0][valid[0]]) > 0.1
    theatre.agent.update(batch)


def test_a_reward_of_the_whole_episode_is_paid_at_its_last_step(
    stage: Make, scripted: Make
) -> None:
    theatre = stage(
        "grpo", scripted(), num_envs=8, group_size=4, episode_reward="entropy", **PLUS_PLUS
    )
    played = theatre.round()
    batch, metrics = theatre.agent.prepare()
    last = np.stack([step.valid & (step.terminated | step.truncated) for step in played]).T
    assert (last.sum(1) == 1).all() and last[:, 0].mean() not in (0.0, 1.0)
    paid = batch.reward + 0.3 * (batch.log_prob - batch.reference_log_prob)
    assert_near(paid * ~torch.from_numpy(last), torch.zeros_like(paid), size=1.0)
    assert paid.sum().item() / 8 == near(metrics["episode_reward"], dtype="float32", terms=16)


def test_the_rewards_of_steps_are_refilled_with_their_episodes(stage: Make, arms: Make) -> None:
    theatre = stage("grpo", arms((1.0, 0.0, 0.0)), num_envs=8, group_size=2, refill=50, **PLUS_PLUS)
    assert len(theatre.learn(1)) == 1
    state = theatre.agent.state_dict()
    theatre.agent.load_state_dict(state)


@pytest.mark.parametrize(
    "options", [{"baseline": "mean", "scale": "batch"}, {"baseline": "batch", "scale": "none"}]
)
def test_reward_to_go_is_standardised_over_the_batch_alone(options: dict[str, Any]) -> None:
    with pytest.raises(
        ValueError, match=r"must be 'batch' where credit is 'reward-to-go', got '(mean|none)'"
    ):
        GRPOConfig(credit="reward-to-go", **options)


@pytest.mark.parametrize(
    ("baseline", "scale"), [("batch", "std"), ("none", "std"), ("none", "batch")]
)
def test_returns_that_are_not_centred_are_not_divided_by_a_deviation_of_0(
    baseline: str, scale: str
) -> None:
    """Equal returns of 1 would have advantages of 1e4."""
    with pytest.raises(
        ValueError, match=rf"scale must be .* baseline is '{baseline}', got '{scale}'"
    ):
        GRPOConfig(baseline=baseline, scale=scale)  # type: ignore[arg-type]
    GRPOConfig(baseline=baseline, scale="none")  # type: ignore[arg-type]


# ---- refilling


def test_groups_of_equals_are_replaced_until_the_round_is_full(stage: Make, arms: Make) -> None:
    """Three arms, of which one is paid: a pair is equal with probability 5/9, so a round of 4 pairs
    needs about 9."""
    theatre = stage("grpo", arms((1.0, 0.0, 0.0)), num_envs=8, group_size=2, refill=50)
    agent, rounds = theatre.agent, 0
    while True:
        theatre.round()
        rounds += 1
        batch, metrics = agent.prepare()
        agent.rollout_data.clear()
        assert 0.0 <= metrics["zero_std_groups"] <= 1.0
        if batch is not None:
            break
    assert (
        rounds > 1
        and len(batch) == 8
        and agent.sampling.refill.kept == []
        and agent.sampling.refill.played == 0
    )
    assert (batch.score.view(4, 2).sum(1) == 1).all()
    expected = np.full((4, 2), 0.5 / (0.5**0.5 + 1e-4))
    assert_near(batch.advantage.view(4, 2).abs(), expected, terms=2)


def test_refilling_ends_at_its_limit_and_pads_what_it_has(
    stage: Make, scripted: Make, arms: Make
) -> None:
    theatre = stage("grpo", arms((0.3, 0.3, 0.3)), num_envs=8, group_size=2, refill=3)
    logged = theatre.learn(4)
    assert [set(metrics) for metrics in logged] == [
        {"group_return", "zero_std_groups", "dropped_groups"}
    ] * 4
    assert all(metrics["dropped_groups"] == 1.0 for metrics in logged)
    assert theatre.agent.optimizer.steps == 0
    theatre = stage("grpo", scripted(), num_envs=8, group_size=2, refill=2)
    agent, batches = theatre.agent, []
    for keep in (4, 3):  # pairs that differ; the others are made equal
        theatre.round()
        batch, _ = grpo_rows(agent.policy, agent.rollout_data, agent.settings)
        batches.append((batch, torch.arange(8.0) * (torch.arange(8) < 2 * keep)))
        agent.rollout_data.clear()
    assert agent.sampling.refill.add(batches[1][0], groups_differ(batches[1][1], 2)) is None
    joined = agent.sampling.refill.add(batches[0][0], groups_differ(batches[0][1], 2))
    (first, _), (second, _) = batches[1], batches[0]
    assert len(joined) == 8 and joined.mask.shape[1] == max(
        first.mask.shape[1], second.mask.shape[1]
    )
    assert joined.mask.sum(1).tolist() == [
        *first.mask.sum(1)[:6].tolist(),
        *second.mask.sum(1)[:2].tolist(),
    ]


def test_a_half_filled_round_is_part_of_the_state(stage: Make, arms: Make) -> None:
    one, other = (
        stage("grpo", arms((1.0, 0.0, 0.0)), num_envs=4, group_size=2, refill=20) for _ in range(2)
    )
    while not one.agent.sampling.refill.kept:
        one.round()
        one.agent.prepare()
        one.agent.rollout_data.clear()
    other.agent.load_state_dict(one.agent.state_dict())
    assert other.agent.sampling.refill.played == one.agent.sampling.refill.played
    for left, right in zip(
        one.agent.sampling.refill.kept, other.agent.sampling.refill.kept, strict=True
    ):
        assert torch.equal(left.log_prob, right.log_prob) and torch.equal(left.score, right.score)


# ---- recorded groups


def beams(seed: int = 0, groups: int = 6) -> Groups:
    """Groups of five episodes of three steps with scores, best first."""
    rng = np.random.default_rng(seed)

    def episode(score: float) -> Episode:
        return Episode(
            rng.normal(size=(3, 3)).astype(np.float32),
            rng.integers(3, size=3),
            np.array([0, 0, score], dtype=np.float32),
        )

    return Groups(
        [[episode(score) for score in np.sort(rng.random(5))[::-1]] for _ in range(groups)]
    )


def test_recorded_groups_are_compared_within_the_best_that_are_kept(
    stage: Make, scripted: Make
) -> None:
    """The gradient of -mean over groups and steps of ρ A log π with ρ to the reference; of 5 beams
    the best 3, and their own mean."""
    agent = stage(
        "grpo",
        scripted(),
        num_envs=8,
        group_size=4,
        kl_coef=1e-12,
        top=3,
        average="sequence",
        batch_size=6,
        **PLAIN,
    ).agent
    data = beams()
    groups = data[np.arange(6)].best_episodes(3)
    assert groups.sizes.tolist() == [3] * 6 and len(groups.episodes) == 18
    score = groups.returns.view(6, 3)
    advantage = ((score - score.mean(1, keepdim=True)) / (score.std(1, keepdim=True) + 1e-4)).view(
        18
    )
    log_prob, _, _ = agent.policy.evaluate(groups.episodes)
    expected = gradient_of(agent, -(log_prob.mean(1) * advantage).mean())
    next(agent.fit(data))
    assert expected.norm() > 0.01
    terms = 18 * 3 + widths(agent.policy)
    assert_near(flat_gradient(agent.optimizer), expected, terms=terms, size=expected.norm().item())


def test_the_old_policy_of_recorded_groups_is_the_reference(stage: Make, scripted: Make) -> None:
    agent = stage(
        "grpo", scripted(), num_envs=8, group_size=4, kl_coef=0.1, learning_rate=3e-2, batch_size=6
    ).agent
    fitted = agent.fit(beams())
    logged = [next(fitted) for _ in range(30)]
    rounding = rounding_bound("float32", terms=widths(agent.policy), size=1.1)
    assert abs(logged[0]["approx_kl"]) < rounding and logged[-1]["approx_kl"] > 10 * rounding
    assert logged[-1]["clip_fraction"] > 0


def test_a_clip_at_five_does_nothing_to_five_beams_and_one_at_one_does(
    stage: Make, scripted: Make
) -> None:
    """|z| ≤ (n - 1) / √n = 1.79 for n = 5 and the deviation of a sample (Thompson 1935)."""
    extreme, std = torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0]), 0.2**0.5 + 1e-4  # .8 and four .2
    groups = beams(groups=1)[np.array([0])]._replace(returns=extreme)
    for limit, largest in ((5.0, 0.8 / std), (1.0, 1.0)):
        options = {"num_envs": 8, "group_size": 4, "kl_coef": 0.1, "advantage_clip": limit}
        batch, _ = recorded_rows(stage("grpo", scripted(), **options).agent, groups)
        expected = [largest, *[-0.2 / std] * 4]
        assert_near(batch.advantage[:, 0], expected, terms=5, size=0.8 / std)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {},
            "kl_coef must be above 0 for recorded groups, whose ratio is to the reference, got 0.0",
        ),
        (
            {"kl_coef": 0.1, "refill": 2},
            "refill has no effect on recorded data; got 2, leave it out",
        ),
        (
            {"kl_coef": 0.1, "scale": "batch"},
            "scale must be within each group for recorded groups, got 'batch'",
        ),
        (
            {"kl_coef": 0.1, "kl_in": "reward"},
            "kl_in must be 'loss' for recorded groups, got 'reward'",
        ),
    ],
)
def test_what_recorded_groups_have_no_use_for_is_refused(
    stage: Make, scripted: Make, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        next(stage("grpo", scripted(), num_envs=8, group_size=4, **options).agent.fit(beams()))


def test_groups_that_spread_too_little_are_left_out_from_the_eleventh_round() -> None:
    """The deviations of pairs 0, d are d / √2; the average begins in round 6 and moves by a
    hundredth."""
    chosen = SpreadFilter(2, 0.5)
    wide, narrow = torch.tensor([0.0, 1.0] * 2), torch.tensor([0.0, 1.0, 0.0, 0.3])
    for _ in range(10):
        assert chosen.keep(wide).all()
    assert chosen.average == near(0.5**0.5, dtype="float32", terms=10)
    other = SpreadFilter(2, 0.5)
    other.load_state_dict(chosen.state_dict())
    for one in (chosen, other):
        assert one.keep(narrow).tolist() == [True, False]
        assert one.average == near(0.5**0.5 * (0.99 + 0.01 * 0.65), dtype="float32", terms=11)
    assert SpreadFilter(2, 0.0).keep(torch.zeros(4)).all()
