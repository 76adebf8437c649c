"""Implicit Q-learning: its losses by hand and beside scipy, the values and the policy that it ends
at beside the exact ones, and what it makes of a narrow recording."""

from __future__ import annotations

import math
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, near
from gymnasium import spaces
from scipy import stats

import rlbook
from rlbook.algorithms.value.iql import (
    IQL,
    IQLConfig,
    iql_critic_loss,
    iql_policy_loss,
    iql_update,
    iql_value_loss,
)
from rlbook.data import Episode, Episodes, Steps
from rlbook.errors import RequestError
from rlbook.functional.schedules import Linear
from rlbook.functional.score_weights import advantage_weights
from rlbook.functional.value_losses import expectile_loss, squared_value_loss
from rlbook.runs.processes.interrupts import Interrupted
from rlbook.runs.run import Run

EYE = np.eye(3, dtype=np.float32)


class Spaces:
    """As much of a vector environment as IQL looks at."""

    num_envs = 1

    def __init__(self, size: int, actions: spaces.Space) -> None:
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.single_action_space = actions


TWO = spaces.Discrete(2)


def agent_for(size: int = 3, actions: spaces.Space = TWO, **settings: Any) -> IQL:
    env: Any = Spaces(size, actions)
    chosen: dict[str, Any] = {"hidden_sizes": ()} | settings
    return IQL(env, IQLConfig(**chosen))


def one_step(state: int, action: int, reward: float, after: int | None) -> Episode:
    """A recorded step; `after` is None where it ended the episode."""
    return Episode(
        EYE[state : state + 1],
        np.array([action]),
        np.array([reward], dtype=np.float32),
        after is None,
        None if after is None else EYE[after],
    )


def test_the_expectile_loss_by_hand() -> None:
    """Errors 2 and -1 at τ = 0.9: ½ (0.9 · 4 + 0.1 · 1) / 2."""
    value = torch.tensor([1.0, 3.0], requires_grad=True)
    loss = expectile_loss(value, torch.tensor([3.0, 2.0]), 0.9)
    loss.backward()
    assert loss.item() == near(0.5 * (0.9 * 4 + 0.1 * 1) / 2, dtype="float32", terms=2)
    assert_near(value.grad, torch.tensor([-0.9 * 2, 0.1 * 1]) / 2, terms=2)
    half = expectile_loss(value, torch.tensor([3.0, 2.0]), 0.5)
    whole = squared_value_loss(value, torch.tensor([3.0, 2.0]))
    assert half.item() == near(whole.item() / 2, dtype="float32", terms=2)
    mask = torch.tensor([True, False])
    masked = expectile_loss(value, torch.tensor([3.0, torch.nan]), 0.9, mask=mask)
    assert masked.item() == near(0.5 * 0.9 * 4, dtype="float32", terms=2)


VALUE, TARGET = [3.0, -1.5, 0.25, 2.0, -0.75], [1.0, 2.5, 0.25, -1.0, -0.5]
RLAX = {
    0.1: ([3.6, 1.6, 0.0, 8.1, 0.00625], [3.6, -0.8, 0.0, 5.4, -0.05]),
    0.5: ([2.0, 8.0, 0.0, 4.5, 0.03125], [2.0, -4.0, 0.0, 3.0, -0.25]),
    0.7: ([1.2, 11.2, 0.0, 2.7, 0.04375], [1.2, -5.6, 0.0, 1.8, -0.35]),
    0.9: ([0.4, 14.4, 0.0, 0.9, 0.05625], [0.4, -7.2, 0.0, 0.6, -0.45]),
}
"""τ → what RLax 0.1.9 (jax 0.10.2, float32) prints for `rlax.expectile_loss(VALUE, TARGET, τ)` and for
`jax.grad` of its sum with respect to VALUE; its digits beyond the seventh, which are float32's, are
left out."""


@pytest.mark.parametrize("tau", RLAX)
def test_the_expectile_loss_is_rlaxs(tau: float) -> None:
    """RLax has no factor ½ and averages nothing."""
    losses, gradient = RLAX[tau]
    for row, expected in enumerate(losses):
        value, target = (torch.tensor(each[row : row + 1]) for each in (VALUE, TARGET))
        assert 2 * expectile_loss(value, target, tau).item() == near(
            expected, dtype="float32", terms=4
        )
    value = torch.tensor(VALUE, requires_grad=True)
    (2 * len(VALUE) * expectile_loss(value, torch.tensor(TARGET), tau)).backward()
    assert_near(value.grad, torch.tensor(gradient), terms=4)


@pytest.mark.parametrize("tau", [0.1, 0.5, 0.7, 0.9, 0.99])
def test_the_loss_is_least_at_scipys_expectile_and_that_of_a_uniform_is_known(tau: float) -> None:
    """Of Uniform(0, 1) the expectile e has τ (1 - e)² = (1 - τ) e², so
    that e = √τ / (√τ + √(1 - τ)); a grid of n midpoints is off by at most 1/n."""
    n = 1_000
    grid = torch.from_numpy((np.arange(n) + 0.5) / n)
    exact = math.sqrt(tau) / (math.sqrt(tau) + math.sqrt(1 - tau))
    least = float(stats.expectile(grid.numpy(), tau))
    assert abs(least - exact) < 1 / n
    losses = [
        expectile_loss(torch.full((n,), least + away).double(), grid, tau).item()
        for away in (-1e-4, 0.0, 1e-4)
    ]
    assert min(losses) == losses[1]


def test_the_weights_are_exponentials_up_to_a_bound() -> None:
    advantage = torch.tensor([0.0, math.log(2) / 3, -math.log(4) / 3, 1e6])
    weight = advantage_weights(advantage, 3.0)
    assert_near(weight, torch.tensor([1.0, 2.0, 0.25, 100.0]), terms=4)
    assert advantage_weights(advantage, 0.0).tolist() == [1.0] * 4


def test_the_three_losses_by_hand() -> None:
    """State 0, action 1, reward 1, then state 1. Q⁻ = (4, 6) there, of which the lower counts; V(0)
    = 3 and V(1) = 5; Q = (2, 0); π is uniform."""
    agent = agent_for(gamma=0.9, expectile=0.8, inverse_temperature=0.5)
    networks = agent.networks
    for part in networks:
        for parameter in part.parameters():
            torch.nn.init.zeros_(parameter)
    for network, each in zip(networks.target.networks, (4.0, 6.0), strict=True):
        network.weights[0].data[1, 0] = each  # type: ignore[union-attr, index]
    networks.critics.networks[0].weights[0].data[1, 0] = 2.0  # type: ignore[union-attr, index]
    networks.value.weights[0].data[0, :2] = torch.tensor([3.0, 5.0])
    rows, rounded = Steps([one_step(0, 1, 1.0, 1)]).rows, {"dtype": "float32", "terms": 6}
    value, policy, critics = (
        loss(networks, rows, config=agent.config)
        for loss in (iql_value_loss, iql_policy_loss, iql_critic_loss)
    )
    assert value.loss.item() == near(0.5 * 0.8 * (4 - 3) ** 2, **rounded)  # type: ignore[arg-type]
    expected = math.exp(0.5 * (4 - 3)) * math.log(2)
    assert policy.loss.item() == near(expected, **rounded)  # type: ignore[arg-type]
    target = 1 + 0.9 * 5
    expected = 0.5 * (target - 2) ** 2 + 0.5 * (target - 0) ** 2
    assert critics.loss.item() == near(expected, size=4 * target**2, **rounded)  # type: ignore[arg-type]
    over = Steps([one_step(0, 1, 1.0, None)]).rows
    last = iql_critic_loss(networks, over, config=agent.config)
    assert last.loss.item() == near(0.5 * (1 - 2) ** 2 + 0.5 * 1**2, **rounded)  # type: ignore[arg-type]


def test_only_the_target_critics_follow_and_no_loss_reaches_anothers_network() -> None:
    """After one step each network but the target has moved; the target by κ of the critics'
    step."""
    agent = agent_for(tau=0.25, learning_rate=0.1)
    rows = Steps([one_step(0, 1, 1.0, 1), one_step(1, 0, 2.0, None)]).rows
    before = [each.clone() for each in agent.networks.critics.parameters()]
    iql_update(agent.networks, agent.optimizers, rows, agent.config)
    for old, new, slow in zip(
        before,
        agent.networks.critics.parameters(),
        agent.networks.target.parameters(),
        strict=True,
    ):
        assert_near(slow, old + 0.25 * (new - old), terms=2)
    for loss, part in (
        (iql_value_loss, agent.networks.value),
        (iql_policy_loss, agent.networks.policy),
        (iql_critic_loss, agent.networks.critics),
    ):
        for network in agent.networks:
            network.zero_grad()
        loss(agent.networks, rows, config=agent.config).loss.backward()
        reached = [any(p.grad is not None for p in each.parameters()) for each in agent.networks]
        assert reached == [each is part for each in agent.networks]


REWARDS = (0.0, 1.0)


def two_choices() -> Steps:
    """From state 0 to state 1, for nothing, with action 0 (three times in four) and to the end for
    0.4 with action 1; from state 1 each action ends it, for 0 and for 1, equally often."""
    first = [one_step(0, 0, 0.0, 1)] * 3 + [one_step(0, 1, 0.4, None)]
    return Steps(first + [one_step(1, action, REWARDS[action], None) for action in (0, 1)] * 2)


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize(("tau", "beta"), [(0.5, 1.0), (0.8, 2.0)])
def test_tables_end_at_the_exact_expectiles_and_the_exact_weighted_policy(
    tau: float, beta: float
) -> None:
    """The τ-expectile of 0 and 1, equally often, is τ: τ (1 - e) = (1 - τ) e. So Q(0, ·) = (γ τ,
    0.4), of which V(0) is the expectile with weights 3 : 1. And π(a|s) ∝ μ(a|s) exp(β (Q - V))."""
    gamma, steps = 0.9, 400
    agent = agent_for(
        gamma=gamma,
        expectile=tau,
        inverse_temperature=beta,
        tau=1.0,
        learning_rate=Linear(0.05, 0.0),
    )
    rows = two_choices().rows
    for step in range(steps):
        agent.progress = step / steps
        agent.train_on(rows)
    q = gamma * tau, 0.4
    values = np.array([stats.expectile([*[q[0]] * 3, q[1]], tau), tau])
    with torch.no_grad():
        found = agent.networks.value(torch.eye(3)[:2]).squeeze(-1).double().numpy()
        policy = agent.networks.policy.distribution(torch.eye(3)[:2]).log_probs.exp().numpy()  # type: ignore[attr-defined]
    # an expectile of another τ, or the mean, is off by 0.1 or more; after 400 steps of Adam from ten
    # seeds the largest error was 0.01
    np.testing.assert_allclose(found, values, rtol=0.0, atol=0.03)
    share = np.array([[3, 1], [1, 1]]) * np.exp(beta * (np.array([q, REWARDS]) - values[:, None]))
    # of 0.03 in Q - V, times β = 2, a share of ½ takes at most half
    np.testing.assert_allclose(policy, share / share.sum(1, keepdims=True), rtol=0.0, atol=0.03)


def test_box_actions_are_learned_by_their_weights() -> None:
    """One state, ended at once; action x pays -x². Recorded are ±1 and 0.2, so that the weighted
    mean of the actions is Σ w x / Σ w, which is the mean of a Gaussian of the largest weighted
    likelihood, and its variance Σ w (x - mean)² / Σ w."""
    actions, beta = np.array([-1.0, 0.2, 1.0]), 2.0
    rows = Steps(
        [
            Episode(EYE[:1], np.array([[x]], np.float32), np.array([-x * x], np.float32))
            for x in actions
        ]
    ).rows
    assert rows.action.shape == (3, 1)
    agent = agent_for(
        actions=spaces.Box(-2.0, 2.0, (1,), np.float32),
        inverse_temperature=beta,
        hidden_sizes=(16,),
        learning_rate=Linear(0.02, 0.0),
        tau=1.0,
    )
    for step in range(400):
        agent.progress = step / 400
        agent.train_on(rows)
    weight = np.exp(beta * -(actions**2))
    mean = (weight * actions).sum() / weight.sum()
    spread = math.sqrt((weight * (actions - mean) ** 2).sum() / weight.sum())
    greedy = agent.act(EYE[:1], explore=False)
    assert greedy.shape == (1, 1) and greedy.dtype == np.float32
    # the critics fit three numbers with a network of 16 units, to about a hundredth
    assert abs(float(greedy[0, 0]) - mean) < 0.05
    # a deviation of the same size as the mean's, by the same errors
    assert abs(float(agent.networks.policy.log_std.detach().exp()) - spread) < 0.05  # type: ignore[union-attr]


def test_actions_of_another_kind_are_refused_in_one_sentence() -> None:
    one = np.ones((1, 2), np.float32)
    boxes = [Episode(np.eye(25, dtype=np.float32)[:1], one, one[:, 0])]
    with pytest.raises(
        RequestError,
        match=r"their actions have shape \[2\], but those of Maze-v0 have \[\]",
    ):
        rlbook.train("iql", "Maze-v0", data=Episodes(boxes, unit="episode"))


@pytest.mark.parametrize("cut", [1, 5])
def test_a_run_cut_short_goes_on_bit_for_bit(tmp_path: Path, cut: int) -> None:
    settings: dict[str, Any] = {"steps": 8, "walks": 4, "batch_size": 16, "eval_every": 0}
    whole = rlbook.train("iql", "Pendulum-v1", **settings)

    def stop(run: Run) -> None:
        if run.steps >= cut:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted):
        rlbook.train("iql", "Pendulum-v1", out=tmp_path / "run", on_report=stop, **settings)
    resumed: Any = rlbook.load(tmp_path / "run").resume()
    for ours, theirs in zip(whole.agent.networks, resumed.agent.networks, strict=True):  # type: ignore[attr-defined]
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert torch.equal(one, other)


@pytest.mark.slow
def test_random_walks_are_enough_for_the_maze() -> None:
    assert rlbook.evaluate(rlbook.train("iql", "Maze-v0", eval_every=0), episodes=1).mean == 3.0
