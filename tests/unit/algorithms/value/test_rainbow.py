"""Rainbow's parts: each formula by hand, each part in the agent, and what none of them may
change."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, near, widths
from gymnasium import spaces
from scipy import stats
from steps import loss_of, next_minibatch

from rlbook.agent import Step
from rlbook.algorithms.value.dqn import DQN, DQNConfig, dqn_loss, dqn_target
from rlbook.data.prioritized_replay import Priorities
from rlbook.data.rainbow_replay import RainbowReplay
from rlbook.errors import TrainingError
from rlbook.functional.rainbow import (
    best_next_distribution,
    categorical_divergence,
    categorical_mean,
    categorical_projection,
    clipped_mass,
    dueling_action_values,
    importance_weights,
    n_step_reward,
)
from rlbook.functional.schedules import Constant
from rlbook.networks.noisy_linear import NoisyLinear, NoisyMLP
from rlbook.networks.q_network import QNetwork, QSettings, predict
from rlbook.seeding import rng_for

ALL: dict[str, Any] = {
    "dueling": True,
    "prioritized": True,
    "n_step": 3,
    "noisy": True,
    "distributional": True,
    "v_min": -5.0,
    "v_max": 5.0,
}
PARTS: dict[str, dict[str, Any]] = {
    "dueling": {"dueling": True},
    "prioritized": {"prioritized": True},
    "n_step": {"n_step": 3},
    "noisy": {"noisy": True},
    "distributional": {"distributional": True},
    "all": ALL,
}
VECTOR = spaces.Box(-np.inf, np.inf, (3,), np.float32)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


class Spaces:
    """As much of a vector environment as DQN looks at."""

    def __init__(self, num_envs: int = 1) -> None:
        self.single_observation_space, self.single_action_space, self.num_envs = (
            VECTOR,
            spaces.Discrete(2),
            num_envs,
        )


def agent_with(num_envs: int = 1, **config: Any) -> DQN:
    env: Any = Spaces(num_envs)
    return DQN(env, DQNConfig(hidden_sizes=(8, 8), batch_size=16, **config), seed=1)


def step_of(obs: Any, reward: Any, next_obs: Any, terminated: Any, truncated: Any) -> Step:
    over, cut = np.array(terminated, dtype=bool), np.array(truncated, dtype=bool)
    rows = [np.array(x, np.float32).reshape(len(over), -1) for x in (obs, next_obs)]
    return Step(
        rows[0],
        np.zeros(len(over), np.int64),
        np.array(reward, np.float32),
        rows[1],
        over,
        cut,
        np.ones(len(over), bool),
    )


# ---- dueling


def test_the_mean_of_dueling_action_values_is_the_value() -> None:
    """V = 5, A = (1, 3): Q = 5 + (1, 3) - 2. A constant on A changes nothing."""
    value, advantage = torch.tensor([[5.0]]), torch.tensor([[1.0], [3.0]])
    assert dueling_action_values(value, advantage).squeeze(-1).tolist() == [
        5.0 + 1.0 - 2.0,
        5.0 + 3.0 - 2.0,
    ]
    assert_near(
        dueling_action_values(value, advantage + 7.0),
        dueling_action_values(value, advantage),
        terms=4,
        size=5.0 + 10.0,
    )


@pytest.mark.parametrize("support", [None, (-1.0, 1.0, 5)])
def test_a_dueling_networks_streams_are_a_value_and_centred_advantages(support: Any) -> None:
    network: Any = QNetwork(
        VECTOR, 4, (8, 6), generator(), QSettings(dueling=True, support=support)
    )
    x = torch.randn(7, 3, generator=generator())
    value = network.value(torch.relu(network.shared(x)))  # [7, K]
    rounded: Any = {"terms": 4 + widths(network), "size": 3.0 + float(value.detach().abs().max())}
    assert_near(network._outputs(x, None).mean(-2), value, **rounded)
    with torch.no_grad():
        network.advantage.layers[-1].bias.add_(3.0)
    assert_near(network._outputs(x, None).mean(-2), value, **rounded)


def test_the_streams_part_in_front_of_the_last_hidden_layer() -> None:
    """Of 3 inputs and hidden layers of 8 and 6: 3 → 8 together, then 8 → 6 → 1 and 8 → 6 → 4."""
    network: Any = QNetwork(VECTOR, 4, (8, 6), generator(), QSettings(dueling=True))
    shapes = [
        [list(layer.weight.shape)[::-1] for layer in part.layers]
        for part in (network.shared, network.value, network.advantage)
    ]
    assert shapes == [[[3, 8]], [[8, 6], [6, 1]], [[8, 6], [6, 4]]]
    alone: Any = QNetwork(VECTOR, 4, (6,), generator(), QSettings(dueling=True))
    assert alone.shared is None and len(alone.value.layers) == 2


# ---- prioritised replay


def test_rows_are_drawn_in_proportion_to_their_priorities() -> None:
    """Errors 0 to 9 with ω = 0.7; a new row counts as the largest so far; an empty place is never
    drawn."""
    priorities = Priorities(12, 0.7)
    priorities.add(np.arange(10))
    priorities.update(np.arange(10), np.arange(10.0))
    priorities.add(np.array([10]))
    expected = np.append((np.arange(10) + 1e-6) ** 0.7, (9 + 1e-6) ** 0.7)
    expected /= expected.sum()
    places, probability = priorities.draw(100_000, np.random.default_rng(0))
    assert_near(probability, expected[places], terms=12)
    counts = np.bincount(places, minlength=12)
    assert counts[11] == 0
    assert (
        stats.chisquare(counts[1:11], expected[1:] / expected[1:].sum() * counts[1:11].sum()).pvalue
        > 1e-3
    )


def test_a_new_row_has_the_largest_priority_that_any_row_ever_had() -> None:
    """Not the largest of the last update, nor 1, and it's kept in a checkpoint; below 1 the first
    rows' 1 is the largest."""
    priorities = Priorities(6, 0.5)
    priorities.add(np.arange(2))
    priorities.update(np.arange(2), np.array([0.25, 0.01]))
    priorities.add(np.array([2]))
    assert priorities.values[2] == 1.0
    for error in (16.0, 4.0, 0.25):
        priorities.update(np.arange(3), np.full(3, error))
    priorities.add(np.array([3]))
    assert priorities.values[3] == near((16 + 1e-6) ** 0.5) and priorities.values[
        :3
    ].tolist() == near([(0.25 + 1e-6) ** 0.5] * 3)
    other = Priorities(6, 0.5)
    other.load_state_dict(priorities.state_dict())
    other.add(np.array([4]))
    assert other.values[4] == priorities.values[3]


def test_the_exponent_zero_draws_uniformly_and_one_row_alone_is_always_drawn() -> None:
    priorities = Priorities(5, 0.0)
    priorities.add(np.arange(5))
    priorities.update(np.arange(5), np.array([0.0, 1.0, 10.0, 100.0, 1e6]))
    counts = np.bincount(priorities.draw(10_000, np.random.default_rng(0))[0], minlength=5)
    assert stats.chisquare(counts).pvalue > 1e-3
    single = Priorities(5, 1.0)
    single.add(np.array([3]))
    assert set(single.draw(100, np.random.default_rng(0))[0]) == {3}


def test_an_error_that_is_not_finite_is_an_error() -> None:
    with pytest.raises(TrainingError, match="not finite"):
        Priorities(3, 0.5).update(np.array([1]), np.array([np.nan]))


def test_importance_weights_undo_the_uneven_drawing() -> None:
    """N = 4, P = (1/2, 1/8): 1/(N P) is (1/2, 2), of the larger (1/4, 1). With β = 1, Σ_i P_i w_i
    f_i ∝ Σ_i f_i."""
    probability = torch.tensor([0.5, 0.125], dtype=torch.float64)
    assert importance_weights(probability, 4, 1.0).tolist() == near([0.25, 1.0])
    assert importance_weights(probability, 4, 0.5).tolist() == near([0.25**0.5, 1.0])
    assert importance_weights(probability, 4, 0.0).tolist() == [1.0, 1.0]
    everything = torch.tensor([0.1, 0.2, 0.7], dtype=torch.float64)
    weighted = everything * importance_weights(everything, 3, 1.0)
    assert_near(weighted, weighted[:1].expand(3), terms=2)


def test_beta_is_that_of_the_time() -> None:
    """β from 0 to 1: at first all rows count alike, in the middle by (N P)^-½, and at the end by 1
    / (N P)."""
    agent = agent_with(prioritized=True, importance_exponent="linear(0.0, 1.0)")
    rng = np.random.default_rng(0)
    for _ in range(20):
        agent.replay.add(
            step_of(rng.normal(size=3), [rng.normal()], rng.normal(size=3), [False], [False])
        )
    priorities = agent.replay.priorities
    assert priorities is not None
    priorities.update(np.arange(20), np.arange(1.0, 21.0))
    for progress in (0.0, 0.5, 1.0):
        agent.progress = progress
        batch = next_minibatch(agent)
        assert batch.weight is not None and batch.places is not None
        rare = torch.from_numpy(priorities.values[batch.places]) ** -progress
        assert_near(batch.weight, rare / rare.max(), dtype="float32", terms=20)


def test_the_loss_weighs_its_rows() -> None:
    """L = 1/B Σ w_i ½ δ_i²; the errors become the priorities."""
    agent = agent_with(prioritized=True, huber=False, double=False)
    rng = np.random.default_rng(0)
    for _ in range(30):
        agent.replay.add(
            step_of(rng.normal(size=3), [rng.normal()], rng.normal(size=3), [False], [False])
        )
    batch = next_minibatch(agent)
    weight = torch.linspace(0.1, 1.0, len(batch))
    with torch.no_grad():
        q = agent.q(batch.rows.obs)[:, 0]
        target = batch.rows.reward + 0.99 * batch.next_q.amax(1)
    output = loss_of(agent, replace(batch, weight=weight))
    terms, size = len(batch) + widths(agent.q), float((q.abs() + target.abs()).max())
    assert_near(
        output.loss,
        (weight * 0.5 * (q - target) ** 2).sum() / len(batch),
        terms=terms,
        size=size**2,
    )
    assert_near(output.metrics["error"], (q - target).abs(), terms=terms, size=size)


def test_priorities_are_those_of_the_last_update_at_every_draw() -> None:
    """Each minibatch is drawn from what the one before it left: the drawn probabilities are those
    of the errors just found."""
    agent = agent_with(prioritized=True, gradient_steps=5)
    rng, seen = np.random.default_rng(0), []
    for _ in range(40):
        agent.replay.add(
            step_of(rng.normal(size=3), [rng.normal()], rng.normal(size=3), [False], [False])
        )
    priorities: Any = agent.replay.priorities
    draw, update = priorities.draw, priorities.update
    priorities.draw = lambda size, rng: (seen.append(priorities.values.copy()), draw(size, rng))[1]
    priorities.update = lambda places, error: (seen.append((places, error)), update(places, error))[
        1
    ]
    agent.update()
    for before, (places, error), after in zip(seen[0:8:2], seen[1:8:2], seen[2:9:2], strict=True):
        expected = before.copy()
        expected[places] = (error.astype(np.float64) + 1e-6) ** 0.5
        np.testing.assert_array_equal(after, expected)
        assert not np.array_equal(before, after)


# ---- several steps


def test_a_reward_of_n_steps_is_discounted_and_cut() -> None:
    """γ = 1/2, rewards 1, 2, 4: 1 + 1 + 1; the first alone; the first two. What is not counted may
    be anything."""
    reward = torch.tensor([[1.0, 2.0, 4.0], [1.0, torch.nan, 4.0], [1.0, 2.0, torch.inf]])
    counted = torch.tensor([[True, True, True], [True, False, False], [True, True, False]])
    total, discount = n_step_reward(reward, counted, 0.5)
    assert total.tolist() == [1 + 0.5 * 2 + 0.25 * 4, 1.0, 1 + 0.5 * 2]
    assert discount.tolist() == [0.5**3, 0.5, 0.5**2]


@pytest.mark.parametrize("capacity", [100, 21, 20])
def test_rows_of_n_steps_end_with_their_episode_in_each_of_several_environments(
    capacity: int,
) -> None:
    """Two environments, 14 steps (the ring has wrapped at 20): the states are numbers that name
    environment, episode and time.

    Environment 0 terminates every 4 steps, environment 1 is cut off every 5. A row at time t of an
    episode of length L looks min(3, L - t) steps ahead, or to the newest step, and the reward at
    time t is 10^-t.
    """
    replay = RainbowReplay(
        capacity, spaces.Box(-np.inf, np.inf, (1,), np.float32), num_envs=2, n_step=3, gamma=0.5
    )
    lengths, total = (4, 5), 14
    for now in range(total):
        times = [now % length for length in lengths]
        names = [
            1000 * env + 100 * (now // length) + now % length for env, length in enumerate(lengths)
        ]
        ends = [time == length - 1 for time, length in zip(times, lengths, strict=True)]
        replay.add(
            step_of(
                names,
                [10.0**-time for time in times],
                [name + 1 for name in names],
                [ends[0], False],
                [False, ends[1]],
            )
        )
    assert replay.ahead is not None
    rows, discount = replay.ahead.rows_at(np.arange(replay.size))
    for obs, reward, next_obs, terminated, power in zip(
        rows.obs[:, 0].tolist(),
        rows.reward.tolist(),
        rows.next_obs[:, 0].tolist(),
        rows.terminated.tolist(),
        discount.tolist(),
        strict=True,
    ):
        env, time = int(obs) // 1000, int(obs) % 100
        now = int(obs) % 1000 // 100 * lengths[env] + time
        steps = min(3, lengths[env] - time, total - now)
        # after a time limit too: what was reached, not the next start
        assert next_obs == obs + steps
        assert reward == near(
            sum(0.5**k * 10.0 ** -(time + k) for k in range(steps)), dtype="float32", terms=3
        )
        assert power == 0.5**steps
        assert terminated == (env == 0 and time + steps == lengths[0])


@pytest.mark.parametrize(
    ("terminated", "truncated", "target"),
    [
        (True, False, 1 + 0.9 * 2),
        (False, True, 1 + 0.9 * 2 + 0.81 * 5.0),
        (False, False, 1 + 0.9 * 2 + 0.81 * 4 + 0.729 * 7.0),
    ],
)
def test_the_target_of_three_steps(terminated: bool, truncated: bool, target: float) -> None:
    """Rewards 1, 2, 4; the second step may end the episode, in a state worth 5; after the third one
    it is worth 7."""
    agent = agent_with(n_step=3, gamma=0.9, double=False)
    steps = [(0, 1, 1, False, False), (1, 2, 5, terminated, truncated), (9, 4, 7, False, False)]
    for obs, reward, next_obs, over, cut in steps:
        agent.replay.add(step_of([obs] * 3, [reward], [next_obs] * 3, [over], [cut]))
    assert agent.replay.ahead is not None
    rows, discount = agent.replay.ahead.rows_at(np.array([0]))
    batch = next_minibatch(agent)
    batch = replace(
        batch,
        rows=rows,
        discount=discount,
        next_q=torch.stack([rows.next_obs[:, 0] - 1, rows.next_obs[:, 0]], 1),
    )
    assert dqn_target(agent.q, batch, config=agent.config).item() == near(
        target, dtype="float32", terms=4
    )


def test_one_step_is_the_ring_itself() -> None:
    replay, plain = (RainbowReplay(10, VECTOR, n_step=n, gamma=0.9) for n in (2, 1))
    for _ in range(7):
        for ring in (replay, plain):
            ring.add(step_of([1.0, 2.0, 3.0], [1.0], [2.0, 3.0, 4.0], [True], [False]))
    one, two = (
        next(ring.minibatches(1, 5, lambda obs: obs, np.random.default_rng(0)))
        for ring in (replay, plain)
    )
    assert two.discount is None and two.weight is None
    for left, right in zip(one.rows[:5], two.rows[:5], strict=True):  # the masks are None
        assert torch.equal(left, right)


# ---- noisy layers


def test_the_noise_has_the_variance_that_its_weights_say() -> None:
    """y = 0 + Σ_j σ f(ε_i) f(ε_j) x_j + σ f(ε_i), and E f² = E|ε| = √(2/π): Var y = σ² (2/π |x|² +
    √(2/π)), and E y = 0."""
    layer = NoisyMLP((3, 2), generator(), 0.6)
    with torch.no_grad():
        layer.layers[0].weight.zero_()
        layer.layers[0].bias.zero_()
    x, rng = torch.tensor([[1.0, -2.0, 0.5]]), np.random.default_rng(0)
    with torch.no_grad():
        drawn = torch.cat([layer(x, rng) for _ in range(5_000)]).double()  # [5 000, 2]
    sigma2, size = 0.6**2 / 3, x.square().sum().item()
    expected = sigma2 * (2 / np.pi * size + (2 / np.pi) ** 0.5)
    fourth = (drawn - drawn.mean(0)).pow(4).mean(0) / drawn.var(0).square()
    error = (((fourth - 1) / len(drawn)) ** 0.5).max().item()  # of a variance, relative to it
    assert drawn.var(0).tolist() == pytest.approx([expected] * 2, rel=4 * error) and error < 0.05
    assert (drawn.mean(0).abs() < 4 * (expected / 5_000) ** 0.5).all()


def test_noise_is_factorised_and_shared_by_the_rows_of_a_batch() -> None:
    """The noisy part of the weight has rank 1; the same x twice gives the same y twice, and another
    y the next time."""
    layer = NoisyLinear(5, 4, generator(), 0.5)
    weight, bias = layer.noisy_weights(torch.randn(5, generator=generator()), torch.ones(4))
    assert torch.linalg.matrix_rank(weight - layer.weight) == 1
    assert_near(bias, layer.bias + layer.bias_noise * 1.0)
    network, rng = NoisyMLP((3, 8, 2), generator(), 0.5), np.random.default_rng(0)
    x = torch.ones(2, 3)
    first, second = network(x, rng), network(x, rng)
    assert torch.equal(first[0], first[1]) and not torch.equal(first, second)
    assert torch.equal(network(x), network(x))


def test_evaluation_has_no_noise_and_uses_none_up() -> None:
    agent = agent_with(noisy=True, epsilon=1.0, noise_scale=20.0)
    obs = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    assert agent.noise is not None
    before = agent.noise.bit_generator.state
    greedy = [agent.act(obs, explore=False) for _ in range(3)]
    assert np.array_equal(greedy[0], greedy[1]) and np.array_equal(
        greedy[0], agent.q(torch.from_numpy(obs)).argmax(1).numpy()
    )
    assert agent.noise.bit_generator.state == before
    assert not np.array_equal(agent.act(obs), agent.act(obs))


def test_every_pass_draws_noise_of_its_own() -> None:
    """Q, Q⁻ and the network that chooses: three passes a minibatch."""
    agent = agent_with(noisy=True, double=True)
    rng = np.random.default_rng(0)
    for _ in range(20):
        agent.replay.add(step_of(rng.normal(size=3), [0.0], rng.normal(size=3), [False], [False]))
    assert agent.noise is not None
    noise = agent.noise
    states = [noise.bit_generator.state]
    first = next_minibatch(agent)
    passes = (
        lambda: dqn_target(agent.q, first, config=agent.config, noise=noise),
        lambda: predict(agent.q, first.rows.obs, noise),
        lambda: dqn_loss(agent.q, first, config=agent.config, noise=noise),
        lambda: next_minibatch(agent),
    )
    states.append(noise.bit_generator.state)
    for pass_of in passes:
        pass_of()
        states.append(noise.bit_generator.state)
    assert all(left != right for left, right in pairwise(states))


def test_gradients_reach_the_size_of_the_noise() -> None:
    network = NoisyMLP((3, 8, 2), generator(), 0.5)
    network(torch.ones(4, 3), np.random.default_rng(0)).sum().backward()
    for layer in network.layers:
        assert layer.weight_noise.grad is not None and layer.weight_noise.grad.abs().sum() > 0


# ---- distributions of returns


def brute_force(prob: Any, reward: Any, terminated: Any, gamma: float, support: Any) -> np.ndarray:
    """Equation 7 of Bellemare et al. 2017, atom by atom."""
    step, result = support[1] - support[0], np.zeros_like(prob)
    for row in range(len(prob)):
        for j, z in enumerate(support):
            moved = min(
                max(reward[row] + (0.0 if terminated[row] else gamma * z), support[0]), support[-1]
            )
            for i, atom in enumerate(support):
                result[row, i] += prob[row, j] * max(0.0, 1.0 - abs(moved - atom) / step)
    return result


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.9, 1.0])
def test_the_projection_is_the_papers_equation(gamma: float) -> None:
    """Rewards that fall between atoms, on them, and outside the support on both sides; some rows
    terminated."""
    rng, support = np.random.default_rng(0), np.linspace(-2.0, 3.0, 11)
    reward = np.array([0.0, 0.5, 0.13, -0.77, 9.0, -9.0, 1.0, 3.0])
    prob, terminated = rng.dirichlet(np.ones(11), size=8), np.arange(8) % 3 == 2
    atoms, given = (
        torch.from_numpy(support),
        tuple(map(torch.from_numpy, (prob, reward, terminated))),
    )
    found = categorical_projection(given[0], given[1], given[2], gamma, atoms)
    # a share is a difference over the step 1/2
    rounded: Any = {
        "terms": len(support),
        "size": 9.0 / 0.5,
    }
    assert_near(found, brute_force(prob, reward, terminated, gamma, support), **rounded)
    assert_near(found.sum(1), np.ones(len(found)), **rounded)
    powers = torch.tensor([gamma] * 8, dtype=torch.float64)
    assert torch.equal(categorical_projection(given[0], given[1], given[2], powers, atoms), found)


def test_no_mass_is_lost_on_an_atom_and_the_mean_is_kept_inside() -> None:
    """r = 1 with γ = 1 moves each atom onto the next one; the mean of what stays inside the support
    is r + γ E Z."""
    support = torch.linspace(0.0, 4.0, 5)
    prob = torch.tensor([[0.1, 0.2, 0.7, 0.0, 0.0]])
    over = torch.tensor([False])
    moved = categorical_projection(prob, torch.tensor([1.0]), over, 1.0, support)
    assert_near(moved, [[0.0, 0.1, 0.2, 0.7, 0.0]], terms=5, size=4.0)
    found = categorical_projection(prob, torch.tensor([0.3]), over, 0.9, support)
    assert (found * support).sum().item() == near(
        0.3 + 0.9 * (0.2 + 1.4), dtype="float32", terms=10, size=4.0
    )


def test_repeated_targets_end_at_the_distribution_of_a_chains_return() -> None:
    """s0 → s1 → end, with a reward of 0 or 2 (one in four) in s1, γ = 1/2 and 1 in s0: from s0 the
    return is 1 or 2, on atoms.

    Exact: Z(s1) is 0 with probability 3/4 and 2 with 1/4; Z(s0) = 1 + Z(s1)/2 is 1 with 3/4 and 2
    with 1/4.
    """
    support = torch.linspace(0.0, 4.0, 9)
    over, ends = torch.tensor([True, True]), torch.full((2, 9), 1 / 9)
    last = categorical_projection(ends, torch.tensor([0.0, 2.0]), over, 0.5, support)
    z1 = 0.75 * last[0] + 0.25 * last[1]
    z0 = categorical_projection(z1[None], torch.tensor([1.0]), torch.tensor([False]), 0.5, support)[
        0
    ]
    rounded: Any = {"dtype": "float32", "terms": 9, "size": 4.0 / 0.5}
    assert z1[[0, 4]].tolist() == near([0.75, 0.25], **rounded)
    assert z0[[2, 4]].tolist() == near([0.75, 0.25], **rounded) and z0.sum().item() == near(
        1.0, **rounded
    )


def test_the_distribution_of_a_chain_is_learned() -> None:
    """One state, one action that ends the episode with reward 0 or 2 (one in four): the network's
    distribution becomes that."""
    agent = agent_with(
        distributional=True,
        v_min=0.0,
        v_max=4.0,
        num_atoms=5,
        learning_rate=0.02,
        gradient_steps=150,
        buffer_size=40,
    )
    for count in range(40):
        agent.replay.add(
            step_of([1.0, 0.0, 0.0], [2.0 * (count % 4 == 0)], [0.0] * 3, [True], [False])
        )
    agent.update()
    agent.learning_rate = Constant(1e-3)
    agent.update()
    q: Any = agent.q
    learned = q.log_prob(torch.tensor([1.0, 0.0, 0.0]))[0].exp()
    # Seeds 100 to 109 leave errors of 0.002 to 0.017 in a probability, and of 0.003 to 0.034 in the
    # mean.
    np.testing.assert_allclose(learned.detach(), [0.75, 0.0, 0.25, 0.0, 0.0], rtol=0, atol=0.05)
    mean = q(torch.tensor([1.0, 0.0, 0.0]))[0].item()
    # bound: two atoms apart, so twice a probability's
    assert mean == pytest.approx(0.5, rel=0, abs=0.1)


def test_the_best_next_action_is_the_choosers_at_the_target_networks_distribution() -> None:
    """The chooser prefers action 1, whose return is 0 for sure, to action 0, whose return is 1 for
    sure."""
    next_log_prob = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]]).log()
    for chooser, expected in (([[1.0, 0.0]], [0.0, 1.0]), ([[0.0, 1.0]], [1.0, 0.0])):
        assert best_next_distribution(next_log_prob, torch.tensor(chooser)).tolist() == [expected]


def test_mass_that_is_moved_out_of_the_support_is_counted() -> None:
    """Atoms 0, 1, 2 with probabilities 0.2, 0.3, 0.5. With γ = 1 and r = 1 the last goes to 3 and
    is cut; with r = -1 the first goes to -1. With r = 0 nothing is; with r = 2 where the episode
    ended nothing is either: the return is 2. Of four rows, (0.5 + 0.2) / 4 is cut."""
    prob, support = torch.tensor([[0.2, 0.3, 0.5]]).repeat(4, 1), torch.tensor([0.0, 1.0, 2.0])
    reward, over = torch.tensor([1.0, -1.0, 0.0, 2.0]), torch.tensor([False, False, False, True])
    for gamma in (1.0, torch.tensor([1.0, 1.0, 1.0, 0.5])):
        assert clipped_mass(prob, reward, over, gamma, support).item() == near(
            0.7 / 4, dtype="float32", terms=12
        )


def test_a_support_up_to_the_largest_return_is_never_cut() -> None:
    """r + γ z ≤ 1 + γ / (1 - γ) = 1 / (1 - γ), and rounding is not counted."""
    for gamma in (0.9, 0.97, 0.99, 0.999):
        support = torch.linspace(0.0, 1.0 / (1.0 - gamma), 51)
        prob = torch.zeros(1, 51)
        prob[0, -1] = 1.0
        assert clipped_mass(prob, torch.ones(1), torch.tensor([False]), gamma, support) == 0.0


def test_the_divergence_is_zero_at_its_target_and_its_gradient_is_the_cross_entropys() -> None:
    target = torch.tensor([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])
    assert_near(
        categorical_divergence(target.clamp(min=1e-30).log(), target), [0.0, 0.0], terms=3, size=1.0
    )
    logits = torch.tensor([[0.1, -0.4, 2.0], [0.0, 0.0, 0.0]], requires_grad=True)
    categorical_divergence(torch.log_softmax(logits, -1), target).sum().backward()
    assert logits.grad is not None
    assert_near(logits.grad, torch.softmax(logits.detach(), -1) - target, terms=3, size=1.0)
    assert categorical_mean(target.log(), torch.tensor([0.0, 1.0, 2.0])).tolist() == near(
        [0.5, 0.3 + 1.0], dtype="float32", terms=3
    )


# ---- in the agent


@pytest.mark.parametrize("part", PARTS)
def test_a_copy_goes_on_as_the_agent_does(part: str) -> None:
    """Two updates, a checkpoint, two more: weights, priorities and the generators, of the noise
    too, are the same bits."""
    one = agent_with(
        num_envs=2,
        **PARTS[part],
        learning_starts=0,
        train_every=20,
        gradient_steps=2,
        buffer_size=50,
    )
    other = agent_with(
        num_envs=2,
        **PARTS[part],
        learning_starts=0,
        train_every=20,
        gradient_steps=2,
        buffer_size=50,
    )
    other.act(np.ones((2, 3), np.float32))
    rng = np.random.default_rng(0)

    def play(agents: list[DQN], steps: int) -> None:
        for _ in range(steps):
            obs, next_obs = rng.normal(size=(2, 2, 3)).astype(np.float32)
            ends, cuts = rng.random((2, 2)) < 0.2
            actions = [agent.act(obs) for agent in agents]
            assert all(np.array_equal(action, actions[0]) for action in actions)
            for agent in agents:
                agent.learn(
                    Step(
                        obs,
                        actions[0],
                        np.ones(2, np.float32),
                        next_obs,
                        ends & ~cuts,
                        cuts,
                        np.ones(2, bool),
                    )
                )

    play([one], 30)
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    play([one, other], 40)
    assert one.optimizer.steps == other.optimizer.steps == 14  # type: ignore[attr-defined]
    for left, right in zip(one.q.parameters(), other.q.parameters(), strict=True):
        assert torch.equal(left, right)
    if one.replay.priorities is not None:
        assert np.array_equal(one.replay.priorities.values, other.replay.priorities.values)  # type: ignore[union-attr]


def test_the_ordinary_agent_draws_no_noise_and_keeps_nothing_more() -> None:
    agent = agent_with()
    assert set(agent.replay.state_dict()) == {"rows", "size", "position"}
    assert len(agent.state_dict()["rngs"]) == 2 and agent.noise is None
    assert rng_for(0, "noise").random() != rng_for(0, "minibatches").random()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"distributional": True, "v_min": 1.0, "v_max": 1.0},
            "v_max must be a number above v_min 1.0, got 1.0",
        ),
        ({"n_step": 0}, "n_step must be an integer of at least 1, got 0"),
        ({"num_atoms": 1}, "num_atoms must be an integer of at least 2, got 1"),
        ({"priority_exponent": -1.0}, "priority_exponent must be a number of at least 0"),
        ({"noisy": 1}, "noisy must be true or false, got 1"),
    ],
)
def test_a_wrong_setting_is_told(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DQNConfig(**settings)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("env", ["rlbook/Maze-v0", "CartPole-v1"])
def test_every_part_learns_in_an_environment(
    stage: Callable[..., Any], part: str, env: str
) -> None:
    """A few updates: the metrics are finite numbers, the weights move."""
    theatre = stage(
        "dqn",
        env,
        num_envs=3,
        learning_starts=20,
        train_every=6,
        batch_size=8,
        hidden_sizes=(8, 8),
        **PARTS[part],
    )
    before = [parameter.clone() for parameter in theatre.agent.q.parameters()]
    logged = [theatre.agent.learn(theatre.step()) for _ in range(15)]
    assert set(logged[-1]) <= set(DQN.METRICS) and all(
        np.isfinite(list(metrics.values())).all() for metrics in logged
    )
    assert all(
        not torch.equal(new, old)
        for new, old in zip(theatre.agent.q.parameters(), before, strict=True)
    )
    assert (
        theatre.agent.action_values(
            theatre.interaction.obs if env == "CartPole-v1" else np.array([0, 1])
        ).ndim
        == 2
    )
