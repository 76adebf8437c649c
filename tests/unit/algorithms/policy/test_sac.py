"""SAC: its targets, its policy's gradient and its temperature by hand, and the soft optimum of
problems of one state."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import gymnasium
import mpmath
import numpy as np
import pytest
import torch
from closeness import assert_near, near
from scipy import integrate
from steps import actor_loss_of, critic_loss_of, next_minibatch
from torch.testing import assert_close

from rlbook.agent import Step
from rlbook.algorithms.policy.off_policy.replay_agent import Minibatch
from rlbook.algorithms.policy.off_policy.sac import SAC, SACConfig, Temperature, value_and_entropy
from rlbook.data.replay import Transitions
from rlbook.functional.maximum_entropy import (
    expected_soft_value,
    log_slope_of_tanh,
    soft_value,
    temperature_loss,
)
from rlbook.networks.distributions import Gaussian, SquashedGaussian
from rlbook.networks.mlp import MLP
from rlbook.networks.target_network import polyak_update

Make = Callable[..., Any]
DISCRETE, BOX = gymnasium.spaces.Discrete(3), gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)


class Spaces:
    """As much of a vector environment as SAC looks at."""

    def __init__(self, size: int, actions: gymnasium.Space, num_envs: int = 1) -> None:
        self.single_observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.single_action_space, self.num_envs = actions, num_envs


def set_to(network: Any, weight: Any, bias: Any = 0.0) -> None:
    with torch.no_grad():
        network.weights[0].copy_(
            torch.tensor(weight, dtype=torch.float32).reshape(network.weights[0].shape)
        )
        network.weights[1].copy_(
            torch.tensor(bias, dtype=torch.float32).expand_as(network.weights[1])
        )


def linear(
    actions: gymnasium.Space,
    critics: list[Any],
    target: list[Any],
    actor: Any,
    size: int = 1,
    **config: Any,
) -> SAC:
    """A SAC of linear networks with these weights."""
    env: Any = Spaces(size, actions)
    agent = SAC(env, SACConfig(**({"hidden_sizes": (), "buffer_size": 100} | config)))
    for networks, weights in ((agent.critics, critics), (agent.target, target)):
        for network, weight in zip(networks.networks, weights, strict=True):
            set_to(network, weight)
    set_to(agent.actor, actor)
    return agent


def rows(obs: Any, action: Any, reward: Any, next_obs: Any, terminated: Any) -> Transitions:
    numbers = [torch.tensor(x, dtype=torch.float32) for x in (obs, reward, next_obs)]
    return Transitions(
        numbers[0], torch.as_tensor(action), numbers[1], numbers[2], torch.tensor(terminated)
    )


def minibatch(some: Transitions, noise: Any = None, next_noise: Any = None) -> Minibatch:
    empty = torch.zeros(len(some.reward), 0)
    return Minibatch(
        some,
        *(
            empty if x is None else torch.tensor(x, dtype=torch.float32)
            for x in (noise, next_noise)
        ),
    )


# ---- the squashed Gaussian


def test_the_log_probability_is_the_hand_computed_one(fixtures: Any) -> None:
    case = fixtures["losses"]["sac"]
    mean, log_std, u, action = (
        torch.tensor(case[name], dtype=torch.float64)
        for name in ("mu", "log_std", "u_pre_tanh", "action")
    )
    pi = SquashedGaussian(mean, log_std)
    made, log_prob = pi.transform((u - mean) / log_std.exp())
    assert_near(made, action, decimals=10)
    for found in (log_prob, pi.log_prob_before(u), pi.log_prob(made)):
        assert found.item() == near(case["logp_squashed"], decimals=10, terms=8)
    assert Gaussian(mean, log_std).log_prob(u).item() == near(
        case["logp_BUG_no_correction"], decimals=10, terms=8
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [-20.0, -9.0, -0.3, 0.0, 1e-4, 9.0, 20.0, 200.0])
def test_the_slope_of_tanh_is_exact_where_tanh_is_saturated(
    value: float, dtype: torch.dtype
) -> None:
    """Against 50 digits. At u = 20 in float32 the obvious form is log 0, and 1e-6 inside the
    logarithm makes -13.8 of -38.6."""
    u = torch.tensor(value, dtype=dtype, requires_grad=True)
    with mpmath.workdps(200):
        exact = mpmath.log(1 - mpmath.tanh(mpmath.mpf(u.item())) ** 2)
        slope = -2 * mpmath.tanh(mpmath.mpf(u.item()))
    found = log_slope_of_tanh(u)
    (gradient,) = torch.autograd.grad(found, u)
    size = 2 * (2 * math.log(2) + 3 * abs(value))  # 2 (log 2 + |u| + softplus(-2u)), at most
    assert found.item() == near(float(exact), dtype=dtype, terms=3, size=size)
    assert gradient.item() == near(float(slope), dtype=dtype, terms=2, size=2.0)


def test_a_saturated_action_keeps_its_log_probability(fixtures: Any) -> None:
    exact = fixtures["losses"]["sac"]["saturated_u=20_mu=20_std=1"]["exact_stable"]
    for sign in (1.0, -1.0):
        pi = SquashedGaussian(torch.tensor([20.0 * sign]), torch.zeros(1))
        action, log_prob = pi.transform(torch.zeros(1))
        assert action.abs().item() == 1.0
        size = 2 * 20 + 2 * math.log(2)
        assert log_prob.item() == near(exact, dtype="float32", terms=4, size=size, decimals=10)


def test_the_squashed_density_integrates_to_one_and_has_the_entropy_that_it_says(
    fixtures: Any,
) -> None:
    for mean, log_std in ((0.0, 0.0), (0.4, -1.0), (-1.0, 0.5)):
        pi = SquashedGaussian(*(torch.tensor([x], dtype=torch.float64) for x in (mean, log_std)))

        def log_density(a: float, pi: SquashedGaussian = pi) -> float:
            return pi.log_prob(torch.tensor([a], dtype=torch.float64)).item()

        def weighed(a: float, log_density: Callable[[float], float] = log_density) -> float:
            return -math.exp(log_density(a)) * log_density(a)

        area, area_error = integrate.quad(lambda a, f=log_density: math.exp(f(a)), -1, 1, limit=200)
        entropy, error = integrate.quad(weighed, -1, 1, limit=200)
        assert max(area_error, error) < 1e-7  # bound: quad's own estimate of its error
        assert area == pytest.approx(1.0, rel=0, abs=area_error)  # bound: quad's, as below
        assert pi.entropy().item() == pytest.approx(entropy, rel=0, abs=error)  # bound: quad's
    standard = SquashedGaussian(
        torch.zeros(2, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    )
    expected = fixtures["losses"]["sac"]["differential_entropy_tanhN(0,1)"]

    assert standard.entropy().tolist() == near([expected] * 2, decimals=10, terms=128)


def test_the_ends_of_the_box_are_never_taken_and_divergences_are_those_before_tanh() -> None:
    one = SquashedGaussian(torch.tensor([[0.3, -1.0]]), torch.tensor([-0.5, 0.2]))
    other = SquashedGaussian(torch.tensor([[0.0, 0.0]]), torch.tensor([0.1, 0.3]))
    assert one.log_prob(torch.tensor([[0.2, 1.0]])).item() == -math.inf
    before = [Gaussian(pi.mean, pi.log_std) for pi in (one, other)]
    assert torch.equal(one.kl(other), before[0].kl(before[1])) and not one.kl(one).any()
    assert_near(one.mode(), np.tanh([[0.3, -1.0]]))
    drawn = one.sample(torch.Generator().manual_seed(0))
    assert drawn.shape == (1, 2) and (drawn.abs() < 1).all() and not drawn.requires_grad


# ---- equations


def test_the_expected_soft_value_is_the_sum_over_actions_and_highest_at_the_soft_optimum() -> None:
    """α log Σ exp(Q/α) there; one action drawn estimates it without bias."""
    q, alpha = torch.tensor([[1.0, 3.0, -2.0], [0.0, 0.5, 0.2]], dtype=torch.float64), 0.7
    log_probs = torch.randn(
        2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    ).log_softmax(-1)
    pairs = [
        list(zip(*row, strict=True)) for row in zip(q.tolist(), log_probs.tolist(), strict=True)
    ]
    brute = [sum(math.exp(p) * (x - alpha * p) for x, p in row) for row in pairs]
    assert expected_soft_value(q, log_probs, alpha).tolist() == near(brute, terms=3)
    best = (q / alpha).log_softmax(-1)
    assert_near(expected_soft_value(q, best, alpha), alpha * (q / alpha).logsumexp(-1), terms=3)
    assert (expected_soft_value(q, log_probs, alpha) < expected_soft_value(q, best, alpha)).all()
    each = torch.stack([soft_value(q[:, a], log_probs[:, a], alpha) for a in range(3)], -1)
    assert_near((log_probs.exp() * each).sum(-1), expected_soft_value(q, log_probs, alpha), terms=3)
    never = torch.tensor([[0.0, -torch.inf]], requires_grad=True)
    value = expected_soft_value(torch.tensor([[2.0, 9.0]]), never, 1.0)
    value.sum().backward()
    assert value.item() == 2.0 and never.grad is not None and never.grad.isfinite().all()


@pytest.mark.parametrize(("entropy", "sign"), [([-2.0, -1.5], -1.0), ([0.5, 1.0], 1.0)])
def test_the_temperature_rises_where_the_entropy_is_below_its_target(
    entropy: list[float], sign: float
) -> None:
    """The gradient in log α is mean H - H̄; descending it raises α where H < H̄ = -1."""
    log_alpha = torch.tensor(0.3, requires_grad=True)
    has_gradient = torch.tensor(entropy, requires_grad=True)
    (gradient,) = torch.autograd.grad(temperature_loss(log_alpha, has_gradient, -1.0), log_alpha)
    assert gradient.item() == near(sum(entropy) / 2 + 1.0, dtype="float32", terms=3)
    assert math.copysign(1.0, gradient.item()) == sign


def test_the_target_networks_follow_slowly(fixtures: Any) -> None:
    case = fixtures["losses"]["polyak"]
    target, online = (MLP((1, 1), torch.Generator()) for _ in range(2))
    set_to(target, case["target"], case["target"])
    set_to(online, case["online"], case["online"])
    polyak_update(target, online, case["tau"])
    assert [p.item() for p in target.parameters()] == near(
        [case["new"]] * 2, dtype="float32", terms=2
    )
    assert [p.item() for p in online.parameters()] == [case["online"]] * 2


# ---- the agent's losses by hand


@pytest.mark.parametrize(
    ("terminated", "truncated"), [(True, False), (False, True), (False, False)]
)
def test_discrete_targets_are_the_hand_computed_ones_and_only_termination_stops_the_bootstrap(
    terminated: bool, truncated: bool
) -> None:
    """State (1); Q⁻ = (1, 4, 0) and (3, 2, 5), so min = (1, 2, 0); π = (½, ¼, ¼); α = 0.5, γ = 0.9.

    V = ½ (1 + ½ ln 2) + ¼ (2 + ½ ln 4) + ¼ (0 + ½ ln 4); action 1 is valued at 2 and 10 by the
    critics.
    """
    actor = [0.0, -math.log(2), -math.log(2)]
    agent = linear(
        DISCRETE,
        [[0, 2, 0], [0, 10, 0]],
        [[1, 4, 0], [3, 2, 5]],
        actor,
        temperature=0.5,
        gamma=0.9,
        learning_starts=100,
    )
    one = np.ones((1, 1), np.float32)
    ends = np.array([terminated]), np.array([truncated])
    agent.learn(Step(one, np.array([1]), np.full(1, 3.0, np.float32), one, *ends, np.array([True])))
    v = (
        0.5 * (1 + 0.5 * math.log(2))
        + 0.25 * (2 + 0.5 * math.log(4))
        + 0.25 * (0 + 0.5 * math.log(4))
    )
    y = 3.0 if terminated else 3.0 + 0.9 * v
    batch = next_minibatch(agent)
    loss, metrics = critic_loss_of(agent, batch)
    rounded = {"dtype": "float32", "terms": 12}  # Q, V, y and the mean; 3 terms each
    assert loss.item() == near(0.5 * (2 - y) ** 2 + 0.5 * (10 - y) ** 2, **rounded)
    assert metrics["q"].item() == near(6.0, **rounded)
    values = actor_loss_of(agent, batch).loss.item()  # the critics' own min: (0, 2, 0)
    assert values == near(-(0.25 * 2 + 0.5 * 1.5 * math.log(2)), **rounded)


def test_targets_in_a_box_are_the_hand_computed_ones() -> None:
    """Two rows. a' = tanh u', u' = μ' + σ ε'; log π' is the normal one less log(1 - a'²); Q⁻ = 2 s'
    + a' and s' + 3 a'."""
    agent = linear(BOX, [[1, 0], [0, 1]], [[2, 1], [1, 3]], [0.5, -1.0], temperature=0.2, gamma=0.5)
    some = rows(
        [[1.0], [2.0]], torch.tensor([[0.25], [-0.5]]), [1.0, -1.0], [[0.5], [-1.0]], [False, True]
    )
    mean, std = 0.5 * 0.5, math.exp(-1.0 * 0.5)
    u = mean + std * 0.8
    a, log_prob = (
        math.tanh(u),
        -0.5 * 0.8**2
        - math.log(std)
        - 0.5 * math.log(2 * math.pi)
        - math.log(1 - math.tanh(u) ** 2),
    )
    y = [1.0 + 0.5 * (min(2 * 0.5 + a, 0.5 + 3 * a) - 0.2 * log_prob), -1.0]
    loss = critic_loss_of(agent, minibatch(some, [[0.0], [0.0]], [[0.8], [0.1]])).loss.item()
    q = [[1.0, 2.0], [0.25, -0.5]]
    expected = sum(0.5 * sum((x - t) ** 2 for x, t in zip(each, y, strict=True)) / 2 for each in q)
    assert loss == near(expected, dtype="float32", terms=12)  # u, log π, y and the mean over rows


def test_no_gradient_flows_into_the_target_or_out_of_the_policys_loss_into_anything_else() -> None:
    agent = linear(BOX, [[1, 0], [0, 1]], [[2, 1], [1, 3]], [0.5, -1.0])
    batch = minibatch(
        rows([[1.0]], torch.tensor([[0.25]]), [1.0], [[0.5]], [False]), [[0.3]], [[0.8]]
    )
    actor = [*agent.actor.parameters(), agent.temperature.log_alpha]
    assert torch.autograd.grad(critic_loss_of(agent, batch).loss, actor, allow_unused=True) == (
        None,
    ) * len(actor)
    assert not any(p.requires_grad for p in agent.target.parameters())
    (for_alpha,) = torch.autograd.grad(
        actor_loss_of(agent, batch).loss, [agent.temperature.log_alpha]
    )
    with torch.no_grad():
        entropy = value_and_entropy(
            agent.trained_networks, agent.critics, batch.rows.obs, batch.noise
        )[1].mean()
    size = abs(entropy.item()) + 1.0
    # H̄ = -1 for one component
    assert for_alpha.item() == near(entropy.item() + 1.0, dtype="float32", terms=8, size=size)


def test_a_step_moves_the_target_towards_the_critics_as_they_are_after_it() -> None:
    agent = linear(DISCRETE, [[0, 2, 0], [0, 10, 0]], [[1, 4, 0], [3, 2, 5]], [0, 0, 0], tau=0.25)
    before = [p.clone() for p in agent.target.parameters()]
    agent.train_on(minibatch(rows([[1.0]], [1], [1.0], [[1.0]], [False])))
    for old, new, online in zip(
        before, agent.target.parameters(), agent.critics.parameters(), strict=True
    ):
        assert_near(new, 0.75 * old + 0.25 * online.detach(), terms=2)


def test_the_targets_of_the_entropy_are_the_stated_ones() -> None:
    boxes: Any = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)
    for actions, config, expected in (
        (DISCRETE, {}, 0.3 * math.log(3)),
        (BOX, {}, -1.0),
        (boxes, {}, -3.0),
        (boxes, {"target_entropy": 0.5}, 0.5),
    ):
        env: Any = Spaces(2, actions)
        assert SAC(env, SACConfig(buffer_size=10, **config)).temperature.target_entropy() == near(
            expected
        )


def test_behind_masks_the_target_is_the_mean_of_those_of_the_states() -> None:
    """0.3 log A of 4, 2 and 1 allowed actions, and not of their mean number."""
    temperature = Temperature(SACConfig(), 4, discrete=True)
    mask = torch.tensor([[True] * 4, [True, False, False, True], [False, True, False, False]])
    expected = 0.3 * (math.log(4) + math.log(2) + 0.0) / 3
    assert float(temperature.target_entropy(mask)) == near(expected, dtype="float32", terms=3)


@pytest.mark.parametrize("temperature", [0.0, 0.3])
def test_a_temperature_that_is_given_is_not_learned(temperature: float) -> None:
    """Not even 0, of which everything but the reward is left: V(s) = Σ π Q."""
    agent = linear(
        DISCRETE,
        [[0.0, 1.0, 2.0]] * 2,
        [[0.0, 1.0, 2.0]] * 2,
        [0.0, 0.0, 0.0],
        temperature=temperature,
    )
    loss = actor_loss_of(agent, minibatch(rows([[1.0]], [0], [0.0], [[1.0]], [False])))
    assert agent.temperature.alpha == temperature and float(loss.metrics["temperature"]) == near(
        temperature, dtype="float32"
    )
    assert loss.loss.item() == near(
        -(1.0 + temperature * math.log(3.0)), dtype="float32", terms=6, size=3.0
    )
    loss.loss.backward()
    assert agent.temperature.log_alpha.grad in (None, 0.0)


@pytest.mark.thorough
@pytest.mark.parametrize("gamma", [0.0, 0.5])
def test_the_policy_of_one_state_becomes_the_soft_optimal_one(gamma: float) -> None:
    """π ∝ exp(r / α) and V = α log Σ exp(r / α) / (1 - γ), where every action leads back. Full
    batches, fixed α."""
    reward, alpha = torch.tensor([1.0, 0.5, -0.2]), 0.5
    agent = linear(
        DISCRETE,
        [[0, 0, 0]] * 2,
        [[0, 0, 0]] * 2,
        [0, 0, 0],
        temperature=alpha,
        gamma=gamma,
        learning_rate=0.02,
        tau=0.1,
    )
    ones = np.ones((3, 1))
    batch = minibatch(rows(ones, [0, 1, 2], reward.tolist(), ones, [gamma == 0.0] * 3))
    for step in range(1200):
        for optimizer in agent.optimizers().values():
            optimizer.learning_rate = 0.02 if step < 800 else 0.002
        agent.train_on(batch)
    with torch.no_grad():
        found, q = agent.actor(torch.ones(1, 1)).softmax(-1), agent.critics(torch.ones(1, 1))
    value = alpha * (reward / alpha).logsumexp(0) / (1 - gamma)
    one_step = 0.002  # bound: one step of Adam at the last rate
    assert_close(q, (reward + gamma * value).expand(2, 1, 3), atol=one_step, rtol=0)
    assert_close(found, (reward / alpha).softmax(-1)[None], atol=one_step, rtol=0)


# ---- acting


def test_the_first_actions_are_uniform_and_later_ones_the_policys() -> None:
    count = 20_000
    wide: Any = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    for actions in (wide, DISCRETE):
        env: Any = Spaces(1, actions, num_envs=count)
        agent = SAC(env, SACConfig(hidden_sizes=(), buffer_size=count, learning_starts=10))
        set_to(agent.actor, [0.5, -0.3, -1.0, -1.0] if actions is wide else [0.0, 1.0, 2.0])
        observation = np.ones((count, 1), np.float32)
        first = agent.act(observation)
        agent.steps = 10
        later = agent.act(observation)
        if actions is wide:
            assert first.dtype == np.float32 and np.abs(first).max() <= 1
            quantiles = [[-0.5] * 2, [0.0] * 2, [0.5] * 2]
            # 5 standard errors of a median are 5 · ½ / √n over the density ½, of a mean 5 σ / √n,
            # of a deviation 5 σ / √(2n)
            np.testing.assert_allclose(
                np.quantile(first, [0.25, 0.5, 0.75], axis=0),
                quantiles,
                rtol=0,
                atol=5 / count**0.5,
            )
            np.testing.assert_allclose(
                np.arctanh(later).mean(0), [0.5, -0.3], rtol=0, atol=5 * math.exp(-1) / count**0.5
            )
            np.testing.assert_allclose(
                np.arctanh(later).std(0), math.exp(-1.0), rtol=5 / (2 * count) ** 0.5
            )
        else:
            likely = np.exp([0, 1, 2]) / np.exp([0, 1, 2]).sum()
            error = 4 * 0.5 / count**0.5  # 4 standard errors of a share, at most
            np.testing.assert_allclose(np.bincount(first) / count, 1 / 3, rtol=0, atol=error)
            np.testing.assert_allclose(np.bincount(later) / count, likely, rtol=0, atol=error)


def test_noise_is_held_as_long_as_was_asked_for() -> None:
    env: Any = Spaces(1, BOX, num_envs=2)
    agent = SAC(env, SACConfig(hidden_sizes=(), buffer_size=10, learning_starts=1_000, hold=3))
    actions = [agent.act(np.ones((2, 1), np.float32)).tolist() for _ in range(7)]
    assert (
        actions[0] == actions[1] == actions[2] != actions[3]
        and actions[3] == actions[4] == actions[5] != actions[6]
    )


@pytest.mark.parametrize("actions", [BOX, DISCRETE], ids=str)
def test_an_agent_that_was_saved_holds_its_noise_on(actions: Any) -> None:
    """Saved within a hold of three: the copy holds the same noise for as long, and draws what the
    first one draws."""
    env: Any = Spaces(1, actions, num_envs=4)
    agent, other = (
        SAC(env, SACConfig(hidden_sizes=(), buffer_size=10, learning_starts=1_000, hold=3), seed)
        for seed in (0, 1)
    )
    seen = np.ones((4, 1), np.float32)
    for _ in range(4):
        agent.act(seen)
    other.load_state_dict(agent.state_dict())
    assert [other.act(seen).tolist() for _ in range(6)] == [
        agent.act(seen).tolist() for _ in range(6)
    ]


@pytest.mark.parametrize("actions", [BOX, DISCRETE], ids=str)
def test_without_exploring_the_mode_is_taken_and_nothing_changes(actions: Any) -> None:
    env: Any = Spaces(1, actions)
    agent = SAC(env, SACConfig(hidden_sizes=(), buffer_size=10))
    set_to(agent.actor, [0.5, 1.0] if actions is BOX else [0.0, 1.0, 0.5])
    before = (agent.exploration.bit_generator.state, agent.acted)
    found = agent.act(np.ones((1, 1), np.float32), explore=False)
    assert found.item() == near(math.tanh(0.5) if actions is BOX else 1, dtype="float32")
    assert (agent.exploration.bit_generator.state, agent.acted) == before


def test_actions_are_stored_between_minus_one_and_one_and_reach_the_environment_in_its_own_box(
    stage: Make,
) -> None:
    theatre = stage(
        "sac", "Pendulum-v1", num_envs=2, hidden_sizes=(4,), buffer_size=300, learning_starts=1_000
    )
    for _ in range(100):
        theatre.agent.learn(theatre.step())
    stored = theatre.agent.replay.rows.action[:200]
    assert stored.shape == (200, 1) and 0.9 < stored.abs().max() <= 1.0
    torque = theatre.env.adaptation.act(np.array([[-1.0], [0.0], [1.0], [1.5]], np.float32))
    assert_near(torque, [[-2.0], [0.0], [2.0], [2.0]])


@pytest.mark.parametrize(
    ("num_envs", "train_every", "starts", "updates"),
    [
        (1, 1, 50, 50),
        (1, 4, 0, 25),
        (4, 4, 20, 20),
        (8, 4, 0, 12),
        (3, 4, 0, 24),  # of 99 steps: at 6, 9, 12, 18, 21, 24 and so on
        (5, 3, 0, 20),
    ],
)
def test_updates_come_on_time(
    stage: Make, num_envs: int, train_every: int, starts: int, updates: int
) -> None:
    options = {
        "learning_starts": starts,
        "train_every": train_every,
        "batch_size": 4,
        "gradient_steps": 2,
        "hidden_sizes": (4,),
    }
    theatre = stage("sac", "Pendulum-v1", num_envs=num_envs, buffer_size=200, **options)
    logged = [theatre.agent.learn(theatre.step()) for _ in range(100 // num_envs)]
    assert sum(bool(metrics) for metrics in logged) == updates
    assert (
        theatre.agent.updates
        == theatre.agent.critic_optimizer.steps
        == theatre.agent.actor_optimizer.steps
        == 2 * updates
    )
    assert all(metrics.keys() == SAC.METRICS.keys() for metrics in logged if metrics)


def test_a_buffer_smaller_than_one_vector_step_is_refused() -> None:
    env: Any = Spaces(3, BOX, num_envs=8)
    with pytest.raises(ValueError, match="buffer_size must be at least num_envs 8, got 7"):
        SAC(env, SACConfig(buffer_size=7))


def test_a_lower_precision_of_products_holds_while_learning_alone(stage: Make) -> None:
    theatre = stage(
        "sac",
        "Pendulum-v1",
        hidden_sizes=(4,),
        buffer_size=100,
        learning_starts=0,
        batch_size=4,
        matmul_precision="medium",
    )
    seen: list[str] = []
    plain = theatre.agent.train_on
    theatre.agent.train_on = lambda batch: (
        seen.append(torch.get_float32_matmul_precision()),
        plain(batch),
    )[1]
    theatre.agent.learn(theatre.step())
    assert seen == ["medium"] and torch.get_float32_matmul_precision() == "highest"
    with pytest.raises(
        ValueError, match="matmul_precision must be one of 'highest', 'high', 'medium', got 'low'"
    ):
        SACConfig(matmul_precision="low")  # type: ignore[arg-type]


def test_only_a_reparametrised_action_carries_a_gradient() -> None:
    mean = torch.tensor([[0.3, -1.0]], requires_grad=True)
    pi = SquashedGaussian(mean, torch.tensor([-0.5, 0.2]))
    assert pi.rsample().requires_grad and not pi.sample().requires_grad
