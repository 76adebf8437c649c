"""The MLP and its hand-written gradient, its initial weights, and the policy made of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest
import torch
from closeness import assert_near, largest, near, widths
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

import rlbook
from rlbook.agent import Step
from rlbook.algorithms.value.dqn_config import DQNConfig
from rlbook.data.rollout import Batch, Rollout
from rlbook.fast.mlp import WRITTEN_OUT, weights_of
from rlbook.fast_forms import use_plain_forms
from rlbook.hyperparameters import Activation
from rlbook.networks.mlp import ACTIVATIONS, MLP, MLPPolicy, apply_networks
from rlbook.networks.noisy_linear import apply_layers
from rlbook.networks.normalizer import Normalizer

DISCRETE, BOX = spaces.Discrete(4), spaces.Box(-1.0, 1.0, (2,), np.float32)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


EPS, HIDDEN = torch.finfo(torch.float32).eps, 64


def float32_bound(action: np.ndarray, policy: MLPPolicy, log_prob: Tensor) -> float:
    """How far two orders of the same float32 arithmetic may leave log π(a|s).

    A logit or a mean is a sum of 64 products, each at most as large as the weights and tanh make
    it: its rounding is at most 64 ε times that sum of magnitudes, w. A log-probability moves as
    much as its logits do, twice; a Gaussian's by |z| times that, σ being 1.
    """
    w = policy.actor.weights[-2].detach().abs().sum(1).max().item() / min(1.0, policy.temperature)
    slope = 2.0 if policy.discrete else float(np.abs(action).max()) + w
    return EPS * (HIDDEN * w * slope + 4 * log_prob.abs().max().item())


def plain(mlp: MLP, x: Tensor) -> Tensor:
    """The same function as torch's own modules compute and differentiate it."""
    with use_plain_forms():
        return mlp(x)


@pytest.mark.parametrize("leading", [(5,), (1,), (4, 3), (2, 3, 2)], ids=str)
@pytest.mark.parametrize("hidden", [(), (6,), (7, 5), (4, 6, 5, 3)], ids=str)
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_the_written_gradient_is_autograds(
    activation: str, hidden: tuple[int, ...], leading: tuple[int, ...]
) -> None:
    mlp = MLP((3, *hidden, 2), generator(), activation=activation).double()
    x = torch.randn(*leading, 3, generator=generator(1), dtype=torch.float64, requires_grad=True)
    weights = torch.randn(*leading, 2, generator=generator(2), dtype=torch.float64)
    results = []
    for function in (mlp, lambda x: plain(mlp, x)):
        out = function(x)
        assert out.shape == (*leading, 2)
        # two users, one of them of a slice
        loss = (weights * out).sum() + out[..., 0].square().sum()
        results.append([out, *torch.autograd.grad(loss, [x, *mlp.parameters()])])
    assert_near(*results, terms=12 + widths(mlp), size=largest(results[0]))  # 12 rows at most


MODULES = {"gelu": nn.GELU, "silu": nn.SiLU, "elu": nn.ELU, "leaky_relu": nn.LeakyReLU}


@pytest.mark.parametrize("activation", MODULES)
def test_an_activation_without_a_written_gradient_is_left_to_torch(activation: str) -> None:
    mlp = MLP((3, 7, 5, 2), generator(), activation=activation)
    phi, (first, second, last) = MODULES[activation](), mlp.layers
    torchs = nn.Sequential(first, phi, second, phi, last)
    x = torch.randn(4, 3, generator=generator(1), requires_grad=True)
    assert weights_of(mlp, x) is None  # what every fast form asks first
    noisy = apply_layers(mlp.weights, x, activation)
    for out in (mlp(x), noisy, apply_networks([mlp, mlp], x)[1], last(mlp(x, end=-1))):
        found, wanted = (
            [result, *torch.autograd.grad(result.square().sum(), [x, *mlp.parameters()])]
            for result in (out, torchs(x))
        )
        assert all(map(torch.equal, found, wanted))


def test_the_activations_that_a_config_takes_are_those_of_the_networks() -> None:
    assert get_args(Activation) == tuple(ACTIVATIONS) == (*WRITTEN_OUT, *MODULES)
    for theirs, ours in ((nn.GELU, "gelu"), (nn.LeakyReLU, "leaky_relu"), ("swish", "silu")):
        with pytest.raises(ValueError, match=f"did you mean '{ours}'"):
            DQNConfig(activation=theirs)  # type: ignore[arg-type]


def test_the_written_gradient_is_right_in_single_precision_too() -> None:
    mlp, x = (
        MLP((4, 64, 64, 2), generator(), out_gain=1.0),
        torch.randn(256, 4, generator=generator(1)),
    )
    ours = torch.autograd.grad(mlp(x).square().mean(), list(mlp.parameters()))
    theirs = torch.autograd.grad(plain(mlp, x).square().mean(), list(mlp.parameters()))
    assert_near(ours, theirs, terms=len(x) + widths(mlp), size=largest(ours))


def test_orthogonal_weights_have_their_gains_and_biases_are_zero() -> None:
    """√2 in hidden layers, 0.01 in front of the logits, 1 in front of the value (detail 2): W Wᵀ =
    gain² I, or Wᵀ W where W is tall."""
    policy = MLPPolicy(8, DISCRETE, generator(), critic=True, hidden_sizes=(16, 8))
    assert policy.critic is not None
    for network, out_gain in ((policy.actor, 0.01), (policy.critic, 1.0)):
        for layer, gain in zip(network.layers, (2**0.5, 2**0.5, out_gain), strict=True):
            w = layer.weight.detach()
            square = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
            # of the decomposition, and of the product
            assert_near(square, gain**2 * torch.eye(len(square)), terms=w.numel())
            assert not layer.bias.any()


def test_without_it_weights_are_uniform_as_torchs_are() -> None:
    policy = MLPPolicy(
        100, DISCRETE, generator(), critic=False, hidden_sizes=(200,), orthogonal=False
    )
    for layer in policy.actor.layers:
        bound = layer.weight.shape[1] ** -0.5
        assert 0.95 * bound < layer.weight.abs().max() <= bound and layer.bias.abs().max() <= bound
        # 4 standard errors: the kurtosis is 1.8, and (1.8 - 1) / 4 = .2
        error = 4 * (0.2 / layer.weight.numel()) ** 0.5
        assert layer.weight.std().item() == pytest.approx(bound / 3**0.5, rel=error)


def test_the_seed_alone_decides_the_weights(
    fingerprint: Callable[[nn.Module], list[bytes]],
) -> None:
    one, two, other = (MLPPolicy(3, DISCRETE, generator(seed), critic=True) for seed in (5, 5, 6))
    assert fingerprint(one) == fingerprint(two) != fingerprint(other)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.6, 3.0])
@pytest.mark.parametrize("space", [DISCRETE, BOX], ids=["discrete", "continuous"])
def test_acting_and_evaluating_agree_on_the_log_probability(
    space: spaces.Space, temperature: float, shared: bool
) -> None:
    policy = MLPPolicy(3, space, generator(), critic=True, temperature=temperature, shared=shared)
    with torch.no_grad():
        policy.actor.weights[-2].mul_(200)  # logits of about ±2
    obs = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    for rng in (np.random.default_rng(1), None):
        action, log_prob = policy.act(obs, rng)
        assert log_prob.shape == (64,) and log_prob.dtype == np.float32
        batch = Batch(
            torch.from_numpy(obs),
            torch.from_numpy(action),
            torch.from_numpy(log_prob),
            torch.ones(64, dtype=torch.bool),
        )
        again, _, value = policy.evaluate(batch)
        assert_close(again, batch.log_prob, atol=float32_bound(action, policy, again), rtol=0)
        assert value is not None
        own = policy.value(torch.from_numpy(obs))
        assert_near(value, own, terms=widths(policy), size=max(1.0, own.abs().max().item()))


def test_a_high_temperature_flattens_and_a_low_one_sharpens() -> None:
    """p ∝ exp(logit / T): at T = 2 the odds are the square root of those at T = 1."""
    odds = {}
    for temperature in (1.0, 2.0):
        policy = MLPPolicy(
            1,
            spaces.Discrete(2),
            generator(),
            critic=False,
            hidden_sizes=(),
            temperature=temperature,
        )
        with torch.no_grad():
            policy.actor.weights[1].copy_(torch.tensor([math.log(9.0), 0.0]))
            policy.actor.weights[0].zero_()
        action, log_prob = policy.act(np.zeros((2000, 1), np.float32), np.random.default_rng(0))
        p = float(np.exp(log_prob[action == 0][0]))
        assert (action == 0).mean() == pytest.approx(p, rel=0, abs=4 * (p * (1 - p) / 2000) ** 0.5)
        odds[temperature] = p / (1 - p)
    # dp / (1 - p)², and 1 / (1 - p) is 1 + the odds
    for temperature, expected in (
        (1.0, 9.0),
        (2.0, 3.0),
    ):
        assert odds[temperature] == near(
            expected, dtype="float32", terms=4, size=expected * (1 + expected)
        )


def test_a_gaussian_policy_spreads_as_its_log_std_says() -> None:
    policy = MLPPolicy(3, BOX, generator(), critic=False)
    # σ = 1 at first, the same in every state
    assert policy.log_std is not None and not policy.log_std.any()
    with torch.no_grad():
        policy.log_std.copy_(torch.tensor([math.log(0.2), math.log(5.0)]))
    obs = np.tile(np.array([0.3, -1.0, 2.0], np.float32), (20_000, 1))
    action, _ = policy.act(obs, np.random.default_rng(0))
    mean, _ = policy.act(obs[:1], None)
    error = 4 / len(action) ** 0.5  # 4 standard errors
    np.testing.assert_allclose(action.std(0), [0.2, 5.0], rtol=error / 2**0.5)
    np.testing.assert_array_less(np.abs(action.mean(0) - mean[0]), error * np.array([0.2, 5.0]))
    assert np.abs(action[:, 1]).max() > 1.0  # the bounds of the space are not the policy's business


@pytest.mark.parametrize("shared", [False, True])
def test_only_a_shared_network_lets_the_value_train_the_policys_layers(shared: bool) -> None:
    policy = MLPPolicy(3, DISCRETE, generator(), critic=True, hidden_sizes=(8, 8), shared=shared)
    obs = torch.randn(16, 3, generator=generator(1))
    batch = Batch(
        obs, torch.zeros(16, dtype=torch.int64), torch.zeros(16), torch.ones(16, dtype=torch.bool)
    )
    _, _, value = policy.evaluate(batch)
    assert value is not None
    value.sum().backward()
    trained = [
        layer.weight.grad is not None and bool(layer.weight.grad.any())
        for layer in policy.actor.layers
    ]
    assert trained == ([True, True, False] if shared else [False, False, False])
    head = policy.value_head if shared else policy.critic
    assert head is not None and all(p.grad is not None and p.grad.any() for p in head.parameters())


@pytest.mark.parametrize("shared", [True, False])
def test_behind_a_time_limit_the_value_is_that_of_the_observation_it_ended_at(shared: bool) -> None:
    """Two environments, three steps; the second is cut at its first step, and its next row is a new
    episode's. Elsewhere the next row is what follows, and behind the last what was seen last."""
    policy = MLPPolicy(3, DISCRETE, generator(), critic=True, hidden_sizes=(8,), shared=shared)
    obs = torch.randn(3, 2, 3, generator=generator(1)).numpy()
    cut, last = torch.randn(2, 2, 3, generator=generator(2)).numpy()
    following = [np.stack([obs[1, 0], cut[1]]), obs[2], last]
    rollout, no = Rollout(), np.zeros(2, dtype=bool)
    for t in range(3):
        ended = np.array([False, t == 0])
        step = Step(obs[t], np.zeros(2, np.int64), np.zeros(2), following[t], no, ended)
        rollout.add(step, np.zeros(2, np.float32))
    value, next_value = policy.values(rollout)
    rounded: dict[str, Any] = {"terms": widths(policy), "size": 1.0}
    assert_near(value, policy.value(torch.from_numpy(obs)), **rounded)
    assert_near(next_value, policy.value(torch.from_numpy(np.stack(following))), **rounded)


def test_a_shared_value_is_a_linear_function_of_the_policys_last_hidden_layer() -> None:
    policy = MLPPolicy(3, DISCRETE, generator(), critic=True, hidden_sizes=(8, 8), shared=True)
    assert policy.value_head is not None
    obs = torch.randn(16, 3, generator=generator(1))
    hidden = torch.tanh(
        F.linear(torch.tanh(F.linear(obs, *policy.actor.weights[:2])), *policy.actor.weights[2:4])
    )
    expected = F.linear(hidden, *policy.value_head.weights).squeeze(-1)
    assert_near(policy.value(obs), expected, terms=widths(policy))


def test_a_frozen_copy_has_the_weights_and_nothing_else_in_common(
    fingerprint: Callable[[nn.Module], list[bytes]],
) -> None:
    policy = MLPPolicy(3, DISCRETE, generator(), critic=True)
    copy = policy.frozen_copy()
    assert fingerprint(copy) == fingerprint(policy)
    assert not {p.data_ptr() for p in copy.parameters()} & {
        p.data_ptr() for p in policy.parameters()
    }
    assert not any(p.requires_grad for p in copy.parameters())
    before = fingerprint(copy)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(1.0)
    obs = np.ones((2, 3), np.float32)
    assert fingerprint(copy) == before
    assert not np.array_equal(copy.act(obs, None)[1], policy.act(obs, None)[1])


# ---- running statistics


@pytest.mark.parametrize("sizes", [(100,), (1,) * 20, (1, 50, 3, 200), (64,) * 10], ids=str)
def test_merged_statistics_are_those_of_all_the_data(sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    data = rng.normal(size=(sum(sizes), 3)) * np.array([1.0, 1e-3, 50.0]) + np.array(
        [0.0, 1.0, -1000.0]
    )
    normalizer = Normalizer(3)
    for chunk in np.split(data, np.cumsum(sizes)[:-1]):
        normalizer.update(torch.from_numpy(chunk))
    size, deviation = np.abs(data).max(0), data.std(0)  # a mean's rounding is of this size
    assert_near(normalizer.mean.numpy() / size, data.mean(0) / size, terms=len(data))
    assert_near(normalizer.variance.numpy() / (size * deviation), deviation / size, terms=len(data))
    assert normalizer.count.item() == len(data)


def test_normalised_observations_are_standardised_and_clipped() -> None:
    normalizer = Normalizer(2)
    x = torch.randn(1000, 2, generator=generator()) * torch.tensor([3.0, 0.1]) + 5.0
    assert_near(normalizer(x), x.clamp(-10, 10), terms=2)  # nothing is known yet
    normalizer.update(x)
    out = normalizer(x)
    # what is subtracted, in deviations
    rounded: Any = {
        "terms": len(x),
        "size": float((x.mean(0) / x.std(0)).max()),
    }
    assert_near(out.mean(0), [0.0, 0.0], **rounded)
    assert_near(out.std(0, unbiased=False), [1.0, 1.0], **rounded)
    assert normalizer(torch.tensor([1e6, -1e6])).tolist() == [10.0, -10.0]


def test_a_constant_observation_stays_finite() -> None:
    normalizer = Normalizer(1)
    normalizer.update(torch.full((10, 1), 3.0))
    assert normalizer(torch.tensor([3.0])).item() == 0.0  # ten threes have no rounding
    assert normalizer(torch.tensor([4.0])).item() == 10.0


@pytest.mark.parametrize(
    ("algorithm", "rollout", "seen"),
    [
        ("ppo", {"rollout_steps": 32}, 512),  # 4 rollouts of 4 · 32 steps; the fifth is not full
        ("a2c", {"rollout_steps": 32}, 512),
        ("reinforce", {}, None),  # the steps of all rounds of 4 episodes
    ],
)
def test_evaluation_leaves_the_statistics_alone_and_saving_keeps_them(
    algorithm: str, rollout: dict[str, Any], seen: int | None, tmp_path: Any
) -> None:
    """Bug class: statistics that move while judging, or that a loaded policy has lost."""
    options: dict[str, Any] = {
        "steps": 600,
        "num_envs": 4,
        "normalize_observation": True,
        "normalize_reward": True,
        "eval_every": 0,
    }
    run = rlbook.train(algorithm, "CartPole-v1", out=tmp_path / "run", **options, **rollout)
    agent: Any = run.agent
    normalizer, scale = agent.policy.normalizer, agent.reward_scale
    before = [
        normalizer.mean.clone(),
        normalizer.variance.clone(),
        normalizer.count.clone(),
        scale.running.clone(),
        scale.moments.clone(),
    ]
    assert (
        before[2]
        == before[4][0]
        == (seen or sum(run.episode_lengths[: len(run.episode_lengths) // 4 * 4]))
    )
    returns = rlbook.evaluate(run, episodes=5).returns
    # as the environment pays them: 1 a step
    assert (returns == returns.round()).all() and returns.min() >= 8
    assert all(
        map(torch.equal, before, (*normalizer.state_dict().values(), scale.running, scale.moments))
    )
    loaded: Any = rlbook.load(tmp_path / "run")
    kept = loaded.agent.reward_scale
    assert all(
        map(
            torch.equal,
            before,
            (*loaded.agent.policy.normalizer.state_dict().values(), kept.running, kept.moments),
        )
    )
    np.testing.assert_array_equal(rlbook.evaluate(loaded, episodes=5).returns, returns)
